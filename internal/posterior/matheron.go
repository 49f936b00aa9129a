package posterior

import (
	"context"
	"math"

	"github.com/ulisse-gp/ulisse/internal/solve"
)

// matheronTolerance is the relative change at which the Lanczos run of a prior draw stops: the draw's
// error is small beside any noise that data have.
const matheronTolerance = 1e-4

// Settable is a solve.Operator that is K(θ), as Operator is.
type Settable interface {
	solve.Operator
	Set(theta, noise []float64)
}

// Matheron sets f to a draw of the latent function at the inputs of a problem given ψ, its targets
// and the auxiliary state of its likelihood, from the standard normals w and e:
//
//	f = u + K_f·x,  (K_f+D)x = z − u − D^½e,  u = K_f^½w,
//
// D being the noise. u is a draw of the prior, z − u − D^½e what the targets say against it and its
// noise (Matheron's rule; Wilson et al. 2020, eq. 11). opt is how to solve. x, if not nil, is where the
// solve begins and becomes its solution. The operator is left at ψ.
func Matheron(ctx context.Context, p *Problem, op Settable, opt solve.Options, psi, w, e, f, x []float64) (solve.Report, error) {
	theta, noise := p.At(psi)
	op.Set(theta, []float64{0})
	prior := opt
	prior.Tolerance, prior.Precond = matheronTolerance, nil
	rep, err := solve.New(op, prior).Sqrt(ctx, [][]float64{f}, [][]float64{w})
	if err != nil {
		return rep, err
	}
	op.Set(theta, noise)
	b := make([]float64, len(f))
	for i, z := range p.Targets() {
		b[i] = z - f[i] - math.Sqrt(element(noise, i))*e[i]
	}
	if x == nil {
		x = make([]float64, len(f))
	}
	r, err := solve.New(op, opt).Solve(ctx, [][]float64{x}, [][]float64{b})
	rep.Add(r)
	for i := range f { // K_f·x = b − D·x, but for the residual
		f[i] += b[i] - element(noise, i)*x[i]
	}
	return rep, err
}
