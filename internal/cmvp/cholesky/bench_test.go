package cholesky

import (
	"fmt"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// peak returns the multiply-adds a second of all cores at once.
func peak(isa tile.ISA, cores int) float64 {
	lanes := map[tile.ISA]float64{tile.AVX2: 4, tile.AVX512: 8}[isa]
	var wg sync.WaitGroup
	rate := make([]float64, cores)
	for i := range rate {
		wg.Go(func() { rate[i] = lanes * tile.Peak(isa) })
	}
	wg.Wait()
	var sum float64
	for _, r := range rate {
		sum += r
	}
	return sum
}

// BenchmarkFactor reports the multiply-adds a second of the factor and of the
// inverse, and their share of the peak of all cores; gonum's factor beside them.
func BenchmarkFactor(b *testing.B) {
	isas := tile.Available()
	isa := isas[len(isas)-1]
	budget := parallel.NewBudget(0)
	if err := budget.Acquire(ctx); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 500, 1030, 2000, 4000, 8000} {
		k := covariance(n, 0.1)
		work := float64(n) * float64(n) * float64(n) / 6
		m := newMatrix(newGrid(n), isa)
		report := func(b *testing.B, work float64) {
			rate := work * float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(rate/1e9, "G/s")
			b.ReportMetric(100*rate/peak(isa, budget.Cores()), "%peak")
		}
		b.Run(fmt.Sprintf("factor/n=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				refill(b, m, k, budget)
				b.StartTimer()
				if err := m.Factor(ctx, budget); err != nil {
					b.Fatal(err)
				}
			}
			report(b, work)
		})
		b.Run(fmt.Sprintf("inverse/n=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				refill(b, m, k, budget)
				if err := m.Factor(ctx, budget); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := m.Invert(ctx, budget); err != nil {
					b.Fatal(err)
				}
			}
			report(b, 2*work)
		})
		b.Run(fmt.Sprintf("gonum/n=%d", n), func(b *testing.B) {
			for range b.N {
				var c mat.Cholesky
				if !c.Factorize(k) {
					b.Fatal("singular")
				}
			}
			report(b, work)
		})
	}
}
