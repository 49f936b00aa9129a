package surrogate

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Guard tells how far a point is from those where the function was observed, beyond which
// no model is to be believed.
type Guard struct {
	white *Whitening
	z     [][]float64
	reach float64
}

// reachOrder is the share of observed points whose nearest neighbour is within the reach.
const reachOrder = 0.95

// Scatter returns the whitening by the mean and the covariance of the points themselves: where these have followed a
// posterior that is far from normal, distances in its tails are not what they are at its mode.
func Scatter(points [][]float64) (*Whitening, error) {
	var cov mat.SymDense
	stat.CovarianceMatrix(&cov, mat.NewDense(len(points), len(points[0]), slices.Concat(points...)), nil)
	mean := make([]float64, len(points[0]))
	for _, x := range points {
		floats.AddScaled(mean, 1/float64(len(points)), x)
	}
	return NewWhitening(mean, &cov)
}

// NewGuard returns the guard of the observed points, with distances in units of a whitening.
func NewGuard(w *Whitening, points [][]float64) *Guard {
	g := &Guard{white: w}
	for _, x := range points {
		g.z = append(g.z, w.Apply(x))
	}
	var nearest []float64
	for i, z := range g.z {
		least := math.Inf(1)
		for j, o := range g.z {
			if j != i {
				least = min(least, squared(z, o))
			}
		}
		nearest = append(nearest, math.Sqrt(least))
	}
	slices.SortFunc(nearest, cmp.Compare)
	g.reach = nearest[min(len(nearest)-1, int(reachOrder*float64(len(nearest))))]
	return g
}

// Distance returns the distance of x from the nearest observed point, in standard deviations
// of the posterior.
func (g *Guard) Distance(x []float64) float64 {
	z, least := g.white.Apply(x), math.Inf(1)
	for _, o := range g.z {
		least = min(least, squared(z, o))
	}
	return math.Sqrt(least)
}

// Reach is the distance that most observed points are within of each other.
func (g *Guard) Reach() float64 { return g.reach }

// Penalty is what to subtract from a log density at x that was not observed: nothing within
// the reach, and half the square of what is beyond it.
func (g *Guard) Penalty(x []float64) float64 {
	d := max(0, g.Distance(x)-g.reach)
	return d * d / 2
}

// Scattered returns the indices of count of the points, of all if they are fewer: each is the one farthest from
// those that were observed and from those before it.
func (g *Guard) Scattered(points [][]float64, count int) []int {
	z, least := make([][]float64, len(points)), make([]float64, len(points))
	for i, x := range points {
		z[i], least[i] = g.white.Apply(x), math.Inf(1)
		for _, o := range g.z {
			least[i] = min(least[i], squared(z[i], o))
		}
	}
	var out []int
	for len(out) < min(count, len(points)) {
		far := floats.MaxIdx(least)
		out = append(out, far)
		for i := range least {
			least[i] = min(least[i], squared(z[i], z[far]))
		}
		least[far] = math.Inf(-1) // once
	}
	return out
}

// Mild is a penalty as Penalty is up to a standard deviation beyond the reach, and grows as the distance does farther
// out: for distances that are measured in the spread of the observed points themselves, where a posterior may go on.
func (g *Guard) Mild(x []float64) float64 {
	d := max(0, g.Distance(x)-g.reach)
	if d > 1 {
		return d - 0.5
	}
	return d * d / 2
}

// Farthest returns the indices of those of the points that are beyond the reach, the farthest
// first, count at most, no two of them within the reach of each other.
func (g *Guard) Farthest(points [][]float64, count int) []int {
	type at struct {
		index    int
		z        []float64
		distance float64
	}
	var far []at
	for i, x := range points {
		if d := g.Distance(x); d > g.reach {
			far = append(far, at{i, g.white.Apply(x), d})
		}
	}
	slices.SortStableFunc(far, func(a, b at) int { return cmp.Compare(b.distance, a.distance) })
	var out []int
	var kept []at
	for _, f := range far {
		near := slices.ContainsFunc(kept, func(k at) bool { return squared(k.z, f.z) < g.reach*g.reach })
		if len(out) < count && !near {
			out, kept = append(out, f.index), append(kept, f)
		}
	}
	return out
}
