package cholesky

import (
	"fmt"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// peak returns the multiply-adds a second of all cores at once.
func peak(isa tile.ISA, cores int) float64 {
	lanes := map[tile.ISA]float64{tile.NEON: 2, tile.AVX2: 4, tile.AVX512: 8}[isa]
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
// inverse, and their share of the peak: of all cores by wall time, and of one by
// processor time, which other work on the machine disturbs less. gonum's factor is
// beside them.
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
		measure := func(name string, work float64, before, timed func() error) {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				var cpu float64
				for range b.N {
					b.StopTimer()
					if err := before(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					began := cputime.Seconds()
					if err := timed(); err != nil {
						b.Fatal(err)
					}
					cpu += cputime.Seconds() - began
				}
				work := work * float64(b.N)
				top := peak(isa, budget.Cores())
				b.ReportMetric(work/b.Elapsed().Seconds()/1e9, "G/s")
				b.ReportMetric(100*work/b.Elapsed().Seconds()/top, "%peak")
				b.ReportMetric(100*work/cpu/top*float64(budget.Cores()), "%peak/core")
			})
		}
		fill := func() error { refill(b, m, k, budget); return nil }
		prepared := func() error { refill(b, m, k, budget); return m.Factor(ctx, budget) }
		measure("factor", work, fill, func() error { return m.Factor(ctx, budget) })
		measure("inverse", 2*work, prepared, func() error { return m.Invert(ctx, budget) })
		measure("gonum", work, func() error { return nil }, func() error {
			var c mat.Cholesky
			if !c.Factorize(k) {
				return &NotPositive{}
			}
			return nil
		})
	}
}
