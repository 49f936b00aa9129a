package precond

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// MaxGridDim is the number of inputs up to which a grid makes sense.
const MaxGridDim = 4

// grid is the operator W·K_UU·Wᵀ + D (structured kernel interpolation: Wilson
// and Nickisch 2015; Cutajar et al. 2016, section 3.3). U is a regular grid over
// the range of the inputs, and W interpolates linearly between its points, 2^d
// of them for each row. K_UU is the Kronecker product of the covariances along
// each input. That is K on the grid for RBF; for a Matérn, whose covariance is
// not a product, it is another positive definite matrix near it.
type grid struct {
	n       int
	size    []int            // points along each input
	along   []blas64.General // covariances along each input
	at      []int            // for each row, 2^d points
	weight  []float64        // and their weights
	corners int
	noise   []float64
	budget  *parallel.Budget
}

func gridInterpolation(ctx context.Context, k Covariance, points int) (func() solve.Operator, int, error) {
	k, exact := withoutFeatures(k)
	if k == nil || !k.Function().Covariance().Stationary() {
		return nil, 0, errors.New("a grid needs a covariance that depends on differences of inputs: choose another kind")
	}
	in, f := k.Inputs(), k.Function()
	n, d := in.Len(), in.Dim()
	if len(f.Covariance().Terms()) > 1 {
		return nil, 0, errors.New("a grid needs a covariance that is a product over the inputs, not a sum of terms: choose another kind")
	}
	if d > MaxGridDim {
		return nil, 0, fmt.Errorf("a grid over %d inputs has too many points: it is for %d inputs at most", d, MaxGridDim)
	}
	if points <= 0 {
		points = n
	}
	per := max(2, int(math.Round(math.Pow(float64(points), 1/float64(d)))))
	g := &grid{n: n, corners: 1 << d, noise: slices.Clone(k.Noise()), budget: k.Budget(),
		at: make([]int, n<<d), weight: make([]float64, n<<d)}
	for i := range g.weight {
		g.weight[i] = 1
	}
	total := 1
	for q := range d {
		lo, hi := in.Row(0)[q], in.Row(0)[q]
		for i := range n {
			lo, hi = min(lo, in.Row(i)[q]), max(hi, in.Row(i)[q])
		}
		step := (hi - lo) / float64(per-1)
		if !(step > 0) {
			step = 1
		}
		for i := range n {
			u := (in.Row(i)[q] - lo) / step
			left := min(int(u), per-2)
			for c := range g.corners {
				at := i*g.corners + c
				w := u - float64(left)
				if c>>q&1 == 0 {
					w = 1 - w
				}
				g.at[at] = g.at[at]*per + left + c>>q&1
				g.weight[at] *= w
			}
		}
		a, err := correlations(ctx, f, d, q, per, step)
		if err != nil {
			return nil, 0, err
		}
		g.size, g.along = append(g.size, per), append(g.along, a)
		total *= per
	}
	floats.Scale(f.Scale(), g.along[0].Data)
	if len(exact) > 0 {
		return func() solve.Operator { return plus{g, exact} }, total, nil
	}
	return func() solve.Operator { return g }, total, nil
}

// correlations returns those between equidistant points along an input.
func correlations(ctx context.Context, f *kernel.Function, dim, input, points int, step float64) (blas64.General, error) {
	a := blas64.General{Rows: points, Cols: points, Stride: points, Data: make([]float64, points*points)}
	origin, x := make([]float64, dim), make([]float64, dim)
	for i := range points {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		for j := range points {
			x[input] = float64(i-j) * step
			a.Data[i*points+j] = f.Correlation(x, origin)
		}
	}
	return a, nil
}

// Len returns n.
func (g *grid) Len() int { return g.n }

// Mul sets dst[c] = (W·K_UU·Wᵀ + D)·v[c].
func (g *grid) Mul(ctx context.Context, dst, v [][]float64) error {
	g.budget.NewLoop(func(_, c int) {
		if ctx.Err() == nil {
			g.column(dst[c], v[c])
		}
	}).Run(len(v))
	return ctx.Err()
}

func (g *grid) column(dst, v []float64) {
	total := 1
	for _, s := range g.size {
		total *= s
	}
	u, t := make([]float64, total), make([]float64, total)
	for q, p := range g.at {
		u[p] += g.weight[q] * v[q/g.corners]
	}
	after := total
	for k, a := range g.along { // u[before, k, after]
		after /= g.size[k]
		for lo := 0; lo < total; lo += g.size[k] * after {
			blas64.Implementation().Dgemm(blas.NoTrans, blas.NoTrans, a.Rows, after, a.Rows, 1, a.Data, a.Stride,
				u[lo:], after, 0, t[lo:], after)
		}
		u, t = t, u
	}
	for i := range dst {
		x := g.noise[i] * v[i]
		for q := i * g.corners; q < (i+1)*g.corners; q++ {
			x += g.weight[q] * u[g.at[q]]
		}
		dst[i] = x
	}
}
