package cmvp

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Precision is that of the arithmetic within a tile.
type Precision int

// The precisions. What tiles are summed up to is float64 in both.
const (
	Double Precision = iota // float64
	Single                  // float32
)

// Engine computes with K = K_f(θ) + diag(noise), over the inputs that it was made
// for: what an Operator is made of. The tiles of this machine's cores are one
// (New). The members of a group of workers answer the same questions, each on a
// machine of its own (package shard).
//
// The contract of an engine is its order of summation (see the package comment):
// a result is a function of inputs, covariance, θ, noise and vectors alone, to the
// last bit. It does not depend on threads, on the units or tasks that are asked for
// together, on the other columns, or on what was computed before: Reduce of Units is
// Mul. Two engines of one name (ISA) give the same bits. Units and tasks are those of Grid.
//
// An engine is not safe for concurrent use. The only errors are those of contexts,
// which engines look at often enough to end within a fraction of a second; what
// was being computed is then undefined, and the next call is not affected.
type Engine interface {
	// Set changes θ and the noise, a variance for each row.
	Set(f *kernel.Function, noise []float64)
	// Mul computes K·v[c] for each column of n numbers.
	Mul(ctx context.Context, dst, v [][]float64, p Precision) error
	// Units computes the sums of the units [lo,hi) that the part of K_f·v is made of that is evaluated
	// pair by pair (kernel.Function.Pairs), in units of that part's scale and of factor[c]: unit after unit, for each point after point, column after
	// column of its rows. Of v it reads the rows of the points of these units, times factor
	// and rounded to the precision.
	Units(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error
	// Tasks computes the sums of the tasks [lo,hi) that units are made of: task after task, of the rows of its block A, then of B,
	// column after column. Added up in this order, from 0, they are those of their unit.
	Tasks(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error
	// Reduce sets dst to the K·v that the sums of all units add up to.
	Reduce(dst [][]float64, sums []float64, v [][]float64, factor []float64)
	// Finish makes dst K·v, in which the sums of the units of each point are, added up in their order from 0.
	Finish(dst, v [][]float64, factor []float64)
	// Forms computes the sums of the tasks [lo,hi) of the gradient forms: task by
	// task, group by group and, for each, those that formSums lists.
	Forms(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error
	// Cross computes K_f(X*,X)·v[c], without noise, for the m points X*: columns of
	// m numbers from columns of n. A row's columns are added in increasing order of
	// tile. A row is a function of its point alone, whatever points are beside it.
	Cross(ctx context.Context, dst [][]float64, points *kernel.Inputs, v [][]float64) error
	// CrossMatrix computes K_f(X*,X): a row of n numbers for each point; or the columns of some rows of X alone, as many
	// numbers, if of is not nil. A number is a function of its point and its row alone.
	CrossMatrix(ctx context.Context, rows [][]float64, points *kernel.Inputs, of []int) error
	// Evaluates returns how many elements of K the pairs of tiles of a task stand for that are evaluated at θ; the others
	// are nothing to rounding.
	Evaluates(task int, p Precision) int64
	// Keep lets the engine keep elements of K until θ changes, in these numbers of bytes for
	// each precision.
	Keep(double, single int64)
	// Kept returns how many elements of K products have read instead of computing
	// them, so far.
	Kept() int64
}
