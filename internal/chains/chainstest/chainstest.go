// Package chainstest carries out the work of runs without data: draws are functions of
// chain and iteration alone.
package chainstest

import (
	"fmt"
	"time"

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
	case w.Conclude != nil:
		e.Coefficients = &chains.Coefficients{Draws: w.Conclude.Draws}
		for _, psi := range w.Conclude.At {
			e.Coefficients.Mean = append(e.Coefficients.Mean, []float64{psi[0], psi[1]})
			e.Coefficients.SD = append(e.Coefficients.SD, []float64{1, 2})
		}
	case w.Conduct != nil:
		return Conduct(w.Conduct)
	case w.Evaluate != nil:
		e.Evaluated = &chains.Evaluated{Stage: w.Evaluate.Stage, Item: w.Evaluate.Item, Numbers: []float64{w.Evaluate.Needs[0] * w.Evaluate.Needs[0]},
			Cost: chains.Cost{Products: 1, Seconds: 1}}
	case w.Prepare.From != nil:
		prep := *w.Prepare.From
		e.Prepared = &prep
	default:
		e.Prepared = Prepared(p)
	}
	return e
}

// StagedPlan is a plan of a staged run.
func StagedPlan() chains.Plan {
	p := Plan("fisher")
	p.Windows, p.Staged, p.Lanes, p.Chains, p.Error = nil, true, 5, 2, 0.2
	return p
}

// Conduct is a sampler of staged runs: a stage of 7 items, then one of 11 that draws
// are made of, and so on. Draws are standard normal, as many as there are results so
// far times ten, and a function of the sum of all results alone.
func Conduct(c *chains.Conducting) chains.Event {
	sum, n := 0.0, 0
	for _, s := range c.Stages {
		for _, x := range s.Results {
			sum, n = sum+x[0], n+10
		}
	}
	number := len(c.Stages) + 1
	if s := number - 1; s%2 == 1 || s > 0 && c.Drawn != nil && c.Drawn.Stages == s {
		st := &chains.Stage{Number: number, Kind: "squares", Sampling: number > 1}
		for i := range 7 + 4*(s%2) {
			st.Items = append(st.Items, []float64{float64(i + 1)})
		}
		return chains.Event{Stage: st}
	}
	if number == 1 {
		st := &chains.Stage{Number: 1, Kind: "squares", Shared: [][]float64{{1, 2}}}
		for i := range 7 {
			st.Items = append(st.Items, []float64{float64(i + 1)})
		}
		return chains.Event{Stage: st}
	}
	d := &chains.Drawn{Every: 2, Inflation: 1, Stages: number - 1, Deviations: [][]float64{make([]float64, 2*((n+1)/2))}}
	for chain := range 2 {
		var draws [][]float64
		for t := range n {
			psi := make([]float64, 3)
			random.Normal(random.Key{Seed: uint64(sum), Chain: chain, Iter: t}.Stream(random.Noise, 0), psi)
			draws = append(draws, psi)
		}
		d.Chains, d.Accepted, d.LogP = append(d.Chains, draws), append(d.Accepted, n/2), append(d.LogP, make([]float64, n))
	}
	return chains.Event{Drawn: d}
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
	var items chains.Dispatcher
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
			} else if w, ok := items.Next(r, lane, time.Time{}); ok {
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
