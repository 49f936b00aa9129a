package precond

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// fourier is P = D + ΦΦᵀ with random Fourier features: for each of rank/2
// frequencies ω from the covariance's spectral density, √(2σ/rank)·cos(ωᵀx) and
// √(2σ/rank)·sin(ωᵀx) (Rahimi and Recht 2007; Cutajar et al. 2016, section 3.2), times an amplitude where the covariance is
// not stationary (kernel.Function.Amplitude).
// An odd rank leaves one column out.
func fourier(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	pairs := max(1, rank/2)
	in, f, r := k.Inputs(), k.Function(), key.Stream(random.Pivot, 0)
	if err := f.Spectral(); err != nil {
		return parts{}, fmt.Errorf("random Fourier features: %w: use another preconditioner", err)
	}
	omega := solve.Columns(in.Dim(), pairs)
	var amplitude []func(x []float64) float64 // of each frequency
	for _, w := range omega {
		amplitude = append(amplitude, f.Amplitude(r, f.Frequency(r, w)))
	}
	amp := math.Sqrt(f.Scale() / float64(pairs))
	cols := solve.Columns(in.Len(), 2*pairs)
	k.Budget().NewLoop(func(_, j int) {
		if ctx.Err() != nil {
			return
		}
		c, s := cols[2*j], cols[2*j+1]
		for i := range c {
			var u float64
			for q, x := range in.Row(i) {
				u += omega[j][q] * x
			}
			sin, cos := math.Sincos(u)
			b := amp * amplitude[j](in.Row(i))
			c[i], s[i] = b*cos, b*sin
		}
	}).Run(pairs)
	return parts{base: newDiagonal(k.Noise(), k.Budget()), cols: cols}, ctx.Err()
}
