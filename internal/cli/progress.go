package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// progress tells how a run is going: every gradient and event into the log
// file; to people a live line for each chain on a terminal, or else a line now
// and then.
type progress struct {
	plan chains.Plan
	file *os.File
	log  *slog.Logger // the file
	talk *slog.Logger // to people, where there is no terminal
	told int          // restarts that were told of

	bars *mpb.Progress
	bar  []*mpb.Bar

	mu         sync.Mutex
	view       status
	iterations []float64 // of the chain's last gradient
	search     search
	began      time.Time
	lastLine   time.Time
	stop       func() // ends the lines; none come after it
}

// search is what is known of the search for the mode, and of other work that no event tells of.
type search struct {
	gradients int // for the mode
	rows      int // of the last one
	stage     string
	item      int // of the stage
}

// status is what the lines show.
type status struct {
	phase   chains.Phase
	draws   []int
	warmup  []int
	conv    chains.Convergence
	elapsed time.Duration
	at      time.Time     // of the last event
	left    time.Duration // until the draws asked for are there; 0 if that cannot be told
}

func (a *App) newProgress(quiet bool, plan chains.Plan, logPath string) (*progress, error) {
	f, err := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p := &progress{plan: plan, file: f, log: slog.New(slog.NewJSONHandler(f, nil)), iterations: make([]float64, plan.Chains+1), began: now, lastLine: now}
	out := a.Stderr
	if quiet || a.TTY {
		out = io.Discard
	}
	p.talk = slog.New(slog.NewTextHandler(out, nil))
	p.view = status{draws: make([]int, plan.Chains), warmup: make([]int, plan.Chains)}
	if a.TTY && !quiet {
		p.bars = mpb.New(mpb.WithOutput(a.Stderr), mpb.WithAutoRefresh(), mpb.WithWidth(100), mpb.WithRefreshRate(200*time.Millisecond))
		for c := range plan.Chains {
			p.bar = append(p.bar, p.bars.AddBar(int64(plan.Draws), mpb.BarWidth(30), mpb.PrependDecorators(
				decor.Any(func(decor.Statistics) string { return p.head(c) }, decor.WCSyncSpaceR)),
				mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.tail(c) }))))
		}
	}
	p.stop = ticks(p.tell)
	return p, nil
}

// tell tells how the run stands, if that is due.
func (p *progress) tell(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.phase == chains.Done || !due(p.began, p.lastLine, now) {
		return
	}
	p.lastLine = now
	phase, args := p.line(now)
	for _, l := range []*slog.Logger{p.log, p.talk} {
		l.Info(phase, args...)
	}
}

// line returns how the run stands: what is known, and no more. The caller holds the lock.
func (p *progress) line(now time.Time) (phase string, args []any) {
	v, since := &p.view, now.Sub(p.began) // before there are events
	if !v.at.IsZero() {
		since = now.Sub(v.at)
	}
	phase = string(v.phase)
	switch v.phase {
	case "":
		phase = modeSearch
		if p.search.gradients > 0 {
			args = append(args, "gradients", p.search.gradients, "rows", p.search.rows)
		}
	case chains.Warmup:
		if p.plan.Staged && p.search.stage != "" {
			args = append(args, "stage", p.search.stage, "item", p.search.item)
		}
		if all := p.plan.Warmup(); all > 0 {
			args = append(args, "iterations", slices.Min(v.warmup), "of", all)
		}
	case chains.Sampling:
		args = append(args, "draws", slices.Min(v.draws), "wanted", p.plan.Draws)
		if v.conv.Draws > 0 && !math.IsNaN(v.conv.RHat) {
			args = append(args, "rhat", round(v.conv.RHat, 4), "ess", round(v.conv.ESS, 0))
			if v.conv.Error > 0 { // nor is NaN
				args = append(args, "largest_error", round(v.conv.Error, 4))
			}
		}
	}
	args = append(args, "elapsed", (v.elapsed + since).Round(time.Second).String())
	if v.left > since {
		args = append(args, "eta", (v.left - since).Round(time.Second).String())
	}
	return phase, args
}

// modeSearch is what a run does before its first event.
const modeSearch = "finding the mode"

// Started tells what the run is about.
func (p *progress) Started(d *dataset.Dataset, s *job.Spec) {
	for _, l := range []*slog.Logger{p.log, p.talk} {
		l.Info("started", "name", s.Name, "rows", d.N(), "inputs", d.D(), "method", s.Sampler.Method, "chains", s.Sampler.Chains,
			"seed", s.Seed, "instruction_set", instructionSet())
	}
}

// Cache tells whether elements of K are kept between products.
func (p *progress) Cache(c *cmvp.CachePlan) {
	if c == nil {
		return
	}
	for _, l := range []*slog.Logger{p.log, p.talk} {
		l.Info("cache of K", "decision", c.String(), "bytes_per_chain", c.Bytes)
	}
}

// Observe notes what a driver observed.
func (p *progress) Observe(o runlog.Observation) {
	p.log.LogAttrs(context.Background(), slog.LevelInfo, string(o.Kind), o.Attrs()...)
	switch o.Kind {
	case runlog.Trials:
		p.talk.Info("preconditioner", "kind", o.Preconditioner, "rank", o.Rank)
	case runlog.Gradient:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.iterations[o.Chain] = o.Iterations
		if o.Chain == 0 {
			p.search.gradients++
			p.search.rows = o.Rows
		}
	case runlog.Item:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.search.stage, p.search.item = o.StageKind, o.Iter
	}
}

// Watch notes an event. The bars are set without the lock: one that is being
// drawn waits for the lock in head or tail, and takes nothing in meanwhile.
func (p *progress) Watch(v local.View) {
	for _, s := range v.Run.Restarts[min(p.told, len(v.Run.Restarts)):] {
		p.Say("diverged", s.Text())
	}
	p.told = len(v.Run.Restarts)
	for c, n := range p.note(v) {
		if c >= len(p.bar) {
			break
		}
		if n > int64(p.plan.Draws) {
			p.bar[c].SetTotal(int64(p.plan.MaxDraws), false)
		}
		p.bar[c].SetCurrent(min(n, int64(p.plan.MaxDraws)))
	}
}

// note keeps what the lines show, tells of a new phase, and returns the draws of each
// chain.
func (p *progress) note(v local.View) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.view.phase
	p.view.phase, p.view.conv, p.view.elapsed = v.Run.Phase, v.Convergence, v.Elapsed
	p.view.at = time.Now()
	p.view.left, _ = v.Run.Remaining(v.Elapsed)
	for c, ch := range v.Run.Chains {
		p.view.draws[c], p.view.warmup[c] = len(ch.Draws), ch.Warmup
	}
	if v.Run.Phase != before {
		p.lastLine = p.view.at
		p.phase(v)
	}
	draws := make([]int64, len(p.view.draws))
	for c, n := range p.view.draws {
		draws[c] = int64(n)
	}
	return draws
}

// Say tells something in a line.
func (p *progress) Say(topic, line string) {
	p.log.Info(topic, "text", line)
	p.talk.Info(topic, "text", line)
	if p.bars != nil {
		fmt.Fprintf(p.bars, "%s\n", line)
	}
}

// phase tells of a new phase.
func (p *progress) phase(v local.View) {
	args := []any{"elapsed", v.Elapsed.Round(time.Millisecond).String()}
	switch r := v.Run; r.Phase {
	case chains.Warmup:
		args = append(args, "log_mode", rounded(r.Prepared.Psi))
		if !r.Plan.Staged {
			args = append(args, "windows", r.Plan.Windows)
		}
	case chains.Sampling:
		if s := r.Settings; s != nil && s.Step > 0 {
			args = append(args, "step", round(s.Step, 3), "probes", s.Probes, "noise_budget", round(s.Budget, 3), "early_stopping", s.Early)
		}
	case chains.Done:
		args = append(args, "reason", r.Stopped.Reason, "draws", r.Stopped.Draws)
	}
	for _, l := range []*slog.Logger{p.log, p.talk} {
		l.Info(string(v.Run.Phase), args...)
	}
}

// head is the left side of a chain's line.
func (p *progress) head(c int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.view.phase {
	case "":
		if p.search.gradients > 0 {
			return fmt.Sprintf("chain %d  %s: %d gradients, of %d rows", c+1, modeSearch, p.search.gradients, p.search.rows)
		}
		return fmt.Sprintf("chain %d  %s", c+1, modeSearch)
	case chains.Warmup:
		return fmt.Sprintf("chain %d  warm-up %d", c+1, p.view.warmup[c])
	}
	return fmt.Sprintf("chain %d  %s", c+1, plural.Of(p.view.draws[c], "draw"))
}

// tail is the right side: R-hat and ESS an hour of all chains together, this
// chain's solver iterations, and when the draws asked for will be there.
func (p *progress) tail(c int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := ""
	if cv := p.view.conv; cv.Draws > 0 && !math.IsNaN(cv.RHat) {
		s += fmt.Sprintf(" R-hat %.3f ", cv.RHat)
		if p.plan.Error > 0 {
			s += fmt.Sprintf(" error %.3f ", cv.Error)
		}
		s += fmt.Sprintf(" ESS/h %.0f ", cv.ESS/p.view.elapsed.Hours())
	}
	if it := p.iterations[c+1]; it > 0 {
		s += fmt.Sprintf(" %.0f its ", it)
	}
	if p.view.left > 0 {
		s += fmt.Sprintf(" ETA %s", p.view.left.Round(time.Second))
	}
	return s
}

// Finished ends the lines.
func (p *progress) Finished() {
	p.stop()
	if p.bars == nil {
		return
	}
	for _, b := range p.bar {
		b.Abort(false)
	}
	p.bars.Wait()
}

// Close closes the log.
func (p *progress) Close() error {
	p.stop()
	return p.file.Close()
}

func round(x float64, digits int) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return -1
	}
	f := math.Pow(10, float64(digits))
	return math.Round(x*f) / f
}

func rounded(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = round(v, 3)
	}
	return out
}
