package surrogate

import (
	"cmp"
	"math"
	"slices"
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

// NewGuard returns the guard of the observed points.
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
