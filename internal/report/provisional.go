package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Provisional is what can be said of the posterior before the chains have drawn
// from it.
type Provisional struct {
	Note       string           `json:"note"`      // what it is worth
	Corrected  bool             `json:"corrected"` // by importance weights
	Draws      int              `json:"draws"`
	KHat       *Number          `json:"khat,omitempty"` // of the weights: trust them up to 0.7
	ESS        *Number          `json:"ess,omitempty"`  // 1/Σw²
	Parameters []ProvisionalRow `json:"parameters"`
}

// ProvisionalRow is the provisional answer for one quantity.
type ProvisionalRow struct {
	Name   string `json:"name"`
	Detail bool   `json:"detail,omitempty"`
	Mean   Number `json:"mean"`
	SD     Number `json:"sd"`
	Q5     Number `json:"q5"`
	Q50    Number `json:"q50"`
	Q95    Number `json:"q95"`
}

// Constants of the provisional answer: draws of the Laplace approximation, and the
// k̂ up to which weights are to be trusted.
const (
	laplaceDraws = 4000
	trustedKHat  = 0.7
)

// NewProvisional returns the best that can be said of a prepared run without draws: by
// importance weights that are to be trusted, by the draws of the warm-up if they have
// mixed, else by the Laplace approximation at the mode. It returns nil for a run that is
// not prepared.
func NewProvisional(m posterior.Model, d *dataset.Info, r *chains.Run) (*Provisional, error) {
	if r.Prepared == nil {
		return nil, nil
	}
	var v *Provisional
	if r.Provisional != nil {
		var err error
		if v, err = weighted(m, d, r); err != nil || float64(*v.KHat) <= trustedKHat {
			return v, err
		}
	}
	if warm := warmed(r); warm != nil {
		return unweighted(m, d, slices.Concat(warm...), fmt.Sprintf("%s: the sampler was still being tuned", warmNote(warm))), nil
	}
	if v != nil {
		return v, nil
	}
	draws, err := laplace(r, laplaceDraws)
	if err != nil {
		return nil, err
	}
	return unweighted(m, d, draws, laplaceNote(d, r)), nil
}

// unweighted summarises draws of equal weight.
func unweighted(m posterior.Model, d *dataset.Info, draws [][]float64, note string) *Provisional {
	n := len(draws)
	return &Provisional{Note: "provisional: " + note, Draws: n, Parameters: rows(m, d, draws, slices.Repeat([]float64{1 / float64(n)}, n))}
}

func laplaceNote(d *dataset.Info, r *chains.Run) string {
	if rows := r.Prepared.OthersRows; rows < d.N() && sampler.Of(&r.Plan).Needs().Search == sampler.OnSubset {
		return fmt.Sprintf("the Laplace approximation at the mode of %d of %d rows, wider than the posterior of all", rows, d.N())
	}
	return "the Laplace approximation at the mode, not corrected"
}

func warmNote(warm [][][]float64) string {
	return fmt.Sprintf("%d draws of the warm-up, %d of each chain", len(warm)*len(warm[0]), len(warm[0]))
}

// Warm-up draws are shown if there are leastWarm of each chain, and their R-hat is not
// above warmRHat for any parameter: at that they are about as good as a normal
// approximation, and know of skewness.
const (
	leastWarm = 10
	warmRHat  = 1.2
)

// warmed returns the draws of the warm-up, as many of each chain, or nil if they are few
// or have not mixed. Those of the first window, which leads from the starts, are left out.
func warmed(r *chains.Run) [][][]float64 {
	var draws [][][]float64
	least := math.MaxInt
	for _, c := range r.Chains {
		if len(c.Windows) < 2 {
			return nil
		}
		draws = append(draws, slices.Concat(c.Windows[1:]...))
		least = min(least, len(draws[len(draws)-1]))
	}
	if least < leastWarm {
		return nil
	}
	for c := range draws {
		draws[c] = draws[c][len(draws[c])-least:]
	}
	for i := range r.Plan.Params() {
		x := make([][]float64, len(draws))
		for c := range draws {
			for _, psi := range draws[c] {
				x[c] = append(x[c], psi[i])
			}
		}
		if !(diagnostics.RHat(x) <= warmRHat) {
			return nil
		}
	}
	return draws
}

// laplace returns draws of the normal approximation at the mode.
func laplace(r *chains.Run, draws int) ([][]float64, error) {
	if p := len(r.Prepared.Psi); p == 0 || len(r.Prepared.Cov) != p*p {
		return nil, errors.New("the curvature at the mode is not known")
	}
	return sampler.Laplace(&r.Plan, r.Prepared, draws)
}

// weighted corrects the Laplace approximation: draws of a Student t at the mode
// have been weighed with the log density.
func weighted(m posterior.Model, d *dataset.Info, r *chains.Run) (*Provisional, error) {
	draws, logQ, err := sampler.Provisional(&r.Plan, r.Prepared)
	if err != nil {
		return nil, err
	}
	lw := make([]float64, len(draws))
	for i, logP := range r.Provisional.LogDensities {
		lw[i] = logP - logQ[i]
		if logP == -math.MaxFloat64 {
			lw[i] = math.Inf(-1)
		}
	}
	weights, khat := diagnostics.PSIS(lw)
	square := 0.0
	for _, w := range weights {
		square += w * w
	}
	k, ess := Number(khat), Number(1/square)
	v := &Provisional{Corrected: true, Draws: len(draws), KHat: &k, ESS: &ess, Parameters: rows(m, d, draws, weights)}
	v.Note = fmt.Sprintf("provisional: %d weighted draws of an approximation at the mode, ", v.Draws)
	if khat <= trustedKHat {
		v.Note += fmt.Sprintf("right but for chance (k-hat %.2f, at most %.1f)", khat, trustedKHat)
	} else {
		v.Note += fmt.Sprintf("NOT to be relied on, wait for the chains (k-hat %.2f, above %.1f)", khat, trustedKHat)
	}
	return v, nil
}

// rows summarises the weighted draws.
func rows(m posterior.Model, d *dataset.Info, draws [][]float64, weights []float64) []ProvisionalRow {
	var out []ProvisionalRow
	for _, q := range Quantities(m, d) {
		x := make([]float64, len(draws))
		order := make([]int, len(draws))
		for i, psi := range draws {
			x[i], order[i] = q.Of(psi), i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case x[a] < x[b]:
				return -1
			case x[a] > x[b]:
				return 1
			}
			return 0
		})
		sorted, w := make([]float64, len(x)), make([]float64, len(x))
		for i, o := range order {
			sorted[i], w[i] = x[o], weights[o]
		}
		mean := stat.Mean(sorted, w)
		sd := 0.0
		for i := range sorted {
			sd += w[i] * (sorted[i] - mean) * (sorted[i] - mean)
		}
		quantile := func(at float64) Number { return Number(stat.Quantile(at, stat.Empirical, sorted, w)) }
		out = append(out, ProvisionalRow{q.Name, q.Detail, Number(mean), Number(math.Sqrt(sd)), quantile(0.05), quantile(0.5), quantile(0.95)})
	}
	return out
}

// Line says the provisional answer in one line: mean and sd of what people are told first.
func (v *Provisional) Line() string {
	var parts []string
	for _, r := range v.Parameters {
		if !r.Detail {
			parts = append(parts, fmt.Sprintf("%s %s ± %.2g", r.Name, beside(float64(r.Mean), float64(r.SD)), float64(r.SD)))
		}
		if len(parts) == 5 {
			parts = append(parts, "…")
			break
		}
	}
	return v.Note + ": " + strings.Join(parts, ", ")
}

// The files of a provisional answer, which go when the results are there.
var provisionalFiles = []string{"provisional.json", "provisional.txt"}

// Write writes provisional.json and provisional.txt into a directory.
func (v *Provisional) Write(dir string) error {
	write := []func(io.Writer) error{
		func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(v)
		},
		func(w io.Writer) error {
			return v.table(w)
		},
	}
	for i, name := range provisionalFiles {
		if err := atomicfile.Write(filepath.Join(dir, name), 0o644, write[i]); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// provisionalColumns are those of the table.
var provisionalColumns = []string{"Mean", "StdDev", "5%", "50%", "95%"}

func (r *ProvisionalRow) cells() []string {
	return []string{sig(r.Mean), sig(r.SD), sig(r.Q5), sig(r.Q50), sig(r.Q95)}
}

// table writes the note and the numbers for people.
func (v *Provisional) table(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", v.Note)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(provisionalColumns, "\t"))
	for _, r := range v.Parameters {
		if r.Detail {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t\n", r.Name, strings.Join(r.cells(), "\t"))
	}
	return tw.Flush()
}

// RemoveProvisional removes them.
func RemoveProvisional(dir string) {
	for _, name := range provisionalFiles {
		os.Remove(filepath.Join(dir, name))
	}
}

// beside returns a mean with three digits, or as many as its standard deviation has: 1898.6 ± 0.52.
func beside(mean, sd float64) string {
	if sd > 0 && math.Abs(mean) > 100*sd {
		return strconv.FormatFloat(mean, 'f', max(0, 1-int(math.Floor(math.Log10(sd)))), 64)
	}
	return fmt.Sprintf("%.3g", mean)
}
