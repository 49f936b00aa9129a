package mixture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distmv"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, comps ...Component) *Mixture {
	t.Helper()
	m, err := New(comps)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sym(n int, v ...float64) *mat.SymDense { return mat.NewSymDense(n, v) }

func streams(seed uint64) func(int) *rand.Rand {
	return func(i int) *rand.Rand { return random.Key{Seed: seed}.Stream(random.Start, i) }
}

// three is a mixture whose components overlap a little.
func three(t testing.TB) *Mixture {
	return must(t,
		Component{Weight: 3, Mean: []float64{0, 0}, Scale: sym(2, 1, 0.8, 0.8, 1)},
		Component{Weight: 1, Mean: []float64{5, -4}, Scale: sym(2, 0.3, -0.1, -0.1, 0.2)},
		Component{Weight: 1, Mean: []float64{-4, 5}, Scale: sym(2, 2, 0, 0, 0.1)})
}

// One component against gonum's Student t, all of them against its integral.
func TestLogDensity(t *testing.T) {
	m := three(t)
	for k := range m.Len() {
		c := m.Component(k)
		one := must(t, c)
		ref, ok := distmv.NewStudentsT(c.Mean, c.Scale, 7, nil)
		if !ok {
			t.Fatal("no reference")
		}
		for _, x := range [][]float64{{0, 0}, {5, -4}, {1, 2}, {-30, 80}} {
			if got, want := one.LogDensity(x), ref.LogProb(x); !(math.Abs(got-want) < 1e-12*(1+math.Abs(want))) {
				t.Errorf("component %d at %v: %v, want %v", k, x, got, want)
			}
		}
	}
	line := must(t, Component{Weight: 2, Mean: []float64{1}, Scale: sym(1, 0.5)}, Component{Weight: 1, Mean: []float64{-3}, Scale: sym(1, 2)})
	total := quad.Fixed(func(u float64) float64 { // x = u/(1−u²) brings the line into (−1,1)
		d := 1 - u*u
		return math.Exp(line.LogDensity([]float64{u / d})) * (1 + u*u) / (d * d)
	}, -1, 1, 400, nil, 0)
	if math.Abs(total-1) > 1e-9 {
		t.Errorf("the density's integral is %v", total)
	}
}

func TestShares(t *testing.T) {
	m := three(t)
	x, share := []float64{2, 1}, make([]float64, 3)
	total := m.Shares(share, x)
	for k := range share {
		c := m.Component(k)
		want := c.Weight * math.Exp(must(t, c).LogDensity(x)-total)
		if math.Abs(share[k]-want) > 1e-14 {
			t.Errorf("share %d is %v, want %v", k, share[k], want)
		}
	}
}

// Draws have the mixture's moments. The bounds are 5 standard errors, so that one of the
// six numbers is beyond with probability 4e-6.
func TestDraw(t *testing.T) {
	m := three(t)
	mean, cov := m.Moments()
	const n = 100_000
	r := random.Key{Seed: 7}.Stream(random.Start, 0)
	first, second, fourth := make([]float64, 2), mat.NewDense(2, 2, nil), mat.NewDense(2, 2, nil)
	x := make([]float64, 2)
	for range n {
		m.Draw(r, x)
		for i := range x {
			first[i] += x[i] / n
			for j := range x {
				v := (x[i] - mean[i]) * (x[j] - mean[j])
				second.Set(i, j, second.At(i, j)+v/n)
				fourth.Set(i, j, fourth.At(i, j)+v*v/n)
			}
		}
	}
	for i := range x {
		if e := math.Abs(first[i]-mean[i]) / math.Sqrt(cov.At(i, i)/n); e > 5 {
			t.Errorf("mean %d is %v, want %v: %.1f standard errors", i, first[i], mean[i], e)
		}
		for j := range i + 1 {
			se := math.Sqrt((fourth.At(i, j) - second.At(i, j)*second.At(i, j)) / n)
			if e := math.Abs(second.At(i, j)-cov.At(i, j)) / se; e > 5 {
				t.Errorf("covariance (%d,%d) is %v, want %v: %.1f standard errors", i, j, second.At(i, j), cov.At(i, j), e)
			}
		}
	}
}

func TestDefend(t *testing.T) {
	m := three(t)
	d, err := m.Defend(0.2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if d.Len() != 1+2*m.Len() {
		t.Fatalf("%d components of %d", d.Len(), m.Len())
	}
	mean, cov := m.Moments()
	dMean, dCov := d.Moments()
	for i := range mean {
		if math.Abs(dMean[i]-mean[i]) > 1e-12 {
			t.Errorf("mean %d is %v, want %v", i, dMean[i], mean[i])
		}
	}
	// A tenth of the mixture has nine times its covariance, a tenth nine times that within the
	// components, and so 8 times it more than the mixture.
	within := mat.NewSymDense(2, nil)
	for k := range m.Len() {
		c := m.Component(k)
		var part mat.SymDense
		part.ScaleSym(c.Weight*7/5, c.Scale)
		within.AddSym(within, &part)
	}
	for i := range mean {
		for j := range mean {
			if want := 1.8*cov.At(i, j) + 0.8*within.At(i, j); math.Abs(dCov.At(i, j)-want) > 1e-12 {
				t.Errorf("covariance (%d,%d) is %v, want %v", i, j, dCov.At(i, j), want)
			}
		}
	}
	x := []float64{60, 60}
	if d.LogDensity(x) < m.LogDensity(x)+1 {
		t.Error("the tails are not heavier")
	}
}

// A tabulated distribution is normalised and its draws follow it: Kolmogorov's statistic is
// above 1.95 with probability 0.001.
func TestIndependent(t *testing.T) {
	logGamma := func(x float64) float64 { return 3 + x - math.Exp(x) } // log of an exponential
	normal := func(x float64) float64 { return -x * x / 2 }
	d, err := NewIndependent(-30, 30, 6000, []func(float64) float64{logGamma, normal})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][]float64{{-5, 0}, {0.5, -1}, {1, 3}} {
		want := logGamma(x[0]) - 3 + normal(x[1]) - math.Log(2*math.Pi)/2
		if got := d.LogDensity(x); math.Abs(got-want) > 0.05 { // half a cell beside its middle
			t.Errorf("log density at %v is %v, want %v", x, got, want)
		}
	}
	if v := d.LogDensity([]float64{0, 31}); !math.IsInf(v, -1) {
		t.Errorf("log density beyond the grid is %v", v)
	}
	const n = 10_000
	r := random.Key{Seed: 8}.Stream(random.Start, 0)
	u := make([]float64, n)
	x := make([]float64, 2)
	for i := range u {
		d.Draw(r, x)
		u[i] = 1 - math.Exp(-math.Exp(x[0]))
	}
	slices.Sort(u)
	var most float64
	for i, v := range u {
		most = max(most, math.Abs(v-(float64(i)+0.5)/n))
	}
	if k := most * math.Sqrt(n); k > 1.95 {
		t.Errorf("Kolmogorov's statistic is %v", k)
	}
	if _, err := NewIndependent(-1, 1, 10, []func(float64) float64{func(float64) float64 { return math.NaN() }}); err == nil {
		t.Error("a density that is nowhere is taken")
	}
}

// Blend's density is the sum of its parts', and it draws from both.
func TestBlend(t *testing.T) {
	a := must(t, Component{Weight: 1, Mean: []float64{0}, Scale: sym(1, 1)})
	b := must(t, Component{Weight: 1, Mean: []float64{100}, Scale: sym(1, 1)})
	m := Blend(a, b, 0.2)
	if got, want := m.LogDensity([]float64{100}), math.Log(0.2)+b.LogDensity([]float64{100}); math.Abs(got-want) > 1e-6 {
		t.Errorf("log density %v, want %v", got, want)
	}
	r := random.Key{Seed: 8}.Stream(random.Start, 1)
	far, x := 0, make([]float64, 1)
	for range 10_000 {
		if m.Draw(r, x); x[0] > 50 {
			far++
		}
	}
	if math.Abs(float64(far)-2000) > 5*40 { // five standard errors
		t.Errorf("%d of 10,000 draws are of the second part, want 2,000", far)
	}
}

// The fit's expected log density is as high as the truth's, to the number of parameters
// over twice that of draws, with the right number of components.
func TestFit(t *testing.T) {
	b := parallel.NewBudget(2)
	truth := three(t)
	for _, n := range []int{500, 4000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := random.Key{Seed: 3}.Stream(random.Start, 0)
			draws, fresh := make([][]float64, n), make([][]float64, 20_000)
			for _, set := range [][][]float64{draws, fresh} {
				for i := range set {
					set[i] = make([]float64, 2)
					truth.Draw(r, set[i])
				}
			}
			fit, err := Fit(draws, nil, Options{Stream: streams(1)}, b)
			if err != nil {
				t.Fatal(err)
			}
			if fit.Len() != 3 {
				t.Errorf("%d components, want 3", fit.Len())
			}
			var loss float64
			for _, x := range fresh {
				loss += (truth.LogDensity(x) - fit.LogDensity(x)) / float64(len(fresh))
			}
			// Half a number of parameters, 17, over n is expected; twice that is allowed.
			if loss > 17/float64(n) {
				t.Errorf("the fit's expected log density is %v below the truth's", loss)
			}
		})
	}
}

// Weights stand for numbers of draws.
func TestFitWeighted(t *testing.T) {
	b := parallel.NewBudget(2)
	truth := three(t)
	wide, err := truth.Defend(0.5, 2)
	if err != nil {
		t.Fatal(err)
	}
	const n = 8000
	r := random.Key{Seed: 5}.Stream(random.Start, 0)
	draws, weights := make([][]float64, n), make([]float64, n)
	for i := range draws {
		draws[i] = make([]float64, 2)
		wide.Draw(r, draws[i])
		weights[i] = math.Exp(truth.LogDensity(draws[i]) - wide.LogDensity(draws[i]))
	}
	fit, err := Fit(draws, weights, Options{Stream: streams(1)}, b)
	if err != nil {
		t.Fatal(err)
	}
	var loss float64
	x := make([]float64, 2)
	for range 20_000 {
		truth.Draw(r, x)
		loss += (truth.LogDensity(x) - fit.LogDensity(x)) / 20_000
	}
	if loss > 0.01 || fit.Len() != 3 {
		t.Errorf("%d components, %v below the truth", fit.Len(), loss)
	}
}

func TestFitDoesNotDependOnTheBudget(t *testing.T) {
	truth := three(t)
	r := random.Key{Seed: 5}.Stream(random.Start, 0)
	draws := make([][]float64, 300)
	for i := range draws {
		draws[i] = make([]float64, 2)
		truth.Draw(r, draws[i])
	}
	var want string
	for _, cores := range []int{1, 4} {
		fit, err := Fit(draws, nil, Options{Stream: streams(1)}, parallel.NewBudget(cores))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for k := range fit.Len() {
			c := fit.Component(k)
			got += fmt.Sprintf("%x %x %x\n", c.Weight, c.Mean, c.Scale.RawSymmetric().Data)
		}
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%d cores: another fit", cores)
		}
	}
}

// Few draws, equal draws and nonsense give an error or a density, no panic.
func TestFitOfLittle(t *testing.T) {
	b := parallel.NewBudget(1)
	o := Options{Stream: streams(1)}
	for _, draws := range [][][]float64{nil, {{1, 2}}, {{math.NaN(), 0}, {0, 0}, {1, 1}}} {
		if _, err := Fit(draws, nil, o, b); err == nil {
			t.Errorf("%v has a fit", draws)
		}
	}
	if _, err := Fit([][]float64{{1}, {2}, {3}}, []float64{0, 0, 0}, o, b); err == nil {
		t.Error("draws of weight zero have a fit")
	}
	same := [][]float64{{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}}
	for _, draws := range [][][]float64{same, {{1, 2, 3}, {2, 1, 0}, {0, 0, 1}}} {
		fit, err := Fit(draws, nil, o, b)
		if err != nil {
			t.Fatal(err)
		}
		if v := fit.LogDensity(draws[0]); math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("log density %v at a draw", v)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Component{{Mean: []float64{0}, Scale: sym(1, 1)}, {Weight: 1, Mean: []float64{0}, Scale: sym(1, -1)}, {Weight: math.NaN(), Mean: []float64{0}, Scale: sym(1, 1)}, {Weight: 1, Degrees: -1, Mean: []float64{0}, Scale: sym(1, 1)}} {
		if _, err := New([]Component{c}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("a mixture of nothing")
	}
}

// BenchmarkFit fits to 4,000 draws of ten parameters with three modes.
func BenchmarkFit(b *testing.B) {
	const p = 10
	var comps []Component
	for k := range 3 {
		mean, scale := make([]float64, p), mat.NewSymDense(p, nil)
		for i := range mean {
			mean[i] = 5 * float64(k) * float64(i%3-1)
			scale.SetSym(i, i, 1+float64(i)/10)
		}
		comps = append(comps, Component{Weight: float64(k + 1), Mean: mean, Scale: scale})
	}
	truth := must(b, comps...)
	r := random.Key{Seed: 5}.Stream(random.Start, 0)
	draws := make([][]float64, 4000)
	for i := range draws {
		draws[i] = make([]float64, p)
		truth.Draw(r, draws[i])
	}
	b.ResetTimer()
	for range b.N {
		if _, err := Fit(draws, nil, Options{Stream: streams(1)}, parallel.NewBudget(0)); err != nil {
			b.Fatal(err)
		}
	}
}
