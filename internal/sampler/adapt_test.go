package sampler_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

func TestAdapt(t *testing.T) {
	p := chainstest.Plan("fisher")
	r := chains.New(p)
	chainstest.Simulate(t, r, 0, func(int) int { return 0 })
	s := r.Settings
	// The draws are standard normal, and so is the guess.
	if d := mat.Norm(diff(s.Metric(), chains.Symmetric(chainstest.Identity)), 2); d > 0.3 {
		t.Errorf("metric\n%v", mat.Formatted(s.Metric()))
	}
	if s.Window != 3 || s.Probes < 4 || s.Step != 0.8 || s.Budget <= 0 {
		t.Errorf("%+v", s)
	}
	// λ_min of C^{-1/2}QC^{-1/2} by its definition (sgld.Fisher).
	noise := chains.Symmetric(s.ProbeCov)
	noise.ScaleSym(1/float64(s.Probes), noise)
	ratio, err := sgld.NoiseRatio(s.Metric(), noise)
	if want := 2*s.Step - s.Step*s.Step*(1+ratio); err != nil || math.Abs(s.Budget-want) > 1e-12 {
		t.Errorf("noise budget %v, want %v (%v)", s.Budget, want, err)
	}
	p.Probes, p.MaxProbes = 1, 1
	noisy := chainstest.Prepared(p)
	noisy.ProbeCov = []float64{9, 0, 0, 0, 9, 0, 0, 0, 9}
	r = chains.New(p)
	if err := r.Apply(chains.Event{Prepared: noisy}); err != nil {
		t.Fatal(err)
	}
	if e, err := sampler.Adapt(r); err != nil || e.Settings.Probes != 1 || e.Settings.Step >= 0.8 || e.Settings.Budget < 0 {
		t.Errorf("too few probes: %+v, %v", e, err)
	}
}

func diff(a, b mat.Matrix) *mat.Dense {
	var d mat.Dense
	d.Sub(a, b)
	return &d
}

func TestStartsAreScattered(t *testing.T) {
	p := chainstest.Plan("fisher")
	p.Chains = 500
	starts, err := sampler.Starts(&p, sampler.ByGradients, []float64{1, 2, 3}, chains.Symmetric([]float64{4, 0, 0, 0, 1, 0, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	var v [3]float64
	for _, s := range starts {
		for i := range v {
			d := s[i] - float64(i+1)
			v[i] += d * d / 500
		}
	}
	// Twice the standard deviation: variances 16, 4, 4, with relative standard
	// error √(2/500) = 0.063; five of them allowed.
	for i, want := range []float64{16, 4, 4} {
		if math.Abs(v[i]/want-1) > 0.32 {
			t.Errorf("variance %d is %v, want %v", i, v[i], want)
		}
	}
}

func TestWindows(t *testing.T) {
	for total, want := range map[int][]int{5: {5}, 10: {1, 3, 6}, 50: {5, 15, 30}, 1000: {100, 300, 600}} {
		m, err := sampler.ByName("fisher")
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Windows(&sampler.Options{Warmup: total}); !cmp.Equal(got, want) {
			t.Errorf("%d: %v, want %v", total, got, want)
		}
	}
}
