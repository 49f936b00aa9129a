package posterior

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Quadratic computes yᵀK⁻¹y to a bound, for little more than a product with K where it
// has been computed at some points nearby: the solutions there are a basis in which the
// solution here is sought by least squares,
//
//	min_c ‖y − K·V·c‖,  x = V·c,  r = y − K·x,
//
// and 2yᵀx − xᵀKx differs from yᵀK⁻¹y by rᵀK⁻¹r, which lies between 0 and ‖r‖²/λ, λ
// the least noise. Only where that is too much are iterations needed. (Least squares, not
// Galerkin's projection, which leaves the residual's norm free.) A Quadratic is not safe
// for concurrent use.
type Quadratic struct {
	problem *Problem
	y       []float64 // the targets
	op      Operator
	solver  *solve.Solver // of the same operator
	single  func(ctx context.Context, dst, v [][]float64) error

	kv     [][]float64
	x, kx  []float64
	report solve.Report
}

// NewQuadratic returns the quadratic form of a problem. The operator's products in single
// precision, if it has them, serve to find the solution; what is returned is computed in
// double precision.
func NewQuadratic(p *Problem, op Operator, solver *solve.Solver) *Quadratic {
	n := len(p.Y)
	q := &Quadratic{problem: p, y: p.Targets(), op: op, solver: solver, single: op.Mul, x: make([]float64, n), kx: make([]float64, n)}
	if s, ok := op.(solve.SingleOperator); ok {
		q.single = s.MulSingle
	}
	return q
}

// basisTolerance is the relative residual of the basis.
const basisTolerance = 1e-6

// At returns the form at ψ, and the bound on what it is too small by: at most tolerance,
// unless the value has come to enough, where nobody needs to know more, or the solver gives
// up before. basis are solutions at points nearby, of which there may be none. The only error is that of ctx.
func (q *Quadratic) At(ctx context.Context, psi []float64, basis [][]float64, tolerance, enough float64) (value, bound float64, err error) {
	theta, noise := q.problem.At(psi)
	q.op.Set(theta, noise)
	least := slices.Min(noise)
	clear(q.x)
	if len(basis) > 0 {
		for len(q.kv) < len(basis) {
			q.kv = append(q.kv, make([]float64, len(q.y)))
		}
		kv := q.kv[:len(basis)]
		q.report.Products++
		q.report.Singles++
		if err := q.single(ctx, kv, basis); err != nil {
			return 0, 0, err
		}
		for c, v := range leastSquares(kv, q.y) {
			floats.AddScaled(q.x, v, basis[c])
		}
	}
	last := math.Sqrt(tolerance * least)
	for done := false; ; {
		if value, bound, err = q.value(ctx, least); err != nil {
			return 0, 0, err
		}
		if done || bound <= tolerance || value >= enough {
			return value, bound, nil
		}
		target := max(last, coarse*math.Sqrt(bound*least))
		q.solver.SetTargets([]float64{target})
		rep, err := q.solver.Solve(ctx, [][]float64{q.x}, [][]float64{q.y})
		q.solver.SetTargets(nil)
		q.report.Add(rep)
		if err != nil {
			return 0, 0, err
		}
		done = target == last || rep.Unconverged > 0
	}
}

// coarse is the factor by which solves lower the residual before the value is looked at.
const coarse = 1e-2

// value returns the form by the solution so far, and its bound.
func (q *Quadratic) value(ctx context.Context, leastNoise float64) (value, bound float64, err error) {
	q.report.Products++
	if err := q.op.Mul(ctx, [][]float64{q.kx}, [][]float64{q.x}); err != nil {
		return 0, 0, err
	}
	for i, kx := range q.kx {
		value += q.x[i] * (2*q.y[i] - kx)
		bound += (q.y[i] - kx) * (q.y[i] - kx)
	}
	return value, bound / leastNoise, nil
}

// Basis returns the solutions at some points. The only error is that of ctx.
func (q *Quadratic) Basis(ctx context.Context, points [][]float64) ([][]float64, error) {
	var basis [][]float64
	for i, psi := range points {
		q.op.Set(q.problem.At(psi))
		x := make([]float64, len(q.y))
		if i > 0 {
			copy(x, basis[i-1]) // a start, of no bearing on where it ends but within the tolerance
		}
		q.solver.SetTargets([]float64{basisTolerance * floats.Norm(q.y, 2)})
		rep, err := q.solver.Solve(ctx, [][]float64{x}, [][]float64{q.y})
		q.solver.SetTargets(nil)
		q.report.Add(rep)
		if err != nil {
			return nil, err
		}
		basis = append(basis, x)
	}
	return basis, nil
}

// Report returns what was solved since the last call.
func (q *Quadratic) Report() solve.Report {
	rep := q.report
	q.report = solve.Report{}
	return rep
}

// leastSquares returns the c that minimises ‖y − A·c‖, A given by its columns, by the
// normal equations with a ridge at the limit of single precision.
func leastSquares(a [][]float64, y []float64) []float64 {
	k := len(a)
	gram, rhs := mat.NewSymDense(k, nil), mat.NewVecDense(k, nil)
	norm := make([]float64, k)
	for i := range a {
		norm[i] = floats.Norm(a[i], 2)
		if norm[i] == 0 {
			norm[i] = 1
		}
	}
	for i := range a {
		rhs.SetVec(i, floats.Dot(a[i], y)/norm[i])
		for j := range i + 1 {
			gram.SetSym(i, j, floats.Dot(a[i], a[j])/(norm[i]*norm[j]))
		}
	}
	var chol mat.Cholesky
	for ridge := 1e-12; ; ridge *= 100 {
		for i := range k {
			gram.SetSym(i, i, 1+ridge)
		}
		if chol.Factorize(gram) {
			break
		}
		if ridge > 1 {
			panic(fmt.Sprintf("posterior: a Gram matrix of %d columns that is not finite", k))
		}
	}
	var c mat.VecDense
	_ = chol.SolveVecTo(&c, rhs) // only warns of ill-conditioning
	out := c.RawVector().Data
	for i := range out {
		out[i] /= norm[i]
	}
	return out
}
