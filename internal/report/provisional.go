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

// NewProvisional returns what can be said of a prepared run: of the Laplace
// approximation at the mode, corrected if the log densities are there. It returns
// nil for a run of which only the mode of a subset is known.
func NewProvisional(m posterior.Model, d *dataset.Info, r *chains.Run) (*Provisional, error) {
	switch {
	case r.Prepared == nil || sampler.Of(&r.Plan).Needs().Search == sampler.OnSubset:
		return nil, nil
	case r.Provisional != nil:
		return weighted(m, d, r)
	}
	draws, err := laplace(r, laplaceDraws)
	if err != nil {
		return nil, err
	}
	return &Provisional{Draws: laplaceDraws, Parameters: rows(m, d, draws, slices.Repeat([]float64{1.0 / laplaceDraws}, laplaceDraws)),
		Note: "provisional: the Laplace approximation at the mode, not corrected"}, nil
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
	v.Note = fmt.Sprintf("provisional: %d draws of a Student t at the mode with importance weights, k-hat %.2f: ", v.Draws, khat)
	if khat <= trustedKHat {
		v.Note += "to be trusted as far as their number goes"
	} else {
		v.Note += "NOT to be trusted (above 0.7), wait for the chains"
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
			parts = append(parts, fmt.Sprintf("%s %.3g ± %.2g", r.Name, float64(r.Mean), float64(r.SD)))
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
