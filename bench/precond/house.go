package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// houseKinds are what is measured when nothing else is asked for.
const houseKinds = "none,rpcholesky:300,rpcholesky:1000,cholesky:300,cholesky:1000,nystrom:300,nystrom:1000," +
	"fitc:1000,pitc:300,pitc:1000,svd:300,fourier:1000,blockjacobi:600"

// house measures iterations on house8l where its posterior is.
func (s *settings) house(ctx context.Context) error {
	d, err := s.load("house8l")
	if err != nil {
		return err
	}
	if s.kinds == "" {
		s.kinds = houseKinds
	}
	if s.limit == 0 {
		s.limit = 600
	}
	n := d.N()
	rbf := kernel.Single(kernel.RBF, d.D(), false)
	op := cmvp.New(d.X, rbf, s.budget)
	op.Set([]float64{math.Exp(1.01), math.Exp(-0.83)}, []float64{math.Exp(-1.75)})
	if s.cache {
		op.SetCache(cmvp.CacheBytes(n, false), 0)
	}
	b := rightHandSides(d.Y, 5)
	fmt.Printf("house8l, %d rows, log(sigma, tau, lambda) = (1.01, -0.83, -1.75), %d right-hand sides, %d threads\n\n", n, len(b), s.budget.Cores())
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "kind\trank\tto 1e-2\tto 1e-4\tbuild s\tsolve s\tms/apply\t")
	for _, spec := range strings.Split(s.kinds, ",") {
		kind, rankText, _ := strings.Cut(spec, ":")
		rank, _ := strconv.Atoi(rankText)
		rec := &recorder{}
		flexible := false
		began := time.Now()
		if kind == "auto" {
			// A posterior standard deviation away in each parameter.
			near := cmvp.New(d.X, rbf, s.budget)
			near.Set([]float64{math.Exp(1.01 + 0.041), math.Exp(-0.83 - 0.027)}, []float64{math.Exp(-1.75 + 0.015)})
			trials, err := precond.Choose(ctx, kind, op, func() solve.Operator { return near }, precond.Work{Solves: 2500, Columns: 17, Tolerance: 1e-4}, random.Key{Seed: 1})
			if err != nil {
				return err
			}
			fmt.Printf("auto chose in %.0f s, for 2500 solves of 17 columns to 1e-4:\n", time.Since(began).Seconds())
			for _, t := range trials {
				fmt.Printf("%12s %5d %5.0f iterations %8.2g flops\n", t.Kind, t.Rank, t.Iterations, t.Flops)
			}
			kind, rank, began = trials[0].Kind, trials[0].Rank, time.Now()
			rankText = strconv.Itoa(rank)
		}
		if kind != "none" {
			if rec.p, err = precond.BuildAny(ctx, kind, op, rank, random.Key{Seed: 1}); err != nil {
				return err
			}
			flexible = !precond.HasFactor(kind)
		}
		build := time.Since(began)
		began = time.Now()
		solver := solve.New(op, solve.Options{Tolerance: 1e-4, MaxIter: s.limit, Precond: rec, Flexible: flexible, Budget: s.budget})
		rep, err := solver.Solve(ctx, solve.Columns(n, len(b)), b)
		if err != nil {
			return err
		}
		took := time.Since(began)
		fine := strconv.Itoa(most(rep.Iterations))
		if rep.Unconverged > 0 {
			fine = ">" + fine
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.0f\t\n", kind, rankText, rec.first(1e-2), fine,
			build.Seconds(), took.Seconds(), 1e3*rec.seconds/float64(rec.calls))
		tw.Flush()
	}
	return nil
}

func most(x []int) int {
	m := 0
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// recorder notes the residuals that a preconditioner is given: those of every
// iteration.
type recorder struct {
	p       solve.Preconditioner // nil: none
	start   map[*float64]float64 // norms of the right-hand sides
	worst   []float64            // largest relative residual of each iteration
	calls   int
	seconds float64
}

func (r *recorder) Solve(dst, v [][]float64) {
	if r.start == nil {
		r.start = map[*float64]float64{}
		for _, x := range v {
			r.start[&x[0]] = floats.Norm(x, 2)
		}
	}
	w := 0.0
	for _, x := range v {
		w = max(w, floats.Norm(x, 2)/r.start[&x[0]])
	}
	r.worst = append(r.worst, w)
	began := time.Now()
	if r.p != nil {
		r.p.Solve(dst, v)
	} else {
		for c := range v {
			copy(dst[c], v[c])
		}
	}
	r.seconds += time.Since(began).Seconds()
	r.calls++
}

// first returns the iteration after which all residuals were below tol.
func (r *recorder) first(tol float64) string {
	for i, w := range r.worst {
		if w <= tol {
			return strconv.Itoa(i)
		}
	}
	return ">" + strconv.Itoa(len(r.worst))
}
