package sampler

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// Where two ψ are one point of a reduction, what it reduces has one value, by dense algebra. A scale of
// all variances is forgotten, unless a part of K is known: there it must not be.
func TestReductionsHoldOfK(t *testing.T) {
	m := Model{Rows: 3, Params: param.List{{Role: param.Variance}, {Role: param.Rate}, {Role: param.Noise}}}
	for _, known := range []float64{0, 0.7} {
		m.Offset = known > 0
		of := func(psi []float64) (logDet, logQuad float64) {
			k := mat.NewSymDense(3, nil)
			for i := range 3 {
				for j := range i + 1 {
					k.SetSym(i, j, math.Exp(psi[0]-math.Exp(psi[1])*float64((i-j)*(i-j))))
				}
				k.SetSym(i, i, k.At(i, i)+math.Exp(psi[2])/float64(1+i)+known*float64(i))
			}
			var chol mat.Cholesky
			if !chol.Factorize(k) {
				t.Fatal("K is singular")
			}
			y, x := mat.NewVecDense(3, []float64{1, -2, 0.5}), new(mat.VecDense)
			if err := chol.SolveVecTo(x, y); err != nil {
				t.Fatal(err)
			}
			return chol.LogDet(), math.Log(mat.Dot(y, x))
		}
		logDet, logQuad := reductions(m)
		psi, scaled := []float64{0.3, -1, -2}, []float64{1.1, -1, -1.2}
		d, q := of(psi)
		ds, qs := of(scaled)
		for name, x := range map[string]struct {
			by   *surrogate.Reduction
			a, b float64
		}{"log|K|": {logDet, d, ds}, "log yᵀK⁻¹y": {logQuad, q, qs}} {
			one := floats.EqualApprox(x.by.Point(psi), x.by.Point(scaled), 1e-12)
			a, b := x.by.Value(psi, x.a), x.by.Value(scaled, x.b)
			if one != (known == 0) || one && math.Abs(a-b) > 1e-10 {
				t.Errorf("known noise %g: %s at one point: %v, %g and %g", known, name, one, a, b)
			}
		}
	}
}
