package predict

import (
	"errors"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// augmentedExample is example under another likelihood: classes, or counts.
func augmentedExample(l likelihood.Likelihood, draws int) (Config, *kernel.Inputs) {
	c, points := example(kernel.RBF, false, 40, 2, 6, draws)
	p := c.Problem
	y := slices.Clone(p.Y)
	for i, v := range y {
		y[i] = 0
		if v > 0 {
			y[i] = 1
		}
	}
	m := posterior.NewModel(p.Covariance, l, func(param.Param) param.Prior { return param.Prior{} })
	c.Problem = posterior.NewProblem(m, p.Inputs, y)
	for t, psi := range c.Draws {
		c.Draws[t] = psi[:m.NumParams()]
	}
	return c, points
}

// Auxiliary variables are drawn to the same bits whatever rows are asked for side by side, on one core
// and on two, and are kept with the solutions, so that the next predictor computes none.
func TestAugmentedPredictionsAreRepeatable(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for _, l := range []likelihood.Likelihood{likelihood.Bernoulli{}, likelihood.StudentT{DF: 4}, likelihood.NegativeBinomial{}} {
		c, points := augmentedExample(l, 6)
		c.Solutions = &Solutions{Dir: t.TempDir()}
		want, _ := predict(t, c, Options{Latent: true}, points)

		alone := c
		alone.Solutions, alone.Budget = nil, parallel.NewBudget(1)
		for i := range points.Len() {
			m, _ := predict(t, alone, Options{Latent: true}, points.Select([]int{i}))
			for s := range c.Draws {
				if m.Mean[s][0] != want.Mean[s][i] || m.Var[s][0] != want.Var[s][i] {
					t.Errorf("%s: row %d at draw %d is %v ± %v alone, %v ± %v among others", l.Name(), i, s, m.Mean[s][0], m.Var[s][0], want.Mean[s][i], want.Var[s][i])
				}
			}
		}
		solved := 0
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := p.Predict(t.Context(), points, Options{Latent: true, Progress: func(at Progress) {
			if at.Stage == SolutionsStage {
				solved++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if solved > 0 || !slices.EqualFunc(again.Mean, want.Mean, slices.Equal) || !slices.EqualFunc(again.Var, want.Var, slices.Equal) {
			t.Errorf("%s: %d solutions were not kept, or others were", l.Name(), solved)
		}
		if _, _, err := p.Predict(t.Context(), points, Options{Variance: Surface}); !errors.Is(err, errSurface) {
			t.Errorf("%s: a surface of variances: %v", l.Name(), err)
		}
	}
}
