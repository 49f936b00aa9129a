package surrogate

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Shape is the covariance function of a Process.
type Shape int

// The shapes, with ℓ in whitened units.
const (
	Gaussian Shape = iota // exp(−r²/2ℓ²)
	Matern52              // (1+a+a²/3)·exp(−a), a = √5·r/ℓ
)

// String returns the shape's name.
func (s Shape) String() string { return []string{"Gaussian", "Matérn 5/2"}[s] }

// derivatives returns g(u), −g'(u) and g”(u) of the covariance as a function of u = r²/2.
// With the difference d of two points, it is −g'·d_l between a value and a derivative, and
// −g'·δ_kl − g”·d_k·d_l between two derivatives.
func (s Shape) derivatives(d2, length float64) (g, g1, g2 float64) {
	l2 := length * length
	if s == Gaussian {
		e := math.Exp(-d2 / (2 * l2))
		return e, e / l2, e / (l2 * l2)
	}
	a := math.Sqrt(5*d2) / length
	e := math.Exp(-a)
	return (1 + a + a*a/3) * e, 5.0 / 3 / l2 * (1 + a) * e, 25.0 / 3 / (l2 * l2) * e
}

// Process is a Gaussian process whose mean is a polynomial with free coefficients.
type Process struct {
	white    *Whitening
	shape    Shape
	length   float64 // in whitened units
	scale    float64 // standard deviation
	mean     *basis
	constant bool // values were observed
	points   []observedPoint
	rows     []row
	budget   *parallel.Budget

	factor     *cholesky.Matrix // of the covariance K of the observations
	rootMean   [][]float64      // L⁻¹H, H the basis at the observations
	meanFactor *cholesky.Matrix // of HᵀK⁻¹H
	pull       []pull           // by point: K⁻¹(y − Hβ)
	beta       []float64
}

// row is a scalar observation: a component of a gradient, or a value.
type row struct{ point, component int }

const valueRow = -1

// pull are the weights of a point's observations in a prediction.
type pull struct {
	value float64
	grad  []float64
}

// learnFrom is how many scalars the length and the scale are learned from; a factor of as
// many takes some hundredths of a second.
const learnFrom = 1500

// FitProcess fits a Gaussian process with a mean of the given degree. Its length and scale
// are those of the highest marginal likelihood of a part of the observations. It stores a
// matrix of as many rows as there are scalar observations, components of gradients counted
// each. The errors are those of observations, and of ctx.
func FitProcess(ctx context.Context, w *Whitening, obs []Observation, shape Shape, degree int, b *parallel.Budget) (*Process, error) {
	o, err := observe(w, obs)
	if err != nil {
		return nil, err
	}
	p := &Process{white: w, shape: shape, mean: newBasis(w.Dim(), degree), budget: b, constant: o.values}
	p.take(o.points)
	if len(p.rows) < 2*p.size() {
		return nil, fmt.Errorf("surrogate: %d scalars are too few for a mean with %d coefficients", len(p.rows), p.size())
	}
	part := *p
	step := (len(p.rows) + learnFrom - 1) / learnFrom
	var some []observedPoint
	for i := 0; i < len(o.points); i += step {
		some = append(some, o.points[i])
	}
	if part.take(some); len(part.rows) < 2*p.size() {
		part = *p
	}
	if err := part.learn(ctx); err != nil {
		return nil, err
	}
	p.length, p.scale = part.length, part.scale
	_, err = p.condition(ctx)
	return p, err
}

func (p *Process) take(points []observedPoint) {
	p.points, p.rows = points, nil
	for i, ob := range points {
		for k := range ob.grad {
			p.rows = append(p.rows, row{i, k})
		}
		if ob.valueSD > 0 {
			p.rows = append(p.rows, row{i, valueRow})
		}
	}
}

func (p *Process) size() int {
	if p.constant {
		return len(p.mean.terms) + 1
	}
	return len(p.mean.terms)
}

// learn sets the length and the scale.
func (p *Process) learn(ctx context.Context) error {
	// The mean square of a gradient's component, noise aside, is (scale/length)².
	var square, count float64
	for _, ob := range p.points {
		for k, g := range ob.grad {
			square += max(0, g*g-ob.cov.At(k, k))
			count++
		}
	}
	slope := 0.1 * math.Sqrt(max(square/max(count, 1), 1e-6)) // the mean takes most of it
	start := []float64{math.Log(4), math.Log(4 * slope)}
	problem := optimize.Problem{Func: func(x []float64) float64 {
		if ctx.Err() != nil || math.Abs(x[0]-start[0]) > 3 || math.Abs(x[1]-start[1]) > 12 {
			return math.Inf(1)
		}
		p.length, p.scale = math.Exp(x[0]), math.Exp(x[1])
		v, err := p.condition(ctx)
		if err != nil {
			return math.Inf(1)
		}
		return -v
	}}
	res, err := optimize.Minimize(problem, start, &optimize.Settings{FuncEvaluations: 40,
		Converger: &optimize.FunctionConverge{Absolute: 0.05, Iterations: 8}}, &optimize.NelderMead{SimplexSize: 0.7})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if res == nil || math.IsInf(res.F, 0) {
		return fmt.Errorf("surrogate: no Gaussian process fits the observations: %w", err)
	}
	p.length, p.scale = math.Exp(res.X[0]), math.Exp(res.X[1])
	return nil
}

// condition computes the posterior and returns the log marginal likelihood, the mean's
// coefficients integrated out.
func (p *Process) condition(ctx context.Context) (float64, error) {
	n := len(p.rows)
	var err error
	if p.factor, err = factor(ctx, n, p.budget, p.covariance()); err != nil {
		return 0, err
	}
	y := make([]float64, n)
	p.rootMean = make([][]float64, p.size())
	for j := range p.rootMean {
		p.rootMean[j] = make([]float64, n)
	}
	for i, r := range p.rows {
		ob := &p.points[r.point]
		if r.component == valueRow {
			y[i] = ob.value
		} else {
			y[i] = ob.grad[r.component]
		}
	}
	p.design()
	if err := p.factor.SolveRoot(ctx, p.budget, append(p.rootMean[:p.size():p.size()], y)); err != nil {
		return 0, err
	}
	inner := gramOf(p.rootMean)
	if p.meanFactor, err = factor(ctx, p.size(), p.budget, inner.At); err != nil {
		return 0, err
	}
	p.beta = make([]float64, p.size())
	for j, h := range p.rootMean {
		p.beta[j] = floats.Dot(h, y)
	}
	if err := p.meanFactor.Solve(ctx, p.budget, [][]float64{p.beta}); err != nil {
		return 0, err
	}
	for j, h := range p.rootMean {
		floats.AddScaled(y, -p.beta[j], h)
	}
	value := -(floats.Dot(y, y) + p.factor.LogDet() + p.meanFactor.LogDet()) / 2
	if err := p.factor.SolveRootTrans(ctx, p.budget, [][]float64{y}); err != nil {
		return 0, err
	}
	p.pull = make([]pull, len(p.points))
	for i, r := range p.rows {
		to := &p.pull[r.point]
		if r.component == valueRow {
			to.value = y[i]
		} else {
			to.grad = append(to.grad, y[i])
		}
	}
	return value, nil
}

// design sets rootMean to the basis at the observations.
func (p *Process) design() {
	first := make([]int, len(p.points))
	for i := len(p.rows) - 1; i >= 0; i-- {
		first[p.rows[i].point] = i
	}
	f := make([]float64, p.size())
	for i := range p.points {
		ob := &p.points[i]
		if ob.grad != nil {
			p.mean.slopes(ob.z, func(j, c int, s float64) { p.rootMean[j][first[i]+c] += s })
		}
		if ob.valueSD > 0 {
			p.features(f, ob.z)
			for j, v := range f {
				p.rootMean[j][first[i]+len(ob.grad)] = v
			}
		}
	}
}

func (p *Process) features(dst, z []float64) {
	p.mean.values(dst, z)
	if p.constant {
		dst[len(dst)-1] = 1
	}
}

// covariance returns the elements of the covariance of the observations.
func (p *Process) covariance() func(i, j int) float64 {
	n := len(p.points)
	g, g1, g2 := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	s2 := p.scale * p.scale
	p.budget.NewLoop(func(_, a int) {
		for b := range n {
			x, x1, x2 := p.shape.derivatives(squared(p.points[a].z, p.points[b].z), p.length)
			g[a*n+b], g1[a*n+b], g2[a*n+b] = s2*x, s2*x1, s2*x2
		}
	}).Run(n)
	return func(i, j int) float64 {
		a, b := p.rows[i], p.rows[j]
		at := a.point*n + b.point
		pa, pb := &p.points[a.point], &p.points[b.point]
		switch k, l := a.component, b.component; {
		case k == valueRow && l == valueRow:
			if i == j {
				return g[at] + pa.valueSD*pa.valueSD
			}
			return g[at]
		case k == valueRow:
			return g1[at] * (pa.z[l] - pb.z[l])
		case l == valueRow:
			return g1[at] * (pb.z[k] - pa.z[k])
		default:
			v := -g2[at] * (pa.z[k] - pb.z[k]) * (pa.z[l] - pb.z[l])
			if k == l {
				v += g1[at]
			}
			if a.point == b.point {
				v += pa.cov.At(k, l)
			}
			return v
		}
	}
}

func squared(a, b []float64) float64 {
	var sum float64
	for i, x := range a {
		sum += (x - b[i]) * (x - b[i])
	}
	return sum
}

// Name says the shape and what was learned.
func (p *Process) Name() string {
	return fmt.Sprintf("Gaussian process (%v, length %.2g sd, mean of degree %d)", p.shape, p.length, p.mean.degree)
}

// Value returns the function at x.
func (p *Process) Value(x []float64) float64 {
	v := p.at(p.white.Apply(x))
	if !p.constant {
		v -= p.at(make([]float64, len(x)))
	}
	return v
}

func (p *Process) at(z []float64) float64 {
	f := make([]float64, p.size())
	p.features(f, z)
	v := floats.Dot(f, p.beta)
	s2 := p.scale * p.scale
	for i := range p.points {
		ob, w := &p.points[i], &p.pull[i]
		g, g1, _ := p.shape.derivatives(squared(z, ob.z), p.length)
		v += s2 * g * w.value
		var along float64
		for k, wk := range w.grad {
			along += wk * (z[k] - ob.z[k])
		}
		v += s2 * g1 * along
	}
	return v
}

// Gradient sets dst to the gradient at x.
func (p *Process) Gradient(dst, x []float64) {
	z := p.white.Apply(x)
	grad := make([]float64, len(z))
	p.mean.slopes(z, func(j, c int, s float64) { grad[c] += s * p.beta[j] })
	s2 := p.scale * p.scale
	for i := range p.points {
		ob, w := &p.points[i], &p.pull[i]
		_, g1, g2 := p.shape.derivatives(squared(z, ob.z), p.length)
		var along float64
		for k, wk := range w.grad {
			along += wk * (z[k] - ob.z[k])
		}
		for k := range grad {
			grad[k] -= s2 * (g1*w.value + g2*along) * (z[k] - ob.z[k])
		}
		for k, wk := range w.grad {
			grad[k] += s2 * g1 * wk
		}
	}
	p.white.Undo(dst, grad)
}

// crossValue adds weight times the covariances of the value at z and the observations to
// dst.
func (p *Process) crossValue(z []float64, use func(row int, cov float64)) {
	s2 := p.scale * p.scale
	i := 0
	for b := range p.points {
		ob := &p.points[b]
		g, g1, _ := p.shape.derivatives(squared(z, ob.z), p.length)
		for l := range ob.grad {
			use(i, s2*g1*(z[l]-ob.z[l]))
			i++
		}
		if ob.valueSD > 0 {
			use(i, s2*g)
			i++
		}
	}
}

// GradientCov returns the posterior covariance of the gradient at x.
func (p *Process) GradientCov(x []float64) *mat.SymDense {
	z := p.white.Apply(x)
	q, s2 := len(z), p.scale*p.scale
	rows, means := make([][]float64, q), make([][]float64, q)
	for k := range rows {
		rows[k], means[k] = make([]float64, len(p.rows)), make([]float64, p.size())
	}
	i := 0
	for b := range p.points {
		ob := &p.points[b]
		_, g1, g2 := p.shape.derivatives(squared(z, ob.z), p.length)
		for l := range ob.grad {
			for k := range rows {
				rows[k][i] = -s2 * g2 * (z[k] - ob.z[k]) * (z[l] - ob.z[l])
			}
			rows[l][i] += s2 * g1
			i++
		}
		if ob.valueSD > 0 {
			for k := range rows {
				rows[k][i] = -s2 * g1 * (z[k] - ob.z[k])
			}
			i++
		}
	}
	p.mean.slopes(z, func(j, c int, s float64) { means[c][j] += s })
	cov := p.posterior(rows, means)
	_, g1, _ := p.shape.derivatives(0, p.length)
	for k := range q {
		cov.SetSym(k, k, cov.At(k, k)+s2*g1)
	}
	return p.white.undoCov(cov)
}

// posterior returns what the observations leave of the covariance of functionals, less
// their prior covariance: rows are their covariances with the observations, means their
// coefficients of the mean. It overwrites both.
func (p *Process) posterior(rows, means [][]float64) *mat.SymDense {
	ctx := context.Background() // never done, so that solves have no error
	if err := p.factor.SolveRoot(ctx, p.budget, rows); err != nil {
		panic(err)
	}
	for q, r := range rows {
		for j, h := range p.rootMean {
			means[q][j] -= floats.Dot(h, r)
		}
	}
	if err := p.meanFactor.SolveRoot(ctx, p.budget, means); err != nil {
		panic(err)
	}
	cov := gramOf(means)
	known := gramOf(rows)
	for i := range rows {
		for j := range i + 1 {
			cov.SetSym(i, j, cov.At(i, j)-known.At(i, j))
		}
	}
	return cov
}

// Variances returns the posterior variances of functionals.
func (p *Process) Variances(points [][]float64, w [][]float64) []float64 {
	z := make([][]float64, len(points), len(points)+1)
	for i, x := range points {
		z[i] = p.white.Apply(x)
	}
	weights := make([][]float64, len(w))
	for q := range w {
		weights[q] = append([]float64(nil), w[q]...)
		if !p.constant {
			weights[q] = append(weights[q], -floats.Sum(w[q]))
		}
	}
	if !p.constant {
		z = append(z, make([]float64, p.white.Dim()))
	}
	rows, means := make([][]float64, len(w)), make([][]float64, len(w))
	for q := range rows {
		rows[q], means[q] = make([]float64, len(p.rows)), make([]float64, p.size())
	}
	cross, f := make([]float64, len(p.rows)), make([]float64, p.size())
	prior := make([]float64, len(w))
	s2 := p.scale * p.scale
	for i := range z {
		p.crossValue(z[i], func(r int, cov float64) { cross[r] = cov })
		p.features(f, z[i])
		for q := range w {
			floats.AddScaled(rows[q], weights[q][i], cross)
			floats.AddScaled(means[q], weights[q][i], f)
		}
		for j := range i + 1 {
			g, _, _ := p.shape.derivatives(squared(z[i], z[j]), p.length)
			if j < i {
				g *= 2
			}
			for q := range w {
				prior[q] += s2 * g * weights[q][i] * weights[q][j]
			}
		}
	}
	cov := p.posterior(rows, means)
	out := make([]float64, len(w))
	for q := range out {
		out[q] = max(0, prior[q]+cov.At(q, q))
	}
	return out
}
