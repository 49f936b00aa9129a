package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat"
)

// augmented are the likelihoods with auxiliary variables, each with parameters and targets.
var augmented = []struct {
	l       Likelihood
	theta   []float64
	targets []float64
	// classes are all targets there are, nil if there is a continuum
	classes []float64
}{
	{StudentT{4}, []float64{0.3}, []float64{-2, 0.1, 5}, nil},
	{StudentT{2.5}, []float64{1.5}, []float64{-2, 0.1}, nil},
	{StudentT{30}, []float64{0.5}, []float64{0.4, -1}, nil},
	{StudentT{}, []float64{0.3, 5}, []float64{-2, 0.1, 5}, nil},
	{Laplace{}, []float64{0.3}, []float64{-2, 0.1, 5}, nil},
	{Quantile{0.9}, []float64{0.2}, []float64{-3, 0.1, 2}, nil},
	{Quantile{0.15}, []float64{0.05}, []float64{-0.3, 1.1}, nil},
	{Bernoulli{}, nil, []float64{0, 1}, []float64{0, 1}},
	{Probit{}, nil, []float64{0, 1}, []float64{0, 1}},
	{Ordinal{[]string{"a", "b", "c"}}, []float64{0.8}, []float64{0, 1, 2}, upTo(2)},
	{Ordinal{[]string{"a", "b", "c", "d", "e"}}, []float64{0.3, 1.5, 0.05}, []float64{1, 3, 4}, upTo(4)},
	{Binomial{trials: []float64{12}}, nil, []float64{0, 5, 12}, upTo(12)},
	{NegativeBinomial{}, []float64{2.3}, []float64{0, 3, 12}, upTo(800)},
	{Poisson{}, nil, []float64{0, 1, 12}, upTo(300)},
	{Volatility{}, nil, []float64{-2, 0.3, 5}, nil},
}

// upTo returns 0 to n.
func upTo(n int) []float64 {
	var out []float64
	for k := range n + 1 {
		out = append(out, float64(k))
	}
	return out
}

func name(l Likelihood) string { return fmt.Sprintf("%s %v", l.Name(), l) }

// The derivatives of the log density are those of differences, and the density is one.
func TestAugmentedDensities(t *testing.T) {
	for _, c := range augmented {
		for _, y := range c.targets {
			for _, f := range []float64{-1.3, 0, 0.7, 4} {
				_, score, curvature := c.l.LogDensity(c.theta, y, f)
				of := func(f float64) float64 { v, _, _ := c.l.LogDensity(c.theta, y, f); return v }
				if want := fd.Derivative(of, f, &fd.Settings{Formula: fd.Central}); math.Abs(score-want) > 1e-6 {
					t.Errorf("%s: score %v, differences %v", name(c.l), score, want)
				}
				if want := -fd.Derivative(of, f, &fd.Settings{Formula: fd.Central2nd}); math.Abs(curvature-want) > 1e-4 {
					t.Errorf("%s: curvature %v, differences %v", name(c.l), curvature, want)
				}
			}
		}
		density := func(y float64) float64 { v, _, _ := c.l.LogDensity(c.theta, y, 0.4); return math.Exp(v) }
		got := total(c.classes, density)
		if c.classes == nil { // on both sides of f, where there may be a kink
			wide := func(u float64) float64 { return density(0.4+math.Sinh(u)) * math.Cosh(u) }
			got = quad.Fixed(wide, -9, 0, 200, nil, 0) + quad.Fixed(wide, 0, 9, 200, nil, 0)
		}
		if math.Abs(got-1) > 1e-6 {
			t.Errorf("%s: the density sums to %v", name(c.l), got)
		}
	}
}

// total sums over classes, or integrates over the line.
func total(classes []float64, f func(y float64) float64) float64 {
	var sum float64
	if classes != nil {
		for _, y := range classes {
			sum += f(y)
		}
		return sum
	}
	const step = 0.01
	for u := -9.0; u <= 9; u += step {
		sum += f(math.Sinh(u)) * math.Cosh(u) * step
	}
	return sum
}

// The Gibbs steps state|f and f|state, under a prior N(m,v) of f, leave p(f|y) ∝ p(y|f)N(f): their
// moments are those of the quadrature. The chain's errors are batch means'; 40 comparisons at 5 of them.
func TestAugmentationsLeaveThePosteriorInvariant(t *testing.T) {
	const n, batches, prior, spread = 30_000, 60, 0.5, 1.7
	for _, c := range augmented {
		a := c.l.Augmentation()
		for k, y := range c.targets {
			var z, m1, m2 float64
			at := func(f float64) float64 {
				v, _, _ := c.l.LogDensity(c.theta, y, f)
				return math.Exp(v - (f-prior)*(f-prior)/(2*spread))
			}
			z = quad.Fixed(at, -12, 13, 400, nil, 0)
			m1 = quad.Fixed(func(f float64) float64 { return f * at(f) }, -12, 13, 400, nil, 0) / z
			m2 = quad.Fixed(func(f float64) float64 { return (f - m1) * (f - m1) * at(f) }, -12, 13, 400, nil, 0) / z

			r := rand.New(rand.NewPCG(uint64(k), 9))
			state, f, target := make([]float64, a.Width()), []float64{0}, []float64{y}
			a.Start(state, target)
			var x, xx []float64
			for range n {
				a.Refresh(r, state, c.theta, target, f)
				noise, z := a.Noise(c.theta, state)[0], a.Targets(target, state)[0]
				v := 1 / (1/spread + 1/noise)
				f[0] = v*(prior/spread+z/noise) + math.Sqrt(v)*r.NormFloat64()
				x, xx = append(x, f[0]), append(xx, (f[0]-m1)*(f[0]-m1))
			}
			for what, want := range map[string]struct {
				x    []float64
				want float64
			}{"mean": {x, m1}, "variance": {xx, m2}} {
				got, se := batchMean(want.x, batches)
				if math.Abs(got-want.want) > 5*se {
					t.Errorf("%s, y = %g: %s %v, want %v ± %v", name(c.l), y, what, got, want.want, se)
				}
			}
		}
	}
}

func batchMean(x []float64, batches int) (mean, se float64) {
	var m []float64
	for b := range batches {
		m = append(m, stat.Mean(x[b*len(x)/batches:(b+1)*len(x)/batches], nil))
	}
	mean, sd := stat.MeanStdDev(m, nil)
	return mean, sd / math.Sqrt(float64(batches))
}

// The gradient of the noise is that of differences.
func TestAugmentedNoise(t *testing.T) {
	for _, c := range augmented {
		if rows, ok := c.l.(ByRow); ok {
			c.l = rows.Select([]int{0, 0, 0})
		}
		a := c.l.Augmentation()
		state := make([]float64, 3*a.Width())
		a.Refresh(rand.New(rand.NewPCG(1, 2)), state, c.theta, []float64{c.targets[0], c.targets[1], c.targets[0]}, []float64{0, 0.5, 2})
		got := a.NoiseGradient(c.theta, state)
		if len(got) != len(c.theta) {
			t.Fatalf("%s: %d gradients for %d parameters", name(c.l), len(got), len(c.theta))
		}
		for i := range got {
			for row := range 3 {
				of := func(psi float64) float64 {
					theta := append([]float64(nil), c.theta...)
					theta[i] = math.Exp(psi)
					noise := a.Noise(theta, state)
					return noise[row%len(noise)]
				}
				if want := fd.Derivative(of, math.Log(c.theta[i]), nil); math.Abs(got[i][row%len(got[i])]-want) > 1e-5*want {
					t.Errorf("%s: derivative %v, differences %v", name(c.l), got[i], want)
				}
			}
		}
		if low := floats.Min(a.Noise(c.theta, state)); !(low > 0) {
			t.Errorf("%s: noise %v", name(c.l), low)
		}
	}
}

// The predictive density is ∫p(y|f)N(f)df averaged over the draws; CDF, moments, quantiles and
// CRPS are those of that density; targets that are drawn have its moments.
func TestAugmentedPredictions(t *testing.T) {
	mean, variance := []float64{0.3, -0.4, 2.5}, []float64{0.2, 0.6, 1e-4}
	for _, c := range augmented {
		theta := [][]float64{c.theta, c.theta, c.theta}
		p := c.l.Predict(theta, mean, variance)
		density := func(y float64) float64 {
			var sum float64
			for t, m := range mean {
				sd := math.Sqrt(variance[t])
				of := func(z float64) float64 {
					v, _, _ := c.l.LogDensity(theta[t], y, m+sd*z)
					return math.Exp(v-z*z/2) / math.Sqrt(2*math.Pi) / 3
				}
				kink := min(max((y-m)/sd, -9), 9)
				for _, end := range [][2]float64{{-9, kink}, {kink, 9}} {
					if end[0] < end[1] {
						sum += quad.Fixed(of, end[0], end[1], 60, nil, 0)
					}
				}
			}
			return sum
		}
		for _, y := range append([]float64{}, c.targets...) {
			if got, want := math.Exp(p.LogDensity(y)), density(y); math.Abs(got-want) > 1e-6*want {
				t.Errorf("%s: density %v at %v, want %v", name(c.l), got, y, want)
			}
			cdf := total(c.classes, func(x float64) float64 {
				if x > y {
					return 0
				}
				return density(x)
			})
			tolerance := 1e-6
			if c.classes == nil { // the sum ends within a step
				tolerance = 0.02
			}
			if got := p.CDF(y); math.Abs(got-cdf) > tolerance {
				t.Errorf("%s: CDF %v at %v, want %v", name(c.l), got, y, cdf)
			}
			crps := total(c.classes, func(x float64) float64 {
				d := p.CDF(x)
				if x >= y {
					d--
				}
				return d * d
			})
			if got := p.CRPS(y); math.Abs(got-crps) > 0.01*crps+1e-3 {
				t.Errorf("%s: CRPS %v at %v, want %v", name(c.l), got, y, crps)
			}
		}
		const n = 40_000
		r, x := rand.New(rand.NewPCG(1, 2)), make([]float64, n)
		for i := range x {
			x[i] = c.l.Draw(r, theta[i%3], mean[i%3], variance[i%3])
		}
		m, sd := p.Moments()
		if got := stat.Mean(x, nil); math.Abs(got-m) > 5*sd/math.Sqrt(n) {
			t.Errorf("%s: targets have the mean %v, want %v", name(c.l), got, m)
		}
		for _, q := range []float64{0.025, 0.3, 0.5, 0.9} {
			at := p.Quantile(q)
			below := 0.0
			for _, v := range x {
				if v <= at {
					below++
				}
			}
			if c.classes == nil && math.Abs(below/n-q) > 5*math.Sqrt(q*(1-q)/n) || p.CDF(at) < q-1e-12 {
				t.Errorf("%s: %v of the targets are below the quantile of %v", name(c.l), below/n, q)
			}
		}
	}
}

// The quadrature over the scales of Student's t is good to some five digits, far into the tails.
func TestStudentPredictionsAreStudent(t *testing.T) {
	for _, df := range []float64{2.1, 4, 7, 50, 1000} {
		s := StudentT{df}
		p := s.Predict([][]float64{{0.49}}, []float64{1}, []float64{1e-12})
		for _, y := range []float64{1, 0, 3, -8, 20} {
			want, _, _ := s.LogDensity([]float64{0.49}, y, 1)
			if got := p.LogDensity(y); math.Abs(got-want) > 3e-5*(1+math.Abs(want)) {
				t.Errorf("%g degrees of freedom: log density %v at %v, want %v", df, got, y, want)
			}
		}
		scaled := p.Scaled(3, 2)
		if got, want := scaled.Quantile(0.9), 3+2*p.Quantile(0.9); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g degrees of freedom: quantile %v after scaling, want %v", df, got, want)
		}
	}
}

// Where degrees of freedom differ between draws the distribution is the mean of those of each.
func TestStudentPredictionsOfManyDegreesOfFreedom(t *testing.T) {
	theta, mean, variance := [][]float64{{0.5, 2.5}, {0.3, 8}, {0.4, 60}}, []float64{0.2, -0.4, 1}, []float64{0.1, 0.3, 0.02}
	p := StudentT{}.Predict(theta, mean, variance)
	average := func(of func(each Predictive) float64) (sum float64) {
		for i, own := range theta {
			sum += of(StudentT{own[1]}.Predict([][]float64{{own[0]}}, mean[i:i+1], variance[i:i+1])) / 3
		}
		return sum
	}
	for _, y := range []float64{-7, 0.3, 2} {
		if got, want := math.Exp(p.LogDensity(y)), average(func(e Predictive) float64 { return math.Exp(e.LogDensity(y)) }); math.Abs(got-want) > 1e-12*want {
			t.Errorf("density %v at %v, want %v", got, y, want)
		}
		if got, want := p.CDF(y), average(func(e Predictive) float64 { return e.CDF(y) }); math.Abs(got-want) > 1e-12 {
			t.Errorf("CDF %v at %v, want %v", got, y, want)
		}
		if back := p.Quantile(p.CDF(y)); math.Abs(back-y) > 1e-9 {
			t.Errorf("the quantile of the CDF at %v is %v", y, back)
		}
		side := func(sign, level float64) float64 { // ∫(CDF−level)² from y on
			return quad.Fixed(func(u float64) float64 {
				d := p.CDF(y+sign*math.Sinh(u)) - level
				return d * d * math.Cosh(u)
			}, 0, 9, 300, nil, 0)
		}
		if got, want := p.CRPS(y), side(-1, 0)+side(1, 1); math.Abs(got-want) > 1e-3*want {
			t.Errorf("CRPS %v at %v, want %v", got, y, want)
		}
		if got := p.Scaled(3, 2).CDF(3 + 2*y); math.Abs(got-p.CDF(y)) > 1e-12 {
			t.Errorf("CDF %v after scaling, want %v", got, p.CDF(y))
		}
	}
	m, sd := p.Moments()
	second := average(func(e Predictive) float64 { m, sd := e.Moments(); return m*m + sd*sd })
	if want := math.Sqrt(second - m*m); math.Abs(m-(0.2-0.4+1)/3) > 1e-12 || math.Abs(sd-want) > 1e-9 {
		t.Errorf("mean %v, sd %v, want %v", m, sd, want)
	}
}

// What a likelihood cannot have made is refused in words.
func TestAugmentedChecks(t *testing.T) {
	for _, c := range []struct {
		l Likelihood
		y []float64
	}{
		{Bernoulli{}, []float64{0, 1, 2}},
		{Probit{}, []float64{0, 1, 2}},
		{Laplace{}, []float64{0, math.NaN()}},
		{Quantile{0.9}, []float64{0, math.Inf(-1)}},
		{Ordinal{[]string{"a", "b"}}, []float64{0, 1}},
		{Ordinal{make([]string, 31)}, []float64{0, 1, 2}},
		{Ordinal{[]string{"a", "b", "c"}}, []float64{0, 1, 3}},
		{Ordinal{[]string{"a", "b", "c"}}, []float64{0, 1, -1}},
		{Ordinal{[]string{"a", "b", "c"}}, []float64{0, 1, 1.5}},
		{Ordinal{[]string{"a", "b", "c"}}, []float64{0, math.NaN()}},
		{Ordinal{[]string{"a", "b", "c"}}, []float64{1, 1}},
		{Bernoulli{}, []float64{0, 1, 0.5}},
		{Bernoulli{}, []float64{1, 1, 1}},
		{Bernoulli{}, []float64{0, 1, math.NaN()}},
		{StudentT{4}, []float64{0, math.Inf(1)}},
		{Binomial{}, []float64{0, 1, 2}},
		{Binomial{trials: []float64{3, 4}}, []float64{4, 4}},
		{Binomial{trials: []float64{3, 4}}, []float64{2.5, 4}},
		{Binomial{trials: []float64{3, 1.5}}, []float64{1, 1}},
		{Binomial{trials: []float64{0}}, []float64{0}},
		{NegativeBinomial{}, []float64{0, 1.5}},
		{NegativeBinomial{}, []float64{0, -1}},
		{NegativeBinomial{}, []float64{0, 1e7}},
		{Poisson{}, []float64{0, 1.5}},
		{Poisson{}, []float64{0, -1}},
		{Poisson{}, []float64{1e7}},
		{Volatility{}, []float64{0, math.Inf(1)}},
	} {
		if err := c.l.Check(c.y); err == nil {
			t.Errorf("%s takes %v", name(c.l), c.y)
		}
	}
	if err := (Bernoulli{}).Check([]float64{0, 1, 1}); err != nil {
		t.Error(err)
	}
}
