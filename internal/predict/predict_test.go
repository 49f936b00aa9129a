package predict

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// example returns n training rows of a smooth function with noise, m test rows,
// and draws around plausible parameters.
func example(f kernel.Family, ard bool, n, d, m, draws int) (Config, *kernel.Inputs) {
	return exampleOf(kernel.Single(f, d, ard), n, m, draws)
}

func exampleOf(cov *kernel.Covariance, n, m, draws int) (Config, *kernel.Inputs) {
	d := cov.Dim()
	r := rand.New(rand.NewPCG(1, uint64(d)))
	points := func(n int) *kernel.Inputs {
		x := make([]float64, n*d)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return kernel.NewInputs(n, d, x)
	}
	in := points(n)
	y := make([]float64, n)
	for i := range y {
		x := in.Row(i)
		y[i] = math.Sin(2*x[0]) + x[d-1] + 0.2*r.NormFloat64()
	}
	model := posterior.NewModel(cov, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
	c := Config{Problem: posterior.NewProblem(model, in, y), Budget: parallel.NewBudget(2), Seed: 1}
	for range draws {
		psi := make([]float64, model.NumParams())
		for i := range psi {
			psi[i] = -0.5 + 0.15*r.NormFloat64()
		}
		psi[len(psi)-1] -= 2.5
		c.Draws = append(c.Draws, psi)
	}
	return c, points(m)
}

// dense returns the exact means and latent variances at a draw, from a Cholesky
// factor of K.
func dense(t *testing.T, p *posterior.Problem, psi []float64, points *kernel.Inputs) (mean, variance []float64) {
	t.Helper()
	_, noise := p.At(psi)
	f, n := p.Function(psi), len(p.Y)
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)+noise[i%len(noise)])
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		t.Fatal("K is singular")
	}
	for q := range points.Len() {
		b := mat.NewVecDense(n, nil)
		for i := range n {
			b.SetVec(i, f.Value(p.Inputs.Row(i), points.Row(q)))
		}
		var x mat.VecDense
		if err := chol.SolveVecTo(&x, b); err != nil {
			t.Fatal(err)
		}
		mean = append(mean, mat.Dot(&x, mat.NewVecDense(n, p.Y)))
		variance = append(variance, f.Variance(points.Row(q))-mat.Dot(&x, b))
	}
	return mean, variance
}

func predict(t *testing.T, c Config, o Options, points *kernel.Inputs) (*Moments, Stats) {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	m, stats, err := p.Predict(t.Context(), points, o)
	if err != nil {
		t.Fatal(err)
	}
	return m, stats
}

func TestAgainstDense(t *testing.T) {
	sum, err := kernel.Parse("a*rbf(1:u)*matern32(2:v)+b*matern52(1-3:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := kernel.Parse("a*linear(1,3)+b*linear(2)*matern52(1-3:w)+=100*linear(0,1)", 3)
	if err != nil {
		t.Fatal(err)
	}
	only, err := kernel.Parse("a*linear(0,1,2,3)", 3)
	if err != nil {
		t.Fatal(err)
	}
	covariances := []*kernel.Covariance{sum, lines, only}
	for i, f := range kernel.Families() {
		if !testing.Short() || i < 2 {
			covariances = append(covariances, kernel.Single(f, 3, false), kernel.Single(f, 3, true))
		}
	}
	for i, f := range covariances {
		mixed := i%2 == 0
		for _, latent := range []bool{false, true} {
			c, points := exampleOf(f, 250, 20, 3)
			c.Mixed = mixed
			o := Options{Latent: latent}
			got, stats := predict(t, c, o, points)
			if stats.Unconverged > 0 || stats.Clipped > 0 {
				t.Errorf("%v: %+v", f, stats)
			}
			if stats.Bound > 1.01*DefaultTolerance {
				t.Errorf("%v, mixed %v, latent %v: sds are known to %g only", f, mixed, latent, stats.Bound)
			}
			for s, psi := range c.Draws {
				mean, variance := dense(t, c.Problem, psi, points)
				for i := range mean {
					noise := math.Exp(psi[len(psi)-1])
					if latent {
						noise = 0
					}
					sd, want := math.Sqrt(got.Var[s][i]+noise), math.Sqrt(variance[i]+noise)
					if math.Abs(sd/want-1) > DefaultTolerance {
						t.Errorf("%v, mixed %v, latent %v, draw %d, row %d: sd %g, want %g", f, mixed, latent, s, i, sd, want)
					}
					if math.Abs(got.Mean[s][i]-mean[i]) > 1e-6*want {
						t.Errorf("%v, mixed %v, draw %d, row %d: mean %g, want %g", f, mixed, s, i, got.Mean[s][i], mean[i])
					}
				}
			}
		}
	}
}

// A tighter tolerance is kept, a looser one costs less.
func TestTolerance(t *testing.T) {
	c, points := example(kernel.Matern32, false, 300, 3, 10, 2)
	c.Kind, c.Rank = "rpcholesky", 20
	iterations := 0
	for _, tol := range []float64{1e-7, 1e-4, 1e-2} {
		o := Options{Tolerance: tol}
		got, stats := predict(t, c, o, points)
		if stats.Bound > 1.01*tol {
			t.Errorf("tolerance %g: bound %g", tol, stats.Bound)
		}
		if iterations > 0 && stats.Iterations >= iterations {
			t.Errorf("tolerance %g takes %d iterations, a tighter one %d", tol, stats.Iterations, iterations)
		}
		iterations = stats.Iterations
		for s, psi := range c.Draws {
			_, variance := dense(t, c.Problem, psi, points)
			for i, want := range variance {
				// From above, and within the bound; 1e-12 is for rounding.
				if diff := got.Var[s][i] - want; diff < -1e-12 || diff > 2*tol*(want+math.Exp(psi[len(psi)-1]))*1.01+1e-12 {
					t.Errorf("tolerance %g: variance %g is off by %g", tol, want, diff)
				}
			}
		}
	}
}

// A row's prediction does not depend on the rows beside it or on threads.
func TestSameBitsHoweverSplit(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		for _, v := range []Variance{Exact, Surface} {
			c, points := example(kernel.RBF, false, 600, 2, 140, 9)
			c.Mixed, c.Rank = mixed, 30
			o := Options{Variance: v, Latent: mixed}
			whole, _ := predict(t, c, o, points)
			at := 0
			for i, size := range []int{1, 3, 64, 72} {
				c.Budget = parallel.NewBudget(1 + i%3)
				rows := make([]int, size)
				for k := range rows {
					rows[k] = at + k
				}
				part, _ := predict(t, c, o, points.Select(rows))
				for s := range c.Draws {
					if !slices.Equal(part.Mean[s], whole.Mean[s][at:at+size]) || !slices.Equal(part.Var[s], whole.Var[s][at:at+size]) {
						t.Fatalf("mixed %v, %s: rows %d to %d, alone, are predicted otherwise", mixed, v, at, at+size)
					}
				}
				at += size
			}
		}
	}
}

func TestSurface(t *testing.T) {
	c, points := example(kernel.RBF, true, 400, 3, 30, 40)
	var o Options
	exact, _ := predict(t, c, o, points)
	o.Variance = Surface
	fast, stats := predict(t, c, o, points)
	if stats.Solves != 12*30 {
		t.Errorf("%d solves of 30 rows, want 12 each", stats.Solves)
	}
	var worst float64
	for s, psi := range c.Draws {
		noise := math.Exp(psi[len(psi)-1])
		if !slices.Equal(exact.Mean[s], fast.Mean[s]) {
			t.Error("means are not exact")
		}
		for i := range exact.Var[s] {
			worst = max(worst, math.Abs(math.Sqrt((fast.Var[s][i]+noise)/(exact.Var[s][i]+noise))-1))
		}
	}
	if worst > 0.02 || stats.SurfaceError > 0.02 || stats.SurfaceError == 0 {
		t.Errorf("the surface is off by %g, found to be by %g", worst, stats.SurfaceError)
	}
	for i := range points.Len() { // what users see is an average over draws
		_, a := exact.Mixture(i, false).Moments()
		_, b := fast.Mixture(i, false).Moments()
		if math.Abs(a/b-1) > 2e-3 {
			t.Errorf("row %d: sd %g by the surface, exactly %g", i, b, a)
		}
	}
}

// With fewer draws than the surface has points, all are solved for.
func TestSurfaceOfFewDraws(t *testing.T) {
	c, points := example(kernel.RBF, false, 100, 2, 5, 8)
	var o Options
	exact, _ := predict(t, c, o, points)
	o.Variance = Surface
	fast, _ := predict(t, c, o, points)
	for s := range c.Draws {
		if !slices.Equal(exact.Var[s], fast.Var[s]) {
			t.Fatal("the surface was used")
		}
	}
}

func TestSolutionsAreKept(t *testing.T) {
	c, points := example(kernel.RBF, false, 200, 2, 5, 3)
	c.Solutions = &Solutions{Dir: filepath.Join(t.TempDir(), "kept")}
	var o Options
	first, _ := predict(t, c, o, points)
	solved := 0
	o.Progress = func(p Progress) {
		if p.Stage == "solutions" {
			solved++
		}
	}
	second, _ := predict(t, c, o, points)
	if solved != 0 {
		t.Error("K⁻¹y was solved for again")
	}
	files, err := filepath.Glob(filepath.Join(c.Solutions.Dir, "*"+solutionsSuffix))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text[100] ^= 1
	if err := os.WriteFile(files[0], text, 0o644); err != nil {
		t.Fatal(err)
	}
	third, _ := predict(t, c, o, points)
	if solved == 0 {
		t.Error("a decayed file was believed")
	}
	for s := range c.Draws {
		if !slices.Equal(first.Mean[s], second.Mean[s]) || !slices.Equal(first.Mean[s], third.Mean[s]) {
			t.Error("kept solutions give other predictions")
		}
	}
	c.Draws = c.Draws[:2]
	solved = 0
	if predict(t, c, o, points); solved == 0 {
		t.Error("solutions for other draws were used")
	}
	c.Solutions.Most = int64(len(text))
	c.Draws = c.Draws[:1]
	predict(t, c, o, points)
	if files, _ = filepath.Glob(filepath.Join(c.Solutions.Dir, "*")); len(files) != 1 {
		t.Errorf("%d files are kept within a bound of one", len(files))
	}
}

func TestCancelled(t *testing.T) {
	c, points := example(kernel.RBF, false, 300, 2, 20, 5)
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Progress: func(p Progress) {
		if p.Stage == "rows" {
			cancel()
		}
	}}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Predict(ctx, points, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	m, _, err := p.Predict(t.Context(), points, Options{}) // the predictor is as good as new
	if err != nil {
		t.Fatal(err)
	}
	want, _ := predict(t, c, Options{}, points)
	if !slices.Equal(m.Var[0], want.Var[0]) {
		t.Error("a cancelled prediction changed the next")
	}
}

func TestBadDraws(t *testing.T) {
	c, _ := example(kernel.RBF, false, 50, 2, 1, 1)
	for _, draws := range [][][]float64{nil, {{0, 0}}, {{0, math.NaN(), 0}}, {{0, 0, 800}}, {{-800, 0, 0}}} {
		c.Draws = draws
		if _, err := New(c); err == nil {
			t.Errorf("draws %v were taken", draws)
		}
	}
}

func TestUnconvergedIsTold(t *testing.T) {
	c, points := example(kernel.RBF, false, 300, 3, 7, 2)
	c.Kind, c.MaxIter = "none", 2
	if _, stats := predict(t, c, Options{}, points); stats.Unconverged != 14 || stats.MeansUnconverged != 2 || stats.Bound < DefaultTolerance {
		t.Errorf("two iterations were enough: %+v", stats)
	}
}

func TestBadOptions(t *testing.T) {
	c, points := example(kernel.RBF, false, 50, 2, 1, 1)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Tolerance: -1}, {Tolerance: 1}, {Tolerance: math.NaN()}, {Variance: "no"}} {
		if _, _, err := p.Predict(t.Context(), points, o); err == nil {
			t.Errorf("options %+v were taken", o)
		}
	}
}
