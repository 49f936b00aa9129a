package predict

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// JointOptions say what to tell of the joint distribution of rows. Of Options the tolerance is
// jointTolerance if it is not less, and Variance is without effect.
type JointOptions struct {
	Options
	Covariance bool   // the covariance matrix of the mixture over all draws
	Paths      int    // how many sample paths
	Seed       uint64 // of the paths
}

// Joint is what was asked for of a joint distribution, in the units of the (standardised) training data.
type Joint struct {
	// Moments are the rows' own distributions at each draw, and Covariance is the matrix of the mixture:
	// the mean of the draws' covariances and the covariance of their means. With the noise its diagonal
	// has that of the target. Both are nil unless the covariance was asked for.
	Moments    *Moments
	Covariance [][]float64
	Paths      [][]float64 // path × row
	// Quantities are what paths of several latent functions tell of them: each row has a value of each. Nil of others.
	Quantities []likelihood.Quantity
}

// jointTolerance bounds the relative error of a row's standard deviation in joint distributions. The errors
// of near rows are not alike, so that what a path does between them must not be lost in them.
const jointTolerance = 1e-8

// Bounds on joint distributions: the rows that are not equal, and the memory of the solutions K⁻¹k*.
const (
	MaxJointRows = 4096
	jointBytes   = 2 << 30
)

// A path is the mean and L·z, LLᵀ the covariance, which rounding can leave without a factor. leastJitter
// of the prior's variance is added to its diagonal, and ten times as much again until there is one.
const (
	leastJitter = 1e-10
	mostJitter  = 2e-6
)

// Joint returns the joint distribution of the rows at the given points, standardised as the training data
// are. With X the solutions of K·X = K* and R their residuals the covariance at a draw is
//
//	Σ = K** − K*ᵀX − XᵀR
//
// which is off by RᵀK⁻¹R: positive semi-definite, so that what is computed is a covariance, and no element
// is off by more than the variances are. Path j is one of the latent function at one draw of the parameters,
// all draws taking their turns in a random order. It is a function of the posterior, the set of points and
// the seed: not of their order, the number of paths, or threads. Equal points have equal values of the latent
// function; the noise is of each row. The errors are those of Predict, and of too many rows.
func (p *Predictor) Joint(ctx context.Context, points *kernel.Inputs, o JointOptions) (*Joint, Stats, error) {
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	p.checkPoints(points)
	if p.telling() != nil {
		return p.severalPaths(ctx, points, o)
	}
	if err := p.needs(o.Options); err != nil {
		return nil, Stats{}, err
	}
	distinct, place := canonical(points)
	if err := checkJoint(distinct.Len(), len(p.Problem.Y)); err != nil {
		return nil, Stats{}, err
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	if err := p.prepare(ctx, o.Progress); err != nil {
		return nil, Stats{}, err
	}
	j := newJointWork(p, distinct, place, o)
	for t, psi := range p.Draws {
		if !j.wanted(t) {
			continue
		}
		if err := j.at(ctx, t); err != nil {
			return nil, j.stats, err
		}
		if !finite(j.mean) || !finite(j.covariance.RawSymmetric().Data) {
			return nil, j.stats, unsolvable(psi)
		}
		if err := j.take(t); err != nil {
			return nil, j.stats, err
		}
	}
	return j.result(), j.stats, nil
}

// TooMany is the error of a joint distribution of more rows than there is memory for.
type TooMany struct{ Rows, Most, Learnt int }

func (e *TooMany) Error() string {
	return fmt.Sprintf("the joint distribution of %d rows, with %d learnt from, takes more memory than there may be: ask for %d different rows at most", e.Rows, e.Learnt, e.Most)
}

// checkJoint returns an error if there are too many rows for a joint distribution where n are learnt from.
func checkJoint(rows, n int) error {
	most := min(MaxJointRows, jointBytes/(8*n))
	if rows <= most {
		return nil
	}
	return &TooMany{rows, most, n}
}

// canonical returns the points that differ, in increasing order, and where each point is among them.
func canonical(points *kernel.Inputs) (distinct *kernel.Inputs, place []int) {
	order := span(0, points.Len())
	compare := func(a, b int) int { return slices.Compare(points.Row(a), points.Row(b)) }
	slices.SortFunc(order, compare)
	place = make([]int, points.Len())
	var first []int
	for k, i := range order {
		if k == 0 || compare(order[k-1], i) != 0 {
			first = append(first, i)
		}
		place[i] = len(first) - 1
	}
	return points.Select(first), place
}

// jointWork is the computation of a joint distribution, draw by draw.
type jointWork struct {
	JointOptions
	p      *Predictor
	points *kernel.Inputs // distinct
	place  []int          // of each row among them
	turns  []int          // draws in the order in which paths take them
	stats  Stats
	done   int  // draws
	noisy  bool // of the target, not of the latent function

	x              [][]float64 // K⁻¹K* of the draw at hand
	mean, variance []float64   // at each point
	covariance     *mat.SymDense

	moments *Moments
	sum     *mat.SymDense // of the covariances of the draws so far
	paths   [][]float64
}

func newJointWork(p *Predictor, points *kernel.Inputs, place []int, o JointOptions) *jointWork {
	m, n, noisy := points.Len(), len(p.Problem.Y), !o.Latent
	o.Latent, o.Tolerance = true, min(o.Tolerance, jointTolerance) // whatever the noise is
	j := &jointWork{JointOptions: o, noisy: noisy, p: p, points: points, place: place, x: solve.Columns(n, m), mean: make([]float64, m), variance: make([]float64, m),
		covariance: mat.NewSymDense(m, nil), paths: make([][]float64, o.Paths),
		turns: random.Key{Seed: o.Seed}.Stream(random.Path, 0).Perm(len(p.Draws)),
		stats: Stats{Draws: len(p.Draws), Rows: len(place), MeansUnconverged: p.unconverged}}
	if o.Covariance {
		j.moments, j.sum = p.moments(len(place), o.Noise), mat.NewSymDense(m, nil)
	} else {
		j.stats.Draws = min(o.Paths, len(p.Draws))
	}
	return j
}

// wanted reports whether anything is asked for of a draw.
func (j *jointWork) wanted(t int) bool {
	return j.Covariance || slices.Contains(j.turns[:min(j.Paths, len(j.turns))], t)
}

// at computes mean and covariance at draw t. Every draw begins from nothing, so that it is the same
// whatever draws were computed before it.
func (j *jointWork) at(ctx context.Context, t int) error {
	p, m, psi := j.p, j.points.Len(), j.p.Draws[t]
	pr, err := p.problemAt(ctx, t)
	if err != nil {
		return err
	}
	f := p.Problem.Function(psi)
	for _, x := range j.x {
		clear(x)
	}
	size := Batch(len(p.Problem.Y))
	for lo := 0; lo < m; lo += size {
		hi := min(m, lo+size)
		b := &batch{p: p, Options: j.Options, of: values{p, j.points.Select(span(lo, hi))}, x: j.x[lo:hi], scale: make([]float64, hi-lo), stats: &j.stats}
		if err := b.solve(ctx, pr, psi, p.alphas[t], j.mean[lo:hi], j.variance[lo:hi]); err != nil {
			return err
		}
		before := j.points.Select(span(0, hi))
		explained := solve.Columns(hi, hi-lo) // K*ᵀX
		if err := j.cross(ctx, explained, before, j.x[lo:hi]); err != nil {
			return err
		}
		b.each(func(c int) {
			r := p.solver.Residual(c)
			for i := range lo + c {
				j.covariance.SetSym(i, lo+c, f.Value(before.Row(i), before.Row(lo+c))-explained[c][i]-floats.Dot(j.x[i], r))
			}
			j.covariance.SetSym(lo+c, lo+c, j.variance[lo+c])
		})
		j.Progress(Progress{RowsStage, j.done*m + hi, j.stats.Draws * m})
	}
	j.done++
	return nil
}

func (j *jointWork) cross(ctx context.Context, dst [][]float64, points *kernel.Inputs, v [][]float64) error {
	if err := j.p.Budget.Acquire(ctx); err != nil {
		return err
	}
	defer j.p.Budget.Release()
	return j.p.Operator.Cross(ctx, dst, points, v)
}

// take adds what is asked for of draw t.
func (j *jointWork) take(t int) error {
	f := j.p.Problem.Function(j.p.Draws[t])
	for i, v := range j.variance { // rounding
		if tiny := minVariance * f.Variance(j.points.Row(i)); v < tiny {
			j.covariance.SetSym(i, i, tiny)
			j.stats.Clipped++
		}
	}
	if j.Covariance {
		j.sum.AddSym(j.sum, j.covariance)
		for i, at := range j.place {
			j.moments.Mean[t][i], j.moments.Var[t][i] = j.mean[at]+j.offset(i), j.covariance.At(at, at)
		}
	}
	turn := slices.Index(j.turns, t)
	if turn >= j.Paths {
		return nil
	}
	factor, err := j.factor(f)
	if err != nil {
		return err
	}
	_, own := j.p.Problem.Natural(j.p.Draws[t])
	for k := turn; k < j.Paths; k += len(j.turns) {
		j.paths[k] = j.path(k, factor, own)
	}
	return nil
}

// offset returns what is added to the latent function in a row.
func (j *jointWork) offset(row int) float64 {
	if j.Offset == nil {
		return 0
	}
	return j.Offset[row]
}

// factor returns a Cholesky factor of the draw's covariance.
func (j *jointWork) factor(f *kernel.Function) (*mat.Cholesky, error) {
	chol, jitter := jittered(j.covariance, f, j.points)
	if chol == nil {
		return nil, fmt.Errorf("the joint covariance of the rows is not positive definite: its linear systems were not solved well enough; allow more solver.max_iterations, or ask for rows that are farther apart")
	}
	j.stats.Jitter = max(j.stats.Jitter, jitter)
	return chol, nil
}

// jittered returns a Cholesky factor of the covariance at some points, with as little added to its
// diagonal as it takes, in units of the prior's largest variance; nil if that is too much.
func jittered(covariance *mat.SymDense, f *kernel.Function, points *kernel.Inputs) (factor *mat.Cholesky, jitter float64) {
	k, most := mat.NewSymDense(points.Len(), nil), 0.0 // the variance may be 0 at some points
	for i := range points.Len() {
		most = max(most, f.Variance(points.Row(i)))
	}
	for jitter = leastJitter; jitter < mostJitter; jitter *= 10 {
		k.CopySym(covariance)
		for i := range points.Len() {
			k.SetSym(i, i, k.At(i, i)+jitter*most)
		}
		factor = new(mat.Cholesky)
		if factor.Factorize(k) {
			return factor, jitter
		}
	}
	return nil, 0
}

// path returns path k, a value for each row. own are the likelihood's parameters.
func (j *jointWork) path(k int, factor *mat.Cholesky, own []float64) []float64 {
	r := random.Key{Seed: j.Seed, Iter: k + 1}.Stream(random.Path, 0)
	z := make([]float64, j.points.Len())
	random.Normal(r, z)
	f := mat.NewVecDense(len(z), nil)
	f.MulVec(factor.RawU().T(), mat.NewVecDense(len(z), z))
	floats.Add(f.RawVector().Data, j.mean)
	out, of := make([]float64, len(j.place)), j.p.likelihood(j.Noise)
	for _, i := range inOrder(j.place) {
		out[i] = f.AtVec(j.place[i]) + j.offset(i)
		if j.noisy {
			out[i] = likelihood.At(of, i).Draw(r, own, out[i], 0)
		}
	}
	return out
}

// inOrder returns the rows in the order of their points.
func inOrder(place []int) []int {
	rows := span(0, len(place))
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
	return rows
}

// result returns the mixture over the draws.
func (j *jointWork) result() *Joint {
	out := &Joint{Moments: j.moments, Paths: j.paths}
	if !j.Covariance {
		return out
	}
	m, draws := len(j.place), float64(len(j.p.Draws))
	centre := make([]float64, m)
	for _, mean := range j.moments.Mean {
		floats.AddScaled(centre, 1/draws, mean)
	}
	out.Covariance = solve.Columns(m, m)
	j.p.Budget.NewLoop(func(_, a int) {
		for b := range m {
			sum := j.sum.At(j.place[a], j.place[b])
			for _, mean := range j.moments.Mean {
				sum += (mean[a] - centre[a]) * (mean[b] - centre[b])
			}
			out.Covariance[a][b] = sum / draws
		}
		if j.noisy {
			_, sd := j.moments.Mixture(a, false).Moments()
			out.Covariance[a][a] = sd * sd
		}
	}).Run(m)
	return out
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
