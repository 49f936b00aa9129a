package sgld

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// skewed is the log density of independent variables log x with x of a gamma distribution of shape 3: mean ψ(3), variance ψ'(3).
func skewed(_ context.Context, x []float64) (value float64, grad []float64, err error) {
	grad = make([]float64, len(x))
	for i, v := range x {
		value += 3*v - math.Exp(v)
		grad[i] = 3 - math.Exp(v)
	}
	return value, grad, nil
}

// Draws of a skewed density have its mean and variance: within five standard errors, by batch means, of which a false alarm is rarer than one
// in 10⁵. There is no density far to the left, which no trajectory ends at.
func TestHamiltonian(t *testing.T) {
	h := Hamiltonian{Density: func(ctx context.Context, x []float64) (float64, []float64, error) {
		if x[0] < -8 {
			return math.NaN(), nil, nil
		}
		return skewed(ctx, x)
	}}
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 2))
	at, err := h.At(ctx, []float64{0.5, 1})
	if err != nil {
		t.Fatal(err)
	}
	const draws, batch = 40_000, 400
	var batches, squares []float64
	var accepted int
	for i := range draws {
		var ok bool
		if at, _, ok, err = h.Advance(ctx, at, 0.6, 5, r); err != nil {
			t.Fatal(err)
		}
		if ok {
			accepted++
		}
		if i%batch == 0 {
			batches, squares = append(batches, 0), append(squares, 0)
		}
		const mean = 0.92278433509847
		batches[len(batches)-1] += at.X[0] / batch
		squares[len(squares)-1] += (at.X[0] - mean) * (at.X[0] - mean) / batch
	}
	for _, x := range []struct {
		name string
		got  []float64
		want float64
	}{{"mean", batches, 0.92278433509847}, {"variance", squares, 0.39493406684823}} {
		var mean, spread float64
		for _, b := range x.got {
			mean += b / float64(len(x.got))
		}
		for _, b := range x.got {
			spread += (b - mean) * (b - mean)
		}
		n := float64(len(x.got))
		if se := math.Sqrt(spread / (n * (n - 1))); math.Abs(mean-x.want) > 5*se {
			t.Errorf("%s %.4f ± %.4f, want %.4f", x.name, mean, se, x.want)
		}
	}
	if rate := float64(accepted) / draws; rate < 0.5 || rate == 1 {
		t.Errorf("%.2f of the trajectories were accepted", rate)
	}
}

// A trajectory with the end's momentum reversed comes back to where it began.
func TestTrajectoriesAreReversible(t *testing.T) {
	ctx := context.Background()
	x, p := []float64{0.3, -0.4}, []float64{0.7, 1.1}
	leap := func(x, p []float64) ([]float64, []float64) {
		x, p = slices.Clone(x), slices.Clone(p)
		for range 7 {
			for half := range 2 {
				_, g, _ := skewed(ctx, x)
				for i := range p {
					p[i] += 0.15 * g[i]
				}
				for i := range x {
					x[i] += float64(1-half) * 0.3 * p[i]
				}
			}
		}
		return x, p
	}
	y, q := leap(x, p)
	for i := range q {
		q[i] = -q[i]
	}
	if back, _ := leap(y, q); math.Abs(back[0]-x[0])+math.Abs(back[1]-x[1]) > 1e-12 {
		t.Errorf("from %v to %v", x, back)
	}
	// The kernel's own steps are these: with a momentum that is known, it goes where they go.
	h := Hamiltonian{Density: skewed}
	for seed := uint64(0); ; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		p = []float64{r.NormFloat64(), r.NormFloat64()}
		if r.IntN(7) != 6 {
			continue
		}
		from, _ := h.At(ctx, x)
		to, _, accepted, _ := h.Advance(ctx, from, 0.3, 7, rand.New(rand.NewPCG(seed, 0)))
		if !accepted {
			continue
		}
		if y, _ := leap(x, p); math.Abs(to.X[0]-y[0])+math.Abs(to.X[1]-y[1]) > 1e-12 {
			t.Errorf("to %v, want %v", to.X, y)
		}
		return
	}
}

// The best trajectory is that of the largest mean squared distance over the root of its length, whatever number of times each was tried.
func TestTrajectories(t *testing.T) {
	s, err := ReadTrajectories(nil)
	if err != nil {
		t.Fatal(err)
	}
	if step, most := s.Best(16); step != 0.25 || most != 6 {
		t.Errorf("before any was tried: %v, %d", step, most)
	}
	for i := range 2*len(s.Jumps) + 5 {
		_, most := s.Next(16)
		squared := float64(most)
		if i%len(s.Jumps) == 7 {
			squared = 20 // over √6
		}
		s.Tell(squared)
	}
	s, err = ReadTrajectories(s.Memory())
	if step, most := s.Best(16); err != nil || step != 0.5 || most != 6 {
		t.Errorf("the best is %v, %d (%v)", step, most, err)
	}
	if _, err := ReadTrajectories([]float64{1, 2}); err == nil {
		t.Error("a memory of two numbers")
	}
}
