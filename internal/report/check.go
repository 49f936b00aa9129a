package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/plots"
)

// Check compares the targets of rows that the posterior has learnt from with replicates: data
// sets of the same rows that the fitted model makes (Gelman, Meng and Stern 1996). They are in the
// units of the target.
type Check struct {
	Target     string
	Of         int // training rows, of which the rows here are all or a sample
	Observed   []float64
	Replicated [][]float64 // replicate × row
}

// Statistic is a number that tells of a data set, of the observed and of the replicated ones.
type Statistic struct {
	Name     string
	Observed float64
	// Q5 and Q95 are quantiles of the replicates, P the share of them that have as much or more.
	Q5, Q95, P float64
}

// statistics of data sets. The mean is what the model fits; the others it may miss.
var statistics = []struct {
	name string
	of   func(y []float64) float64
}{
	{"mean", func(y []float64) float64 { return stat.Mean(y, nil) }},
	{"sd", func(y []float64) float64 { return stat.StdDev(y, nil) }},
	{"smallest", slices.Min[[]float64]},
	{"largest", slices.Max[[]float64]},
	{"skewness", func(y []float64) float64 { return stat.Skew(y, nil) }},
}

// Statistics returns those of the check.
func (c *Check) Statistics() []Statistic {
	var out []Statistic
	for _, s := range statistics {
		t := Statistic{Name: s.name, Observed: s.of(c.Observed)}
		var all []float64
		for _, y := range c.Replicated {
			x := s.of(y)
			if all = append(all, x); x >= t.Observed {
				t.P += 1 / float64(len(c.Replicated))
			}
		}
		t.Q5, t.Q95 = diagnostics.Quantile(all, 0.05), diagnostics.Quantile(all, 0.95)
		out = append(out, t)
	}
	return out
}

// Doubts says, one sentence each, where the observed data do not look like replicates.
func (c *Check) Doubts() []string {
	var out []string
	for _, s := range c.Statistics() {
		if s.Observed < s.Q5-math.Abs(s.Q95-s.Q5) || s.Observed > s.Q95+math.Abs(s.Q95-s.Q5) {
			out = append(out, fmt.Sprintf("the %s of the targets is %s, of data that the model makes it is %s to %s: the model does not describe it", s.Name, sig(Number(s.Observed)), sig(Number(s.Q5)), sig(Number(s.Q95))))
		}
	}
	return out
}

// pageCheck is a check on the page.
type pageCheck struct {
	Text    string
	Columns []string
	Rows    []pageRow
	Figure  pageFigure
}

func (c *Check) page() (*pageCheck, error) {
	of := "all rows"
	if len(c.Observed) < c.Of {
		of = fmt.Sprintf("%d of %d rows, at random", len(c.Observed), c.Of)
	}
	out := &pageCheck{Text: fmt.Sprintf("%d data sets that the fitted model makes of %s, joint over the rows, beside the observed one.", len(c.Replicated), of),
		Columns: []string{"Observed", "5 % of replicates", "95 %", "P(replicate ≥ observed)"}}
	for _, s := range c.Statistics() {
		out.Rows = append(out.Rows, pageRow{s.Name, []string{sig(Number(s.Observed)), sig(Number(s.Q5)), sig(Number(s.Q95)), fmt.Sprintf("%.2f", s.P)}})
	}
	var b bytes.Buffer
	if err := plots.Replicates(&b, c.Target, c.Observed, c.Replicated); err != nil {
		return nil, err
	}
	svg, err := picture{Name: "check", SVG: b.Bytes()}.inline()
	out.Figure = pageFigure{"The density of the targets, and of each replicate. A model that is right makes data that look like the observed ones: a line that leaves the others shows what it misses, such as skewness or outliers.", svg}
	return out, err
}
