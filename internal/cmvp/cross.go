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
	if c.reach != nil {
		for _, row := range rows {
			clear(row)
		}
	}
	err := c.each(ctx, func(k []float64, _, r, colLo, colHi, _ int) {
		for i := r; i < min(r+tile.Strip, points.Len()); i++ {
			dst := rows[c.point(i)][colLo:colHi]
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
	x := newCross(e, points)
	e.double.load(v, Scales(v, Double), 0, e.double.grid.Units())
	sums := make([]float64, x.strips()*tile.Strip*s) // strip by strip, then column by column
	err := x.each(ctx, func(k []float64, t, r, _, _, panels int) {
		e.double.kern.Direct(sums[r*s:], tile.Strip, k, nil, e.double.columnTile(e.double.v, t), s, panels)
	})
	if err != nil {
		return err
	}
	scale := e.pairs.Scale()
	for c := range dst {
		for r := range dst[c] {
			dst[c][x.point(r)] = scale * sums[(r/tile.Strip*s+c)*tile.Strip+r%tile.Strip]
		}
	}
	e.low.addCross(dst, points, e.f, v)
	return nil
}

// cross evaluates strips of K(X*,X).
type cross struct {
	*tiles
	m     int         // points
	order []int       // in which they are taken; nil if that is their own
	z     [][]float64 // their packed scaled features, leaf by leaf
	chunk int         // points that are taken at once
	reach *crossReach // nil if all pairs are evaluated
}

func newCross(e *tiles, points *kernel.Inputs) *cross {
	c := &cross{tiles: e, m: points.Len(), z: e.double.strips.packed(points.Len())}
	// As many rows at once as use a tile of columns from the cache, but some
	// for every core.
	c.chunk = min(TileRows/tile.Strip, (c.strips()+2*c.budget.Cores()-1)/(2*c.budget.Cores())) * tile.Strip
	if e.reach == nil {
		e.double.strips.pack(c.z, points, e.in, e.pairs)
		return c
	}
	over, _ := e.cov.Local()
	c.order = points.SpatialOrder(over, tile.Strip) // so that points that are taken at once are near
	e.double.strips.pack(c.z, points.Select(c.order), e.in, e.pairs)
	c.reach = newCrossReach(e.reach, c.z, c.m, c.chunk)
	return c
}

// point returns which point is taken i-th.
func (c *cross) point(i int) int {
	if c.order == nil {
		return i
	}
	return c.order[i]
}

func (c *cross) strips() int { return (c.m + tile.Strip - 1) / tile.Strip }

// each calls use with strips of K_f/scale: tile t of columns [colLo,colHi), in
// increasing order for each of the rows that begin at r. Strips and rows that are nothing to rounding are left out, or zero.
func (c *cross) each(ctx context.Context, use func(k []float64, t, r, colLo, colHi, panels int)) error {
	e, rows := c.double, c.chunk
	c.budget.NewLoop(func(_, chunk int) {
		k, ws := make([]float64, stripSize), e.strips.scratch(nil)
		for t := range e.grid.Tiles {
			if ctx.Err() != nil {
				return
			}
			if !c.reach.chunk(chunk, t) {
				continue
			}
			colLo, colHi := e.grid.tileRows(t)
			panels := tile.Panels(colHi - colLo)
			for r := chunk * rows; r < min((chunk+1)*rows, c.m); r += tile.Strip {
				if !c.reach.strip(r/tile.Strip, t) {
					continue
				}
				e.strips.eval(k, ws, c.z, r, e.z, colLo, panels)
				c.reach.clear(k, r, t)
				use(k, t, r, colLo, colHi, panels)
			}
		}
	}).Run((c.m + rows - 1) / rows)
	return ctx.Err()
}

// crossReach says which elements of K(X*,X) are more than nothing: by a point and a tile of columns, whatever points are
// beside it.
type crossReach struct {
	*reach
	m                      int
	points, strips, chunks []boxes // of each leaf
}

func newCrossReach(r *reach, z [][]float64, m, chunk int) *crossReach {
	c := &crossReach{reach: r, m: m}
	for l := range r.leaves {
		leaf := &r.leaves[l]
		c.points = append(c.points, leaf.boxes(z[l], m, 1))
		c.strips = append(c.strips, leaf.boxes(z[l], m, tile.Strip))
		c.chunks = append(c.chunks, leaf.boxes(z[l], m, chunk))
	}
	return c
}

// strip reports whether a strip of rows and a tile may have to be evaluated, and chunk whether all rows that are taken at once may.
func (c *crossReach) strip(i, t int) bool { return c == nil || c.reachesTile(c.strips, i, t) }
func (c *crossReach) chunk(i, t int) bool { return c == nil || c.reachesTile(c.chunks, i, t) }

func (c *crossReach) reachesTile(b []boxes, i, t int) bool {
	return c.bound(b, i, c.tiles, t) > Double.unit()/c.rows/2
}

// clear clears the rows of a strip of K, from row r on, that are nothing.
func (c *crossReach) clear(k []float64, r, t int) {
	if c == nil {
		return
	}
	for i := r; i < min(r+tile.Strip, c.m); i++ {
		if c.bound(c.points, i, c.tiles, t) <= Double.unit()/c.rows {
			clear(k[(i-r)*TileRows:][:TileRows])
		}
	}
}
