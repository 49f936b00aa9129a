package report

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Coefficients is the posterior of the coefficients of the mean.
type Coefficients struct {
	Draws int `json:"draws"` // that it is averaged over
	// Of are the constant, which is the mean where all inputs are at their averages, and slopes, in the units of the
	// target, or of its transform, over those of the input.
	Of []Coefficient `json:"of"`
}

// Coefficient is a mixture of normal distributions, one for each draw.
type Coefficient struct {
	Name string `json:"name"`
	Mean Number `json:"mean"`
	// MCSEMean is the standard error that the mean has of the draws' number.
	MCSEMean Number `json:"mcse_mean"`
	SD       Number `json:"sd"`
	Q5       Number `json:"q5"`
	Q50      Number `json:"q50"`
	Q95      Number `json:"q95"`
}

// NewCoefficients returns what a run says of the mean's coefficients; nil if it says nothing.
func NewCoefficients(m posterior.Model, d *dataset.Info, r *chains.Run) *Coefficients {
	k := r.Coefficients
	if k == nil {
		return nil
	}
	out := &Coefficients{Draws: len(k.Mean)}
	for t := range m.Covariance.Terms() {
		term := m.Covariance.TermName(t)
		if i := len(out.Of); job.OfMean(term) && i < len(k.Mean[0]) {
			out.Of = append(out.Of, newCoefficient(term, d, k, i, len(r.Chains)))
		}
	}
	return out
}

func newCoefficient(term string, d *dataset.Info, k *chains.Coefficients, i, chainCount int) Coefficient {
	name, shift, scale := job.Coefficient(term, d)
	at := func(t int) float64 { return shift + scale*k.Mean[t][i] }
	var mix likelihood.Mixture
	for t := range k.Mean {
		mix.Mean, mix.SD = append(mix.Mean, at(t)), append(mix.SD, scale*k.SD[t][i])
	}
	mean, sd := mix.Moments()
	return Coefficient{Name: name, Mean: Number(mean), SD: Number(sd), MCSEMean: Number(diagnostics.MCSEMean(k.Chains(chainCount, at))),
		Q5: Number(mix.Quantile(0.05)), Q50: Number(mix.Quantile(0.5)), Q95: Number(mix.Quantile(0.95))}
}

// coefficientColumns head the cells of a coefficient.
var coefficientColumns = []string{"Mean", "MCSE", "StdDev", "5%", "50%", "95%"}

func (c *Coefficient) cells() []string {
	return []string{sig(c.Mean), short(c.MCSEMean), sig(c.SD), sig(c.Q5), sig(c.Q50), sig(c.Q95)}
}

// caption says what the table of the coefficients is of.
func (k *Coefficients) caption() string {
	return fmt.Sprintf("coefficients of the mean, averaged over %s", plural.Of(k.Draws, "draw"))
}

func (k *Coefficients) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", k.caption())
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(coefficientColumns, "\t"))
	for i := range k.Of {
		fmt.Fprintf(tw, "%s\t%s\t\n", k.Of[i].Name, strings.Join(k.Of[i].cells(), "\t"))
	}
	tw.Flush()
}

// tellCoefficients adds the coefficients of a model with a mean, or says where they are. The coefficients of a run
// that was cancelled, or that an earlier version computed, can be asked for all the same.
func (sum *Summary) tellCoefficients(m posterior.Model, d *dataset.Info, r *chains.Run) {
	sum.Coefficients = NewCoefficients(m, d, r)
	switch {
	case sum.Coefficients != nil || !job.HasMean(m.Covariance):
	case r.Phase == chains.Concluding:
		sum.Notes = append(sum.Notes, "the coefficients of the mean are being computed")
	case r.MinDraws() > 0 && r.Stopped == nil:
		sum.Notes = append(sum.Notes, "the coefficients of the mean follow at the end of the run; ulisse predict --coefficients tells them so far")
	case r.MinDraws() > 0:
		sum.Notes = append(sum.Notes, "the coefficients of the mean were not computed: ulisse predict --coefficients tells them")
	}
}
