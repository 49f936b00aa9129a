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
	// slopes are the derivatives of A by the parameters that its features depend on, those of a term after those of
	// the one before, one parameter after the other. They are computed when they are first needed.
	slopes [][]float64
	f      *kernel.Function // θ
	sloped *kernel.Function // that the slopes are of

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
		l.f = f
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

// addMatrix adds A(X*)·Aᵀ to the rows, or the columns of some rows of A, if of is not nil.
func (l *lowRank) addMatrix(rows [][]float64, points *kernel.Inputs, f *kernel.Function, of []int) {
	if l == nil {
		return
	}
	cols := l.cols
	if of != nil {
		cols = columns(len(of), len(l.cols))
		for q, a := range l.cols {
			gather(cols[q], a, of)
		}
	}
	there := make([]float64, len(cols))
	for i, row := range rows {
		f.Features(there, points.Row(i))
		for q, a := range cols {
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
	l.differentiate()
	for c, g := range group {
		at, cols, slopes := g*per, l.cols, l.slopes
		for _, t := range l.cov.LowRank() {
			rank := l.cov.TermRank(t)
			if l.cov.Terms()[t].Variance >= 0 {
				for _, a := range cols[:rank] {
					sums[at] += floats.Dot(a, u[c]) * floats.Dot(a, v[c])
				}
				at++
			}
			for range lowDirects(l.cov, t) {
				for q, a := range cols[:rank] {
					sums[at] += floats.Dot(slopes[q], u[c])*floats.Dot(a, v[c]) + floats.Dot(a, u[c])*floats.Dot(slopes[q], v[c])
				}
				slopes = slopes[rank:]
				at++
			}
			cols = cols[rank:]
		}
	}
}

// differentiate computes the slopes at θ.
func (l *lowRank) differentiate() {
	if l.sloped == l.f {
		return
	}
	l.sloped = l.f
	next := 0
	for _, t := range l.cov.LowRank() {
		rank := l.cov.TermRank(t)
		row := make([]float64, rank)
		for _, d := range lowDirects(l.cov, t) {
			if len(l.slopes) == next {
				l.slopes = append(l.slopes, columns(l.in.Len(), rank)...)
			}
			for i := range l.in.Len() {
				l.f.FeatureSlopes(row, t, d.leaf, d.param, l.in.Row(i))
				for q, a := range row {
					l.slopes[next+q][i] = a
				}
			}
			next += rank
		}
	}
}

// lowDirects returns the parameters that the features of a term of low rank depend on, the leaves by their places
// in the term.
func lowDirects(c *kernel.Covariance, term int) (all []direct) {
	for at, l := range c.Terms()[term].Leaves {
		for _, p := range warpsOf(c.Leaves()[l]) {
			all = append(all, direct{at, p})
		}
	}
	return all
}

// lowSlots returns the parameters whose forms addForms adds.
func lowSlots(c *kernel.Covariance) (params []int) {
	for _, t := range c.LowRank() {
		if v := c.Terms()[t].Variance; v >= 0 {
			params = append(params, v)
		}
		for _, d := range lowDirects(c, t) {
			params = append(params, c.LeafParams(c.Terms()[t].Leaves[d.leaf])[d.param])
		}
	}
	return params
}
