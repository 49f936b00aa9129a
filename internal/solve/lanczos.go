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
	cols, rep, err := s.lanczos(ctx, w, root, func(x, lambda float64) float64 { return x / math.Sqrt(lambda) })
	if err != nil {
		return rep, err
	}
	for c, l := range cols {
		l.combine(u[c], l.coef)
	}
	if root != nil {
		root.SolveRootTrans(u, u)
	}
	return rep, nil
}

// Sqrt sets u[c] to K^½·w[c], so that w ~ N(0,I) gives u ~ N(0,K), by Lanczos. K need only be
// positive semi-definite: what w has in directions where K is small is small in u. It stops, costs
// and reports as InvSqrt; if there are targets (SetTargets), it stops when two estimates differ by less than those.
func (s *Solver) Sqrt(ctx context.Context, u, w [][]float64) (Report, error) {
	cols, rep, err := s.lanczos(ctx, w, nil, func(x, lambda float64) float64 { return x * math.Sqrt(lambda) })
	if err != nil {
		return rep, err
	}
	for c, l := range cols {
		l.combine(u[c], l.coef)
	}
	return rep, nil
}

// Krylov returns the Krylov spaces of M = F⁻¹KF⁻ᵀ and each w, large enough for M⁻¹w: until
// two estimates of that, lanczosCheck iterations apart, differ by the solver's relative
// tolerance. Memory and report are those of InvSqrt.
func (s *Solver) Krylov(ctx context.Context, w [][]float64, root Root) ([]*Space, Report, error) {
	cols, rep, err := s.lanczos(ctx, w, root, func(x, lambda float64) float64 { return x / lambda })
	out := make([]*Space, len(cols))
	for c, l := range cols {
		out[c] = &Space{l}
	}
	return out, rep, err
}

// lanczos builds the Krylov spaces of all w, until their estimates of f(M)·w converge:
// function(x,λ) is x·f(λ).
func (s *Solver) lanczos(ctx context.Context, w [][]float64, root Root, function func(x, lambda float64) float64) ([]*lanczos, Report, error) {
	var rep Report
	n := s.op.Len()
	cols := make([]*lanczos, len(w))
	var active []*lanczos
	for c := range w {
		if len(w[c]) != n {
			panic(fmt.Sprintf("solve: column %d has %d rows, want %d", c, len(w[c]), n))
		}
		cols[c] = newLanczos(w[c], function)
		if s.targets != nil {
			cols[c].target = s.targets[c]
		}
		if cols[c].norm > 0 {
			active = append(active, cols[c])
		}
	}
	maxIter := min(s.opt.MaxIter, n)
	for iter := 1; len(active) > 0 && iter <= maxIter; iter++ {
		if err := s.multiply(ctx, active, root); err != nil {
			return nil, rep, err
		}
		rep.Products++
		s.opt.Budget.NewLoop(func(_, i int) {
			l := active[i]
			l.extend()
			if iter%lanczosCheck == 0 || l.exhausted || iter == maxIter {
				l.estimate()
			}
		}).Run(len(active))
		kept := active[:0]
		for _, l := range active {
			if !l.exhausted && l.change > s.limit(l) {
				kept = append(kept, l)
			}
		}
		active = kept
	}
	for _, l := range cols {
		rep.Iterations = append(rep.Iterations, len(l.alpha))
		rep.Residuals = append(rep.Residuals, l.change)
		if l.norm > 0 && !l.exhausted && !(l.change <= s.limit(l)) {
			rep.Unconverged++
		}
	}
	return cols, rep, nil
}

// limit returns the relative change at which a column stops.
func (s *Solver) limit(l *lanczos) float64 {
	if l.target > 0 && l.size > 0 {
		return l.target / l.size
	}
	return s.opt.Tolerance
}

// multiply sets next of each space to M times its last basis vector.
func (s *Solver) multiply(ctx context.Context, active []*lanczos, root Root) error {
	in, out := make([][]float64, len(active)), make([][]float64, len(active))
	tmp := make([][]float64, len(active))
	for i, l := range active {
		in[i], out[i], tmp[i] = l.basis[len(l.basis)-1], l.next, l.tmp
	}
	if root != nil {
		root.SolveRootTrans(out, in)
		in = out
	}
	if err := s.op.Mul(ctx, tmp, in); err != nil {
		return err
	}
	if root != nil {
		root.SolveRoot(out, tmp)
		return nil
	}
	for i := range out {
		copy(out[i], tmp[i])
	}
	return nil
}

// Space is the Krylov space of a matrix M and a vector w, as Solver.Krylov returns it.
type Space struct{ l *lanczos }

// Least returns the least Ritz value: not above the least eigenvalue of M that w has a part
// in, but for rounding.
func (s *Space) Least() float64 {
	if len(s.l.values) == 0 {
		return math.Inf(1)
	}
	return s.l.values[0]
}

// Apply sets u to f(M)·w.
func (s *Space) Apply(u []float64, f func(lambda float64) float64) {
	s.l.combine(u, s.l.apply(func(x, lambda float64) float64 { return x * f(lambda) }))
}

// Form returns wᵀf(M)w.
func (s *Space) Form(f func(lambda float64) float64) float64 {
	var sum float64
	for j, lambda := range s.l.values {
		x := s.l.norm * s.l.vectors.At(0, j)
		sum += x * x * f(lambda)
	}
	return sum
}

// logTruncation is what of the trace of its columns LogDerivative leaves out.
const logTruncation = 1e-7

// LogDerivative returns columns z with Σ_k z_kᵀ·E·z_k = the derivative of wᵀlog(M)w along a
// symmetric E: Σ_ab x_a x_b log[θ_a,θ_b] v_aᵀ·E·v_b over the Ritz pairs (θ,v), x_a the part
// of w in v_a. The divided differences of the logarithm are a positive definite matrix whose
// eigenvalues fall fast, so that few columns suffice.
func (s *Space) LogDerivative() [][]float64 {
	k := len(s.l.values)
	if k == 0 {
		return nil
	}
	d := mat.NewSymDense(k, nil)
	for a, ta := range s.l.values {
		for b := range a + 1 {
			x := s.l.norm * s.l.norm * s.l.vectors.At(0, a) * s.l.vectors.At(0, b)
			d.SetSym(a, b, x*logDifference(ta, s.l.values[b]))
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(d, true) {
		return nil
	}
	values := eig.Values(nil)
	var q, coef mat.Dense
	eig.VectorsTo(&q)
	coef.Mul(s.l.vectors, &q)
	left := logTruncation * floats.Sum(values)
	var out [][]float64
	for j, v := range values { // the smallest first
		if left -= max(v, 0); left > 0 || v <= 0 {
			continue
		}
		z := make([]float64, len(s.l.next))
		s.l.combine(z, mat.Col(nil, j, &coef))
		floats.Scale(math.Sqrt(v), z)
		out = append(out, z)
	}
	return out
}

// logDifference returns (log a − log b)/(a − b), and 1/a for a = b.
func logDifference(a, b float64) float64 {
	x := (a - b) / b
	if math.Abs(x) < 1e-6 {
		return (1 - x/2) / b
	}
	return math.Log1p(x) / (a - b)
}

// lanczos is the Krylov space of one column.
type lanczos struct {
	norm        float64
	basis       [][]float64 // orthonormal
	alpha, beta []float64   // the tridiagonal matrix T
	next, tmp   []float64
	function    func(x, lambda float64) float64 // x·f(λ)
	values      []float64                       // of T, as of the last estimate
	vectors     *mat.Dense
	coef        []float64 // ‖w‖·f(T)·e₁, the estimate in the basis
	change      float64   // relative
	size        float64   // ‖coef‖
	target      float64   // change that is not relative to stop at; 0 for none
	exhausted   bool      // the space is invariant: the estimate is exact
}

func newLanczos(w []float64, function func(x, lambda float64) float64) *lanczos {
	l := &lanczos{function: function, norm: floats.Norm(w, 2), change: math.Inf(1), next: make([]float64, len(w)), tmp: make([]float64, len(w))}
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
	l.values, l.vectors = eig.Values(nil), new(mat.Dense)
	eig.VectorsTo(l.vectors)
	coef := l.apply(l.function)
	var diff float64
	for i, c := range coef {
		old := 0.0
		if i < len(l.coef) {
			old = l.coef[i]
		}
		diff += (c - old) * (c - old)
	}
	l.size = floats.Norm(coef, 2)
	l.change = math.Sqrt(diff) / l.size
	if l.exhausted {
		l.change = 0
	}
	l.coef = coef
}

// apply returns ‖w‖·f(T)·e₁ for function(x,λ) = x·f(λ).
func (l *lanczos) apply(function func(x, lambda float64) float64) []float64 {
	coef := make([]float64, len(l.values))
	for j, lambda := range l.values {
		f := function(l.norm*l.vectors.At(0, j), max(lambda, math.SmallestNonzeroFloat64))
		for i := range coef {
			coef[i] += f * l.vectors.At(i, j)
		}
	}
	return coef
}

// combine sets u to the vector of the space with the given coefficients.
func (l *lanczos) combine(u, coef []float64) {
	clear(u)
	for i, c := range coef {
		floats.AddScaled(u, c, l.basis[i])
	}
}
