package cmvp

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// formEngine computes gradient forms, one task at a time on each worker.
type formEngine struct {
	mul  *multiplier[float64] // the packed features
	kern *tile.FormKernels
	sum  *formSums
	low  *lowRank
	loop *parallel.Loop
	ws   []formSpace // by worker
	// wide are packed features of each leaf of a distance whose features depend on parameters: z, z+ż, z−ż.
	// dots are those of a derivative of a dot product: of the rows ż and z, of the columns z and ż.
	// They are packed when they are first needed.
	wide   [][]float64
	dots   []dotPack
	packed *kernel.Function // that they were packed at

	done  <-chan struct{} // of the context
	from  int             // first task
	sums  []float64       // by task from there on, group and slot
	s     int             // columns
	first []int           // of each group, among the columns sorted by group
	u, v  []float64       // tile by tile, then column by column

	stopped atomic.Bool // a task was left out, since the context was done
}

// dotPack are packed features of which the dot product is a derivative of a leaf, d of a point.
type dotPack struct {
	rows, cols []float64
	d          int
}

// formSpace is the workspace of one worker.
type formSpace struct {
	leaves, terms []float64 // strips: g and the derivative of each leaf, the direct ones; P of each term, two more
	m             []float64 // a strip
	cells         []float64 // by level
	sums          []float64 // of one tile pair, by group and slot
}

func newFormEngine(mul *multiplier[float64], sums *formSums, low *lowRank, budget *parallel.Budget, isa tile.ISA) *formEngine {
	e := &formEngine{mul: mul, kern: tile.FormsFor(isa), sum: sums, low: low, ws: make([]formSpace, budget.MaxWorkers())}
	e.loop = budget.NewLoop(e.task)
	return e
}

// run computes the forms at the part of a function that is no product of low rank, nil if there is none. Those
// of the other part are in the sums of the first task.
func (e *formEngine) run(ctx context.Context, pairs *kernel.Function, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	clear(sums)
	if lo == 0 && hi > 0 {
		e.low.addForms(sums[e.sum.low:], e.sum.Len(), u, v, group)
	}
	if pairs == nil {
		return ctx.Err()
	}
	e.pack(pairs)
	e.load(u, v, group, groups)
	e.sums, e.from = sums, lo
	e.done = ctx.Done()
	e.stopped.Store(false)
	e.loop.Run(hi - lo)
	if e.stopped.Load() {
		return ctx.Err()
	}
	return nil
}

// load copies the columns into panels, sorted by group.
func (e *formEngine) load(u, v [][]float64, group []int, groups int) {
	e.s = len(u)
	size := tile.Pad(e.mul.grid.N) * e.s
	e.u, e.v = sized(e.u, size), sized(e.v, size)
	e.first = sized(e.first, groups+1)
	at := 0
	for g := range groups {
		e.first[g] = at
		for c := range u {
			if group[c] != g {
				continue
			}
			e.loadColumn(e.u, u[c], at)
			e.loadColumn(e.v, v[c], at)
			at++
		}
	}
	e.first[groups] = at
}

// loadColumn copies a vector into column c of panels.
func (e *formEngine) loadColumn(dst, src []float64, c int) {
	for p := range tile.Panels(len(src)) {
		to := dst[(p*e.s+c)*tile.Panel:][:tile.Panel]
		clear(to[copy(to, src[p*tile.Panel:]):])
	}
}

func (e *formEngine) task(worker, i int) {
	if isDone(e.done) {
		e.stopped.Store(true)
		return
	}
	size := (len(e.first) - 1) * e.sum.Len()
	ws := &e.ws[worker]
	e.reserve(ws)
	ws.sums = sized(ws.sums, size)
	grid := e.mul.grid
	t := grid.Task(e.from + i)
	reach := e.reach()
	if !reach.reachesBlocks(t, Double) {
		return
	}
	sums := e.sums[i*size:][:size]
	iLo, iHi := grid.blockTiles(t.A)
	jLo, jHi := grid.blockTiles(t.B)
	for i := iLo; i < iHi; i++ {
		for j := max(i, jLo); j < jHi; j++ {
			if !reach.reaches(i, j, Double) {
				continue
			}
			// The kernels take both orders of a pair of rows; a diagonal tile
			// holds both already.
			weight := 1.0
			if i == j {
				weight = 0.5
			}
			clear(ws.sums)
			e.tilePair(ws, i, j)
			for q, x := range ws.sums {
				sums[q] += weight * x
			}
		}
	}
}

// reach returns which pairs of tiles are evaluated, nil for all.
func (e *formEngine) reach() *reach {
	if r := e.mul.reach; r != nil && r.forms {
		return r
	}
	return nil
}

// reserve makes room for strips.
func (e *formEngine) reserve(ws *formSpace) {
	ws.leaves = sized(ws.leaves, (2*len(e.mul.strips.leaves)+len(e.sum.direct))*stripSize)
	if !e.mul.strips.single() {
		ws.terms = sized(ws.terms, (len(e.mul.strips.terms)+2)*stripSize)
	}
	ws.m = sized(ws.m, stripSize)
}

// tilePair adds the forms of rows i and columns j to the worker's sums.
func (e *formEngine) tilePair(ws *formSpace, i, j int) {
	grid := e.mul.grid
	rowLo, rowHi := grid.tileRows(i)
	colLo, colHi := grid.tileRows(j)
	panels, reach := tile.Panels(colHi-colLo), e.reach()
	for r := 0; r < rowHi-rowLo; r += tile.Strip {
		if !reach.reachesStrip(rowLo+r, j, Double) {
			continue
		}
		e.evaluate(ws, rowLo+r, colLo, panels)
		for g, first := range e.first[:len(e.first)-1] {
			s := e.first[g+1] - first
			if s == 0 {
				continue
			}
			row := ((rowLo+r)/tile.Panel*e.s+first)*tile.Panel + r%tile.Panel
			col := (colLo/tile.Panel*e.s + first) * tile.Panel
			ui, vi, uj, vj := e.u[row:], e.v[row:], e.u[col:], e.v[col:]
			sums := ws.sums[g*e.sum.Len():][:e.sum.Len()]
			for _, p := range e.sum.passes {
				k, h, sum := e.strip(ws, p.k), e.strip(ws, p.h), sums[p.first:]
				if !p.spread {
					e.kern.Sums(sum, k, h, ui, vi, uj, vj, s, e.s, panels)
					continue
				}
				e.kern.Weigh(sum, ws.m, k, h, ui, vi, uj, vj, s, e.s, panels)
				e.spread(ws, sum[1:], p.h.at, rowLo+r, colLo, panels)
			}
		}
	}
}

// pack packs what spreads take beside the features of the strips.
func (e *formEngine) pack(f *kernel.Function) {
	if e.packed == f {
		return
	}
	e.packed = f
	for l, leaf := range e.sum.cov.Leaves() {
		if leaf.Profile() != kernel.Dot && len(warpsOf(leaf)) > 0 {
			e.packSpread(l, leaf, f.Leaf(l))
		}
	}
	for i, d := range e.sum.direct {
		if leaf := e.sum.cov.Leaves()[d.leaf]; leaf.Profile() == kernel.Dot {
			e.packDots(i, leaf, f.Leaf(d.leaf))
		}
	}
}

// packSpread packs z, z+ż and z−ż of a leaf, as formSums.addSpread has them.
func (e *formEngine) packSpread(l int, leaf kernel.Leaf, at kernel.LeafAt) {
	if e.wide == nil {
		e.wide = make([][]float64, len(e.sum.cov.Leaves()))
	}
	in, n, d := e.mul.in, leaf.NumFeatures(), e.sum.over[l]
	e.wide[l] = sized(e.wide[l], tile.Pad(in.Len())*d)
	clear(e.wide[l])
	next := n
	for k := range n {
		s := scale(leaf.Profile(), at.Rate(k))
		for i := range in.Len() {
			z := s * at.Feature(k, in.Row(i), in)
			put(e.wide[l], d, k, i, z)
			for j, p := range leaf.WarpsOf(k) {
				slope := s * at.Slope(k, p, in.Row(i), in)
				put(e.wide[l], d, next+j, i, z+slope)
				put(e.wide[l], d, next+j+(d-n)/2, i, z-slope)
			}
		}
		next += len(leaf.WarpsOf(k))
	}
}

// packDots packs the features that a direct parameter of a dot product has an effect on.
func (e *formEngine) packDots(i int, leaf kernel.Leaf, at kernel.LeafAt) {
	if e.dots == nil {
		e.dots = make([]dotPack, len(e.sum.direct))
	}
	in, param := e.mul.in, e.sum.direct[i].param
	var some []int
	for k := range leaf.NumFeatures() {
		if slices.Contains(leaf.WarpsOf(k), param) {
			some = append(some, k)
		}
	}
	n, size := len(some), tile.Pad(in.Len())
	p := &e.dots[i]
	p.d = 2 * n
	p.rows, p.cols = sized(p.rows, size*p.d), sized(p.cols, size*p.d)
	clear(p.rows)
	clear(p.cols)
	for j, k := range some {
		for row := range in.Len() {
			z, slope := at.Feature(k, in.Row(row), in), at.Slope(k, param, in.Row(row), in)
			p.rows[j*size+row], p.rows[(n+j)*size+row] = slope, z
			p.cols[j*size+row], p.cols[(n+j)*size+row] = z, slope
		}
	}
}

// spread adds what the strip m comes to, of rows from row on and columns from col on, to the sums of a leaf.
func (e *formEngine) spread(ws *formSpace, sums []float64, leaf, row, col, panels int) {
	if c := e.sum.table(leaf); c != nil {
		e.cells(ws, sums, c, leaf, row, col, panels)
		return
	}
	d, z := e.sum.over[leaf], e.mul.z[leaf]
	if e.wide != nil && e.wide[leaf] != nil {
		z = e.wide[leaf]
	}
	e.kern.Spread(sums, ws.m, rowPack(z, row, d), z[col*d:], d, panels)
}

// cells adds the strip m, pair of levels by pair of levels: rows of one level first, then the columns of these sums.
func (e *formEngine) cells(ws *formSpace, sums []float64, c *kernel.Coregion, leaf, row, col, panels int) {
	d, z, n := c.NumFeatures(), e.mul.z[leaf], len(c.Levels)
	ws.cells = sized(ws.cells, n)
	rows, done := rowPack(z, row, d), 0
	for r := range tile.Strip {
		level := int(rows[r])
		if done>>r&1 == 1 {
			continue
		}
		total := ws.m[r*TileRows:][:panels*tile.Panel]
		for other := r + 1; other < tile.Strip; other++ {
			if int(rows[other]) == level {
				done |= 1 << other
				e.mul.strips.kern.AddScaled(total, ws.m[other*TileRows:], 1, len(total))
			}
		}
		clear(ws.cells)
		for p := range panels {
			levels := z[(col+p*tile.Panel)*d:][:tile.Panel]
			for j, x := range total[p*tile.Panel:][:tile.Panel] {
				ws.cells[int(levels[j])] += x
			}
		}
		for other, x := range ws.cells {
			sums[c.Cell(level, other)] += x
		}
	}
}

// strip returns what a pass sums up.
func (e *formEngine) strip(ws *formSpace, d source) []float64 {
	switch d.kind {
	case ofLeaf:
		return strip(ws.leaves, 2*d.at+1)
	case ofDirect:
		return e.directStrip(ws, d.at)
	}
	return e.product(ws, d.at)
}

// product returns the strip of a term's P: in place of g of its first leaf if no other term needs that, since
// fewer strips are more often in the first-level cache.
func (e *formEngine) product(ws *formSpace, term int) []float64 {
	t := e.mul.strips.terms[term]
	if first := t.Leaves[0]; len(t.Leaves) == 1 || e.sum.only[first] == term {
		return strip(ws.leaves, 2*first)
	}
	return strip(ws.terms, term)
}

// directStrip returns the strip of the derivative by e.sum.direct[i].
func (e *formEngine) directStrip(ws *formSpace, i int) []float64 {
	return strip(ws.leaves, 2*len(e.mul.strips.leaves)+i)
}

// evaluate fills in the strips of the leaves and of the terms: of each leaf g and its
// derivatives times D, P of each term that is a product.
func (e *formEngine) evaluate(ws *formSpace, row, col, panels int) {
	st := &e.mul.strips
	for i := range st.leaves {
		l, z, g := &st.leaves[i], e.mul.z[i], strip(ws.leaves, 2*i)
		shape := e.sum.shape(i)
		if shape >= 0 {
			l.deriv(e.kern.ShapeDeriv[l.family], g, e.directStrip(ws, shape), z, row, col, panels)
		}
		switch {
		case e.sum.shared[i]:
			l.deriv(e.kern.ScaledDeriv[l.family], g, strip(ws.leaves, 2*i+1), z, row, col, panels)
		case e.sum.table(i) != nil: // a cell has the derivative 1 by itself
			l.strip(g, z, row, z, col, panels)
			for j, h := 0, strip(ws.leaves, 2*i+1); j < len(h); j++ {
				h[j] = 1
			}
		case e.sum.spread[i]:
			l.deriv(e.kern.Deriv[l.family], g, strip(ws.leaves, 2*i+1), z, row, col, panels)
		case shape < 0:
			l.strip(g, z, row, z, col, panels)
		}
	}
	for i, p := range e.dots {
		if p.d > 0 {
			l := leaf[float64]{features: p.d, addScaled: st.kern.AddScaled}
			l.dots(e.directStrip(ws, i), p.rows, row, p.cols, col, panels)
		}
	}
	if st.single() {
		return
	}
	for i := len(st.leaves) - 1; i >= 0; i-- { // what was evaluated last is still in the first-level cache
		if e.sum.shared[i] || e.sum.spread[i] {
			e.multiply(ws, i, strip(ws.leaves, 2*i+1))
		}
	}
	for i, d := range e.sum.direct {
		e.multiply(ws, d.leaf, e.directStrip(ws, i))
	}
	for t, term := range st.terms {
		p := strip(ws.leaves, 2*term.Leaves[0])
		for _, l := range term.Leaves[1:] {
			st.kern.Multiply(e.product(ws, t), p, strip(ws.leaves, 2*l), stripSize)
			p = e.product(ws, t)
		}
	}
}

// multiply multiplies a derivative of a leaf by its D.
func (e *formEngine) multiply(ws *formSpace, leaf int, deriv []float64) {
	st := &e.mul.strips
	if t := e.sum.only[leaf]; t >= 0 {
		for _, l := range st.terms[t].Leaves {
			if l != leaf {
				st.kern.Multiply(deriv, deriv, strip(ws.leaves, 2*l), stripSize)
			}
		}
		return
	}
	sum, product := strip(ws.terms, len(st.terms)), strip(ws.terms, len(st.terms)+1)
	clear(sum)
	for t, term := range st.terms {
		for i, l := range term.Leaves {
			if l != leaf {
				continue
			}
			p := deriv
			for j, other := range term.Leaves {
				if j != i {
					st.kern.Multiply(product, p, strip(ws.leaves, 2*other), stripSize)
					p = product
				}
			}
			st.kern.AddScaled(sum, p, st.weight[t], stripSize)
		}
	}
	copy(deriv, sum)
}
