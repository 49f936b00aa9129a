package sparse

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// normal is the row of normal noise.
func normal(e example) Row {
	return func(i int, mean, variance float64) (float64, float64, float64) {
		d, r := element(e.noise, i), e.y[i]-mean
		return -0.5 * (math.Log(2*math.Pi*d) + (r*r+variance)/d), r / d, 1 / d
	}
}

// classes is the row of two classes, of the sign of y, by a fine grid: logistic.
func classes(e example) Row {
	const nodes = 60
	x, w := make([]float64, nodes), make([]float64, nodes)
	quad.Hermite{}.FixedLocations(x, w, math.Inf(-1), math.Inf(1))
	return func(i int, mean, variance float64) (value, score, weight float64) {
		sign := math.Copysign(1, e.y[i])
		for k := range x {
			at := math.Sqrt(2*variance) * x[k]
			p := w[k] / math.Sqrt(math.Pi)
			s := sign / (1 + math.Exp(sign*(mean+at)))
			value -= p * math.Log1p(math.Exp(-sign*(mean+at)))
			score += p * s
			weight -= p * s * at / variance
		}
		return value, score, weight
	}
}

func variational(e example, z *kernel.Inputs) *Variational {
	return NewVariational(New(SGPR, e.cov, e.x, z, parallel.NewBudget(1)))
}

// Under normal noise one step comes to SGPR: bound, gradient and predictions.
func TestVariationalBoundOfNormalNoiseIsSGPR(t *testing.T) {
	for _, e := range examples(t, 40) {
		z, f := moved(e.x, 8), e.cov.At(e.theta)
		want, err := New(SGPR, e.cov, e.x, z, parallel.NewBudget(1)).Gradient(ctx, f, e.noise, e.y, true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := variational(e, z).Gradient(ctx, f, normal(e), true)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.LogDensity-want.LogDensity) > 1e-6 || floats.Distance(got.Theta, want.Theta, 2) > 1e-4 || floats.Distance(got.Inducing, want.Inducing, 2) > 1e-4 {
			t.Errorf("%s: bound %.9g and gradient %.6g, SGPR's %.9g and %.6g", e.name, got.LogDensity, got.Theta, want.LogDensity, want.Theta)
		}
	}
}

// The bound of classes is the highest of all normal q, by a search with dense algebra, and its derivatives are those of differences.
func TestVariationalBoundOfClasses(t *testing.T) {
	e := examples(t, 12)[1]
	z, f, row := moved(e.x, 2), e.cov.At(e.theta), classes(e)
	got, err := variational(e, z).Gradient(ctx, f, row, true)
	if err != nil {
		t.Fatal(err)
	}
	kuu, kuf := matrix(f, z, z), matrix(f, z, e.x)
	jitter := Jitter * mat.Trace(kuu) / 2
	l11 := math.Sqrt(kuu.At(0, 0) + jitter)
	l21 := kuu.At(1, 0) / l11
	l22 := math.Sqrt(kuu.At(1, 1) + jitter - l21*l21)
	minus := func(q []float64) float64 { // mean, then the root of the covariance
		s11, s21, s22 := q[2], q[3], q[4]
		sum := -0.5 * (s11*s11 + s21*s21 + s22*s22 + q[0]*q[0] + q[1]*q[1] - 2 - 2*math.Log(math.Abs(s11*s22)))
		for i := range e.y {
			v1 := kuf.At(0, i) / l11
			v2 := (kuf.At(1, i) - l21*v1) / l22
			a, b := s11*v1+s21*v2, s22*v2
			value, _, _ := row(i, v1*q[0]+v2*q[1], f.Variance(e.x.Row(i))-v1*v1-v2*v2+a*a+b*b)
			sum += value
		}
		return -sum
	}
	r, err := optimize.Minimize(optimize.Problem{Func: minus}, []float64{0, 0, 1, 0, 1}, &optimize.Settings{FuncEvaluations: 4000}, &optimize.NelderMead{})
	if err != nil && r == nil {
		t.Fatal(err)
	}
	if math.Abs(got.LogDensity+r.F) > 1e-5 {
		t.Errorf("a bound of %.9g, the highest is %.9g", got.LogDensity, -r.F)
	}
	check := func(what string, got float64, at func(h float64) float64) {
		t.Helper()
		const h = 1e-3
		if want := (at(h) - at(-h)) / (2 * h); math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("the derivative by %s is %.8g, differences %.8g", what, got, want)
		}
	}
	bound := func(theta []float64, z *kernel.Inputs) float64 {
		v, err := variational(e, z).Bound(ctx, e.cov.At(theta), row)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, g := range got.Theta {
		check(e.cov.Params()[i].Name(), g, func(h float64) float64 {
			theta := append([]float64(nil), e.theta...)
			theta[i] *= math.Exp(h)
			return bound(theta, z)
		})
	}
	for i, g := range got.Inducing {
		check("an inducing input", g, func(h float64) float64 {
			x := append(append([]float64(nil), z.Row(0)...), z.Row(1)...)
			x[i] += h
			return bound(e.theta, kernel.NewInputs(2, 2, x))
		})
	}
}

// With all rows as inducing inputs the bound is below the log evidence, which a Monte Carlo mean of 200,000 draws knows to 0.002, by
// little.
func TestVariationalBoundIsBelowTheEvidence(t *testing.T) {
	e := examples(t, 5)[0]
	f := e.cov.At(e.theta)
	v, err := variational(e, e.x).Bound(ctx, f, classes(e))
	if err != nil {
		t.Fatal(err)
	}
	var chol mat.Cholesky
	k := mat.NewSymDense(5, nil)
	for i := range 5 {
		for j := i; j < 5; j++ {
			k.SetSym(i, j, f.Value(e.x.Row(i), e.x.Row(j)))
		}
	}
	chol.Factorize(k)
	r := rand.New(rand.NewPCG(9, 10))
	const draws = 200_000
	var mean float64
	z, g := make([]float64, 5), mat.NewVecDense(5, nil)
	for range draws {
		for i := range z {
			z[i] = r.NormFloat64()
		}
		g.MulVec(chol.RawU().T(), mat.NewVecDense(5, z))
		p := 1.0
		for i, y := range e.y {
			p /= 1 + math.Exp(-math.Copysign(1, y)*g.AtVec(i))
		}
		mean += p / draws
	}
	if gap := math.Log(mean) - v; gap < -0.01 || gap > 0.1 {
		t.Errorf("a bound of %.6g, the log evidence is %.6g", v, math.Log(mean))
	}
}

// At a q that is not the best the derivatives of the bound are those of differences, and estimates from batches that make up all rows have
// the mean of that of all; under normal noise steps of all rows come to SGPR's bound.
func TestStep(t *testing.T) {
	for _, e := range examples(t, 24)[:3] {
		z, f, b := moved(e.x, 5), e.cov.At(e.theta), parallel.NewBudget(1)
		v := variational(e, z)
		step := func(theta []float64, z *kernel.Inputs, share float64) *Value {
			t.Helper()
			out, err := v.Step(ctx, New(SGPR, e.cov, e.x, z, b), e.cov.At(theta), classes(e), share, true)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		step(e.theta, z, 0.4)
		got := step(e.theta, z, 0)
		const h = 1e-5
		for i := range e.theta {
			up, down := slices.Clone(e.theta), slices.Clone(e.theta)
			up[i], down[i] = up[i]+h, down[i]-h
			if want := e.theta[i] * (step(up, z, 0).LogDensity - step(down, z, 0).LogDensity) / (2 * h); math.Abs(got.Theta[i]-want) > 1e-5*(1+math.Abs(want)) {
				t.Errorf("%s: by parameter %d %.8g, by differences %.8g", e.name, i, got.Theta[i], want)
			}
		}
		for k := range got.Inducing {
			at := func(h float64) float64 {
				x := make([]float64, 0, len(got.Inducing))
				for j := range z.Len() {
					x = append(x, z.Row(j)...)
				}
				x[k] += h
				return step(e.theta, kernel.NewInputs(z.Len(), z.Dim(), x), 0).LogDensity
			}
			if want := (at(h) - at(-h)) / (2 * h); math.Abs(got.Inducing[k]-want) > 1e-5*(1+math.Abs(want)) {
				t.Errorf("%s: by coordinate %d of the inducing inputs %.8g, by differences %.8g", e.name, k, got.Inducing[k], want)
			}
		}
		testBatches(t, v, e, z, got)
		v.Reset()
		for range 40 {
			if _, err := v.Step(ctx, v.Approximation, f, normal(e), 0.5, false); err != nil {
				t.Fatal(err)
			}
		}
		last, err := v.Step(ctx, v.Approximation, f, normal(e), 0.5, true)
		if err != nil {
			t.Fatal(err)
		}
		want, err := New(SGPR, e.cov, e.x, z, b).Gradient(ctx, f, e.noise, e.y, true)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(last.LogDensity-want.LogDensity) > 1e-6 || floats.Distance(last.Theta, want.Theta, 2) > 1e-4 || floats.Distance(last.Inducing, want.Inducing, 2) > 1e-4 {
			t.Errorf("%s: bound %.9g and gradient %.6g, SGPR's %.9g and %.6g", e.name, last.LogDensity, last.Theta, want.LogDensity, want.Theta)
		}
	}
}

// testBatches holds the mean of estimates from batches at the present q against that of all rows.
func testBatches(t *testing.T, v *Variational, e example, z *kernel.Inputs, want *Value) {
	const size = 6
	var bound float64
	theta, n := make([]float64, len(want.Theta)), e.x.Len()
	for lo := 0; lo < n; lo += size {
		batch := []int{}
		for i := range size {
			batch = append(batch, lo+i)
		}
		scale := float64(n) / size
		row := func(i int, mean, variance float64) (value, score, weight float64) {
			value, score, weight = classes(e)(batch[i], mean, variance)
			return scale * value, scale * score, scale * weight
		}
		got, err := v.Step(ctx, New(SGPR, e.cov, e.x.Select(batch), z, parallel.NewBudget(1)), e.cov.At(e.theta), row, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		bound += got.LogDensity / scale
		floats.AddScaled(theta, 1/scale, got.Theta)
	}
	if math.Abs(bound-want.LogDensity) > 1e-8 || floats.Distance(theta, want.Theta, 2) > 1e-7 {
		t.Errorf("%s: batches have the bound %.10g and gradient %.8g, all rows %.10g and %.8g", e.name, bound, theta, want.LogDensity, want.Theta)
	}
}
