// Package chainstest carries out the work of runs without data: draws are functions of
// chain and iteration alone.
package chainstest

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Plan returns a plan of three chains and three parameters.
func Plan(method string) chains.Plan {
	p := chains.Plan{Method: method, Names: []string{"sigma", "tau", "lambda"}, Chains: 3, Checkpoint: 10, Draws: 40, MaxDraws: 95,
		RHat: 1.05, ESS: 100, Seed: 1, Step: 0.8, MaxProbes: 16}
	if m, err := sampler.ByName(method); err == nil && m.Windows(&sampler.Options{}) != nil {
		p.Windows = []int{5, 15, 30}
	}
	return p
}

// Identity is the 3×3 identity.
var Identity = []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}

// Prepared returns the preparation of a plan of three parameters.
func Prepared(p chains.Plan) *chains.Prepared {
	prep := &chains.Prepared{Psi: []float64{0.1, 0.2, 0.3}, Cov: Identity, ProbeCov: Identity}
	starts, err := sampler.Starts(&p, sampler.ByGradients, prep.Psi, chains.Symmetric(prep.Cov))
	if err != nil {
		panic(err)
	}
	prep.Starts = starts
	return prep
}

// Checkpoint carries out a task: draws are standard normal, and a function of
// chain and iteration. Those of chain 1 are off by shift.
func Checkpoint(t chains.Task, shift float64) *chains.Checkpoint {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From, Cost: chains.Cost{Gradients: t.Iterations, Seconds: 1}}
	for range t.Iterations {
		k.State.Iter++
		psi := make([]float64, 3)
		random.Normal(random.Key{Chain: t.Chain, Iter: k.State.Iter}.Stream(random.Noise, 0), psi)
		if t.Chain == 1 {
			psi[0] += shift
		}
		k.Draws = append(k.Draws, psi)
		k.State.Psi = psi
		if t.Warmup {
			k.Stats.Add(chains.Stats{Spreads: 1, ProbeCov: Identity})
		}
	}
	return k
}

// Event carries out the work of a lane.
func Event(p chains.Plan, w chains.Work, shift float64) chains.Event {
	e := chains.Event{Certificate: w.Certificate}
	switch {
	case w.Advance != nil:
		e.Checkpoint = Checkpoint(*w.Advance, shift)
	case w.Weigh != nil:
		e.Provisional = &chains.Provisional{LogDensities: make([]float64, chains.ProvisionalDraws)}
	case w.Prepare.From != nil:
		prep := *w.Prepare.From
		e.Prepared = &prep
	default:
		e.Prepared = Prepared(p)
	}
	return e
}

// Fataler is a test.
type Fataler interface{ Fatal(...any) }

// Simulate brings a run to its end, with the lanes taking turns as pick, which
// chooses one of n, says. It returns the events that the run went through.
func Simulate(t Fataler, r *chains.Run, shift float64, pick func(n int) int) []chains.Event {
	var events []chains.Event
	apply := func(e chains.Event) {
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	var judge chains.Judge
	for step := 0; r.Phase != chains.Done; step++ {
		if step > 10000 {
			t.Fatal("the run does not end")
		}
		if r.AtBarrier() {
			e, err := sampler.Adapt(r)
			if err != nil {
				t.Fatal(err)
			}
			apply(*e)
			continue
		}
		if end := judge.Decide(r, 0); end != nil {
			apply(*end)
			continue
		}
		var ready []chains.Work
		for _, lane := range r.Lanes() {
			if w, ok := r.Work(lane); ok {
				ready = append(ready, w)
			}
		}
		if len(ready) == 0 {
			t.Fatal(fmt.Sprintf("nothing to do while %s", r.Phase))
		}
		apply(Event(r.Plan, ready[pick(len(ready))], shift))
	}
	return events
}
