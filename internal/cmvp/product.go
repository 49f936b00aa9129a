package cmvp

import (
	"context"
	"unsafe"

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
	z      [][]T  // packed scaled features, leaf by leaf
	reach  *reach // which tile pairs are evaluated; nil for all
	p      Precision

	cache cache[T]
	read  int64 // elements of K that products took from it

	s int // columns
	v []T // right-hand sides: tile by tile, then column by column

	from   int         // first task
	unit   int         // whose tasks are committed
	sum    []float64   // of them, laid out like right-hand sides: its points one after another
	place  []int       // of each block of its points, where its sums begin
	dst    [][]float64 // where addUnit adds them; nil if they are copied
	out    []float64   // where copyUnit or copyTask appends them
	apart  bool        // copy the sums of each task
	seq    sequencer
	loop   *parallel.Loop
	commit func(i int)
	slots  []workspace[T]
	needed [maxBlocks]bool // of load, by point
}

// workspace is that of one task in flight, and its result. Sums are laid out like
// right-hand sides.
type workspace[T tile.Real] struct {
	k    []T       // one strip of K
	ws   []T       // what it is made of
	y    []T       // transposed sums of one tile pair
	a, b []float64 // rows of A times V_B, rows of B times V_A
	read int64     // elements of K that were taken from the cache
}

func newMultiplier[T tile.Real](in *kernel.Inputs, c *kernel.Covariance, r *reach, budget *parallel.Budget, isa tile.ISA) *multiplier[T] {
	kern := tile.For[T](isa)
	e := &multiplier[T]{in: in, grid: NewGrid(in.Len()), kern: kern, strips: newStrips(c, kern), add: tile.For[float64](isa).Add, reach: r}
	if unsafe.Sizeof(T(0)) == 4 {
		e.p = Single
	}
	e.z = e.strips.packed(in.Len())
	e.slots = make([]workspace[T], 2*budget.MaxWorkers())
	e.place = make([]int, e.grid.Blocks)
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

// load copies the right-hand sides that units [lo,hi) need, each times its factor, into
// tiles.
func (e *multiplier[T]) load(v [][]float64, factor []float64, lo, hi int) {
	clear(e.needed[:])
	for u := lo; u < hi; u++ {
		for _, p := range e.grid.Unit(u) {
			e.needed[p] = true
		}
	}
	e.loadNeeded(v, factor)
}

// loadTasks copies those that tasks [lo,hi) need.
func (e *multiplier[T]) loadTasks(v [][]float64, factor []float64, lo, hi int) {
	clear(e.needed[:])
	for i := lo; i < hi; i++ {
		t := e.grid.Task(i)
		e.needed[e.grid.PointOf(t.A)], e.needed[e.grid.PointOf(t.B)] = true, true
	}
	e.loadNeeded(v, factor)
}

func (e *multiplier[T]) loadNeeded(v [][]float64, factor []float64) {
	e.s = len(v)
	e.v = sized(e.v, e.grid.Tiles*e.s*TileRows)
	for p := range e.grid.Points() {
		if e.needed[p] {
			tLo, tHi := e.grid.pointTiles(p)
			for t := tLo; t < tHi; t++ {
				e.loadTile(v, factor, t)
			}
		}
	}
}

// loadTile copies tile t.
func (e *multiplier[T]) loadTile(v [][]float64, factor []float64, t int) {
	lo, hi := e.grid.tileRows(t)
	for c, vc := range v {
		f, dst := factor[c], e.columnTile(e.v, t)[c*TileRows:][:TileRows]
		for i, x := range vc[lo:hi] {
			dst[i] = T(f * x)
		}
		clear(dst[hi-lo:])
	}
}

// columnTile returns tile t of columns of vectors.
func (e *multiplier[T]) columnTile(v []T, t int) []T { return v[t*e.s*TileRows:][:e.s*TileRows] }

// product adds K_f/scale·v to dst, v being what was loaded.
func (e *multiplier[T]) product(ctx context.Context, dst [][]float64) error {
	e.dst = dst
	return e.run(ctx, 0, e.grid.Units())
}

// units sets out to the sums of the units [lo,hi) that a product is made of.
func (e *multiplier[T]) units(ctx context.Context, out []float64, lo, hi int) error {
	e.dst, e.out = nil, out[:0]
	return e.run(ctx, lo, hi)
}

// tasks sets out to the sums of the tasks [lo,hi), one by one.
func (e *multiplier[T]) tasks(ctx context.Context, out []float64, lo, hi int) error {
	e.out, e.apart = out[:0], true
	defer func() { e.apart = false }()
	return e.runTasks(ctx, lo, hi)
}

// run computes units, and adds or copies the sums of each in its turn.
func (e *multiplier[T]) run(ctx context.Context, lo, hi int) error {
	e.unit = lo
	return e.runTasks(ctx, e.grid.first[lo], e.grid.first[hi])
}

func (e *multiplier[T]) runTasks(ctx context.Context, lo, hi int) error {
	e.cache.reserve(e.grid)
	e.from = lo
	e.seq.start(ctx.Done())
	e.loop.Run(hi - lo)
	if e.seq.stopped {
		return ctx.Err()
	}
	return nil
}

// task computes task i from the first on and leaves it to be committed in its turn.
func (e *multiplier[T]) task(_, i int) {
	if !e.seq.enter(i) {
		return
	}
	e.compute(&e.slots[i%len(e.slots)], e.from+i)
	e.seq.leave(i, e.commit)
}

func (e *multiplier[T]) compute(sl *workspace[T], task int) {
	t := e.grid.Task(task)
	sl.read, sl.a, sl.b = 0, sl.a[:0], sl.b[:0]
	if !e.reach.reachesBlocks(t, e.p) {
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
		for j := max(i, jLo); j < jHi; j, pair = j+1, pair+1 {
			if !e.reach.reaches(i, j, e.p) {
				continue
			}
			kept, filled := e.cache.pair(task, pair)
			if filled {
				sl.read += e.grid.pairElements(i, j)
			}
			e.tilePair(sl, i, j, a, sl.b[(j-jLo)*size:][:size], kept, filled)
		}
	}
}

// tilePair evaluates rows i against columns j, or takes them from where they
// are kept, and adds K·V_j to a and, unless i = j, Kᵀ·V_i to b.
func (e *multiplier[T]) tilePair(sl *workspace[T], i, j int, a, b []float64, kept []T, filled bool) {
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
		if !e.reach.reachesStrip(rowLo+r, j, e.p) {
			continue
		}
		if !filled {
			e.strips.eval(k, sl.ws, e.z, rowLo+r, e.z, colLo, panels)
		}
		e.kern.Direct(a[r:], TileRows, k, next, vj, e.s, panels)
		if i != j {
			e.kern.Trans(sl.y, k, next, vi[r:], TileRows, e.s, panels)
		}
	}
	if i != j {
		e.kern.Add(b, sl.y, len(sl.y))
	}
}

// commitTask adds the result of task i from the first on to the sums of its unit.
func (e *multiplier[T]) commitTask(i int) {
	sl, i := &e.slots[i%len(e.slots)], e.from+i
	if e.apart {
		e.read += sl.read
		e.copyTask(e.grid.Task(i), sl)
		return
	}
	if i == e.grid.first[e.unit] {
		e.begin()
	}
	t := e.grid.Task(i)
	if len(sl.a) > 0 { // else no two of its rows reach each other
		e.add(e.sum[e.place[t.A]:], sl.a, len(sl.a))
		e.add(e.sum[e.place[t.B]:], sl.b, len(sl.b))
	}
	e.read += sl.read
	if i+1 == e.grid.first[e.unit+1] {
		if e.dst != nil {
			e.addUnit()
		} else {
			e.copyUnit()
		}
		e.unit++
	}
}

// begin begins the sums of a unit.
func (e *multiplier[T]) begin() {
	at := 0
	for _, p := range e.grid.Unit(e.unit) {
		for b := e.grid.points[p]; b < e.grid.points[p+1]; b++ {
			e.place[b] = at
			lo, hi := e.grid.blockTiles(b)
			at += (hi - lo) * e.s * TileRows
		}
	}
	e.sum = sized(e.sum, at)
	clear(e.sum)
}

// addUnit adds the sums of a unit to dst.
func (e *multiplier[T]) addUnit() {
	for _, p := range e.grid.Unit(e.unit) {
		tLo, tHi := e.grid.pointTiles(p)
		sums := e.sum[e.place[e.grid.points[p]]:]
		for t := tLo; t < tHi; t++ {
			lo, hi := e.grid.tileRows(t)
			for c, y := range e.dst {
				addTo(e.add, y[lo:hi], sums[((t-tLo)*e.s+c)*TileRows:])
			}
		}
	}
}

// addTo adds as many numbers of x to y as that has.
func addTo(add func(y, x []float64, n int), y, x []float64) {
	whole := len(y) / tile.Panel * tile.Panel
	add(y, x, whole)
	for i := whole; i < len(y); i++ {
		y[i] += x[i]
	}
}

// copyUnit appends the sums of a unit to out: point after point, column after column of
// its rows.
func (e *multiplier[T]) copyUnit() {
	for _, p := range e.grid.Unit(e.unit) {
		tLo, tHi := e.grid.pointTiles(p)
		sums := e.sum[e.place[e.grid.points[p]]:]
		for c := range e.s {
			for t := tLo; t < tHi; t++ {
				lo, hi := e.grid.tileRows(t)
				e.out = append(e.out, sums[((t-tLo)*e.s+c)*TileRows:][:hi-lo]...)
			}
		}
	}
}

// copyTask appends the sums of a task to out: of the rows of A, then of B, column after column.
func (e *multiplier[T]) copyTask(task Task, sl *workspace[T]) {
	for _, side := range []struct {
		block int
		sums  []float64
	}{{task.A, sl.a}, {task.B, sl.b}} {
		tLo, tHi := e.grid.blockTiles(side.block)
		for c := range e.s {
			for t := tLo; t < tHi; t++ {
				lo, hi := e.grid.tileRows(t)
				if len(side.sums) == 0 { // no two of its rows reach each other
					e.out = append(e.out, make([]float64, hi-lo)...)
					continue
				}
				e.out = append(e.out, side.sums[((t-tLo)*e.s+c)*TileRows:][:hi-lo]...)
			}
		}
	}
}
