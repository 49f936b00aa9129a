package likelihood

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// The mean of the softmax function of independent normal variables is that of a product rule with many points, whatever their spread.
func TestSoftmaxMean(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{1e-3, 0.3, 1, 4} {
		for range 4 {
			mean, variance := make([]float64, 3), make([]float64, 3)
			for c := range mean {
				mean[c], variance[c] = 3*r.NormFloat64(), sq(spread*(0.5+r.Float64()))
			}
			got, want := softmaxMean(mean, variance), product(mean, variance)
			for c := range got {
				if math.Abs(got[c]-want[c]) > 2e-6 {
					t.Errorf("mean %.3g, variance %.3g: class %d has the probability %v, want %v", mean, variance, c, got[c], want[c])
				}
			}
		}
	}
	// Of two classes it is the logistic function of their difference, of many equal ones the same for all.
	two := softmaxMean([]float64{1.3, -0.4}, []float64{2, 0.5})
	one := Bernoulli{}.Predict([][]float64{nil}, []float64{1.7}, []float64{2.5}).(Class).P
	if math.Abs(two[0]-one) > 2e-6 {
		t.Errorf("two classes: %v, want %v", two[0], one)
	}
	for _, p := range softmaxMean(make([]float64, 30), make([]float64, 30)) {
		if math.Abs(p-1./30) > 1e-9 {
			t.Errorf("30 equal classes: %v", p)
		}
	}
	far := softmaxMean([]float64{0, -40}, []float64{1, 1})
	if want := math.Exp(-40 + 1); math.Abs(far[1]/want-1) > 1e-3 { // E e^(f₂−f₁), to first order
		t.Errorf("a class that is next to impossible: %v, want %v", far[1], want)
	}
}

func sq(x float64) float64 { return x * x }

// product returns E softmax by the trapezoidal rule in three dimensions.
func product(mean, variance []float64) []float64 {
	const ends, points = 6.5, 90
	out, total := make([]float64, 3), 0.0
	at, weight := make([]float64, points), make([]float64, points)
	for k := range at {
		at[k] = -ends + 2*ends*float64(k)/(points-1)
		weight[k] = math.Exp(-at[k] * at[k] / 2)
	}
	e := make([][]float64, 3)
	for c := range e {
		for _, z := range at {
			e[c] = append(e[c], math.Exp(mean[c]+math.Sqrt(variance[c])*z))
		}
	}
	for i, a := range e[0] {
		for j, b := range e[1] {
			for k, c := range e[2] {
				w, sum := weight[i]*weight[j]*weight[k], a+b+c
				out[0], out[1], out[2], total = out[0]+w*a/sum, out[1]+w*b/sum, out[2]+w*c/sum, total+w
			}
		}
	}
	floats.Scale(1/total, out)
	return out
}

// Scores are differences of the log density, and curvatures those of the score, with the sign turned: of heteroscedastic noise their
// expectation over targets. (Those of gates are TestGated's.)
func TestSeveralTerms(t *testing.T) {
	const h = 1e-5
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		l     Several
		theta []float64
		y     float64
	}{{Categorical{Classes: []string{"a", "b", "c", "d"}}, nil, 2}, {Heteroscedastic{}, []float64{0.4}, 0.7},
		{Twinned{}, []float64{0.4, 5, 0.2}, 1.7}, {NoisyLabels{}, []float64{0.2}, 0}, {NoisyLabels{}, []float64{0.6}, 1}} {
		n, theta := c.l.Functions(), c.theta
		f, score, curvature := make([]float64, n), make([]float64, n), make([]float64, n*n)
		for k := range f {
			f[k] = r.NormFloat64()
		}
		terms := func(y float64, k int, by float64) (float64, []float64) {
			at, s, w := append([]float64(nil), f...), make([]float64, n), make([]float64, n*n)
			at[k] += by
			return c.l.Terms(theta, y, at, s, w), s
		}
		if v, again := c.l.Terms(theta, c.y, f, score, curvature), c.l.Terms(theta, c.y, f, nil, nil); v != again {
			t.Errorf("%s: %v and without derivatives %v", c.l.Name(), v, again)
		}
		for k := range f {
			up, su := terms(c.y, k, h)
			down, sd := terms(c.y, k, -h)
			if d := (up - down) / (2 * h); math.Abs(d-score[k]) > 1e-8 {
				t.Errorf("%s: score %d is %v, by differences %v", c.l.Name(), k, score[k], d)
			}
			for m := range f {
				if strings.Contains("twinned noisy-labels", c.l.Name()) {
					continue
				}
				want := -(su[m] - sd[m]) / (2 * h)
				if c.l.Name() == "heteroscedastic" { // over targets, by the trapezoidal rule
					want = 0
					scale := math.Sqrt(theta[0] * math.Exp(f[1]))
					for z := -9.; z <= 9; z += 0.25 {
						_, a := terms(f[0]+scale*z, k, h)
						_, b := terms(f[0]+scale*z, k, -h)
						want -= 0.25 * normalDensity(z) * (a[m] - b[m]) / (2 * h)
					}
				}
				if math.Abs(want-curvature[k*n+m]) > 1e-8 {
					t.Errorf("%s: curvature %d, %d is %v, by differences %v", c.l.Name(), k, m, curvature[k*n+m], want)
				}
				if !c.l.Coupled() && k != m && curvature[k*n+m] != 0 {
					t.Errorf("%s is not coupled, and its curvature %d, %d is %v", c.l.Name(), k, m, curvature[k*n+m])
				}
			}
		}
	}
}

// The distribution of a target with noise of a normal log variance is that of sums over many values of it.
func TestHeteroscedasticPredict(t *testing.T) {
	theta, mean, variance := [][]float64{{0.2}, {0.5}}, [][]float64{{1, -0.5}, {1.4, 0.3}}, [][]float64{{0.1, 0.8}, {0.05, 1.7}}
	d := Heteroscedastic{}.PredictAll(theta, mean, variance)
	over := func(of func(mean, sd float64) float64) (sum float64) {
		for s := range theta {
			for z := -9.; z <= 9; z += 0.01 {
				sd := math.Sqrt(variance[s][0] + theta[s][0]*math.Exp(mean[s][1]+math.Sqrt(variance[s][1])*z))
				sum += 0.01 * normalDensity(z) * of(mean[s][0], sd) / 2
			}
		}
		return sum
	}
	m, sd := d.Moments()
	if want := over(func(m, _ float64) float64 { return m }); math.Abs(m-want) > 1e-9 {
		t.Errorf("mean %v, want %v", m, want)
	}
	if want := over(func(mu, s float64) float64 { return s*s + sq(mu-m) }); math.Abs(sd*sd-want) > 1e-8 {
		t.Errorf("variance %v, want %v", sd*sd, want)
	}
	for _, y := range []float64{-3, 0.9, 1.2, 2, 6} {
		if got, want := d.LogDensity(y), math.Log(over(func(m, s float64) float64 { return normalDensity((y-m)/s) / s })); math.Abs(got-want) > 3e-5 {
			t.Errorf("log density at %v is %v, want %v", y, got, want)
		}
		if got, want := d.CDF(y), over(func(m, s float64) float64 { return normalCDF((y - m) / s) }); math.Abs(got-want) > 1e-7 {
			t.Errorf("CDF at %v is %v, want %v", y, got, want)
		}
	}
}

// Targets that are none of the classes are refused, and so are too few or too many classes.
func TestCategoricalCheck(t *testing.T) {
	three := Categorical{Classes: []string{"a", "b", "c"}}
	if err := three.Check([]float64{0, 1, 1}); err != nil { // c has no row
		t.Error(err)
	}
	for _, bad := range []struct {
		l Categorical
		y []float64
	}{{three, []float64{0, 3}}, {three, []float64{0.5, 1}}, {three, []float64{1, 1}}, {Categorical{}, []float64{0}}, {Categorical{Classes: make([]string, 31)}, []float64{0, 1}}} {
		if bad.l.Check(bad.y) == nil {
			t.Errorf("%d classes, targets %v: no error", len(bad.l.Classes), bad.y)
		}
	}
	d := three.PredictAll(nil, [][]float64{{0, 1, 2}, {2, 1, 0}}, [][]float64{{1, 1, 1}, {1, 1, 1}})
	p := Shares(d)
	if math.Abs(floats.Sum(p)-1) > 1e-12 || math.Abs(p[0]-p[2]) > 1e-6 {
		t.Errorf("probabilities %v", p)
	}
	if got, want := d.CRPS(1), sq(p[0])+sq(p[1]-1)+sq(p[2]); math.Abs(got-want) > 1e-15 {
		t.Errorf("Brier score %v, want %v", got, want)
	}
}
