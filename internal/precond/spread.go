package precond

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Spread is a factor L̃ the rows of which a group of workers computes and keeps: nobody has all of them, and none travels. Its
// bits are those of a factor that is built in one place.
type Spread interface {
	dense.Products
	// Grow adds the columns of a block of pivots, given L there, and sets residual to the diagonal of K_f − L·Lᵀ.
	Grow(ctx context.Context, b Block, at [][]float64, residual []float64) error
	// Doubt says that the residual variance of a row is not what its columns come to, and returns the error to end with.
	Doubt(row int) error
	// Gram ends the building, and returns L̃ᵀL̃.
	Gram(ctx context.Context) (*mat.SymDense, error)
}

// Spreader is a Covariance over a group.
type Spreader interface {
	Covariance
	// Spread begins a factor of so many pivots at most. It is nil where the factor is better kept in one place.
	Spread(rank int) Spread
}

// ErrDoubt is the error of a factor that a group has built wrongly: it may be built again, without who was wrong.
type ErrDoubt struct{ Why string }

func (e *ErrDoubt) Error() string { return e.Why }

// attempts is how often a factor is built over a group in which somebody is wrong, before it is built in one place.
const attempts = 3

// buildOver is Build over a group, for the kinds whose rows are computed by pivots. It returns nil if the group does not keep the factor.
func buildOver(ctx context.Context, kind string, k Spreader, rank int, key random.Key) (*LowRank, error) {
	rank = min(rank, k.Len())
	for range attempts {
		s := k.Spread(rank)
		rest, exact := withoutFeatures(k)
		if s == nil || rest == nil {
			return nil, nil
		}
		rows, err := NewRows(k)
		if err != nil {
			return nil, err
		}
		pt, err := kinds[kind](ctx, &over{rest, s, rows}, rank, key)
		if err == nil {
			var p *LowRank
			if p, err = newLowRank(ctx, kind, pt, exact, k); err == nil {
				return p, nil
			}
		}
		if _, ok := err.(*ErrDoubt); !ok {
			return nil, fmt.Errorf("%s preconditioner: %w", kind, err)
		}
	}
	return nil, nil
}

// over is a Covariance whose factor a group keeps. What is needed of it here, L at rows that are proposed, is computed here.
type over struct {
	Covariance
	spread Spread
	known  *Rows
}

// rows holds what the group says of the residual variances against the columns, in passing.
func (o *over) rows(ctx context.Context, of []int, residual []float64) ([][]float64, error) {
	p := o.known.Start(of, max(1, o.known.Rank()))
	if err := o.known.Bring(ctx, p); err != nil {
		return nil, err
	}
	rows := make([][]float64, len(of))
	for i, row := range of {
		rows[i] = p.row(i)
		if residual[row] != 0 && math.Float64bits(residual[row]) != math.Float64bits(p.residual[i]) {
			return nil, o.spread.Doubt(row)
		}
	}
	return rows, nil
}

func (o *over) grow(ctx context.Context, b Block, at [][]float64, residual []float64) error {
	o.known.Append(b, at)
	left := make([]float64, len(residual))
	if err := o.spread.Grow(ctx, b, at, left); err != nil {
		return err
	}
	for i, r := range residual {
		if r != 0 { // of what is rounding nothing more is asked
			residual[i] = left[i]
		}
	}
	return nil
}

func (o *over) end(f pivoted) pivoted {
	f.spread = o.spread
	return f
}
