// Package chains is the schedule of a run: which chain is to do what next,
// what it has done, and when it is enough. It holds no n-vector and does no
// sampling: drivers (package driver) carry out its tasks, wherever they are.
//
// A Run is a state machine that changes only by Apply, event by event. Replaying
// its events rebuilds it, so a journal of them is a checkpoint. Decisions that
// need arithmetic (the metric after a window, the end of a run) are computed
// beside it by the sampler and by Judge, functions of the state alone, and enter it
// as events like everything else: replicas on different machines cannot disagree.
//
// # Life of a run
//
// preparing: one driver finds the mode and the curvature there (Prepared).
// warmup: every chain runs a window of iterations; when all have, the sampler
// (package sampler) pools their draws and gradient statistics into the settings
// of the next window. Windows are barriers, so the result does not depend on
// timing. After the last window the settings are frozen. Meanwhile a driver may
// weigh draws of the Laplace approximation (Provisional), so that there is
// something to look at. sampling: chains run independently; Judge looks at all
// of them at equal numbers of draws and ends the sampling. concluding: if the model has a mean, one
// driver computes what some of the draws say of its coefficients. certifying: if the plan
// asks for it, a short run of an exact sampler follows, a Run of its own, that
// the draws are compared with. done.
//
// # Lanes
//
// What a run needs done is cut into lanes, each for one driver at a time: lane 0
// is the work of the run as a whole (the preparation, the provisional answer),
// lane c that of chain c. Lanes says which have something to do, Work what.
//
// Chains report at checkpoints, every Plan.Checkpoint iterations: the unit of
// work, of loss, and of history (a driver forgets warm starts there, so that a
// chain continued by another driver is the same to the last bit).
package chains

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/latent"
)

// Phase is where a run stands.
type Phase string

// The phases, in order.
const (
	Preparing  Phase = "preparing"
	Warmup     Phase = "warmup"
	Sampling   Phase = "sampling"
	Concluding Phase = "concluding"
	Certifying Phase = "certifying"
	Done       Phase = "done"
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
	Others     []Local `json:"others,omitempty"`
	OthersRows int     `json:"others_rows,omitempty"`
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
	// Near is the share of the pairs of rows that products evaluate at the mode, the others being nothing to rounding; 0 where
	// all are evaluated.
	Near float64 `json:"near,omitempty"`
	Cost Cost    `json:"cost"`
}

// Local is a local maximum of the log posterior.
type Local struct {
	Psi   []float64 `json:"psi"`
	Below float64   `json:"below"` // the highest found, in log density
}

// Provisional holds the log posterior densities, up to a constant, of draws of a
// Student t at the mode, which the plan's seed and Prepared give
// (sampler.Provisional): −math.MaxFloat64 where K is numerically singular.
type Provisional struct {
	LogDensities []float64 `json:"log_densities"`
	Cost         Cost      `json:"cost"`
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

// Metric returns C.
func (s *Settings) Metric() *mat.SymDense { return Symmetric(s.C) }

// State is what a chain carries across a checkpoint.
type State struct {
	Iter int       `json:"iter"` // iterations done
	Psi  []float64 `json:"psi"`
	// Memory is what else the sampler remembers, in an order of its own.
	Memory []float64 `json:"memory,omitempty"`
	// Latent names the vectors of length n that the state holds besides, if any
	// (Plan.Latent). They are kept elsewhere: a checkpoint counts only where they are.
	Latent latent.Ref `json:"latent,omitzero"`
	// Restarts is how often the run had begun again when the chain began.
	Restarts int `json:"restarts,omitempty"`
}

func (s State) clone() State {
	s.Psi, s.Memory = slices.Clone(s.Psi), slices.Clone(s.Memory)
	return s
}

// Stats are sums over the gradients of a checkpoint.
type Stats struct {
	Spreads   int       `json:"spreads,omitempty"` // gradients whose noise was measured
	ProbeCov  []float64 `json:"probe_cov,omitempty"`
	SolverCov []float64 `json:"solver_cov,omitempty"`
	Products  int       `json:"products,omitempty"`
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
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

// Work is what a lane is to do: exactly one of the pointers is set.
type Work struct {
	// Certificate says that it belongs to the run that certifies: so do the events
	// that come of it.
	Certificate bool         `json:"certificate,omitempty"`
	Prepare     *Preparation `json:"prepare,omitempty"`  // lane 0
	Weigh       *Weighing    `json:"weigh,omitempty"`    // lane 0
	Advance     *Task        `json:"advance,omitempty"`  // a chain's lane
	Adapt       *Adapting    `json:"adapt,omitempty"`    // the first chain's lane
	Conduct     *Conducting  `json:"conduct,omitempty"`  // lane 0 of a staged run
	Evaluate    *Evaluation  `json:"evaluate,omitempty"` // its other lanes
	Conclude    *Conclusion  `json:"conclude,omitempty"` // lane 0
}

// Preparation asks for a Prepared. From, if it is not nil, has the point, its
// covariance and the starts already: those of draws of another sampler.
type Preparation struct {
	From *Prepared `json:"from,omitempty"`
}

// Weighing asks for a Provisional.
type Weighing struct {
	From *Prepared `json:"from"`
}

// Adapting asks for the Settings of the next window of a run at a barrier. It holds what
// of the run they follow from.
type Adapting struct {
	Plan     *Plan     `json:"plan"`
	Prepared *Prepared `json:"prepared"`
	Settings *Settings `json:"settings,omitempty"`
	Chains   []Warmed  `json:"chains"`
}

// Warmed is what a chain has done of the warm-up: as in Chain.
type Warmed struct {
	Windows [][][]float64 `json:"windows"`
	Stats   Stats         `json:"stats"`
}

// Run returns the run at its barrier, as far as its settings follow from it.
func (a *Adapting) Run() *Run {
	r := New(*a.Plan)
	r.Phase, r.Prepared, r.Settings, r.Chains = Warmup, a.Prepared, a.Settings, nil
	for _, c := range a.Chains {
		r.Chains = append(r.Chains, Chain{Windows: c.Windows, Stats: c.Stats})
	}
	return r
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
	// Again says that the run begins again if the chain diverges; else it fails.
	Again bool `json:"again,omitempty"`
}

// Next returns the task that follows a task with the given result, as far as
// can be told without the run: a driver may go on before its checkpoint counts.
func (t Task) Next(p *Plan, k *Checkpoint) (Task, bool) {
	left := t.Left - (len(k.Draws) - k.Discard)
	n := Task{Chain: t.Chain, From: k.State.clone(), Settings: t.Settings, Iterations: p.Checkpoint, Warmup: t.Warmup, Left: left, Again: t.Again}
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
	Discard int `json:"discard,omitempty"`
	// Accepted is how many of the iterations accepted a proposal.
	Accepted int    `json:"accepted,omitempty"`
	Stats    Stats  `json:"stats"`
	Cost     Cost   `json:"cost"`
	Vitals   Vitals `json:"vitals,omitzero"`
}

// Stop ends a run.
type Stop struct {
	Reason Reason `json:"reason"`
	Draws  int    `json:"draws"` // kept of each chain
	// Elapsed is how long the run was at work by then, in seconds.
	Elapsed float64 `json:"elapsed,omitempty"`
	Phase   Phase   `json:"phase,omitempty"` // in which it ended; Apply fills it in
}

// Extend lets a run, ended or not, draw more, be certified, or go on to another goal.
type Extend struct {
	Draws int `json:"draws"` // more, of each chain
	// Goal, if not nil, is what the run is to come to; it stands alone.
	Goal *Goal `json:"goal,omitempty"`
	// Certificate, if not nil, is the plan of the run that certifies.
	Certificate *Plan `json:"certificate,omitempty"`
}

// Goal is what a run is to come to: as in Plan.
type Goal struct {
	Draws    int           `json:"draws"`
	MaxDraws int           `json:"max_draws"`
	RHat     float64       `json:"rhat"`
	ESS      float64       `json:"ess"`
	MaxTime  time.Duration `json:"max_time"`
}

// Goal returns what the plan is to come to.
func (p *Plan) Goal() Goal { return Goal{p.Draws, p.MaxDraws, p.RHat, p.ESS, p.MaxTime} }

func (g *Goal) sane() bool {
	return g.Draws > 0 && g.MaxDraws >= g.Draws && g.MaxDraws <= MaxGoal && finite([]float64{g.RHat, g.ESS}) && g.MaxTime >= 0
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

// Event is a change of a run: exactly one of the pointers is set.
type Event struct {
	// Certificate says that it is the run that certifies which changes.
	Certificate bool         `json:"certificate,omitempty"`
	Prepared    *Prepared    `json:"prepared,omitempty"`
	Provisional *Provisional `json:"provisional,omitempty"`
	Settings    *Settings    `json:"settings,omitempty"`
	Checkpoint  *Checkpoint  `json:"checkpoint,omitempty"`
	Stage       *Stage       `json:"stage,omitempty"`
	Evaluated   *Evaluated   `json:"evaluated,omitempty"`
	Drawn       *Drawn       `json:"drawn,omitempty"`
	Diverged    *Divergence  `json:"diverged,omitempty"`
	Restart     *Restart     `json:"restart,omitempty"`
	// Coefficients come after the end of the sampling.
	Coefficients *Coefficients `json:"coefficients,omitempty"`
	Stop         *Stop         `json:"stop,omitempty"`
	Extend       *Extend       `json:"extend,omitempty"`
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
	Plan        Plan         `json:"plan"`
	Phase       Phase        `json:"phase"`
	Prepared    *Prepared    `json:"prepared,omitempty"`
	Provisional *Provisional `json:"provisional,omitempty"`
	Settings    *Settings    `json:"settings,omitempty"`
	Chains      []Chain      `json:"chains"`
	Stopped     *Stop        `json:"stop,omitempty"`
	// Tuned are the settings so far.
	Tuned []Tuned `json:"tuned,omitempty"`
	// Restarts are the times that the run began again, and Lost what was done in vain.
	Restarts []Restart `json:"restarts,omitempty"`
	Lost     Cost      `json:"lost,omitzero"`
	// Extended says that the run goes on after an end that left draws.
	Extended bool `json:"extended,omitempty"`
	// Stages and Drawn are those of a staged run.
	Stages []Staging `json:"stages,omitempty"`
	Drawn  *Drawn    `json:"drawn,omitempty"`
	// Coefficients are those of the mean, once the sampling has ended.
	Coefficients *Coefficients `json:"coefficients,omitempty"`
	// Certificate is the run of the exact sampler that certifies this one, once
	// that is due.
	Certificate *Run `json:"certificate,omitempty"`
}

// Chain is what is known of a chain.
type Chain struct {
	State  State       `json:"state"`
	Warmup int         `json:"warmup"` // iterations that were warm-up
	Draws  [][]float64 `json:"draws"`  // kept, ψ
	Cost   Cost        `json:"cost"`
	// Accepted is how many proposals were accepted since the warm-up, one an
	// iteration: of samplers that make proposals.
	Accepted int `json:"accepted,omitempty"`
	// Beyond are draws past the end of the run: they do not count unless it is
	// extended.
	Beyond [][]float64 `json:"beyond,omitempty"`
	// The windows so far: draws by window, and the noise of the current one.
	Windows [][][]float64 `json:"windows,omitempty"`
	Stats   Stats         `json:"stats"`
	// Course is how the gradients went, in bounded detail.
	Course []Mark `json:"course,omitempty"`
	// Diverged is the iteration at which the chain diverged; 0 if it did not.
	Diverged int `json:"diverged,omitempty"`
}

// Latents returns what names the latent vectors that the run goes on from: two for
// each chain, those of the run and those of the run that certifies it, zero where
// there are none.
func (r *Run) Latents() []latent.Ref {
	out := make([]latent.Ref, 2*len(r.Chains))
	for c := range r.Chains {
		out[2*c] = r.Chains[c].State.Latent
		if r.Certificate != nil {
			out[2*c+1] = r.Certificate.Chains[c].State.Latent
		}
	}
	return out
}

// Acceptance returns the share of proposals that were accepted since the warm-up; 0
// of samplers that make none.
func (c *Chain) Acceptance() float64 {
	if steps := c.State.Iter - c.Warmup; steps > 0 {
		return float64(c.Accepted) / float64(steps)
	}
	return 0
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
	if e.Certificate {
		return r.certificate(e)
	}
	switch {
	case e.Prepared != nil:
		return r.prepared(e.Prepared)
	case e.Provisional != nil:
		return r.provisional(e.Provisional)
	case e.Settings != nil:
		return r.settings(e.Settings)
	case e.Checkpoint != nil:
		return r.checkpoint(e.Checkpoint)
	case e.Stage != nil:
		return r.stage(e.Stage)
	case e.Evaluated != nil:
		return r.evaluated(e.Evaluated)
	case e.Drawn != nil:
		return r.drawn(e.Drawn)
	case e.Diverged != nil:
		return r.diverged(e.Diverged)
	case e.Restart != nil:
		return r.restart(e.Restart)
	case e.Coefficients != nil:
		return r.coefficients(e.Coefficients)
	case e.Stop != nil:
		return r.stop(e.Stop)
	}
	return r.extend(e.Extend)
}

// certificate changes the run that certifies.
func (r *Run) certificate(e Event) error {
	if r.Phase != Certifying || e.Extend != nil {
		return ErrPhase
	}
	e.Certificate = false
	if err := r.Certificate.Apply(e); err != nil {
		return err
	}
	if r.Certificate.Phase == Done {
		r.Phase = Done
	}
	return nil
}

func (r *Run) prepared(p *Prepared) error {
	d := r.Plan.Params()
	if r.Phase != Preparing {
		return ErrPhase
	}
	if !point(d, append([][]float64{p.Psi}, p.Starts...)...) || len(p.Starts) != len(r.Chains) || len(p.Cov) != d*d || !finite(p.Cov) ||
		!square(d, p.ProbeCov, p.SolverCov) || !finite([]float64{p.Asymmetry, p.Acceptance}) || !(p.Near >= 0 && p.Near <= 1) || !(p.Tolerance >= 0 && p.Tolerance < 1) || p.Rank < 0 || !p.Cost.sane() {
		return ErrShape
	}
	r.Prepared = p
	r.Phase = Warmup
	return nil
}

func (r *Run) provisional(p *Provisional) error {
	if !r.weighs() {
		return ErrPhase
	}
	if len(p.LogDensities) != ProvisionalDraws || !finite(p.LogDensities) || !p.Cost.sane() {
		return ErrShape
	}
	r.Provisional = p
	return nil
}

// ProvisionalDraws is the number of draws that a provisional answer weighs: each
// takes a dense density.
const ProvisionalDraws = 200

// weighs reports whether a provisional answer is wanted and not there.
func (r *Run) weighs() bool {
	return r.Plan.Provisional && r.Provisional == nil && (r.Phase == Warmup || r.Phase == Sampling)
}

func (r *Run) settings(s *Settings) error {
	d := r.Plan.Params()
	if !r.atBarrier() || s.Window != r.NextWindow() {
		return ErrPhase
	}
	if !s.Sane(d) {
		return ErrShape
	}
	r.Settings = s
	r.tuned(s)
	if s.Window == 0 {
		for c := range r.Chains {
			r.Chains[c].State = State{Psi: slices.Clone(r.Prepared.Starts[c]), Restarts: len(r.Restarts)}
		}
	}
	if s.Window == len(r.Plan.Windows) {
		r.Phase = Sampling
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
	if !ok || k.FromIter != task.From.Iter || k.State.Restarts != task.From.Restarts {
		return ErrStale
	}
	d := r.Plan.Params()
	if k.State.Iter != k.FromIter+task.Iterations || len(k.Draws) != task.Iterations || k.Discard < 0 || k.Discard > len(k.Draws) ||
		k.Accepted < 0 || k.Accepted > task.Iterations ||
		!point(d, k.Draws...) || !k.State.sane(&r.Plan) || !k.Stats.sane(d, task.Iterations) || !k.Cost.sane() ||
		!k.Vitals.sane(task.Iterations) {
		return ErrShape
	}
	c := &r.Chains[k.Chain-1]
	c.State = k.State
	c.Cost.Add(k.Cost)
	c.Stats.Add(k.Stats)
	c.mark(k)
	if task.Warmup {
		w := len(c.Windows) - 1
		c.Windows[w] = append(c.Windows[w], k.Draws...)
		c.Warmup += len(k.Draws)
		return nil
	}
	c.Warmup += k.Discard
	c.Accepted += k.Accepted
	c.Draws = append(c.Draws, k.Draws[k.Discard:]...)
	return nil
}

// stop ends the sampling, or, if that has ended, gives up the coefficients and the certificate.
func (r *Run) stop(s *Stop) error {
	switch {
	case r.Phase == Done || (r.Phase == Concluding || r.Phase == Certifying) && s.Reason != Cancelled:
		return ErrPhase
	case r.Phase == Concluding || r.Phase == Certifying:
		r.Certificate, r.Phase = nil, Done
		return nil
	}
	for _, c := range r.Chains {
		if s.Draws < 0 || len(c.Draws) < s.Draws {
			return ErrShape
		}
	}
	if !(s.Elapsed >= 0 && s.Elapsed <= maxCost) {
		return ErrShape
	}
	for c := range r.Chains {
		ch := &r.Chains[c]
		ch.Draws, ch.Beyond = ch.Draws[:s.Draws:s.Draws], ch.Draws[s.Draws:]
	}
	stopped := *s
	stopped.Phase = r.Phase
	r.Stopped, r.Phase = &stopped, Done
	if r.Plan.Mean && s.Reason != Cancelled && s.Draws > 0 {
		r.Phase = Concluding
		return nil
	}
	r.certify()
	return nil
}

// certify begins the certificate of a run that has ended, if it is to have one.
func (r *Run) certify() {
	if p := r.Plan.Certificate; p != nil && r.certifiable() {
		r.Certificate, r.Phase = New(*p), Certifying
	}
}

// certifiable reports whether the draws of a run that has ended are worth it.
func (r *Run) certifiable() bool {
	return r.Stopped.Reason != Cancelled && r.Stopped.Draws >= CertifyDraws
}

// CertifyDraws is the least number of draws of each chain that are worth being
// certified.
const CertifyDraws = 20

// extend moves the end of a run. The draws that it gets are those that it would
// have had, had it never ended.
func (r *Run) extend(e *Extend) error {
	p := e.Certificate
	if g := e.Goal; g != nil {
		if e.Draws != 0 || p != nil || !g.sane() {
			return ErrShape
		}
		r.reopen()
		r.aim(*g)
		return nil
	}
	if e.Draws < 0 || e.Draws > MaxExtend || e.Draws == 0 && p == nil || p != nil && !p.certifies(&r.Plan) {
		return ErrShape
	}
	if p != nil {
		if e.Draws == 0 && (r.Certificate != nil || r.Phase == Done && !r.certifiable()) {
			return ErrPhase
		}
		r.Plan.Certificate = p
		if e.Draws == 0 {
			if r.Phase == Done {
				r.certify()
			}
			return nil
		}
	}
	from := r.reopen()
	r.Plan.Draws = from + e.Draws
	r.Plan.MaxDraws = max(r.Plan.MaxDraws, r.Plan.Draws)
	return nil
}

// reopen undoes the end of a run, if it has ended, and returns the draws from which more are counted.
func (r *Run) reopen() (from int) {
	if r.Stopped == nil {
		return r.Plan.Draws
	}
	from = r.Stopped.Draws
	for c := range r.Chains {
		ch := &r.Chains[c]
		ch.Draws, ch.Beyond, ch.Diverged = append(ch.Draws, ch.Beyond...), nil, 0
	}
	r.Extended = r.Extended || from > 0
	r.Phase, r.Stopped, r.Coefficients, r.Certificate = r.Stopped.Phase, nil, nil, nil
	return from
}

// aim sets the goal. Draws that are there are not given up for a smaller one.
func (r *Run) aim(g Goal) {
	for _, c := range r.Chains {
		g.MaxDraws = max(g.MaxDraws, len(c.Draws))
	}
	p := &r.Plan
	p.Draws, p.MaxDraws, p.RHat, p.ESS, p.MaxTime = g.Draws, g.MaxDraws, g.RHat, g.ESS, g.MaxTime
}

// Bounds of what one event may ask for.
const (
	MaxExtend = 1 << 24
	MaxGoal   = 1 << 30
)

// maxLead is how many checkpoints a chain may be ahead of the slowest one.
const maxLead = 10

// Lanes returns the lanes that want a driver, in order.
func (r *Run) Lanes() []int {
	switch r.Phase {
	case Preparing:
		return []int{0}
	case Concluding:
		return []int{0}
	case Certifying:
		return r.Certificate.Lanes()
	case Done:
		return nil
	}
	var lanes []int
	if r.weighs() || r.idle() {
		lanes = append(lanes, 0)
	}
	n := len(r.Chains)
	if r.Plan.Staged {
		n = r.stageLanes()
	}
	for c := range n {
		lanes = append(lanes, c+1)
	}
	return lanes
}

// Work returns what a lane is to do next, or false if there is nothing for now. The
// items of a stage are not among it: a Dispatcher hands them out.
func (r *Run) Work(lane int) (Work, bool) {
	switch {
	case r.Phase == Certifying:
		w, ok := r.Certificate.Work(lane)
		if w.Prepare != nil {
			w.Prepare.From = r.pooledPoint()
		}
		w.Certificate = true
		return w, ok
	case r.Phase == Concluding:
		return Work{Conclude: r.concluding()}, lane == 0
	case lane > 0:
		t, ok := r.Task(lane)
		return Work{Advance: &t}, ok
	case r.Phase == Preparing:
		return Work{Prepare: &Preparation{}}, true
	case r.idle():
		return Work{Conduct: r.conducting()}, true
	}
	return Work{Weigh: &Weighing{From: r.Prepared}}, r.weighs()
}

// Adapting returns the work that a barrier waits for, or false if the run is at none. It
// is for a driver where who decides does not compute with the arithmetic of the job.
func (r *Run) Adapting() (Work, bool) {
	if r.Phase == Certifying {
		w, ok := r.Certificate.Adapting()
		w.Certificate = true
		return w, ok
	}
	if !r.atBarrier() {
		return Work{}, false
	}
	a := &Adapting{Plan: &r.Plan, Prepared: r.Prepared, Settings: r.Settings}
	for _, c := range r.Chains {
		a.Chains = append(a.Chains, Warmed{Windows: c.Windows, Stats: c.Stats})
	}
	return Work{Adapt: a}, true
}

// Iter returns the iterations that a lane has done of what is under way.
func (r *Run) Iter(lane int) int {
	switch {
	case r.Phase == Certifying:
		return r.Certificate.Iter(lane)
	case lane == 0:
		return 0
	case r.Plan.Staged: // any item is progress
		n := len(r.Stages)
		for _, s := range r.Stages {
			n += len(s.Items) - s.Left
		}
		return n
	}
	return r.Chains[lane-1].State.Iter
}

// PreparedFor returns what was prepared for some work of the run.
func (r *Run) PreparedFor(w Work) *Prepared {
	if w.Certificate {
		return r.Certificate.Prepared
	}
	return r.Prepared
}

// pooledPoint returns what the draws say of where the posterior is: their mean and
// covariance, and the last of each chain to start from.
func (r *Run) pooledPoint() *Prepared {
	p := &Prepared{}
	var draws [][][]float64
	for _, c := range r.Chains {
		draws = append(draws, c.Draws)
		p.Starts = append(p.Starts, c.Draws[len(c.Draws)-1])
	}
	guess := Symmetric(r.Prepared.Cov)
	mean, cov := Pool(draws, guess, float64(guess.SymmetricDim()))
	p.Psi, p.Cov = mean, Flat(cov)
	return p
}

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
	if r.Settings == nil || r.Stopped != nil || r.Chains[chain-1].Diverged > 0 {
		return Task{}, false
	}
	c := &r.Chains[chain-1]
	t := Task{Chain: chain, From: c.State.clone(), Settings: *r.Settings, Iterations: r.Plan.Checkpoint, Again: r.again()}
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

// AtBarrier reports whether settings are due, of the run or of the one that
// certifies it: it is prepared and all chains have finished their window.
func (r *Run) AtBarrier() bool {
	return r.atBarrier() || r.Phase == Certifying && r.Certificate.AtBarrier()
}

func (r *Run) atBarrier() bool {
	if r.Phase != Warmup || r.Plan.Staged {
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

// NextWindow returns the window that the next settings are for.
func (r *Run) NextWindow() int {
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

// Cost returns the cost of the whole run, but for its certificate.
func (r *Run) Cost() Cost {
	var total Cost
	if r.Prepared != nil {
		total = r.Prepared.Cost
	}
	total.Add(r.Lost)
	for _, c := range r.Chains {
		total.Add(c.Cost)
	}
	return total
}
