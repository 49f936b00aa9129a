package predict

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// What is told of a target of which the logarithm was learnt is log-normal, with the moments of dense algebra:
// rows, their scores, paths, and rows left out.
func TestTransformedTargetAgainstDense(t *testing.T) {
	c, points := example(kernel.Matern52, false, 90, 2, 5, 1)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	info := &dataset.Info{Target: "y", InputNames: []string{"a", "b"}, XScale: []dataset.Scale{{SD: 1}, {SD: 1}}, YScale: dataset.Scale{Mean: 1, SD: 0.4},
		Transform: likelihood.Transform{Kind: likelihood.Log}}
	psi := c.Draws[0]
	lognormal := func(points *kernel.Inputs, i int, noise float64) distuv.LogNormal {
		mean, variance := dense(t, c.Problem, psi, points.Select([]int{i}))
		return distuv.LogNormal{Mu: 1 + 0.4*mean[0], Sigma: 0.4 * math.Sqrt(variance[0]+noise)}
	}
	r := Request{Probs: []float64{0.1, 0.9}}
	for i := range points.Len() {
		r.X, r.Targets = append(r.X, points.Row(i)), append(r.Targets, math.Exp(0.5+0.1*float64(i)))
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	noise := math.Exp(psi[len(psi)-1])
	for _, latent := range []bool{false, true} {
		rows, _, err := p.Rows(t.Context(), info, r, Options{Latent: latent, Tolerance: 1e-7})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			target := lognormal(points, i, noise)
			told := target
			if latent {
				told = lognormal(points, i, 0)
			}
			near("the mean", row.Mean, told.Mean())
			near("the sd", row.SD, told.StdDev())
			near("a quantile", row.Quantiles[1], told.Quantile(0.9))
			near("the log density", row.LogDensity, target.LogProb(r.Targets[i]))
			near("the PIT", row.PIT, target.CDF(r.Targets[i]))
		}
	}
	left, _, err := p.LeftOutDraws(t.Context(), info, []int{3, 50}, Options{Tolerance: 1e-7})
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range []int{3, 50} {
		mean, variance := dense(t, without(c.Problem, row), psi, c.Problem.Inputs.Select([]int{row}))
		want, y := distuv.LogNormal{Mu: 1 + 0.4*mean[0], Sigma: 0.4 * math.Sqrt(variance[0]+noise)}, math.Exp(1+0.4*c.Problem.Y[row])
		near("the log density of a row left out", left.LogDensity[0][k], want.LogProb(y))
		near("its mean", left.Mean[0][k], want.Mean())
	}
	paths, _, err := p.Rows(t.Context(), info, Request{X: r.X, Paths: 3, Seed: 1}, Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	plain := *info
	plain.Transform = likelihood.Transform{}
	logs, _, err := p.Rows(t.Context(), &plain, Request{X: r.X, Paths: 3, Seed: 1}, Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	near("a path", paths[2].Paths[1], math.Exp(logs[2].Paths[1]))

	r.Targets[2] = -1
	if _, _, err := p.Rows(t.Context(), info, r, Options{}); err == nil || !strings.Contains(err.Error(), "the target of row 3: -1 has no logarithm") {
		t.Errorf("a target that cannot be: %v", err)
	}
	if _, _, err := p.Rows(t.Context(), info, Request{X: r.X, Covariance: true}, Options{}); err == nil || !strings.Contains(err.Error(), "ask for sample paths") {
		t.Errorf("a joint covariance: %v", err)
	}
}
