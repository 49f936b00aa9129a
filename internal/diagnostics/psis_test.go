package diagnostics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// Of 2,000 draws of a generalised Pareto distribution the shape is found to
// within 0.15, about 4 standard errors (1+k)/√2000 and the pull of the prior.
func TestParetoFit(t *testing.T) {
	for _, k := range []float64{-0.2, 0.3, 0.7, 1.2} {
		r := rand.New(rand.NewPCG(1, 2))
		x := make([]float64, 2000)
		for i := range x {
			x[i] = 3 * math.Expm1(-k*math.Log(r.Float64())) / k
		}
		slices.Sort(x)
		shape, scale := paretoFit(x)
		if math.Abs(shape-k) > 0.15 || math.Abs(scale/3-1) > 0.2 {
			t.Errorf("shape %v, scale %v; want %v and 3", shape, scale, k)
		}
	}
}

// Importance sampling of a normal from a Student t corrects mean and variance
// (4,000 draws, five standard errors), and k̂ says that it can. Where the weights have
// no mean, k̂ says so.
func TestPSIS(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 4000
	x, lw := make([]float64, n), make([]float64, n)
	for i := range x {
		var chi float64
		for range 7 {
			z := r.NormFloat64()
			chi += z * z
		}
		x[i] = 0.3 + r.NormFloat64()*math.Sqrt(7/chi) // off centre
		d := x[i] - 0.3
		lw[i] = -0.5*x[i]*x[i] + 4*math.Log1p(d*d/7)
	}
	w, k := PSIS(lw)
	if math.Abs(floats.Sum(w)-1) > 1e-12 {
		t.Errorf("weights sum to %v", floats.Sum(w))
	}
	mean := floats.Dot(w, x)
	var square float64
	for i := range x {
		square += w[i] * x[i] * x[i]
	}
	if math.Abs(mean) > 5/math.Sqrt(n)*1.2 || math.Abs(square-1) > 5*math.Sqrt(2.0/n)*1.3 || k > 0.5 {
		t.Errorf("mean %v, mean square %v, k̂ %v", mean, square, k)
	}
	for i := range lw { // weights whose mean does not exist: Pareto, k = 1.2
		lw[i] = 1.2 * r.ExpFloat64()
	}
	if _, k := PSIS(lw); math.Abs(k-1.2) > 0.4 {
		t.Errorf("k̂ = %v for weights of shape 1.2", k)
	}
	w, _ = PSIS(make([]float64, 100))
	for _, v := range w {
		if math.Abs(v-0.01) > 1e-15 {
			t.Fatalf("equal weights became %v", w)
		}
	}
	if w, k := PSIS([]float64{0, math.Log(3)}); math.Abs(w[1]-0.75) > 1e-15 || !math.IsNaN(k) {
		t.Errorf("two weights: %v, %v", w, k)
	}
}

// The expected excess beyond the largest of n terms, times their number and over their sum, is known of a Pareto distribution of
// shape ⅓ and of an exponential one: the fit's share agrees within a factor of two (the shape's standard error of 0.1 moves it by
// a third; seeds are fixed). Nearly equal terms have a share of nothing, terms without a mean of everything.
func TestTailShare(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n = 4000
	terms := func(of func(e float64) float64) ([]float64, float64, float64) {
		logs := make([]float64, n)
		var sum, most float64
		for i := range logs {
			v := of(r.ExpFloat64())
			logs[i], sum, most = math.Log(v), sum+v, max(most, v)
		}
		return logs, sum, most
	}
	logs, sum, most := terms(func(e float64) float64 { return math.Exp(e / 3) })
	if got, want := TailShare(logs), most*3/2/sum; !(got > want/2 && got < want*2) {
		t.Errorf("Pareto: %v, want %v", got, want)
	}
	logs, sum, most = terms(func(e float64) float64 { return e })
	if got, want := TailShare(logs), (most+1)/sum; !(got > want/2 && got < want*2) {
		t.Errorf("exponential: %v, want %v", got, want)
	}
	logs, _, _ = terms(func(e float64) float64 { return math.Exp(1.5 * e) })
	if got := TailShare(logs); got != 1 {
		t.Errorf("without a mean: %v, want 1", got)
	}
	logs, _, _ = terms(func(e float64) float64 { return 1 + 1e-3*e })
	if got := TailShare(logs); !(got < 2.0/n) {
		t.Errorf("nearly equal terms: %v", got)
	}
	if got := TailShare(make([]float64, 100)); math.Abs(got-0.01) > 1e-12 {
		t.Errorf("equal terms: %v, want 0.01", got)
	}
	if got := TailShare(make([]float64, 20)); !math.IsNaN(got) {
		t.Errorf("20 terms: %v", got)
	}
}

// Where nearly all weights are 0 there is no tail to fit: the others stay as they are.
func TestPSISOfFewWeights(t *testing.T) {
	for _, some := range []int{1, 2, 5, 30} {
		logWeights := make([]float64, 1000)
		for i := range logWeights {
			if i >= some {
				logWeights[i] = math.Inf(-1)
			} else {
				logWeights[i] = float64(i) / 10
			}
		}
		w, _ := PSIS(logWeights)
		var sum float64
		for i, x := range w {
			if math.IsNaN(x) || i >= some && x > 1e-6 {
				t.Fatalf("weight %d of %d is %v", i, some, x)
			}
			sum += x
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("the weights of %d sum to %v", some, sum)
		}
	}
}
