package report

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// Certificate holds a run against a short run of the exact sampler.
type Certificate struct {
	Draws      int         `json:"draws"`      // exact ones, of each chain
	Acceptance float64     `json:"acceptance"` // of the exact sampler
	Rank       int         `json:"rank"`
	RHat       Number      `json:"rhat"` // of the exact chains, the worst
	Parameters []Certified `json:"parameters"`
	// Agrees is false if a mean is off by more than 0.1 posterior sd, or an sd by
	// more than 5 %, and Monte Carlo error does not explain it.
	Agrees bool        `json:"agrees"`
	Text   []string    `json:"text"` // what it found, in sentences
	Cost   chains.Cost `json:"cost"`
}

// Certified is the comparison of a log parameter: the shift of its mean in
// units of the exact posterior sd, and the ratio of the sds, each with its
// Monte Carlo standard error.
type Certified struct {
	Name         string `json:"name"`
	Shift        Number `json:"shift"`
	ShiftError   Number `json:"shift_error"`
	SDRatio      Number `json:"sd_ratio"`
	SDRatioError Number `json:"sd_ratio_error"`
}

// What a certificate tolerates, and the probability with which Monte Carlo
// error alone makes it speak of a discrepancy, all parameters taken together.
const (
	toleratedShift = 0.1
	toleratedRatio = 0.05
	falseAlarm     = 0.01
	mixedRHat      = 1.05
)

// NewCertificate compares a run with the exact one that certifies it; nil if there
// is none, or it is at work still.
func NewCertificate(params param.List, r *chains.Run) *Certificate {
	if r.Certificate == nil || r.Certificate.Phase != chains.Done {
		return nil
	}
	return compareRuns(params, r, r.Certificate)
}

func compareRuns(params param.List, fast, exact *chains.Run) *Certificate {
	c := &Certificate{Draws: exact.MinDraws(), Agrees: true, Cost: exact.Cost()}
	if exact.Prepared != nil {
		c.Rank = exact.Prepared.Rank
	}
	for i := range exact.Chains {
		c.Acceptance += exact.Chains[i].Acceptance() / float64(len(exact.Chains))
	}
	if c.Draws < 4 || fast.MinDraws() < 4 {
		c.Agrees = false
		c.Text = []string{"there are too few draws to compare: allow the exact chains more time"}
		return c
	}
	c.RHat = Number(exact.Diagnose(c.Draws).RHat)
	z := distuv.UnitNormal.Quantile(1 - falseAlarm/float64(4*len(fast.Plan.Names)))
	worst := Certified{}
	for i, name := range fast.Plan.Names {
		p := compare(fast.Column(i, fast.MinDraws()), exact.Column(i, c.Draws))
		p.Name = params[i].Scale().Name(name)
		c.Parameters = append(c.Parameters, p)
		worst.ShiftError, worst.SDRatioError = max(worst.ShiftError, p.ShiftError), max(worst.SDRatioError, p.SDRatioError)
		if off := math.Abs(float64(p.Shift)); !(off <= max(toleratedShift, z*float64(p.ShiftError))) {
			c.disagree("the mean of %s is %+.2f ± %.2f posterior sd off that of the exact sampler", p.Name, p.Shift, p.ShiftError)
		}
		if off := math.Abs(float64(p.SDRatio) - 1); !(off <= max(toleratedRatio, z*float64(p.SDRatioError))) {
			c.disagree("the sd of %s is %.2f ± %.2f times that of the exact sampler", p.Name, p.SDRatio, p.SDRatioError)
		}
	}
	if !(float64(c.RHat) <= mixedRHat) {
		c.disagree("the exact chains have not mixed (R-hat %.3f), so that the comparison says little: raise the rank of the preconditioner", c.RHat)
	}
	if c.Agrees {
		c.Text = []string{fmt.Sprintf("means and sds agree with the exact sampler's; a mean off by more than %.2f sd, or an sd by more than %.0f %%, would have shown",
			max(toleratedShift, 2*z*float64(worst.ShiftError)), 100*max(toleratedRatio, 2*z*float64(worst.SDRatioError)))}
	}
	return c
}

func (c *Certificate) disagree(format string, args ...any) {
	c.Agrees = false
	c.Text = append(c.Text, fmt.Sprintf(format, args...))
}

func compare(x, y [][]float64) Certified {
	mx, sx := moments(x)
	my, sy := moments(y)
	ratio := sx / sy
	return Certified{
		Shift:        Number((mx - my) / sy),
		ShiftError:   Number(math.Hypot(diagnostics.MCSEMean(x), diagnostics.MCSEMean(y)) / sy),
		SDRatio:      Number(ratio),
		SDRatioError: Number(ratio * math.Hypot(diagnostics.MCSESD(x)/sx, diagnostics.MCSESD(y)/sy)),
	}
}

func (c *Certificate) write(b *strings.Builder) {
	fmt.Fprintf(b, "\ncertificate: %d exact draws of each chain, acceptance %.2f, rank %d, R-hat %.3f\n\n", c.Draws, c.Acceptance, c.Rank, float64(c.RHat))
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tShift/sd\t± \tsd ratio\t± \t")
	for _, p := range c.Parameters {
		fmt.Fprintf(tw, "%s\t%+.3f\t%.3f\t%.3f\t%.3f\t\n", p.Name, p.Shift, p.ShiftError, p.SDRatio, p.SDRatioError)
	}
	tw.Flush()
	for _, t := range c.Text {
		fmt.Fprintf(b, "certificate: %s\n", t)
	}
}
