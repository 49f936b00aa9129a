// Package maxima searches the local maxima of a smooth log density from many starts,
// by its gradients: where to start (Starts), how to climb (Climb), which ends are one
// maximum and how much mass each holds by Laplace's approximation (Distinct).
//
// A search asks for evaluations and is told their results, so that any number of climbs
// can be evaluated side by side, anywhere, in any order; each is a function of its start
// and of what it was told alone. What it was told is kept: gradients far from the
// maxima are what a regression of the density wants, too.
package maxima

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Evaluation is a log density with its gradient at a point. The value is NaN where only
// gradients are to be had; a gradient that is nil says that there is no density at X.
type Evaluation struct {
	X     []float64 `json:"x"`
	Value float64   `json:"value"`
	Grad  []float64 `json:"grad"`
}

func (e *Evaluation) finite() bool {
	if e.Grad == nil || math.IsInf(e.Value, 0) {
		return false
	}
	for _, g := range e.Grad {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return false
		}
	}
	return true
}

// Options say when a climb ends.
type Options struct {
	// Tolerance is how near to a maximum a climb is to come, in standard deviations of
	// the normal approximation there; 0.01 if 0.
	Tolerance float64
	// Evaluations is the most that a climb may ask for; 100 if 0.
	Evaluations int
	// Move bounds the change of any coordinate in one step; 2 if 0.
	Move float64
	// Info is a first guess at the negative Hessian, positive definite; nil for none.
	Info *mat.SymDense
	// Found is how many searches the climb stands for; 1 if 0.
	Found int
}

func (o Options) defaults() Options {
	if o.Tolerance == 0 {
		o.Tolerance = 0.01
	}
	if o.Evaluations == 0 {
		o.Evaluations = 100
	}
	if o.Move == 0 {
		o.Move = 2
	}
	if o.Found == 0 {
		o.Found = 1
	}
	return o
}

// Climb goes uphill from a start by quasi-Newton steps within a trust region.
type Climb struct {
	opt   Options
	at    *Evaluation // the best point so far; nil before the first evaluation
	info  *mat.SymDense
	trust float64   // bound on the change of any coordinate in the next step
	next  []float64 // where an evaluation is wanted
	path  []Evaluation
	end   End
}

// End is how a climb stands.
type End int

// The ends.
const (
	Climbing  End = iota // an evaluation is wanted
	Converged            // at a maximum
	Stopped              // after the most evaluations, or where no step leads uphill
)

// The trust region's constants: the first step, in coordinates that are logarithms of
// parameters; how far it shrinks after a step that led down, and when it is too small.
const (
	firstStep = 0.5
	shrink    = 0.25
	weakest   = 0.1 // first guess at the curvature: where it is higher, the steps find out
	least     = 1e-7
)

// NewClimb returns a climb from start.
func NewClimb(start []float64, o Options) *Climb {
	return &Climb{opt: o.defaults(), next: slices.Clone(start)}
}

// Next returns where the climb wants the density evaluated, or nil if it has ended.
func (c *Climb) Next() []float64 { return c.next }

// End returns how the climb stands.
func (c *Climb) End() End { return c.end }

// Path returns the evaluations with a density that the climb was told of, in their order.
func (c *Climb) Path() []Evaluation { return c.path }

// Best returns where the climb has come to, nil if there was no density at its start.
func (c *Climb) Best() *Evaluation { return c.at }

// Tell continues the climb with the density at Next.
func (c *Climb) Tell(value float64, grad []float64) {
	if c.next == nil {
		panic("maxima: the climb has ended")
	}
	e := &Evaluation{X: c.next, Value: value, Grad: slices.Clone(grad)}
	c.opt.Evaluations--
	c.next = nil
	switch {
	case e.finite():
		c.path = append(c.path, *e)
		c.arrive(e)
	case c.at == nil:
		c.end = Stopped
		return
	default:
		c.trust = shrink * distance(e.X, c.at.X)
	}
	if c.opt.Evaluations <= 0 || c.trust < least {
		c.end = Stopped
		return
	}
	c.propose()
}

// distance returns the largest difference of a coordinate.
func distance(a, b []float64) float64 { return floats.Distance(a, b, math.Inf(1)) }

// arrive learns from an evaluation and moves there, if it is uphill.
func (c *Climb) arrive(e *Evaluation) {
	if c.at == nil {
		c.at, c.trust = e, firstStep
		c.info = mat.NewSymDense(len(e.X), nil)
		if c.opt.Info != nil {
			c.info.CopySym(c.opt.Info)
			return
		}
		for i := range e.X {
			c.info.SetSym(i, i, weakest)
		}
		return
	}
	step := make([]float64, len(e.X))
	floats.SubTo(step, e.X, c.at.X)
	slope, after := floats.Dot(c.at.Grad, step), floats.Dot(e.Grad, step)
	long := distance(e.X, c.at.X)
	update(c.info, step, c.at.Grad, e.Grad)
	uphill := e.Value >= c.at.Value+1e-4*slope
	if math.IsNaN(e.Value) || math.IsNaN(c.at.Value) {
		uphill = after > -slope // not far beyond the top
	} else if !uphill && math.Abs(e.Value-c.at.Value) < 1e-9*(1+math.Abs(e.Value)) {
		uphill = math.Abs(after) <= slope // the values differ by rounding alone
	}
	if !uphill {
		c.trust = shrink * long
		return
	}
	if long > 0.9*c.trust {
		c.trust = min(2*c.trust, c.opt.Move)
	}
	c.at = e
}

// propose sets the next point, or ends the climb at a maximum.
func (c *Climb) propose() {
	step, decrement, ok := newton(c.info, c.at.Grad)
	if !ok {
		c.info = positive(c.info)
		if step, decrement, ok = newton(c.info, c.at.Grad); !ok {
			c.end = Stopped
			return
		}
	}
	if decrement <= c.opt.Tolerance*c.opt.Tolerance {
		c.end = Converged
		return
	}
	if long := floats.Norm(step, math.Inf(1)); long > c.trust {
		floats.Scale(c.trust/long, step)
	}
	floats.Add(step, c.at.X)
	c.next = step
}

// newton returns H⁻¹g and gᵀH⁻¹g.
func newton(h *mat.SymDense, g []float64) (step []float64, decrement float64, ok bool) {
	var chol mat.Cholesky
	if !chol.Factorize(h) {
		return nil, 0, false
	}
	var s mat.VecDense
	_ = chol.SolveVecTo(&s, mat.NewVecDense(len(g), g)) // it only warns of ill-conditioning
	step = s.RawVector().Data
	return step, floats.Dot(step, g), true
}

// update is the damped BFGS update (Powell 1978; Nocedal and Wright, procedure 18.2) of
// H for the step s and the change y = g − g' that it made.
func update(h *mat.SymDense, s, g, gNext []float64) {
	sv := mat.NewVecDense(len(s), s)
	yv := mat.NewVecDense(len(s), nil)
	floats.SubTo(yv.RawVector().Data, g, gNext)
	var hs mat.VecDense
	hs.MulVec(h, sv)
	shs, sy := mat.Dot(sv, &hs), mat.Dot(sv, yv)
	theta := 1.0
	if sy < 0.2*shs {
		theta = 0.8 * shs / (shs - sy)
	}
	yv.ScaleVec(theta, yv)
	yv.AddScaledVec(yv, 1-theta, &hs)
	h.SymRankOne(h, -1/shs, &hs)
	h.SymRankOne(h, 1/mat.Dot(sv, yv), yv)
}

// positive returns a symmetric matrix with its eigenvalues replaced by their absolute
// values, bounded below: a metric even where the surface is not concave.
func positive(a *mat.SymDense) *mat.SymDense {
	var eig mat.EigenSym
	if !eig.Factorize(a, true) {
		panic("maxima: no eigenvalues of a matrix that is not finite")
	}
	vals := eig.Values(nil)
	var q mat.Dense
	eig.VectorsTo(&q)
	floor := 1e-6 * max(math.Abs(vals[0]), math.Abs(vals[len(vals)-1]))
	out := mat.NewSymDense(len(vals), nil)
	for k, v := range vals {
		out.SymRankOne(out, max(math.Abs(v), floor), q.ColView(k))
	}
	return out
}
