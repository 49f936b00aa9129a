// Package report turns a run into what people read: the summary table and its
// machine-readable twin, draws as CmdStan writes them, and plots.
package report

import (
	"math"
	"slices"
	"strconv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Quantity is something of interest that is a function of ψ.
type Quantity struct {
	Name  string // for programs
	Label string // for people: with the names of the inputs
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
//	lengthscale…           1/√(2τ), standardised
//	lengthscale_input[k]   the same in the units of input k
//	signal_sd, noise_sd    √σ and √λ in the units of the target
//	log_sigma, log_tau…, log_lambda
//
// People are told the length-scales of single inputs in the units of these, by their names,
// and one that all inputs share once.
func Quantities(m posterior.Model, d *dataset.Info) []Quantity {
	var q []Quantity
	for i, p := range m.Params {
		q = append(q, Quantity{Name: p.Name(), Label: p.As(p.Symbol, inputOf(p, d)), Of: natural(i, p, func(theta float64) float64 { return theta })})
	}
	for i, p := range m.Params {
		if p.Role == param.Rate {
			q = append(q, Quantity{Name: p.As("lengthscale", p.Index), Label: p.As("lengthscale", p.Index), Detail: len(p.Inputs) == 1,
				Of: natural(i, p, kernel.Lengthscale)})
		}
	}
	for k, s := range d.XScale {
		for i, p := range m.Params {
			if p.Role == param.Rate && slices.Contains(p.Inputs, k) {
				q = append(q, Quantity{Name: p.As("lengthscale_input", strconv.Itoa(k+1)), Label: p.As("lengthscale", d.InputNames[k]), Detail: len(p.Inputs) > 1,
					Of: natural(i, p, func(tau float64) float64 { return s.SD * kernel.Lengthscale(tau) })})
			}
		}
	}
	for _, sd := range []struct {
		name string
		of   param.Role
	}{{"signal_sd", param.Variance}, {"noise_sd", param.Noise}} {
		for i, p := range m.Params {
			if p.Role == sd.of {
				name := p.As(sd.name, p.Index)
				q = append(q, Quantity{Name: name, Label: name, Of: natural(i, p, func(variance float64) float64 { return d.YScale.SD * math.Sqrt(variance) })})
			}
		}
	}
	for i, p := range m.Params {
		q = append(q, Quantity{Name: p.As("log_"+p.Symbol, p.Index), Label: p.As("log_"+p.Symbol, inputOf(p, d)), Detail: true,
			Of: func(psi []float64) float64 { return psi[i] }})
	}
	return q
}

// inputOf returns the name of the input that a parameter is of, or the parameter's index.
func inputOf(p param.Param, d *dataset.Info) string {
	if p.Index != "" && len(p.Inputs) == 1 {
		return d.InputNames[p.Inputs[0]]
	}
	return p.Index
}

// natural returns f of parameter i on its natural scale.
func natural(i int, p param.Param, f func(theta float64) float64) func(psi []float64) float64 {
	return func(psi []float64) float64 { return f(p.Transform.Natural(psi[i])) }
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

// PlotDraws returns the draws of the log parameters, to plot.
func PlotDraws(r *chains.Run) plots.Draws {
	d := plots.Draws{}
	for i, name := range r.Plan.Names {
		d.Names = append(d.Names, "log "+name)
		d.X = append(d.X, r.Column(i, r.MinDraws()))
	}
	return d
}
