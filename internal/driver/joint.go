package driver

import (
	"context"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// jointError bounds the error of a joint log density that solves may make.
const jointError = 1e-3

// joint is the joint density of ψ and an auxiliary vector (posterior.Auxiliary),
// with what it costs.
type joint struct {
	d      *Driver
	op     Operator
	aux    *posterior.Auxiliary
	own    *posterior.Problem // with an auxiliary state of its own
	began  time.Time          // of the step under way
	before cmvp.Counts
	rep    solve.Report // of its solves
}

// newJoint returns the joint density of a prepared run, whose P has the pivots of
// the randomly pivoted Cholesky factor at the mode.
func (d *Driver) newJoint(ctx context.Context, prep *chains.Prepared, chain int) (*joint, error) {
	op := d.Operator(chain)
	rows, err := d.rows.get(ctx, append(slices.Clone(prep.Psi), float64(prep.Rank)), func() ([]int, error) {
		return d.pivots(ctx, op, prep.Psi, prep.Rank)
	})
	if err != nil {
		return nil, err
	}
	return d.jointOn(op, rows), nil
}

func (d *Driver) pivots(ctx context.Context, op Operator, psi []float64, rank int) ([]int, error) {
	op.Set(d.Problem.At(psi))
	return precond.Pivots(ctx, op, rank, random.Key{Seed: d.Spec.Seed})
}

func (d *Driver) jointOn(op Operator, rows []int) *joint {
	j := &joint{d: d, op: op, own: d.Problem.WithState()}
	n := len(d.Problem.Y)
	so := &d.Spec.Solver
	loose := 0.0
	if d.needs.Augments { // pseudo-targets and their noise are large where rows say little: a relative residual would ask for more than a density needs
		loose = jointError
	}
	j.aux = posterior.NewAuxiliary(j.own, op, func(ctx context.Context) (posterior.Smooth, error) {
		return precond.OnRows(ctx, op, rows)
	}, solve.Options{Tolerance: min(so.Tolerance.Or(fineTolerance), jointError/float64(n)), MaxIter: so.MaxIterations.Or(min(maxAutoIterations, 10*n+100)), Budget: d.Budget}, loose)
	return j
}

func (j *joint) Refresh(ctx context.Context, psi []float64, key random.Key) (float64, error) {
	w := make([]float64, len(j.d.Problem.Y))
	random.Normal(key.Stream(random.Auxiliary, 0), w)
	logP, rep, err := j.aux.Refresh(ctx, psi, w)
	j.rep.Add(rep)
	return logP, err
}

func (j *joint) Density(ctx context.Context, psi []float64) (float64, error) {
	logP, rep, err := j.aux.LogDensity(ctx, psi)
	j.rep.Add(rep)
	return logP, err
}

func (j *joint) Own() int { return j.own.Own() }

func (j *joint) Scales() []int { return j.own.Scales() }

func (j *joint) Held() int { return j.own.Held() }

func (j *joint) Given(psi, f []float64) float64 { return j.own.LogDensityGiven(psi, f) }

func (j *joint) Excess(psi, f []float64) float64 { return j.own.Excess(psi, f) }

func (j *joint) Renew(psi, f []float64, key random.Key) {
	j.aux.Renew(key.Stream(random.Augmentation, 0), psi, f)
}

func (j *joint) Draw(ctx context.Context, psi, f []float64, key random.Key) error {
	rep, err := j.aux.Latent(ctx, psi, func(index int, z []float64) { random.Normal(key.Stream(random.Latent, index), z) }, f)
	j.rep.Add(rep)
	return err
}

// begin begins to count what a step costs.
func (j *joint) begin() { j.began, j.before, j.rep = time.Now(), j.op.Counts(), solve.Report{} }

// stepped tells of the step that led to ψ, and returns its cost.
func (j *joint) stepped(key random.Key, psi []float64, out sampler.Outcome, vitals *chains.Vitals) chains.Cost {
	cost := costOf(j.rep, j.before, j.op.Counts(), time.Since(j.began).Seconds())
	cost.Densities = 1
	if vitals != nil {
		vitals.Add(j.rep.MaxResidual(), 0)
	}
	o := j.d.observation(runlog.Step, key, len(j.d.Problem.Y), psi, j.rep, cost)
	o.Acceptance, o.Correction = out.Acceptance, out.Correction
	j.d.Observe(o)
	return cost
}

// settling is what a sampler settles the rest of a preparation with.
type settling struct {
	d     *Driver
	prep  *chains.Prepared
	joint *joint
}

func (s *settling) Rows() int { return len(s.d.Problem.Y) }

func (s *settling) Rank() (int, bool) {
	rank := s.d.Spec.Solver.Preconditioner.Rank
	return rank.Or(precond.AutoRank(s.Rows())), rank.Set
}

func (s *settling) Joint(ctx context.Context, psi []float64, rank int) (sampler.Joint, error) {
	op := s.d.Operator(0)
	rows, err := s.d.pivots(ctx, op, psi, rank)
	if err != nil {
		return nil, err
	}
	s.joint = s.d.jointOn(op, rows)
	s.joint.begin()
	return s.joint, nil
}

func (s *settling) Stepped(key random.Key, psi []float64, acceptance float64) {
	s.prep.Cost.Add(s.joint.stepped(key, psi, sampler.Outcome{Acceptance: acceptance}, nil))
	s.joint.begin()
}

// settle completes a preparation as the sampler asks.
func (d *Driver) settle(ctx context.Context, prep *chains.Prepared) error {
	if m, ok := sampler.Of(d.Plan).(sampler.Settler); ok {
		return m.Settle(ctx, &settling{d: d, prep: prep}, d.Plan, prep)
	}
	return nil
}
