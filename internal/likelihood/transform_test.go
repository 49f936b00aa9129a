package likelihood

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

func transforms() []Transform {
	out := []Transform{{Kind: Log}, {Kind: Logit}}
	for _, lambda := range []float64{0, 0.001, 0.3, 1, 1.7, 2} {
		out = append(out, Transform{YeoJohnson, lambda})
	}
	return out
}

// The inverse undoes the transform, the slopes are those of differences, and Yeo and Johnson's formula is as
// printed.
func TestTransforms(t *testing.T) {
	for _, tr := range transforms() {
		for _, z := range []float64{-6, -1.3, -1e-3, 0, 0.02, 0.4, 2, 5} {
			y := tr.Inverse(z)
			if got := tr.Forward(y); math.Abs(got-z) > 1e-12*(1+math.Abs(z)) {
				t.Errorf("%v: T(T⁻¹(%g)) = %g", tr, z, got)
			}
			if z == 0 {
				continue // where Yeo and Johnson's has a kink in its third derivative
			}
			step := 1e-4 * math.Abs(z)
			slope := fd.Derivative(tr.Inverse, z, &fd.Settings{Formula: fd.Central, Step: step})
			if got := tr.inverseSlope(z); math.Abs(got/slope-1) > 1e-5 {
				t.Errorf("%v: the inverse's slope at %g is %g, differences %g", tr, z, got, slope)
			}
			if got := tr.LogSlope(y); math.Abs(got+math.Log(slope)) > 1e-5 {
				t.Errorf("%v: log slope at %g is %g, want %g", tr, y, got, -math.Log(slope))
			}
			want := math.Log(y / (1 - y))
			switch l := tr.Lambda; {
			case tr.Kind == Log:
				want = math.Log(y)
			case tr.Kind == YeoJohnson && y >= 0 && l > 0.01:
				want = (math.Pow(1+y, l) - 1) / l
			case tr.Kind == YeoJohnson && y < 0 && l < 1.99:
				want = -(math.Pow(1-y, 2-l) - 1) / (2 - l)
			case tr.Kind == YeoJohnson:
				continue
			}
			if math.Abs(tr.Forward(y)-want) > 1e-9*(1+math.Abs(want)) {
				t.Errorf("%v: T(%g) = %g, want %g", tr, y, tr.Forward(y), want)
			}
		}
	}
	for _, bad := range []struct {
		kind string
		y    float64
	}{{Log, 0}, {Log, -1}, {Logit, 0}, {Logit, 1}, {Log, math.NaN()}} {
		if (Transform{Kind: bad.kind}).Check(bad.y) == nil {
			t.Errorf("%s of %g", bad.kind, bad.y)
		}
	}
}

// Yeo and Johnson's λ is that of which targets were made, within four standard errors, which the spread over
// 40 samples has as 0.075 at most: by chance once in 16,000 seeds.
func TestYeoJohnsonIsFitted(t *testing.T) {
	for _, lambda := range []float64{0, 0.4, 1, 1.5} {
		r, y := rand.New(rand.NewPCG(7, 1)), make([]float64, 500)
		for i := range y {
			y[i] = (Transform{YeoJohnson, lambda}).Inverse(0.3 + 0.8*r.NormFloat64())
		}
		if got := Fit(YeoJohnson, y).Lambda; math.Abs(got-lambda) > 0.3 {
			t.Errorf("λ = %g is found to be %g", lambda, got)
		}
	}
}

// The log-normal is known in closed form: its moments, and the CRPS of Baran and Lerch (2015).
func TestLogNormal(t *testing.T) {
	for _, c := range []struct{ mu, sigma float64 }{{0, 0.1}, {1, 0.7}, {-2, 1.5}} {
		want := distuv.LogNormal{Mu: c.mu, Sigma: c.sigma}
		d := Transformed(Mixture{[]float64{c.mu, c.mu}, []float64{c.sigma, c.sigma}}, Transform{Kind: Log})
		if m, sd := d.Moments(); math.Abs(m/want.Mean()-1) > 1e-12 || math.Abs(sd/want.StdDev()-1) > 1e-12 {
			t.Errorf("%+v: moments %g, %g", c, m, sd)
		}
		for _, p := range []float64{0.01, 0.5, 0.97} {
			y := want.Quantile(p)
			if got := d.Quantile(p); math.Abs(got/y-1) > 1e-10 || math.Abs(d.CDF(y)-p) > 1e-10 || math.Abs(d.LogDensity(y)-want.LogProb(y)) > 1e-10 {
				t.Errorf("%+v: quantile %g is %g, want %g; CDF %g; log density %g", c, p, got, y, d.CDF(y), d.LogDensity(y))
			}
			phi, w := distuv.UnitNormal.CDF, (math.Log(y)-c.mu)/c.sigma
			crps := y*(2*phi(w)-1) - 2*want.Mean()*(phi(w-c.sigma)+phi(c.sigma/math.Sqrt2)-1)
			if got := d.CRPS(y); math.Abs(got/crps-1) > 1e-8 {
				t.Errorf("%+v: CRPS at %g is %g, want %g", c, y, got, crps)
			}
			if got := d.Scaled(3, 2).CRPS(3 + 2*y); math.Abs(got/(2*crps)-1) > 1e-8 {
				t.Errorf("%+v: CRPS in other units %g, want %g", c, got, 2*crps)
			}
		}
		// Of a target that cannot be, and of one far out: at 0, E|X| − ½E|X−X'|.
		if got, zero := d.CRPS(0), want.Mean()*(1-(2*distuv.UnitNormal.CDF(c.sigma/math.Sqrt2)-1)); math.Abs(got/zero-1) > 1e-7 {
			t.Errorf("%+v: CRPS at 0 is %g, want %g", c, got, zero)
		}
		far := want.Quantile(1-1e-12) * 1e9
		if got := d.CRPS(far); math.Abs(got/far-1) > 1e-6 || d.CDF(-1) != 0 || !math.IsInf(d.LogDensity(-1), -1) {
			t.Errorf("%+v: CRPS far out %g", c, got)
		}
	}
}

// Moments and CRPS are those of the values that a simulation makes: within 4.5 of their standard errors, which
// chance exceeds in one of 150,000 comparisons. Densities integrate to probabilities.
func TestTransformedAgainstSimulation(t *testing.T) {
	const n = 20_000
	m := Mixture{[]float64{-0.8, 0.5, 0.9}, []float64{0.7, 0.2, 1.1}}
	for _, tr := range transforms() {
		d := Transformed(m, tr)
		r, y, off, square := rand.New(rand.NewPCG(2, 3)), make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range y {
			k := r.IntN(3)
			y[i] = tr.Inverse(m.Mean[k] + m.SD[k]*r.NormFloat64())
		}
		mean, sd := d.Moments()
		at := d.Quantile(0.3)
		for i, v := range y {
			off[i] = math.Abs(v-at) - 0.5*math.Abs(v-y[(i+7919)%n])
			square[i] = (v - mean) * (v - mean)
		}
		near := func(what string, x []float64, want float64) {
			t.Helper()
			got, spread := stat.MeanStdDev(x, nil)
			if math.Abs(got-want) > 4.5*spread/math.Sqrt(n) {
				t.Errorf("%v: %s is %g, simulated %g ± %g", tr, what, want, got, spread/math.Sqrt(n))
			}
		}
		near("the mean", y, mean)
		near("the variance", square, sd*sd)
		near("the CRPS", off, d.CRPS(at))
		slices.Sort(y)
		for _, p := range []float64{0.05, 0.5, 0.9} {
			if q := stat.Quantile(d.CDF(d.Quantile(p)), stat.Empirical, y, nil); math.Abs(d.CDF(q)-p) > 4.5*math.Sqrt(p*(1-p)/n) {
				t.Errorf("%v: the simulated quantile %g is that of %g", tr, p, d.CDF(q))
			}
		}
		lo, hi := d.Quantile(0.1), d.Quantile(0.8)
		if got := quad.Fixed(func(x float64) float64 { return math.Exp(d.LogDensity(x)) }, lo, hi, 2000, nil, 0); math.Abs(got-0.7) > 1e-4 {
			t.Errorf("%v: the density between two quantiles integrates to %g, not to 0.7", tr, got)
		}
	}
}

// Without a transform a distribution is what it was.
func TestNoTransform(t *testing.T) {
	m := Mixture{[]float64{1}, []float64{2}}
	if got, ok := Transformed(m, Transform{}).(Mixture); !ok || got.SD[0] != 2 {
		t.Errorf("%v", got)
	}
	for _, y := range []float64{-3, 0, 1e9} {
		if tr := (Transform{}); tr.Forward(y) != y || tr.Inverse(y) != y || tr.LogSlope(y) != 0 || tr.Check(y) != nil {
			t.Errorf("%g is changed", y)
		}
	}
}

// The expectation of Φ(z) of a normal z is Φ(μ/√(1+σ²)).
func TestProbitLink(t *testing.T) {
	link := Link(Probit{})
	for _, mu := range []float64{-3, -0.4, 0, 1.2} {
		for _, sd := range []float64{0.1, 1, 3} {
			got, _ := Transformed(Mixture{Mean: []float64{mu}, SD: []float64{sd}}, link).Moments()
			if want := distuv.UnitNormal.CDF(mu / math.Sqrt(1+sd*sd)); math.Abs(got-want) > 1e-7 {
				t.Errorf("E Φ(z) of z ~ N(%g,%g²) is %v, want %v", mu, sd, got, want)
			}
		}
		if got, want := link.Forward(link.Inverse(mu)), mu; math.Abs(got-want) > 1e-12 {
			t.Errorf("Φ⁻¹(Φ(%g)) is %v", mu, got)
		}
		h := 1e-5
		if got, want := link.LogSlope(link.Inverse(mu)), -math.Log((link.Inverse(mu+h)-link.Inverse(mu-h))/(2*h)); math.Abs(got-want) > 1e-6 {
			t.Errorf("the slope of Φ⁻¹ at Φ(%g) is e^%v, want e^%v", mu, got, want)
		}
	}
}
