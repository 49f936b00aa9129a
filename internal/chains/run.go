// Package chains is the schedule of a run: which chain is to do what next,
// what it has done, and when it is enough. It holds no n-vector and does no
// sampling: drivers (package driver) carry out its tasks, wherever they are.
//
// A Run is a state machine that changes only by Apply, event by event. Replaying
// its events rebuilds it, so a journal of them is a checkpoint. Decisions that
// need arithmetic (the metric after a window, the end of a run) are computed
// beside it by Adapt and Judge, functions of the state alone, and enter it as
// events like everything else: replicas on different machines cannot disagree.
//
// # Life of a run
//
// preparing: one driver finds the mode and the curvature there (Prepared).
// warmup: every chain runs a window of iterations; when all have, Adapt pools
// their draws and gradient statistics into the settings of the next window.
// Windows are barriers, so the result does not depend on timing. After the last
// window the settings are frozen. sampling: chains run independently; Judge
// looks at all of them at equal numbers of draws and ends the run. done.
//
// Chains report at checkpoints, every Plan.Checkpoint iterations: the unit of
// work, of loss, and of history (a driver forgets warm starts there, so that a
// chain continued by another driver is the same to the last bit).
package chains

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// Phase is where a run stands.
type Phase string

// The phases, in order.
const (
	Preparing Phase = "preparing"
	Warmup    Phase = "warmup"
	Sampling  Phase = "sampling"
	Done      Phase = "done"
)

// Prepared is what is known before the chains start.
type Prepared struct {
	Psi    []float64   `json:"psi"`    // the mode
	Starts [][]float64 `json:"starts"` // of the chains
	// Cov is the inverse of the observed information at the mode, p×p.
	Cov []float64 `json:"cov"`
	// ProbeCov is the covariance of one probe's gradient there, and SolverCov
	// that of the early stopping; empty if the method has no use for them.
	ProbeCov  []float64 `json:"probe_cov,omitempty"`
	SolverCov []float64 `json:"solver_cov,omitempty"`
	// Asymmetry is how far the measured information was from symmetric.
	Asymmetry float64 `json:"asymmetry"`
	// Others are further maxima of the log posterior, of OthersRows rows, that
	// the search for the mode came upon.
	Others     []mode.Local `json:"others,omitempty"`
	OthersRows int          `json:"others_rows,omitempty"`
	// Preconditioner is the one that was chosen at the mode, and Iterations what
	// a right-hand side took there, to tell its drift by.
	Preconditioner *Preconditioner `json:"preconditioner,omitempty"`
	Iterations     float64         `json:"iterations,omitempty"`
	// Tolerance is the relative residual that solves go to, if it was chosen here
	// and not by the specification.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Rank is that of the exact sampler's P, chosen by the acceptance that was
	// measured around the mode.
	Rank       int     `json:"rank,omitempty"`
	Acceptance float64 `json:"acceptance,omitempty"`
	Cost       Cost    `json:"cost"`
}

// Preconditioner names a P ≈ K.
type Preconditioner struct {
	Kind string `json:"kind"`
	Rank int    `json:"rank"`
}

// Settings are what all chains of a window share.
type Settings struct {
	Window int       `json:"window"` // 0-based; len(Plan.Windows) in sampling
	C      []float64 `json:"c"`      // metric, p×p
	Mean   []float64 `json:"mean,omitempty"`
	// The gradient's noise and what follows from it (fisher).
	ProbeCov  []float64 `json:"probe_cov,omitempty"`
	SolverCov []float64 `json:"solver_cov,omitempty"`
	Probes    int       `json:"probes,omitempty"`
	Step      float64   `json:"step,omitempty"`
	Budget    float64   `json:"noise_budget,omitempty"` // λ_min(Q) in units of C
	// Early says that solves stop early. Plain is what a gradient takes without,
	// where the solver is to be chosen: products with K.
	Early bool    `json:"early,omitempty"`
	Plain float64 `json:"plain,omitempty"`
}

// State is what a chain carries across a checkpoint.
type State struct {
	Iter       int                   `json:"iter"` // iterations done
	Psi        []float64             `json:"psi"`
	SGLD       *sgld.SGLDState       `json:"sgld,omitempty"`
	Metropolis *sgld.MetropolisState `json:"metropolis,omitempty"`
}

func (s State) clone() State {
	s.Psi = slices.Clone(s.Psi)
	if s.SGLD != nil {
		c := *s.SGLD
		c.Mean, c.M2 = slices.Clone(c.Mean), slices.Clone(c.M2)
		s.SGLD = &c
	}
	if s.Metropolis != nil {
		c := *s.Metropolis
		s.Metropolis = &c
	}
	return s
}

// Stats are sums over the gradients of a checkpoint.
type Stats struct {
	Spreads   int       `json:"spreads,omitempty"` // gradients whose noise was measured
	ProbeCov  []float64 `json:"probe_cov,omitempty"`
	SolverCov []float64 `json:"solver_cov,omitempty"`
	Products  int       `json:"products,omitempty"`
}

func (s *Stats) add(o Stats) {
	s.Spreads += o.Spreads
	s.Products += o.Products
	s.ProbeCov = addTo(s.ProbeCov, o.ProbeCov)
	s.SolverCov = addTo(s.SolverCov, o.SolverCov)
}

func addTo(a, b []float64) []float64 {
	if len(b) == 0 {
		return a
	}
	if len(a) == 0 {
		return slices.Clone(b)
	}
	for i, x := range b {
		a[i] += x
	}
	return a
}

// Cost is what computing took.
type Cost struct {
	Gradients   int     `json:"gradients"`
	Densities   int     `json:"densities,omitempty"` // log densities (cholesky, exact)
	Solves      int     `json:"solves"`              // right-hand sides
	Iterations  int     `json:"iterations"`          // summed over right-hand sides
	Products    int     `json:"products"`
	Singles     int     `json:"single_products"`
	Pairs       float64 `json:"pairs"`                // elements of K ranged over
	PairsRead   float64 `json:"pairs_read,omitempty"` // those of them that were kept from an earlier product
	Unconverged int     `json:"unconverged"`
	Shortened   int     `json:"shortened,omitempty"` // gradients too steep to be followed to the end
	Seconds     float64 `json:"seconds"`
}

// Add adds o to c.
func (c *Cost) Add(o Cost) {
	c.Gradients += o.Gradients
	c.Densities += o.Densities
	c.Solves += o.Solves
	c.Iterations += o.Iterations
	c.Products += o.Products
	c.Singles += o.Singles
	c.Pairs += o.Pairs
	c.PairsRead += o.PairsRead
	c.Unconverged += o.Unconverged
	c.Shortened += o.Shortened
	c.Seconds += o.Seconds
}

// Task is a chain's way to its next checkpoint.
type Task struct {
	Chain      int      `json:"chain"` // from 1
	From       State    `json:"from"`
	Settings   Settings `json:"settings"`
	Iterations int      `json:"iterations"`
	Warmup     bool     `json:"warmup"`
	// Left is how many more draws the chain may make, with this task's, before
	// it has to look at the run again.
	Left int `json:"left"`
}

// Next returns the task that follows a task with the given result, as far as
// can be told without the run: a driver may go on before its checkpoint counts.
func (t Task) Next(p *Plan, k *Checkpoint) (Task, bool) {
	left := t.Left - (len(k.Draws) - k.Discard)
	n := Task{Chain: t.Chain, From: k.State.clone(), Settings: t.Settings, Iterations: p.Checkpoint, Warmup: t.Warmup, Left: left}
	if t.Warmup {
		n.Iterations = min(n.Iterations, left)
	}
	return n, left > 0
}

// Checkpoint is the result of a task.
type Checkpoint struct {
	Chain    int         `json:"chain"`
	FromIter int         `json:"from_iter"`
	State    State       `json:"state"`
	Draws    [][]float64 `json:"draws"` // ψ after each iteration
	// Discard is the number of leading draws that are still warm-up: those of
	// SGLD before its step is frozen.
	Discard int    `json:"discard,omitempty"`
	Stats   Stats  `json:"stats"`
	Cost    Cost   `json:"cost"`
	Vitals  Vitals `json:"vitals,omitzero"`
}

// Stop ends a run.
type Stop struct {
	Reason Reason `json:"reason"`
	Draws  int    `json:"draws"`           // kept of each chain
	Phase  Phase  `json:"phase,omitempty"` // in which it ended; Apply fills it in
}

// Extend lets a run, ended or not, draw more.
type Extend struct {
	Draws int `json:"draws"` // more, of each chain
}

// Reason is why a run ended.
type Reason string

// The reasons.
const (
	Converged Reason = "converged"
	MaxDraws  Reason = "max_draws"
	MaxTime   Reason = "max_time"
	Cancelled Reason = "cancelled"
)

// Event is a change of a run: exactly one field is set.
type Event struct {
	Prepared   *Prepared   `json:"prepared,omitempty"`
	Settings   *Settings   `json:"settings,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Stop       *Stop       `json:"stop,omitempty"`
	Extend     *Extend     `json:"extend,omitempty"`
}

// Errors that Apply returns. An event that is refused changes nothing.
var (
	// ErrStale is returned for a checkpoint that does not continue its chain:
	// another driver has already gone on from there.
	ErrStale = errors.New("the checkpoint does not continue its chain")
	// ErrPhase is returned for an event that does not belong to the phase.
	ErrPhase = errors.New("the event does not belong to the run's phase")
	// ErrShape is returned for an event of the wrong sizes, or with numbers that
	// are not finite.
	ErrShape = errors.New("the event is malformed")
)

// Run is the state of a run.
type Run struct {
	Plan     Plan      `json:"plan"`
	Phase    Phase     `json:"phase"`
	Prepared *Prepared `json:"prepared,omitempty"`
	Settings *Settings `json:"settings,omitempty"`
	Chains   []Chain   `json:"chains"`
	Stopped  *Stop     `json:"stop,omitempty"`
	// Tuned are the settings so far.
	Tuned []Tuned `json:"tuned,omitempty"`
}

// Chain is what is known of a chain.
type Chain struct {
	State  State       `json:"state"`
	Warmup int         `json:"warmup"` // iterations that were warm-up
	Draws  [][]float64 `json:"draws"`  // kept, ψ
	Cost   Cost        `json:"cost"`
	// Beyond are draws past the end of the run: they do not count unless it is
	// extended.
	Beyond [][]float64 `json:"beyond,omitempty"`
	// The windows so far: draws by window, and the noise of the current one.
	Windows [][][]float64 `json:"windows,omitempty"`
	Stats   Stats         `json:"stats"`
	// Course is how the gradients went, in bounded detail.
	Course []Mark `json:"course,omitempty"`
}

// New returns a run at its beginning.
func New(plan Plan) *Run {
	return &Run{Plan: plan, Phase: Preparing, Chains: make([]Chain, plan.Chains)}
}

// Apply changes the run by an event, or returns one of the errors above and
// changes nothing.
func (r *Run) Apply(e Event) error {
	if e.changes() != 1 {
		return fmt.Errorf("%w: it is not one change", ErrShape)
	}
	switch {
	case e.Prepared != nil:
		return r.prepared(e.Prepared)
	case e.Settings != nil:
		return r.settings(e.Settings)
	case e.Checkpoint != nil:
		return r.checkpoint(e.Checkpoint)
	case e.Stop != nil:
		return r.stop(e.Stop)
	}
	return r.extend(e.Extend)
}

func (r *Run) prepared(p *Prepared) error {
	d := r.Plan.Params()
	if r.Phase != Preparing {
		return ErrPhase
	}
	if !point(d, append([][]float64{p.Psi}, p.Starts...)...) || len(p.Starts) != len(r.Chains) || len(p.Cov) != d*d || !finite(p.Cov) ||
		!square(d, p.ProbeCov, p.SolverCov) || !finite([]float64{p.Asymmetry, p.Acceptance}) || !(p.Tolerance >= 0 && p.Tolerance < 1) || p.Rank < 0 || !p.Cost.sane() {
		return ErrShape
	}
	r.Prepared = p
	r.Phase = Warmup
	return nil
}

func (r *Run) settings(s *Settings) error {
	d := r.Plan.Params()
	if !r.AtBarrier() || s.Window != r.nextWindow() {
		return ErrPhase
	}
	if !s.sane(d) {
		return ErrShape
	}
	r.Settings = s
	r.tuned(s)
	if s.Window == 0 {
		for c := range r.Chains {
			r.Chains[c].State = State{Psi: slices.Clone(r.Prepared.Starts[c])}
		}
	}
	if s.Window == len(r.Plan.Windows) {
		r.Phase = Sampling
		for c := range r.Chains { // acceptance is that of the kept draws
			if m := r.Chains[c].State.Metropolis; m != nil {
				m.Accepted, m.Steps = 0, 0
			}
		}
	}
	for c := range r.Chains {
		r.Chains[c].Stats = Stats{}
		if r.Phase == Sampling {
			r.Chains[c].Windows = nil
		} else {
			r.Chains[c].Windows = append(r.Chains[c].Windows, nil)
		}
	}
	return nil
}

func (r *Run) checkpoint(k *Checkpoint) error {
	if k.Chain < 1 || k.Chain > len(r.Chains) {
		return ErrShape
	}
	task, ok := r.task(k.Chain)
	if !ok || k.FromIter != task.From.Iter {
		return ErrStale
	}
	d := r.Plan.Params()
	if k.State.Iter != k.FromIter+task.Iterations || len(k.Draws) != task.Iterations || k.Discard < 0 || k.Discard > len(k.Draws) ||
		!point(d, k.Draws...) || !k.State.sane(&r.Plan) || !k.Stats.sane(d, task.Iterations) || !k.Cost.sane() ||
		!k.Vitals.sane(task.Iterations) {
		return ErrShape
	}
	c := &r.Chains[k.Chain-1]
	c.State = k.State
	c.Cost.Add(k.Cost)
	c.Stats.add(k.Stats)
	c.mark(k)
	if task.Warmup {
		w := len(c.Windows) - 1
		c.Windows[w] = append(c.Windows[w], k.Draws...)
		c.Warmup += len(k.Draws)
		return nil
	}
	c.Warmup += k.Discard
	c.Draws = append(c.Draws, k.Draws[k.Discard:]...)
	return nil
}

func (r *Run) stop(s *Stop) error {
	if r.Phase == Done {
		return ErrPhase
	}
	for _, c := range r.Chains {
		if s.Draws < 0 || len(c.Draws) < s.Draws {
			return ErrShape
		}
	}
	for c := range r.Chains {
		ch := &r.Chains[c]
		ch.Draws, ch.Beyond = ch.Draws[:s.Draws:s.Draws], ch.Draws[s.Draws:]
	}
	stopped := *s
	stopped.Phase = r.Phase
	r.Stopped, r.Phase = &stopped, Done
	return nil
}

// extend moves the end of a run. The draws that it gets are those that it would
// have had, had it never ended.
func (r *Run) extend(e *Extend) error {
	if e.Draws <= 0 || e.Draws > maxExtend {
		return ErrShape
	}
	from := r.Plan.Draws
	if r.Phase == Done {
		from = r.Stopped.Draws
		for c := range r.Chains {
			ch := &r.Chains[c]
			ch.Draws, ch.Beyond = append(ch.Draws, ch.Beyond...), nil
		}
		r.Phase, r.Stopped = r.Stopped.Phase, nil
	}
	r.Plan.Draws = from + e.Draws
	r.Plan.MaxDraws = max(r.Plan.MaxDraws, r.Plan.Draws)
	return nil
}

// maxExtend bounds what one event may ask for.
const maxExtend = 1 << 24

// maxLead is how many checkpoints a chain may be ahead of the slowest one.
const maxLead = 10

// Task returns what a chain (from 1) is to do next, or false if there is
// nothing: it waits at a barrier or for slower chains, or the run is done.
func (r *Run) Task(chain int) (Task, bool) {
	t, ok := r.task(chain)
	if ok && !t.Warmup {
		t.Left = min(t.Left, r.MinDraws()+maxLead*r.Plan.Checkpoint-len(r.Chains[chain-1].Draws))
	}
	return t, ok && t.Left > 0
}

// task is Task for a chain that waits for nobody but at barriers.
func (r *Run) task(chain int) (Task, bool) {
	if r.Settings == nil || r.Phase == Done {
		return Task{}, false
	}
	c := &r.Chains[chain-1]
	t := Task{Chain: chain, From: c.State.clone(), Settings: *r.Settings, Iterations: r.Plan.Checkpoint}
	switch r.Phase {
	case Warmup:
		t.Left = r.Plan.Windows[r.Settings.Window] - len(c.Windows[len(c.Windows)-1])
		t.Iterations = min(t.Iterations, t.Left)
		t.Warmup = true
	case Sampling:
		t.Left = r.Plan.MaxDraws - len(c.Draws)
	}
	return t, t.Left > 0
}

// AtBarrier reports whether settings are due: the run is prepared and all
// chains have finished their window.
func (r *Run) AtBarrier() bool {
	if r.Phase != Warmup {
		return false
	}
	if r.Settings == nil {
		return true
	}
	for _, c := range r.Chains {
		if len(c.Windows[len(c.Windows)-1]) < r.Plan.Windows[r.Settings.Window] {
			return false
		}
	}
	return true
}

func (r *Run) nextWindow() int {
	if r.Settings == nil {
		return 0
	}
	return r.Settings.Window + 1
}

// MinDraws returns the number of draws that every chain has.
func (r *Run) MinDraws() int {
	least := len(r.Chains[0].Draws)
	for _, c := range r.Chains {
		least = min(least, len(c.Draws))
	}
	return least
}

// Cost returns the cost of the whole run.
func (r *Run) Cost() Cost {
	var total Cost
	if r.Prepared != nil {
		total = r.Prepared.Cost
	}
	for _, c := range r.Chains {
		total.Add(c.Cost)
	}
	return total
}
