package metropolis

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"

	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// refinedBy refines proposals from a standard t by a rough log density.
func refinedBy(t *testing.T, rough func(x []float64) float64) (*Refined, mixture.Distribution) {
	t.Helper()
	base := line(t, [3]float64{1, 0, 1})
	sample := Propose(base, 1000, stream(1))
	for i, x := range sample.X {
		sample.Target[i] = rough(x)
	}
	r, ok := Refine(base, rough, sample.X, sample.Target).(*Refined)
	if !ok {
		t.Fatal("nothing was refined")
	}
	return r, base
}

// Draws are of the density that is told of them, whatever the rough density is: by
// Kolmogorov and Smirnov, of 20,000 draws, beyond 2.3 once in 20,000 tests.
func TestRefinedDraws(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector, which has nothing to find here")
	}
	target := normals{{0.6, -1, 0.3}, {0.4, 1, 0.5}}
	for name, rough := range map[string]func(x []float64) float64{
		"right":    func(x []float64) float64 { return target.logDensity(x[0]) },
		"runs off": func(x []float64) float64 { return target.logDensity(x[0]) + x[0]*x[0]*x[0]*x[0] },
		"absent": func(x []float64) float64 {
			if x[0] > 0 {
				return math.NaN()
			}
			return target.logDensity(x[0])
		},
	} {
		r, _ := refinedBy(t, rough)
		const n = 20_000
		var draws []float64
		for _, x := range Propose(r, n, stream(2)).X {
			draws = append(draws, x[0])
		}
		slices.Sort(draws)
		density := func(x float64) float64 { return math.Exp(r.LogDensity([]float64{x}) - r.Low) }
		// In parts, since the density has corners.
		const from, width, cells = -60, 0.02, 6000
		cumulative := make([]float64, cells+1)
		for c := range cells {
			cumulative[c+1] = cumulative[c] + quad.Fixed(density, from+width*float64(c), from+width*float64(c+1), 4, nil, 0)
		}
		var worst float64
		for i, x := range draws {
			at := min(max((x-from)/width, 0), cells-1e-9)
			c := int(at)
			cdf := (cumulative[c] + (at-float64(c))*(cumulative[c+1]-cumulative[c])) / cumulative[cells]
			worst = max(worst, math.Abs(cdf-(float64(i)+0.5)/n))
		}
		if s := worst * math.Sqrt(n); s > 2.3 {
			t.Errorf("%s: the distribution is off by %.2f/√n", name, s)
		}
	}
}

// A rough density that is right makes nearly every proposal accepted; one that is wrong makes
// weights larger by a bounded factor only, and means stay right: within 4 standard errors.
func TestRefinedWeights(t *testing.T) {
	target := normals{{0.6, -1, 0.3}, {0.4, 1, 0.5}}
	const mean, n = -0.2, 20_000
	for name, c := range map[string]struct {
		rough func(x []float64) float64
		ess   float64 // least share
	}{
		"right":  {func(x []float64) float64 { return target.logDensity(x[0]) }, 0.9},
		"off":    {func(x []float64) float64 { return target.logDensity(x[0]) + 30*math.Sin(5*x[0]) }, 0},
		"missed": {func(x []float64) float64 { return target.logDensity(x[0]) - 50*max(0, x[0]) }, 0},
	} {
		r, base := refinedBy(t, c.rough)
		p := Propose(r, n, stream(3))
		for i, x := range p.X {
			p.Target[i] = target.logDensity(x[0])
			if refined, plain := p.Target[i]-p.Proposal[i]+r.High, p.Target[i]-base.LogDensity(x); refined > plain+r.High-r.Low+1e-9 {
				t.Fatalf("%s: the weight at %v is larger by more than the bounds' ratio", name, x)
			}
		}
		w, err := Weigh(p)
		if err != nil {
			t.Fatal(err)
		}
		var m, v float64
		for i, x := range p.X {
			m += w.W[i] * x[0]
		}
		for i, x := range p.X {
			v += w.W[i] * w.W[i] * (x[0] - m) * (x[0] - m)
		}
		if math.Abs(m-mean) > 4*math.Sqrt(v) || w.ESS < c.ess*n {
			t.Errorf("%s: mean %.3f ± %.3f, want %v; %.0f effective of %d", name, m, math.Sqrt(v), mean, w.ESS, n)
		}
	}
}

// Where the sample finds nothing of the rough density, the base stays.
func TestRefineByNothing(t *testing.T) {
	base := line(t, [3]float64{1, 0, 1})
	nothing := func([]float64) float64 { return math.Inf(-1) }
	if got := Refine(base, nothing, [][]float64{{0}, {1}}, []float64{math.Inf(-1), math.Inf(-1)}); got != mixture.Distribution(base) {
		t.Errorf("got %T", got)
	}
}

// A mixture fitted to a normal target to the power of 0.7 has 1/√0.7 of its standard deviation:
// within 3 %, of 8,000 weighted draws.
func TestWiden(t *testing.T) {
	p := Propose(line(t, [3]float64{1, 0, 1.5}), 8000, stream(4))
	for i, x := range p.X {
		p.Target[i] = -x[0] * x[0] / 2
	}
	m := Widen(p, Wideness, mixture.Options{Most: 2, Stream: func(i int) *rand.Rand { return stream(5)(i) }}, parallel.NewBudget(1))
	if m == nil {
		t.Fatal("no fit")
	}
	_, cov := m.Moments()
	if sd := math.Sqrt(cov.At(0, 0)); math.Abs(sd*math.Sqrt(Wideness)-1) > 0.03 {
		t.Errorf("sd %.3f, want %.3f", sd, 1/math.Sqrt(Wideness))
	}
}
