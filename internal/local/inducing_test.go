package local

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// agree compares the draws of two runs: means within 4 standard errors and 0.05 sd, sds within 4 and 5 %.
func agree(t *testing.T, name string, got, want [][]float64) {
	t.Helper()
	mx, sx := moments(got)
	my, sy := moments(want)
	ess := diagnostics.ESSBulk(got)
	t.Logf("%s: %.3f ± %.3f (ESS %.0f), want %.3f ± %.3f (ESS %.0f)", name, mx, sx, ess, my, sy, diagnostics.ESSBulk(want))
	if e := 4 * math.Hypot(diagnostics.MCSEMean(got), diagnostics.MCSEMean(want)); math.Abs(mx-my) > 0.05*sy+e {
		t.Errorf("%s: mean %v, want %v", name, mx, my)
	}
	if e := 4 * math.Hypot(diagnostics.MCSESD(got), diagnostics.MCSESD(want)); math.Abs(sx-sy) > 0.05*sy+e {
		t.Errorf("%s: sd %v, want %v", name, sx, sy)
	}
	if ess < 0.1*float64(len(got)*len(got[0])) {
		t.Errorf("%s: %.0f effective draws of %d", name, ess, len(got)*len(got[0]))
	}
}

// Under Gaussian noise the marginal density of ψ is SGPR's bound, which a random walk draws from without inducing variables.
func TestInducingVariablesUnderGaussianNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds")
	}
	s := spec(t, "name: few\nseed: 2\ndata: {synthetic: {n: 40, d: 1, sigma: 1.5, tau: 0.5, lambda: 0.1, seed: 4}}\nmodel: {approximation: {kind: sgpmc, inducing: 4}}\n"+
		"sampler: {chains: 3, draws: 120, warmup: 60}\nstop: {max_draws: 120}\n")
	c := config(t, s, 2, t.TempDir())
	r := run(t, c)
	p := c.Driver.Problem
	bound := posterior.NewSparse(p, sparse.SGPR, s.Induced(p, c.Budget), c.Budget)
	density := func(psi []float64) float64 {
		v, _, err := bound.At(context.Background(), psi)
		if err != nil {
			t.Fatal(err)
		}
		prior, _ := p.LogPrior(psi)
		return v + prior
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	walks := make([][][]float64, 3) // by parameter, then chain
	for k := range walks {
		walks[k] = make([][]float64, 3)
	}
	for walk := range 3 {
		psi := r.Prepared.Starts[walk]
		at := density(psi)
		for i := range 3000 {
			next := make([]float64, 3)
			for k := range next {
				next[k] = psi[k] + 1.2*math.Sqrt(chains.Symmetric(r.Prepared.Cov).At(k, k))*rnd.NormFloat64()
			}
			if v := density(next); math.Log(rnd.Float64()) < v-at {
				psi, at = next, v
			}
			for k := range psi {
				if i >= 400 {
					walks[k][walk] = append(walks[k][walk], psi[k])
				}
			}
		}
	}
	for k, name := range r.Plan.Names {
		agree(t, name, r.Column(k, r.MinDraws()), thinned(walks[k], 8))
	}
}

// thinned returns each of so many draws.
func thinned(x [][]float64, each int) [][]float64 {
	out := make([][]float64, len(x))
	for c := range x {
		for i := 0; i < len(x[c]); i += each {
			out[c] = append(out[c], x[c][i])
		}
	}
	return out
}

// With all rows as inducing inputs the draws are the exact posterior's: of counts, which Gibbs draws from by auxiliary variables.
func TestInducingVariablesAtTheRowsAreExact(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds")
	}
	const n = 20
	var table strings.Builder
	table.WriteString("x,y\n")
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range n {
		x := float64(i) / 3
		count, limit := -1, math.Exp(-math.Exp(0.6+0.8*math.Sin(2*x)))
		for u := 1.0; u > limit; count++ {
			u *= rnd.Float64()
		}
		fmt.Fprintf(&table, "%v,%d\n", x, count)
	}
	counts := func(model, sampler string) *chains.Run {
		s := spec(t, "name: counts\nseed: 3\ndata: {path: table.csv, target: y}\nmodel: {likelihood: poisson, priors: {sigma: \"lognormal(0,0.5)\", tau: \"lognormal(0,0.5)\"}"+model+"}\nsampler: {chains: 2, "+sampler+"}\nstop: {max_draws: 250}\n")
		budget := parallel.NewBudget(2)
		ds, err := s.Load(context.Background(), strings.NewReader(table.String()), budget)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Problem(ds)
		if err != nil {
			t.Fatal(err)
		}
		plan := s.Plan(p.Model.Names(), n)
		d := driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
			Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
		return run(t, Config{Plan: plan, Driver: d, Budget: budget, Journal: t.TempDir() + "/journal"})
	}
	r := counts(", approximation: {kind: sgpmc, inducing: 20, place: rows}", "draws: 120, warmup: 60")
	want := counts("", "draws: 250")
	for k, name := range r.Plan.Names {
		agree(t, name, r.Column(k, r.MinDraws()), want.Column(k, want.MinDraws()))
	}
}
