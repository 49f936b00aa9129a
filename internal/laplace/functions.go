package laplace

import (
	"context"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Functions tells several latent functions at points, at draws of ψ. The functions at the training rows, f = Fx, are drawn given ψ and the
// targets by elliptical slices (White), under the twinned likelihood by the rows' kinds (kinds); given these each is normal at a point *,
//
//	f* ~ N(aᵀx, k** − aᵀa),  a = G⁻¹k*, G the rows of F that it was made of
//
// It is not safe for concurrent use.
type Functions struct {
	problem *posterior.Problem
	centre  []float64
	seed    uint64
	white   *White
	drawn   map[uint64][][]float64 // draws of x at each draw of ψ
}

// Constants of draws: the slices that lead from the mode to the first one and from one to the next, and how many there are at a ψ. A slice of a
// density that the approximation is exact for leads to where it was not but for its angle; all draws take one factor of K.
const (
	firstSlices  = 30
	nextSlices   = 10
	functionSets = 4
)

// NewFunctions returns the functions of a problem, which are drawn by a seed, with rows in an order that suits ψ near a centre.
func NewFunctions(p *posterior.Problem, centre []float64, seed uint64) *Functions {
	return &Functions{problem: p, centre: centre, seed: seed, drawn: map[uint64][][]float64{}}
}

// At returns the means and variances of all functions at points at ψ, those of each function one after the other, given some draws of the
// functions at the training rows: a function of ψ, the points, the centre and the seed.
func (d *Functions) At(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance [][]float64, err error) {
	if d.white == nil {
		if d.white, err = NewWhite(ctx, d.problem, d.centre); err != nil {
			return nil, nil, err
		}
	}
	pt, x, err := d.draw(ctx, psi)
	if err != nil {
		return nil, nil, err
	}
	theta, _ := d.problem.Natural(psi)
	m := points.Len()
	for range x {
		mean, variance = append(mean, make([]float64, m*len(pt.blocks))), append(variance, make([]float64, m*len(pt.blocks)))
	}
	c := 0
	pt.each(func(b block, lo, hi, _ int) {
		part, rows := d.white.parts[c], make([]int, len(b.at))
		for j, at := range b.at {
			rows[j] = part.order[at]
		}
		f, g := part.Function(theta), mat.NewTriDense(len(rows), mat.Lower, nil)
		for i, row := range rows {
			for j := range i + 1 {
				g.SetTri(i, j, b.f.At(j, row))
			}
		}
		for i := range m {
			a := mat.NewVecDense(len(rows), nil)
			for j, row := range rows {
				a.SetVec(j, f.Value(points.Row(i), d.problem.Inputs.Row(row)))
			}
			_ = a.SolveVec(g, a) // it only warns of ill-conditioning
			prior := f.Variance(points.Row(i))
			left := max(leastResidual*prior, prior-floats.Dot(a.RawVector().Data, a.RawVector().Data))
			for k := range x {
				mean[k][c*m+i], variance[k][c*m+i] = floats.Dot(a.RawVector().Data, x[k][lo:hi]), left
			}
		}
		c++
	})
	return mean, variance, nil
}

// draw returns what is known of ψ and some draws of x given ψ.
func (d *Functions) draw(ctx context.Context, psi []float64) (*whitened, [][]float64, error) {
	w := d.white
	defer w.Forget()
	pt, err := w.point(ctx, psi)
	if err != nil {
		return nil, nil, err
	}
	if pt.blocks == nil {
		return nil, nil, fmt.Errorf("the latent functions cannot be drawn at log parameters %.4g: %w", psi, errNumerical)
	}
	key := random.Place(psi)
	x, ok := d.drawn[key]
	if !ok {
		r := random.Key{Seed: d.seed, Iter: int(key >> 1)}.Stream(random.Latent, 0)
		if l, ok := d.problem.Likelihood.(likelihood.Twinned); ok {
			x, err = w.byKinds(ctx, pt, l, r)
		} else {
			x, err = w.fromMode(ctx, pt, r)
		}
		if err != nil {
			return nil, nil, err
		}
		d.drawn[key] = x
	}
	return pt, x, nil
}

// fromMode draws x by slices that begin at the mode.
func (w *White) fromMode(ctx context.Context, pt *whitened, r *rand.Rand) (x [][]float64, err error) {
	_, n := pt.length()
	nu := make([]float64, n)
	for k := range firstSlices + (functionSets-1)*nextSlices {
		if err := w.Slice(ctx, pt.psi, nu, r); err != nil {
			return nil, err
		}
		if last := k + 1 - firstSlices; last >= 0 && last%nextSlices == 0 {
			x = append(x, floats.AddTo(make([]float64, len(pt.mode)), pt.mode, pt.direction(nu)))
		}
	}
	return x, nil
}
