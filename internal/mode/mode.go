// Package mode finds the mode of a posterior and the curvature there: on a
// subset of the rows with the dense oracle, then on all of them from gradients
// alone.
package mode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Point is a point of the parameter space with the observed information, the
// negative Hessian of the log posterior, there.
type Point struct {
	Psi  []float64
	Info *mat.SymDense
}

// apart is how far another maximum is at least, in standard deviations at the
// highest: what is nearer is where one search has stopped short.
const apart = 3

// Covariance returns the inverse of the information.
func (p *Point) Covariance() (*mat.SymDense, error) {
	var chol mat.Cholesky
	if !chol.Factorize(p.Info) {
		return nil, errors.New("the observed information is not positive definite")
	}
	var c mat.SymDense
	if err := chol.InverseTo(&c); err != nil {
		var cond mat.Condition
		if !errors.As(err, &cond) {
			return nil, err
		}
	}
	return &c, nil
}

// Subset returns the rows of a random subset of the given size, in increasing
// order.
func Subset(n, size int, key random.Key) []int {
	rows := key.Stream(random.Subset, 0).Perm(n)[:min(n, size)]
	slices.Sort(rows)
	return rows
}

// starts are where the search on a subset begins, for standardised data: little
// noise and moderate length-scales; much noise and long ones; hardly any noise and
// short ones. The terms of a covariance share a variance of one, the inputs of a
// term a squared distance. Places of changes, of which a density has many maxima, begin in several places. What the
// starts lead to is compared.
func starts(params param.List) [][]float64 {
	terms := 0
	inputs := map[string]map[int]bool{} // by term
	for _, p := range params {
		if p.Role == param.Variance {
			terms++
		}
		for _, k := range p.Inputs {
			if inputs[p.Term] == nil {
				inputs[p.Term] = map[int]bool{}
			}
			inputs[p.Term][k] = true
		}
	}
	at := func(tau, lambda, place float64) []float64 {
		theta := make([]float64, len(params))
		for i, p := range params {
			switch p.Role {
			case param.Variance:
				theta[i] = 1 / float64(terms)
			case param.Rate:
				theta[i] = tau / float64(max(1, len(inputs[p.Term])))
			case param.Noise:
				theta[i] = lambda
			case param.Place:
				theta[i] = p.Prior.Quantile(place)
			default:
				theta[i] = p.Prior.Typical()
			}
		}
		return params.Sampled(theta)
	}
	out := [][]float64{at(0.5, 0.1, 0.5), at(0.05, 0.5, 0.5), at(5, 0.01, 0.5)}
	if slices.ContainsFunc(params, func(p param.Param) bool { return p.Role == param.Place }) {
		for _, place := range []float64{0.2, 0.8} {
			out = append(out, at(0.5, 0.1, place))
		}
	}
	return out
}

// Dense finds the mode of a small problem with its Cholesky factor: the best of
// several searches. The other maxima that these came to, if any, are returned
// too, the highest first.
func Dense(ctx context.Context, p *posterior.Problem, budget *parallel.Budget) (*Point, []chains.Local, error) {
	d := posterior.NewDense(p, budget)
	prob := optimize.Problem{
		Func: func(x []float64) float64 { return -d.LogDensity(x) },
		Grad: func(grad, x []float64) {
			g, ok := d.Gradient(x)
			for i := range grad {
				grad[i] = math.NaN()
				if ok {
					grad[i] = -g[i]
				}
			}
		},
		Status: func() (optimize.Status, error) {
			if ctx.Err() != nil {
				return optimize.Failure, ctx.Err()
			}
			return optimize.NotTerminated, nil
		},
	}
	var best []float64
	var ends []chains.Local // Below is minus the log density until the highest is known
	value := math.Inf(1)
	for _, x := range starts(p.Params) {
		res, err := optimize.Minimize(prob, x, &optimize.Settings{GradientThreshold: 1e-5 * math.Sqrt(float64(len(p.Y))), MajorIterations: 200}, &optimize.BFGS{})
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		// A search that ends early (a line search that finds no decrease, at the
		// limit of rounding) has still found its best point.
		if res == nil && err != nil {
			continue
		}
		if res.F < value {
			best, value = res.X, res.F
		}
		if res.Status == optimize.GradientThreshold {
			ends = append(ends, chains.Local{Psi: res.X, Below: res.F})
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("no mode was found on %d rows: the covariance matrix is singular everywhere", len(p.Y))
	}
	info, ok := d.Information(best)
	if !ok {
		return nil, nil, fmt.Errorf("the covariance matrix is numerically singular at the mode of %d rows", len(p.Y))
	}
	pt := &Point{Psi: best, Info: positive(info)}
	return pt, others(pt, value, ends), nil
}

// others returns the ends of searches that are maxima of their own.
func others(highest *Point, value float64, ends []chains.Local) []chains.Local {
	var out []chains.Local
	slices.SortStableFunc(ends, func(a, b chains.Local) int { return cmp.Compare(a.Below, b.Below) })
	for _, e := range ends {
		distinct := func(psi []float64) bool {
			diff := mat.NewVecDense(len(psi), nil)
			diff.SubVec(mat.NewVecDense(len(psi), e.Psi), mat.NewVecDense(len(psi), psi))
			return mat.Inner(diff, highest.Info, diff) > apart*apart
		}
		if distinct(highest.Psi) && !slices.ContainsFunc(out, func(o chains.Local) bool { return !distinct(o.Psi) }) {
			out = append(out, chains.Local{Psi: e.Psi, Below: e.Below - value})
		}
	}
	return out
}

// positive returns a symmetric matrix with its eigenvalues replaced by their
// absolute values, bounded below: a metric even where the surface is not
// concave.
func positive(a *mat.SymDense) *mat.SymDense {
	var eig mat.EigenSym
	if !eig.Factorize(a, true) {
		panic("mode: no eigenvalues of a matrix that is not finite")
	}
	vals := eig.Values(nil)
	var q mat.Dense
	eig.VectorsTo(&q)
	floor := 1e-3 * math.Max(math.Abs(vals[0]), math.Abs(vals[len(vals)-1]))
	out := mat.NewSymDense(len(vals), nil)
	for k, v := range vals {
		out.SymRankOne(out, math.Max(math.Abs(v), floor), q.ColView(k))
	}
	return out
}

// Gradient evaluates an estimate of the gradient of the log posterior with
// random numbers that are the same at every call, so that it is a smooth
// function of ψ.
type Gradient func(ctx context.Context, psi []float64) ([]float64, error)

// maxMove bounds the change of any log parameter in one step of Climb.
const maxMove = 1.0

// Climb searches a zero of the gradient from start, by quasi-Newton steps with
// start.Info as the first metric. It ends within tol posterior standard
// deviations of it (gᵀH⁻¹g ≤ tol²), after maxSteps steps, or when ψ has moved
// by more than reach in any log parameter, so that the caller can renew what
// the gradient was built on. done says whether the zero was reached.
func Climb(ctx context.Context, grad Gradient, start *Point, tol, reach float64, maxSteps int) (pt *Point, done bool, err error) {
	psi := slices.Clone(start.Psi)
	h := mat.NewSymDense(len(psi), nil)
	h.CopySym(start.Info)
	g, err := grad(ctx, psi)
	if err != nil {
		return nil, false, err
	}
	for range maxSteps {
		step, decrement, ok := newton(h, g)
		if !ok {
			h = positive(h)
			continue
		}
		if decrement <= tol*tol {
			return &Point{Psi: psi, Info: h}, true, nil
		}
		if m := floats.Norm(step, math.Inf(1)); m > maxMove {
			floats.Scale(maxMove/m, step)
		}
		next := make([]float64, len(psi))
		floats.AddTo(next, psi, step)
		gNext, err := grad(ctx, next)
		if err != nil {
			return nil, false, err
		}
		update(h, step, g, gNext)
		psi, g = next, gNext
		if floats.Distance(psi, start.Psi, math.Inf(1)) > reach {
			break
		}
	}
	return &Point{Psi: psi, Info: h}, false, nil
}

// newton returns H⁻¹g and gᵀH⁻¹g.
func newton(h *mat.SymDense, g []float64) (step []float64, decrement float64, ok bool) {
	var chol mat.Cholesky
	if !chol.Factorize(h) {
		return nil, 0, false
	}
	var s mat.VecDense
	_ = chol.SolveVecTo(&s, mat.NewVecDense(len(g), g))
	step = s.RawVector().Data
	return step, floats.Dot(step, g), true
}

// update is the damped BFGS update (Powell 1978; Nocedal and Wright, procedure
// 18.2) of H for the step s and the change y = g − g' that it made.
func update(h *mat.SymDense, s, g, gNext []float64) {
	sv := mat.NewVecDense(len(s), s)
	y := make([]float64, len(s))
	floats.SubTo(y, g, gNext)
	yv := mat.NewVecDense(len(y), y)
	var hs mat.VecDense
	hs.MulVec(h, sv)
	shs, sy := mat.Dot(sv, &hs), floats.Dot(s, y)
	theta := 1.0
	if sy < 0.2*shs {
		theta = 0.8 * shs / (shs - sy)
	}
	yv.ScaleVec(theta, yv)
	yv.AddScaledVec(yv, 1-theta, &hs)
	h.SymRankOne(h, -1/shs, &hs)
	h.SymRankOne(h, 1/mat.Dot(sv, yv), yv)
}

// Information returns the observed information at ψ by central differences of
// the gradient, a quarter of a posterior standard deviation (under the guess at
// the information) to each side: with common random numbers the noise of the
// gradient all but cancels. asymmetry is the largest |H_ij − H_ji| relative to
// √(H_ii H_jj), a measure of what noise is left.
func Information(ctx context.Context, grad Gradient, psi []float64, guess *mat.SymDense) (info *mat.SymDense, asymmetry float64, err error) {
	p := len(psi)
	cov, err := (&Point{Psi: psi, Info: guess}).Covariance()
	if err != nil {
		return nil, 0, err
	}
	h := mat.NewDense(p, p, nil)
	for i := range p {
		step := min(0.25*math.Sqrt(cov.At(i, i)), 0.25)
		x := slices.Clone(psi)
		x[i] += step
		up, err := grad(ctx, x)
		if err != nil {
			return nil, 0, err
		}
		x[i] -= 2 * step
		down, err := grad(ctx, x)
		if err != nil {
			return nil, 0, err
		}
		for j := range p {
			h.Set(i, j, (down[j]-up[j])/(2*step))
		}
	}
	info = mat.NewSymDense(p, nil)
	for i := range p {
		for j := i; j < p; j++ {
			info.SetSym(i, j, (h.At(i, j)+h.At(j, i))/2)
			scale := math.Sqrt(math.Abs(h.At(i, i) * h.At(j, j)))
			asymmetry = max(asymmetry, math.Abs(h.At(i, j)-h.At(j, i))/scale)
		}
	}
	return positive(info), asymmetry, nil
}
