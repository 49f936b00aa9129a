package solve

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Root is a factor F of a preconditioner P = F·Fᵀ ≈ K.
type Root interface {
	SolveRoot(dst, v [][]float64)      // dst = F⁻¹·v
	SolveRootTrans(dst, v [][]float64) // dst = F⁻ᵀ·v
}

// lanczosCheck is the number of iterations between tests of convergence.
const lanczosCheck = 3

// InvSqrt sets u[c] to an A·w[c] with A·Aᵀ = K⁻¹, so that w ~ N(0,I) gives
// u ~ N(0,K⁻¹): A = F⁻ᵀM^{−1/2} with M = F⁻¹KF⁻ᵀ, by Lanczos on M. A nil root
// means F = I. It stops when two estimates lanczosCheck iterations apart differ
// by the solver's relative tolerance. It keeps the Krylov basis: memory
// O(n·s·iterations).
//
// The residuals reported are those differences.
func (s *Solver) InvSqrt(ctx context.Context, u, w [][]float64, root Root) (Report, error) {
	var rep Report
	n := s.op.Len()
	cols := make([]*lanczos, len(w))
	var active []*lanczos
	for c := range w {
		if len(w[c]) != n || len(u[c]) != n {
			panic(fmt.Sprintf("solve: column %d has %d and %d rows, want %d", c, len(w[c]), len(u[c]), n))
		}
		cols[c] = newLanczos(w[c])
		if cols[c].norm > 0 {
			active = append(active, cols[c])
		}
	}
	maxIter := min(s.opt.MaxIter, n)
	for iter := 1; len(active) > 0 && iter <= maxIter; iter++ {
		in, out := make([][]float64, len(active)), make([][]float64, len(active))
		tmp := make([][]float64, len(active))
		for i, l := range active {
			in[i], out[i], tmp[i] = l.basis[len(l.basis)-1], l.next, l.tmp
		}
		if root != nil {
			root.SolveRootTrans(out, in)
			in = out
		}
		rep.Products++
		if err := s.op.Mul(ctx, tmp, in); err != nil {
			return rep, err
		}
		if root != nil {
			root.SolveRoot(out, tmp)
		} else {
			for i := range out {
				copy(out[i], tmp[i])
			}
		}
		s.opt.Budget.NewLoop(func(_, i int) {
			l := active[i]
			l.extend()
			if iter%lanczosCheck == 0 || l.exhausted || iter == maxIter {
				l.estimate()
			}
		}).Run(len(active))
		kept := active[:0]
		for _, l := range active {
			if !l.exhausted && l.change > s.opt.Tolerance {
				kept = append(kept, l)
			}
		}
		active = kept
	}
	for c, l := range cols {
		l.combine(u[c])
		rep.Iterations = append(rep.Iterations, len(l.alpha))
		rep.Residuals = append(rep.Residuals, l.change)
		if l.norm > 0 && !l.exhausted && !(l.change <= s.opt.Tolerance) {
			rep.Unconverged++
		}
	}
	if root != nil {
		root.SolveRootTrans(u, u)
	}
	return rep, nil
}

// lanczos is the Krylov space of one column.
type lanczos struct {
	norm        float64
	basis       [][]float64 // orthonormal
	alpha, beta []float64   // the tridiagonal matrix T
	next, tmp   []float64
	coef        []float64 // ‖w‖·T^{−1/2}·e₁, the estimate in the basis
	change      float64
	exhausted   bool // the space is invariant: the estimate is exact
}

func newLanczos(w []float64) *lanczos {
	l := &lanczos{norm: floats.Norm(w, 2), change: math.Inf(1), next: make([]float64, len(w)), tmp: make([]float64, len(w))}
	if l.norm == 0 {
		l.change = 0
		return l
	}
	v := make([]float64, len(w))
	floats.ScaleTo(v, 1/l.norm, w)
	l.basis = [][]float64{v}
	return l
}

// extend takes next = M·v for the last basis vector v and adds a basis vector,
// made orthogonal to all the others: without that the spread of T's
// eigenvalues would be counted twice.
func (l *lanczos) extend() {
	k := len(l.basis) - 1
	a := floats.Dot(l.next, l.basis[k])
	l.alpha = append(l.alpha, a)
	for range 2 { // twice is enough (Parlett)
		for _, v := range l.basis {
			floats.AddScaled(l.next, -floats.Dot(l.next, v), v)
		}
	}
	b := floats.Norm(l.next, 2)
	if b <= 1e-14*math.Abs(a) {
		l.exhausted = true
		return
	}
	l.beta = append(l.beta, b)
	v := make([]float64, len(l.next))
	floats.ScaleTo(v, 1/b, l.next)
	l.basis = append(l.basis, v)
}

// estimate computes the coefficients and how much they changed.
func (l *lanczos) estimate() {
	k := len(l.alpha)
	t := mat.NewSymDense(k, nil)
	for i, a := range l.alpha {
		t.SetSym(i, i, a)
		if i > 0 {
			t.SetSym(i-1, i, l.beta[i-1])
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(t, true) {
		return
	}
	var q mat.Dense
	eig.VectorsTo(&q)
	coef := make([]float64, k)
	for j, lambda := range eig.Values(nil) {
		f := l.norm * q.At(0, j) / math.Sqrt(max(lambda, math.SmallestNonzeroFloat64))
		for i := range coef {
			coef[i] += f * q.At(i, j)
		}
	}
	var diff float64
	for i, c := range coef {
		old := 0.0
		if i < len(l.coef) {
			old = l.coef[i]
		}
		diff += (c - old) * (c - old)
	}
	l.change = math.Sqrt(diff) / floats.Norm(coef, 2)
	if l.exhausted {
		l.change = 0
	}
	l.coef = coef
}

func (l *lanczos) combine(u []float64) {
	clear(u)
	for i, c := range l.coef {
		floats.AddScaled(u, c, l.basis[i])
	}
}
