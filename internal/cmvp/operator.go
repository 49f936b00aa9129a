package cmvp

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Operator is K(θ) = K_f(θ) + diag(noise) over a set of inputs. It is not safe
// for concurrent use; several operators may share Inputs and a Budget.
type Operator struct {
	in     *Inputs
	family kernel.Family
	budget *parallel.Budget

	params kernel.Params
	noise  []float64
	isa    tile.ISA
	eng    *engine[float64]
	single *engine[float32] // made when it is first needed
	forms  *formEngine
	factor []float64 // that columns are multiplied by on loading
	sums   []float64 // of Forms

	singleCache int64 // bytes for the cache of single
	count       Counts

	// Progress, if set, is called as the tasks of a product or of forms are
	// done. It must be safe for concurrent use.
	Progress func(done, total int)
}

// Counts are the work that an operator has done.
type Counts struct {
	Products int64 `json:"products"` // calls of Mul, MulRows, MulSingle and Cross
	Singles  int64 `json:"singles"`  // those in single precision
	Columns  int64 `json:"columns"`  // right-hand sides in them
	Forms    int64 `json:"forms"`    // calls of Forms and FormsTasks
	Pairs    int64 `json:"pairs"`    // elements of K that they range over, n² each
	Read     int64 `json:"read"`     // those of them that were not computed but read from the cache
}

// Add returns the sum of two counts.
func (c Counts) Add(o Counts) Counts {
	return Counts{c.Products + o.Products, c.Singles + o.Singles, c.Columns + o.Columns, c.Forms + o.Forms, c.Pairs + o.Pairs, c.Read + o.Read}
}

// New returns an operator over the inputs. Set must be called before it is
// used. It panics if ISA has an error.
func New(in *Inputs, f kernel.Family, budget *parallel.Budget) *Operator {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	return newOperator(in, f, budget, isa)
}

func newOperator(in *Inputs, f kernel.Family, budget *parallel.Budget, isa tile.ISA) *Operator {
	eng := newEngine[float64](in, f, budget, isa)
	return &Operator{
		in: in, family: f, budget: budget,
		noise: make([]float64, in.n),
		isa:   isa,
		eng:   eng,
		forms: newFormEngine(eng, f, budget, isa),
	}
}

// ISA returns the name of the instruction set that products are computed
// with: avx512, avx2 or portable, the best that the machine has or the one
// that the environment variable ULISSE_ISA names. It is an error if that is
// unknown or the machine does not have it. Versions whose bits differ from those
// of the first add the name of their arithmetic (avx512/2): whoever compares the
// names keeps apart what must not be mixed.
func ISA() (string, error) {
	isa, err := tile.Default()
	name := isa.String()
	if version.Arithmetic != "1" {
		name += "/" + version.Arithmetic
	}
	return name, err
}

// Set changes θ. The noise is λ on the whole diagonal.
func (o *Operator) Set(p kernel.Params) {
	for i := range o.noise {
		o.noise[i] = p.Lambda
	}
	o.set(p)
}

// SetNoise changes θ, with a noise variance for each row in place of λ. It
// panics if there are not n of them.
func (o *Operator) SetNoise(p kernel.Params, noise []float64) {
	if len(noise) != o.in.n {
		panic(fmt.Sprintf("cmvp: %d noise variances for %d rows", len(noise), o.in.n))
	}
	copy(o.noise, noise)
	o.set(p)
}

func (o *Operator) set(p kernel.Params) {
	if len(p.Tau) != 1 && len(p.Tau) != o.in.d {
		panic(fmt.Sprintf("cmvp: %d τ for %d inputs", len(p.Tau), o.in.d))
	}
	o.params = p
	o.eng.set(o.family, p)
	if o.single != nil {
		o.single.set(o.family, p)
	}
}

// Len returns n.
func (o *Operator) Len() int { return o.in.n }

// Inputs returns the inputs.
func (o *Operator) Inputs() *Inputs { return o.in }

// Family returns the covariance family.
func (o *Operator) Family() kernel.Family { return o.family }

// Params returns θ.
func (o *Operator) Params() kernel.Params { return o.params }

// Noise returns the diagonal added to K_f, to read.
func (o *Operator) Noise() []float64 { return o.noise }

// Counts returns the work done since the operator was made.
func (o *Operator) Counts() Counts { return o.count }

// Mul sets dst[c] = K·v[c] for each of the s columns, of length n each. dst
// must not overlap v. The only error is that of a context that is done, which
// leaves dst undefined.
func (o *Operator) Mul(ctx context.Context, dst, v [][]float64) error {
	return o.MulRows(ctx, dst, v, 0, o.in.n)
}

// MulRows is Mul for the rows [lo,hi) alone; the others of dst are left
// undefined. The bounds must be multiples of TileRows, or n.
func (o *Operator) MulRows(ctx context.Context, dst, v [][]float64, lo, hi int) error {
	o.factor = sized(o.factor, len(v))
	for c := range o.factor {
		o.factor[c] = 1
	}
	return mulRows(ctx, o, o.eng, dst, v, lo, hi)
}

// MulSingle is Mul in single precision: within a tile, K, v and the sums are
// float32. Columns are scaled by powers of two to where float32 neither
// overflows nor underflows.
func (o *Operator) MulSingle(ctx context.Context, dst, v [][]float64) error {
	return o.MulSingleRows(ctx, dst, v, 0, o.in.n)
}

// MulSingleRows is MulSingle for the rows [lo,hi) alone, as MulRows.
func (o *Operator) MulSingleRows(ctx context.Context, dst, v [][]float64, lo, hi int) error {
	if o.single == nil {
		o.single = newEngine[float32](o.in, o.family, o.budget, o.isa)
		o.single.set(o.family, o.params)
		o.single.setCache(o.singleCache)
	}
	o.factor = sized(o.factor, len(v))
	for c, vc := range v {
		o.factor[c] = unitScale(vc)
	}
	o.count.Singles++
	return mulRows(ctx, o, o.single, dst, v, lo, hi)
}

// unitScale returns a power of two that brings the largest element of v near
// 1, or 1 if there is none.
func unitScale(v []float64) float64 {
	var most float64
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	if most == 0 || math.IsInf(most, 1) || math.IsNaN(most) {
		return 1
	}
	_, exp := math.Frexp(most)
	return math.Ldexp(1, max(-1000, min(1000, -exp)))
}

func mulRows[T tile.Real](ctx context.Context, o *Operator, e *engine[T], dst, v [][]float64, lo, hi int) error {
	n := o.in.n
	checkColumns(n, dst, v)
	if lo < 0 || hi > n || lo > hi || (lo != n && lo%TileRows != 0) || (hi != n && hi%TileRows != 0) {
		panic(fmt.Sprintf("cmvp: rows [%d,%d) are not whole tiles of %d", lo, hi, n))
	}
	o.count.Products++
	o.count.Columns += int64(len(v))
	o.count.Pairs += int64(hi-lo) * int64(n)
	for _, y := range dst {
		clear(y[lo:hi])
	}
	e.load(v, o.factor)
	rows := tileRange{lo / TileRows, (hi + TileRows - 1) / TileRows}
	if err := e.product(ctx, dst, rows, o.Progress); err != nil {
		return err
	}
	o.count.Read += e.read
	for c, y := range dst {
		sigma, vc := o.params.Sigma/o.factor[c], v[c]
		for i := lo; i < hi; i++ {
			y[i] = sigma*y[i] + o.noise[i]*vc[i]
		}
	}
	return nil
}

func checkColumns(n int, a, b [][]float64) {
	if len(a) != len(b) {
		panic(fmt.Sprintf("cmvp: %d columns against %d", len(a), len(b)))
	}
	for c := range a {
		if len(a[c]) != n || len(b[c]) != n {
			panic(fmt.Sprintf("cmvp: column %d has %d and %d rows, want %d", c, len(a[c]), len(b[c]), n))
		}
	}
}
