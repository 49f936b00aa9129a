package posterior

import (
	"math"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// The symmetries of models over two inputs that are one but for shift and sign, and a third of its own: all are found, none
// else, and the dense density is the same where parameters have changed places and another where any two others have.
func TestSymmetries(t *testing.T) {
	inputs := []expression.Input{{Name: "a", SD: 1}, {Name: "b", SD: 1}, {Name: "c", SD: 1}}
	for _, m := range []struct {
		text   string
		priors map[string]string // that are others
		want   [][]int
	}{
		{"u: rbf(a) + v: rbf(b)", nil, [][]int{{2, 3, 0, 1, 4}}},
		{"u: rbf(a) + v: rbf(c)", nil, nil},
		{"u: rbf(a) + v: matern32(b)", nil, nil},
		{"u: rbf(a) + v: rbf(b)", map[string]string{"v.variance": "gamma(3,1)"}, nil},
		{"u: rbf(a) + w: rbf(c) + v: rbf(b)", nil, [][]int{{4, 5, 2, 3, 0, 1, 6}}},
		{"u: rbf(a, b, c, ard)", nil, [][]int{{0, 2, 1, 3, 4}}},
		{"u: rbf(a, c, ard) + v: rbf(b, c, ard)", nil, [][]int{{3, 4, 5, 0, 1, 2, 6}}},
		{"u: rbf(a) * matern52(c) + v: rbf(b) * matern52(c)", nil, [][]int{{3, 4, 5, 0, 1, 2, 6}}},
		{"u: rbf(a) * matern52(c)", nil, nil},
	} {
		p := testProblem(t, kernel.RBF, 40, 3, false)
		x := make([]float64, 0, 120)
		for i := range 40 {
			row := p.Inputs.Row(i)
			x = append(x, row[0], 0.7-row[0], row[2])
		}
		e, err := expression.Parse(m.text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := e.Covariance(inputs)
		if err != nil {
			t.Fatal(err)
		}
		p = NewProblem(NewModel(c, likelihood.Gaussian{}, func(q param.Param) param.Prior {
			text := "gamma(1,1)"
			if other, ok := m.priors[q.Name()]; ok {
				text = other
			}
			prior, err := param.ParsePrior(text, q.Role)
			if err != nil {
				t.Fatal(err)
			}
			return prior
		}), kernel.NewInputs(40, 3, x), p.Y)
		got := p.Symmetries()
		if !slices.EqualFunc(got, m.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", m.text, got, m.want)
		}
		d := NewDense(p, parallel.NewBudget(1))
		psi := testPsi(p.Model)
		for _, s := range got {
			if a, b := d.LogDensity(psi), d.LogDensity(permuted(psi, s)); math.Abs(a-b) > 1e-8 {
				t.Errorf("%s: the density is %v and, where %v, %v", m.text, a, s, b)
			}
		}
		for i := range psi {
			for j := range i {
				s := make([]int, len(psi))
				for k := range s {
					s[k] = k
				}
				s[i], s[j] = j, i
				is := slices.ContainsFunc(m.want, func(w []int) bool { return slices.Equal(w, s) })
				if a, b := d.LogDensity(psi), d.LogDensity(permuted(psi, s)); !is && math.Abs(a-b) < 1e-6 {
					t.Errorf("%s: %d and %d can change places, and the density stays %v", m.text, i, j, a)
				}
			}
		}
	}
}
