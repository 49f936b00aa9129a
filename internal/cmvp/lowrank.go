package cmvp

import (
	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// lowRank is the part A·Aᵀ of K_f that is no function of pairs of rows, such as that of linear terms:
// products with it are A·(Aᵀ·v), in float64, n·r for a column where pairs take n². Each column is
// computed by itself, from its first row to its last.
type lowRank struct {
	in   *kernel.Inputs
	cov  *kernel.Covariance
	cols [][]float64 // A, column by column

	dst, v [][]float64 // of the product under way
	loop   *parallel.Loop
}

// newLowRank returns nil if nothing is of low rank.
func newLowRank(in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget) *lowRank {
	if c.Rank() == 0 {
		return nil
	}
	l := &lowRank{in: in, cov: c, cols: columns(in.Len(), c.Rank())}
	l.loop = budget.NewLoop(l.column)
	return l
}

func columns(n, s int) [][]float64 {
	all, cols := make([]float64, n*s), make([][]float64, s)
	for c := range cols {
		cols[c] = all[c*n : (c+1)*n : (c+1)*n]
	}
	return cols
}

// set changes θ.
func (l *lowRank) set(f *kernel.Function) {
	if l != nil {
		features(l.cols, l.in, f)
	}
}

// features sets the columns of A, those of the given points.
func features(cols [][]float64, in *kernel.Inputs, f *kernel.Function) {
	row := make([]float64, len(cols))
	for i := range in.Len() {
		f.Features(row, in.Row(i))
		for q, a := range row {
			cols[q][i] = a
		}
	}
}

// add adds A·Aᵀ·v[c] to dst[c].
func (l *lowRank) add(dst, v [][]float64) {
	if l == nil {
		return
	}
	l.dst, l.v = dst, v
	l.loop.Run(len(v))
	l.dst, l.v = nil, nil
}

func (l *lowRank) column(_, c int) {
	for _, a := range l.cols {
		floats.AddScaled(l.dst[c], floats.Dot(a, l.v[c]), a)
	}
}

// addCross adds A(X*)·Aᵀ·v[c] to dst[c].
func (l *lowRank) addCross(dst [][]float64, points *kernel.Inputs, f *kernel.Function, v [][]float64) {
	if l == nil {
		return
	}
	there := columns(points.Len(), len(l.cols))
	features(there, points, f)
	for c := range dst {
		for q, a := range l.cols {
			floats.AddScaled(dst[c], floats.Dot(a, v[c]), there[q])
		}
	}
}

// addMatrix adds A(X*)·Aᵀ to the rows.
func (l *lowRank) addMatrix(rows [][]float64, points *kernel.Inputs, f *kernel.Function) {
	if l == nil {
		return
	}
	there := make([]float64, len(l.cols))
	for i, row := range rows {
		f.Features(there, points.Row(i))
		for q, a := range l.cols {
			floats.AddScaled(row, there[q], a)
		}
	}
}

// addForms adds the forms to sums, a number for each group and slot of lowSlots, in steps of per
// numbers from one group to the next.
func (l *lowRank) addForms(sums []float64, per int, u, v [][]float64, group []int) {
	if l == nil {
		return
	}
	for c, g := range group {
		at, cols := g*per, l.cols
		for _, t := range l.cov.LowRank() {
			rank := l.cov.TermRank(t)
			if l.cov.Terms()[t].Variance >= 0 {
				for _, a := range cols[:rank] {
					sums[at] += floats.Dot(a, u[c]) * floats.Dot(a, v[c])
				}
				at++
			}
			cols = cols[rank:]
		}
	}
}

// lowSlots returns the parameters whose forms addForms adds.
func lowSlots(c *kernel.Covariance) (params []int) {
	for _, t := range c.LowRank() {
		if v := c.Terms()[t].Variance; v >= 0 {
			params = append(params, v)
		}
	}
	return params
}
