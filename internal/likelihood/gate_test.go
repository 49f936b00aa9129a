package likelihood

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// kind is log Φ(±a) + log p(y|f) of a kind of row, written down once more.
type kind func(f, a float64) float64

func logPhi(x float64) float64 { return math.Log(0.5 * math.Erfc(-x/math.Sqrt2)) }

func logNormal(r, variance float64) float64 {
	return -0.5*math.Log(2*math.Pi*variance) - r*r/(2*variance)
}

// gates are likelihoods with a gate, at parameters whose m is given, with their kinds.
var gates = []struct {
	l     Several
	theta []float64
	m, y  float64
	kinds [2]kind
}{
	{Twinned{}, []float64{0.5, 3, 0.5 * math.Erfc(0.7/math.Sqrt2)}, 0.7, 1.1, [2]kind{
		func(f, a float64) float64 { return logPhi(a) + logNormal(1.1-f, 0.5) },
		func(f, a float64) float64 { return logPhi(-a) + logNormal(1.1-f, 4.5) }}},
	{NoisyLabels{}, []float64{0.5 * math.Erfc(0.4/math.Sqrt2)}, 0.4, 0, [2]kind{
		func(f, a float64) float64 { return logPhi(a) + logPhi(-f) },
		func(_, a float64) float64 { return logPhi(-a) + math.Log(0.5) }}},
}

// The log density is that of the two kinds. With their Hessians and scores by differences, minus the Hessian of the whole is D − r(1−r)ddᵀ, and
// the curvature (D⁻¹ + r(1−r)·D⁻¹ddᵀD⁻¹)⁻¹, which is positive definite.
func TestGated(t *testing.T) {
	const h = 1e-3
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range gates {
		for range 40 {
			f, g := 1.5*r.NormFloat64(), 1.5*r.NormFloat64()
			a := c.m + g
			score, curvature := make([]float64, 2), make([]float64, 4)
			got := c.l.Terms(c.theta, c.y, []float64{f, g}, score, curvature)
			p1, p0 := math.Exp(c.kinds[0](f, a)), math.Exp(c.kinds[1](f, a))
			if want := math.Log(p1 + p0); math.Abs(got-want) > 1e-12*(1+math.Abs(want)) {
				t.Fatalf("%s: %v, want %v", c.l.Name(), got, want)
			}
			share := [2]float64{p1 / (p1 + p0), p0 / (p1 + p0)}
			d, mean := mat.NewVecDense(2, nil), mat.NewSymDense(2, nil)
			for k, of := range c.kinds {
				sign := float64(1 - 2*k)
				d.SetVec(0, d.AtVec(0)+sign*(of(f+h, a)-of(f-h, a))/(2*h))
				d.SetVec(1, d.AtVec(1)+sign*(of(f, a+h)-of(f, a-h))/(2*h))
				mean.SetSym(0, 0, mean.At(0, 0)-share[k]*(of(f+h, a)+of(f-h, a)-2*of(f, a))/(h*h))
				mean.SetSym(1, 1, mean.At(1, 1)-share[k]*(of(f, a+h)+of(f, a-h)-2*of(f, a))/(h*h))
			}
			q := share[0] * share[1]
			var want, hessian, inverse mat.Dense
			if err := inverse.Inverse(mean); err != nil {
				t.Fatal(err)
			}
			var e mat.VecDense
			e.MulVec(&inverse, d)
			hessian.Outer(-q, d, d)
			hessian.Add(&hessian, mean)
			want.Outer(q, &e, &e)
			want.Add(&want, &inverse)
			if err := want.Inverse(&want); err != nil {
				t.Fatal(err)
			}
			at := func(f, g float64) []float64 {
				s := make([]float64, 2)
				c.l.Terms(c.theta, c.y, []float64{f, g}, s, make([]float64, 4))
				return s
			}
			for i, by := range [][2]float64{{h, 0}, {0, h}} {
				up, down := at(f+by[0], g+by[1]), at(f-by[0], g-by[1])
				for j := range 2 {
					if v := -(up[j] - down[j]) / (2 * h); math.Abs(v-hessian.At(i, j)) > 1e-4*(1+math.Abs(v)) {
						t.Errorf("%s at %.3g, %.3g: minus the Hessian %d, %d is %v, of the kinds %v", c.l.Name(), f, g, i, j, v, hessian.At(i, j))
					}
					if v := curvature[2*i+j]; math.Abs(v-want.At(i, j)) > 1e-4*(1+math.Abs(v)) {
						t.Errorf("%s at %.3g, %.3g: curvature %d, %d is %v, want %v", c.l.Name(), f, g, i, j, v, want.At(i, j))
					}
				}
			}
		}
	}
}

// Far out nothing overflows: the kind that is left decides. log Φ(−40) is −804.608442013754.
func TestGatedFarOut(t *testing.T) {
	const far = -804.608442013754
	theta := []float64{1, 10, 0.5}
	for _, c := range []struct {
		l     Several
		theta []float64
		y     float64
		f     []float64
		want  float64
	}{
		{Twinned{}, theta, 1000, []float64{0, 40}, far + logNormal(1000, 100)},
		{Twinned{}, theta, 0, []float64{0, -40}, logNormal(0, 100)},
		{Twinned{}, theta, 1e6, []float64{0, 0}, math.Log(0.5) + logNormal(1e6, 100)},
		{NoisyLabels{}, []float64{0.5}, 1, []float64{-60, 40}, far + math.Log(0.5)},
		{NoisyLabels{}, []float64{0.5}, 0, []float64{60, -40}, math.Log(0.5)},
	} {
		score, curvature := make([]float64, 2), make([]float64, 4)
		got := c.l.Terms(c.theta, c.y, c.f, score, curvature)
		if math.Abs(got-c.want) > 1e-12*math.Abs(c.want) {
			t.Errorf("%s, %v at %v: %v, want %v", c.l.Name(), c.y, c.f, got, c.want)
		}
	}
	for _, g := range []float64{-1e3, -60, 60, 1e3} { // derivatives are numbers, and the curvature positive definite
		for _, y := range []float64{0, 1, 1e4} {
			for _, l := range []Several{Twinned{}, NoisyLabels{}} {
				own := theta
				if l.Name() == "noisy-labels" {
					own = theta[2:]
					y = min(y, 1)
				}
				score, w := make([]float64, 2), make([]float64, 4)
				v := l.Terms(own, y, []float64{-g / 2, g}, score, w)
				for _, x := range append(append([]float64{v}, score...), w...) {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						t.Fatalf("%s, %v, g = %v: %v, score %v, curvature %v", l.Name(), y, g, v, score, w)
					}
				}
				if !(w[0] >= 0 && w[3] >= 0 && w[0]*w[3] >= w[1]*w[2]) {
					t.Errorf("%s, %v, g = %v: curvature %v", l.Name(), y, g, w)
				}
			}
		}
	}
}

// trapezoid calls visit with standard normal values and their weights.
func trapezoid(step float64, visit func(z, weight float64)) {
	for z := -9.; z <= 9; z += step {
		visit(z, step*normalDensity(z))
	}
}

// log Z and its gradient of a target over correlated f and g are those that closed forms give (Naish-Guzman 2007, appendix C, with its misprints
// mended; the numbers were computed apart from this code).
func TestTwinnedMoments(t *testing.T) {
	theta := []float64{0.5, math.Sqrt(18), 0.5}
	mean, l := []float64{0.3, -0.2}, []float64{math.Sqrt(1.3), 0.4 / math.Sqrt(1.3), math.Sqrt(0.9 - 0.16/1.3)} // of (g,f)
	var z float64
	alpha := make([]float64, 2)
	trapezoid(0.1, func(a, wa float64) {
		trapezoid(0.1, func(b, wb float64) {
			score := make([]float64, 2)
			p := wa * wb * math.Exp(Twinned{}.Terms(theta, 0.7, []float64{mean[1] + l[1]*a + l[2]*b, mean[0] + l[0]*a}, score, make([]float64, 4)))
			z, alpha[0], alpha[1] = z+p, alpha[0]+p*score[1], alpha[1]+p*score[0]
		})
	})
	for k, c := range [][2]float64{{math.Log(z), -1.544357547798}, {alpha[0] / z, 0.150455237673}, {alpha[1] / z, 0.434202654356}} {
		if math.Abs(c[0]-c[1]) > 1e-10 {
			t.Errorf("number %d is %.12f, want %.12f", k, c[0], c[1])
		}
	}
}

// The evidence of two rows and the means of both functions are those of a Monte Carlo run of 4·10⁶ samples by other code: −4.9109 ± 0.00085.
func TestTwinnedEvidence(t *testing.T) {
	const step = 0.25
	theta := []float64{0.05, math.Sqrt(180), 0.5 * math.Erfc(0.5/math.Sqrt2)}
	x, y := []float64{0, 0.6}, []float64{0.4, 3}
	k := math.Exp(-x[1] * x[1] / 2)
	rest := math.Sqrt(1 - k*k)
	var grid, weight []float64
	trapezoid(step, func(z, w float64) { grid, weight = append(grid, z), append(weight, w) })
	n := len(grid)
	sf, su := 1.0, math.Sqrt(1.5)
	first := make([]float64, n*n) // of row 0 at f and g
	for i, a := range grid {
		for j, b := range grid {
			first[i*n+j] = weight[i] * weight[j] * math.Exp(Twinned{}.Terms(theta, y[0], []float64{sf * a, su * b}, nil, nil))
		}
	}
	var z float64
	mean := make([]float64, 4)
	for i, a := range grid {
		for i2, a2 := range grid {
			f := sf * (k*a + rest*a2)
			for j, b := range grid {
				for j2, b2 := range grid {
					w := first[i*n+j] * weight[i2] * weight[j2]
					if w < 1e-12 {
						continue
					}
					g := su * (k*b + rest*b2)
					p := w * math.Exp(Twinned{}.Terms(theta, y[1], []float64{f, g}, nil, nil))
					z += p
					for q, v := range []float64{0.5 + su*b, 0.5 + g, sf * a, f} {
						mean[q] += p * v
					}
				}
			}
		}
	}
	t.Logf("evidence %.5f, means %.4f %.4f %.4f %.4f", math.Log(z), mean[0]/z, mean[1]/z, mean[2]/z, mean[3]/z)
	if math.Abs(math.Log(z)+4.9109) > 4*0.00085 {
		t.Errorf("the evidence is %v", math.Log(z))
	}
	for q, want := range []float64{0.0266, -0.2271, 0.3773, 0.4162} {
		if math.Abs(mean[q]/z-want) > 0.01 {
			t.Errorf("mean %d is %v, want %v", q, mean[q]/z, want)
		}
	}
}

// Distributions of targets are sums over many values of both functions, quantiles are inverse to the CDF, and random targets have their moments.
func TestGatePredictions(t *testing.T) {
	theta, mean, variance := [][]float64{{0.2, 6, 0.1}, {0.5, 4, 0.4}}, [][]float64{{1, -0.5}, {1.4, 0.3}}, [][]float64{{0.1, 0.8}, {0.05, 1.7}}
	over := func(l Several, own [][]float64, y float64) (p float64) {
		for s := range own {
			trapezoid(0.1, func(a, wa float64) {
				trapezoid(0.1, func(b, wb float64) {
					f := []float64{mean[s][0] + math.Sqrt(variance[s][0])*a, mean[s][1] + math.Sqrt(variance[s][1])*b}
					p += wa * wb / 2 * math.Exp(l.Terms(own[s], y, f, nil, nil))
				})
			})
		}
		return p
	}
	d := Twinned{}.PredictAll(theta, mean, variance)
	var mass, first, second, below, crps float64
	const step = 0.02
	for k := range 2100 {
		y := -20 + step*(float64(k)+0.5)
		p := math.Exp(d.LogDensity(y))
		mass, first, second = mass+step*p, first+step*p*y, second+step*p*y*y
		crps += step * sq(d.CDF(y)-map[bool]float64{true: 1, false: 0}[y >= 2])
		if y < 2 {
			below += step * p
		}
	}
	m, sd := d.Moments()
	for what, c := range map[string][3]float64{"mass": {mass, 1, 1e-6}, "mean": {m, first, 1e-5}, "mean square": {sq(m) + sq(sd), second, 1e-3}, "CDF": {d.CDF(2), below, 1e-4},
		"CDF of a quantile": {d.CDF(d.Quantile(0.975)), 0.975, 1e-12}, "CRPS": {d.CRPS(2), crps, 5e-3}} {
		if math.Abs(c[0]-c[1]) > c[2] {
			t.Errorf("%s is %v, want %v", what, c[0], c[1])
		}
	}
	for _, y := range []float64{-6, 0.9, 2, 8} {
		if got, want := d.LogDensity(y), math.Log(over(Twinned{}, theta, y)); math.Abs(got-want) > 1e-8 {
			t.Errorf("log density at %v is %v, want %v", y, got, want)
		}
	}
	shares := [][]float64{theta[0][2:], theta[1][2:]}
	if got, want := (NoisyLabels{}).PredictAll(shares, mean, variance).(Class).P, over(NoisyLabels{}, shares, 1); math.Abs(got-want) > 1e-9 {
		t.Errorf("the probability is %v, want %v", got, want)
	}
	// Over 20,000 random targets: five standard errors.
	const draws = 20000
	r := rand.New(rand.NewPCG(1, 1))
	var square, ones float64
	for range draws {
		square += sq(Twinned{}.DrawAll(r, []float64{0.5, 4, 0.3}, []float64{2, 0.4}) - 2)
		ones += NoisyLabels{}.DrawAll(r, []float64{0.3}, []float64{2, 0.4})
	}
	w := normalCDF(normalQuantile(0.7) + 0.4)
	if want, se := 0.5*w+8*(1-w), math.Sqrt(3*64*(1-w)/draws); math.Abs(square/draws-want) > 5*se {
		t.Errorf("mean square %v, want %v", square/draws, want)
	}
	if want := w*normalCDF(2) + (1-w)/2; math.Abs(ones/draws-want) > 5*0.5/math.Sqrt(draws) {
		t.Errorf("share of ones %v, want %v", ones/draws, want)
	}
}
