package precond

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// lloydSteps is the number of moves of the two centres at each cut; they hardly
// move after it.
const lloydSteps = 8

// Clusters cuts the rows into ⌈n/size⌉ clusters whose sizes differ by one at
// most, of rows that are near each other in the metric of the covariance: balanced
// k-means by bisection. At each cut 2-means finds two centres, and the rows go
// to either side in the order of the difference of their squared distances to
// them, which is the best assignment of prescribed sizes. Consecutive clusters
// are near each other too, and the rows within one are in increasing order.
func Clusters(ctx context.Context, in *kernel.Inputs, f *kernel.Function, size int, key random.Key, budget *parallel.Budget) ([][]int, error) {
	n := in.Len()
	k := (n + size - 1) / size
	c := &clustering{in: in, scale: make([]float64, in.Dim()), out: make([][]int, k)}
	f.Rates(c.scale)
	for j, tau := range c.scale {
		c.scale[j] = math.Sqrt(tau)
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	level := []span{{rows, 0, k}}
	for len(level) > 0 {
		next := make([][]span, len(level))
		budget.NewLoop(func(_, i int) {
			next[i] = c.split(ctx, level[i], key.Stream(random.Pivot, level[i].lo+level[i].hi*k))
		}).Run(len(level))
		level = slices.Concat(next...)
	}
	return c.out, ctx.Err()
}

// clustering is the state of Clusters.
type clustering struct {
	in    *kernel.Inputs
	scale []float64
	out   [][]int
}

// span is rows that are to be cut into the clusters [lo,hi).
type span struct {
	rows   []int
	lo, hi int
}

// split cuts a span in two, or makes it a cluster; neither once ctx is done.
func (c *clustering) split(ctx context.Context, s span, r *rand.Rand) []span {
	k := s.hi - s.lo
	if k == 1 {
		slices.Sort(s.rows)
		c.out[s.lo] = s.rows
		return nil
	}
	// The first n mod k clusters have a row more than the others.
	left := k / 2
	cut := len(s.rows)/k*left + min(left, len(s.rows)%k)
	a, b := c.point(s.rows[r.IntN(len(s.rows))]), c.point(s.rows[r.IntN(len(s.rows))])
	side := make([]float64, len(s.rows)) // ‖x−a‖² − ‖x−b‖² up to a constant
	order := make([]int, len(s.rows))
	for range lloydSteps {
		if ctx.Err() != nil {
			return nil
		}
		for i, row := range s.rows {
			side[i], order[i] = 0, i
			for j, x := range c.in.Row(row) {
				side[i] += c.scale[j] * x * (b[j] - a[j])
			}
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case side[i] < side[j]:
				return -1
			case side[i] > side[j]:
				return 1
			}
			return s.rows[i] - s.rows[j]
		})
		c.centre(a, s.rows, order[:cut])
		c.centre(b, s.rows, order[cut:])
	}
	sorted := make([]int, len(order))
	for i, o := range order {
		sorted[i] = s.rows[o]
	}
	return []span{{sorted[:cut], s.lo, s.lo + left}, {sorted[cut:], s.lo + left, s.hi}}
}

func (c *clustering) point(row int) []float64 {
	x := slices.Clone(c.in.Row(row))
	floats.Mul(x, c.scale)
	return x
}

// centre sets m to the mean of some of the rows.
func (c *clustering) centre(m []float64, rows, which []int) {
	clear(m)
	for _, i := range which {
		for j, x := range c.in.Row(rows[i]) {
			m[j] += c.scale[j] * x
		}
	}
	floats.Scale(1/float64(len(which)), m)
}
