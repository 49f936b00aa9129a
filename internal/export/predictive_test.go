package export

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// Draws of the target have the mean and the variance of the dense Gaussian
// process: 20 rows at one θ, 800 values each. A mean off by five standard errors,
// or a variance by six, has together a false alarm in 10⁴ seeds at most.
func TestPredictiveAgainstDense(t *testing.T) {
	s := job.Default()
	s.Name = "dense"
	s.Data.Synthetic = &job.Synthetic{N: 20, D: 2, Sigma: 1, Tau: job.Floats{0.5}, Lambda: 0.1, Seed: 3}
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(1)
	d, err := s.Load(context.Background(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	psi := []float64{0.1, -0.5, -1.5}
	run := &chains.Run{Prepared: &chains.Prepared{}, Chains: make([]chains.Chain, 4)}
	run.Plan.Method, run.Plan.Names = "fisher", []string{"sigma", "tau", "lambda"}
	for c := range run.Chains {
		for range 200 {
			run.Chains[c].Draws = append(run.Chains[c].Draws, psi)
		}
	}
	rec := &report.Record{SpecText: string(text), Data: d.Info, Run: run}
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	src := &Source{Record: rec, Data: d, Created: time.Unix(0, 0)}
	g, stats, err := Predictive(context.Background(), src, 300, budget, nil)
	if err != nil || stats.Unconverged > 0 {
		t.Fatal(err, stats)
	}
	y := g.Vars[0]
	if !slices.Equal(y.Shape, []int{4, 200, 20}) || !slices.Equal(y.Dims, []string{"chain", "draw", "obs_id"}) {
		t.Fatal(y.Shape, y.Dims)
	}
	n := d.N()
	theta, own := rec.Model.Natural(psi)
	f := rec.Model.Covariance.At(theta)
	kf, k := mat.NewSymDense(n, nil), mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			kf.SetSym(i, j, f.Value(d.X.Row(i), d.X.Row(j)))
		}
	}
	k.CopySym(kf)
	for i := range n {
		k.SetSym(i, i, k.At(i, i)+own[0])
	}
	var chol mat.Cholesky
	chol.Factorize(k)
	var gain mat.Dense // K⁻¹K_f
	if err := chol.SolveTo(&gain, kf); err != nil {
		t.Fatal(err)
	}
	const draws = 800
	for i := range n {
		x := make([]float64, draws)
		for k := range x {
			x[k] = y.Data.([]float64)[k*n+i]
		}
		mean := mat.Dot(mat.NewVecDense(n, d.Y), gain.ColView(i))
		variance := kf.At(i, i) - mat.Dot(mat.NewVecDense(n, mat.Col(nil, i, kf)), gain.ColView(i)) + own[0]
		m, v := stat.MeanVariance(x, nil)
		if math.Abs(m-mean) > 5*math.Sqrt(variance/draws) || math.Abs(v/variance-1) > 6*math.Sqrt(2./draws) {
			t.Errorf("row %d: mean %.4f and variance %.4f, want %.4f and %.4f", i, m, v, mean, variance)
		}
	}
	few, _, err := Predictive(context.Background(), src, 3, budget, nil)
	if err != nil {
		t.Fatal(err)
	}
	if at := few.Coords[1].Data.([]int64); !slices.Equal(at, []int64{33, 100, 166}) {
		t.Errorf("draws %v", at)
	}
	// A draw's value does not depend on which others are asked for: to the
	// tolerance of its variance, since the preconditioner's middle is another.
	a, b := few.Vars[0].Data.([]float64)[n:2*n], y.Data.([]float64)[100*n:101*n]
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-3 {
			t.Errorf("row %d: %v and %v", i, a[i], b[i])
		}
	}
	for c := range src.Record.Run.Chains {
		src.Record.Run.Chains[c].Draws = nil
	}
	if _, _, err := Predictive(context.Background(), src, 3, budget, nil); err == nil {
		t.Error("predicted from nothing")
	}
}
