package predict

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/solve"
)

// surface is the design of a response surface over ψ: the middle of the draws
// and two points on each principal axis of their covariance. A row's log variance
// is solved for there and taken to be quadratic, without products of coordinates,
// in between: f(z) = f₀ + Σ_i ½(f_i⁺−f_i⁻)·z_i + ½(f_i⁺+f_i⁻−2f₀)·z_i².
type surface struct {
	points   [][]float64 // middle, +, − of the first axis, …
	at       [][]float64 // coordinates z of each draw, ±1 at the points
	farthest int         // draw
}

// axisReach is how far from the middle the points of an axis lie, in standard
// deviations of the draws.
const axisReach = 1.5

func newSurface(draws [][]float64) (*surface, error) {
	p, centre := len(draws[0]), mean(draws)
	x := mat.NewDense(len(draws), p, nil)
	for t, psi := range draws {
		x.SetRow(t, psi)
	}
	s := &surface{points: [][]float64{centre}, at: make([][]float64, len(draws))}
	if len(draws) < 2 {
		return s, nil
	}
	var cov mat.SymDense
	stat.CovarianceMatrix(&cov, x, nil)
	var eig mat.EigenSym
	if !eig.Factorize(&cov, true) {
		return nil, errors.New("the covariance of the draws has no eigenvectors")
	}
	var vec mat.Dense
	eig.VectorsTo(&vec)
	values := eig.Values(nil)
	for i, v := range values {
		reach, axis := axisReach*math.Sqrt(max(0, v)), mat.Col(nil, i, &vec)
		if v <= 1e-12*floats.Max(values) { // the draws do not move along it
			continue
		}
		up, down := slices.Clone(centre), slices.Clone(centre)
		floats.AddScaled(up, reach, axis)
		floats.AddScaled(down, -reach, axis)
		s.points = append(s.points, up, down)
		for t, psi := range draws {
			s.at[t] = append(s.at[t], (floats.Dot(axis, psi)-floats.Dot(axis, centre))/reach)
		}
	}
	for t := range draws {
		if floats.Norm(s.at[t], 2) > floats.Norm(s.at[s.farthest], 2) {
			s.farthest = t
		}
	}
	return s, nil
}

// value returns the surface at z through the values f at the points.
func (s *surface) value(f []float64, z []float64) float64 {
	y := f[0]
	for i, zi := range z {
		up, down := f[1+2*i], f[2+2*i]
		y += 0.5*(up-down)*zi + 0.5*(up+down-2*f[0])*zi*zi
	}
	return y
}

// interpolate computes the rows' variances with the surface; means are exact.
func (b *batch) interpolate(ctx context.Context) error {
	p, s, m := b.p, b.p.surface, b.of.len()
	f := solve.Columns(len(s.points), m)
	variance := make([]float64, m)
	var middle [][]float64
	for k, psi := range s.points {
		if k > 0 { // every other point is nearest to the middle
			for i := range middle {
				copy(b.x[i], middle[i])
			}
		}
		if err := b.solve(ctx, p.Problem, psi, nil, nil, variance); err != nil {
			return err
		}
		if k == 0 {
			middle = solve.Columns(len(p.Problem.Y), m)
			for i := range middle {
				copy(middle[i], b.x[i])
			}
		}
		for i, v := range variance {
			f[i][k] = math.Log(max(v, minVariance*b.prior[i], tiniest))
		}
		b.done((k + 1) * len(p.Draws) / (len(s.points) + 2))
	}
	for t, psi := range p.Draws {
		k, _, err := b.of.at(ctx, psi)
		if err != nil {
			return err
		}
		b.each(func(i int) {
			b.mean[t][i] = floats.Dot(k[i], p.alphas[t])
			b.variance[t][i] = math.Exp(s.value(f[i], s.at[t]))
		})
	}
	return b.check(ctx, s.farthest)
}

// check replaces what the surface says at a draw by what a solve says, and notes
// the difference.
func (b *batch) check(ctx context.Context, t int) error {
	noise := 0.0
	if !b.Latent {
		_, all := b.p.Problem.At(b.p.Draws[t])
		noise = slices.Min(all)
	}
	guess := slices.Clone(b.variance[t])
	if err := b.solve(ctx, b.p.Problem, b.p.Draws[t], nil, nil, b.variance[t]); err != nil {
		return err
	}
	for i, v := range b.variance[t] {
		b.stats.SurfaceError = max(b.stats.SurfaceError, math.Abs(math.Sqrt((guess[i]+noise)/(v+noise))-1))
	}
	return nil
}
