package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Fit is a point estimate, in place of draws: what fit.json holds, and a summary of a fit.
type Fit struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Seed    uint64 `json:"seed"`
	// Method is how the optimum was searched, Objective what was: map or ml; Model what was computed of the
	// likelihood: exact, laplace, or the name of an approximation.
	Method    string `json:"method"`
	Objective string `json:"objective"`
	Model     string `json:"model"`
	Converged bool   `json:"converged"`
	// Distance is how far the optimum is by the gradient and the curvature, in standard errors.
	Distance Number `json:"distance"`
	// LogLikelihood is the log marginal likelihood of the standardised targets, LogDensity that with the log prior. LogLikelihoodError is
	// the standard error of both, where they are estimated.
	LogLikelihood      Number      `json:"log_marginal_likelihood"`
	LogDensity         Number      `json:"log_density"`
	LogLikelihoodError Number      `json:"log_marginal_likelihood_error"`
	Parameters         []FitRow    `json:"parameters"`
	Names              []string    `json:"names"` // of Psi
	Psi                []float64   `json:"psi"`
	Cov                []float64   `json:"covariance"` // of Psi, p×p; null where the curvature is not that of a maximum
	Searches           []fit.Ended `json:"searches,omitempty"`
	Trace              []fit.Step  `json:"trace,omitempty"`
	Extra              []float64   `json:"extra,omitempty"` // coordinates of the approximation's own
	Cost               FitCost     `json:"cost"`
	Warnings           []string    `json:"warnings"`
}

// FitCost is what a fit took.
type FitCost struct {
	Evaluations int     `json:"evaluations"` // of the density with its gradient, or of gradients
	Solves      int     `json:"solves,omitempty"`
	Iterations  int     `json:"iterations,omitempty"` // of solves
	Products    int     `json:"products,omitempty"`
	Seconds     float64 `json:"seconds"`
}

// FitRow is the estimate of a quantity, with its standard error by the delta method and a 90 % interval, normal on
// the unconstrained scale: numbers that are not known are null.
type FitRow struct {
	Name     string  `json:"name"`
	Detail   bool    `json:"detail,omitempty"`
	Estimate Number  `json:"estimate"`
	SE       Number  `json:"std_error"`
	Lo       Number  `json:"q5"`
	Hi       Number  `json:"q95"`
	Truth    *Number `json:"truth,omitempty"`
}

// intervalMass is that of the intervals.
const intervalMass = 0.9

// FitRows returns the quantities at ψ, whose covariance may be nil. The interval of what is a monotone function of
// one element of ψ is that of the element; of others it is normal.
func FitRows(m posterior.Model, d *dataset.Info, psi []float64, cov *mat.SymDense) []FitRow {
	z := distuv.UnitNormal.Quantile(0.5 + intervalMass/2)
	var truth []float64
	if d.Truth != nil {
		truth = m.Params.Sampled(d.Truth.Of(m.Params))
	}
	var rows []FitRow
	for _, q := range Quantities(m, d) {
		nan := Number(math.NaN())
		r := FitRow{Name: q.Name, Detail: q.Detail, Estimate: Number(q.Of(psi)), SE: nan, Lo: nan, Hi: nan}
		if truth != nil {
			v := Number(q.Of(truth))
			r.Truth = &v
		}
		if cov != nil {
			slope, of := slopes(q.Of, psi)
			se := math.Sqrt(mat.Inner(slope, cov, slope))
			lo, hi := q.Of(psi)-z*se, q.Of(psi)+z*se
			if of >= 0 {
				lo, hi = along(q.Of, psi, of, -z*math.Sqrt(cov.At(of, of))), along(q.Of, psi, of, z*math.Sqrt(cov.At(of, of)))
			}
			r.SE, r.Lo, r.Hi = Number(se), Number(min(lo, hi)), Number(max(lo, hi))
		}
		rows = append(rows, r)
	}
	return rows
}

// along returns f with one element moved.
func along(f func([]float64) float64, psi []float64, i int, by float64) float64 {
	x := slices.Clone(psi)
	x[i] += by
	return f(x)
}

// slopes returns the gradient of f by central differences, and which element alone it depends on, -1 if several.
func slopes(f func([]float64) float64, psi []float64) (g *mat.VecDense, of int) {
	const h = 1e-5
	g, of = mat.NewVecDense(len(psi), nil), -1
	several := false
	for i := range psi {
		v := (along(f, psi, i, h) - along(f, psi, i, -h)) / (2 * h)
		g.SetVec(i, v)
		if v != 0 {
			several = of >= 0
			of = i
		}
	}
	if several {
		of = -1
	}
	return g, of
}

// Fitted returns the run that stands for an estimate in a folder: one chain with one draw, so that what predicts from
// draws predicts from it.
func Fitted(p chains.Plan, f *Fit) *chains.Run {
	p.Chains, p.Draws, p.Windows, p.Provisional, p.Certificate = 1, 1, nil, false, nil
	r := chains.New(p)
	r.Phase = chains.Done
	r.Prepared = &chains.Prepared{Psi: f.Psi, Starts: [][]float64{f.Psi}, Cov: f.Cov}
	r.Chains = []chains.Chain{{State: chains.State{Psi: f.Psi}, Draws: [][]float64{f.Psi}, Cost: chains.Cost{Seconds: f.Cost.Seconds}}}
	r.Stopped = &chains.Stop{Reason: chains.Converged, Draws: 1, Elapsed: f.Cost.Seconds, Phase: chains.Sampling}
	if !f.Converged {
		r.Stopped.Reason = chains.MaxDraws
	}
	return r
}

// fitFile is the name of an estimate in the folder of a fit.
const fitFile = "fit.json"

// IsFit reports whether a folder is that of a fit.
func IsFit(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, fitFile))
	return err == nil && info.Mode().IsRegular()
}

// WriteFit writes the results of a fit into a directory: result.json, fit.json, summary.json, summary.txt and
// report.html, and SHA256SUMS of all of these.
func WriteFit(dir string, rec *Record, sum *Summary) error {
	return writeFiles(dir, rec, sum, map[string]func(io.Writer) error{fitFile: func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rec.Fit)
	}}, nil)
}

// fitSummary returns the summary of a fit: the estimates are the means and the medians of its parameters, the
// standard errors their standard deviations.
func (r *Record) fitSummary() *Summary {
	f, nan := r.Fit, Number(math.NaN())
	sum := &Summary{Name: r.Spec.Name, Seed: r.Spec.Seed, N: r.Data.N(), D: r.Data.D(), Data: r.Data.Notes, Converged: f.Converged, Fit: f, WallSeconds: r.WallSeconds,
		Version: version.Version, InstructionSet: r.InstructionSet, DrawsSHA256: DrawsSHA256(r.Run), Warnings: slices.Concat([]string{}, f.Warnings), Chains: []Chain{}}
	for _, p := range f.Parameters {
		sum.Parameters = append(sum.Parameters, Parameter{Name: p.Name, Detail: p.Detail, Mean: p.Estimate, SD: p.SE, Q5: p.Lo, Q50: p.Estimate, Q95: p.Hi, Truth: p.Truth,
			MAD: nan, MCSEMean: nan, ErrorMean: nan, ErrorSD: nan, ESSBulk: nan, ESSTail: nan, ESSPerSecond: nan, RHat: nan, PSRF: nan, PSRF975: nan})
	}
	return sum
}

// fitColumns are those of the table of a fit.
var fitColumns = []string{"Estimate", "Std_error", "5%", "95%"}

func (r *FitRow) cells() []string {
	cells := []string{sig(r.Estimate), short(r.SE), sig(r.Lo), sig(r.Hi)}
	if r.Truth != nil {
		cells = append(cells, sig(*r.Truth))
	}
	return cells
}

// columns returns the heads of the table.
func (f *Fit) columns() []string {
	if len(f.Parameters) > 0 && f.Parameters[0].Truth != nil {
		return append(slices.Clone(fitColumns), "Truth")
	}
	return fitColumns
}

// said says in words what the estimate is.
func (f *Fit) said() string {
	what := map[string]string{"map": "highest posterior density (MAP)", "ml": "maximum marginal likelihood"}[f.Objective]
	return fmt.Sprintf("%s, %s model, by %s", what, f.Model, f.Method)
}

// state says in words how the fit stands.
func (f *Fit) state() string {
	if !f.Converged {
		return "fitted, NOT converged"
	}
	return "fitted"
}

// writeText writes the table and what it cost.
func (sum *Summary) writeFit(b *strings.Builder) {
	f := sum.Fit
	fmt.Fprintf(b, "%s: %s\n%d rows, %s; %s\n\n", sum.Name, f.state(), sum.N, plural.Of(sum.D, "input"), f.said())
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(f.columns(), "\t"))
	for i := range f.Parameters {
		if p := &f.Parameters[i]; !p.Detail || sum.Details {
			fmt.Fprintf(tw, "%s\t%s\t\n", p.Name, strings.Join(p.cells(), "\t"))
		}
	}
	tw.Flush()
	f.cost(b)
}

// cost writes what the fit came to and took.
func (f *Fit) cost(b *strings.Builder) {
	fmt.Fprintf(b, "\nlog marginal likelihood %.2f", float64(f.LogLikelihood))
	if e := float64(f.LogLikelihoodError); e > 0 {
		fmt.Fprintf(b, " ± %.2g", e)
	}
	if f.Objective == "map" {
		fmt.Fprintf(b, "; with the prior %.2f", float64(f.LogDensity))
	}
	if !math.IsNaN(float64(f.Distance)) {
		fmt.Fprintf(b, "; the optimum is %.2g standard errors away", float64(f.Distance))
	}
	b.WriteString("\n")
	if len(f.Searches) > 1 {
		values := make([]string, len(f.Searches))
		for i, s := range f.Searches {
			values[i] = fmt.Sprintf("%.2f", float64(s.Value))
		}
		fmt.Fprintf(b, "%d searches came to %s\n", len(values), strings.Join(values, ", "))
	}
	fmt.Fprintf(b, "%s; %d evaluations", seconds(f.Cost.Seconds), f.Cost.Evaluations)
	if f.Cost.Products > 0 {
		fmt.Fprintf(b, "; %d solves, %.1f iterations each; %d products with K", f.Cost.Solves, float64(f.Cost.Iterations)/float64(max(1, f.Cost.Solves)), f.Cost.Products)
	}
	b.WriteString("\n")
}
