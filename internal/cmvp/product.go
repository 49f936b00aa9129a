package cmvp

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// engine computes the tasks of products in one precision.
type engine[T tile.Real] struct {
	in   *Inputs
	grid Grid
	kern *tile.Kernels[T]
	eval func(k, zi, zj []T, d, panels int)
	add  func(y, x []float64, n int)
	z    []T // packed scaled inputs

	cache cache[T]
	read  int64 // elements of K that the last product took from it

	s int // columns
	v []T // right-hand sides: tile by tile, then column by column

	dst    [][]float64
	rows   tileRange // the rows wanted
	report func(done, total int)
	seq    sequencer
	loop   *parallel.Loop
	commit func(i int)
	slots  []slot[T]
}

// tileRange is a range of tiles.
type tileRange struct{ lo, hi int }

func (r tileRange) has(t int) bool { return r.lo <= t && t < r.hi }

// meets reports whether any tile of [lo,hi) is in the range.
func (r tileRange) meets(lo, hi int) bool { return lo < r.hi && r.lo < hi }

// slot is the workspace and the result of one task in flight. Sums are laid
// out like right-hand sides.
type slot[T tile.Real] struct {
	k    []T       // one strip of K
	y    []T       // transposed sums of one tile pair
	a, b []float64 // rows of A times V_B, rows of B times V_A
	read int64     // elements of K that were taken from the cache
}

func newEngine[T tile.Real](in *Inputs, f kernel.Family, budget *parallel.Budget, isa tile.ISA) *engine[T] {
	e := &engine[T]{in: in, grid: NewGrid(in.n), kern: tile.For[T](isa), z: make([]T, tile.Pad(in.n)*in.d)}
	e.eval, e.add = e.kern.Eval[f], tile.For[float64](isa).Add
	e.slots = make([]slot[T], 2*budget.MaxWorkers())
	e.seq.init(len(e.slots))
	e.loop = budget.NewLoop(e.task)
	e.commit = e.commitTask
	return e
}

// set changes θ.
func (e *engine[T]) set(f kernel.Family, p kernel.Params) {
	pack(e.z, e.in, e.in.centre, f, p)
	e.cache.invalidate()
}

// load copies the right-hand sides, each times its factor, into tiles.
func (e *engine[T]) load(v [][]float64, factor []float64) {
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
func (e *engine[T]) columnTile(v []T, t int) []T { return v[t*e.s*TileRows:][:e.s*TileRows] }

// sized returns a slice of length n, reusing buf if it is large enough.
func sized[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

// product adds (K_f/σ)·v to the given tiles of rows of dst, v being what was
// loaded.
func (e *engine[T]) product(ctx context.Context, dst [][]float64, rows tileRange, report func(done, total int)) error {
	e.dst, e.rows, e.report, e.read = dst, rows, report, 0
	e.cache.reserve(e.grid, rows)
	e.seq.start(ctx)
	e.loop.Run(e.grid.Tasks())
	return e.seq.err()
}

// task computes task i and leaves it to be committed in its turn.
func (e *engine[T]) task(_, i int) {
	if !e.seq.enter(i) {
		return
	}
	e.compute(&e.slots[i%len(e.slots)], i)
	e.seq.leave(i, e.commit)
}

// sides reports which sides of a task are wanted.
func (e *engine[T]) sides(t Task) (a, b bool) {
	return e.rows.meets(e.grid.blockTiles(t.A)), e.rows.meets(e.grid.blockTiles(t.B))
}

func (e *engine[T]) compute(sl *slot[T], task int) {
	t := e.grid.Task(task)
	wantA, wantB := e.sides(t)
	sl.read = 0
	if !wantA && !wantB {
		return
	}
	iLo, iHi := e.grid.blockTiles(t.A)
	jLo, jHi := e.grid.blockTiles(t.B)
	size := e.s * TileRows
	sl.k = sized(sl.k, tile.Strip*TileRows)
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
func (e *engine[T]) elements(i, j int, direct, trans bool) int64 {
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
func (e *engine[T]) tilePair(sl *slot[T], i, j int, a, b []float64, direct, trans bool, kept []T, filled bool) {
	d := e.in.d
	rowLo, rowHi := e.grid.tileRows(i)
	colLo, colHi := e.grid.tileRows(j)
	panels := tile.Panels(colHi - colLo)
	zj := e.z[colLo*d:]
	vi, vj := e.columnTile(e.v, i), e.columnTile(e.v, j)
	clear(sl.y)
	k, next := sl.k, []T(nil)
	for r := 0; r < rowHi-rowLo; r += tile.Strip {
		if kept != nil {
			k, next = kept[r*TileRows:][:tile.Strip*TileRows], kept[min(r+tile.Strip, TileRows-tile.Strip)*TileRows:]
		}
		if !filled {
			e.eval(k, rowPack(e.z, rowLo+r, d), zj, d, panels)
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

// rowPack returns the packed inputs of the strip that begins at row r.
func rowPack[T tile.Real](z []T, r, d int) []T {
	return z[r/tile.Panel*tile.Panel*d+r%tile.Panel:]
}

// commitTask adds the result of task i to dst.
func (e *engine[T]) commitTask(i int) {
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
	if e.report != nil {
		e.report(i+1, e.grid.Tasks())
	}
}

// addBlock adds the sums of a block of rows to dst.
func (e *engine[T]) addBlock(block int, sums []float64) {
	tLo, tHi := e.grid.blockTiles(block)
	for t := tLo; t < tHi; t++ {
		lo, hi := e.grid.tileRows(t)
		for c, y := range e.dst {
			y, x := y[lo:hi], sums[((t-tLo)*e.s+c)*TileRows:]
			whole := len(y) / tile.Panel * tile.Panel
			e.add(y, x, whole)
			for i := whole; i < len(y); i++ {
				y[i] += x[i]
			}
		}
	}
}
