package posterior

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Inducing is the joint posterior density of ψ and the whitened variables v of some inducing inputs (sparse.Joint). It is not safe for
// concurrent use.
type Inducing struct {
	s    *Sparse
	sgpr *Sparse // the same bound in one pass; nil unless the noise is Gaussian
	seed uint64

	// The response that was last asked for, and where.
	centre, scale, mean []float64
	root                *mat.TriDense
	slope               *mat.Dense
}

// NewInducing returns the density for a problem whose likelihood NewSparse takes for SVGP. The seed is of predictions.
func NewInducing(p *Problem, z *kernel.Inputs, seed uint64, b *parallel.Budget) *Inducing {
	d := &Inducing{s: NewSparse(p, sparse.SVGP, z, b), seed: seed}
	if p.Likelihood.Augmentation().Width() == 0 {
		d.sgpr = &Sparse{problem: p, budget: b, approx: d.s.approx}
	}
	return d
}

// Share has sums over rows computed by a summer, with others.
func (d *Inducing) Share(s sparse.Summer) { d.s.approx.Share(s) }

// Len returns the number of inducing variables.
func (d *Inducing) Len() int { return d.s.Inducing().Len() }

// joint returns the log density without that of ψ, nil where there is none. The only error is that of ctx.
func (d *Inducing) joint(ctx context.Context, psi, v []float64) (*sparse.Joint, error) {
	if !d.s.problem.Params.Usable(psi) {
		return nil, nil
	}
	j, err := d.s.approx.Joint(ctx, d.s.problem.Function(psi), d.s.row(psi), v)
	if errors.Is(err, sparse.ErrSingular) {
		return nil, nil
	}
	return j, err
}

// Density returns the log density of ψ and v and its gradient in v, −∞ and nil where there is none. The only error is that of ctx.
func (d *Inducing) Density(ctx context.Context, psi, v []float64) (value float64, byV []float64, err error) {
	j, err := d.joint(ctx, psi, v)
	if j == nil {
		return math.Inf(-1), nil, err
	}
	prior, _ := d.s.problem.LogPrior(psi)
	return j.Value + prior, j.V, nil
}

// Gradient is Density with the gradient in ψ, too.
func (d *Inducing) Gradient(ctx context.Context, psi, v []float64) (value float64, byPsi, byV []float64, err error) {
	p := d.s.problem
	j, err := d.joint(ctx, psi, v)
	if j == nil {
		return math.Inf(-1), nil, nil, err
	}
	theta, err := j.Theta(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	byPsi = append(theta, make([]float64, p.Own())...)
	p.Params.Chain(psi, byPsi)
	d.s.addOwn(byPsi, psi, j.Mean, j.Variance, d.s.row)
	prior, slope := p.LogPrior(psi)
	floats.Add(byPsi, slope)
	if !finite(byPsi) || !finite(j.V) {
		return math.Inf(-1), nil, nil, nil
	}
	return j.Value + prior, byPsi, j.V, nil
}

// Bound returns the bound of SVGP of the log density of ψ alone, the log prior with it, and its gradient: −∞ and nil where there is none.
// Under Gaussian noise it is the log density of ψ that Density integrates to.
func (d *Inducing) Bound(ctx context.Context, psi []float64) (float64, []float64, error) {
	if !d.s.problem.Params.Usable(psi) {
		return math.Inf(-1), nil, nil
	}
	bound := d.sgpr
	if bound == nil {
		if q, err := d.posterior(ctx, psi); q == nil { // where it begins, so that it depends on ψ alone
			return math.Inf(-1), nil, err
		}
		bound = d.s
		defer bound.bound.Keep()()
	}
	value, grad, err := bound.At(ctx, psi)
	if grad == nil {
		return value, nil, err
	}
	prior, slope := d.s.problem.LogPrior(psi)
	floats.Add(grad, slope)
	return value + prior, grad, nil
}

// posterior returns the best normal distribution of v given ψ, nil where there is none: a function of ψ alone.
func (d *Inducing) posterior(ctx context.Context, psi []float64) (q *sparse.Posterior, err error) {
	p := d.s.problem
	if !p.Params.Usable(psi) {
		return nil, nil
	}
	if d.sgpr != nil {
		q, err = d.sgpr.posterior(ctx, psi)
	} else {
		q, err = d.s.posterior(ctx, psi)
	}
	if errors.Is(err, sparse.ErrSingular) {
		return nil, nil
	}
	return q, err
}

// Normal returns the best normal distribution of v given ψ, a function of ψ alone: its mean, the lower inverse root R of its
// precision, whose log determinant it returns, so that the covariance is RᵀR. The mean is nil where there is none. Under
// Gaussian noise it is the distribution of v given ψ. The only error is that of ctx.
func (d *Inducing) Normal(ctx context.Context, psi []float64) (mean []float64, root *mat.TriDense, logDet float64, err error) {
	q, err := d.posterior(ctx, psi)
	if q == nil {
		return nil, nil, 0, err
	}
	mean, root, logDet = q.Whitened()
	return mean, root, logDet, nil
}

// Response returns mean and root of Normal at a centre, and the derivatives of the mean there by each parameter, from
// differences of the given lengths.
func (d *Inducing) Response(ctx context.Context, centre, scale []float64) (mean []float64, root *mat.TriDense, slope *mat.Dense, err error) {
	if d.mean != nil && slices.Equal(d.centre, centre) && slices.Equal(d.scale, scale) {
		return d.mean, d.root, d.slope, nil
	}
	if mean, root, _, err = d.Normal(ctx, centre); mean == nil {
		return nil, nil, nil, err
	}
	slope = mat.NewDense(len(mean), len(centre), nil)
	for k, h := range scale {
		for _, step := range []float64{h, -h} {
			x := slices.Clone(centre)
			x[k] += step
			at, _, _, err := d.Normal(ctx, x)
			if at == nil {
				return nil, nil, nil, err
			}
			for j, v := range at {
				slope.Set(j, k, slope.At(j, k)+v/(2*step))
			}
		}
	}
	d.centre, d.scale, d.mean, d.root, d.slope = slices.Clone(centre), slices.Clone(scale), mean, root, slope
	return mean, root, slope, nil
}

// The trajectories by which v is drawn for predictions, from a draw of the normal distribution that is nearest: their number, the
// step in units of M^(−¼), and the most leapfrog steps.
const (
	drawTrajectories = 6
	drawStep         = 0.8
	drawLength       = 6
)

// Draw returns a draw of v given ψ, nil where there is no density: exact under Gaussian noise, else by Hamiltonian Monte Carlo in the
// coordinates of Normal.
func (d *Inducing) Draw(ctx context.Context, psi []float64, key random.Key) ([]float64, error) {
	mean, root, _, err := d.Normal(ctx, psi)
	if mean == nil {
		return nil, err
	}
	m := len(mean)
	colour := func(e []float64) []float64 {
		v := mat.NewVecDense(m, nil)
		v.MulVec(root.T(), mat.NewVecDense(m, e))
		v.AddVec(v, mat.NewVecDense(m, mean))
		return v.RawVector().Data
	}
	e := make([]float64, m)
	random.Normal(key.Stream(random.Latent, 0), e)
	if d.sgpr != nil {
		return colour(e), nil
	}
	h := sgld.Hamiltonian{Density: func(ctx context.Context, e []float64) (float64, []float64, error) {
		value, byV, err := d.Density(ctx, psi, colour(e))
		if byV == nil {
			return value, nil, err
		}
		grad := mat.NewVecDense(m, nil)
		grad.MulVec(root, mat.NewVecDense(m, byV))
		return value, grad.RawVector().Data, nil
	}}
	at, err := h.At(ctx, e)
	r := key.Stream(random.Latent, 1)
	for range drawTrajectories {
		if err != nil {
			return nil, err
		}
		at, _, _, err = h.Advance(ctx, at, drawStep*math.Pow(float64(m), -0.25), drawLength, r)
	}
	return colour(at.X), err
}

// Latent returns the means and variances of the latent function at points, at ψ. Under Gaussian noise v is averaged over, else it is drawn:
// a function of ψ and the seed, so that the mean over draws of ψ is that over v, too.
func (d *Inducing) Latent(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance []float64, err error) {
	q, err := d.posterior(ctx, psi)
	if err != nil {
		return nil, nil, err
	}
	if q == nil {
		return nil, nil, sparse.ErrSingular
	}
	var v []float64
	if d.sgpr == nil {
		if v, err = d.Draw(ctx, psi, random.Key{Seed: d.seed, Iter: int(random.Place(psi) >> 1)}); err != nil {
			return nil, nil, err
		}
	}
	f, z := d.s.problem.Function(psi), d.s.Inducing()
	mean, variance = make([]float64, points.Len()), make([]float64, points.Len())
	d.s.budget.Chunks(points.Len(), 64, func(_, lo, hi int) {
		k, x := make([]float64, z.Len()), make([]float64, z.Len())
		for i := lo; i < hi; i++ {
			for j := range k {
				k[j] = f.Value(points.Row(i), z.Row(j))
			}
			variance[i] = f.Variance(points.Row(i))
			if v == nil {
				q.Explained(x, k)
				mean[i], variance[i] = floats.Dot(k, q.Gamma), variance[i]-floats.Dot(k, x)
				continue
			}
			at, explained := q.At(v, k)
			mean[i], variance[i] = at, variance[i]-explained
		}
	})
	return mean, variance, nil
}
