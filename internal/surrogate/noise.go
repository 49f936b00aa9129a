package surrogate

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Spread is the noise of one probe at a point, as it was seen there: the covariance of the
// estimates of several probes, of which an observation is the mean.
type Spread struct {
	X      []float64
	Cov    *mat.SymDense // of one probe, from the sample
	Probes int
}

// neighbours is how many other points the noise at a point is taken from: enough that the
// mean of their covariances, of some probes each, is good to a few percent, few enough that
// the noise is much the same there.
const neighbours = 32

// PoolNoise returns the covariance of the noise of each observation, the mean over the
// probes, from the spread seen at other points near it. A point's own would be correlated
// with its error: points whose probes happen to agree would count too much.
func PoolNoise(w *Whitening, spreads []Spread) ([]*mat.SymDense, error) {
	if len(spreads) < 2 {
		return nil, fmt.Errorf("surrogate: the noise at %d points is not to be had from others", len(spreads))
	}
	z := make([][]float64, len(spreads))
	for i, s := range spreads {
		if s.Probes < 2 {
			return nil, fmt.Errorf("surrogate: the spread of %d probes at point %d", s.Probes, i+1)
		}
		z[i] = w.Apply(s.X)
	}
	out := make([]*mat.SymDense, len(spreads))
	order := make([]int, 0, len(spreads))
	distance := make([]float64, len(spreads))
	for i := range spreads {
		order = order[:0]
		for j := range spreads {
			if j != i {
				distance[j] = squared(z[i], z[j])
				order = append(order, j)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(distance[a], distance[b]) })
		cov := mat.NewSymDense(w.Dim(), nil)
		var degrees float64
		for _, j := range order[:min(neighbours, len(order))] {
			d := float64(spreads[j].Probes - 1)
			var part mat.SymDense
			part.ScaleSym(d, spreads[j].Cov)
			cov.AddSym(cov, &part)
			degrees += d
		}
		cov.ScaleSym(1/(degrees*float64(spreads[i].Probes)), cov)
		out[i] = cov
	}
	return out, nil
}
