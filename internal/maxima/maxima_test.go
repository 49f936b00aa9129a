package maxima

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

type density func(x []float64) (float64, []float64)

// normals is the log density of a mixture of normal distributions with the given means,
// logs of weights, and a standard deviation for each coordinate.
func normals(means [][]float64, logWeights, sd []float64) density {
	return func(x []float64) (float64, []float64) {
		terms := make([]float64, len(means))
		for k, m := range means {
			terms[k] = logWeights[k]
			for i := range x {
				z := (x[i] - m[i]) / sd[i]
				terms[k] -= z*z/2 + math.Log(sd[i]*math.Sqrt(2*math.Pi))
			}
		}
		total := floats.LogSumExp(terms)
		grad := make([]float64, len(x))
		for k, m := range means {
			for i := range x {
				grad[i] += math.Exp(terms[k]-total) * (m[i] - x[i]) / (sd[i] * sd[i])
			}
		}
		return total, grad
	}
}

// banana is a curved ridge with its top at (1,1).
func banana(x []float64) (float64, []float64) {
	a, b := 1-x[0], x[1]-x[0]*x[0]
	return -10 * (a*a + 10*b*b), []float64{20*a + 400*b*x[0], -200 * b}
}

func climb(f density, start []float64, o Options) *Climb {
	c := NewClimb(start, o)
	for x := c.Next(); x != nil; x = c.Next() {
		c.Tell(f(x))
	}
	return c
}

// blind hides the values of a density.
func blind(f density) density {
	return func(x []float64) (float64, []float64) {
		_, g := f(x)
		return math.NaN(), g
	}
}

func TestClimb(t *testing.T) {
	stiff := normals([][]float64{{3, -2, 0.5}}, []float64{0}, []float64{0.001, 1, 30})
	for _, c := range []struct {
		name  string
		f     density
		start []float64
		top   []float64
		most  int
	}{
		{"stiff", stiff, []float64{0, 0, 0}, []float64{3, -2, 0.5}, 60},
		{"banana", banana, []float64{-1, 1}, []float64{1, 1}, 60},
	} {
		for _, values := range []bool{true, false} {
			f := c.f
			if !values {
				f = blind(f)
			}
			done := climb(f, c.start, Options{Tolerance: 1e-4})
			if done.End() != Converged || floats.Distance(done.Best().X, c.top, math.Inf(1)) > 1e-3 {
				t.Errorf("%s, values %v: %v at %v after %d", c.name, values, done.End(), done.Best().X, len(done.Path()))
			}
			if len(done.Path()) > c.most {
				t.Errorf("%s, values %v: %d evaluations", c.name, values, len(done.Path()))
			}
		}
	}
}

// A climb ends after the most evaluations; steps into where there is no density are taken
// back; without a density at its start it ends at once.
func TestClimbEnds(t *testing.T) {
	if c := climb(banana, []float64{-1, 1}, Options{Evaluations: 5}); c.End() != Stopped || len(c.Path()) != 5 {
		t.Errorf("%v after %d evaluations", c.End(), len(c.Path()))
	}
	half := func(x []float64) (float64, []float64) { // top at the edge of a hole
		if x[0] > 1 {
			return math.Inf(-1), nil
		}
		return x[0] - x[1]*x[1], []float64{1, -2 * x[1]}
	}
	c := climb(half, []float64{-3, 1}, Options{})
	if x := c.Best().X; c.End() != Stopped || x[0] < 1-1e-3 {
		t.Errorf("%v at %v", c.End(), x)
	}
	if c := climb(half, []float64{2, 1}, Options{}); c.End() != Stopped || c.Best() != nil || len(c.Path()) != 0 {
		t.Errorf("%v at %v", c.End(), c.Best())
	}
}

// A climb that is told the curvature comes to the top of a normal density by one step, and counts as the searches that it stands for.
func TestClimbWithAGuess(t *testing.T) {
	f := normals([][]float64{{0.3, -0.2}}, []float64{0}, []float64{0.1, 1})
	info := mat.NewSymDense(2, []float64{100, 0, 0, 1})
	told, other := climb(f, []float64{0, 0}, Options{Info: info, Found: 7}), climb(f, []float64{0, 0}, Options{})
	if told.End() != Converged || len(told.Path()) != 2 || len(other.Path()) <= 2 {
		t.Errorf("%v after %d evaluations, without a guess %d", told.End(), len(told.Path()), len(other.Path()))
	}
	if m := Distinct([]*Climb{told, other}, 0); len(m) != 1 || m[0].Found != 8 {
		t.Errorf("found: %+v", m)
	}
	if info.At(0, 0) != 100 {
		t.Error("the guess has changed")
	}
}

// With noise in the gradients a climb comes as near as the noise allows.
func TestClimbWithNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	f := normals([][]float64{{3, -2}}, []float64{0}, []float64{0.1, 1})
	noisy := func(x []float64) (float64, []float64) {
		_, g := f(x)
		g[0] += 0.5 * r.NormFloat64() // a twentieth of a standard deviation of x
		g[1] += 0.05 * r.NormFloat64()
		return math.NaN(), g
	}
	c := climb(noisy, []float64{0, 0}, Options{Tolerance: 0.1})
	if x := c.Best().X; c.End() != Converged || math.Abs(x[0]-3) > 0.05 || math.Abs(x[1]+2) > 0.5 {
		t.Errorf("%v at %v", c.End(), x)
	}
}

// All maxima of a mixture are found, each once, with their masses.
func TestDistinct(t *testing.T) {
	means := [][]float64{{0, 0}, {6, 0}, {0, 7}}
	weights := []float64{0.7, 0.25, 0.05}
	logs := make([]float64, 3)
	for i, w := range weights {
		logs[i] = math.Log(w)
	}
	f := normals(means, logs, []float64{1, 0.5})
	r := rand.New(rand.NewPCG(2, 2))
	var climbs []*Climb
	for range 30 {
		climbs = append(climbs, climb(f, []float64{8*r.Float64() - 1, 9*r.Float64() - 1}, Options{}))
	}
	found := Distinct(climbs, 0)
	if len(found) != 3 {
		t.Fatalf("%d maxima, want 3", len(found))
	}
	total := 0
	for k, m := range found {
		total += m.Found
		if floats.Distance(m.X, means[k], math.Inf(1)) > 0.02 {
			t.Errorf("maximum %d at %v, want %v", k, m.X, means[k])
		}
		var grads [][]float64
		for _, x := range Stencil(m.X, m.Info) {
			_, g := f(x)
			grads = append(grads, g)
		}
		info, asymmetry := Hessian(grads, m.Info)
		m.Info = info
		if !mat.EqualApprox(info, mat.NewSymDense(2, []float64{1, 0, 0, 4}), 0.01) || asymmetry > 0.01 {
			t.Errorf("maximum %d: information %v, asymmetry %v", k, mat.Formatted(info), asymmetry)
		}
		if got := math.Exp(m.LogMass()); math.Abs(got-weights[k]) > 0.02*weights[k] {
			t.Errorf("maximum %d holds %v, want %v", k, got, weights[k])
		}
	}
	if total != 30 {
		t.Errorf("%d climbs are counted, want 30", total)
	}
}

func TestStarts(t *testing.T) {
	stream := func(i int) *rand.Rand { return random.Key{Seed: 4}.Stream(random.Start, i) }
	roles := param.List{{Role: param.Variance}, {Role: param.Rate}, {Role: param.Rate}, {Role: param.Noise}}
	starts := Starts(roles, 40, stream)
	if want := []float64{0, math.Log(0.5), math.Log(0.5), math.Log(0.1)}; !slices.Equal(starts[0], want) {
		t.Errorf("the first start is %v, want %v", starts[0], want)
	}
	for i, more := range Starts(roles, 50, stream)[:40] {
		if !slices.Equal(more, starts[i]) {
			t.Errorf("start %d depends on how many there are", i)
		}
	}
	if slices.Equal(starts[10], starts[11]) {
		t.Error("two starts are the same")
	}
}
