package dense

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// BenchmarkProducts reports GFLOP/s of one core for a 20,000×512 matrix and 17
// columns; the matrix is streamed from memory by MulTrans and MulAdd. gonum's
// are of the same products, which it shares between all cores.
func BenchmarkProducts(b *testing.B) {
	const rows, cols, s = 20_000, 512, 17
	rnd := rand.New(rand.NewPCG(1, 1))
	isas := tile.Available()
	m, d := random(rnd, rows, cols, isas[len(isas)-1])
	v, w := columns(rnd, rows, s), columns(rnd, cols, s)
	vd, wd := dense(v), dense(w)
	one := parallel.NewBudget(1)
	one.Acquire(ctx)
	var out mat.Dense
	for _, bench := range []struct {
		name  string
		flops float64
		run   func()
	}{
		{"MulTrans", 2 * rows * cols * s, func() { m.MulTrans(ctx, w, v, one) }},
		{"MulTrans-gonum", 2 * rows * cols * s, func() { out.Reset(); out.Mul(d.T(), vd) }},
		{"MulAdd", 2 * rows * cols * s, func() { m.MulAdd(ctx, v, w, one) }},
		{"MulAdd-gonum", 2 * rows * cols * s, func() { out.Reset(); out.Mul(d, wd) }},
		{"Gram", rows * cols * cols, func() { m.Gram(ctx, one) }},
		{"Gram-gonum", rows * cols * cols, func() { var g mat.SymDense; g.SymOuterK(1, d.T()) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for range b.N {
				bench.run()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bench.flops/1e9*float64(b.N)/b.Elapsed().Seconds(), "GFLOP/s")
		})
	}
}
