package cmvp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// CacheWork is the work that a cache is to be chosen for.
type CacheWork struct {
	Columns  int   // of a product
	Products int   // for each θ
	Single   bool  // in single precision
	Bytes    int64 // of memory that the cache may take
}

// CachePlan says what keeping K would save, as measured on this machine.
// Times are wall seconds of one product on the cores of the budget.
type CachePlan struct {
	Single  bool    `json:"single"`          // products in single precision
	Bytes   int64   `json:"bytes"`           // that the cache takes
	Kept    float64 `json:"kept"`            // fraction of K in it
	Compute float64 `json:"compute_seconds"` // computing K
	Fill    float64 `json:"fill_seconds"`    // computing and keeping what fits
	Read    float64 `json:"read_seconds"`    // reading what is kept, computing the rest
	Saving  float64 `json:"saving"`          // fraction of the products' time for each θ
	Use     bool    `json:"use"`
}

// Apply gives an operator the cache, if it is to be used.
func (p *CachePlan) Apply(o *Operator) {
	switch {
	case !p.Use:
	case p.Single:
		o.SetCache(0, p.Bytes)
	default:
		o.SetCache(p.Bytes, 0)
	}
}

// worthwhile is the smallest saving for which a cache is used. A smaller one could
// be noise, and memory has a price.
const worthwhile = 0.1

// calibrationRows is the number of rows that PlanCache measures with: K takes
// 277 MB in float64, more than processors cache.
const calibrationRows = 8192

// Products are measured so often at least, and for so long at least.
const (
	calibrationRounds = 3
	calibrationTime   = 200 * time.Millisecond
)

// PlanCache measures, on a sample of the rows, products that compute K and
// products that read it from memory, and decides whether SetCache would pay
// for the given work. It takes about a second, or nothing if the memory is too
// little to save much. The only error is that of ctx.
func PlanCache(ctx context.Context, in *kernel.Inputs, f *kernel.Function, work CacheWork, budget *parallel.Budget) (CachePlan, error) {
	whole := CacheBytes(in.Len(), work.Single)
	plan := CachePlan{Single: work.Single, Bytes: min(whole, work.Bytes)}
	plan.Kept = float64(plan.Bytes) / float64(whole)
	if plan.Kept < worthwhile {
		return plan, ctx.Err()
	}
	n := min(in.Len(), calibrationRows)
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i * in.Len() / n
	}
	sample := in.Select(rows)
	without, with := New(sample, f.Covariance(), budget), New(sample, f.Covariance(), budget)
	noise := []float64{1}
	with.SetCache(CacheBytes(n, false), CacheBytes(n, true))
	v, dst := make([][]float64, work.Columns), make([][]float64, work.Columns)
	for c := range v {
		v[c], dst[c] = slices.Repeat([]float64{1}, n), make([]float64, n)
	}
	scale := float64(in.Len()) / float64(n)
	var fill, read float64
	began := time.Now()
	for round := 0; round <= calibrationRounds || time.Since(began) < calibrationTime; round++ {
		without.Set(f.Theta(), noise)
		with.Set(f.Theta(), noise)
		for _, m := range []struct {
			op      *Operator
			seconds *float64
		}{{without, &plan.Compute}, {with, &fill}, {with, &read}} {
			mul := m.op.Mul
			if work.Single {
				mul = m.op.MulSingle
			}
			start := time.Now()
			if err := mul(ctx, dst, v); err != nil {
				return plan, err
			}
			// Others may use the machine: the shortest time is the true one. The
			// first round takes memory.
			if t := time.Since(start).Seconds() * scale * scale; round == 1 || round > 1 && t < *m.seconds {
				*m.seconds = t
			}
		}
	}
	plan.decide(fill, read, work.Products)
	return plan, nil
}

// decide compares the time for each θ without and with a cache, given the
// times of products that keep and that read all of K.
func (p *CachePlan) decide(fill, read float64, products int) {
	p.Fill = p.Kept*fill + (1-p.Kept)*p.Compute
	p.Read = p.Kept*read + (1-p.Kept)*p.Compute
	without := float64(products) * p.Compute
	with := p.Fill + float64(products-1)*p.Read
	p.Saving = 1 - with/without
	p.Use = products > 1 && p.Saving >= worthwhile
}

// String explains the decision in one line.
func (p CachePlan) String() string {
	if p.Kept < worthwhile {
		return fmt.Sprintf("not used: %.1f %% of K would fit", 100*p.Kept)
	}
	verb := "not used"
	if p.Use {
		verb = "used"
	}
	return fmt.Sprintf("%s: with %.0f %% of K kept a product takes %.3g s, without %.3g s; that saves %.0f %% of the products' time",
		verb, 100*p.Kept, p.Read, p.Compute, 100*p.Saving)
}
