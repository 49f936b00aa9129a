package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
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

	bars *mpb.Progress
	bar  []*mpb.Bar

	mu         sync.Mutex
	view       status
	iterations []float64 // of the chain's last gradient
	lastLine   time.Time
}

// status is what the lines show.
type status struct {
	phase   chains.Phase
	draws   []int
	warmup  []int
	conv    chains.Convergence
	elapsed time.Duration
	left    time.Duration // until the draws asked for are there; 0 if that cannot be told
}

// lineEvery is the time between lines where there is no terminal.
const lineEvery = 10 * time.Second

func (a *App) newProgress(quiet bool, plan chains.Plan, logPath string) (*progress, error) {
	f, err := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &progress{plan: plan, file: f, log: slog.New(slog.NewJSONHandler(f, nil)), iterations: make([]float64, plan.Chains+1)}
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
	return p, nil
}

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
	}
}

// Watch notes an event. The bars are set without the lock: one that is being
// drawn waits for the lock in head or tail, and takes nothing in meanwhile.
func (p *progress) Watch(v local.View) {
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

// note keeps what the lines show, tells of it now and then, and returns the
// draws of each chain.
func (p *progress) note(v local.View) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.view.phase
	p.view.phase, p.view.conv, p.view.elapsed = v.Run.Phase, v.Convergence, v.Elapsed
	p.view.left, _ = v.Run.Remaining(v.Elapsed)
	for c, ch := range v.Run.Chains {
		p.view.draws[c], p.view.warmup[c] = len(ch.Draws), ch.Warmup
	}
	if v.Run.Phase != before {
		p.phase(v)
	}
	if v.Run.Phase == chains.Sampling && time.Since(p.lastLine) >= lineEvery {
		p.lastLine = time.Now()
		for _, l := range []*slog.Logger{p.log, p.talk} {
			l.Info("sampling", "draws", v.Run.MinDraws(), "rhat", round(p.view.conv.RHat, 4), "ess", round(p.view.conv.ESS, 0), "elapsed", v.Elapsed.Round(time.Second).String())
		}
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
		return fmt.Sprintf("chain %d  finding the mode", c+1)
	case chains.Warmup:
		return fmt.Sprintf("chain %d  warm-up %d", c+1, p.view.warmup[c])
	}
	return fmt.Sprintf("chain %d  %d draws", c+1, p.view.draws[c])
}

// tail is the right side: R-hat and ESS an hour of all chains together, this
// chain's solver iterations, and when the draws asked for will be there.
func (p *progress) tail(c int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := ""
	if cv := p.view.conv; cv.Draws > 0 && !math.IsNaN(cv.RHat) {
		s += fmt.Sprintf(" R-hat %.3f  ESS/h %.0f ", cv.RHat, cv.ESS/p.view.elapsed.Hours())
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
	if p.bars == nil {
		return
	}
	for _, b := range p.bar {
		b.Abort(false)
	}
	p.bars.Wait()
}

// Close closes the log.
func (p *progress) Close() error { return p.file.Close() }

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
