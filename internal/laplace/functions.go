package laplace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

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
	pt, x, err := d.draw(ctx, psi)
	if err != nil {
		return nil, nil, err
	}
	var left []float64
	functions := d.given(pt, points)
	for _, g := range functions {
		for i, a := range g.a {
			left = append(left, g.left(i, a, a, i))
		}
	}
	for _, draw := range x {
		mean, variance = append(mean, meansOf(functions, draw)), append(variance, slices.Clone(left))
	}
	return mean, variance, nil
}

// Joint calls do for each of some sets of points with the means of all functions there, as At has them, and the covariance of each, which all
// draws of the functions at the training rows have in common. The errors are those of At and of do.
func (d *Functions) Joint(ctx context.Context, psi []float64, sets []*kernel.Inputs, do func(set int, mean [][]float64, covariance []*mat.SymDense) error) error {
	pt, x, err := d.draw(ctx, psi)
	if err != nil {
		return err
	}
	for s, points := range sets {
		if err := ctx.Err(); err != nil {
			return err
		}
		var mean [][]float64
		var covariance []*mat.SymDense
		functions := d.given(pt, points)
		for _, draw := range x {
			mean = append(mean, meansOf(functions, draw))
		}
		for c, g := range functions {
			if c > 0 && d.white.parts[c] == d.white.parts[c-1] {
				covariance = append(covariance, covariance[c-1])
				continue
			}
			covariance = append(covariance, g.covariance())
		}
		if err := do(s, mean, covariance); err != nil {
			return err
		}
	}
	return nil
}

// given is a latent function at points given x: normal with means Aᵀx and covariances K** − AᵀA.
type given struct {
	f      *kernel.Function
	points *kernel.Inputs
	a      [][]float64 // columns of A
	lo, hi int         // where its part of x begins and ends
}

// given returns all functions at points.
func (d *Functions) given(pt *whitened, points *kernel.Inputs) (out []*given) {
	theta, _ := d.problem.Natural(pt.psi)
	pt.each(func(b block, lo, hi, _ int) {
		c := len(out)
		part := d.white.parts[c]
		if c > 0 && part == d.white.parts[c-1] {
			same := *out[c-1]
			same.lo, same.hi = lo, hi
			out = append(out, &same)
			return
		}
		own := &given{f: part.Function(theta), points: points, lo: lo, hi: hi}
		rows, g := make([]int, len(b.at)), mat.NewTriDense(len(b.at), mat.Lower, nil)
		for j, at := range b.at {
			rows[j] = part.order[at]
		}
		for i, row := range rows {
			for j := range i + 1 {
				g.SetTri(i, j, b.f.At(j, row))
			}
		}
		for i := range points.Len() {
			a := mat.NewVecDense(len(rows), nil)
			for j, row := range rows {
				a.SetVec(j, own.f.Value(points.Row(i), d.problem.Inputs.Row(row)))
			}
			_ = a.SolveVec(g, a) // it only warns of ill-conditioning
			own.a = append(own.a, a.RawVector().Data)
		}
		out = append(out, own)
	})
	return out
}

// left returns the covariance of points i and j, whose columns are a and b.
func (g *given) left(i int, a, b []float64, j int) float64 {
	prior := g.f.Value(g.points.Row(i), g.points.Row(j))
	if left := prior - floats.Dot(a, b); i != j || left > leastResidual*prior {
		return left
	}
	return leastResidual * prior
}

// covariance returns that of all points.
func (g *given) covariance() *mat.SymDense {
	out := mat.NewSymDense(len(g.a), nil)
	for i, a := range g.a {
		for j := range i + 1 {
			out.SetSym(i, j, g.left(i, a, g.a[j], j))
		}
	}
	return out
}

// meansOf returns the means of all functions given x, one after the other.
func meansOf(functions []*given, x []float64) (mean []float64) {
	for _, g := range functions {
		for _, a := range g.a {
			mean = append(mean, floats.Dot(a, x[g.lo:g.hi]))
		}
	}
	return mean
}

// draw returns what is known of ψ and some draws of x given ψ.
func (d *Functions) draw(ctx context.Context, psi []float64) (pt *whitened, x [][]float64, err error) {
	if d.white == nil {
		if d.white, err = NewWhite(ctx, d.problem, d.centre); err != nil {
			return nil, nil, err
		}
	}
	w := d.white
	defer w.Forget()
	if pt, err = w.point(ctx, psi); err != nil {
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
