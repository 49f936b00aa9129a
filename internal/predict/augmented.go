package predict

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Under a likelihood with auxiliary variables s a prediction at a draw θ is
//
//	p(f*|y,θ) = E N(f* | k*ᵀ(K+S)⁻¹z, k** − k*ᵀ(K+S)⁻¹k*)   over p(s|y,θ),
//
// S and z being the noise and the pseudo-targets that s makes. The draws of a run are of θ alone, so that s
// is drawn again at each, by Gibbs sweeps of s and the latent function at fixed θ: firstSweeps at the first
// draw, and nextSweeps at each further one, from where the draw before, which is near, has ended. One s
// at each draw is enough, since predictions are averaged over draws.
const (
	firstSweeps = 100
	nextSweeps  = 5
	// freeSweeps are those of the first that are kept as they come: of a likelihood whose augmentation is nearly exact
	// (likelihood.Approximate) the others are kept by Metropolis–Hastings, as those of a chain are.
	freeSweeps = 50
	// sweepTolerance is the relative residual of their solves.
	sweepTolerance = 1e-6
)

// augmented reports whether the likelihood has auxiliary variables.
func (p *Predictor) augmented() bool { return likelihood.Width(p.Problem.Likelihood) > 0 }

// drawStates draws the auxiliary state of each draw, and solves for the targets with it.
func (p *Predictor) drawStates(ctx context.Context, progress func(Progress)) (alphas [][]float64, unconverged int, err error) {
	n := len(p.Problem.Y)
	alphas = solve.Columns(n, len(p.Draws))
	p.states = make([][]float64, len(p.Draws))
	pr := p.Problem.WithState()
	f, from, x := make([]float64, n), make([]float64, n), make([]float64, n)
	sweep := 0
	for done, t := range p.order {
		progress(Progress{SolutionsStage, done, len(p.order)})
		sweeps := nextSweeps
		if done == 0 {
			sweeps = firstSweeps
		}
		for range sweeps {
			sweep++
			key := random.Key{Seed: p.Seed, Iter: sweep}
			copy(from, f)
			excess := pr.Excess(p.Draws[t], f)
			pr.Refresh(key.Stream(random.Augmentation, 0), p.Draws[t], f)
			rep, err := p.drawLatent(ctx, pr, t, key, f, x)
			if err != nil {
				return nil, 0, err
			}
			unconverged += rep.Unconverged
			keep := math.Exp(min(0, pr.Excess(p.Draws[t], f)-excess))
			if keep < 1 && sweep > freeSweeps && key.Stream(random.Accept, 3).Float64() >= keep {
				copy(f, from)
			}
		}
		p.states[t] = slices.Clone(pr.State)
		if _, err := p.problemAt(ctx, t); err != nil {
			return nil, 0, err
		}
		rep, err := p.solveAt(ctx, pr, p.Draws[t], alphas[t:t+1], [][]float64{pr.Targets()})
		if err != nil {
			return nil, 0, err
		}
		unconverged += rep.Unconverged
	}
	return alphas, unconverged, nil
}

// drawLatent draws the latent function given the state of pr, at draw t. x is where solves begin.
func (p *Predictor) drawLatent(ctx context.Context, pr *posterior.Problem, t int, key random.Key, f, x []float64) (solve.Report, error) {
	if err := p.Budget.Acquire(ctx); err != nil {
		return solve.Report{}, err
	}
	defer p.Budget.Release()
	opt, err := p.options(ctx, pr, p.Draws[t])
	if err != nil {
		return solve.Report{}, err
	}
	opt.Tolerance = sweepTolerance
	normal := func(index int, z []float64) { random.Normal(key.Stream(random.Latent, index), z) }
	return posterior.Matheron(ctx, pr, p.Operator, opt, p.Draws[t], normal, f, x)
}

// options returns how to solve for a problem with a state of its own at ψ: with the preconditioner of that
// noise. The operator is left there.
func (p *Predictor) options(ctx context.Context, pr *posterior.Problem, psi []float64) (solve.Options, error) {
	p.Operator.Set(pr.At(psi))
	opt := solve.Options{Tolerance: meanTolerance, MaxIter: p.MaxIter, Mixed: p.Mixed, Budget: p.Budget}
	if p.Kind == "none" {
		return opt, nil
	}
	var err error
	if p.pivots == nil {
		if p.pivots, err = precond.Pivots(ctx, p.Operator, p.augmentedRank(), random.Key{Seed: p.Seed}); err != nil {
			return opt, err
		}
	}
	if opt.Precond, err = precond.OnRows(ctx, p.Operator, p.pivots); err != nil {
		return opt, fmt.Errorf("at log parameters %.4g: %w", psi, err)
	}
	return opt, nil
}

func (p *Predictor) augmentedRank() int {
	if p.Rank > 0 {
		return p.Rank
	}
	n := len(p.Problem.Y)
	return min(rankFactor*precond.AutoRank(n), max(1, n/2))
}

// problemAt returns the problem of draw t, and has the solver be one for it.
func (p *Predictor) problemAt(ctx context.Context, t int) (*posterior.Problem, error) {
	if p.states == nil {
		return p.Problem, nil
	}
	pr := *p.Problem
	pr.State = p.states[t]
	if err := p.Budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer p.Budget.Release()
	opt, err := p.options(ctx, &pr, p.Draws[t])
	if err != nil {
		return nil, err
	}
	p.solver = solve.New(p.Operator, opt)
	return &pr, nil
}

// kept returns what Solutions keeps: K⁻¹y of each draw, then the columns of the states.
func (p *Predictor) kept(alphas [][]float64) [][]float64 {
	n := len(p.Problem.Y)
	out := slices.Clone(alphas)
	for _, s := range p.states {
		out = slices.AppendSeq(out, slices.Chunk(s, n))
	}
	return out
}

// restore is the inverse of kept.
func (p *Predictor) restore(columns [][]float64) (alphas [][]float64) {
	draws, width := len(p.Draws), p.Problem.Likelihood.Augmentation().Width()
	if width > 0 {
		p.states = make([][]float64, draws)
		for t := range p.states {
			p.states[t] = slices.Concat(columns[draws+t*width : draws+(t+1)*width]...)
		}
	}
	return columns[:draws]
}
