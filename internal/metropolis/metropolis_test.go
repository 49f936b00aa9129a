package metropolis

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func stream(seed uint64) func(int) *rand.Rand {
	return func(i int) *rand.Rand { return random.Key{Seed: seed, Iter: i}.Stream(random.Accept, 0) }
}

func line(t testing.TB, comps ...[3]float64) *mixture.Mixture { // weight, mean, sd
	var cs []mixture.Component
	for _, c := range comps {
		cs = append(cs, mixture.Component{Weight: c[0], Mean: c[1:2], Scale: mat.NewSymDense(1, []float64{c[2] * c[2]})})
	}
	m, err := mixture.New(cs)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// normals is a mixture of normal distributions: weight, mean, sd.
type normals [][3]float64

func (n normals) logDensity(x float64) float64 {
	var sum float64
	for _, c := range n {
		sum += c[0] * distuv.Normal{Mu: c[1], Sigma: c[2]}.Prob(x)
	}
	return math.Log(sum)
}

func (n normals) cdf(x float64) float64 {
	var sum float64
	for _, c := range n {
		sum += c[0] * distuv.Normal{Mu: c[1], Sigma: c[2]}.CDF(x)
	}
	return sum
}

func (n normals) draw(r *rand.Rand) float64 {
	u := r.Float64()
	for _, c := range n[:len(n)-1] {
		if u < c[0] {
			return c[1] + c[2]*r.NormFloat64()
		}
		u -= c[0]
	}
	c := n[len(n)-1]
	return c[1] + c[2]*r.NormFloat64()
}

var target = normals{{0.7, 0, 1}, {0.3, 6, 0.5}}

// proposals are of a mixture that misses the target by a good deal.
func proposals(t testing.TB, count int, seed uint64) *Proposals {
	p := Propose(line(t, [3]float64{1, 0.5, 1.5}, [3]float64{1, 6, 1}), count, stream(seed))
	for i, x := range p.X {
		p.Target[i] = target.logDensity(x[0]) + 123 // a constant that does not matter
	}
	return p
}

// kolmogorov returns the statistic √n·sup|F_n − F|, above 1.95 with probability 0.001 for
// independent draws.
func kolmogorov(x []float64, cdf func(float64) float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	n, most := float64(len(x)), 0.0
	for i, v := range x {
		f := cdf(v)
		most = max(most, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
	}
	return math.Sqrt(n) * most
}

func TestScan(t *testing.T) {
	p := proposals(t, 40_000, 1)
	state, rate := Scan(p.LogWeights(), stream(2)(0))
	if rate < 0.4 || rate > 0.9 {
		t.Errorf("rate of acceptance %v", rate)
	}
	x := make([]float64, len(state))
	for i, s := range state {
		x[i] = p.X[s][0]
	}
	// Every fifth state is nearly independent.
	var thin []float64
	for i := 100; i < len(x); i += 5 {
		thin = append(thin, x[i])
	}
	if k := kolmogorov(thin, target.cdf); k > 1.95 {
		t.Errorf("Kolmogorov's statistic is %v", k)
	}
	if n := LongestStay(state); n < 3 || n > 100 {
		t.Errorf("the chain stood still for %d steps", n)
	}
}

// Nothing is accepted where there is no density; a chain begins at the first that has one.
func TestScanWithoutDensity(t *testing.T) {
	p := &Proposals{X: make([][]float64, 5), Target: []float64{math.Inf(-1), math.NaN(), 0, math.Inf(-1), math.NaN()}, Proposal: make([]float64, 5)}
	state, _ := Scan(p.LogWeights(), stream(1)(0))
	if want := []int{-1, -1, 2, 2, 2}; !slices.Equal(state, want) {
		t.Errorf("states %v, want %v", state, want)
	}
	if n := LongestStay(state); n != 3 {
		t.Errorf("stayed for %d steps, want 3", n)
	}
	if _, err := Weigh(p.Slice(0, 2)); err == nil {
		t.Error("proposals without density have weights")
	}
}

// A draw of the target is one after a step, with independent and with local moves.
func TestWalkKeepsTheTarget(t *testing.T) {
	m := line(t, [3]float64{1, 0.5, 1.5}, [3]float64{1, 5, 1})
	w := &Walk{Mixture: m, Moves: 3, Scale: 1.5, Target: func(_ context.Context, x []float64) (float64, error) {
		return target.logDensity(x[0]), nil
	}}
	const n = 20_000
	independent := Propose(m, n, stream(4))
	for i, x := range independent.X {
		independent.Target[i] = target.logDensity(x[0])
	}
	var rates Rates
	ends := make([]float64, n)
	for i := range ends {
		r := stream(5)(i)
		x := []float64{target.draw(r)}
		s, err := w.Advance(context.Background(), State{x, target.logDensity(x[0]), m.LogDensity(x)}, independent, i, r, &rates)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = s.X[0]
	}
	if k := kolmogorov(ends, target.cdf); k > 1.95 {
		t.Errorf("Kolmogorov's statistic is %v", k)
	}
	if rate := rates.LocalSum / float64(rates.Local); rates.Local != 3*n || rate < 0.2 || rate > 0.95 {
		t.Errorf("%d local moves, rate %v", rates.Local, rate)
	}
}

// The constant's errors, over 200 lists: the mean square of error over standard error
// is 1 ± 0.1, and beyond 1 ± 0.4 with probability 1e-4.
func TestConstants(t *testing.T) {
	var bySampling, byBridge float64
	const lists = 200
	for l := range lists {
		p := proposals(t, 400, 1000+uint64(l))
		w, err := Weigh(p)
		if err != nil {
			t.Fatal(err)
		}
		z := (w.LogConstant - 123) / w.Error
		bySampling += z * z / lists

		// Draws of the target by a chain, against other proposals.
		state, _ := Scan(proposals(t, 400, 5000+uint64(l)).LogWeights(), stream(uint64(l))(1))
		from := proposals(t, 400, 5000+uint64(l))
		drawn := &Proposals{}
		for _, s := range state {
			drawn.X = append(drawn.X, from.X[s])
			drawn.Target = append(drawn.Target, from.Target[s])
			drawn.Proposal = append(drawn.Proposal, from.Proposal[s])
		}
		c, se := Bridge(drawn, p)
		z = (c - 123) / se
		byBridge += z * z / lists
	}
	for name, m := range map[string]float64{"importance sampling": bySampling, "bridge": byBridge} {
		if math.Abs(m-1) > 0.4 {
			t.Errorf("%s: the mean square of error over standard error is %v", name, m)
		}
	}
}

func TestWeigh(t *testing.T) {
	w, err := Weigh(proposals(t, 4000, 9))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float64, len(w.X))
	for i := range x {
		x[i] = w.X[i][0]
	}
	// Mean 1.8, sd 2.88: 5 standard errors.
	if m := stat.Mean(x, w.W); math.Abs(m-1.8) > 5*2.88/math.Sqrt(w.ESS) {
		t.Errorf("the mean is %v, want 1.8", m)
	}
	if w.KHat > 0.5 || w.ESS < 1000 {
		t.Errorf("k-hat %v, ESS %v", w.KHat, w.ESS)
	}
}

// An infinite density is an error, not a draw.
func TestWeighInfinite(t *testing.T) {
	p := &Proposals{X: [][]float64{{1}, {2}}, Target: []float64{0, math.Inf(1)}, Proposal: []float64{0, 0}}
	if _, err := Weigh(p); err == nil || !strings.Contains(err.Error(), "infinite at [2]") {
		t.Error(err)
	}
}
