package cmvp

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Forms returns, for each group g of column pairs, the quadratic forms
//
//	Q_g[i] = Σ_{c in group g} u[c]ᵀ (∂K/∂ψ_i) v[c]
//
// for ψ_i = log σ, log τ_1 … log τ_m in this order, in one pass over the
// tiles. group[c] in [0,groups) is the group of the pair c. The noise does not
// enter: ∂K/∂log λ is diagonal and the caller's affair. The cost of a pair of
// rows grows with the number of columns and, for each group, with m.
func (o *Operator) Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error) {
	tasks := o.eng.grid.Tasks()
	o.sums = sized(o.sums, tasks*o.FormSums(groups))
	if err := o.FormsTasks(ctx, o.sums, u, v, group, groups, 0, tasks); err != nil {
		return nil, err
	}
	return o.ReduceForms(o.sums, groups), nil
}

// FormSums returns how many numbers a task of Forms sums up.
func (o *Operator) FormSums(groups int) int { return groups * (1 + len(o.params.Tau)) }

// FormsTasks computes a part of Forms: the sums of the tasks [lo,hi) of the
// grid, FormSums numbers each. They are the same bits wherever the tasks are
// cut, and each pair of rows is still evaluated once.
func (o *Operator) FormsTasks(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	checkColumns(o.in.n, u, v)
	if len(group) != len(u) {
		panic(fmt.Sprintf("cmvp: %d groups for %d columns", len(group), len(u)))
	}
	if lo < 0 || hi > o.eng.grid.Tasks() || lo > hi || len(sums) != (hi-lo)*o.FormSums(groups) {
		panic(fmt.Sprintf("cmvp: %d sums for tasks [%d,%d) of %d", len(sums), lo, hi, o.eng.grid.Tasks()))
	}
	o.count.Forms++
	for i := lo; i < hi; i++ {
		o.count.Pairs += o.eng.grid.elements(i)
	}
	return o.forms.run(ctx, o, sums, u, v, group, groups, lo, hi)
}

// ReduceForms returns the forms that the sums of all tasks, in their order, add
// up to.
func (o *Operator) ReduceForms(sums []float64, groups int) [][]float64 {
	// With a shared τ the sums are of u·g'; else they are of g'·(Δz_k)², and
	// τ_k Δ_k² = q·(Δz_k)².
	per, q := 1+len(o.params.Tau), unscale(o.family)
	if per == 2 {
		q = 1
	}
	out := make([][]float64, groups)
	for g := range out {
		out[g] = make([]float64, per)
		for t := range o.eng.grid.Tasks() {
			for i, x := range sums[(t*groups+g)*per:][:per] {
				out[g][i] += x
			}
		}
		out[g][0] *= o.params.Sigma
		for i := 1; i < per; i++ {
			out[g][i] *= o.params.Sigma * q
		}
	}
	return out
}

// formEngine computes gradient forms, one task at a time on each worker.
type formEngine struct {
	eng  *engine[float64] // the packed inputs
	kern *tile.FormKernels
	f    kernel.Family
	loop *parallel.Loop
	ws   []formSpace // by worker

	ctx    context.Context
	from   int       // first task
	tasks  int       // from there on
	sums   []float64 // by task, group and parameter
	m      int       // number of τ
	s      int       // columns
	first  []int     // of each group, among the columns sorted by group
	u, v   []float64 // tile by tile, then column by column
	done   atomic.Int64
	report func(done, total int)
}

// formSpace is the workspace of one worker.
type formSpace struct {
	k, h, m []float64 // strips
	sums    []float64 // of one tile pair, by group and parameter
}

func newFormEngine(eng *engine[float64], f kernel.Family, budget *parallel.Budget, isa tile.ISA) *formEngine {
	e := &formEngine{eng: eng, kern: tile.FormsFor(isa), f: f, ws: make([]formSpace, budget.MaxWorkers())}
	e.loop = budget.NewLoop(e.task)
	return e
}

func (e *formEngine) run(ctx context.Context, o *Operator, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	e.load(u, v, group, groups)
	e.m = len(o.params.Tau)
	e.sums, e.from, e.tasks = sums, lo, hi-lo
	clear(sums)
	e.ctx, e.report = ctx, o.Progress
	e.done.Store(0)
	e.loop.Run(hi - lo)
	return ctx.Err()
}

func (e *formEngine) shared() bool { return e.m == 1 }

// load copies the columns into panels, sorted by group.
func (e *formEngine) load(u, v [][]float64, group []int, groups int) {
	e.s = len(u)
	size := tile.Pad(e.eng.in.n) * e.s
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
	if e.ctx.Err() != nil {
		return
	}
	groups, per := len(e.first)-1, 1+e.m
	ws := &e.ws[worker]
	ws.k = sized(ws.k, tile.Strip*TileRows)
	ws.h = sized(ws.h, tile.Strip*TileRows)
	ws.m = sized(ws.m, tile.Strip*TileRows)
	ws.sums = sized(ws.sums, groups*per)
	grid := e.eng.grid
	t := grid.Task(e.from + i)
	sums := e.sums[i*groups*per:][:groups*per]
	iLo, iHi := grid.blockTiles(t.A)
	jLo, jHi := grid.blockTiles(t.B)
	for i := iLo; i < iHi; i++ {
		for j := max(i, jLo); j < jHi; j++ {
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
	if e.report != nil {
		e.report(int(e.done.Add(1)), e.tasks)
	}
}

// tilePair adds the forms of rows i and columns j to the worker's sums.
func (e *formEngine) tilePair(ws *formSpace, i, j int) {
	grid, z, d := e.eng.grid, e.eng.z, e.eng.in.d
	rowLo, rowHi := grid.tileRows(i)
	colLo, colHi := grid.tileRows(j)
	panels := tile.Panels(colHi - colLo)
	zj := z[colLo*d:]
	eval := e.kern.Deriv[e.f]
	if e.shared() {
		eval = e.kern.ScaledDeriv[e.f]
	}
	for r := 0; r < rowHi-rowLo; r += tile.Strip {
		zi := rowPack(z, rowLo+r, d)
		eval(ws.k, ws.h, zi, zj, d, panels)
		for g, first := range e.first[:len(e.first)-1] {
			s := e.first[g+1] - first
			if s == 0 {
				continue
			}
			row := ((rowLo+r)/tile.Panel*e.s+first)*tile.Panel + r%tile.Panel
			col := (colLo/tile.Panel*e.s + first) * tile.Panel
			ui, vi, uj, vj := e.u[row:], e.v[row:], e.u[col:], e.v[col:]
			sum := ws.sums[g*(1+e.m):][:1+e.m]
			if e.shared() {
				e.kern.Sums(sum, ws.k, ws.h, ui, vi, uj, vj, s, e.s, panels)
			} else {
				e.kern.Weigh(sum, ws.m, ws.k, ws.h, ui, vi, uj, vj, s, e.s, panels)
				e.kern.Spread(sum[1:], ws.m, zi, zj, d, panels)
			}
		}
	}
}
