package chains

import (
	"fmt"
	"slices"
	"time"
)

// A sampler need not move chains: it may ask for evaluations that depend on nothing
// but their own numbers, and make draws of their results. Such a run is staged. A
// Stage lists its items; any driver may compute any of them, in any order (lanes from
// 1); when all are there, the sampler conducts (lane 0): it makes draws of all results
// so far (Drawn), or says what to compute next (Stage). So a run of two chains uses as
// many workers as a stage has items, and its draws depend on none of them.

// Stage is a list of evaluations.
type Stage struct {
	Number   int         `json:"number"` // from 1
	Kind     string      `json:"kind"`   // the sampler's own
	Sampling bool        `json:"sampling,omitempty"`
	Shared   [][]float64 `json:"shared,omitempty"` // what all items need
	Items    [][]float64 `json:"items"`            // what each needs beside
}

// Evaluated is what an item of the open stage came to.
type Evaluated struct {
	Stage   int       `json:"stage"`
	Item    int       `json:"item"` // from 0
	Numbers []float64 `json:"numbers"`
	Cost    Cost      `json:"cost"`
}

// Drawn are the draws that a sampler makes of all results so far, in place of those
// before.
type Drawn struct {
	Chains   [][][]float64 `json:"chains"`   // ψ, of each chain as many
	Accepted []int         `json:"accepted"` // proposals of each chain
	LogP     [][]float64   `json:"log_p"`    // log posterior density of each draw, up to a constant
	// Deviations are draws of the error of the log density, up to a constant, at every
	// Every-th draw, chain by chain: the densities that the draws might as well be of.
	Every      int         `json:"every"`
	Deviations [][]float64 `json:"deviations"`
	// Inflation is the factor by which fresh residuals exceeded what Deviations say,
	// at least 1. They are to be multiplied by it.
	Inflation float64 `json:"inflation"`
	Modes     []Mode  `json:"modes,omitempty"`
	Stages    int     `json:"stages"` // that they were made of
	// Tail is the share of a parameter's variance that the proposals may have missed, if it is more than a run that
	// counts as converged may have, and TailOf the parameter: 0 otherwise.
	Tail   float64 `json:"tail,omitempty"`
	TailOf int     `json:"tail_of,omitempty"`
}

// Mode is a part of the posterior around a maximum.
type Mode struct {
	Psi   []float64 `json:"psi"`   // the maximum
	Below float64   `json:"below"` // the highest, in log density
	// Mass is the share of the draws, with its standard error from all sources.
	Mass      float64 `json:"mass"`
	MassError float64 `json:"mass_error"`
	Found     int     `json:"found"` // by how many searches; 0 of the image of another under a symmetry of the posterior
	// Parameter is what separates it most from the mode of the largest mass, by
	// Distance, the difference of their means over the root of their variances' sum.
	Parameter int     `json:"parameter,omitempty"`
	Distance  float64 `json:"distance,omitempty"`
}

// Staging is a stage of a run with its results.
type Staging struct {
	Stage
	Results [][]float64 `json:"results"` // by item; nil for those that are not there
	Left    int         `json:"left"`    // how many those are
}

// Evaluation asks for an item.
type Evaluation struct {
	Stage  int         `json:"stage"`
	Kind   string      `json:"kind"`
	Shared [][]float64 `json:"shared,omitempty"`
	Item   int         `json:"item"`
	Needs  []float64   `json:"needs"` // Stage.Items[Item]
}

// Conducting asks a sampler for the next event of a run, a Stage or a Drawn.
type Conducting struct {
	Prepared *Prepared `json:"prepared"`
	Stages   []Staging `json:"stages"`
	Drawn    *Drawn    `json:"drawn,omitempty"`
	// Draws are wanted of each chain, MaxDraws at most.
	Draws    int `json:"draws"`
	MaxDraws int `json:"max_draws"`
}

// Bounds of what a stage may hold, so that replicas stay within their memory.
const (
	maxItems   = 1 << 17
	maxNumbers = 1 << 23 // of a stage, and again of its results
)

func (r *Run) stage(s *Stage) error {
	if !r.idle() || s.Number != len(r.Stages)+1 {
		return ErrPhase
	}
	total := 0
	for _, x := range slices.Concat(s.Shared, s.Items) {
		total += len(x)
	}
	if len(s.Items) == 0 || len(s.Items) > maxItems || total > maxNumbers || s.Kind == "" || !finite(s.Shared...) || !finite(s.Items...) {
		return ErrShape
	}
	r.Stages = append(r.Stages, Staging{Stage: *s, Results: make([][]float64, len(s.Items)), Left: len(s.Items)})
	if s.Sampling {
		r.Phase = Sampling
	}
	return nil
}

// idle reports whether a staged run waits for its sampler.
func (r *Run) idle() bool {
	return r.Plan.Staged && (r.Phase == Warmup || r.Phase == Sampling) && r.open() == nil
}

// open returns the stage that is being computed, nil if there is none.
func (r *Run) open() *Staging {
	if n := len(r.Stages); n > 0 && r.Stages[n-1].Left > 0 {
		return &r.Stages[n-1]
	}
	return nil
}

func (r *Run) evaluated(e *Evaluated) error {
	s := r.open()
	if s == nil || r.Stopped != nil || e.Stage != s.Number || e.Item < 0 || e.Item >= len(s.Items) || s.Results[e.Item] != nil {
		return ErrStale
	}
	if len(e.Numbers) == 0 || len(e.Numbers) > maxNumbers/len(s.Items) || !finite(e.Numbers) || !e.Cost.sane() {
		return ErrShape
	}
	s.Results[e.Item] = e.Numbers
	s.Left--
	r.Chains[e.Item%len(r.Chains)].Cost.Add(e.Cost)
	return nil
}

func (r *Run) drawn(d *Drawn) error {
	if !r.idle() || d.Stages != len(r.Stages) || r.Drawn != nil && r.Drawn.Stages == d.Stages {
		return ErrPhase
	}
	p := r.Plan.Params()
	if len(d.Chains) != len(r.Chains) || len(d.Accepted) != len(r.Chains) || len(d.LogP) != len(r.Chains) || d.Every < 1 ||
		!finite(d.LogP...) || !finite(d.Deviations...) || !(d.Inflation >= 1 && d.Inflation <= maxCost) ||
		!(d.Tail >= 0 && d.Tail <= 1) || d.TailOf < 0 || d.TailOf >= p {
		return ErrShape
	}
	n := len(d.Chains[0])
	for c, draws := range d.Chains {
		if len(draws) != n || len(d.LogP[c]) != n || d.Accepted[c] < 0 || d.Accepted[c] > n || !point(p, draws...) {
			return ErrShape
		}
	}
	at := (n + d.Every - 1) / d.Every * len(d.Chains)
	for _, x := range d.Deviations {
		if len(x) != at {
			return ErrShape
		}
	}
	for _, m := range d.Modes {
		if !point(p, m.Psi) || m.Parameter < 0 || m.Parameter >= p || !finite([]float64{m.Below, m.Mass, m.MassError, m.Distance}) {
			return ErrShape
		}
	}
	for c := range r.Chains {
		ch := &r.Chains[c]
		ch.Draws, ch.Beyond, ch.Accepted = d.Chains[c], nil, d.Accepted[c]
		ch.State = State{Iter: n}
		if n > 0 {
			ch.State.Psi = d.Chains[c][n-1]
		}
	}
	kept := *d
	kept.Chains = nil // they are the chains'
	r.Drawn, r.Phase = &kept, Sampling
	return nil
}

// conducting returns what a sampler decides by.
func (r *Run) conducting() *Conducting {
	return &Conducting{Prepared: r.Prepared, Stages: slices.Clone(r.Stages), Drawn: r.Drawn, Draws: r.Plan.Draws, MaxDraws: r.Plan.MaxDraws}
}

// stageLanes returns on how many lanes the open stage is spread: the same number until
// it is closed, so that none is taken from what it computes.
func (r *Run) stageLanes() int {
	if s := r.open(); s != nil && r.Stopped == nil {
		return min(len(s.Items), r.Plan.Lanes)
	}
	return 0
}

// Dispatcher hands out the items of the open stage of a run to lanes. What it hands
// out, and to whom, changes nothing but the time that the stage takes. The zero
// Dispatcher is ready to be used; it serves one run and is not safe for concurrent
// use.
type Dispatcher struct {
	stage int
	out   map[int]handed // by item
	took  []time.Duration
}

// handed is an item that was handed out.
type handed struct {
	lanes []int
	at    time.Time // the last time
}

// hedging is how many times longer than most an item may take before an idle lane is
// given it, too.
const hedging = 3

// Next returns an item for a lane: the one that it was given before and has no result,
// or one that nobody was given, or one that has been out for long.
func (d *Dispatcher) Next(r *Run, lane int, now time.Time) (Work, bool) {
	if r.Phase == Certifying {
		w, ok := d.Next(r.Certificate, lane, now)
		w.Certificate = true
		return w, ok
	}
	s := r.open()
	if s == nil || r.Stopped != nil {
		return Work{}, false
	}
	if d.stage != s.Number {
		*d = Dispatcher{stage: s.Number, out: map[int]handed{}}
	}
	free, slow := -1, -1
	for i := range s.Items {
		h, is := d.out[i]
		switch {
		case s.Results[i] != nil:
			if is {
				d.took = append(d.took, now.Sub(h.at))
				delete(d.out, i)
			}
		case is && slices.Contains(h.lanes, lane):
			return r.evaluation(s, i), true
		case !is && free < 0:
			free = i
		case is && (slow < 0 || h.at.Before(d.out[slow].at)):
			slow = i
		}
	}
	if free < 0 && slow >= 0 && d.overdue(now.Sub(d.out[slow].at)) {
		free = slow
	}
	if free < 0 {
		return Work{}, false
	}
	d.out[free] = handed{append(d.out[free].lanes, lane), now}
	return r.evaluation(s, free), true
}

// overdue reports whether an item has been out for much longer than most took.
func (d *Dispatcher) overdue(out time.Duration) bool {
	if len(d.took) == 0 {
		return false
	}
	took := slices.Sorted(slices.Values(d.took))
	return out > hedging*took[len(took)/2]
}

// Lost takes back what a lane was given.
func (d *Dispatcher) Lost(lane int) {
	for i, h := range d.out {
		h.lanes = slices.DeleteFunc(h.lanes, func(l int) bool { return l == lane })
		if len(h.lanes) == 0 {
			delete(d.out, i)
		} else {
			d.out[i] = h
		}
	}
}

func (r *Run) evaluation(s *Staging, item int) Work {
	return Work{Evaluate: &Evaluation{Stage: s.Number, Kind: s.Kind, Shared: s.Shared, Item: item, Needs: s.Items[item]}}
}

// Event returns the event that an item's result enters a run by.
func (e *Evaluation) Event(numbers []float64, cost Cost) (*Event, error) {
	if len(numbers) == 0 || !finite(numbers) {
		return nil, fmt.Errorf("item %d of stage %d (%s) came to numbers that are not finite", e.Item, e.Stage, e.Kind)
	}
	return &Event{Evaluated: &Evaluated{Stage: e.Stage, Item: e.Item, Numbers: numbers, Cost: cost}}, nil
}
