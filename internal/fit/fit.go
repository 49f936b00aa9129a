// Package fit finds point estimates: the ψ of the highest log density, with the curvature there.
//
// What is climbed is an Objective, the log marginal likelihood of the data, exact or approximate,
// plus the log prior of ψ unless that is flat. Search climbs it from several starts by quasi-Newton steps
// (package maxima); Adagrad follows noisy gradients of it, as Cutajar et al. (2016, section 5) did. Standard
// errors are those of the normal approximation at the end: the inverse of the negative Hessian, on the scale
// on which ψ is unconstrained.
//
// An approximation of Gaussian processes takes part by being an Objective (or a Noisy): it may add
// coordinates of its own to ψ, such as the places of inducing points. How rows are predicted at what was found is the
// business of package predict.
package fit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Objective is a log marginal likelihood log p(y|x), x = (ψ, extra): a smooth function of x.
type Objective interface {
	// Extra returns where a search begins in the coordinates beyond ψ: nil for none.
	Extra() []float64
	// At returns the value and the gradient at x; the gradient is nil where there is no density, such as
	// where K is numerically singular. The only error is that of ctx.
	At(ctx context.Context, x []float64) (value float64, grad []float64, err error)
}

// Noisy estimates the gradient of a log marginal likelihood without bias.
type Noisy interface {
	// Extra is as of an Objective.
	Extra() []float64
	// Gradient returns an estimate at x, whose random numbers are those of an iteration, counted from 0.
	Gradient(ctx context.Context, x []float64, iter int) ([]float64, error)
}

// Step is an evaluation of a search.
type Step struct {
	Search     int       `json:"search"`     // of which start, from 1
	Evaluation int       `json:"evaluation"` // from 1
	Psi        []float64 `json:"psi"`
	// Value is the log density there: NaN where only a gradient was had.
	Value   Number  `json:"value"`
	Slope   Number  `json:"gradient"` // its largest element
	Seconds float64 `json:"seconds"`  // since the search for an estimate began
}

// Ended is what a search from a start has come to.
type Ended struct {
	Start       []float64 `json:"start"` // ψ
	Psi         []float64 `json:"psi"`
	Value       Number    `json:"value"`
	Evaluations int       `json:"evaluations"`
	Converged   bool      `json:"converged"`
}

// Result is an estimate.
type Result struct {
	Psi, Extra []float64
	// Value is the log density at ψ, LogLikelihood that without the prior, ValueError the standard error of both: 0
	// where they are exact.
	Value, LogLikelihood, ValueError float64
	// Cov is the inverse of the negative Hessian in ψ, nil where that is not positive definite.
	Cov *mat.SymDense
	// Distance is how far the optimum is, √(gᵀ·Cov·g), in standard errors: NaN without Cov.
	Distance  float64
	Converged bool
	Searches  []Ended // the best first
	Trace     []Step  // of the best search
}

// Options say how to search.
type Options struct {
	// Evaluations is the most that a search from one start may take; 200 if 0.
	Evaluations int
	// Noisy says that gradients are not quite those of the values: within one standard error of the optimum the
	// estimate counts as converged.
	Noisy bool
	// Tell, if not nil, is told of every evaluation.
	Tell func(Step)
	// Began is when the clock of Step.Seconds began.
	Began time.Time
	// From, if not nil, is the state that a fit from minibatches goes on from, which is changed; Keeper, if not nil, keeps its states.
	From   *State
	Keeper Keeper
}

const defaultEvaluations = 200

func (o Options) filled() Options {
	if o.Evaluations == 0 {
		o.Evaluations = defaultEvaluations
	}
	if o.Tell == nil {
		o.Tell = func(Step) {}
	}
	if o.Began.IsZero() {
		o.Began = time.Now()
	}
	return o
}

// Constants of the searches.
const (
	// climbed is how near to a maximum a climb goes, in standard errors by its own guess at the curvature.
	climbed = 1e-3
	// near is how far from the optimum an estimate may be that counts as converged, in standard errors; noisyNear if it is
	// of gradients whose noise keeps it away.
	near      = 0.1
	noisyNear = 1
)

// errNowhere is the error of a search that found no density at any start.
var errNowhere = errors.New("there is no density at any start: the covariance matrix is numerically singular there; say more by priors, or give more noise")

// Starts returns where searches begin, count in all: the first ones are classic, the others random, by the seed.
func Starts(params param.List, count int, seed uint64) [][]float64 {
	return maxima.Starts(params, count, func(i int) *rand.Rand { return random.Key{Seed: seed}.Stream(random.Climb, i) })
}

// Search climbs from each start and returns the best end with the curvature there. Its errors are that of ctx,
// and that there is no density at any start.
func Search(ctx context.Context, params param.List, obj Objective, starts [][]float64, o Options) (*Result, error) {
	o = o.filled()
	s := &search{params: params, obj: obj, opt: o}
	var ends []*climb
	for i, start := range starts {
		c, err := s.climb(ctx, i+1, start)
		if err != nil {
			return nil, err
		}
		if c.Best() != nil {
			ends = append(ends, c)
		}
	}
	if len(ends) == 0 {
		return nil, errNowhere
	}
	slices.SortStableFunc(ends, func(a, b *climb) int {
		switch {
		case a.Best().Value > b.Best().Value:
			return -1
		case a.Best().Value < b.Best().Value:
			return 1
		}
		return 0
	})
	within := near
	if o.Noisy {
		within = noisyNear
	}
	r, err := s.finish(ctx, ends[0].Best().X, ends[0].Information(), within)
	if err != nil {
		return nil, err
	}
	r.Trace = ends[0].trace
	for _, c := range ends {
		r.Searches = append(r.Searches, c.ended(len(params)))
	}
	r.Searches[0].Converged = r.Converged
	return r, nil
}

// search is a search for the maximum of the log density.
type search struct {
	params param.List
	obj    Objective
	opt    Options
}

// at returns the log density with the prior; NaN gradients are none.
func (s *search) at(ctx context.Context, x []float64) (value float64, grad []float64, err error) {
	p := len(s.params)
	if !s.params.Usable(x[:p]) {
		return math.Inf(-1), nil, ctx.Err()
	}
	value, g, err := s.obj.At(ctx, x)
	if err != nil || g == nil {
		return math.Inf(-1), nil, err
	}
	prior, slope := s.params.LogPrior(x[:p])
	grad = slices.Clone(g)
	floats.Add(grad[:p], slope)
	return value + prior, grad, nil
}

// climb is a climb with what it was told on its way.
type climb struct {
	*maxima.Climb
	start []float64
	trace []Step
}

func (s *search) climb(ctx context.Context, number int, start []float64) (*climb, error) {
	x := slices.Concat(start, s.obj.Extra())
	c := &climb{Climb: maxima.NewClimb(x, maxima.Options{Evaluations: s.opt.Evaluations, Tolerance: climbed}), start: start}
	for c.Next() != nil {
		x := slices.Clone(c.Next())
		value, grad, err := s.at(ctx, x)
		if err != nil {
			return nil, err
		}
		c.Tell(value, grad)
		step := Step{Search: number, Evaluation: len(c.trace) + 1, Psi: x[:len(s.params)], Value: Number(value), Slope: Number(math.NaN()), Seconds: time.Since(s.opt.Began).Seconds()}
		if grad != nil {
			step.Slope = Number(floats.Norm(grad, math.Inf(1)))
		}
		c.trace = append(c.trace, step)
		s.opt.Tell(step)
	}
	return c, nil
}

func (c *climb) ended(params int) Ended {
	return Ended{Start: c.start, Psi: c.Best().X[:params], Value: Number(c.Best().Value), Evaluations: len(c.trace), Converged: c.End() == maxima.Converged}
}

// finish measures the curvature at x and returns the estimate there. guess is one at the curvature.
func (s *search) finish(ctx context.Context, x []float64, guess *mat.SymDense, near float64) (*Result, error) {
	p := len(s.params)
	value, grad, err := s.at(ctx, x)
	if err != nil {
		return nil, err
	}
	if grad == nil {
		return nil, errNowhere
	}
	prior, _ := s.params.LogPrior(x[:p])
	r := &Result{Psi: slices.Clone(x[:p]), Extra: slices.Clone(x[p:]), Value: value, LogLikelihood: value - prior, Distance: math.NaN()}
	if r.Cov, err = s.curvature(ctx, x, guess); err != nil {
		return nil, err
	}
	if r.Cov != nil {
		g := mat.NewVecDense(p, grad[:p])
		r.Distance = math.Sqrt(mat.Inner(g, r.Cov, g))
	}
	r.Converged = r.Distance <= near
	return r, nil
}

// rough is by how much a guess at the curvature may be off along a coordinate: where it is off by more, the steps of the
// differences were too long or too short, and it is measured again with what was measured as the guess.
const rough = 4

// off reports whether an element of the diagonal differs by more than rough.
func off(guess, info *mat.SymDense) bool {
	for i := range info.SymmetricDim() {
		if r := info.At(i, i) / guess.At(i, i); !(r > 1/rough && r < rough) {
			return true
		}
	}
	return false
}

// curvature returns the inverse of the negative Hessian in ψ, by central differences of the gradient, and nil if
// it is not positive definite, or there is no density beside x.
func (s *search) curvature(ctx context.Context, x []float64, guess *mat.SymDense) (*mat.SymDense, error) {
	p := len(s.params)
	info := mat.NewSymDense(p, nil)
	info.CopySym(guess.SliceSym(0, p))
	for first := true; ; first = false {
		var grads [][]float64
		for _, psi := range maxima.Stencil(x[:p], info) {
			_, g, err := s.at(ctx, slices.Concat(psi, x[p:]))
			if err != nil {
				return nil, err
			}
			if g == nil {
				return nil, nil
			}
			grads = append(grads, g[:p])
		}
		before := info
		info, _ = maxima.Hessian(grads, before)
		if !first || !off(before, info) {
			break
		}
	}
	var chol mat.Cholesky
	var cov mat.SymDense
	if !chol.Factorize(info) {
		return nil, nil
	}
	_ = chol.InverseTo(&cov) // it only warns of ill-conditioning
	return &cov, nil
}
