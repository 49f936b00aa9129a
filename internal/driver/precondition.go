package driver

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// assumedProbes is the number of probes that a preconditioner is chosen for if
// the specification leaves it open.
const assumedProbes = 16

// precondition builds the preconditioner of a problem at ψ, nil if there is to
// be none: the one given, or what the specification asks for. While the mode is
// sought, what the specification leaves open is not measured. It moves op, the
// problem's operator, to ψ.
func (d *Driver) precondition(ctx context.Context, p *posterior.Problem, op Operator, psi []float64, chosen *chains.Preconditioner) (precond.P, error) {
	pc := &d.Spec.Solver.Preconditioner
	kind, rank := pc.Kind, pc.Rank.Or(0)
	switch {
	case kind == "none":
		return nil, nil
	case chosen != nil:
		kind, rank = chosen.Kind, chosen.Rank
	case kind == "auto" || kind == "svd": // whose building costs more than a climb
		kind = "rpcholesky"
	}
	if p != d.Problem { // some of the rows, which this machine has alone
		rank = min(rank, precond.MaxOwnRank(len(p.Y)))
	}
	op.Set(p.At(psi))
	return precond.BuildAny(ctx, kind, op, rank, random.Key{Seed: d.Spec.Seed})
}

// sharer is an operator over a group of workers that multiplies by the factors of preconditioners, too.
type sharer interface {
	Share(f precond.Factor) dense.Products
}

// overGroup returns a preconditioner whose factor is multiplied by the group of an operator, if it has one.
func overGroup(pre precond.P, op Operator) precond.P {
	low, ok := pre.(*precond.LowRank)
	if group, is := op.(sharer); ok && is {
		return low.Shared(group.Share)
	}
	return pre
}

// choose settles the kind and the rank of the run's preconditioner at the mode,
// by counted work where the specification leaves them open. P is built there
// once and kept, since the law of whitened probes is made from it: how far solves
// have come to take longer than at the mode is the drift that is logged. The
// candidates, all built at the mode, are compared a typical draw away from it,
// where the chains will solve; info is the information there.
func (d *Driver) choose(ctx context.Context, prep *chains.Prepared, op Operator, info *mat.SymDense) error {
	pc := &d.Spec.Solver.Preconditioner
	switch {
	case pc.Kind == "none":
		return nil
	case pc.Kind != "auto" && (pc.Rank.Set || !precond.HasFactor(pc.Kind)):
		prep.Preconditioner = &chains.Preconditioner{Kind: pc.Kind, Rank: pc.Rank.Or(0)}
		return nil
	case pc.Kind == "auto" && pc.Rank.Set:
		prep.Preconditioner = &chains.Preconditioner{Kind: "rpcholesky", Rank: pc.Rank.Value}
		return nil
	}
	w := precond.Work{Columns: 1 + d.Spec.Sampler.Probes.Or(assumedProbes), Tolerance: d.Spec.Solver.Tolerance.Or(climbResidual)}
	for _, length := range d.Plan.Windows {
		w.Solves += d.Plan.Chains * length
	}
	w.Solves += d.Plan.Chains * d.Plan.Draws
	key := random.Key{Seed: d.Spec.Seed}
	op.Set(d.Problem.At(prep.Psi))
	trials, err := precond.Choose(ctx, pc.Kind, op, func() solve.Operator {
		op.Set(d.Problem.At(typical(prep.Psi, info, key)))
		return op
	}, w, key)
	if err != nil {
		return err
	}
	prep.Preconditioner = &chains.Preconditioner{Kind: trials[0].Kind, Rank: trials[0].Rank}
	d.Observe(runlog.Observation{Kind: runlog.Trials, Rows: len(d.Problem.Y), Psi: slices.Clone(prep.Psi),
		Preconditioner: trials[0].Kind, Rank: trials[0].Rank, Trials: trials})
	return nil
}

// typical returns a point at the distance from the mode at which most of a
// normal posterior with the given information lies. Where the information is not
// positive definite it returns the mode.
func typical(psi []float64, info *mat.SymDense, key random.Key) []float64 {
	var chol mat.Cholesky
	if !chol.Factorize(info) {
		return psi
	}
	z := mat.NewVecDense(len(psi), nil)
	random.Normal(key.Stream(random.Calibration, 1), z.RawVector().Data)
	z.ScaleVec(math.Sqrt(float64(len(psi)))/mat.Norm(z, 2), z)
	var l mat.TriDense
	chol.LTo(&l)
	if err := z.SolveVec(l.T(), z); err != nil {
		return psi
	}
	z.AddVec(z, mat.NewVecDense(len(psi), slices.Clone(psi)))
	return z.RawVector().Data
}

// atMode returns the preconditioner at the mode, which all chains share. The first
// builds it with its own operator, over its group.
func (d *Driver) atMode(ctx context.Context, prep *chains.Prepared, op Operator) (precond.P, error) {
	pre, err := d.pre.get(ctx, prep.Psi, func() (precond.P, error) {
		return d.precondition(ctx, d.Problem, op, prep.Psi, prep.Preconditioner)
	})
	return overGroup(pre, op), err
}
