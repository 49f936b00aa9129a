// Package predict computes what a posterior says of rows that were not learnt
// from: for each draw θ of the covariance parameters the normal distribution of
// the latent function and of the target, and their mixture over the draws.
//
//	mean(θ)     = k*ᵀK⁻¹y           one solve a draw, kept (Solutions)
//	variance(θ) = k** − k*ᵀK⁻¹k*    one solve a draw and row
//
// K is never stored: solves are by preconditioned conjugate gradients, the rows
// of a batch side by side. From a solution x with residual r = k* − Kx the
// variance is k** − k*ᵀx − rᵀx, too large by rᵀK⁻¹r, which lies between 0 and
// ‖r‖²/λ: the error is the square of the residual's, and bounded. Each row is
// solved for until that bound is small beside its own variance.
//
// The prediction of a row is a function of (data, model, draws, row, options)
// alone, to the last bit on one instruction set: not of threads, nor of the rows
// beside it. So rows can be split over workers, and a batch that was lost be
// computed anywhere.
package predict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Variance says how variances are computed.
type Variance string

// The ways.
const (
	Exact   Variance = "exact"   // a solve for each draw and row
	Surface Variance = "surface" // solves at 2p+2 points, a quadratic between them
)

// DefaultTolerance is the bound on the relative error of a standard deviation.
const DefaultTolerance = 1e-4

// meanTolerance is the relative residual of K⁻¹y.
const meanTolerance = 1e-9

// Operator is K over the rows that were learnt from.
type Operator interface {
	solve.SingleOperator
	precond.Covariance
	Set(theta, noise []float64)
	// Cross sets dst[c] = K_f(X*,X)·v[c]. Its only error is that of ctx.
	Cross(ctx context.Context, dst [][]float64, points *kernel.Inputs, v [][]float64) error
}

// Config says what to predict from.
type Config struct {
	Problem *posterior.Problem
	Draws   [][]float64 // of ψ
	Budget  *parallel.Budget
	// Operator is over the problem's inputs; the predictor sets its θ. nil means one
	// on the cores of the budget.
	Operator Operator
	Seed     uint64 // of the preconditioner
	// Kind and Rank are the preconditioner's; rank 0 leaves it to the program.
	Kind    string
	Rank    int
	MaxIter int  // of a solve; 0 for as many as a run allows itself
	Mixed   bool // precision of the products
	// Solutions, if not nil, keeps K⁻¹y from one predictor to the next.
	Solutions *Solutions
	// Approximation, if not nil, predicts in place of solves with K: rows one by one, and nothing else. So do Functions, which a model
	// of several latent functions has, and one whose predictions are a mixture over draws of its own.
	Approximation Latent
	Functions     Functions
}

// Options say what to predict, and how exactly.
type Options struct {
	// Tolerance bounds the relative error of each standard deviation, of the
	// target's, or if Latent of the latent function's. 0 means DefaultTolerance.
	Tolerance float64
	Latent    bool // predict the latent function, without the noise
	// Noise is what is known of the noise at the points, where it differs between rows: nothing can be
	// told of their targets without it.
	Noise *likelihood.Rows
	// Offset is what is added to the latent function at the points, in the units of the (standardised) training data: nil for 0.
	Offset   []float64
	Variance Variance // "" means Exact
	// Progress, if not nil, is told of solves done: of K⁻¹y, then of rows.
	Progress func(Progress)

	means bool // compute no variances
}

// Check returns an error if the options are not usable, else fills in defaults.
func (o *Options) Check() error {
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	if o.Variance == "" {
		o.Variance = Exact
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if !(o.Tolerance >= minTolerance && o.Tolerance <= 0.1) {
		return fmt.Errorf("a tolerance of %g for standard deviations: use %g to 0.1", o.Tolerance, minTolerance)
	}
	if o.Variance != Exact && o.Variance != Surface {
		return fmt.Errorf("unknown way to compute variances %q: use exact or surface", o.Variance)
	}
	return nil
}

// minTolerance is the least tolerance that rounding allows.
const minTolerance = 1e-10

// Progress is how far a predictor is.
type Progress struct {
	Stage       string
	Done, Total int // draws, or rows times draws
}

// The stages: first K⁻¹y, unless that is kept, then rows.
const (
	SolutionsStage = "solutions"
	RowsStage      = "rows"
)

// FromSpec returns the configuration that a specification asks for.
func FromSpec(s *job.Spec, p *posterior.Problem, draws [][]float64, budget *parallel.Budget) Config {
	so := &s.Solver
	c := Config{Problem: p, Draws: draws, Budget: budget, Seed: s.Seed, Kind: so.Preconditioner.Kind, Rank: so.Preconditioner.Rank.Or(0),
		MaxIter: so.MaxIterations.Or(0), Mixed: so.Mixed(false)}
	if s.Needs().Inducing {
		c.Approximation = posterior.NewInducing(p, s.Induced(p, budget), s.Seed, budget)
	}
	if p.Functions() > 1 && len(draws) > 0 {
		c.Functions = laplace.NewFunctions(p, mean(draws), s.Seed)
	}
	return c
}

// Stats are what predictions cost and how sure their variances are.
type Stats struct {
	Draws       int `json:"draws"`
	Rows        int `json:"rows"`
	Solves      int `json:"solves"`
	Iterations  int `json:"iterations"`
	Unconverged int `json:"unconverged"` // solves that did not reach their tolerance
	// MeansUnconverged are those of K⁻¹y, which all rows share.
	MeansUnconverged int     `json:"means_unconverged"`
	Clipped          int     `json:"clipped"` // variances that rounding made not positive
	Bound            float64 `json:"bound"`   // on the relative error of an sd, the largest
	// SurfaceError is the largest relative difference from an exact sd that the
	// surface was found to have, at the draw farthest from its centre.
	SurfaceError float64 `json:"surface_error,omitempty"`
	// Jitter is the largest variance that was added to the latent function's at a row, in units of the
	// prior's, so that a joint covariance had a Cholesky factor.
	Jitter float64 `json:"jitter,omitempty"`
}

// Add adds the statistics of other rows.
func (s *Stats) Add(o Stats) {
	s.Draws = max(s.Draws, o.Draws)
	s.Rows += o.Rows
	s.Solves += o.Solves
	s.Iterations += o.Iterations
	s.Unconverged += o.Unconverged
	s.MeansUnconverged = max(s.MeansUnconverged, o.MeansUnconverged)
	s.Clipped += o.Clipped
	s.Bound = max(s.Bound, o.Bound)
	s.SurfaceError = max(s.SurfaceError, o.SurfaceError)
	s.Jitter = max(s.Jitter, o.Jitter)
}

// Predictor predicts from one posterior. Its methods may be called
// concurrently; they take turns.
type Predictor struct {
	Config
	order []int // in which draws are visited

	turn        chan struct{} // full while somebody computes
	solver      *solve.Solver
	alphas      [][]float64 // K⁻¹y of each draw
	states      [][]float64 // auxiliary states of each draw; nil if there are none
	pivots      []int       // of the preconditioner, with states
	unconverged int         // of them
	surface     *surface
}

// Bytes returns the memory that the predictor takes, about, once it has
// predicted.
func (p *Predictor) Bytes() int64 {
	n := int64(len(p.Problem.Y))
	width := int64(likelihood.Width(p.Problem.Likelihood))
	return 8 * n * (int64(len(p.Draws))*(1+width) + int64(p.rank()) + 7*int64(Batch(int(n))))
}

// maxIterations bounds the iterations of a solve, as a run's.
const maxIterations = 5000

// New returns a predictor. It computes nothing yet.
func New(c Config) (*Predictor, error) {
	p := c.Problem
	if len(c.Draws) == 0 {
		return nil, errors.New("there are no draws to predict from")
	}
	for _, psi := range c.Draws {
		if !p.Params.Usable(psi) {
			return nil, fmt.Errorf("the draw %.4g is not one of a model with %d parameters", psi, p.NumParams())
		}
	}
	if c.MaxIter == 0 {
		c.MaxIter = min(maxIterations, 10*len(p.Y)+100)
	}
	if c.Operator == nil {
		c.Operator = cmvp.New(p.Inputs, p.Covariance, c.Budget)
	}
	s, err := newSurface(c.Draws)
	if err != nil {
		return nil, err
	}
	return &Predictor{Config: c, turn: make(chan struct{}, 1), order: path(c.Draws), surface: s}, nil
}

// rankFactor is how many times the automatic rank of a run a predictor's
// preconditioner has: it is built once for many more right-hand sides.
const rankFactor = 2

// rank returns that of the preconditioner, 0 where the kind has its own way.
func (p *Predictor) rank() int {
	if n := len(p.Problem.Y); p.Rank == 0 && precond.HasFactor(p.Kind) {
		return min(rankFactor*precond.AutoRank(n), max(1, n/2))
	}
	return p.Rank
}

// precondition returns the preconditioner at the middle of the draws, nil for
// none.
func (p *Predictor) precondition(ctx context.Context) (precond.P, error) {
	kind := p.Kind
	switch kind {
	case "none":
		return nil, nil
	case "", "auto":
		kind = "rpcholesky"
	}
	p.Operator.Set(p.Problem.At(mean(p.Draws)))
	return precond.BuildAny(ctx, kind, p.Operator, p.rank(), random.Key{Seed: p.Seed})
}

// prepare computes K⁻¹y of every draw, or reads them where they are kept.
func (p *Predictor) prepare(ctx context.Context, progress func(Progress)) error {
	if err := p.without(); err != nil {
		return err
	}
	if p.alphas != nil {
		return nil
	}
	if p.solver == nil && !p.augmented() {
		if err := p.Budget.Acquire(ctx); err != nil {
			return err
		}
		pre, err := p.precondition(ctx)
		p.Budget.Release()
		if err != nil {
			return err
		}
		opt := solve.Options{Tolerance: meanTolerance, MaxIter: p.MaxIter, Mixed: p.Mixed, Budget: p.Budget}
		if pre != nil {
			opt.Precond, opt.Flexible = pre, !precond.HasFactor(pre.Kind())
		}
		p.solver = solve.New(p.Operator, opt)
	}
	n, width := len(p.Problem.Y), p.Problem.Likelihood.Augmentation().Width()
	columns, unconverged := p.Solutions.load(p.solutionsKey(), len(p.Draws)*(1+width), n)
	if columns != nil {
		p.alphas, p.unconverged = p.restore(columns), unconverged
		return nil
	}
	find := p.solveTargets
	if width > 0 {
		find = p.drawStates
	}
	alphas, unconverged, err := find(ctx, progress)
	if err != nil {
		return err
	}
	progress(Progress{SolutionsStage, len(p.order), len(p.order)})
	p.Solutions.save(p.solutionsKey(), p.kept(alphas), unconverged)
	p.alphas, p.unconverged = alphas, unconverged
	return nil
}

// solveTargets solves for the targets at each draw.
func (p *Predictor) solveTargets(ctx context.Context, progress func(Progress)) (alphas [][]float64, unconverged int, err error) {
	alphas = solve.Columns(len(p.Problem.Y), len(p.Draws))
	p.solver.SetTargets(nil)
	var before []float64
	for done, t := range p.order {
		progress(Progress{SolutionsStage, done, len(p.order)})
		if before != nil { // the draw visited before is near
			copy(alphas[t], before)
		}
		rep, err := p.solveAt(ctx, p.Problem, p.Draws[t], alphas[t:t+1], [][]float64{p.Problem.Targets()})
		if err != nil {
			return nil, 0, err
		}
		unconverged += rep.Unconverged
		before = alphas[t]
	}
	return alphas, unconverged, nil
}

// solveAt solves K(ψ)·x = b on one core of the budget and those that are free.
func (p *Predictor) solveAt(ctx context.Context, pr *posterior.Problem, psi []float64, x, b [][]float64) (solve.Report, error) {
	if err := p.Budget.Acquire(ctx); err != nil {
		return solve.Report{}, err
	}
	defer p.Budget.Release()
	p.Operator.Set(pr.At(psi))
	return p.solver.Solve(ctx, x, b)
}

// Moments are the distributions of the latent function at some rows, in the
// units of the (standardised) training data: of each draw and row.
type Moments struct {
	// Mean and Var are draws × rows; of several latent functions they have all rows of each, one after the other, and may be more than the
	// draws: for some draws of the functions at the training rows.
	Mean, Var [][]float64

	likelihood likelihood.Likelihood
	own        [][]float64 // its parameters at each draw
	each       int         // draws of the functions at each draw of the parameters
}

// Mixture returns the distribution at row i: of the latent function, or that of
// the target.
// Of several latent functions the latent one is the first.
func (m *Moments) Mixture(i int, latent bool) likelihood.Predictive {
	if l, ok := m.likelihood.(likelihood.Several); ok && !latent {
		mean, variance := m.all(i, l.Functions())
		return l.PredictAll(m.own, mean, variance)
	}
	mean, variance := make([]float64, len(m.Mean)), make([]float64, len(m.Mean))
	for t := range m.Mean {
		mean[t], variance[t] = m.Mean[t][i], m.Var[t][i]
	}
	if !latent {
		return likelihood.At(m.likelihood, i).Predict(m.own, mean, variance)
	}
	for t, v := range variance {
		variance[t] = math.Sqrt(v)
	}
	return likelihood.Mixture{Mean: mean, SD: variance}
}

// all returns the moments of all latent functions at row i, draws × functions.
func (m *Moments) all(i, functions int) (mean, variance [][]float64) {
	for t := range m.Mean {
		rows := len(m.Mean[t]) / functions
		a, v := make([]float64, functions), make([]float64, functions)
		for c := range functions {
			a[c], v[c] = m.Mean[t][c*rows+i], m.Var[t][c*rows+i]
		}
		mean, variance = append(mean, a), append(variance, v)
	}
	return mean, variance
}

// Target draws a target of row i at a draw of the parameters.
func (m *Moments) Target(r *rand.Rand, draw, i int) float64 {
	if l, ok := m.likelihood.(likelihood.Several); ok {
		t := draw * m.each
		f, rows := make([]float64, l.Functions()), len(m.Mean[t])/l.Functions()
		for c := range f {
			f[c] = m.Mean[t][c*rows+i] + math.Sqrt(m.Var[t][c*rows+i])*r.NormFloat64()
		}
		return l.DrawAll(r, m.own[t], f)
	}
	return likelihood.At(m.likelihood, i).Draw(r, m.own[draw], m.Mean[draw][i], m.Var[draw][i])
}

// Rows solved for side by side: enough for the kernels to be at their best, and
// within batchBytes of workspace.
const (
	batchRows  = 128
	batchBytes = 512 << 20
)

// Batch returns the number of rows that are solved for side by side when n are
// learnt from.
func Batch(n int) int { return max(8, min(batchRows, batchBytes/(8*8*n))) }

// Predict returns the distributions at the given points, which are standardised
// as the training data are. The errors are those of the options, of ctx, and of a
// K that cannot be solved with.
func (p *Predictor) Predict(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
	p.checkPoints(points)
	if err := p.needs(o); err != nil {
		return nil, Stats{}, err
	}
	if o.Latent && likelihood.OfCategories(p.Problem.Likelihood) && p.telling() == nil {
		return nil, Stats{}, errFunctions
	}
	var m *Moments
	var stats Stats
	var err error
	if p.drawn() != nil {
		m, stats, err = p.approximate(ctx, points, o)
	} else {
		m, stats, err = p.distributions(ctx, points.Len(), 1, o,
			func(lo, hi int) functionals { return values{p, points.Select(span(lo, hi))} },
			func(f *kernel.Function, i int) float64 { return f.Variance(points.Row(i)) })
	}
	if err == nil {
		m.shift(o.Offset)
	}
	return m, stats, err
}

// shift adds an offset to the latent function in each row, of several to the first; nil for none.
func (m *Moments) shift(offset []float64) {
	if offset == nil {
		return
	}
	for _, mean := range m.Mean {
		floats.Add(mean[:len(offset)], offset)
	}
}

func (p *Predictor) checkPoints(points *kernel.Inputs) {
	if points.Dim() != p.Problem.Inputs.Dim() {
		panic(fmt.Sprintf("predict: points of dimension %d, training data of %d", points.Dim(), p.Problem.Inputs.Dim()))
	}
}

// span returns lo, lo+1, … below hi.
func span(lo, hi int) []int {
	out := make([]int, hi-lo)
	for i := range out {
		out[i] = lo + i
	}
	return out
}

// errFunctions is the error of the latent function where each class has one, and none is told alone.
var errFunctions = errors.New("under model.likelihood: categorical there is no latent function that could be told alone, there is one for each class: ask for the probabilities of the classes")

// errSurface is the error of a surface where draws have auxiliary variables of their own.
var errSurface = errors.New("variances are no smooth function of the parameters where the likelihood has auxiliary variables: use the variance exact")

// distributions returns those of m functionals of the latent function, which come in batches of
// whole groups: some returns those from lo to hi, prior the size of a variance before anything is learnt.
func (p *Predictor) distributions(ctx context.Context, m, group int, o Options, some func(lo, hi int) functionals, prior func(f *kernel.Function, i int) float64) (*Moments, Stats, error) {
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	if o.Variance == Surface && p.augmented() {
		return nil, Stats{}, errSurface
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	if err := p.prepare(ctx, o.Progress); err != nil {
		return nil, Stats{}, err
	}
	draws := len(p.Draws)
	out := p.moments(m, o.Noise)
	stats := Stats{Draws: draws, Rows: m / group, MeansUnconverged: p.unconverged}
	size := max(1, Batch(len(p.Problem.Y))/group) * group
	for lo := 0; lo < m; lo += size {
		hi := min(m, lo+size)
		b := &batch{p: p, Options: o, of: some(lo, hi), stats: &stats, done: func(t int) {
			o.Progress(Progress{RowsStage, lo*draws + (hi-lo)*t, m * draws})
		}}
		for t := range draws {
			b.mean, b.variance = append(b.mean, out.Mean[t][lo:hi]), append(b.variance, out.Var[t][lo:hi])
		}
		if err := b.run(ctx); err != nil {
			return nil, stats, err
		}
	}
	if o.means {
		prior = nil
	}
	if err := p.usable(out, prior, &stats); err != nil {
		return nil, stats, err
	}
	o.Progress(Progress{RowsStage, m * draws, m * draws})
	return out, stats, nil
}

// take waits for the turn to compute; back ends it.
func (p *Predictor) take(ctx context.Context) (back func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// moments returns room for the distributions of m rows, with what is known of their noise.
func (p *Predictor) moments(m int, noise *likelihood.Rows) *Moments {
	out := &Moments{Mean: solve.Columns(m, len(p.Draws)), Var: solve.Columns(m, len(p.Draws)), likelihood: p.likelihood(noise)}
	for _, psi := range p.Draws {
		_, own := p.Problem.Natural(psi)
		out.own = append(out.own, own)
	}
	return out
}

// needs returns an error if targets are asked for of whose noise nothing is known.
func (p *Predictor) needs(o Options) error {
	if _, ok := p.Problem.Likelihood.(likelihood.ByRow); ok && !o.Latent && o.Noise == nil {
		return errors.New("the noise differs between rows, and is not known of the points: only the latent function can be predicted there")
	}
	return nil
}

// likelihood returns that of points, with what is known of their noise.
func (p *Predictor) likelihood(noise *likelihood.Rows) likelihood.Likelihood {
	if l, ok := p.Problem.Likelihood.(likelihood.ByRow); ok && noise != nil {
		return l.Of(*noise)
	}
	return p.Problem.Likelihood
}

// usable returns an error if there are distributions that are none, and raises variances
// that rounding made too small beside those before anything was learnt, if prior, which knows these, is not nil.
func (p *Predictor) usable(out *Moments, prior func(f *kernel.Function, i int) float64, stats *Stats) error {
	for t, psi := range p.Draws {
		f := p.Problem.Function(psi)
		var at func(i int) float64
		if prior != nil {
			at = func(i int) float64 { return prior(f, i) }
		}
		if err := usable(psi, out.Mean[t], out.Var[t], at, stats); err != nil {
			return err
		}
	}
	return nil
}

// usable is Predictor.usable of one draw.
func usable(psi, mean, variance []float64, prior func(i int) float64, stats *Stats) error {
	for i, v := range variance {
		if math.IsNaN(v) || math.IsInf(v, 0) || math.IsNaN(mean[i]) {
			return unsolvable(psi)
		}
		if prior == nil {
			continue
		}
		if tiny := minVariance * prior(i); v < tiny {
			variance[i] = tiny
			stats.Clipped++
		}
	}
	return nil
}

func unsolvable(psi []float64) error {
	return fmt.Errorf("the covariance matrix cannot be solved with at log parameters %.4g", psi)
}

// minVariance is the least variance of the latent function, in units of the
// prior's: less is rounding.
const minVariance = 1e-14
