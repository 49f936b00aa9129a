package tile

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// BenchmarkEval reports the time for a vector of elements of K in units of
// the time of two vector multiply-adds: cycles, where a core does two in one.
func BenchmarkEval(b *testing.B) {
	for _, isa := range Available()[1:] {
		for _, f := range kernel.Profiles() {
			for _, d := range []int{1, 8, 20} {
				b.Run(fmt.Sprintf("isa=%v/prec=f64/kernel=%v/d=%d", isa, f, d), func(b *testing.B) { benchmarkEval[float64](b, isa, f, d) })
				b.Run(fmt.Sprintf("isa=%v/prec=f32/kernel=%v/d=%d", isa, f, d), func(b *testing.B) { benchmarkEval[float32](b, isa, f, d) })
			}
		}
	}
}

func benchmarkEval[T Real](b *testing.B, isa ISA, f kernel.Family, d int) {
	rnd := rand.New(rand.NewPCG(1, 1))
	zi, zj, k := make([]T, d*Panel), make([]T, d*Size), make([]T, Strip*Size)
	for _, z := range [][]T{zi, zj, k} {
		for i := range z {
			z[i] = T(0.3 * rnd.NormFloat64())
		}
	}
	eval, shape := For[T](isa).Eval[f], T(4)
	cycle := 2 / Peak(isa)
	b.ResetTimer()
	for range b.N {
		eval(k, zi, zj, d, Size/Panel, shape)
	}
	width := map[ISA]int{NEON: 16, AVX2: 32, AVX512: 64}[isa]
	bytes := 8
	if epsilon[T]() > 1e-10 {
		bytes = 4
	}
	vectors := float64(Strip * Size * bytes / width)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/vectors/cycle, "cycles/vector")
}

// BenchmarkApply reports the time for a vector of elements of a strip and a
// column in the same units, of which 0.5 is the least for Direct and Trans,
// and 1 for Sums.
func BenchmarkApply(b *testing.B) {
	for _, isa := range Available()[1:] {
		cycle := 2 / Peak(isa)
		for _, s := range []int{1, 5, 17} {
			rnd := rand.New(rand.NewPCG(1, 1))
			numbers := func(n int) []float64 {
				x := make([]float64, n)
				for i := range x {
					x[i] = rnd.NormFloat64()
				}
				return x
			}
			const strip = Strip * Size
			k, h, m, u, v, y := numbers(strip), numbers(strip), numbers(strip), numbers(s*Size), numbers(s*Size), numbers(s*Size)
			sum := make([]float64, 2)
			kern, forms := For[float64](isa), FormsFor(isa)
			for _, loop := range []struct {
				name string
				run  func()
			}{
				{"direct", func() { kern.Direct(y, Size, k, nil, v, s, Size/Panel) }},
				{"trans", func() { kern.Trans(y, k, nil, v, Size, s, Size/Panel) }},
				{"sums", func() { forms.Sums(sum, k, h, u, v, u, v, s, s, Size/Panel) }},
				{"weigh", func() { forms.Weigh(sum, m, k, h, u, v, u, v, s, s, Size/Panel) }},
				{"spread", func() { forms.Spread(y[:s], m, u, v, s, Size/Panel) }},
			} {
				b.Run(fmt.Sprintf("isa=%v/loop=%s/s=%d", isa, loop.name, s), func(b *testing.B) {
					for range b.N {
						loop.run()
					}
					vectors := strip / float64(map[ISA]int{NEON: 2, AVX2: 4, AVX512: 8}[isa])
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/vectors/cycle/float64(s), "cycles/vector")
				})
			}
		}
	}
}

// BenchmarkUpdate reports the time of a vector multiply-add in the product of two
// tiles, in units of that of two multiply-adds that wait for nothing: 0.5 is the
// least.
func BenchmarkUpdate(b *testing.B) {
	for _, isa := range Available()[1:] {
		for _, size := range []int{Size / 2, Size} {
			b.Run(fmt.Sprintf("isa=%v/size=%d", isa, size), func(b *testing.B) {
				x, y, z := make([]float64, size*size), make([]float64, size*size), make([]float64, size*size)
				ld := size * Strip
				update := FactorsFor(isa).Update
				cycle := 2 / Peak(isa)
				b.ResetTimer()
				for range b.N {
					for j := 0; j < size; j += Strip {
						update(z[j*Strip:], x, y[j*size:], ld, size/Strip, size)
					}
				}
				lanes := map[ISA]int{NEON: 2, AVX2: 4, AVX512: 8}[isa]
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(size*size*size/lanes)/cycle, "cycles/vector")
			})
		}
	}
}
