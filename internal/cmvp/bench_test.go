package cmvp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The benchmarks run on one core and report ns/pair, the processor time for an
// element of the n×n matrix, and, for assembly, %peak: the vector multiply-adds
// and multiplications done, as a fraction of what the core can do in that time
// (measured in the same process).

const benchRows = 8192

var peaks = map[tile.ISA]float64{}

// peak returns the vector multiply-adds a second of one core.
func peak(isa tile.ISA) float64 {
	if _, ok := peaks[isa]; !ok {
		peaks[isa] = tile.Peak(isa)
	}
	return peaks[isa]
}

// vectorWork returns the multiply-adds and multiplications that a vector of
// elements of K takes: distances, exponential, Matérn polynomial. Roots count for nothing, wherever they are taken.
func vectorWork(isa tile.ISA, prec string, f kernel.Family, d int) float64 {
	exp := map[string]int{"avx512/f64": 7, "avx512/f32": 5, "avx2/f64": 10, "avx2/f32": 5, "neon/f64": 10, "neon/f32": 5}[isa.String()+"/"+prec]
	polynomial := map[kernel.Family]int{kernel.Matern32: 2, kernel.Matern52: 3}[f]
	return float64(d + exp + polynomial)
}

func lanes(isa tile.ISA, prec string) float64 {
	n := map[tile.ISA]float64{tile.NEON: 2, tile.AVX2: 4, tile.AVX512: 8}[isa]
	if prec == "f32" {
		n *= 2
	}
	return n
}

// oneCore returns a budget of one core, which the caller holds.
func oneCore() *parallel.Budget {
	b := parallel.NewBudget(1)
	b.Acquire(context.Background())
	return b
}

// report sets the metrics of a benchmark of products with n² elements, of
// which evaluated are evaluated, at the given work for each vector of them, and
// which took the given time each.
func report(b *testing.B, isa tile.ISA, prec string, seconds, pairs, evaluated, work float64) {
	b.ReportMetric(1e9*seconds/pairs, "ns/pair")
	b.ReportMetric(0, "ns/op")
	if isa != tile.Portable {
		b.ReportMetric(100*evaluated/lanes(isa, prec)*work/peak(isa)/seconds, "%peak")
	}
}

func BenchmarkPeak(b *testing.B) {
	for _, isa := range tile.Available()[1:] {
		b.Run(fmt.Sprintf("isa=%v", isa), func(b *testing.B) {
			for range b.N {
				delete(peaks, isa)
				peak(isa)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(2*lanes(isa, "f64")*peak(isa)/1e9, "GFLOP/s-f64")
			b.ReportMetric(2*lanes(isa, "f32")*peak(isa)/1e9, "GFLOP/s-f32")
		})
	}
}

// evaluated returns the elements of K that a symmetric product evaluates.
func evaluated(n int) float64 {
	tiles := float64(NewGrid(n).Tiles)
	return tiles * (tiles + 1) / 2 * TileRows * TileRows
}

func BenchmarkProduct(b *testing.B) {
	ctx := context.Background()
	for _, isa := range tile.Available() {
		for _, prec := range []string{"f64", "f32"} {
			for _, form := range []string{"sym", "full"} {
				if form == "full" && prec == "f32" {
					continue // Cross is in float64
				}
				for _, f := range kernel.Families() {
					for _, d := range []int{8, 2, 20} {
						for _, s := range []int{1, 5, 17} {
							if d != 8 && (s != 1 || f != kernel.RBF) {
								continue
							}
							name := fmt.Sprintf("isa=%v/prec=%s/form=%s/kernel=%v/d=%d/s=%d", isa, prec, form, f, d, s)
							b.Run(name, func(b *testing.B) {
								p := newProblem(f, benchRows, d, s, false)
								o := newOperator(p.in, p.cov, oneCore(), isa)
								o.Set(p.theta, []float64{0.3})
								dst := zeros(benchRows, s)
								pairs, work := float64(benchRows)*benchRows, vectorWork(isa, prec, f, d)
								mul, eval := o.Mul, pairs
								switch {
								case form == "full":
									work += float64(s)
									mul = func(ctx context.Context, dst, v [][]float64) error { return o.Cross(ctx, dst, p.in, v) }
								case prec == "f32":
									mul = o.MulSingle
									fallthrough
								default:
									eval = evaluated(benchRows)
									work += float64(2 * s)
								}
								mul(ctx, dst, p.v)
								b.ResetTimer()
								start := cputime.Seconds()
								for range b.N {
									mul(ctx, dst, p.v)
								}
								report(b, isa, prec, (cputime.Seconds()-start)/float64(b.N), pairs, eval, work)
							})
						}
					}
				}
			}
		}
	}
}

// BenchmarkForms reports the cost of gradient forms as a multiple of that of
// a product with as many columns.
func BenchmarkForms(b *testing.B) {
	ctx := context.Background()
	for _, isa := range tile.Available() {
		for _, f := range kernel.Families() {
			for _, ard := range []bool{false, true} {
				for _, s := range []int{1, 5, 17} {
					for _, groups := range []int{1, s} {
						if groups == s && s == 1 || f != kernel.RBF && (s != 17 || groups != 1) {
							continue
						}
						name := fmt.Sprintf("isa=%v/kernel=%v/ard=%v/d=8/s=%d/groups=%d", isa, f, ard, s, groups)
						b.Run(name, func(b *testing.B) {
							p := newProblem(f, benchRows, 8, s, ard)
							o := newOperator(p.in, p.cov, oneCore(), isa)
							o.Set(p.theta, []float64{0.3})
							group := make([]int, s)
							for c := range group {
								group[c] = c % groups
							}
							dst := zeros(benchRows, s)
							o.Mul(ctx, dst, p.v)
							b.ResetTimer()
							var forms, product float64
							for range b.N {
								start := cputime.Seconds()
								o.Forms(ctx, p.u, p.v, group, groups)
								middle := cputime.Seconds()
								o.Mul(ctx, dst, p.v)
								forms, product = forms+middle-start, product+cputime.Seconds()-middle
							}
							b.ReportMetric(0, "ns/op")
							b.ReportMetric(1e9*forms/float64(b.N)/benchRows/benchRows, "ns/pair")
							b.ReportMetric(forms/product, "×product")
						})
					}
				}
			}
		}
	}
}

// BenchmarkExpressions reports the cost of products and forms of sums and products
// of leaves as a multiple of that of their leaves alone: of the least times of all turns, in which the whole and
// its leaves alternate, so that other work on the machine shows little.
func BenchmarkExpressions(b *testing.B) {
	ctx := context.Background()
	const s = 5
	group := make([]int, s)
	for _, text := range []string{"a*rbf(1-8:u)+b*matern32(1-8:v)", "a*rbf(1-8:u)*matern32(1-8:v)", "a*rbf(1-4:u)*rbf(5-8:v)+b*matern52(1-8:w)",
		"a*rbf(1-7:u)+b*matern52(1-7:v)*hamming(8:t)", "a*rq(1-4:u;al)*wendland(5-8:v)+b*cosine(1:p:1)*rbf(1:w)",
		"a*linear(0,1,2)+b*rbf(1-8:u)", "a*linear(1,2)*rbf(1-8:u)", "a*polynomial(1,2:2:1)*rbf(1-8:u)",
		"a*sigmoid(1:0.2:0.5)*rbf(1-8:u)+b*sigmoid(1:0.2:-0.5)*matern32(1-8:v)",

		"a*rbf(1-7:u)*coregion(8:0:s:f:A,B,C)"} {
		whole, err := kernel.Parse(text, 8)
		if err != nil {
			b.Fatal(err)
		}
		covariances := []*kernel.Covariance{whole}
		for _, l := range whole.Leaves() {
			one, err := kernel.Parse("a*"+l.String(), 8)
			if err != nil {
				b.Fatal(err)
			}
			covariances = append(covariances, one)
		}
		p := problemOf(whole, 4096, s)
		dst := zeros(4096, s)
		var ops []*Operator
		for _, c := range covariances {
			o := New(p.in, c, oneCore())
			o.Set(p.theta[:len(c.Params())], []float64{0.3})
			ops = append(ops, o)
		}
		for name, work := range map[string]func(o *Operator){
			"double": func(o *Operator) { o.Mul(ctx, dst, p.v) },
			"single": func(o *Operator) { o.MulSingle(ctx, dst, p.v) },
			"forms":  func(o *Operator) { o.Forms(ctx, p.u, p.v, group, 1) },
		} {
			b.Run(text+"/"+name, func(b *testing.B) {
				seconds := slices.Repeat([]float64{math.Inf(1)}, len(ops))
				for range b.N {
					for i, o := range ops {
						work(o)
						start := cputime.Seconds()
						work(o)
						seconds[i] = min(seconds[i], cputime.Seconds()-start)
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(seconds[0]/floats.Sum(seconds[1:]), "×leaves")
			})
		}
	}
}
