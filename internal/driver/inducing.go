package driver

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// inducing returns the joint density of ψ and inducing variables for a chain (0 is the search for the mode), over the inputs that all
// chains share. Sums over rows are those of the chain's group, if its operator is one.
func (d *Driver) inducing(ctx context.Context, chain int) (*posterior.Inducing, error) {
	z, err := d.points.get(ctx, []float64{}, func() (*kernel.Inputs, error) { return d.Spec.Induced(d.Problem, d.Budget), nil })
	if err != nil {
		return nil, err
	}
	in := posterior.NewInducing(d.Problem, z, d.Spec.Seed, d.Budget)
	if group, ok := d.Operator(chain).(sparse.Summer); ok {
		in.Share(group)
	}
	return in, nil
}

// inducedTol is how near to its highest the search for the mode of the bound comes, in posterior standard deviations.
const inducedTol = 0.05

// prepareInducing moves from a subset's mode to that of the bound of the log density over all rows, and measures the curvature
// there.
func (d *Driver) prepareInducing(ctx context.Context, prep *chains.Prepared, pt *mode.Point) error {
	in, err := d.inducing(ctx, 0)
	if err != nil {
		return err
	}
	climb := maxima.NewClimb(pt.Psi, maxima.Options{Tolerance: inducedTol})
	for x := climb.Next(); x != nil; x = climb.Next() {
		value, grad, err := in.Bound(ctx, x)
		if err != nil {
			return err
		}
		prep.Cost.Densities++
		climb.Tell(value, grad)
	}
	best := climb.Best()
	if best == nil {
		return singularAt(pt.Psi)
	}
	pt = &mode.Point{Psi: best.X}
	pt.Info, prep.Asymmetry, err = mode.Information(ctx, func(ctx context.Context, psi []float64) ([]float64, error) {
		_, grad, err := in.Bound(ctx, psi)
		if err == nil && grad == nil {
			err = singularAt(psi)
		}
		prep.Cost.Densities++
		return grad, err
	}, pt.Psi, climb.Information())
	if err != nil {
		return err
	}
	return d.setPoint(prep, pt)
}
