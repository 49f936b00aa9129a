package laplace

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// target is the likelihood of a problem's rows.
type target struct {
	problem *posterior.Problem
	rows    []likelihood.Likelihood // of each row; nil of several latent functions
}

func newTarget(p *posterior.Problem) target {
	t := target{problem: p}
	if p.Functions() > 1 {
		return t
	}
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

// curvature is W: of latent functions c and d an element for each row, nil where all are zero.
type curvature [][]float64

// of returns the elements of c and d.
func (w curvature) of(c, d int) []float64 {
	size := int(math.Sqrt(float64(len(w))))
	return w[c*size+d]
}

// trace returns that of W.
func (w curvature) trace() (sum float64) {
	for c := 0; c*c < len(w); c++ {
		sum += floats.Sum(w.of(c, c))
	}
	return sum
}

// expand evaluates the likelihood at all latent functions, one after the other.
func (t *target) expand(own, f []float64) (sum float64, score []float64, w curvature) {
	l, ok := t.problem.Likelihood.(likelihood.Several)
	if !ok {
		var one []float64
		sum, score, one = t.terms(own, f)
		return sum, score, curvature{one}
	}
	n, size := len(t.problem.Y), l.Functions()
	at, s, c := make([]float64, size), make([]float64, size), make([]float64, size*size)
	score, w = make([]float64, len(f)), make(curvature, size*size)
	for k := range w {
		if k%(size+1) == 0 || l.Coupled() {
			w[k] = make([]float64, n)
		}
	}
	for i, y := range t.problem.Y {
		for k := range at {
			at[k] = f[k*n+i]
		}
		sum += l.Terms(own, y, at, s, c)
		for k, v := range s {
			score[k*n+i] = v
		}
		for k := range w {
			if w[k] != nil {
				w[k][i] = c[k]
			}
		}
	}
	return sum, score, w
}

// value returns the sum of the log densities at f.
func (t *target) value(own, f []float64) (sum float64) {
	if l, ok := t.problem.Likelihood.(likelihood.Several); ok {
		n, at := len(t.problem.Y), make([]float64, l.Functions())
		for i, y := range t.problem.Y {
			for k := range at {
				at[k] = f[k*n+i]
			}
			sum += l.Terms(own, y, at, nil, nil)
		}
		return sum
	}
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
