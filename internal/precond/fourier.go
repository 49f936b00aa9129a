package precond

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// fourier is P = D + ΦΦᵀ with random Fourier features: for each of rank/2
// frequencies ω from the kernel's spectral density, √(2σ/rank)·cos(ωᵀx) and
// √(2σ/rank)·sin(ωᵀx) (Rahimi and Recht 2007; Cutajar et al. 2016, section 3.2).
// An odd rank leaves one column out.
func fourier(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	pairs := max(1, rank/2)
	in, r := op.Inputs(), key.Stream(random.Pivot, 0)
	omega := columns(in.Dim(), pairs)
	for _, w := range omega {
		op.Family().Frequency(r, op.Params(), w)
	}
	amp := math.Sqrt(op.Params().Sigma / float64(pairs))
	cols := columns(in.Len(), 2*pairs)
	op.Budget().NewLoop(func(_, j int) {
		c, s := cols[2*j], cols[2*j+1]
		for i := range c {
			var u float64
			for k, x := range in.Row(i) {
				u += omega[j][k] * x
			}
			sin, cos := math.Sincos(u)
			c[i], s[i] = amp*cos, amp*sin
		}
	}).Run(pairs)
	return parts{newDiagonal(op.Noise(), op.Budget()), cols}, nil
}
