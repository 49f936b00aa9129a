// Package report turns a run into what people read: the summary table and its
// machine-readable twin, draws as CmdStan writes them, and plots.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Quantity is something of interest that is a function of ψ.
type Quantity struct {
	Name string // by the names of the inputs: lengthscale[hr]
	Stan string // as CmdStan calls elements of vectors, by number: lengthscale.3
	// Detail says that people are told of it only if they ask: it is another form of what they are
	// told.
	Detail bool
	Of     func(psi []float64) float64
}

// Quantities returns, in the order of every table: the parameters on the
// natural scale, the derived length-scales and noise, and the log parameters. Those
// of a covariance of one family are
//
//	sigma, tau…, lambda    of the standardised data
//	lengthscale[input]     1/√(2τ) in the units of the input, where each has its own
//	lengthscale_std[input] the same of the standardised data
//	lengthscale            1/√(2τ) of the standardised data, where all inputs share one, or
//	                       of the circle of a periodic leaf
//	correlation            e^(−τ) of a hamming leaf
//	correlation[a,b]       of two levels of a coregion
//	signal_sd[a]           √σ times the scale of a level of a coregion
//	signal_sd, noise_sd    √σ and √λ in the units of the target, or of its transform
//	log_sigma, log_tau…, log_lambda: ψ, whose names param.Transform says
func Quantities(m posterior.Model, d *dataset.Info) []Quantity {
	var q []Quantity
	add := func(i int, symbol string, detail bool, of func(theta float64) float64) {
		p := m.Params[i]
		input, number := p.Of(d.InputNames), p.Index
		if p.Role == param.Noise && number != "" { // a level's
			number = strconv.Itoa(i - slices.IndexFunc(m.Params, func(q param.Param) bool { return q.Role == param.Noise }) + 1)
		}
		if p.Role == param.Partial || p.Role == param.Ratio { // of levels
			place := i - slices.IndexFunc(m.Params, func(q param.Param) bool { return q.As(q.Symbol, "") == p.As(p.Symbol, "") }) + 1
			if p.Role == param.Ratio { // the first level has none
				place++
			}
			number = strconv.Itoa(place)
		}
		if (strings.HasPrefix(symbol, "lengthscale") || symbol == "correlation") && len(p.Inputs) == 1 { // also of the only input, where tau has no index
			number = strconv.Itoa(p.Inputs[0] + 1)
			input = cmp.Or(d.InputNames[p.Inputs[0]], number)
		}
		q = append(q, Quantity{Name: p.As(symbol, input), Stan: stanName(p.As(symbol, number)), Detail: detail, Of: natural(i, p, of)})
	}
	same := func(theta float64) float64 { return theta }
	for i, p := range m.Params {
		add(i, p.Symbol, p.Role == param.Partial, same)
	}
	for i, p := range m.Params {
		switch {
		case p.Role != param.Rate:
		case len(p.Inputs) != 1:
			add(i, "lengthscale", false, kernel.Lengthscale)
		default:
			unit := d.XScale[p.Inputs[0]].SD
			add(i, "lengthscale", false, func(tau float64) float64 { return unit * kernel.Lengthscale(tau) })
		}
	}
	for i, p := range m.Params {
		if p.Role == param.Rate && len(p.Inputs) == 1 {
			add(i, "lengthscale_std", true, kernel.Lengthscale)
		}
	}
	for i, p := range m.Params {
		if p.Role == param.Mismatch {
			add(i, "correlation", false, func(tau float64) float64 { return math.Exp(-tau) })
		}
	}
	q = append(q, correlations(m)...)
	for _, sd := range []struct {
		name string
		of   param.Role
	}{{"signal_sd", param.Variance}, {"noise_sd", param.Noise}} {
		for i, p := range m.Params {
			if p.Role != sd.of {
				continue
			}
			unit := d.YScale.SD
			if p.Unitless {
				unit = 1
			}
			if levels := scaled(m, i, unit); levels != nil {
				q = append(q, levels...)
			} else {
				add(i, sd.name, false, func(variance float64) float64 { return unit * math.Sqrt(variance) })
			}
		}
	}
	for i, p := range m.Params {
		add(i, p.Scale().Name(p.Symbol), true, same)
		q[len(q)-1].Of = func(psi []float64) float64 { return psi[i] } // as it was drawn, to the last bit
	}
	return q
}

// own returns the parameters of a leaf on their natural scale.
func own(m posterior.Model, leaf int, psi []float64) []float64 {
	var theta []float64
	for _, p := range m.Covariance.LeafParams(leaf) {
		theta = append(theta, m.Params[p].Transform.Natural(psi[p]))
	}
	return theta
}

// correlations returns those of the levels of coregions.
func correlations(m posterior.Model) (out []Quantity) {
	for l, leaf := range m.Covariance.Leaves() {
		c, ok := leaf.(*kernel.Coregion)
		if !ok {
			continue
		}
		of := param.Param{Term: c.Prefix}
		for a, first := range c.Levels {
			for b := a + 1; b < len(c.Levels); b++ {
				out = append(out, Quantity{
					Name: of.As("correlation", first+","+c.Levels[b]),
					Stan: stanName(of.As("correlation", fmt.Sprintf("%d.%d", a+1, b+1))),
					Of:   func(psi []float64) float64 { return c.Correlation(a, b, own(m, l, psi)) },
				})
			}
		}
	}
	return out
}

// scaled returns the standard deviations of the levels of a term, given the place of its variance, if it has a coregion
// whose levels have scales.
func scaled(m posterior.Model, variance int, unit float64) (out []Quantity) {
	for _, t := range m.Covariance.Terms() {
		if t.Variance != variance {
			continue
		}
		for _, l := range t.Leaves {
			c, ok := m.Covariance.Leaves()[l].(*kernel.Coregion)
			if !ok || c.Equal {
				continue
			}
			if out != nil {
				return nil // a product of several: of a level of one the others have no level
			}
			for a, level := range c.Levels {
				out = append(out, Quantity{
					Name: m.Params[variance].As("signal_sd", level),
					Stan: stanName(m.Params[variance].As("signal_sd", strconv.Itoa(a+1))),
					Of: func(psi []float64) float64 {
						return unit * math.Sqrt(m.Params[variance].Transform.Natural(psi[variance])) * c.Scale(a, own(m, l, psi))
					},
				})
			}
		}
	}
	return out
}

// natural returns f of parameter i on its natural scale.
func natural(i int, p param.Param, f func(theta float64) float64) func(psi []float64) float64 {
	return func(psi []float64) float64 { return f(p.Scale().Natural(psi[i])) }
}

// Values returns the quantity at every kept draw, chain by chain.
func (q Quantity) Values(r *chains.Run) [][]float64 {
	out := make([][]float64, len(r.Chains))
	for c, ch := range r.Chains {
		out[c] = make([]float64, len(ch.Draws))
		for t, psi := range ch.Draws {
			out[c][t] = q.Of(psi)
		}
	}
	return out
}

// PlotDraws returns the draws of ψ, to plot.
func PlotDraws(params param.List, r *chains.Run) plots.Draws {
	d := plots.Draws{}
	for i, p := range params {
		d.Names = append(d.Names, p.Scale().Label(r.Plan.Names[i]))
		d.X = append(d.X, r.Column(i, r.MinDraws()))
	}
	return d
}
