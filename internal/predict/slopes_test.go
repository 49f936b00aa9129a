package predict

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The mean slope is the difference quotient of the predicted mean, and the slope's variance that of the quotient of
// the latent function, whose covariances are computed densely.
func TestSlopesAgainstDifferences(t *testing.T) {
	const h = 1e-4
	sum, err := kernel.Parse("a*rbf(1:u)*matern52(2:v)+b*matern32(1-3:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	for f, near := range map[*kernel.Covariance]float64{sum: 3e-3, kernel.Single(kernel.Matern52, 2, true): 1e-4, kernel.Single(kernel.RBF, 3, false): 1e-4} {
		c, points := exampleOf(f, 120, 4, 2)
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		got, stats, err := p.Slopes(t.Context(), points, Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := points.Dim()
		if stats.Rows != 4 || stats.Solves != 2*4*d || stats.Unconverged > 0 || stats.Bound > 1.01*DefaultTolerance {
			t.Errorf("%v: %+v", f, stats)
		}
		for i := range points.Len() {
			for k := range d {
				up, down := slices.Clone(points.Row(i)), slices.Clone(points.Row(i))
				up[k] += h
				down[k] -= h
				pair := kernel.NewInputs(2, d, slices.Concat(up, down))
				m, _, err := p.Predict(t.Context(), pair, Options{Tolerance: 1e-8, Latent: true})
				if err != nil {
					t.Fatal(err)
				}
				for s, psi := range c.Draws {
					if want := (m.Mean[s][0] - m.Mean[s][1]) / (2 * h); math.Abs(got.Mean[s][i*d+k]-want) > 1e-4*(1+math.Abs(want)) {
						t.Errorf("%v: mean slope %g, by differences %g", f, got.Mean[s][i*d+k], want)
					}
					_, cov := denseJoint(t, c.Problem, psi, pair)
					step := mat.NewVecDense(2, []float64{1 / (2 * h), -1 / (2 * h)})
					if want := mat.Inner(step, cov, step); math.Abs(got.Var[s][i*d+k]-want) > near*(1+want) {
						t.Errorf("%v: a slope's variance %g, by differences %g", f, got.Var[s][i*d+k], want)
					}
				}
			}
		}
	}
}

// A row's slopes do not depend on the rows beside it or on threads.
func TestSlopesHoweverSplit(t *testing.T) {
	c, points := example(kernel.Matern52, false, 150, 3, 50, 2)
	slope := func(points *kernel.Inputs) *Moments {
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		m, _, err := p.Slopes(t.Context(), points, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := slope(points)
	c.Budget = parallel.NewBudget(3)
	part := slope(points.Select([]int{49, 7}))
	for s := range c.Draws {
		if !slices.Equal(part.Mean[s][3:], whole.Mean[s][21:24]) || !slices.Equal(part.Var[s][:3], whole.Var[s][147:]) {
			t.Errorf("draw %d: alone, rows have other slopes", s)
		}
	}
}

func TestSlopesOfRoughFunctions(t *testing.T) {
	c, points := example(kernel.Matern12, false, 50, 2, 1, 1)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Slopes(t.Context(), points, Options{}); err == nil || !strings.Contains(err.Error(), "not differentiable") {
		t.Errorf("error %v", err)
	}
}
