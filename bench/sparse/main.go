// Command sparse takes gradients of sparse approximations over generated rows: seconds for each, and per row.
//
//	go run ./bench/sparse [-n 100000,200000,1000000] [-d 8] [-m 500] [-kind sgpr] [-threads 0] [-reps 3] [-move]
//
// The rows are independent and normal, the covariance has a length-scale for each of d inputs. Of -reps gradients in
// ψ, with -move also in the inducing inputs, it prints the fastest, in seconds of the clock and of the processor, and the median.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

func main() {
	sizes := flag.String("n", "100000,200000,1000000", "rows, between commas")
	d := flag.Int("d", 8, "inputs")
	m := flag.Int("m", 500, "inducing inputs")
	kind := flag.String("kind", "sgpr", "sgpr, fitc or dtc")
	threads := flag.Int("threads", 0, "threads; 0 for all cores")
	reps := flag.Int("reps", 3, "gradients of each size")
	move := flag.Bool("move", false, "derivatives by the inducing inputs, too")
	flag.Parse()
	fmt.Println("      n     m  seconds  median  processor  µs/row  log density")
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		if err := measure(n, *d, *m, sparse.Kind(*kind), *threads, *reps, *move); err != nil {
			log.Fatal(err)
		}
	}
}

func measure(n, d, m int, kind sparse.Kind, threads, reps int, move bool) error {
	ctx, key, b := context.Background(), random.Key{Seed: 1}, parallel.NewBudget(threads)
	if err := b.Acquire(ctx); err != nil {
		return err
	}
	r := key.Stream(random.Synthetic, 0)
	x, y := make([]float64, n*d), make([]float64, n)
	random.Normal(r, x)
	for i := range y {
		y[i] = math.Sin(x[i*d]) + 0.5*x[i*d+1%d] + 0.3*r.NormFloat64()
	}
	rows := kernel.NewInputs(n, d, x)
	c := kernel.Single(kernel.RBF, d, true)
	theta := make([]float64, len(c.Params()))
	for i := range theta {
		theta[i] = 0.1
	}
	theta[0] = 1
	z := sparse.Induce(sparse.KMeans, rows, m, make([]bool, d), key, b)
	a := sparse.New(kind, c, rows, z, b)
	var clock, processor []float64
	var v *sparse.Value
	for range reps {
		before, began := cputime.Seconds(), time.Now()
		var err error
		if v, err = a.Gradient(ctx, c.At(theta), []float64{0.1}, y, move); err != nil {
			return err
		}
		clock, processor = append(clock, time.Since(began).Seconds()), append(processor, cputime.Seconds()-before)
	}
	slices.Sort(clock)
	least := slices.Min(processor)
	fmt.Printf("%7d %5d %8.4g %7.4g %10.4g %7.4g %12.8g\n", n, m, clock[0], clock[len(clock)/2], least, least/float64(n)*1e6, v.LogDensity)
	return nil
}
