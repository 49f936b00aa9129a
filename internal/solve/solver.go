package solve

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Columns returns s columns of n zeros, one after the other in memory.
func Columns(n, s int) [][]float64 {
	buf := make([]float64, n*s)
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = buf[c*n : (c+1)*n : (c+1)*n]
	}
	return cols
}

// Operator is a symmetric positive definite matrix K of order Len. Mul sets
// dst[c] = K·v[c]; its only error is that of its context.
type Operator interface {
	Len() int
	Mul(ctx context.Context, dst, v [][]float64) error
}

// SingleOperator also multiplies in single precision.
type SingleOperator interface {
	Operator
	MulSingle(ctx context.Context, dst, v [][]float64) error
}

// Preconditioner is a P ≈ K that is cheap to solve with: Solve sets
// dst[c] = P⁻¹·r[c]. P must be symmetric positive definite.
type Preconditioner interface {
	Solve(dst, r [][]float64)
}

// VariablePreconditioner is a preconditioner that solves by iterating, so that
// it is not the same matrix each time. It needs Options.Flexible. Its only error
// is that of ctx.
type VariablePreconditioner interface {
	Preconditioner
	SolveContext(ctx context.Context, dst, r [][]float64) error
}

// Options say how to solve.
type Options struct {
	// Tolerance is the relative residual ‖b−Kx‖/‖b‖ to reach.
	Tolerance float64
	// MaxIter bounds the iterations of a column. 0 means 10·n + 100.
	MaxIter int
	// Precond is the preconditioner; nil means none.
	Precond Preconditioner
	// PerColumn, if not nil, has a preconditioner for each right-hand side in
	// place of Precond; nil means none. It compares preconditioners at the price
	// of the products of the slowest.
	PerColumn []Preconditioner
	// Flexible makes each direction conjugate to the last one whatever the
	// preconditioner did (the β of Polak and Ribière; Notay 2000), for
	// preconditioners that vary.
	Flexible bool
	// Mixed does the iterations' products in single precision. The residual is
	// replaced by the true one, from a product in double precision, each time
	// it has fallen by mixedReduction: in single precision the recurrence
	// reports residuals that the solution does not have. A column that makes no
	// progress so, because K's condition is beyond single precision, goes on
	// in double precision.
	Mixed bool
	// Budget is the cores to use for vector work; nil means one.
	Budget *parallel.Budget
}

const mixedReduction = 1e-4

// recurrenceMargin is how far below the tolerance the recurrence goes, so that
// the true residual, which differs by rounding, is below it too.
const recurrenceMargin = 0.9

// mixedStall is the number of iterations that do not halve the residual after
// which a recurrence in single precision is restarted from the true residual.
const mixedStall = 100

// mixedProgress is the factor by which the true residual must have fallen from
// one replacement to the next for a column to go on in single precision.
const mixedProgress = 0.1

// Report says what a solve cost and what it reached.
type Report struct {
	Iterations   []int     // of each column
	Residuals    []float64 // ‖b−Kx‖/‖b‖ of each column: true for Solve, from the recurrence for Estimate
	Products     int       // products with K, of any number of columns
	Singles      int       // those in single precision
	Replacements int       // residuals found above the tolerance and replaced by the true ones
	Unconverged  int       // columns that did not reach the tolerance
}

// Add adds the report of another solve.
func (r *Report) Add(o Report) {
	r.Iterations = append(r.Iterations, o.Iterations...)
	r.Residuals = append(r.Residuals, o.Residuals...)
	r.Products += o.Products
	r.Singles += o.Singles
	r.Replacements += o.Replacements
	r.Unconverged += o.Unconverged
}

// MeanIterations returns the mean over columns.
func (r Report) MeanIterations() float64 {
	if len(r.Iterations) == 0 {
		return 0
	}
	var sum int
	for _, it := range r.Iterations {
		sum += it
	}
	return float64(sum) / float64(len(r.Iterations))
}

// MaxResidual returns the largest residual.
func (r Report) MaxResidual() float64 {
	var m float64
	for _, x := range r.Residuals {
		m = max(m, x)
	}
	return m
}

// Solver solves systems with one operator and reuses its workspace. It is not
// safe for concurrent use.
type Solver struct {
	op   Operator
	opt  Options
	pool []*column // workspaces, as many as the widest block so far
	cols []*column // those of the current block

	targets []float64 // residual norms to reach, in place of the tolerance; nil for none

	// The columns of the current step, gathered.
	in, out [][]float64
	active  []*column
	single  bool      // products in single precision
	stalled []*column // those that must go on in double precision
}

// column is the state of one right-hand side.
type column struct {
	index      int
	b, x       []float64
	r, z, p, q []float64
	rz         float64 // rᵀz
	alpha      float64 // of the last step
	bnorm      float64
	rnorm      float64 // of the recurrence
	last       Step    // the last step's lengths
	start      float64 // true residual norm at the last replacement
	target     float64 // residual norm to reach
	best       float64 // rnorm when it was last halved
	bestIter   int     // and the iteration when it was
	iter       int
	steps      []Step // of each step, kept for stopping laws
	sure       bool   // ULISSE: the residual is small enough for the tail to begin
	tail       *tail  // ULISSE: its state, once it has
}

// New returns a solver. It panics if Mixed is asked of an operator that has no
// single precision.
func New(op Operator, opt Options) *Solver {
	if _, ok := op.(SingleOperator); opt.Mixed && !ok {
		panic("solve: the operator has no single precision")
	}
	if opt.MaxIter == 0 {
		opt.MaxIter = 10*op.Len() + 100
	}
	if opt.Budget == nil {
		opt.Budget = parallel.NewBudget(1)
	}
	return &Solver{op: op, opt: opt}
}

// Options returns the solver's options.
func (s *Solver) Options() Options { return s.opt }

// SetTargets gives each column of the solves that follow the norm of the residual
// that it is to reach, in place of the tolerance, and of the Lanczos runs that of the change. nil takes that back.
func (s *Solver) SetTargets(norms []float64) { s.targets = norms }

// Residual returns b−Kx of a column of the last Solve, computed in double
// precision from the x that it returned: to read, until the next.
func (s *Solver) Residual(c int) []float64 { return s.cols[c].r }

// Solve solves K·x[c] = b[c], starting from the x given (a warm start; zeros
// are recognised and cost nothing). Every residual reported is that of the x
// returned, computed in double precision. A column that cannot be brought to
// the tolerance is counted in Unconverged. The only error is that of ctx.
func (s *Solver) Solve(ctx context.Context, x, b [][]float64) (Report, error) {
	var rep Report
	if err := s.start(ctx, x, b, &rep); err != nil {
		return rep, err
	}
	s.active = s.active[:0]
	for _, c := range s.cols {
		if c.rnorm > c.target {
			s.active = append(s.active, c)
		}
	}
	s.single, s.stalled = s.opt.Mixed, s.stalled[:0]
	for len(s.active) > 0 {
		cycle := append([]*column(nil), s.active...)
		if err := s.iterate(ctx, &rep); err != nil {
			return rep, err
		}
		s.active = cycle
		if err := s.replace(ctx, &rep); err != nil {
			return rep, err
		}
		if len(s.active) == 0 && s.single {
			s.single, s.active = false, append(s.active, s.stalled...)
		}
	}
	s.finish(&rep)
	return rep, nil
}

// start sets up the columns with their true residuals.
func (s *Solver) start(ctx context.Context, x, b [][]float64, rep *Report) error {
	n := s.op.Len()
	if len(x) != len(b) {
		panic(fmt.Sprintf("solve: %d solutions for %d right-hand sides", len(x), len(b)))
	}
	for len(s.pool) < len(b) {
		w := make([]float64, 4*n)
		s.pool = append(s.pool, &column{r: w[:n:n], z: w[n : 2*n : 2*n], p: w[2*n : 3*n : 3*n], q: w[3*n:]})
	}
	s.cols = s.pool[:len(b)]
	s.in, s.out = s.in[:0], s.out[:0]
	for i, c := range s.cols {
		if len(b[i]) != n || len(x[i]) != n {
			panic(fmt.Sprintf("solve: column %d has %d and %d rows, want %d", i, len(b[i]), len(x[i]), n))
		}
		c.index, c.b, c.x, c.iter, c.sure, c.tail, c.steps = i, b[i], x[i], 0, false, nil, c.steps[:0]
		c.bnorm = floats.Norm(c.b, 2)
		c.target = s.opt.Tolerance * c.bnorm
		if s.targets != nil {
			c.target = s.targets[i]
		}
		copy(c.r, c.b)
		if floats.Norm(c.x, math.Inf(1)) > 0 {
			s.in, s.out = append(s.in, c.x), append(s.out, c.q)
		} else {
			clear(c.q)
		}
	}
	if len(s.in) > 0 {
		rep.Products++
		if err := s.op.Mul(ctx, s.out, s.in); err != nil {
			return err
		}
	}
	for _, c := range s.cols {
		floats.Sub(c.r, c.q)
		c.rnorm = floats.Norm(c.r, 2)
		c.start = c.rnorm
	}
	return nil
}

// iterate runs conjugate gradients on the active columns, each from its
// current residual, until all have left the block.
func (s *Solver) iterate(ctx context.Context, rep *Report) error {
	if err := s.precondition(ctx); err != nil {
		return err
	}
	for _, c := range s.active {
		copy(c.p, c.z)
		c.rz = floats.Dot(c.r, c.z)
		c.best, c.bestIter = c.rnorm, c.iter
	}
	for len(s.active) > 0 {
		if err := s.step(ctx, rep); err != nil {
			return err
		}
		s.keep(func(c *column) bool { return !s.reached(c) && c.rz > 0 && c.iter < s.opt.MaxIter })
		if err := s.directions(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reached reports whether the recurrence claims that the column is done or, in
// single precision, has fallen as far as it can be trusted, or has stalled.
func (s *Solver) reached(c *column) bool {
	return c.rnorm <= recurrenceMargin*c.target ||
		s.single && (c.rnorm <= mixedReduction*c.start || c.iter-c.bestIter >= mixedStall)
}

// step computes q = K·p, the step δ = αp and the new residual of each active
// column. A direction along which K is not positive, which rounding can cause
// at the limit of accuracy, ends the column's recurrence (rz = 0).
func (s *Solver) step(ctx context.Context, rep *Report) error {
	s.in, s.out = s.in[:0], s.out[:0]
	for _, c := range s.active {
		s.in, s.out = append(s.in, c.p), append(s.out, c.q)
	}
	mul := s.op.Mul
	if s.single {
		mul = s.op.(SingleOperator).MulSingle
		rep.Singles++
	}
	rep.Products++
	if err := mul(ctx, s.out, s.in); err != nil {
		return err
	}
	s.each(func(c *column) {
		pq := floats.Dot(c.p, c.q)
		if !(pq > 0) || !(c.rz > 0) || math.IsInf(pq, 0) {
			c.rz = 0
			return
		}
		alpha := c.rz / pq
		c.alpha = alpha
		c.advance(alpha)
		c.last = Step{Norm: alpha * floats.Norm(c.p, 2), Energy: math.Sqrt(alpha * c.rz)}
		floats.AddScaled(c.r, -alpha, c.q)
		c.rnorm = floats.Norm(c.r, 2)
		c.iter++
		if c.rnorm < 0.5*c.best {
			c.best, c.bestIter = c.rnorm, c.iter
		}
	})
	return nil
}

// advance adds δ = αp to the solution and tells the tail of an early-stopped one.
func (c *column) advance(alpha float64) {
	floats.AddScaled(c.x, alpha, c.p)
	if c.tail != nil {
		c.tail.advance(alpha, c.p)
	}
}

// directions sets p = z + βp for the active columns.
func (s *Solver) directions(ctx context.Context) error {
	if len(s.active) == 0 {
		return nil
	}
	if err := s.precondition(ctx); err != nil {
		return err
	}
	s.each(func(c *column) {
		rz := floats.Dot(c.r, c.z)
		next := rz
		if s.opt.Flexible { // (r' − r)ᵀz', r' being r − αq
			next = -c.alpha * floats.Dot(c.q, c.z)
		}
		floats.AddScaledTo(c.p, c.z, next/c.rz, c.p)
		c.rz = rz
	})
	return nil
}

// precondition sets z = P⁻¹r for the active columns.
func (s *Solver) precondition(ctx context.Context) error {
	if s.opt.PerColumn != nil {
		for _, c := range s.active {
			if err := apply(ctx, s.opt.PerColumn[c.index], [][]float64{c.z}, [][]float64{c.r}); err != nil {
				return err
			}
		}
		return nil
	}
	s.in, s.out = s.in[:0], s.out[:0]
	for _, c := range s.active {
		s.in, s.out = append(s.in, c.r), append(s.out, c.z)
	}
	return apply(ctx, s.opt.Precond, s.out, s.in)
}

// apply sets z = P⁻¹r.
func apply(ctx context.Context, p Preconditioner, z, r [][]float64) error {
	switch p := p.(type) {
	case nil:
		for c := range r {
			copy(z[c], r[c])
		}
	case VariablePreconditioner:
		return p.SolveContext(ctx, z, r)
	default:
		p.Solve(z, r)
	}
	return nil
}

// replace computes the true residuals of the active columns and keeps those
// active that must go on: above the tolerance, and still falling. In single
// precision those that do not fall are put aside.
func (s *Solver) replace(ctx context.Context, rep *Report) error {
	s.in, s.out = s.in[:0], s.out[:0]
	for _, c := range s.active {
		s.in, s.out = append(s.in, c.x), append(s.out, c.q)
	}
	rep.Products++
	if err := s.op.Mul(ctx, s.out, s.in); err != nil {
		return err
	}
	s.each(func(c *column) {
		floats.SubTo(c.r, c.b, c.q)
		c.rnorm = floats.Norm(c.r, 2)
	})
	progress := 0.5
	if s.single {
		progress = mixedProgress
	}
	aside := len(s.stalled)
	s.keep(func(c *column) bool {
		falling := c.rnorm < progress*c.start
		c.start = c.rnorm
		above := c.rnorm > c.target && c.iter < s.opt.MaxIter
		if above && !falling && s.single {
			s.stalled = append(s.stalled, c)
		}
		return above && falling
	})
	rep.Replacements += len(s.active) + len(s.stalled) - aside
	return nil
}

// finish fills in the report.
func (s *Solver) finish(rep *Report) {
	for _, c := range s.cols {
		rel := 0.0
		if c.bnorm > 0 {
			rel = c.rnorm / c.bnorm
		}
		rep.Iterations = append(rep.Iterations, c.iter)
		rep.Residuals = append(rep.Residuals, rel)
		if !(c.rnorm <= c.target) {
			rep.Unconverged++
		}
	}
}

// keep drops the active columns for which ok is false.
func (s *Solver) keep(ok func(*column) bool) {
	kept := s.active[:0]
	for _, c := range s.active {
		if ok(c) {
			kept = append(kept, c)
		}
	}
	s.active = kept
}

// each runs f on the active columns, on several cores.
func (s *Solver) each(f func(*column)) {
	s.opt.Budget.NewLoop(func(_, i int) { f(s.active[i]) }).Run(len(s.active))
}
