package driver

import (
	"context"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

func prepared(t *testing.T, solver string) (*Driver, *chains.Prepared) {
	t.Helper()
	s, err := job.Parse(strings.NewReader("name: t\ndata: {synthetic: {n: 700, d: 2, sigma: 2, tau: [0.5], lambda: 0.1}}\n"+
		"sampler: {method: fisher, chains: 2, subset: 100}\nsolver: "+solver+"\n"), "t")
	if err != nil {
		t.Fatal(err)
	}
	ctx, budget := context.Background(), parallel.NewBudget(0)
	if err := budget.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(budget.Release)
	data, err := s.Load(ctx, nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(p.Model.Names(), len(p.Y))
	d := New(Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
		Operator: func(int) Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
	prep, err := d.Prepare(ctx, &chains.Preparation{})
	if err != nil {
		t.Fatal(err)
	}
	return d, prep
}

// What auto chooses is looser than the fine tolerance and, with other probes
// than those it was chosen with and a sd away from the mode, still leaves a
// gradient within a few hundredths of a posterior sd of the fine one's.
func TestChosenTolerance(t *testing.T) {
	d, prep := prepared(t, "{preconditioner: {kind: rpcholesky, rank: 30}}")
	if !(prep.Tolerance > fineTolerance && prep.Tolerance < 0.1) {
		t.Fatalf("tolerance %g", prep.Tolerance)
	}
	cov := (&chains.Settings{C: prep.Cov}).Metric()
	pre, err := d.atMode(t.Context(), prep, d.Operator(1))
	if err != nil {
		t.Fatal(err)
	}
	var info mat.SymDense
	var chol mat.Cholesky
	if !chol.Factorize(cov) || chol.InverseTo(&info) != nil {
		t.Fatal("the covariance at the mode is singular")
	}
	key := random.Key{Seed: 99}
	at := typical(prep.Psi, &info, key)
	var g [2]*posterior.Gradient
	for i, tolerance := range []float64{d.tolerance(prep), fineTolerance} {
		src, err := d.newSource(d.Problem, d.Operator(1), pre, tolerance, false)
		if err != nil {
			t.Fatal(err)
		}
		if g[i], _, err = d.gradient(context.Background(), src, request{Request: sampler.Request{Psi: at, Key: key, Probes: PrepareProbes}}); err != nil {
			t.Fatal(err)
		}
	}
	diff := mat.NewVecDense(len(at), nil)
	diff.SubVec(mat.NewVecDense(len(at), g[0].Value), mat.NewVecDense(len(at), g[1].Value))
	if shift := math.Sqrt(mat.Inner(diff, cov, diff)); shift == 0 || shift > 5*toleranceShift {
		t.Errorf("solves to %g instead of %g move the posterior by %g sd", prep.Tolerance, fineTolerance, shift)
	}
}

func TestGivenToleranceIsKept(t *testing.T) {
	d, prep := prepared(t, "{tolerance: 1e-5}")
	if prep.Tolerance != 0 || d.tolerance(prep) != 1e-5 {
		t.Errorf("chosen %g, used %g, given 1e-5", prep.Tolerance, d.tolerance(prep))
	}
}
