package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// The grid, with σ = 1.
var (
	lengthscales = []float64{0.1, 1, 10, 100}
	noises       = []float64{1e-2, 1e-4, 1e-6}
)

// gridKinds is the order of the rows.
const gridKinds = "nystrom,fitc,pitc,cholesky,rpcholesky,svd,fourier,blockjacobi,ski,regularized"

// grid is the study of Cutajar et al. (2016): y solved for with m = √n until
// ‖r‖² < 1e-10·n. Iterations of a kind with an inner CG are outer and inner ones
// together if an inner one costs a product with K, and the outer ones alone if
// not.
func (s *settings) grid(ctx context.Context) error {
	if s.kinds == "" {
		s.kinds = gridKinds
	}
	if s.limit == 0 {
		s.limit = 2000
	}
	kinds := strings.Split(s.kinds, ",")
	var panels []plots.Heat
	for _, set := range strings.Split(s.sets, ",") {
		if targets[set] == "" {
			return fmt.Errorf("unknown data set %q", set)
		}
		d, err := s.load(set)
		if err != nil {
			return err
		}
		n := d.N()
		rank := int(math.Round(math.Sqrt(float64(n))))
		op := cmvp.New(d.X, kernel.Single(kernel.RBF, d.D(), false), s.budget)
		if s.cache {
			op.SetCache(cmvp.CacheBytes(n, false), 0)
		}
		fmt.Printf("\n%s, %d rows, m = %d, given up at %d iterations\n\n| kind |", set, n, rank, s.limit)
		panel := plots.Heat{Title: fmt.Sprintf("%s, %d rows, m = %d", set, n, rank), Rows: kinds}
		table := map[string][]int{}
		for _, lambda := range noises {
			for _, ell := range lengthscales {
				fmt.Printf(" λ=%.0e ℓ=%g |", lambda, ell)
				panel.Cols = append(panel.Cols, fmt.Sprintf("%g\n%.0e", ell, lambda))
				op.Set([]float64{1, 1 / (2 * ell * ell)}, []float64{lambda})
				its, err := s.cell(ctx, op, d.Y, kinds, rank)
				if err != nil {
					return err
				}
				for kind, it := range its {
					table[kind] = append(table[kind], it)
				}
			}
		}
		fmt.Print("\n|---|" + strings.Repeat("---:|", len(panel.Cols)) + "\n")
		for _, kind := range append([]string{"none"}, kinds...) {
			fmt.Printf("| %s |", kind)
			var row []float64
			for i, it := range table[kind] {
				switch {
				case it == 0:
					fmt.Print(" – |")
					row = append(row, math.NaN())
					continue
				case it >= s.limit:
					fmt.Printf(" >%d |", s.limit)
				default:
					fmt.Printf(" %d |", it)
				}
				row = append(row, math.Log10(float64(it)/float64(table["none"][i])))
			}
			fmt.Println()
			if kind != "none" {
				panel.Z = append(panel.Z, row)
			}
		}
		panels = append(panels, panel)
	}
	if s.svg == "" {
		return nil
	}
	f, err := os.Create(s.svg)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := plots.HeatMap(f, panels, "length-scale, over noise variance", "log10(iterations / iterations without)", 1.5); err != nil {
		return err
	}
	return f.Close()
}

// cell returns the iterations of each kind, and of none, at θ as the operator
// stands: the limit where it was reached, 0 where a kind does not apply.
func (s *settings) cell(ctx context.Context, op *cmvp.Operator, y []float64, kinds []string, rank int) (map[string]int, error) {
	its := map[string]int{}
	opt, target := solve.Options{MaxIter: s.limit, Budget: s.budget}, math.Sqrt(1e-10*float64(len(y)))
	// Those with a factor share the products of one solve.
	names, pre := []string{"none"}, []solve.Preconditioner{nil}
	for _, kind := range kinds {
		if !precond.HasFactor(kind) {
			continue
		}
		p, err := precond.Build(ctx, kind, op, rank, random.Key{Seed: 1})
		if err != nil { // numerically singular: it does not converge either
			its[kind] = s.limit
			continue
		}
		names, pre = append(names, kind), append(pre, p)
	}
	shared := opt
	shared.PerColumn = pre
	solver := solve.New(op, shared)
	solver.SetTargets(slices.Repeat([]float64{target}, len(pre)))
	rep, err := solver.Solve(ctx, solve.Columns(len(y), len(pre)), slices.Repeat([][]float64{y}, len(pre)))
	if err != nil {
		return nil, err
	}
	for c, name := range names {
		its[name] = max(1, rep.Iterations[c])
		if rep.Residuals[c]*norm(y) > target {
			its[name] = s.limit
		}
	}
	for _, kind := range kinds {
		if precond.HasFactor(kind) {
			continue
		}
		p, err := precond.BuildInner(ctx, kind, op, 0)
		if err != nil { // too many inputs
			its[kind] = 0
			continue
		}
		if its[kind], err = s.inner(ctx, op, y, p, opt, target); err != nil {
			return nil, err
		}
	}
	return its, nil
}

// inner is a solve with a preconditioner that iterates, given up once it has
// cost the limit of products, or ten times as many with P if those are cheap.
func (s *settings) inner(ctx context.Context, op *cmvp.Operator, y []float64, p *precond.Inner, opt solve.Options, target float64) (int, error) {
	most := int64(s.limit)
	if p.Rank() > 0 {
		most *= 10
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	opt.Precond, opt.Flexible = &stopper{p, most, cancel}, true
	solver := solve.New(op, opt)
	solver.SetTargets([]float64{target})
	rep, err := solver.Solve(limited, solve.Columns(len(y), 1), [][]float64{y})
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil || rep.Unconverged > 0:
		return s.limit, nil
	case p.Rank() > 0:
		return max(1, rep.Iterations[0]), nil
	}
	return min(s.limit, rep.Iterations[0]+int(p.Products())), nil
}

// stopper cancels a solve that has cost too many inner products.
type stopper struct {
	*precond.Inner
	most   int64
	cancel func()
}

func (p *stopper) SolveContext(ctx context.Context, dst, r [][]float64) error {
	if p.Products() >= p.most {
		p.cancel()
	}
	return p.Inner.SolveContext(ctx, dst, r)
}

func norm(x []float64) float64 {
	var s float64
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}
