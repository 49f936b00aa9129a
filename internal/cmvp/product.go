package cmvp

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// multiplier computes the tasks of products in one precision.
type multiplier[T tile.Real] struct {
	in     *kernel.Inputs
	grid   Grid
	kern   *tile.Kernels[T]
	strips strips[T]
	add    func(y, x []float64, n int)
	z      [][]T // packed scaled features, leaf by leaf

	cache cache[T]
	read  int64 // elements of K that products took from it

	s int // columns
	v []T // right-hand sides: tile by tile, then column by column

	dst    [][]float64 // from row lo on
	lo     int
	rows   tileRange // the rows wanted
	seq    sequencer
	loop   *parallel.Loop
	commit func(i int)
	slots  []workspace[T]
}

// tileRange is a range of tiles.
type tileRange struct{ lo, hi int }

func (r tileRange) has(t int) bool { return r.lo <= t && t < r.hi }

// meets reports whether any tile of [lo,hi) is in the range.
func (r tileRange) meets(lo, hi int) bool { return lo < r.hi && r.lo < hi }

// workspace is that of one task in flight, and its result. Sums are laid out like
// right-hand sides.
type workspace[T tile.Real] struct {
	k    []T       // one strip of K
	ws   []T       // what it is made of
	y    []T       // transposed sums of one tile pair
	a, b []float64 // rows of A times V_B, rows of B times V_A
	read int64     // elements of K that were taken from the cache
}

func newMultiplier[T tile.Real](in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget, isa tile.ISA) *multiplier[T] {
	kern := tile.For[T](isa)
	e := &multiplier[T]{in: in, grid: NewGrid(in.Len()), kern: kern, strips: newStrips(c, kern), add: tile.For[float64](isa).Add}
	e.z = e.strips.packed(in.Len())
	e.slots = make([]workspace[T], 2*budget.MaxWorkers())
	e.seq.init(len(e.slots))
	e.loop = budget.NewLoop(e.task)
	e.commit = e.commitTask
	return e
}

// set changes θ.
func (e *multiplier[T]) set(f *kernel.Function) {
	e.strips.set(f)
	e.strips.pack(e.z, e.in, e.in, f)
	e.cache.invalidate()
}

// load copies the right-hand sides, each times its factor, into tiles.
func (e *multiplier[T]) load(v [][]float64, factor []float64) {
	e.s = len(v)
	e.v = sized(e.v, e.grid.Tiles*e.s*TileRows)
	for c, vc := range v {
		f := factor[c]
		for t := range e.grid.Tiles {
			lo, hi := e.grid.tileRows(t)
			dst := e.columnTile(e.v, t)[c*TileRows:][:TileRows]
			for i, x := range vc[lo:hi] {
				dst[i] = T(f * x)
			}
			clear(dst[hi-lo:])
		}
	}
}

// columnTile returns tile t of columns of vectors.
func (e *multiplier[T]) columnTile(v []T, t int) []T { return v[t*e.s*TileRows:][:e.s*TileRows] }

// product adds K_f/scale·v to dst, v being what was loaded: rows [lo,hi), in columns
// that begin with row lo.
func (e *multiplier[T]) product(ctx context.Context, dst [][]float64, lo, hi int) error {
	e.dst, e.lo, e.rows = dst, lo, tileRange{lo / TileRows, (hi + TileRows - 1) / TileRows}
	e.cache.reserve(e.grid, e.rows)
	e.seq.start(ctx.Done())
	e.loop.Run(e.grid.Tasks())
	if e.seq.stopped {
		return ctx.Err()
	}
	return nil
}

// task computes task i and leaves it to be committed in its turn.
func (e *multiplier[T]) task(_, i int) {
	if !e.seq.enter(i) {
		return
	}
	e.compute(&e.slots[i%len(e.slots)], i)
	e.seq.leave(i, e.commit)
}

// sides reports which sides of a task are wanted.
func (e *multiplier[T]) sides(t Task) (a, b bool) {
	return e.rows.meets(e.grid.blockTiles(t.A)), e.rows.meets(e.grid.blockTiles(t.B))
}

func (e *multiplier[T]) compute(sl *workspace[T], task int) {
	t := e.grid.Task(task)
	wantA, wantB := e.sides(t)
	sl.read = 0
	if !wantA && !wantB {
		return
	}
	iLo, iHi := e.grid.blockTiles(t.A)
	jLo, jHi := e.grid.blockTiles(t.B)
	size := e.s * TileRows
	sl.k = sized(sl.k, stripSize)
	sl.ws = e.strips.scratch(sl.ws)
	sl.y = sized(sl.y, size)
	sl.a, sl.b = sized(sl.a, (iHi-iLo)*size), sized(sl.b, (jHi-jLo)*size)
	clear(sl.a)
	clear(sl.b)
	pair := 0
	for i := iLo; i < iHi; i++ {
		a := sl.a[(i-iLo)*size:][:size]
		for j := max(i, jLo); j < jHi; j++ {
			direct, trans := e.rows.has(i), i != j && e.rows.has(j)
			if direct || trans {
				kept, filled := e.cache.pair(task, pair)
				if filled {
					sl.read += e.elements(i, j, direct, trans)
				}
				e.tilePair(sl, i, j, a, sl.b[(j-jLo)*size:][:size], direct, trans, kept, filled)
			}
			pair++
		}
	}
}

// elements returns how many elements of K a tile pair stands for in a product
// that wants the given sides.
func (e *multiplier[T]) elements(i, j int, direct, trans bool) int64 {
	iLo, iHi := e.grid.tileRows(i)
	jLo, jHi := e.grid.tileRows(j)
	n := int64(iHi-iLo) * int64(jHi-jLo)
	if direct && trans {
		return 2 * n
	}
	return n
}

// tilePair evaluates rows i against columns j, or takes them from where they
// are kept, and adds K·V_j to a and Kᵀ·V_i to b, as far as they are wanted.
func (e *multiplier[T]) tilePair(sl *workspace[T], i, j int, a, b []float64, direct, trans bool, kept []T, filled bool) {
	rowLo, rowHi := e.grid.tileRows(i)
	colLo, colHi := e.grid.tileRows(j)
	panels := tile.Panels(colHi - colLo)
	vi, vj := e.columnTile(e.v, i), e.columnTile(e.v, j)
	clear(sl.y)
	k, next := sl.k, []T(nil)
	for r := 0; r < rowHi-rowLo; r += tile.Strip {
		if kept != nil {
			k, next = kept[r*TileRows:][:stripSize], kept[min(r+tile.Strip, TileRows-tile.Strip)*TileRows:]
		}
		if !filled {
			e.strips.eval(k, sl.ws, e.z, rowLo+r, e.z, colLo, panels)
		}
		if direct {
			e.kern.Direct(a[r:], TileRows, k, next, vj, e.s, panels)
		}
		if trans {
			e.kern.Trans(sl.y, k, next, vi[r:], TileRows, e.s, panels)
		}
	}
	if trans {
		e.kern.Add(b, sl.y, len(sl.y))
	}
}

// commitTask adds the result of task i to dst.
func (e *multiplier[T]) commitTask(i int) {
	sl := &e.slots[i%len(e.slots)]
	t := e.grid.Task(i)
	wantA, wantB := e.sides(t)
	if wantA {
		e.addBlock(t.A, sl.a)
	}
	if wantB {
		e.addBlock(t.B, sl.b)
	}
	e.read += sl.read
}

// addBlock adds the sums of a block of rows to dst, as far as they are wanted.
func (e *multiplier[T]) addBlock(block int, sums []float64) {
	tLo, tHi := e.grid.blockTiles(block)
	for t := max(tLo, e.rows.lo); t < min(tHi, e.rows.hi); t++ {
		lo, hi := e.grid.tileRows(t)
		for c, y := range e.dst {
			y, x := y[lo-e.lo:hi-e.lo], sums[((t-tLo)*e.s+c)*TileRows:]
			whole := len(y) / tile.Panel * tile.Panel
			e.add(y, x, whole)
			for i := whole; i < len(y); i++ {
				y[i] += x[i]
			}
		}
	}
}
