package predict

import (
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// MaxAutoDraws bounds the draws that predictions are averaged over unless more
// are asked for: of a hundred independent draws the mean is within a tenth of
// the spread between draws, which itself is the smaller part of a prediction's
// variance.
const MaxAutoDraws = 100

// Thin chooses want draws of those of all chains (draws of ψ, chain by chain),
// evenly spaced, as many from each chain as from any other but for one. If want is
// 0 it takes as many as the chains hold independent draws, the least bulk
// effective sample size of the parameters, and at most MaxAutoDraws. Draws that
// some chain has beyond the number that all have are left out.
func Thin(chains [][][]float64, want int) [][]float64 {
	m, turns := len(chains), shortest(chains)
	if want <= 0 {
		want = independent(chains)
	}
	want = min(want, m*turns)
	var out [][]float64
	rounds := (want + m - 1) / max(1, m)
	for r := range rounds {
		for c := 0; c < m && len(out) < want; c++ {
			out = append(out, chains[c][(2*r+1)*turns/(2*rounds)])
		}
	}
	return out
}

// shortest returns the number of draws that all chains have.
func shortest(chains [][][]float64) int {
	if len(chains) == 0 {
		return 0
	}
	n := math.MaxInt
	for _, c := range chains {
		n = min(n, len(c))
	}
	return n
}

// independent returns the effective number of the chains' draws, between 1 and
// MaxAutoDraws.
func independent(chains [][][]float64) int {
	turns := shortest(chains)
	if turns == 0 {
		return 1
	}
	least := math.Inf(1)
	for i := range chains[0][0] {
		x := make([][]float64, len(chains))
		for c, draws := range chains {
			for _, psi := range draws[:turns] {
				x[c] = append(x[c], psi[i])
			}
		}
		if ess := diagnostics.ESSBulk(x); !math.IsNaN(ess) {
			least = min(least, ess)
		}
	}
	if math.IsInf(least, 1) { // too few draws to tell
		return min(turns, MaxAutoDraws)
	}
	return max(1, min(MaxAutoDraws, int(least)))
}

// mean returns the mean of the draws.
func mean(draws [][]float64) []float64 {
	m := make([]float64, len(draws[0]))
	for _, psi := range draws {
		for i, x := range psi {
			m[i] += x / float64(len(draws))
		}
	}
	return m
}

// path returns an order of the draws in which each is followed by the nearest
// of those left, beginning with the one nearest to the mean, so that the
// solutions of one are good starts for the next. Distances are in standard
// deviations of the draws.
func path(draws [][]float64) []int {
	centre := mean(draws)
	scale := make([]float64, len(centre))
	for _, psi := range draws {
		for i, x := range psi {
			scale[i] += (x - centre[i]) * (x - centre[i])
		}
	}
	distance := func(a, b []float64) float64 {
		var d float64
		for i := range a {
			if scale[i] > 0 {
				d += (a[i] - b[i]) * (a[i] - b[i]) / scale[i]
			}
		}
		return d
	}
	left := make([]int, len(draws))
	for i := range left {
		left[i] = i
	}
	order := make([]int, 0, len(draws))
	for at := centre; len(left) > 0; {
		best := 0
		for k := range left {
			if distance(at, draws[left[k]]) < distance(at, draws[left[best]]) {
				best = k
			}
		}
		at, order = draws[left[best]], append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}
