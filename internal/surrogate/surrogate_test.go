package surrogate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// skewed is a map that is not the identity.
func skewed(t testing.TB, q int) *Whitening {
	mean, cov := make([]float64, q), mat.NewSymDense(q, nil)
	for i := range q {
		mean[i] = float64(i) - 1
		cov.SetSym(i, i, 1+0.5*float64(i))
		if i > 0 {
			cov.SetSym(i, i-1, 0.4)
		}
	}
	w, err := NewWhitening(mean, cov)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// point returns a point whose whitened coordinates are standard normal times scale.
func point(w *Whitening, r *rand.Rand, scale float64) []float64 {
	z := mat.NewVecDense(w.Dim(), nil)
	for k := range w.Dim() {
		z.SetVec(k, scale*r.NormFloat64())
	}
	x := mat.NewVecDense(w.Dim(), nil)
	x.MulVec(w.root, z)
	floats.Add(x.RawVector().Data, w.Centre)
	return x.RawVector().Data
}

type function func(x []float64) float64

// observations are n gradients of f, by finite differences, with noise of standard deviation
// sd in every whitened component; every tenth point has a value too, if values is set.
func observations(w *Whitening, f function, n int, sd float64, values bool, r *rand.Rand) []Observation {
	var out []Observation
	for i := range n {
		x := point(w, r, 1.3)
		o := Observation{X: x, Grad: fd.Gradient(nil, f, x, &fd.Settings{Formula: fd.Central, Step: 1e-5})}
		if sd > 0 {
			e := make([]float64, w.Dim())
			for k := range e {
				e[k] = sd * r.NormFloat64()
			}
			back := make([]float64, w.Dim())
			w.Undo(back, e)
			floats.Add(o.Grad, back)
			unit := mat.NewSymDense(w.Dim(), nil)
			for k := range w.Dim() {
				unit.SetSym(k, k, sd*sd)
			}
			o.GradCov = w.undoCov(unit)
		}
		if values && i%10 == 0 {
			o.HasValue, o.Value, o.ValueVar = true, f(x)+sd*r.NormFloat64(), sd*sd
		}
		out = append(out, o)
	}
	return out
}

func cubic(x []float64) float64 {
	return 3 + x[0] - 0.5*x[1]*x[1] + 0.2*x[0]*x[1]*x[2] - 0.1*x[2]*x[2]*x[2]
}

// wavy is no polynomial.
func wavy(x []float64) float64 { return 4*math.Sin(0.5*x[0]+0.3*x[1]) + 2*math.Log1p(math.Exp(x[2])) }

func polynomial(degree int) fitter {
	return func(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, error) {
		return FitPolynomial(ctx, w, obs, degree, b)
	}
}

func process(s Shape) fitter {
	return func(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, error) {
		return FitProcess(ctx, w, obs, s, 2, b)
	}
}

// A cubic is found from exact gradients, and its constant from values.
func TestPolynomialIsExact(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(1, 1))
	for _, values := range []bool{false, true} {
		m, err := FitPolynomial(ctx, w, observations(w, cubic, 60, 0, values, r), 3, parallel.NewBudget(2))
		if err != nil {
			t.Fatal(err)
		}
		base := cubic(w.Centre)
		if values {
			base = 0
		}
		for range 20 {
			x := point(w, r, 2)
			if got, want := m.Value(x), cubic(x)-base; math.Abs(got-want) > 1e-3 {
				t.Errorf("values %v: %v at %v, want %v", values, got, x, want)
			}
		}
	}
}

// The gradient of every model is that of its value.
func TestGradients(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(2, 2))
	for _, values := range []bool{false, true} {
		obs := observations(w, wavy, 60, 0.1, values, r)
		for _, fit := range []fitter{polynomial(1), polynomial(2), polynomial(4), process(Gaussian), process(Matern52)} {
			m, err := fit(ctx, w, obs, parallel.NewBudget(1))
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float64, 3)
			for range 5 {
				x := point(w, r, 1.5)
				m.Gradient(got, x)
				want := fd.Gradient(nil, m.Value, x, &fd.Settings{Formula: fd.Central, Step: 1e-4})
				if floats.Distance(got, want, math.Inf(1)) > 1e-4 {
					t.Errorf("%s: gradient %v, want %v", m.Name(), got, want)
				}
			}
		}
	}
}

// Processes come near a function that is no polynomial, and say how near: their errors over
// their standard deviations are of size one.
func TestProcess(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(3, 3))
	obs := observations(w, wavy, 150, 0.02, false, r)
	for _, shape := range []Shape{Gaussian, Matern52} {
		m, err := FitProcess(ctx, w, obs, shape, 2, parallel.NewBudget(2))
		if err != nil {
			t.Fatal(err)
		}
		base := wavy(w.Centre)
		var points [][]float64
		var each [][]float64
		for i := range 200 {
			points = append(points, point(w, r, 1))
			e := make([]float64, 200)
			e[i] = 1
			each = append(each, e)
		}
		variances := m.Variances(points, each)
		var square, z float64
		for i, x := range points {
			e := m.Value(x) - (wavy(x) - base)
			square += e * e / 200
			z += e * e / variances[i] / 200
		}
		if rms := math.Sqrt(square); rms > 0.03 {
			t.Errorf("%v: the root mean square error is %v", shape, rms)
		}
		if z := math.Sqrt(z); z < 0.3 || z > 2 {
			t.Errorf("%v: errors are %v times what they are said to be", shape, z)
		}
	}
}

// GradientCov is what Variances are for the difference of two near points.
func TestGradientCovAgainstVariances(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(4, 4))
	obs := observations(w, wavy, 40, 0.1, true, r)
	for _, fit := range []fitter{polynomial(3), process(Gaussian), process(Matern52)} {
		m, err := fit(ctx, w, obs, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		x := point(w, r, 1)
		cov := m.GradientCov(x)
		const h = 1e-3
		for k := range x {
			up, down := append([]float64(nil), x...), append([]float64(nil), x...)
			up[k] += h
			down[k] -= h
			got := m.Variances([][]float64{up, down}, [][]float64{{0.5 / h, -0.5 / h}})[0]
			if want := cov.At(k, k); math.Abs(got-want) > 1e-3*want {
				t.Errorf("%s: the variance of derivative %d is %v, want %v", m.Name(), k, got, want)
			}
		}
	}
}

// Of 200 noisy sets of gradients, the errors of a functional over its standard error have
// mean square 1 ± 0.1; beyond 1 ± 0.4 with probability 1e-4.
func TestVariancesOfPolynomials(t *testing.T) {
	const sets = 200
	w, r := skewed(t, 3), rand.New(rand.NewPCG(5, 5))
	b := parallel.NewBudget(1)
	points := [][]float64{point(w, r, 1), point(w, r, 1), point(w, r, 1)}
	weights := [][]float64{{1, -0.5, -0.5}, {0.3, 0.3, 0.3}}
	square := make([]float64, 2)
	for range sets {
		obs := observations(w, cubic, 40, 0.5, false, r)
		m, err := FitPolynomial(ctx, w, obs, 3, b)
		if err != nil {
			t.Fatal(err)
		}
		for q, v := range m.Variances(points, weights) {
			var e float64
			for i, x := range points {
				e += weights[q][i] * (m.Value(x) - cubic(x) + cubic(w.Centre))
			}
			square[q] += e * e / v / sets
		}
	}
	for q, s := range square {
		if math.Abs(s-1) > 0.4 {
			t.Errorf("functional %d: the mean square of error over standard error is %v", q, s)
		}
	}
}

// Choose takes a polynomial for one and a process for what is none, and holds the others
// against fresh observations.
func TestChoose(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(6, 6))
	for _, c := range []struct {
		f    function
		want string
	}{{cubic, "polynomial of degree 3"}, {wavy, "Gaussian process"}} {
		m, tried, err := Choose(ctx, w, observations(w, c.f, 150, 0.03, false, r), parallel.NewBudget(2))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.Name(), c.want) {
			t.Errorf("chosen: %s, want a %s; %+v", m.Name(), c.want, tried)
		}
		check, err := Verify(m, observations(w, c.f, 50, 0.03, false, r))
		if err != nil {
			t.Fatal(err)
		}
		// 150 scalars: 1 ± 0.12.
		if check.Scalars != 150 || math.Abs(check.ChiSquare-1) > 0.5 || check.Inflate > 5 {
			t.Errorf("%s: %+v", m.Name(), check)
		}
		wrong, err := FitPolynomial(ctx, w, observations(w, c.f, 150, 0.03, false, r), 2, parallel.NewBudget(2))
		if err != nil {
			t.Fatal(err)
		}
		if check, err := Verify(wrong, observations(w, c.f, 50, 0.03, false, r)); err != nil || check.ChiSquare < 5 || check.Inflate < 100 {
			t.Errorf("%s is believed: %+v, %v", wrong.Name(), check, err)
		}
	}
}

// The pooled noise of a point is that of the others: right on average, and free of the
// point's own.
func TestPoolNoise(t *testing.T) {
	w, r := skewed(t, 2), rand.New(rand.NewPCG(7, 7))
	var spreads []Spread
	for range 400 {
		x := point(w, r, 1)
		sd := math.Exp(0.3 * x[0]) // varies over the points
		s := Spread{X: x, Probes: 4, Cov: mat.NewSymDense(2, nil)}
		var e [4][2]float64
		for p := range e {
			e[p] = [2]float64{sd * r.NormFloat64(), 2 * sd * r.NormFloat64()}
		}
		for i := range 2 {
			for j := range i + 1 {
				var mi, mj, c float64
				for p := range e {
					mi, mj = mi+e[p][i]/4, mj+e[p][j]/4
				}
				for p := range e {
					c += (e[p][i] - mi) * (e[p][j] - mj) / 3
				}
				s.Cov.SetSym(i, j, c)
			}
		}
		spreads = append(spreads, s)
	}
	noise, err := PoolNoise(w, spreads)
	if err != nil {
		t.Fatal(err)
	}
	var ratio float64
	for i, s := range spreads {
		sd := math.Exp(0.3 * s.X[0])
		ratio += noise[i].At(1, 1) / (4 * sd * sd / 4) / float64(len(spreads))
	}
	if math.Abs(ratio-1) > 0.2 { // the noise varies within the neighbourhood
		t.Errorf("the noise is %v of what it is", ratio)
	}
	before := noise[5].At(0, 0)
	spreads[5].Cov.SetSym(0, 0, 1e6)
	noise, err = PoolNoise(w, spreads)
	if err != nil || noise[5].At(0, 0) != before {
		t.Errorf("a point's noise depends on its own spread: %v", err)
	}
}

// log|K| of a matrix K = σ·G(τ) + λ·1 has the gradient and the values that a lifted
// model of the reduced function says.
func TestReduction(t *testing.T) {
	const n = 50
	reduced := func(x []float64) float64 { return x[0]*x[0] + math.Sin(x[1]) }
	full := func(psi []float64) float64 {
		return reduced([]float64{psi[0] - psi[2], psi[1]}) + n*psi[2]
	}
	red := ScaleFree(3, []int{0}, 2, n)
	psi := []float64{0.3, -1, -2}
	g := fd.Gradient(nil, full, psi, nil)
	want := fd.Gradient(nil, reduced, red.Point(psi), nil)
	if got := red.Gradient(g); floats.Distance(got, want, math.Inf(1)) > 1e-5 {
		t.Errorf("reduced gradient %v, want %v", got, want)
	}
	if got, want := red.Value(psi, full(psi)), reduced(red.Point(psi)); math.Abs(got-want) > 1e-12 {
		t.Errorf("reduced value %v, want %v", got, want)
	}
	w, r := skewed(t, 2), rand.New(rand.NewPCG(8, 8))
	m, err := FitProcess(ctx, w, observations(w, reduced, 80, 0, true, r), Gaussian, 2, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	lifted := red.Lift(m)
	if got, want := lifted.Value(psi), full(psi); math.Abs(got-want) > 0.02 {
		t.Errorf("lifted value %v, want %v", got, want)
	}
	got := make([]float64, 3)
	lifted.Gradient(got, psi)
	if floats.Distance(got, g, math.Inf(1)) > 0.05 {
		t.Errorf("lifted gradient %v, want %v", got, g)
	}
	cov := lifted.GradientCov(psi)
	if s := cov.At(0, 0) + 2*cov.At(0, 2) + cov.At(2, 2); math.Abs(s) > 1e-12 {
		t.Errorf("the error of ∂_σ+∂_λ, which is known, has variance %v", s)
	}
	one := [][]float64{psi, {0, 0, 0}}
	if a, b := lifted.Variances(one, [][]float64{{1, -1}}), m.Variances([][]float64{red.Point(psi), {0, 0}}, [][]float64{{1, -1}}); a[0] != b[0] {
		t.Errorf("variance %v, want %v", a, b)
	}
	if _, err := NewReduction(mat.NewDense(2, 2, []float64{1, 1, 2, 2}), []float64{0, 0}); err == nil {
		t.Error("dependent rows are taken")
	}
}

func TestGuard(t *testing.T) {
	w, r := skewed(t, 3), rand.New(rand.NewPCG(9, 9))
	var points [][]float64
	for range 300 {
		points = append(points, point(w, r, 1))
	}
	g := NewGuard(w, points)
	if d := g.Distance(points[7]); d != 0 {
		t.Errorf("an observed point is %v away", d)
	}
	if p := g.Penalty(w.Centre); p > 0.01 {
		t.Errorf("the centre is penalised by %v", p)
	}
	if p := g.Penalty(point(w, r, 20)); p < 10 {
		t.Errorf("a far point is penalised by %v only", p)
	}
	if g.Reach() < 0.3 || g.Reach() > 2 {
		t.Errorf("the reach is %v", g.Reach())
	}
	// Beyond the reach, the farthest first, of two that are near each other one.
	far, farther := point(w, r, 20), point(w, r, 60)
	if got := g.Farthest([][]float64{w.Centre, far, far, farther, points[3]}, 5); !slices.Equal(got, []int{3, 1}) {
		t.Errorf("the farthest are %v", got)
	}
	if got := g.Farthest([][]float64{far, farther}, 1); !slices.Equal(got, []int{1}) {
		t.Errorf("the farthest one is %v", got)
	}
}

// Points on a line, of which both ends are known: the farthest first, then that farthest from all. Distances are in
// the points' own standard deviations.
func TestScattered(t *testing.T) {
	known := [][]float64{{0, 0}, {2, 1}, {4, 0}, {6, 1}}
	w, err := Scatter(known)
	if err != nil {
		t.Fatal(err)
	}
	g := NewGuard(w, known)
	// x has the variance 20/3, y 1/3, both the covariance 2/3: the distance of (0,0) and (6,1) is that of their difference.
	a, b, c := 20.0/3, 1.0/3, 2.0/3
	d := math.Sqrt((b*36 - 2*c*6*1 + a*1) / (a*b - c*c))
	if got := NewGuard(w, known[3:]).Distance(known[0]); math.Abs(got-d) > 1e-12 {
		t.Errorf("the distance is %v, want %v", got, d)
	}
	points := [][]float64{{0, 0.1}, {20, 0}, {21, 0}, {12, 0}, {4, 0}}
	if got := g.Scattered(points, 3); !slices.Equal(got, []int{2, 3, 1}) && !slices.Equal(got, []int{2, 3, 0}) {
		t.Errorf("%v", got)
	}
	if got := g.Scattered(points, 9); len(got) != 5 || got[4] != 4 {
		t.Errorf("of all: %v", got)
	}
}

// The same bits at any number of threads.
func TestBits(t *testing.T) {
	w := skewed(t, 3)
	var want string
	for _, cores := range []int{1, 3} {
		r := rand.New(rand.NewPCG(10, 10))
		obs := observations(w, wavy, 60, 0.1, true, r)
		var got string
		for _, fit := range []fitter{polynomial(4), process(Gaussian)} {
			m, err := fit(ctx, w, obs, parallel.NewBudget(cores))
			if err != nil {
				t.Fatal(err)
			}
			x := point(w, r, 1)
			got += fmt.Sprintf("%x %x\n", m.Value(x), m.Variances([][]float64{x}, [][]float64{{1}}))
		}
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%d cores: %s, want %s", cores, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	w, b := skewed(t, 2), parallel.NewBudget(1)
	good := Observation{X: []float64{0, 0}, Grad: []float64{1, 1}}
	for name, obs := range map[string][]Observation{
		"none":             nil,
		"a NaN point":      {good, {X: []float64{0, math.NaN()}, Grad: []float64{1, 1}}},
		"a NaN gradient":   {good, {X: []float64{0, 0}, Grad: []float64{1, math.NaN()}}},
		"an infinite one":  {good, {X: []float64{0, 0}, Grad: []float64{1, math.Inf(1)}}},
		"a NaN value":      {good, {X: []float64{0, 0}, HasValue: true, Value: math.NaN()}},
		"negative noise":   {good, {X: []float64{0, 0}, HasValue: true, ValueVar: -1}},
		"indefinite noise": {good, {X: []float64{0, 0}, Grad: []float64{1, 1}, GradCov: mat.NewSymDense(2, []float64{1, 2, 2, 1})}},
	} {
		if _, err := FitPolynomial(ctx, w, obs, 2, b); err == nil {
			t.Errorf("%s: fitted", name)
		}
	}
	if _, err := FitProcess(ctx, w, []Observation{good}, Gaussian, 2, b); err == nil {
		t.Error("a process was fitted to one gradient")
	}
	if _, _, err := Choose(ctx, w, []Observation{good}, b); err == nil {
		t.Error("a model was chosen by one gradient")
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	obs := observations(w, func(x []float64) float64 { return x[0] * x[1] }, 30, 0.1, false, rand.New(rand.NewPCG(1, 2)))
	for _, fit := range []fitter{polynomial(3), process(Gaussian)} {
		if _, err := fit(done, w, obs, b); err != context.Canceled {
			t.Errorf("a context that is done: %v", err)
		}
	}
}
