// Package report turns a run into what people read: the summary table and its
// machine-readable twin, draws as CmdStan writes them, and plots.
package report

import (
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/plots"
)

// Quantity is something of interest that is a function of ψ.
type Quantity struct {
	Name string
	Of   func(psi []float64) float64
}

// Quantities returns, in the order of every table: the parameters on the
// natural scale, the derived length-scales and noise, and the log parameters.
//
//	sigma, tau…, lambda    of the standardised data
//	lengthscale…           1/√(2τ), standardised
//	lengthscale_input[k]   the same in the units of input k
//	noise_sd               √λ in the units of the target
//	log_sigma, log_tau…, log_lambda
func Quantities(m kernel.Model, d *dataset.Info) []Quantity {
	var q []Quantity
	names := m.Names()
	for i, name := range names {
		q = append(q, Quantity{name, func(psi []float64) float64 { return math.Exp(psi[i]) }})
	}
	for k := range m.NumTau() {
		name := "lengthscale"
		if m.ARD {
			name = fmt.Sprintf("lengthscale[%d]", k+1)
		}
		q = append(q, Quantity{name, func(psi []float64) float64 { return kernel.Lengthscale(math.Exp(psi[1+k])) }})
	}
	for k, s := range d.XScale {
		at := 1
		if m.ARD {
			at = 1 + k
		}
		q = append(q, Quantity{fmt.Sprintf("lengthscale_input[%d]", k+1), func(psi []float64) float64 {
			return s.SD * kernel.Lengthscale(math.Exp(psi[at]))
		}})
	}
	last := len(names) - 1
	q = append(q, Quantity{"noise_sd", func(psi []float64) float64 { return d.YScale.SD * math.Exp(psi[last]/2) }})
	for i, name := range names {
		q = append(q, Quantity{"log_" + name, func(psi []float64) float64 { return psi[i] }})
	}
	return q
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
