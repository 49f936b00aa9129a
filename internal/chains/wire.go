package chains

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ulisse-gp/ulisse/internal/latent"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Encode returns an event as it goes over the wire, and is kept.
func (e *Event) Encode() ([]byte, error) {
	m := &pb.RunEvent{Certificate: e.Certificate}
	switch {
	case e.changes() != 1:
		return nil, fmt.Errorf("%w: it is not one change", ErrShape)
	case e.Prepared != nil:
		m.Change = &pb.RunEvent_Prepared{Prepared: e.Prepared.Wire()}
	case e.Provisional != nil:
		m.Change = &pb.RunEvent_Provisional{Provisional: &pb.RunProvisional{LogDensities: e.Provisional.LogDensities, Cost: e.Provisional.Cost.wire()}}
	case e.Settings != nil:
		m.Change = &pb.RunEvent_Settings{Settings: e.Settings.wire()}
	case e.Checkpoint != nil:
		m.Change = &pb.RunEvent_Checkpoint{Checkpoint: e.Checkpoint.wire()}
	case e.Stage != nil:
		m.Change = &pb.RunEvent_Stage{Stage: e.Stage.wire()}
	case e.Evaluated != nil:
		v := e.Evaluated
		m.Change = &pb.RunEvent_Evaluated{Evaluated: &pb.RunEvaluated{Stage: int64(v.Stage), Item: int64(v.Item), Numbers: v.Numbers, Cost: v.Cost.wire()}}
	case e.Drawn != nil:
		m.Change = &pb.RunEvent_Drawn{Drawn: e.Drawn.wire()}
	case e.Diverged != nil:
		d := e.Diverged
		m.Change = &pb.RunEvent_Diverged{Diverged: &pb.RunDivergence{Chain: int64(d.Chain), FromIter: int64(d.FromIter), Iter: int64(d.Iter), Restarts: int64(d.Restarts), Cost: d.Cost.wire()}}
	case e.Coefficients != nil:
		k := e.Coefficients
		m.Change = &pb.RunEvent_Coefficients{Coefficients: &pb.RunCoefficients{Draws: int64(k.Draws), Mean: vectors(k.Mean), Sd: vectors(k.SD), Unconverged: int64(k.Unconverged), Cost: k.Cost.wire()}}
	case e.Restart != nil:
		m.Change = &pb.RunEvent_Restart{Restart: &pb.RunRestart{ElapsedSeconds: e.Restart.Elapsed}}
	case e.Stop != nil:
		m.Change = &pb.RunEvent_Stop{Stop: &pb.RunStop{Reason: string(e.Stop.Reason), Draws: int64(e.Stop.Draws), ElapsedSeconds: e.Stop.Elapsed}}
	default:
		m.Change = &pb.RunEvent_Extend{Extend: &pb.RunExtend{Draws: int64(e.Extend.Draws), Certificate: e.Extend.Certificate.Wire(), Goal: e.Extend.Goal.wire()}}
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// DecodeEvent reads an event. What makes no sense to a run is left to Apply to
// refuse.
func DecodeEvent(b []byte) (*Event, error) {
	var m pb.RunEvent
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShape, err)
	}
	e := &Event{Certificate: m.Certificate}
	switch c := m.Change.(type) {
	case *pb.RunEvent_Prepared:
		e.Prepared = PreparedOf(c.Prepared)
	case *pb.RunEvent_Provisional:
		e.Provisional = &Provisional{LogDensities: c.Provisional.GetLogDensities(), Cost: costOf(c.Provisional.GetCost())}
	case *pb.RunEvent_Settings:
		e.Settings = settingsOf(c.Settings)
	case *pb.RunEvent_Checkpoint:
		e.Checkpoint = checkpointOf(c.Checkpoint)
	case *pb.RunEvent_Stage:
		e.Stage = stageOf(c.Stage)
	case *pb.RunEvent_Evaluated:
		v := c.Evaluated
		e.Evaluated = &Evaluated{Stage: int(v.GetStage()), Item: int(v.GetItem()), Numbers: v.GetNumbers(), Cost: costOf(v.GetCost())}
	case *pb.RunEvent_Drawn:
		e.Drawn = drawnOf(c.Drawn)
	case *pb.RunEvent_Diverged:
		d := c.Diverged
		e.Diverged = &Divergence{Chain: int(d.GetChain()), FromIter: int(d.GetFromIter()), Iter: int(d.GetIter()), Restarts: int(d.GetRestarts()), Cost: costOf(d.GetCost())}
	case *pb.RunEvent_Coefficients:
		k := c.Coefficients
		e.Coefficients = &Coefficients{Draws: int(k.GetDraws()), Mean: matrix(k.GetMean()), SD: matrix(k.GetSd()), Unconverged: int(k.GetUnconverged()), Cost: costOf(k.GetCost())}
	case *pb.RunEvent_Restart:
		e.Restart = &Restart{Elapsed: c.Restart.GetElapsedSeconds()}
	case *pb.RunEvent_Stop:
		e.Stop = &Stop{Reason: Reason(c.Stop.GetReason()), Draws: int(c.Stop.GetDraws()), Elapsed: c.Stop.GetElapsedSeconds()}
	case *pb.RunEvent_Extend:
		e.Extend = &Extend{Draws: int(c.Extend.GetDraws()), Certificate: PlanOf(c.Extend.GetCertificate()), Goal: goalOf(c.Extend.GetGoal())}
	default:
		return nil, fmt.Errorf("%w: it changes nothing that this version knows", ErrShape)
	}
	return e, nil
}

// Wire returns some work as it goes over the wire.
func (w *Work) Wire() *pb.RunWork {
	m := &pb.RunWork{Certificate: w.Certificate}
	switch {
	case w.Prepare != nil:
		m.Kind = &pb.RunWork_Prepare{Prepare: &pb.RunPreparation{From: w.Prepare.From.Wire()}}
	case w.Weigh != nil:
		m.Kind = &pb.RunWork_Weigh{Weigh: &pb.RunWeighing{From: w.Weigh.From.Wire()}}
	case w.Advance != nil:
		t := w.Advance
		m.Kind = &pb.RunWork_Advance{Advance: &pb.RunTask{Chain: int64(t.Chain), From: t.From.wire(), Settings: t.Settings.wire(),
			Iterations: int64(t.Iterations), Warmup: t.Warmup, Left: int64(t.Left), Again: t.Again}}
	case w.Conduct != nil:
		c := w.Conduct
		to := &pb.RunConducting{Prepared: c.Prepared.Wire(), Drawn: c.Drawn.wire(), Draws: int64(c.Draws), MaxDraws: int64(c.MaxDraws)}
		for i := range c.Stages {
			s := &c.Stages[i]
			to.Stages = append(to.Stages, &pb.RunStaging{Stage: s.Stage.wire(), Results: vectors(s.Results)})
		}
		m.Kind = &pb.RunWork_Conduct{Conduct: to}
	case w.Adapt != nil:
		m.Kind = &pb.RunWork_Adapt{Adapt: w.Adapt.wire()}
	case w.Conclude != nil:
		m.Kind = &pb.RunWork_Conclude{Conclude: &pb.RunConcluding{Draws: int64(w.Conclude.Draws), At: vectors(w.Conclude.At)}}
	case w.Evaluate != nil:
		e := w.Evaluate
		m.Kind = &pb.RunWork_Evaluate{Evaluate: &pb.RunEvaluation{Stage: int64(e.Stage), Kind: e.Kind, Shared: vectors(e.Shared), Item: int64(e.Item), Needs: e.Needs}}
	}
	return m
}

// WorkOf reads some work. It reports an error for work that this version does not
// know.
func WorkOf(m *pb.RunWork) (*Work, error) {
	w := &Work{Certificate: m.GetCertificate()}
	switch k := m.GetKind().(type) {
	case *pb.RunWork_Prepare:
		w.Prepare = &Preparation{From: PreparedOf(k.Prepare.GetFrom())}
	case *pb.RunWork_Weigh:
		w.Weigh = &Weighing{From: PreparedOf(k.Weigh.GetFrom())}
	case *pb.RunWork_Advance:
		t := k.Advance
		w.Advance = &Task{Chain: int(t.GetChain()), From: stateOf(t.GetFrom()), Iterations: int(t.GetIterations()), Warmup: t.GetWarmup(), Left: int(t.GetLeft()), Again: t.GetAgain()}
		if s := settingsOf(t.GetSettings()); s != nil {
			w.Advance.Settings = *s
		}
	case *pb.RunWork_Conduct:
		c := k.Conduct
		w.Conduct = &Conducting{Prepared: PreparedOf(c.GetPrepared()), Drawn: drawnOf(c.GetDrawn()), Draws: int(c.GetDraws()), MaxDraws: int(c.GetMaxDraws())}
		for _, s := range c.GetStages() {
			if st := stageOf(s.GetStage()); st != nil {
				w.Conduct.Stages = append(w.Conduct.Stages, Staging{Stage: *st, Results: matrix(s.GetResults())})
			}
		}
	case *pb.RunWork_Adapt:
		if w.Adapt = adaptingOf(k.Adapt); w.Adapt == nil {
			return nil, fmt.Errorf("the work has no plan")
		}
	case *pb.RunWork_Evaluate:
		e := k.Evaluate
		w.Evaluate = &Evaluation{Stage: int(e.GetStage()), Kind: e.GetKind(), Shared: matrix(e.GetShared()), Item: int(e.GetItem()), Needs: e.GetNeeds()}
	case *pb.RunWork_Conclude:
		w.Conclude = &Conclusion{Draws: int(k.Conclude.GetDraws()), At: matrix(k.Conclude.GetAt())}
	default:
		return nil, fmt.Errorf("the work is of a kind that this version does not know")
	}
	return w, nil
}

// Wire returns a plan as it goes over the wire, nil for nil.
func (p *Plan) Wire() *pb.RunPlan {
	if p == nil {
		return nil
	}
	m := &pb.RunPlan{Method: p.Method, Names: p.Names, Chains: int64(p.Chains), Checkpoint: int64(p.Checkpoint), Draws: int64(p.Draws),
		MaxDraws: int64(p.MaxDraws), Rhat: p.RHat, Ess: p.ESS, MaxTimeNanoseconds: int64(p.MaxTime), Seed: p.Seed, Step: p.Step,
		Probes: int64(p.Probes), MaxProbes: int64(p.MaxProbes), Solver: p.Solver, Provisional: p.Provisional, Certificate: p.Certificate.Wire(),
		Error: p.Error, Staged: p.Staged, Lanes: int64(p.Lanes), LatentBytes: p.Latent, Mean: p.Mean}
	for _, w := range p.Windows {
		m.Windows = append(m.Windows, int64(w))
	}
	return m
}

// PlanOf reads a plan, nil from nil.
func PlanOf(m *pb.RunPlan) *Plan {
	if m == nil {
		return nil
	}
	p := &Plan{Method: m.Method, Names: m.Names, Chains: int(m.Chains), Checkpoint: int(m.Checkpoint), Draws: int(m.Draws),
		MaxDraws: int(m.MaxDraws), RHat: m.Rhat, ESS: m.Ess, MaxTime: time.Duration(m.MaxTimeNanoseconds), Seed: m.Seed, Step: m.Step,
		Probes: int(m.Probes), MaxProbes: int(m.MaxProbes), Solver: m.Solver, Provisional: m.Provisional, Certificate: PlanOf(m.Certificate),
		Error: m.Error, Staged: m.Staged, Lanes: int(m.Lanes), Latent: m.LatentBytes, Mean: m.Mean}
	for _, w := range m.Windows {
		p.Windows = append(p.Windows, int(w))
	}
	return p
}

// Wire returns a preparation as it goes over the wire, nil for nil.
func (p *Prepared) Wire() *pb.RunPrepared {
	if p == nil {
		return nil
	}
	m := &pb.RunPrepared{Psi: p.Psi, Starts: slices.Concat(p.Starts...), Cov: p.Cov, ProbeCov: p.ProbeCov, SolverCov: p.SolverCov,
		Asymmetry: p.Asymmetry, OthersRows: int64(p.OthersRows), Iterations: p.Iterations, Tolerance: p.Tolerance,
		Rank: int64(p.Rank), Acceptance: p.Acceptance, Near: p.Near, Cost: p.Cost.wire()}
	for _, o := range p.Others {
		m.Others = append(m.Others, &pb.RunLocal{Psi: o.Psi, Below: o.Below})
	}
	if c := p.Preconditioner; c != nil {
		m.Preconditioner = &pb.RunPreconditioner{Kind: c.Kind, Rank: int64(c.Rank)}
	}
	return m
}

// PreparedOf reads a preparation, nil from nil.
func PreparedOf(m *pb.RunPrepared) *Prepared {
	if m == nil {
		return nil
	}
	p := &Prepared{Psi: m.Psi, Starts: split(m.Starts, len(m.Psi)), Cov: m.Cov, ProbeCov: m.ProbeCov, SolverCov: m.SolverCov,
		Asymmetry: m.Asymmetry, OthersRows: int(m.OthersRows), Iterations: m.Iterations, Tolerance: m.Tolerance,
		Rank: int(m.Rank), Acceptance: m.Acceptance, Near: m.Near, Cost: costOf(m.Cost)}
	for _, o := range m.Others {
		p.Others = append(p.Others, Local{Psi: o.GetPsi(), Below: o.GetBelow()})
	}
	if c := m.Preconditioner; c != nil {
		p.Preconditioner = &Preconditioner{Kind: c.Kind, Rank: int(c.Rank)}
	}
	return p
}

// split cuts numbers into vectors of d; what does not fit makes one of another
// length, which a run refuses.
func split(x []float64, d int) [][]float64 {
	if len(x) == 0 {
		return nil
	}
	if d == 0 {
		return [][]float64{x}
	}
	return slices.Collect(slices.Chunk(x, d))
}

func (s *Settings) wire() *pb.RunSettings {
	return &pb.RunSettings{Window: int64(s.Window), C: s.C, Mean: s.Mean, ProbeCov: s.ProbeCov, SolverCov: s.SolverCov,
		Probes: int64(s.Probes), Step: s.Step, NoiseBudget: s.Budget, Early: s.Early, Plain: s.Plain}
}

func settingsOf(m *pb.RunSettings) *Settings {
	if m == nil {
		return nil
	}
	return &Settings{Window: int(m.Window), C: m.C, Mean: m.Mean, ProbeCov: m.ProbeCov, SolverCov: m.SolverCov,
		Probes: int(m.Probes), Step: m.Step, Budget: m.NoiseBudget, Early: m.Early, Plain: m.Plain}
}

func (a *Adapting) wire() *pb.RunAdapting {
	m := &pb.RunAdapting{Plan: a.Plan.Wire(), Prepared: a.Prepared.Wire()}
	if a.Settings != nil {
		m.Settings = a.Settings.wire()
	}
	for _, c := range a.Chains {
		w := &pb.RunWarmup{Stats: c.Stats.wire()}
		for _, draws := range c.Windows {
			w.Windows = append(w.Windows, &pb.RunVector{X: slices.Concat(draws...)})
		}
		m.Chains = append(m.Chains, w)
	}
	return m
}

// adaptingOf reads what settings follow from, nil if there is no plan.
func adaptingOf(m *pb.RunAdapting) *Adapting {
	p := PlanOf(m.GetPlan())
	if p == nil {
		return nil
	}
	a := &Adapting{Plan: p, Prepared: PreparedOf(m.GetPrepared()), Settings: settingsOf(m.GetSettings())}
	for _, w := range m.GetChains() {
		c := Warmed{Stats: statsOf(w.GetStats())}
		for _, draws := range w.GetWindows() {
			c.Windows = append(c.Windows, split(draws.GetX(), p.Params()))
		}
		a.Chains = append(a.Chains, c)
	}
	return a
}

func (s *Stats) wire() *pb.RunStats {
	return &pb.RunStats{Spreads: int64(s.Spreads), ProbeCov: s.ProbeCov, SolverCov: s.SolverCov, Products: int64(s.Products)}
}

func statsOf(m *pb.RunStats) Stats {
	return Stats{Spreads: int(m.GetSpreads()), ProbeCov: m.GetProbeCov(), SolverCov: m.GetSolverCov(), Products: int(m.GetProducts())}
}

func (s *State) wire() *pb.RunState {
	return &pb.RunState{Iter: int64(s.Iter), Psi: s.Psi, Memory: s.Memory, Latent: latentWire(s.Latent), Restarts: int64(s.Restarts)}
}

func stateOf(m *pb.RunState) State {
	return State{Iter: int(m.GetIter()), Psi: m.GetPsi(), Memory: m.GetMemory(), Latent: latentOf(m.GetLatent()), Restarts: int(m.GetRestarts())}
}

func latentWire(r latent.Ref) *pb.RunLatent {
	if r.IsZero() {
		return nil
	}
	return &pb.RunLatent{Sha256: r.SHA256, Size: r.Size}
}

func latentOf(m *pb.RunLatent) latent.Ref {
	return latent.Ref{SHA256: m.GetSha256(), Size: m.GetSize()}
}

func (k *Checkpoint) wire() *pb.RunCheckpoint {
	return &pb.RunCheckpoint{Chain: int64(k.Chain), FromIter: int64(k.FromIter), State: k.State.wire(), Draws: slices.Concat(k.Draws...),
		Discard: int64(k.Discard), Accepted: int64(k.Accepted), Cost: k.Cost.wire(),
		Stats:  k.Stats.wire(),
		Vitals: &pb.RunVitals{Residual: k.Vitals.Residual, Noise: k.Vitals.Noise, Measured: int64(k.Vitals.Measured)}}
}

func checkpointOf(m *pb.RunCheckpoint) *Checkpoint {
	if m == nil {
		return &Checkpoint{}
	}
	v := m.GetVitals()
	return &Checkpoint{Chain: int(m.Chain), FromIter: int(m.FromIter), State: stateOf(m.State), Draws: split(m.Draws, len(m.GetState().GetPsi())),
		Discard: int(m.Discard), Accepted: int(m.Accepted), Cost: costOf(m.Cost),
		Stats:  statsOf(m.GetStats()),
		Vitals: Vitals{Residual: v.GetResidual(), Noise: v.GetNoise(), Measured: int(v.GetMeasured())}}
}

func (c *Cost) wire() *pb.RunCost {
	return &pb.RunCost{Gradients: int64(c.Gradients), Densities: int64(c.Densities), Solves: int64(c.Solves), Iterations: int64(c.Iterations),
		Products: int64(c.Products), SingleProducts: int64(c.Singles), Pairs: c.Pairs, PairsRead: c.PairsRead,
		Unconverged: int64(c.Unconverged), Shortened: int64(c.Shortened), Seconds: c.Seconds}
}

func costOf(m *pb.RunCost) Cost {
	return Cost{Gradients: int(m.GetGradients()), Densities: int(m.GetDensities()), Solves: int(m.GetSolves()), Iterations: int(m.GetIterations()),
		Products: int(m.GetProducts()), Singles: int(m.GetSingleProducts()), Pairs: m.GetPairs(), PairsRead: m.GetPairsRead(),
		Unconverged: int(m.GetUnconverged()), Shortened: int(m.GetShortened()), Seconds: m.GetSeconds()}
}

func vectors(x [][]float64) []*pb.RunVector {
	var out []*pb.RunVector
	for _, v := range x {
		out = append(out, &pb.RunVector{X: v})
	}
	return out
}

func matrix(x []*pb.RunVector) [][]float64 {
	var out [][]float64
	for _, v := range x {
		out = append(out, v.GetX())
	}
	return out
}

func (s *Stage) wire() *pb.RunStage {
	return &pb.RunStage{Number: int64(s.Number), Kind: s.Kind, Sampling: s.Sampling, Shared: vectors(s.Shared), Items: vectors(s.Items)}
}

func stageOf(m *pb.RunStage) *Stage {
	if m == nil {
		return nil
	}
	return &Stage{Number: int(m.Number), Kind: m.Kind, Sampling: m.Sampling, Shared: matrix(m.Shared), Items: matrix(m.Items)}
}

func (d *Drawn) wire() *pb.RunDrawn {
	if d == nil {
		return nil
	}
	m := &pb.RunDrawn{LogP: vectors(d.LogP), Every: int64(d.Every), Deviations: vectors(d.Deviations), Inflation: d.Inflation, Stages: int64(d.Stages),
		Tail: d.Tail, TailOf: int64(d.TailOf)}
	for c, draws := range d.Chains {
		if len(draws) > 0 {
			m.Params = int64(len(draws[0]))
		}
		m.Chains = append(m.Chains, &pb.RunVector{X: slices.Concat(d.Chains[c]...)})
	}
	for _, a := range d.Accepted {
		m.Accepted = append(m.Accepted, int64(a))
	}
	for _, o := range d.Modes {
		m.Modes = append(m.Modes, &pb.RunMode{Psi: o.Psi, Below: o.Below, Mass: o.Mass, MassError: o.MassError, Found: int64(o.Found),
			Parameter: int64(o.Parameter), Distance: o.Distance})
	}
	return m
}

func drawnOf(m *pb.RunDrawn) *Drawn {
	if m == nil {
		return nil
	}
	d := &Drawn{LogP: matrix(m.LogP), Every: int(m.Every), Deviations: matrix(m.Deviations), Inflation: m.Inflation, Stages: int(m.Stages),
		Tail: m.Tail, TailOf: int(m.TailOf)}
	for _, c := range m.Chains {
		d.Chains = append(d.Chains, split(c.GetX(), int(max(0, min(m.Params, maxNumbers)))))
	}
	for _, a := range m.Accepted {
		d.Accepted = append(d.Accepted, int(a))
	}
	for _, o := range m.Modes {
		d.Modes = append(d.Modes, Mode{Psi: o.GetPsi(), Below: o.GetBelow(), Mass: o.GetMass(), MassError: o.GetMassError(), Found: int(o.GetFound()),
			Parameter: int(o.GetParameter()), Distance: o.GetDistance()})
	}
	return d
}

func (g *Goal) wire() *pb.RunGoal {
	if g == nil {
		return nil
	}
	return &pb.RunGoal{Draws: int64(g.Draws), MaxDraws: int64(g.MaxDraws), Rhat: g.RHat, Ess: g.ESS, MaxTimeNanoseconds: int64(g.MaxTime)}
}

func goalOf(m *pb.RunGoal) *Goal {
	if m == nil {
		return nil
	}
	return &Goal{Draws: int(m.Draws), MaxDraws: int(m.MaxDraws), RHat: m.Rhat, ESS: m.Ess, MaxTime: time.Duration(m.MaxTimeNanoseconds)}
}
