package posterior

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

func testAuxiliary(t *testing.T, p *Problem, rank int) *Auxiliary {
	t.Helper()
	budget := parallel.NewBudget(2)
	op := cmvp.New(p.Inputs, p.Covariance, budget)
	op.Set(p.At(testPsi(p.Model)))
	rows, err := precond.Pivots(t.Context(), op, rank, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return NewAuxiliary(p, op, func(ctx context.Context) (Smooth, error) {
		return precond.OnRows(ctx, op, rows)
	}, solve.Options{Tolerance: 1e-10, Budget: budget}, 0)
}

// The marginal in ψ of the joint density is the posterior: with M = F⁻¹KF⁻ᵀ
// made densely, log ∫ = base − ½log|M| differs from the oracle's log density by
// the same number at every ψ. And the density itself is base − ½xᵀMx, which for
// the x that is drawn from w is base − ½wᵀw.
func TestAuxiliaryMarginalIsThePosterior(t *testing.T) {
	const n, rank = 50, 12
	ctx := context.Background()
	var problems []*Problem
	for _, f := range kernel.Families() {
		problems = append(problems, testProblem(t, f, n, 2, true))
	}
	sum, err := kernel.Parse("a*rbf(1:u)*matern32(2:v)+b*matern12(1-2:w)", 2)
	if err != nil {
		t.Fatal(err)
	}
	problems = append(problems, NewProblem(testModel(t, sum), problems[0].Inputs, problems[0].Y))
	for _, p := range problems {
		f := p.Covariance
		a := testAuxiliary(t, p, rank)
		oracle := NewDense(p, parallel.NewBudget(1))
		w := make([]float64, n)
		random.Normal(random.Key{Seed: 2}.Stream(random.Auxiliary, 0), w)
		var first float64
		for i := range 6 {
			psi := testPsi(p.Model)
			for k := range psi {
				psi[k] += 0.4 * math.Sin(float64(3*i+k))
			}
			got, _, err := a.Refresh(ctx, psi, w)
			if err != nil {
				t.Fatal(err)
			}
			pt, _, err := a.at(ctx, psi)
			if err != nil {
				t.Fatal(err)
			}
			if want := pt.base - 0.5*floats.Dot(w, w); math.Abs(got-want) > 1e-7*math.Abs(want) {
				t.Errorf("%v: log density %v at the x that was drawn, want %v", f, got, want)
			}

			m, cols := mat.NewDense(n, n, nil), solve.Columns(n, n)
			for c := range cols {
				cols[c][c] = 1
			}
			pt.pre.SolveRootTrans(cols, cols)
			kcols := solve.Columns(n, n)
			if err := a.op.Mul(ctx, kcols, cols); err != nil {
				t.Fatal(err)
			}
			pt.pre.SolveRoot(kcols, kcols)
			for c := range kcols {
				m.SetCol(c, kcols[c])
			}
			x := make([]float64, n)
			random.Normal(random.Key{Seed: 3, Iter: i}.Stream(random.Auxiliary, 0), x)
			xv := mat.NewVecDense(n, x)
			a.x = x
			if got, _, _ = a.LogDensity(ctx, psi); math.Abs(got-(pt.base-0.5*mat.Inner(xv, m, xv))) > 1e-8*math.Abs(got) {
				t.Errorf("%v: log density %v at another x, want %v", f, got, pt.base-0.5*mat.Inner(xv, m, xv))
			}

			logDet, _ := mat.LogDet(m)
			diff := oracle.LogDensity(psi) - (pt.base - 0.5*logDet)
			if i == 0 {
				first = diff
			}
			if math.Abs(diff-first) > 1e-7 {
				t.Errorf("%v: the marginal is off the posterior by %v at one ψ and %v at another", f, first, diff)
			}
		}
	}
}

// Where the prior or K gives out, the density is −∞ and no error.
func TestAuxiliaryOutside(t *testing.T) {
	p := testProblem(t, kernel.RBF, 30, 1, false)
	a := testAuxiliary(t, p, 5)
	w := make([]float64, 30)
	for _, psi := range [][]float64{{800, 0, 0}, {0, 0, -800}} {
		if v, _, err := a.Refresh(context.Background(), psi, w); err != nil || !math.IsInf(v, -1) {
			t.Errorf("ψ = %v: %v, %v", psi, v, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := a.Refresh(ctx, []float64{0, 0, 0}, w); err == nil {
		t.Error("a cancelled context was not noticed")
	}
}
