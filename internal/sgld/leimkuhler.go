package sgld

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// Leimkuhler is the dynamics of Leimkuhler and Matthews (2013),
//
//	ψ' = ψ + (ε/2)·C·ĝ + √ε·C^{1/2}(z_t + z_{t+1})/2,
//
// which has no bias of the step on a Gaussian posterior, where SGLD has. Each z
// is used twice: in the step that draws it and in the next.
//
// The noise of ĝ, of covariance S, would add to the spread. It is taken from
// the second use of z. With a = ε/2 and L a factor of C whose columns also
// diagonalise S (L·Lᵀ = C, (LᵀSL)_kk = v_k),
//
//	ψ' = ψ + a·C·ĝ + L(B·z_t + s·z_{t+1}),  s = √ε/2,
//	B_k = √(s²(2−a)² − a²v_k) − (1−a)s,
//
// which is B = s without noise. On N(μ,C), ψ = y + s·L·z with a chain y that
// contracts by 1−a and is excited by ((1−a)s + B)z and a·L⁻¹C(ĝ−g): its
// variance is 1 − s², and that of ψ is C.
type Leimkuhler struct {
	Step   float64 // ε
	Budget float64 // λ_min of s²(2−a)² − a²C^{1/2}SC^{1/2}: what the noise leaves free
	c      *mat.SymDense
	old    *mat.Dense // L·B
	fresh  *mat.Dense // L·s
}

// NewLeimkuhler returns the kernel for 0 < ε ≤ 2. It reports an error if the
// gradient is too noisy for the step.
func NewLeimkuhler(c, s *mat.SymDense, eps float64) (*Leimkuhler, error) {
	l, vecs, vals, err := whiten(c, s)
	if err != nil {
		return nil, err
	}
	k := &Leimkuhler{Step: eps, c: c, Budget: math.Inf(1)}
	a, half := eps/2, math.Sqrt(eps)/2
	p := len(vals)
	old, fresh := mat.NewDense(p, p, nil), mat.NewDense(p, p, nil)
	for j, v := range vals {
		q := half*half*(2-a)*(2-a) - a*a*v
		k.Budget = min(k.Budget, q)
		b := math.Sqrt(max(q, 0)) - (1-a)*half
		for i := range p {
			old.Set(i, j, vecs.At(i, j)*b)
			fresh.Set(i, j, vecs.At(i, j)*half)
		}
	}
	if k.Budget < 0 {
		return nil, fmt.Errorf("the gradient's noise exceeds what a step of %g allows (%.3g of the noise budget is left)", eps, k.Budget)
	}
	k.old, k.fresh = new(mat.Dense), new(mat.Dense)
	k.old.Mul(l, old)
	k.fresh.Mul(l, fresh)
	return k, nil
}

// Advance moves ψ by one step along the gradient estimate g. before gives the
// normals that the step before drew, now those of this one.
func (k *Leimkuhler) Advance(psi, g []float64, before, now *rand.Rand) {
	p := len(psi)
	z, w := mat.NewVecDense(p, nil), mat.NewVecDense(p, nil)
	for i := range p {
		z.SetVec(i, before.NormFloat64())
		w.SetVec(i, now.NormFloat64())
	}
	var drift, a, b mat.VecDense
	drift.MulVec(k.c, mat.NewVecDense(p, g))
	a.MulVec(k.old, z)
	b.MulVec(k.fresh, w)
	for i := range psi {
		psi[i] += k.Step/2*drift.AtVec(i) + a.AtVec(i) + b.AtVec(i)
	}
}

// AllowsFisher returns the largest NoiseRatio that a step h of Fisher takes.
func AllowsFisher(h float64) float64 { return (2 - h) / h }

// AllowsLeimkuhler returns the largest NoiseRatio that a step ε of Leimkuhler
// takes.
func AllowsLeimkuhler(eps float64) float64 { return (2 - eps/2) * (2 - eps/2) / eps }
