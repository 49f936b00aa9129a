// Command sparsity measures products over rows that are arranged in space, where pairs of tiles that are nothing to
// rounding are passed over, against products over all pairs: on points along random roads, as in the set 3droad.
//
//	go run ./bench/sparsity                 products over all pairs from 6 of the 72 units
//	go run ./bench/sparsity -full           all of them, and how far the results are apart
//
// Times are processor time, so that what else runs on the machine matters little.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// someUnits is how many units of a product over all pairs are measured.
const someUnits = 6

func main() {
	n := flag.Int("n", 434_874, "rows")
	s := flag.Int("s", 1, "columns")
	scales := flag.String("lengthscales", "0.001,0.003,0.01", "length-scales, in units of the extent")
	family := flag.String("kernel", "rbf", "covariance family")
	full := flag.Bool("full", false, "compute all of the product over all pairs, and compare")
	forms := flag.Bool("forms", true, "measure gradient forms, too")
	flag.Parse()
	f, err := kernel.ParseFamily(*family)
	if err != nil {
		log.Fatal(err)
	}
	in := roads(*n)
	began := cputime.Seconds()
	arranged := cmvp.Arrange(in, []int{0, 1, 2})
	isa, _ := cmvp.ISA()
	fmt.Printf("%d rows, %s, s = %d, %s; arranging them takes %.2f s\n\n", *n, f, *s, isa, cputime.Seconds()-began)
	fmt.Println("| length-scale | precision | pairs left | product, s | over all pairs, s | times | forms, s | relative difference |")
	fmt.Println("|---:|---|---:|---:|---:|---:|---:|---:|")
	for _, text := range strings.Split(*scales, ",") {
		l, err := strconv.ParseFloat(text, 64)
		if err != nil {
			log.Fatal(err)
		}
		for _, p := range []cmvp.Precision{cmvp.Double, cmvp.Single} {
			b := &bench{in: in, arranged: arranged, f: f, theta: []float64{1, 1 / (2 * l * l)}, p: p, s: *s}
			b.row(text, *full, *forms)
		}
	}
}

// roads returns points along random curves in the unit square, in the order of the curves, with an altitude.
func roads(n int) *kernel.Inputs {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float64, 0, 3*n)
	var px, py, angle float64
	for i := range n {
		if i%2000 == 0 { // a new road
			px, py, angle = r.Float64(), r.Float64(), 2*math.Pi*r.Float64()
		}
		angle += 0.1 * r.NormFloat64()
		px, py = px+2e-4*math.Cos(angle), py+2e-4*math.Sin(angle)
		if px < 0 || px > 1 || py < 0 || py > 1 { // back
			px, py, angle = min(1, max(0, px)), min(1, max(0, py)), angle+math.Pi/2
		}
		x = append(x, px, py, 0.1*math.Sin(5*px)*math.Cos(7*py)+0.001*r.NormFloat64())
	}
	return kernel.NewInputs(n, 3, x)
}

type bench struct {
	in, arranged *kernel.Inputs
	f            kernel.Family
	theta        []float64
	p            cmvp.Precision
	s            int
}

// row measures products with one length-scale, and prints a line.
func (b *bench) row(lengthscale string, full, forms bool) {
	n := b.in.Len()
	v, got, want := columns(n, b.s), columns(n, b.s), columns(n, b.s)
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range v {
		for i := range c {
			c[i] = r.NormFloat64()
		}
	}
	sparse := b.operator(b.arranged)
	b.mul(sparse, got, v) // takes memory
	t := spent(func() { b.mul(sparse, got, v) })
	left := float64(sparse.Evaluated(b.p)) / (float64(n) * float64(n))
	formsText := "–"
	if forms && b.p == cmvp.Double {
		formsText = fmt.Sprintf("%.2f", spent(func() {
			if _, err := sparse.Forms(context.Background(), v, v, make([]int, b.s), 1); err != nil {
				log.Fatal(err)
			}
		}))
	}
	all, difference := b.all(want, v, full), "–"
	if full {
		var d, size float64
		for c := range want {
			for i := range want[c] {
				d, size = math.Hypot(d, got[c][i]-want[c][i]), math.Hypot(size, want[c][i])
			}
		}
		difference = fmt.Sprintf("%.1e", d/size)
	}
	fmt.Printf("| %s | %s | %.2f %% | %.2f | %.1f | %.0f | %s | %s |\n",
		lengthscale, map[cmvp.Precision]string{cmvp.Double: "float64", cmvp.Single: "float32"}[b.p], 100*left, t, all, all/t, formsText, difference)
}

// all returns the time of a product over all pairs.
func (b *bench) all(dst, v [][]float64, full bool) float64 {
	plain, n := b.operator(b.in), b.in.Len()
	if full {
		return spent(func() { b.mul(plain, dst, v) })
	}
	units, factor := min(someUnits, cmvp.NewGrid(n).Units()), cmvp.Scales(v, b.p)
	return spent(func() {
		for u := range units {
			sums := make([]float64, cmvp.UnitSums(n, b.s, u, u+1))
			if err := plain.MulUnits(context.Background(), sums, v, factor, u, u+1, b.p); err != nil {
				log.Fatal(err)
			}
		}
	}) * float64(n) * float64(n) / float64(plain.Counts().Pairs)
}

func (b *bench) operator(in *kernel.Inputs) *cmvp.Operator {
	o := cmvp.New(in, kernel.Single(b.f, 3, false), parallel.NewBudget(runtime.GOMAXPROCS(0)))
	o.Set(b.theta, []float64{0.01})
	return o
}

func (b *bench) mul(o *cmvp.Operator, dst, v [][]float64) {
	mul := o.Mul
	if b.p == cmvp.Single {
		mul = o.MulSingle
	}
	if err := mul(context.Background(), dst, v); err != nil {
		log.Fatal(err)
	}
}

func spent(do func()) float64 {
	began := cputime.Seconds()
	do()
	return cputime.Seconds() - began
}

func columns(n, s int) [][]float64 {
	out := make([][]float64, s)
	for c := range out {
		out[c] = make([]float64, n)
	}
	return out
}
