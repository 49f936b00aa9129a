package cmvp

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// CrossMatrix returns K_f(X*,X), without noise, as one row of n numbers for
// each of the m points: the K_UX of the preconditioners. It takes m·n numbers.
func (o *Operator) CrossMatrix(points *Inputs) [][]float64 {
	n := o.in.n
	all := make([]float64, points.n*n)
	rows := make([][]float64, points.n)
	for r := range rows {
		rows[r] = all[r*n : (r+1)*n : (r+1)*n]
	}
	c := newCross(o, points)
	c.each(func(k []float64, _, r, colLo, colHi, _ int) {
		for i := r; i < min(r+tile.Strip, points.n); i++ {
			dst := rows[i][colLo:colHi]
			for j, x := range k[(i-r)*TileRows:][:len(dst)] {
				dst[j] = o.params.Sigma * x
			}
		}
	})
	return rows
}

// Cross sets dst[c] = K_f(X*,X)·v[c], without noise: columns of m numbers from
// columns of n, in memory O((m+n)·s). A row's columns are added in increasing
// order of tile.
func (o *Operator) Cross(ctx context.Context, dst [][]float64, points *Inputs, v [][]float64) error {
	s := len(v)
	c := newCross(o, points)
	o.factor = sized(o.factor, s)
	for i := range o.factor {
		o.factor[i] = 1
	}
	o.eng.load(v, o.factor)
	sums := make([]float64, c.strips()*tile.Strip*s) // strip by strip, then column by column
	c.each(func(k []float64, t, r, _, _, panels int) {
		if ctx.Err() == nil {
			o.eng.kern.Direct(sums[r*s:], tile.Strip, k, nil, o.eng.columnTile(o.eng.v, t), s, panels)
		}
	})
	for c := range dst {
		for r := range dst[c] {
			dst[c][r] = o.params.Sigma * sums[(r/tile.Strip*s+c)*tile.Strip+r%tile.Strip]
		}
	}
	o.count.Products++
	o.count.Columns += int64(s)
	o.count.Pairs += int64(points.n) * int64(o.in.n)
	return ctx.Err()
}

// cross evaluates strips of K(X*,X).
type cross struct {
	op     *Operator
	points *Inputs
	z      []float64 // packed scaled points
}

func newCross(o *Operator, points *Inputs) *cross {
	if points.d != o.in.d {
		panic("cmvp: points of another dimension")
	}
	c := &cross{op: o, points: points, z: make([]float64, tile.Pad(points.n)*points.d)}
	pack(c.z, points, o.in.centre, o.family, o.params)
	return c
}

func (c *cross) strips() int { return (c.points.n + tile.Strip - 1) / tile.Strip }

// each calls use with every strip of K/σ: tile t of columns [colLo,colHi), in
// increasing order for each of the rows that begin at r.
func (c *cross) each(use func(k []float64, t, r, colLo, colHi, panels int)) {
	e, d, m := c.op.eng, c.points.d, c.points.n
	// As many rows at once as use a tile of columns from the cache, but some
	// for every core.
	strips := min(TileRows/tile.Strip, (c.strips()+2*c.op.budget.Cores()-1)/(2*c.op.budget.Cores()))
	rows := strips * tile.Strip
	c.op.budget.NewLoop(func(_, chunk int) {
		k := make([]float64, tile.Strip*TileRows)
		for t := range e.grid.Tiles {
			colLo, colHi := e.grid.tileRows(t)
			panels := tile.Panels(colHi - colLo)
			for r := chunk * rows; r < min((chunk+1)*rows, m); r += tile.Strip {
				e.eval(k, rowPack(c.z, r, d), e.z[colLo*d:], d, panels)
				use(k, t, r, colLo, colHi, panels)
			}
		}
	}).Run((m + rows - 1) / rows)
}

// Budget returns the cores that the operator computes on.
func (o *Operator) Budget() *parallel.Budget { return o.budget }
