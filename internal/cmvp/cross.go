package cmvp

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

func (e *tiles) CrossMatrix(ctx context.Context, rows [][]float64, points *kernel.Inputs) error {
	if e.pairs == nil {
		for _, row := range rows {
			clear(row)
		}
		e.low.addMatrix(rows, points, e.f)
		return ctx.Err()
	}
	scale := e.pairs.Scale()
	c := newCross(e, points)
	err := c.each(ctx, func(k []float64, _, r, colLo, colHi, _ int) {
		for i := r; i < min(r+tile.Strip, points.Len()); i++ {
			dst := rows[i][colLo:colHi]
			for j, x := range k[(i-r)*TileRows:][:len(dst)] {
				dst[j] = scale * x
			}
		}
	})
	e.low.addMatrix(rows, points, e.f)
	return err
}

func (e *tiles) Cross(ctx context.Context, dst [][]float64, points *kernel.Inputs, v [][]float64) error {
	if e.pairs == nil {
		for _, y := range dst {
			clear(y)
		}
		e.low.addCross(dst, points, e.f, v)
		return ctx.Err()
	}
	s := len(v)
	c := newCross(e, points)
	e.double.load(v, Scales(v, Double), 0, e.double.grid.Units())
	sums := make([]float64, c.strips()*tile.Strip*s) // strip by strip, then column by column
	err := c.each(ctx, func(k []float64, t, r, _, _, panels int) {
		e.double.kern.Direct(sums[r*s:], tile.Strip, k, nil, e.double.columnTile(e.double.v, t), s, panels)
	})
	if err != nil {
		return err
	}
	scale := e.pairs.Scale()
	for c := range dst {
		for r := range dst[c] {
			dst[c][r] = scale * sums[(r/tile.Strip*s+c)*tile.Strip+r%tile.Strip]
		}
	}
	e.low.addCross(dst, points, e.f, v)
	return nil
}

// cross evaluates strips of K(X*,X).
type cross struct {
	*tiles
	m int         // points
	z [][]float64 // their packed scaled features, leaf by leaf
}

func newCross(e *tiles, points *kernel.Inputs) *cross {
	c := &cross{tiles: e, m: points.Len(), z: e.double.strips.packed(points.Len())}
	e.double.strips.pack(c.z, points, e.in, e.pairs)
	return c
}

func (c *cross) strips() int { return (c.m + tile.Strip - 1) / tile.Strip }

// each calls use with every strip of K_f/scale: tile t of columns [colLo,colHi), in
// increasing order for each of the rows that begin at r.
func (c *cross) each(ctx context.Context, use func(k []float64, t, r, colLo, colHi, panels int)) error {
	e := c.double
	// As many rows at once as use a tile of columns from the cache, but some
	// for every core.
	strips := min(TileRows/tile.Strip, (c.strips()+2*c.budget.Cores()-1)/(2*c.budget.Cores()))
	rows := strips * tile.Strip
	c.budget.NewLoop(func(_, chunk int) {
		k, ws := make([]float64, stripSize), e.strips.scratch(nil)
		for t := range e.grid.Tiles {
			if ctx.Err() != nil {
				return
			}
			colLo, colHi := e.grid.tileRows(t)
			panels := tile.Panels(colHi - colLo)
			for r := chunk * rows; r < min((chunk+1)*rows, c.m); r += tile.Strip {
				e.strips.eval(k, ws, c.z, r, e.z, colLo, panels)
				use(k, t, r, colLo, colHi, panels)
			}
		}
	}).Run((c.m + rows - 1) / rows)
	return ctx.Err()
}
