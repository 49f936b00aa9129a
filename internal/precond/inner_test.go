package precond

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// What is solved with is the formula: P⁻¹v against dense algebra.
func TestInnerFormulas(t *testing.T) {
	testInnerFormulas(t, operator(70, 2, 2, kernel.RBF, 0.9, 0.05))
	c, err := kernel.Parse("a*rbf(1:u)*rbf(1-2:v)", 2)
	if err != nil {
		t.Fatal(err)
	}
	testInnerFormulas(t, operatorOf(c, 70, 2, 0.05, 1.5, 0.3, 0.4))
}

func testInnerFormulas(t *testing.T, op *cmvp.Operator) {
	const n, d = 70, 2
	in, noise := op.Inputs(), op.Noise()
	want := map[string]*mat.SymDense{"regularized": latentCovariance(op)}
	for i := range n {
		k := want["regularized"]
		k.SetSym(i, i, k.At(i, i)+(1+regularization)*noise[i])
	}
	// SKI on a grid of 6×6: each element by bilinear interpolation of K between
	// the grid points around its two rows.
	const per = 6
	var lo, step [d]float64
	for k := range d {
		lo[k] = math.Inf(1)
		hi := math.Inf(-1)
		for i := range n {
			lo[k], hi = min(lo[k], in.Row(i)[k]), max(hi, in.Row(i)[k])
		}
		step[k] = (hi - lo[k]) / (per - 1)
	}
	weights := func(row []float64) map[[d]int]float64 { // hat functions
		w := map[[d]int]float64{}
		for a := range per {
			for b := range per {
				h := 1.0
				for k, g := range [d]int{a, b} {
					h *= max(0, 1-math.Abs((row[k]-lo[k])/step[k]-float64(g)))
				}
				if h > 0 {
					w[[d]int{a, b}] = h
				}
			}
		}
		return w
	}
	point := func(g [d]int) []float64 {
		return []float64{lo[0] + step[0]*float64(g[0]), lo[1] + step[1]*float64(g[1])}
	}
	ski := mat.NewSymDense(n, nil)
	for i := range n {
		wi := weights(in.Row(i))
		for j := i; j < n; j++ {
			x := 0.0
			for a, u := range wi {
				for b, v := range weights(in.Row(j)) {
					x += u * v * op.Function().Value(point(a), point(b))
				}
			}
			ski.SetSym(i, j, x)
		}
		ski.SetSym(i, i, ski.At(i, i)+noise[i])
	}
	want["ski"] = ski

	for _, kind := range InnerKinds() {
		p, err := BuildInner(t.Context(), kind, op, per*per)
		if err != nil {
			t.Fatal(err)
		}
		p.options = solve.Options{Tolerance: 1e-11}
		if p.Kind() != kind || kind == "ski" && p.Rank() != per*per || HasFactor(kind) {
			t.Errorf("%s: rank %d, has a factor: %v", p.Kind(), p.Rank(), HasFactor(kind))
		}
		var prod mat.Dense
		prod.Mul(want[kind], apply(p.Solve, n))
		if e := distance(&prod, toDense(identity(n))); e > 1e-7 {
			t.Errorf("%s: P·P⁻¹ − I = %g", kind, e)
		}
		if p.Products() == 0 {
			t.Errorf("%s: no products were counted", kind)
		}
	}
}

// With flexible CG both lead to the solution. At a long length-scale they save
// outer iterations; what K + δI saves it more than pays for in inner ones.
func TestInnerInFlexibleCG(t *testing.T) {
	const n = 400
	op := operator(n, 2, 2, kernel.RBF, 1, 1e-2)
	b := solve.Columns(n, 1)
	random.Normal(random.Key{Seed: 3}.Stream(random.Calibration, 0), b[0])
	solveWith := func(opt solve.Options) solve.Report {
		opt.Tolerance = 1e-6
		rep, err := solve.New(op, opt).Solve(context.Background(), solve.Columns(n, 1), b)
		if err != nil || rep.Unconverged > 0 {
			t.Fatal(rep, err)
		}
		return rep
	}
	plain := solveWith(solve.Options{}).Iterations[0]
	for kind, share := range map[string]float64{"ski": 0.2, "regularized": 0.9} {
		p, err := BuildInner(t.Context(), kind, op, 0)
		if err != nil {
			t.Fatal(err)
		}
		if it := solveWith(solve.Options{Precond: p, Flexible: true}).Iterations[0]; float64(it) > share*float64(plain) {
			t.Errorf("%s: %d iterations, %d without", kind, it, plain)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := BuildInner(ctx, "ski", op, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("ski: %v, want that the context was cancelled", err)
		}
		if err := p.SolveContext(ctx, solve.Columns(n, 1), b); err != context.Canceled {
			t.Errorf("%s: %v, want that the context was cancelled", kind, err)
		}
	}
}

func TestInnerBitsDoNotDependOnThreads(t *testing.T) {
	const n = 1500
	for _, kind := range InnerKinds() {
		var want [][]float64
		for _, cores := range []int{1, 4} {
			p, err := BuildInner(t.Context(), kind, operator(n, 2, cores, kernel.Matern52, 1, 0.1), 0)
			if err != nil {
				t.Fatal(err)
			}
			got, v := solve.Columns(n, 2), solve.Columns(n, 2)
			for c := range v {
				random.Normal(random.Key{}.Stream(random.Calibration, c), v[c])
			}
			p.Solve(got, v)
			if want == nil {
				want = got
			}
			for c := range got {
				if !floats.Equal(got[c], want[c]) {
					t.Errorf("%s: column %d depends on the number of cores", kind, c)
				}
			}
		}
	}
}

func TestGridsAreForFewInputsAndProducts(t *testing.T) {
	_, err := BuildInner(t.Context(), "ski", composite(t, 20, 1), 0)
	if want := "ski preconditioner: a grid needs a covariance that is a product over the inputs, not a sum of terms: choose another kind"; fmt.Sprint(err) != want {
		t.Errorf("got %v", err)
	}
	_, err = BuildInner(t.Context(), "ski", operator(20, 5, 1, kernel.RBF, 1, 1), 0)
	if want := "ski preconditioner: a grid over 5 inputs has too many points: it is for 4 inputs at most"; fmt.Sprint(err) != want {
		t.Errorf("got %v", err)
	}
	if _, err := BuildInner(t.Context(), "nystrom", operator(20, 2, 1, kernel.RBF, 1, 1), 0); err == nil {
		t.Error("nystrom has no inner CG")
	}
}
