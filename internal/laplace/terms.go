package laplace

import (
	"slices"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// target is the likelihood of a problem's rows.
type target struct {
	problem *posterior.Problem
	rows    []likelihood.Likelihood // of each row
}

func newTarget(p *posterior.Problem) target {
	t := target{problem: p}
	for i := range p.Y {
		t.rows = append(t.rows, likelihood.At(p.Likelihood, i))
	}
	return t
}

func (t *target) offset(i int) float64 {
	if t.problem.Offset == nil {
		return 0
	}
	return t.problem.Offset[i]
}

// terms evaluates the likelihood at f: the sum of the log densities, scores and curvatures.
func (t *target) terms(own, f []float64) (sum float64, score, w []float64) {
	score, w = make([]float64, len(f)), make([]float64, len(f))
	for i, y := range t.problem.Y {
		v, s, c := t.rows[i].LogDensity(own, y, f[i]+t.offset(i))
		sum += v
		score[i], w[i] = s, max(c, least)
	}
	return sum, score, w
}

// value returns the sum of the log densities at f.
func (t *target) value(own, f []float64) (sum float64) {
	for i, y := range t.problem.Y {
		v, _, _ := t.rows[i].LogDensity(own, y, f[i]+t.offset(i))
		sum += v
	}
	return sum
}

// difference is the half-width of central differences of the likelihood's score and curvature.
const difference = 1e-4

// slopes returns s_j = −½ S_jj ∂W_jj/∂f_j of the diagonal of S.
func (t *target) slopes(own, f, spread []float64) []float64 {
	s := make([]float64, len(f))
	for j, y := range t.problem.Y {
		at := f[j] + t.offset(j)
		_, _, up := t.rows[j].LogDensity(own, y, at+difference)
		_, _, down := t.rows[j].LogDensity(own, y, at-difference)
		s[j] = -0.5 * spread[j] * (up - down) / (2 * difference)
	}
	return s
}

// ownTerms returns the derivative in element q of ψ, a parameter of the likelihood, of log p(y|f) and −½ log|B| with f as it is, and that of the
// score.
func (t *target) ownTerms(psi, f, spread []float64, q int) (sum float64, ds []float64) {
	at := func(by float64) (float64, []float64, []float64) {
		x := slices.Clone(psi)
		x[q] += by
		_, own := t.problem.Natural(x)
		return t.terms(own, f)
	}
	up, su, wu := at(difference)
	down, sd, wd := at(-difference)
	sum = (up - down) / (2 * difference)
	ds = make([]float64, len(f))
	for j := range f {
		sum -= 0.5 * spread[j] * (wu[j] - wd[j]) / (2 * difference)
		ds[j] = (su[j] - sd[j]) / (2 * difference)
	}
	return sum, ds
}
