package driver

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler/samplertest"
)

// latentChain returns a chain of 7 rows that carries latent vectors.
func latentChain(t *testing.T) *Chain {
	t.Helper()
	s, err := job.Parse(strings.NewReader("name: t\ndata: {synthetic: {n: 7, d: 1, sigma: 2, tau: [0.5], lambda: 0.1}}\n"+
		"sampler: {method: chaotic, chains: 2, subset: 100}\nsolver: {method: cg, preconditioner: {kind: none}}\n"), "t")
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(1)
	if err := budget.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer budget.Release()
	data, err := s.Load(t.Context(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(p.Model.Names(), len(p.Y))
	c, err := New(Config{Spec: s, Problem: p, Plan: &plan, Budget: budget}).NewChain(t.Context(), &chains.Prepared{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func latentTask(from chains.State, iterations int) chains.Task {
	from.Psi = slices.Clone(from.Psi)
	return chains.Task{Chain: 1, From: from, Iterations: iterations}
}

// A chain goes on from the vectors that its state names and from no others, wherever
// it is driven; they are those of the recurrence.
func TestLatentVectors(t *testing.T) {
	begin := chains.State{Psi: []float64{0, 0, 0}}
	advance := func(c *Chain, from chains.State, iterations int) *chains.Checkpoint {
		t.Helper()
		k, err := c.Advance(t.Context(), latentTask(from, iterations))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one := latentChain(t)
	half := advance(one, begin, 30)
	blob := one.Latent()
	v := latent.New(2, 7)
	for iter := 1; iter <= 30; iter++ {
		samplertest.Advance(v, random.Key{Seed: one.d.Plan.Seed, Chain: 1, Iter: iter})
	}
	if want := latent.RefOf(latent.Encode(v)); half.State.Latent != want || latent.RefOf(blob) != want || want.Size != one.d.Plan.Latent {
		t.Errorf("the checkpoint names %v of %v, the recurrence gives %v, the plan %d bytes", half.State.Latent, latent.RefOf(blob), want, one.d.Plan.Latent)
	}
	end := advance(one, half.State, 30)

	two := latentChain(t)
	if ref, lacks := two.Lacks(&half.State); !lacks || ref != half.State.Latent {
		t.Errorf("a new chain lacks %v, %v", ref, lacks)
	}
	if _, err := two.Advance(t.Context(), latentTask(half.State, 1)); err == nil {
		t.Error("a new chain goes on from nothing")
	}
	for what, bad := range map[string][]byte{"other rows": latent.Encode(latent.New(2, 8)), "fewer": latent.Encode(latent.New(1, 7)), "cut": blob[:30]} {
		if err := two.Give(bad); !errors.Is(err, latent.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := two.Give(latent.Encode(latent.New(2, 7))); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Advance(t.Context(), latentTask(half.State, 1)); err == nil {
		t.Error("a new chain goes on from other vectors")
	}
	if err := two.Give(blob); err != nil {
		t.Fatal(err)
	}
	if _, lacks := two.Lacks(&half.State); lacks {
		t.Error("it lacks what it was given")
	}
	if got := advance(two, half.State, 30); got.State.Latent != end.State.Latent || !slices.EqualFunc(got.Draws, end.Draws, slices.Equal) {
		t.Error("the draws depend on who drives")
	}
	if got := advance(two, begin, 30); got.State.Latent != half.State.Latent {
		t.Error("a chain that begins again begins elsewhere")
	}

	one.latent[1][3] = math.NaN()
	if err := one.end(end); err == nil || !strings.Contains(err.Error(), "latent vector 2 is not finite") {
		t.Errorf("vectors that are no numbers: %v", err)
	}
}
