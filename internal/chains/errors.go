package chains

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Errors are the standard errors of a quantity's estimates.
type Errors struct {
	Mean float64 // in posterior standard deviations
	SD   float64 // relative
}

// Errors returns the total standard errors of the mean and the sd of a quantity that
// has the values x at the kept draws, chain by chain: of the finite number of draws,
// and of what is not known of the log density that they were drawn from. NaN where
// they cannot be told.
//
// An error δ of the log density moves an estimate with influence function u by
// Cov(u, δ) over the posterior; Drawn.Deviations are draws of δ.
func (r *Run) Errors(x [][]float64) Errors {
	all := slices.Concat(x...)
	if len(all) < 4 {
		return Errors{math.NaN(), math.NaN()}
	}
	mean, sd := stat.MeanStdDev(all, nil)
	e := Errors{Mean: diagnostics.MCSEMean(x) / sd, SD: diagnostics.MCSESD(x) / sd}
	if r.Drawn == nil || len(r.Drawn.Deviations) == 0 {
		return e
	}
	var z, z2 []float64 // influence on the mean and on the sd, both over the sd
	for _, chain := range x {
		for t := 0; t < len(chain); t += r.Drawn.Every {
			d := (chain[t] - mean) / sd
			z, z2 = append(z, d), append(z2, (d*d-1)/2)
		}
	}
	var shift, stretch float64
	for _, δ := range r.Drawn.Deviations {
		if len(δ) != len(z) {
			return Errors{math.NaN(), math.NaN()} // draws were added since
		}
		a, b := stat.Covariance(z, δ, nil), stat.Covariance(z2, δ, nil)
		shift, stretch = shift+a*a, stretch+b*b
	}
	n := float64(len(r.Drawn.Deviations))
	e.Mean = math.Hypot(e.Mean, r.Drawn.Inflation*math.Sqrt(shift/n))
	e.SD = math.Hypot(e.SD, r.Drawn.Inflation*math.Sqrt(stretch/n))
	return e
}
