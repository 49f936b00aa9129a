package health

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// subject is a job of two chains under a clock that the test moves.
type subject struct {
	t       *testing.T
	f       *state.Follower
	workers Workers
	now     time.Time
	checker *Checker
}

func newSubject(t *testing.T) *subject {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	plan := chains.Plan{Method: "fisher", Names: []string{"sigma", "lambda"}, Chains: 2, Checkpoint: 20, Draws: 1000, MaxDraws: 5000, RHat: 1.01, ESS: 400}
	run := chains.New(plan)
	run.Phase = chains.Sampling
	run.Prepared = &chains.Prepared{Psi: []float64{0, 0}, Cov: []float64{0.01, 0, 0, 0.01}}
	run.Settings = &chains.Settings{}
	for i := range run.Chains {
		run.Chains[i].State.Psi = []float64{0.1, -0.1}
	}
	j := &state.Job{ID: "a", Phase: state.Sampling, Chains: 2, Plan: &plan, InstructionSet: "avx2",
		Placements: []state.Placement{{}, {Worker: "w1", Attempt: 1}, {Worker: "w2", Attempt: 1}}}
	return &subject{t: t, f: &state.Follower{Job: j, Run: run}, now: now, checker: NewChecker(now),
		workers: Workers{InstructionSets: map[string]bool{"avx2": true}, Seen: map[string]time.Time{"w1": now, "w2": now}}}
}

// pass lets time go by, second by second. Workers are heard of unless they are
// named; chains report as often as every says.
func (p *subject) pass(d time.Duration, every map[int]time.Duration, silent ...string) *state.Health {
	p.t.Helper()
	var h *state.Health
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(time.Second)
		for w := range p.workers.Seen {
			if !strings.Contains(strings.Join(silent, " "), w) {
				p.workers.Seen[w] = p.now
			}
		}
		for c, e := range every {
			if p.now.Unix()%int64(e/time.Second) == 0 {
				p.checker.Heard(state.ChainKey{Job: "a", Chain: c}, p.now)
			}
		}
		h = p.checker.Check(p.f, p.workers, p.now)
	}
	return h
}

func (p *subject) want(h *state.Health, status state.Status, words ...string) {
	p.t.Helper()
	if h == nil && status == "" {
		return
	}
	if h == nil || h.Status != status {
		p.t.Fatalf("%+v, want %q", h, status)
	}
	for _, w := range words {
		if !strings.Contains(h.Message, w) {
			p.t.Errorf("%q does not say %q", h.Message, w)
		}
	}
}

var both = map[int]time.Duration{1: 2 * time.Second, 2: 2 * time.Second}

// A chain that falls silent is seen within a minute, and its recovery at once; a
// slow chain is given five times its own pace.
func TestSilentChain(t *testing.T) {
	p := newSubject(t)
	p.want(p.pass(5*time.Minute, both), "")
	one := map[int]time.Duration{1: 2 * time.Second}
	p.want(p.pass(25*time.Second, one), "")
	p.want(p.pass(10*time.Second, one), state.Stalled, "chain 2", "w2", "2s")
	p.want(p.pass(3*time.Second, both), "")

	slow := newSubject(t)
	steady := map[int]time.Duration{1: time.Minute, 2: time.Minute}
	slow.want(slow.pass(20*time.Minute, steady), "")
	slow.want(slow.pass(4*time.Minute, nil), "")
	slow.want(slow.pass(2*time.Minute, nil), state.Stalled, "1m0s")
}

// Checkpoints are signs of life too, for methods that log nothing.
func TestCheckpointsAreProgress(t *testing.T) {
	p := newSubject(t)
	for range 30 {
		p.want(p.pass(10*time.Second, nil), "")
		for i := range p.f.Run.Chains {
			p.f.Run.Chains[i].State.Iter += 20
		}
	}
	p.want(p.pass(45*time.Second, nil), "")
	p.want(p.pass(10*time.Second, nil), state.Stalled, "chain 1")
}

// A worker that stops, as by SIGSTOP, and one that was lost and is not replaced.
func TestSilentWorker(t *testing.T) {
	p := newSubject(t)
	p.pass(time.Minute, both)
	p.want(p.pass(30*time.Second, map[int]time.Duration{2: 2 * time.Second}, "w1"), state.Stalled, "worker w1", "chain 1")
	p.f.Job.Placements[1].Worker = ""
	p.want(p.pass(time.Second, nil, "w1"), state.Stalled, "no worker")
}

// Without any worker, or without one that fits.
func TestNoWorker(t *testing.T) {
	p := newSubject(t)
	p.f.Job.Phase = state.Queued
	p.f.Job.Placements[1].Worker, p.f.Job.Placements[2].Worker = "", ""
	p.want(p.pass(time.Hour, nil), "") // it waits for others
	p.workers.InstructionSets = map[string]bool{"portable": true}
	p.want(p.pass(15*time.Second, nil), "")
	p.want(p.pass(10*time.Second, nil), state.Stalled, "avx2")
	p.workers.InstructionSets = nil
	p.want(p.pass(30*time.Second, nil), state.Stalled, "no worker is connected")
	p.workers.InstructionSets = map[string]bool{"avx2": true}
	p.want(p.pass(time.Second, nil), "")
	p.f.Job.Phase = state.Paused
	p.workers.InstructionSets = nil
	p.want(p.pass(time.Hour, nil), "")
}

// While the mode is sought nothing may be heard for long: data are read,
// preconditioners built.
func TestPreparing(t *testing.T) {
	p := newSubject(t)
	p.f.Run, p.f.Job.Phase = nil, state.Preparing
	p.f.Job.Placements[0].Worker = "w1"
	p.want(p.pass(9*time.Minute, nil), "")
	p.want(p.pass(2*time.Minute, nil), state.Stalled, "the preparation")
}

// Chains at a barrier wait, and are not silent.
func TestWaitingIsNoStall(t *testing.T) {
	p := newSubject(t)
	p.f.Due = &chains.Event{Stop: &chains.Stop{}}
	p.want(p.pass(time.Hour, nil), "")
}

func TestRunsOff(t *testing.T) {
	p := newSubject(t)
	p.f.Run.Chains[1].State.Psi = []float64{1, -1} // 10 sds: a bold start
	p.want(p.pass(time.Second, both), "")
	p.f.Run.Chains[1].State.Psi = []float64{4, -4}
	p.want(p.pass(time.Second, both), state.Diverging, "chain 2", "40 standard deviations")
	p.f.Run.Chains[1].State.Psi = []float64{0, -31}
	p.want(p.pass(time.Second, both), state.Diverging, "chain 2", "lambda is -31 on the scale that is sampled")
}

func TestUselessGradients(t *testing.T) {
	p := newSubject(t)
	cost := &p.f.Run.Chains[0].Cost
	spend := func(steep, unsolved int) *state.Health {
		cost.Gradients += 100
		cost.Solves += 500
		cost.Shortened += steep
		cost.Unconverged += unsolved
		return p.pass(time.Second, both)
	}
	p.want(spend(3, 20), "")
	p.want(spend(80, 0), state.Diverging, "80 %", "steep")
	p.want(spend(0, 400), state.Diverging, "80 %", "tolerance")
	p.want(spend(0, 0), "")
}

// R-hat of chains that mix falls; of chains in two places it does not.
func TestRHatDoesNotFall(t *testing.T) {
	grow := func(p *subject, n int, at func(c, i int) float64) *state.Health {
		for c := range p.f.Run.Chains {
			for i := len(p.f.Run.Chains[c].Draws); i < n; i++ {
				p.f.Run.Chains[c].Draws = append(p.f.Run.Chains[c].Draws, []float64{at(c, i), at(c, i)})
			}
		}
		p.f.Convergence = p.f.Run.Diagnose(n)
		return p.pass(time.Second, both)
	}
	wave := func(i int) float64 { return math.Sin(float64(i) * 12.9898) }
	apart := newSubject(t)
	two := func(c, i int) float64 { return wave(i) + 3*float64(c) }
	apart.want(grow(apart, 60, two), "") // too early to tell
	apart.want(grow(apart, 200, two), state.Diverging, "R-hat is not falling", "200 draws", "at 100")

	settling := newSubject(t)
	for n := 100; n <= 1600; n *= 2 {
		settling.want(grow(settling, n, func(c, i int) float64 { // a start that fades
			return wave(i) + 3*float64(c)*math.Exp(-float64(i)/20)
		}), "")
	}
}

// What is known of jobs that are gone is forgotten, and a worker cannot make the
// leader remember chains that do not exist.
func TestForget(t *testing.T) {
	p := newSubject(t)
	p.pass(time.Second, both)
	p.checker.Forget(map[string]bool{"a": true})
	if len(p.checker.paces) == 0 {
		t.Error("a job that is kept is forgotten")
	}
	p.checker.Forget(nil)
	p.checker.Heard(state.ChainKey{Job: "unknown", Chain: 7}, p.now)
	if n := len(p.checker.paces) + len(p.checker.fits) + len(p.checker.rhats) + len(p.checker.costs); n != 0 {
		t.Errorf("%d things are kept", n)
	}
}

// A pause is no silence: a job that is resumed is given the time that any has.
func TestPauseIsNoSilence(t *testing.T) {
	p := newSubject(t)
	p.want(p.pass(time.Minute, both), "")
	p.f.Job.Phase = state.Paused
	p.want(p.pass(time.Hour, nil), "")
	p.f.Job.Phase = state.Sampling
	p.want(p.pass(25*time.Second, nil), "")
	p.want(p.pass(10*time.Second, nil), state.Stalled, "chain 1")
}

// A leader that has just begun waits for its workers as long as any.
func TestReset(t *testing.T) {
	p := newSubject(t)
	p.workers.InstructionSets = nil
	p.want(p.pass(time.Hour, nil), state.Stalled, "no worker is connected")
	p.checker.Reset(p.now)
	p.want(p.pass(15*time.Second, nil), "")
	p.want(p.pass(10*time.Second, nil), state.Stalled, "no worker is connected")
}
