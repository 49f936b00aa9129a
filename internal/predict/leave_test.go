package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// without returns a problem less one row.
func without(p *posterior.Problem, row int) *posterior.Problem {
	var keep []int
	for i := range p.Y {
		if i != row {
			keep = append(keep, i)
		}
	}
	return p.Subset(keep)
}

// What is said of rows left out is what a model says that has never seen them, refitted by dense
// algebra, whether it comes from a stored inverse or from solves.
func TestLeaveOneOutIsRefitting(t *testing.T) {
	sum, err := kernel.Parse("a*rbf(1:u)*matern32(2:v)+b*matern52(1-2:w)", 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, cov := range []*kernel.Covariance{sum, kernel.Single(kernel.RBF, 2, false), kernel.Single(kernel.Matern12, 2, true)} {
		c, _ := exampleOf(cov, 180, 1, 3)
		c.Mixed = i%2 == 0
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		some := []int{0, 17, 101, 179}
		all := make([]int, 180)
		for i := range all {
			all[i] = i
		}
		stored, stats, err := p.LeaveOneOut(t.Context(), all, Options{})
		if err != nil || stats.Iterations > 0 || stats.Clipped > 0 {
			t.Fatal(stats, err)
		}
		const tol = 1e-6
		solved, stats, err := p.LeaveOneOut(t.Context(), some, Options{Tolerance: tol})
		if err != nil || stats.Iterations == 0 || stats.Unconverged > 0 || stats.Bound > tol {
			t.Fatal(stats, err)
		}
		for s, psi := range c.Draws {
			noise := math.Exp(psi[len(psi)-1])
			for k, row := range some {
				mean, variance := dense(t, without(c.Problem, row), psi, c.Problem.Inputs.Select([]int{row}))
				sd := math.Sqrt(variance[0] + noise)
				for way, got := range map[string][2]float64{
					"stored": {stored.Mean[s][row], math.Sqrt(stored.Var[s][row] + noise)},
					"solved": {solved.Mean[s][k], math.Sqrt(solved.Var[s][k] + noise)},
				} {
					if math.Abs(got[0]-mean[0]) > 10*tol*sd || math.Abs(got[1]/sd-1) > tol+1e-9 {
						t.Errorf("%v, %s, draw %d, row %d: N(%g, %g²), refitted N(%g, %g²)", cov, way, s, row, got[0], got[1], mean[0], sd)
					}
				}
			}
		}
	}
}

// Solves that are cut short are told, and the bound holds what they lack.
func TestLeaveOneOutTellsItsBound(t *testing.T) {
	c, _ := example(kernel.Matern32, false, 200, 2, 1, 1)
	exact, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := exact.LeaveOneOut(t.Context(), []int{3, 4}, Options{Tolerance: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	c.Kind, c.MaxIter = "none", 8
	short, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := short.LeaveOneOut(t.Context(), []int{3, 4}, Options{})
	if err != nil || stats.Unconverged != 2 || stats.MeansUnconverged != 1 {
		t.Fatal(stats, err)
	}
	noise := math.Exp(c.Draws[0][len(c.Draws[0])-1])
	for i := range 2 {
		if off := math.Sqrt((got.Var[0][i]+noise)/(want.Var[0][i]+noise)) - 1; off < 0 || off > 1.5*stats.Bound {
			t.Errorf("row %d: the sd is off by %g, bound %g", i, off, stats.Bound)
		}
	}
}

// The estimate is the log density of each target under the posterior that has not learnt from it,
// summed over a grid of length-scales, on which everything is known. The deviation is within four
// of its stated standard errors: by chance once in 16,000 seeds.
func TestLooIsTheDensityOfUnseenRows(t *testing.T) {
	const n, draws = 25, 1000
	r := rand.New(rand.NewPCG(5, 6))
	x, y := make([]float64, n), make([]float64, n)
	for i := range x {
		x[i] = 4 * r.Float64()
		y[i] = math.Sin(2*x[i]) + 0.3*r.NormFloat64()
	}
	prior, err := param.ParsePrior("lognormal(0, 2)", param.Rate) // the grid's, uniform, counts
	if err != nil {
		t.Fatal(err)
	}
	model := posterior.NewModel(kernel.Single(kernel.RBF, 1, false), likelihood.Gaussian{}, func(param.Param) param.Prior { return prior })
	problem := posterior.NewProblem(model, kernel.NewInputs(n, 1, x), y)
	var grid [][]float64
	for tau := -4.0; tau <= 4; tau += 0.2 {
		for noise := -4.0; noise <= 0.5; noise += 0.5 {
			grid = append(grid, []float64{0, tau, noise})
		}
	}
	evidence := func(p *posterior.Problem) []float64 { // log p(y|ψ) at each point
		dense := posterior.NewDense(p, parallel.NewBudget(2))
		out := make([]float64, len(grid))
		for g, psi := range grid {
			prior, _ := p.LogPrior(psi)
			out[g] = dense.LogDensity(psi) - prior
		}
		return out
	}
	full := evidence(problem)
	var exact float64
	for i := range n {
		exact += floats.LogSumExp(full) - floats.LogSumExp(evidence(without(problem, i)))
	}
	weights := make([]float64, len(grid))
	for g := range weights {
		weights[g] = math.Exp(full[g] - floats.Max(full))
	}
	floats.CumSum(weights, weights)
	var psi [][]float64
	for range draws {
		at, _ := slices.BinarySearch(weights, r.Float64()*weights[len(weights)-1])
		psi = append(psi, grid[at])
	}
	p, err := New(Config{Problem: problem, Draws: psi, Budget: parallel.NewBudget(2), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	// The targets as the user knows them: 10 + 2·y.
	column := make([]float64, n)
	for i := range column {
		column[i] = float64(i)
	}
	data, err := dataset.New(&dataset.Table{Target: "y", Inputs: []string{"x"}, X: [][]float64{column}, Y: y}, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data.YScale = dataset.Scale{Mean: 10, SD: 2}
	res, _, err := p.Loo(t.Context(), data, 1, rows, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := res.ELPD().Value
	if want := exact - n*math.Log(2); math.Abs(got-want) > 4*res.MCSE || res.MCSE > 0.5 {
		t.Errorf("elpd_loo %g ± %g, exactly %g", got, res.MCSE, want)
	}
	if math.Abs(res.Rows[3].Target-(10+2*y[3])) > 1e-12 || res.Rows[3].Number != 4 {
		t.Errorf("%+v", res.Rows[3])
	}
}

// stateful is a Gaussian likelihood that claims to need auxiliary variables.
type stateful struct{ likelihood.Gaussian }

func (s stateful) Augmentation() likelihood.Augmentation { return s }
func (stateful) Width() int                              { return 1 }

func TestLeaveOneOutWantsGaussianNoise(t *testing.T) {
	c, _ := example(kernel.RBF, false, 20, 1, 1, 1)
	c.Problem.Likelihood = stateful{}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.LeaveOneOut(t.Context(), []int{0}, Options{}); err == nil || !strings.Contains(err.Error(), "only Gaussian noise") {
		t.Error(err)
	}
}

func TestLeftOut(t *testing.T) {
	if all := LeftOut(5, 0); !slices.Equal(all, []int{0, 1, 2, 3, 4}) || !slices.Equal(LeftOut(5, 9), all) {
		t.Error(all)
	}
	if LooDraws(500) != 1000 || LooDraws(2000) != 125 || LooDraws(20000) != MaxAutoDraws {
		t.Errorf("%d, %d and %d draws", LooDraws(500), LooDraws(2000), LooDraws(20000))
	}
	some := LeftOut(50000, 0)
	if len(some) != SampleRows || !slices.IsSorted(some) || len(slices.Compact(slices.Clone(some))) != SampleRows || !slices.Equal(some, LeftOut(50000, SampleRows)) {
		t.Errorf("%d rows of 50,000", len(some))
	}
}
