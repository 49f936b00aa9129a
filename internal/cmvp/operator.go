package cmvp

import (
	"context"
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Operator is K(θ) = K_f(θ) + diag(noise) over a set of inputs, computed by an
// engine. It checks what it is asked, counts the work, and adds up gradient forms.
// It is not safe for concurrent use; several operators may share Inputs and a
// Budget.
type Operator struct {
	in     *kernel.Inputs
	order  []int // of the engine's rows: its row i is row order[i] here; nil if they are in one order
	places []int // the inverse of order, once it is needed
	cov    *kernel.Covariance
	budget *parallel.Budget
	engine Engine
	sum    *formSums

	f            *kernel.Function
	noise        []float64
	count        Counts
	evaluated    [2]int64  // elements of K that a product evaluates, by precision; 0 if that is not known yet
	sums         []float64 // of Forms
	reachedForms bool      // whether forms pass over pairs
	// there and back are vectors in the engine's order, and engineNoise the noise.
	there, back [][]float64
	engineNoise []float64
}

// Counts are the work that an operator has done.
type Counts struct {
	Products int64 `json:"products"` // calls of Mul, MulSingle, MulUnits and Cross
	Singles  int64 `json:"singles"`  // those in single precision
	Columns  int64 `json:"columns"`  // right-hand sides in them
	Forms    int64 `json:"forms"`    // calls of Forms and FormsTasks
	Pairs    int64 `json:"pairs"`    // elements of K that they range over: n² each, but for those that are nothing to rounding
	Read     int64 `json:"read"`     // those of them that were not computed but read from the cache
}

// Add returns the sum of two counts.
func (c Counts) Add(o Counts) Counts {
	return Counts{c.Products + o.Products, c.Singles + o.Singles, c.Columns + o.Columns, c.Forms + o.Forms, c.Pairs + o.Pairs, c.Read + o.Read}
}

// New returns an operator over the inputs whose engine is the cores of this
// machine. Set must be called before it is used. It panics if ISA has an error.
//
// If the inputs are arranged (kernel.Inputs.Arrange), products take the rows in that order, and pass over pairs of
// tiles that are nothing to rounding. All who ask the operator see rows as the inputs have them, but for those who compute a part of a
// product: MulUnits, ReduceUnits and FormsTasks take vectors in the other order, which There and Back convert.
func New(in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget) *Operator {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	return newOperator(in, c, budget, isa)
}

func newOperator(in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget, isa tile.ISA) *Operator {
	arranged, order := in.Arranged()
	o := NewOn(newTiles(arranged, c, order != nil, budget, isa), in, c, budget)
	if o.order = order; order != nil {
		pairs, _ := c.Pairs()
		o.reachedForms = pairs != nil && boundedForms(pairs)
		o.engineNoise = make([]float64, in.Len())
	}
	return o
}

// NewOn returns an operator over an engine, whose rows are as the inputs have them. The budget is the cores for what
// others compute beside its products.
func NewOn(e Engine, in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget) *Operator {
	if in.Dim() != c.Dim() {
		panic(fmt.Sprintf("cmvp: a covariance over %d inputs, points of %d", c.Dim(), in.Dim()))
	}
	return &Operator{in: in, cov: c, budget: budget, engine: e, sum: newSums(c), noise: make([]float64, in.Len())}
}

// ISA returns the name of all that decides the bits of draws, such as avx512/amd64: the
// instruction set that products are computed with (avx512, avx2, neon or portable, the best
// that the machine has or the one that the environment variable ULISSE_ISA names), and
// version.Rounding. It is an error if the instruction set is unknown or the machine does not
// have it. Whoever compares the names keeps apart what must not be mixed.
func ISA() (string, error) {
	isa, err := tile.Default()
	return isa.String() + "/" + version.Rounding(), err
}

// Set changes θ, the covariance's parameters, and the variances of the noise: one
// for all rows, or one for each. It panics if their numbers are others.
func (o *Operator) Set(theta, noise []float64) {
	switch len(noise) {
	case 1:
		for i := range o.noise {
			o.noise[i] = noise[0]
		}
	case len(o.noise):
		copy(o.noise, noise)
	default:
		panic(fmt.Sprintf("cmvp: %d noise variances for %d rows", len(noise), len(o.noise)))
	}
	o.f, o.evaluated = o.cov.At(theta), [2]int64{}
	if o.order == nil {
		o.engine.Set(o.f, o.noise)
		return
	}
	gather(o.engineNoise, o.noise, o.order)
	o.engine.Set(o.f, o.engineNoise)
}

// Evaluated returns how many elements of K a product evaluates at θ: n², but for those that are nothing to rounding.
func (o *Operator) Evaluated(p Precision) int64 {
	if n := int64(o.Len()); o.order == nil {
		return n * n
	}
	if o.evaluated[p] == 0 {
		for t := range NewGrid(o.Len()).Tasks() {
			o.evaluated[p] += o.engine.Evaluates(t, p)
		}
	}
	return o.evaluated[p]
}

// FormsEvaluated is Evaluated for gradient forms.
func (o *Operator) FormsEvaluated() int64 {
	if n := int64(o.Len()); !o.reachedForms {
		return n * n
	}
	return o.Evaluated(Double)
}

// gather sets y to the elements of x in an order.
func gather(y, x []float64, order []int) {
	for i, at := range order {
		y[i] = x[at]
	}
}

// There returns vectors over the rows in the order in which products take them: these themselves where it is
// that of the inputs.
func (o *Operator) There(v [][]float64) [][]float64 {
	if o.order == nil {
		return v
	}
	out := columns(o.Len(), len(v))
	o.gather(out, v)
	return out
}

func (o *Operator) gather(dst, v [][]float64) {
	for c := range v {
		gather(dst[c], v[c], o.order)
	}
}

// Back sets dst to vectors over the rows in the order in which products take them. There has to be one
// other than that of the inputs (Arranged).
func (o *Operator) Back(dst, v [][]float64) {
	for c := range v {
		for i, at := range o.order {
			dst[c][at] = v[c][i]
		}
	}
}

// Arranged reports whether products take the rows in an order of their own.
func (o *Operator) Arranged() bool { return o.order != nil }

// Len returns n.
func (o *Operator) Len() int { return o.in.Len() }

// Inputs returns the inputs.
func (o *Operator) Inputs() *kernel.Inputs { return o.in }

// Function returns the covariance function at θ.
func (o *Operator) Function() *kernel.Function { return o.f }

// Noise returns the diagonal added to K_f, to read.
func (o *Operator) Noise() []float64 { return o.noise }

// Budget returns the cores that the operator computes on.
func (o *Operator) Budget() *parallel.Budget { return o.budget }

// Counts returns the work done since the operator was made.
func (o *Operator) Counts() Counts {
	c := o.count
	c.Read = o.engine.Kept()
	return c
}

// Mul sets dst[c] = K·v[c] for each of the s columns, of length n each. dst
// must not overlap v. The only error is that of a context that is done, which
// leaves dst undefined.
func (o *Operator) Mul(ctx context.Context, dst, v [][]float64) error {
	return o.product(ctx, dst, v, Double)
}

// MulSingle is Mul in single precision: within a tile, K, v and the sums are
// float32.
func (o *Operator) MulSingle(ctx context.Context, dst, v [][]float64) error {
	o.count.Singles++
	return o.product(ctx, dst, v, Single)
}

func (o *Operator) product(ctx context.Context, dst, v [][]float64, p Precision) error {
	n := o.Len()
	checkColumns(dst, n, v, n)
	o.countProduct(len(v), o.Evaluated(p))
	if o.order == nil {
		return o.engine.Mul(ctx, dst, v, p)
	}
	for len(o.there) < len(v) {
		o.there, o.back = append(o.there, make([]float64, n)), append(o.back, make([]float64, n))
	}
	there, back := o.there[:len(v)], o.back[:len(v)]
	o.gather(there, v)
	if err := o.engine.Mul(ctx, back, there, p); err != nil {
		return err
	}
	o.Back(dst, back)
	return nil
}

// MulUnits computes a part of Mul or MulSingle: the sums of the units [lo,hi) of the grid,
// UnitSums numbers (see Engine.Units). It reads v in the rows of their points alone, times
// factor, which should be Scales of the whole columns. The sums are the same bits wherever
// the units are cut, and each pair of rows is still evaluated once. The rows of v are in the order of There.
func (o *Operator) MulUnits(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error {
	grid, n := NewGrid(o.Len()), o.Len()
	checkColumns(v, n, v, n)
	if lo < 0 || hi > grid.Units() || lo > hi || len(factor) != len(v) || len(sums) != UnitSums(n, len(v), lo, hi) {
		panic(fmt.Sprintf("cmvp: %d sums for units [%d,%d) of %d, %d factors", len(sums), lo, hi, grid.Units(), len(factor)))
	}
	o.count.Products++
	o.count.Columns += int64(len(v))
	if p == Single {
		o.count.Singles++
	}
	for i := grid.first[lo]; i < grid.first[hi]; i++ {
		o.count.Pairs += o.engine.Evaluates(i, p)
	}
	return o.engine.Units(ctx, sums, v, factor, lo, hi, p)
}

// MulTasks computes a part of a unit: the sums of the tasks [lo,hi) of the grid, TaskSums numbers (see Engine.Tasks). Vectors
// are those of MulUnits.
func (o *Operator) MulTasks(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error {
	grid, n := NewGrid(o.Len()), o.Len()
	checkColumns(v, n, v, n)
	if lo < 0 || hi > grid.Tasks() || lo > hi || len(factor) != len(v) || len(sums) != TaskSums(n, len(v), lo, hi) {
		panic(fmt.Sprintf("cmvp: %d sums for tasks [%d,%d) of %d, %d factors", len(sums), lo, hi, grid.Tasks(), len(factor)))
	}
	o.count.Products++
	o.count.Columns += int64(len(v))
	if p == Single {
		o.count.Singles++
	}
	for i := lo; i < hi; i++ {
		o.count.Pairs += o.engine.Evaluates(i, p)
	}
	return o.engine.Tasks(ctx, sums, v, factor, lo, hi, p)
}

// TaskSums returns how many numbers the tasks [lo,hi) of a product of s columns sum up, over n rows.
func TaskSums(n, s, lo, hi int) int {
	grid, rows := NewGrid(n), 0
	for i := lo; i < hi; i++ {
		t := grid.Task(i)
		for _, b := range [2]int{t.A, t.B} {
			from, to := grid.BlockRows(b)
			rows += to - from
		}
	}
	return s * rows
}

// Finish makes dst a product: the sums of its units, added up for each point in their order from 0, are in it. The
// factors are those that the units were computed with. The rows of dst and v are in the order of There.
func (o *Operator) Finish(dst, v [][]float64, factor []float64) {
	checkColumns(dst, o.Len(), v, o.Len())
	o.engine.Finish(dst, v, factor)
}

// UnitSums returns how many numbers the units [lo,hi) of a product of s columns sum up,
// over n rows.
func UnitSums(n, s, lo, hi int) int {
	grid, rows := NewGrid(n), 0
	for u := lo; u < hi; u++ {
		rows += grid.UnitRows(u)
	}
	return s * rows
}

// ReduceUnits sets dst to the product that the sums of all units, in their order, add up
// to. The factors are those that the units were computed with. The rows of dst and v are in the order of There.
func (o *Operator) ReduceUnits(dst [][]float64, sums []float64, v [][]float64, factor []float64) {
	checkColumns(dst, o.Len(), v, o.Len())
	if want := UnitSums(o.Len(), len(v), 0, NewGrid(o.Len()).Units()); len(sums) != want || len(factor) != len(v) {
		panic(fmt.Sprintf("cmvp: %d sums and %d factors for a product of %d columns, which has %d", len(sums), len(factor), len(v), want))
	}
	o.engine.Reduce(dst, sums, v, factor)
}

func (o *Operator) countProduct(columns int, pairs int64) {
	o.count.Products++
	o.count.Columns += int64(columns)
	o.count.Pairs += pairs
}

// Forms returns, for each group g of column pairs, the quadratic forms
//
//	Q_g[i] = Σ_{c in group g} u[c]ᵀ (∂K/∂ψ_i) v[c]
//
// for each parameter ψ_i of the covariance, on the scale on which it is sampled,
// in one pass over the tiles. group[c] in [0,groups) is the group of the pair c.
// The noise does not enter: its derivatives are diagonal and the caller's affair.
// The cost of a pair of rows grows with the number of columns and, for each group,
// with that of the parameters.
func (o *Operator) Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error) {
	tasks := NewGrid(o.Len()).Tasks()
	o.sums = sized(o.sums, tasks*o.FormSums(groups))
	if err := o.FormsTasks(ctx, o.sums, o.There(u), o.There(v), group, groups, 0, tasks); err != nil {
		return nil, err
	}
	return o.ReduceForms(o.sums, groups), nil
}

// FormSums returns how many numbers a task of Forms sums up.
func (o *Operator) FormSums(groups int) int { return groups * o.sum.Len() }

// FormsTasks computes a part of Forms: the sums of the tasks [lo,hi) of the
// grid, FormSums numbers each. They are the same bits wherever the tasks are
// cut, and each pair of rows is still evaluated once. The rows of u and v are in the order of There.
func (o *Operator) FormsTasks(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	grid := NewGrid(o.Len())
	checkColumns(u, o.Len(), v, o.Len())
	if len(group) != len(u) || slices.ContainsFunc(group, func(g int) bool { return g < 0 || g >= groups }) {
		panic(fmt.Sprintf("cmvp: groups %v of %d for %d columns", group, groups, len(u)))
	}
	if lo < 0 || hi > grid.Tasks() || lo > hi || len(sums) != (hi-lo)*o.FormSums(groups) {
		panic(fmt.Sprintf("cmvp: %d sums for tasks [%d,%d) of %d", len(sums), lo, hi, grid.Tasks()))
	}
	o.count.Forms++
	for i := lo; i < hi; i++ {
		if o.reachedForms {
			o.count.Pairs += o.engine.Evaluates(i, Double)
		} else {
			o.count.Pairs += grid.elements(i)
		}
	}
	return o.engine.Forms(ctx, sums, u, v, group, groups, lo, hi)
}

// ReduceForms returns the forms that the sums of all tasks, in their order, add
// up to.
func (o *Operator) ReduceForms(sums []float64, groups int) [][]float64 {
	return o.sum.reduce(o.f.Pairs(), sums, NewGrid(o.Len()).Tasks(), groups)
}

// CrossMatrix returns K_f(X*,X), without noise, as one row of n numbers for
// each of the m points: the K_UX of the preconditioners. It takes m·n numbers.
// The only error is that of ctx.
func (o *Operator) CrossMatrix(ctx context.Context, points *kernel.Inputs) ([][]float64, error) {
	o.checkPoints(points)
	rows := columns(o.Len(), points.Len())
	err := o.engine.CrossMatrix(ctx, rows, points, nil)
	if o.order != nil {
		row := make([]float64, o.Len())
		for _, k := range rows {
			copy(row, k)
			o.Back([][]float64{k}, [][]float64{row})
		}
	}
	return rows, err
}

// CrossRows returns the columns of CrossMatrix that belong to some rows of X, to the last bit: for each
// point as many numbers. Rows may come more than once. It panics if there is no such row.
func (o *Operator) CrossRows(ctx context.Context, points *kernel.Inputs, of []int) ([][]float64, error) {
	o.checkPoints(points)
	for _, i := range of {
		if i < 0 || i >= o.Len() {
			panic(fmt.Sprintf("cmvp: row %d of %d", i, o.Len()))
		}
	}
	if o.order != nil {
		if o.places == nil {
			o.places = make([]int, o.Len())
			for i, at := range o.order {
				o.places[at] = i
			}
		}
		there := make([]int, len(of))
		for j, i := range of {
			there[j] = o.places[i]
		}
		of = there
	}
	rows := columns(len(of), points.Len())
	if len(of) == 0 {
		return rows, ctx.Err()
	}
	return rows, o.engine.CrossMatrix(ctx, rows, points, of)
}

// Cross sets dst[c] = K_f(X*,X)·v[c], without noise: columns of m numbers from
// columns of n, in memory O((m+n)·s).
func (o *Operator) Cross(ctx context.Context, dst [][]float64, points *kernel.Inputs, v [][]float64) error {
	o.checkPoints(points)
	checkColumns(dst, points.Len(), v, o.Len())
	o.countProduct(len(v), int64(points.Len())*int64(o.Len()))
	return o.engine.Cross(ctx, dst, points, o.There(v))
}

func (o *Operator) checkPoints(points *kernel.Inputs) {
	if points.Dim() != o.in.Dim() {
		panic(fmt.Sprintf("cmvp: points of %d inputs, want %d", points.Dim(), o.in.Dim()))
	}
}

func checkColumns(a [][]float64, rowsA int, b [][]float64, rowsB int) {
	if len(a) != len(b) {
		panic(fmt.Sprintf("cmvp: %d columns against %d", len(a), len(b)))
	}
	for c := range a {
		if len(a[c]) != rowsA || len(b[c]) != rowsB {
			panic(fmt.Sprintf("cmvp: column %d has %d and %d rows, want %d and %d", c, len(a[c]), len(b[c]), rowsA, rowsB))
		}
	}
}

// sized returns a slice of length n, reusing buf if it is large enough.
func sized[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}
