package driver

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Constants of `solver.tolerance: auto`.
const (
	// fineTolerance is what solves go to where nothing has been measured, and
	// what looser ones are held against.
	fineTolerance = 1e-6
	// toleranceShift is the error that solves may leave in a gradient at the
	// mode, in posterior standard deviations that it would move the posterior by.
	toleranceShift = 0.01
)

// tolerances are those that are tried, the loosest first.
var tolerances = []float64{1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5}

// tolerance returns the relative residual that the run's solves go to.
func (d *Driver) tolerance(prep *chains.Prepared) float64 {
	if prep.Tolerance > 0 {
		return prep.Tolerance
	}
	return d.Spec.Solver.Tolerance.Or(fineTolerance)
}

// chooseTolerance settles the tolerance of a run whose specification leaves it
// open: the loosest with which a gradient at the mode, with fixed probes, differs
// from that of fine solves by less than toleranceShift. An error Δg of the
// gradient moves a normal posterior of covariance C by C·Δg, which is
// √(Δgᵀ·C·Δg) standard deviations at most. info is C⁻¹. Solves that stop early
// are unbiased up to the fine tolerance, and keep it.
func (d *Driver) chooseTolerance(ctx context.Context, prep *chains.Prepared, op Operator, pre precond.P, info *mat.SymDense, key random.Key) error {
	var chol mat.Cholesky
	if d.Spec.Solver.Tolerance.Set || d.Spec.Solver.Method == "ulisse" || !chol.Factorize(info) {
		return nil
	}
	gradient := func(tolerance float64) (*posterior.Gradient, error) {
		src, err := d.newSource(d.Problem, op, pre, tolerance, false)
		if err != nil {
			return nil, err
		}
		g, cost, err := d.gradient(ctx, src, request{Request: sampler.Request{Psi: prep.Psi, Key: key, Probes: PrepareProbes}})
		prep.Cost.Add(cost)
		return g, err
	}
	fine, err := gradient(fineTolerance)
	if err != nil {
		return err
	}
	for _, tolerance := range tolerances {
		g, err := gradient(tolerance)
		if err != nil {
			return err
		}
		diff := mat.NewVecDense(len(g.Value), slices.Clone(g.Value))
		floats.Sub(diff.RawVector().Data, fine.Value)
		var move mat.VecDense
		_ = chol.SolveVecTo(&move, diff) // only warns of ill-conditioning
		if math.Sqrt(mat.Dot(diff, &move)) < toleranceShift {
			prep.Tolerance = tolerance
			return nil
		}
	}
	prep.Tolerance = fineTolerance
	return nil
}
