package likelihood

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// mixtures returns random mixtures, of one component and of many, close and far.
func mixtures() []Mixture {
	r := rand.New(rand.NewPCG(3, 4))
	var out []Mixture
	for _, n := range []int{1, 2, 7, 40} {
		for _, apart := range []float64{0.01, 1, 20} {
			m := Mixture{}
			for range n {
				m.Mean = append(m.Mean, 5+apart*r.NormFloat64())
				m.SD = append(m.SD, math.Exp(0.7*r.NormFloat64()))
			}
			out = append(out, m)
		}
	}
	return out
}

func TestQuantileInvertsCDF(t *testing.T) {
	for _, m := range mixtures() {
		last := math.Inf(-1)
		for _, p := range []float64{1e-6, 0.005, 0.025, 0.25, 0.5, 0.75, 0.975, 0.995, 1 - 1e-6} {
			x := m.Quantile(p)
			// The error of x, in probability: the digits of the CDF end where
			// the density times those of x do.
			if got := m.CDF(x); math.Abs(got-p) > 1e-12+1e-13*math.Abs(x)*m.density(x) {
				t.Errorf("%d components: CDF(Quantile(%g)) = %g", len(m.Mean), p, got)
			}
			if !(x > last) {
				t.Errorf("the quantile of %g is %g, that before it %g", p, x, last)
			}
			last = x
		}
	}
	n := Mixture{[]float64{2}, []float64{3}}
	for _, p := range []float64{0.01, 0.5, 0.9} {
		want := distuv.Normal{Mu: 2, Sigma: 3}.Quantile(p)
		if got := n.Quantile(p); math.Abs(got-want) > 1e-12 {
			t.Errorf("normal quantile of %g: %g, want %g", p, got, want)
		}
	}
	same := Mixture{[]float64{2, 2, 2}, []float64{3, 3, 3}}
	if got, want := same.Quantile(0.1), n.Quantile(0.1); math.Abs(got-want) > 1e-12 {
		t.Errorf("three equal components: %g, one %g", got, want)
	}
}

// integrateTails integrates f over all that a mixture covers, cut at y.
func integrateTails(m Mixture, y float64, f func(float64) float64) float64 {
	lo, hi := y, y
	for t, mu := range m.Mean {
		lo, hi = min(lo, mu-12*m.SD[t]), max(hi, mu+12*m.SD[t])
	}
	var sum float64
	for _, r := range [][2]float64{{lo, y}, {y, hi}} {
		const pieces = 200
		for i := range pieces {
			a := r[0] + (r[1]-r[0])*float64(i)/pieces
			b := r[0] + (r[1]-r[0])*float64(i+1)/pieces
			if b > a {
				sum += quad.Fixed(f, a, b, 12, quad.Legendre{}, 0)
			}
		}
	}
	return sum
}

func TestCRPSIsItsIntegral(t *testing.T) {
	for _, m := range mixtures() {
		for _, y := range []float64{5, 0, 30} {
			want := integrateTails(m, y, func(x float64) float64 {
				d := m.CDF(x)
				if x >= y {
					d--
				}
				return d * d
			})
			if got := m.CRPS(y); math.Abs(got-want) > 1e-6*(1+want) {
				t.Errorf("%d components, y = %g: CRPS %g, by integration %g", len(m.Mean), y, got, want)
			}
		}
	}
	// Gneiting and Raftery (2007), eq. 21, of a standard normal at its mean.
	if got, want := (Mixture{[]float64{0}, []float64{1}}).CRPS(0), (math.Sqrt2-1)/math.Sqrt(math.Pi); math.Abs(got-want) > 1e-15 {
		t.Errorf("CRPS of a standard normal at 0: %g, want %g", got, want)
	}
}

func TestMomentsAndDensityAgree(t *testing.T) {
	for _, m := range mixtures() {
		mean, sd := m.Moments()
		at := func(f func(x float64) float64) float64 {
			return integrateTails(m, mean, func(x float64) float64 { return f(x) * math.Exp(m.LogDensity(x)) })
		}
		total := at(func(float64) float64 { return 1 })
		first := at(func(x float64) float64 { return x })
		second := at(func(x float64) float64 { return (x - mean) * (x - mean) })
		if math.Abs(total-1) > 1e-6 || math.Abs(first-mean) > 1e-5 || math.Abs(math.Sqrt(second)/sd-1) > 1e-5 {
			t.Errorf("%d components: the density integrates to %g with mean %g, sd %g; moments %g, %g", len(m.Mean), total, first, math.Sqrt(second), mean, sd)
		}
		if l := m.LogDensity(1e6); math.IsInf(l, 0) || math.IsNaN(l) {
			t.Errorf("the log density far away is %g", l)
		}
		moved := m.Scaled(-3, 2.5)
		if got, want := moved.Quantile(0.3), -3+2.5*m.Quantile(0.3); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("quantile after a change of units %g, want %g", got, want)
		}
		if got, want := moved.LogDensity(-3+2.5*4), m.LogDensity(4)-math.Log(2.5); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("log density after a change of units %g, want %g", got, want)
		}
		if got, want := moved.CRPS(-3+2.5*4), 2.5*m.CRPS(4); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("CRPS after a change of units %g, want %g", got, want)
		}
	}
}
