package cmvp

import (
	"cmp"
	"context"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

func (e *tiles) CrossMatrix(ctx context.Context, rows [][]float64, points *kernel.Inputs, of []int) error {
	if e.pairs == nil {
		for _, row := range rows {
			clear(row)
		}
		e.low.addMatrix(rows, points, e.f, of)
		return ctx.Err()
	}
	scale := e.pairs.Scale()
	c := newCross(e, points, of)
	if c.reach != nil {
		for _, row := range rows {
			clear(row)
		}
	}
	err := c.each(ctx, func(k []float64, _, r, colLo, colHi, _ int) {
		for i := r; i < min(r+tile.Strip, points.Len()); i++ {
			row, x := rows[c.point(i)], k[(i-r)*TileRows:][:colHi-colLo]
			if c.place != nil {
				for j := range x {
					row[c.place[colLo+j]] = scale * x[j]
				}
				continue
			}
			dst := row[colLo:colHi]
			for j := range dst {
				dst[j] = scale * x[j]
			}
		}
	})
	e.low.addMatrix(rows, points, e.f, of)
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
	x := newCross(e, points, nil)
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

// cross evaluates strips of K(X*,X), or of some of its columns.
type cross struct {
	*tiles
	m     int         // points
	n     int         // columns
	order []int       // in which points are taken; nil if that is their own
	place []int       // which column each is that is taken; nil if all are, in their order
	z     [][]float64 // packed scaled features of the points, leaf by leaf
	zj    [][]float64 // of the columns
	chunk int         // points that are taken at once
	reach *crossReach // nil if all pairs are evaluated
}

// newCross returns what evaluates the columns of some rows of X, all if of is nil.
func newCross(e *tiles, points *kernel.Inputs, of []int) *cross {
	c := &cross{tiles: e, m: points.Len(), n: e.in.Len(), z: e.double.strips.packed(points.Len()), zj: e.double.z}
	// As many rows at once as use a tile of columns from the cache, but some
	// for every core.
	c.chunk = min(TileRows/tile.Strip, (c.strips()+2*c.budget.Cores()-1)/(2*c.budget.Cores())) * tile.Strip
	if of != nil {
		of = c.some(of)
	}
	if e.reach == nil {
		e.double.strips.pack(c.z, points, e.in, e.pairs)
		return c
	}
	over, _ := e.cov.Local()
	c.order = points.SpatialOrder(over, tile.Strip) // so that points that are taken at once are near
	e.double.strips.pack(c.z, points.Select(c.order), e.in, e.pairs)
	c.reach = newCrossReach(e.reach, c.z, c.m, c.chunk, of)
	return c
}

// some has the columns of some rows evaluated alone, in increasing order of row, so that those that are taken at once are
// near. It returns the rows in this order.
func (c *cross) some(of []int) []int {
	c.n, c.place = len(of), make([]int, len(of))
	for j := range of {
		c.place[j] = j
	}
	slices.SortStableFunc(c.place, func(a, b int) int { return cmp.Compare(of[a], of[b]) })
	rows := make([]int, len(of))
	for j, at := range c.place {
		rows[j] = of[at]
	}
	c.zj = c.double.strips.packed(len(of))
	c.double.strips.pack(c.zj, c.in.Select(rows), c.in, c.pairs)
	return rows
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
		for t := range (c.n + TileRows - 1) / TileRows {
			if ctx.Err() != nil {
				return
			}
			if !c.reach.chunk(chunk, t) {
				continue
			}
			colLo, colHi := t*TileRows, min(c.n, (t+1)*TileRows)
			panels := tile.Panels(colHi - colLo)
			for r := chunk * rows; r < min((chunk+1)*rows, c.m); r += tile.Strip {
				if !c.reach.strip(r/tile.Strip, t) {
					continue
				}
				e.strips.eval(k, ws, c.z, r, c.zj, colLo, panels)
				c.reach.clear(k, r, t)
				use(k, t, r, colLo, colHi, panels)
			}
		}
	}).Run((c.m + rows - 1) / rows)
	return ctx.Err()
}

// crossReach says which elements of K(X*,X) are more than nothing: by a point and a tile of rows of X, whatever points and
// columns are beside it.
type crossReach struct {
	*reach
	m                      int
	points, strips, chunks []boxes // of each leaf
	runs                   [][]run // of each tile of columns
}

// run are columns [lo,hi) of a tile of columns, which are rows of one tile of X.
type run struct{ tile, lo, hi int }

func newCrossReach(r *reach, z [][]float64, m, chunk int, of []int) *crossReach {
	c := &crossReach{reach: r, m: m, runs: runs(r.grid, of)}
	for l := range r.leaves {
		leaf := &r.leaves[l]
		c.points = append(c.points, leaf.boxes(z[l], m, 1))
		c.strips = append(c.strips, leaf.boxes(z[l], m, tile.Strip))
		c.chunks = append(c.chunks, leaf.boxes(z[l], m, chunk))
	}
	return c
}

// runs returns those of the columns of some rows, which increase; of all if of is nil.
func runs(g Grid, of []int) (all [][]run) {
	if of == nil {
		for t := range g.Tiles {
			all = append(all, []run{{t, 0, TileRows}})
		}
		return all
	}
	for lo := 0; lo < len(of); lo += TileRows {
		var some []run
		for j, row := range of[lo:min(len(of), lo+TileRows)] {
			if k := len(some) - 1; k >= 0 && some[k].tile == row/TileRows {
				some[k].hi = j + 1
			} else {
				some = append(some, run{row / TileRows, j, j + 1})
			}
		}
		all = append(all, some)
	}
	return all
}

// strip reports whether a strip of rows and a tile of columns may have to be evaluated, and chunk whether all rows that are taken at once may.
func (c *crossReach) strip(i, t int) bool { return c == nil || c.reachesTile(c.strips, i, t) }
func (c *crossReach) chunk(i, t int) bool { return c == nil || c.reachesTile(c.chunks, i, t) }

func (c *crossReach) reachesTile(b []boxes, i, t int) bool {
	return slices.ContainsFunc(c.runs[t], func(x run) bool { return c.bound(b, i, c.tiles, x.tile) > Double.unit()/c.rows/2 })
}

// clear clears the elements of a strip of K, from row r on, that are nothing.
func (c *crossReach) clear(k []float64, r, t int) {
	if c == nil {
		return
	}
	for i := r; i < min(r+tile.Strip, c.m); i++ {
		for _, x := range c.runs[t] {
			if c.bound(c.points, i, c.tiles, x.tile) <= Double.unit()/c.rows {
				clear(k[(i-r)*TileRows:][x.lo:x.hi])
			}
		}
	}
}
