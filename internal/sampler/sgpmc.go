package sampler

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// Inducing is the joint log density of ψ and the whitened variables v of M inducing inputs, up to a constant. Where there is none
// values are −∞, and vectors nil.
type Inducing interface {
	Len() int // M
	// Density returns the log density and its gradient in v, Gradient that in ψ, too.
	Density(ctx context.Context, psi, v []float64) (value float64, byV []float64, err error)
	Gradient(ctx context.Context, psi, v []float64) (value float64, byPsi, byV []float64, err error)
	// Normal returns the best normal distribution of v given ψ, a function of ψ alone: its mean, and the lower inverse root R of
	// its precision, with whose log determinant: the covariance is RᵀR.
	Normal(ctx context.Context, psi []float64) (mean []float64, root *mat.TriDense, logDet float64, err error)
	// Bound returns a bound of the log density of ψ alone, and its gradient.
	Bound(ctx context.Context, psi []float64) (value float64, grad []float64, err error)
	// Response returns mean and root of Normal at a centre, and the derivatives of the mean by ψ, M×p, by differences of the
	// given lengths.
	Response(ctx context.Context, centre, scale []float64) (mean []float64, root *mat.TriDense, slope *mat.Dense, err error)
}

// sgpmc draws ψ and the whitened inducing variables v of an approximation together (Hensman, Matthews, Filippone and Ghahramani
// 2015). An iteration moves
//
//	ψ with e = R(ψ)⁻ᵀ(v − m(ψ)) held   m and R are those of the best normal distribution of v given ψ
//	ψ and v
//
// both by Hamiltonian Monte Carlo. The density of ψ and e is that of ψ and v times |RᵀR|^½. Under Gaussian noise e is standard normal
// whatever ψ is, so that the first move is one in the marginal density of ψ: many rows leave v so little room given ψ that
// trajectories of both would move ψ slowly. It follows the gradient of the bound, which is that of the density under Gaussian
// noise and near it else: any function of the place makes trajectories that are reversible and keep volumes, and the end is
// accepted by the density. The second one is taken in the coordinates in which the normal approximation around the mean of warm-up
// is standard normal; its step and its length are those that go farthest, which the second window of warm-up tries.
//
// What a chain carries beside ψ is v; it begins with zeros, for which a draw of the normal distribution is taken.
type sgpmc struct{}

const (
	sgpmcWarmup = 200
	// slopeStep is the length of differences of m, in posterior standard deviations.
	slopeStep = 0.1
)

func (sgpmc) Name() string                    { return "sgpmc" }
func (sgpmc) Section() any                    { return nil }
func (sgpmc) Check(*Options) (string, string) { return "", "" }
func (sgpmc) Windows(o *Options) []int        { return windows(or(o.Warmup, sgpmcWarmup)) }
func (sgpmc) Statistics() []string            { return []string{AcceptanceRate, "seconds"} }

func (sgpmc) Needs() Needs {
	return Needs{Search: ByBound, Subset: denseSubset, Inducing: true, Latent: 1}
}

// Adapt sets the centre of proposals and coordinates.
func (sgpmc) Adapt(r *chains.Run, s *chains.Settings, mean []float64) error {
	return exact{}.Adapt(r, s, mean)
}

func (sgpmc) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	if _, err := sgld.NewMetropolis(nil, t.Settings.Metric(), nil, false); err != nil {
		return nil, err
	}
	paths, err := sgld.ReadTrajectories(k.State.Memory)
	if err != nil {
		return nil, err
	}
	in := env.Inducing()
	w := &whitened{in: in, centre: t.Settings.Mean, shape: root(t.Settings.Metric()), v: env.Latent()[0][:in.Len()]}
	tune := t.Warmup && t.Settings.Window == 1
	return func(ctx context.Context, key random.Key) (Outcome, error) {
		if err := w.advance(ctx, k.State.Psi, key); err != nil {
			return Outcome{}, err
		}
		frame, err := newFrame(ctx, in, t.Settings.Mean, t.Settings.Metric())
		if err != nil {
			return Outcome{}, err
		}
		out, err := frame.advance(ctx, k.State.Psi, w.v, paths, tune, key)
		k.State.Memory = paths.Memory()
		return out, err
	}, nil
}

// root returns the Cholesky factor of a positive definite matrix.
func root(a *mat.SymDense) *mat.TriDense {
	var chol mat.Cholesky
	chol.Factorize(a)
	l := mat.NewTriDense(a.SymmetricDim(), mat.Lower, nil)
	chol.LTo(l)
	return l
}

// Trajectories of ψ where e is held: the step in units of p^(−¼), and the most leapfrog steps.
const (
	heldStep   = 1.0
	heldLength = 6
)

// whitened is the density of a, ψ = centre + C^½a, where e is held.
type whitened struct {
	in     Inducing
	centre []float64
	shape  *mat.TriDense // C^½
	v      []float64
	e      *mat.VecDense
}

// advance moves ψ and v by a trajectory.
func (w *whitened) advance(ctx context.Context, psi []float64, key random.Key) error {
	mean, spread, _, err := w.in.Normal(ctx, psi)
	if err != nil {
		return err
	}
	if mean == nil {
		return fmt.Errorf("the covariance matrix is numerically singular at log parameters %.4g", psi)
	}
	w.e = mat.NewVecDense(len(mean), nil)
	if slices.ContainsFunc(w.v, func(x float64) bool { return x != 0 }) {
		w.e.SubVec(mat.NewVecDense(len(mean), w.v), mat.NewVecDense(len(mean), mean))
		_ = w.e.SolveVec(spread.T(), w.e) // only warns of ill-conditioning
	} else { // the chain begins
		random.Normal(key.Stream(random.Start, 1), w.e.RawVector().Data)
		copy(w.v, colour(mean, spread, w.e))
	}
	a := mat.NewVecDense(len(psi), nil)
	a.SubVec(mat.NewVecDense(len(psi), psi), mat.NewVecDense(len(psi), w.centre))
	_ = a.SolveVec(w.shape, a)
	h := sgld.Hamiltonian{Density: w.density}
	from, err := h.At(ctx, a.RawVector().Data)
	if err != nil {
		return err
	}
	to, _, accepted, err := h.Advance(ctx, from, heldStep*math.Pow(float64(len(psi)), -0.25), heldLength, key.Stream(random.Accept, 0))
	if err != nil || !accepted {
		return err
	}
	copy(psi, w.point(to.X))
	if mean, spread, _, err = w.in.Normal(ctx, psi); mean != nil {
		copy(w.v, colour(mean, spread, w.e))
	}
	return err
}

func (w *whitened) point(a []float64) []float64 {
	psi := mat.NewVecDense(len(a), nil)
	psi.MulVec(w.shape, mat.NewVecDense(len(a), a))
	psi.AddVec(psi, mat.NewVecDense(len(a), w.centre))
	return psi.RawVector().Data
}

// density returns the log density of ψ and e at a, and a direction that is nearly its gradient by a: that of the bound.
func (w *whitened) density(ctx context.Context, a []float64) (float64, []float64, error) {
	psi := w.point(a)
	mean, spread, logDet, err := w.in.Normal(ctx, psi)
	if mean == nil {
		return math.Inf(-1), nil, err
	}
	value, _, err := w.in.Density(ctx, psi, colour(mean, spread, w.e))
	if err != nil {
		return 0, nil, err
	}
	_, slope, err := w.in.Bound(ctx, psi)
	if slope == nil {
		return math.Inf(-1), nil, err
	}
	grad := mat.NewVecDense(len(a), nil)
	grad.MulVec(w.shape.T(), mat.NewVecDense(len(a), slope))
	return value - logDet/2, grad.RawVector().Data, nil
}

// colour returns m + Rᵀe.
func colour(mean []float64, root *mat.TriDense, e *mat.VecDense) []float64 {
	v := mat.NewVecDense(len(mean), nil)
	v.MulVec(root.T(), e)
	v.AddVec(v, mat.NewVecDense(len(mean), mean))
	return v.RawVector().Data
}

// frame are coordinates x = (a, e): ψ = centre + C^½a, v = m + S(ψ − centre) + Rᵀe.
type frame struct {
	in           Inducing
	centre, mean []float64
	shape        *mat.TriDense // C^½
	root         *mat.TriDense // R
	slope        *mat.Dense    // S
}

// newFrame returns the coordinates around a centre, nil where there is no density.
func newFrame(ctx context.Context, in Inducing, centre []float64, metric *mat.SymDense) (*frame, error) {
	f := &frame{in: in, centre: centre, shape: root(metric)}
	scale := make([]float64, len(centre))
	for i := range scale {
		scale[i] = slopeStep * math.Sqrt(metric.At(i, i))
	}
	var err error
	if f.mean, f.root, f.slope, err = in.Response(ctx, centre, scale); f.mean == nil {
		return nil, err
	}
	return f, err
}

// coordinates returns x.
func (f *frame) coordinates(psi, v []float64) []float64 {
	p, m := len(psi), len(v)
	x := make([]float64, p+m)
	a, e := mat.NewVecDense(p, x[:p]), mat.NewVecDense(m, x[p:])
	var by mat.VecDense
	a.SubVec(mat.NewVecDense(p, psi), mat.NewVecDense(p, f.centre))
	by.MulVec(f.slope, a)
	e.SubVec(mat.NewVecDense(m, v), mat.NewVecDense(m, f.mean))
	e.SubVec(e, &by)
	_ = a.SolveVec(f.shape, a) // only warn of ill-conditioning
	_ = e.SolveVec(f.root.T(), e)
	return x
}

// point returns ψ and v.
func (f *frame) point(x []float64) (psi, v []float64) {
	p, m := len(f.centre), len(f.mean)
	var shift, by mat.VecDense
	shift.MulVec(f.shape, mat.NewVecDense(p, x[:p]))
	by.MulVec(f.slope, &shift)
	at := mat.NewVecDense(m, colour(f.mean, f.root, mat.NewVecDense(m, x[p:])))
	at.AddVec(at, &by)
	shift.AddVec(&shift, mat.NewVecDense(p, f.centre))
	return shift.RawVector().Data, at.RawVector().Data
}

// density returns the log density at x, and its gradient.
func (f *frame) density(ctx context.Context, x []float64) (float64, []float64, error) {
	p, m := len(f.centre), len(f.mean)
	psi, v := f.point(x)
	value, byPsi, byV, err := f.in.Gradient(ctx, psi, v)
	if byPsi == nil {
		return value, nil, err
	}
	grad := make([]float64, p+m)
	var by mat.VecDense
	by.MulVec(f.slope.T(), mat.NewVecDense(m, byV))
	by.AddVec(&by, mat.NewVecDense(p, byPsi))
	mat.NewVecDense(p, grad[:p]).MulVec(f.shape.T(), &by)
	mat.NewVecDense(m, grad[p:]).MulVec(f.root, mat.NewVecDense(m, byV))
	return value, grad, nil
}

// advance moves ψ and v by a trajectory, the next one to be tried or the best.
func (f *frame) advance(ctx context.Context, psi, v []float64, paths *sgld.Trajectories, tune bool, key random.Key) (Outcome, error) {
	if f == nil { // no density at the centre: the other move is all
		return Outcome{}, nil
	}
	h := sgld.Hamiltonian{Density: f.density}
	from, err := h.At(ctx, f.coordinates(psi, v))
	if err != nil {
		return Outcome{}, err
	}
	step, most := paths.Best(len(from.X))
	if tune {
		step, most = paths.Next(len(from.X))
	}
	to, acceptance, accepted, err := h.Advance(ctx, from, step, most, key.Stream(random.Noise, 0))
	if err != nil {
		return Outcome{}, err
	}
	if tune {
		squared := 0.0
		for i, x := range to.X {
			squared += (x - from.X[i]) * (x - from.X[i])
		}
		paths.Tell(squared)
	}
	if accepted {
		toPsi, toV := f.point(to.X)
		copy(psi, toPsi)
		copy(v, toV)
	}
	return Outcome{Acceptance: acceptance, Accepted: accepted}, nil
}
