package driver

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Constants of the search for the stand-in.
const (
	standInRounds = 15
	standInTol    = 0.2 // posterior standard deviations that a round moves ψ by at the end
)

// standIn finds the Gaussian stand-in of a likelihood with auxiliary variables, with which mode and
// curvature are found: its auxiliary state is the one expected at the mode. From the mode of a state, pt,
// found on some of the rows, it goes on to the state expected there and to that one's mode, as in expectation
// maximisation. It returns the driver of all rows with that state, and the mode on the subset.
func (d *Driver) standIn(ctx context.Context, prep *chains.Prepared, pt *mode.Point, rows []int) (*Driver, *mode.Point, error) {
	sub := d.Problem.Subset(rows)
	for range standInRounds {
		f, err := d.latentMean(ctx, sub, pt.Psi, sub.Inputs)
		if err != nil {
			return nil, nil, err
		}
		sub = sub.Expect(pt.Psi, f)
		next, err := d.climbDense(ctx, prep, sub, pt)
		if err != nil {
			return nil, nil, err
		}
		step := mat.NewVecDense(len(pt.Psi), nil)
		step.SubVec(mat.NewVecDense(len(pt.Psi), next.Psi), mat.NewVecDense(len(pt.Psi), pt.Psi))
		pt = next
		if mat.Inner(step, pt.Info, step) < standInTol*standInTol {
			break
		}
	}
	f, err := d.latentMean(ctx, sub, pt.Psi, d.Problem.Inputs)
	if err != nil {
		return nil, nil, err
	}
	with := *d
	with.Problem = d.Problem.Expect(pt.Psi, f)
	return &with, pt, nil
}

// latentMean returns the mean of the latent function at some points given a problem and ψ, with a stored K.
func (d *Driver) latentMean(ctx context.Context, p *posterior.Problem, psi []float64, points *kernel.Inputs) ([]float64, error) {
	alpha, ok := posterior.NewDense(p, d.Budget).Solve(psi)
	if !ok {
		return nil, singularAt(psi)
	}
	op := cmvp.New(p.Inputs, p.Covariance, d.Budget)
	op.Set(p.At(psi))
	f := make([]float64, points.Len())
	return f, op.Cross(ctx, [][]float64{f}, points, [][]float64{alpha})
}

func singularAt(psi []float64) error {
	return fmt.Errorf("the covariance matrix is numerically singular at log parameters %.4g", psi)
}
