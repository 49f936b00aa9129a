package sgld

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Hamiltonian is Hamiltonian Monte Carlo with unit masses (Neal 2011, figure 2) on a log density with a gradient: what it moves
// is best about standard normal. A trajectory takes a number of leapfrog steps that is uniform from 1 to a largest one.
type Hamiltonian struct {
	// Density returns the log density at x up to a constant and its gradient, −∞ and nil outside of its support.
	Density func(ctx context.Context, x []float64) (value float64, grad []float64, err error)
}

// Point is a point with the log density and its gradient there.
type Point struct {
	X     []float64
	Value float64
	Grad  []float64
}

// At returns the point at x.
func (h *Hamiltonian) At(ctx context.Context, x []float64) (*Point, error) {
	v, g, err := h.Density(ctx, x)
	if math.IsNaN(v) || g == nil || floats.HasNaN(g) {
		v, g = math.Inf(-1), nil
	}
	return &Point{x, v, g}, err
}

// Advance moves from a point by one trajectory, and returns where the chain is then, the probability with which the end was to be
// accepted, and whether it was. The only errors are those of the density.
func (h *Hamiltonian) Advance(ctx context.Context, from *Point, step float64, most int, r *rand.Rand) (to *Point, acceptance float64, accepted bool, err error) {
	momentum := make([]float64, len(from.X))
	for i := range momentum {
		momentum[i] = r.NormFloat64()
	}
	steps, u := 1+r.IntN(most), r.Float64()
	energy := from.Value - 0.5*floats.Dot(momentum, momentum)
	to = from
	for range steps {
		if to.Grad == nil {
			return from, 0, false, nil
		}
		floats.AddScaled(momentum, step/2, to.Grad)
		x := slices.Clone(to.X)
		floats.AddScaled(x, step, momentum)
		if to, err = h.At(ctx, x); err != nil {
			return nil, 0, false, err
		}
		if to.Grad != nil {
			floats.AddScaled(momentum, step/2, to.Grad)
		}
	}
	if to.Grad == nil {
		return from, 0, false, nil
	}
	acceptance = math.Exp(min(0, to.Value-0.5*floats.Dot(momentum, momentum)-energy))
	if u < acceptance {
		return to, acceptance, true, nil
	}
	return from, acceptance, false, nil
}

// The pairs of a step, in units of dim^(−¼), and of a largest number of leapfrog steps that are compared in
// warm-up.
var trajectorySteps, trajectoryLengths = []float64{0.25, 0.5, 1, 2}, []int{3, 6, 12}

// usual is the trajectory before any were compared.
const usual = 4

// Trajectories is what is known of them: the mean squared distance that a trajectory goes, over the root of the largest number
// of leapfrog steps, is to be largest (Wang, Mohamed and de Freitas 2013). They are tried in turn.
type Trajectories struct {
	Tried int
	Jumps []float64 // sums of squared distances, of each
}

// Memory returns the state as numbers.
func (t *Trajectories) Memory() []float64 { return append([]float64{float64(t.Tried)}, t.Jumps...) }

// ReadTrajectories returns the state of such numbers, that of no trajectories of none.
func ReadTrajectories(m []float64) (*Trajectories, error) {
	count := len(trajectorySteps) * len(trajectoryLengths)
	switch {
	case len(m) == 0:
		return &Trajectories{Jumps: make([]float64, count)}, nil
	case len(m) != 1+count || m[0] < 0:
		return nil, errors.New("the chain's memory is not that of Hamiltonian Monte Carlo")
	}
	return &Trajectories{Tried: int(m[0]), Jumps: slices.Clone(m[1:])}, nil
}

func trajectory(i, dim int) (step float64, most int) {
	k := len(trajectoryLengths)
	return trajectorySteps[i/k] * math.Pow(float64(dim), -0.25), trajectoryLengths[i%k]
}

// Next returns the trajectory to try next.
func (t *Trajectories) Next(dim int) (step float64, most int) {
	return trajectory(t.Tried%len(t.Jumps), dim)
}

// Tell tells of the squared distance that it went.
func (t *Trajectories) Tell(squared float64) {
	t.Jumps[t.Tried%len(t.Jumps)] += squared
	t.Tried++
}

// Best returns the best trajectory.
func (t *Trajectories) Best(dim int) (step float64, most int) {
	best, top := usual, 0.0
	for i, sum := range t.Jumps {
		times := (t.Tried + len(t.Jumps) - 1 - i) / len(t.Jumps)
		_, length := trajectory(i, dim)
		if mean := sum / (float64(times) * math.Sqrt(float64(length))); mean > top {
			best, top = i, mean
		}
	}
	return trajectory(best, dim)
}
