package predict

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// denseJoint returns the exact joint distribution of the latent function at points, at a draw.
func denseJoint(t *testing.T, p *posterior.Problem, psi []float64, points *kernel.Inputs) (mean []float64, cov *mat.SymDense) {
	t.Helper()
	_, noise := p.At(psi)
	f, n, m := p.Function(psi), len(p.Y), points.Len()
	k := mat.NewSymDense(n, nil)
	cross := mat.NewDense(n, m, nil)
	for i := range n {
		for j := i; j < n; j++ {
			k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)+noise[0])
		for q := range m {
			cross.Set(i, q, f.Value(p.Inputs.Row(i), points.Row(q)))
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		t.Fatal("K is singular")
	}
	var x, explained mat.Dense
	if err := chol.SolveTo(&x, cross); err != nil {
		t.Fatal(err)
	}
	explained.Mul(cross.T(), &x)
	var mu mat.VecDense
	mu.MulVec(x.T(), mat.NewVecDense(n, p.Y))
	cov = mat.NewSymDense(m, nil)
	for a := range m {
		for b := a; b < m; b++ {
			cov.SetSym(a, b, f.Value(points.Row(a), points.Row(b))-explained.At(a, b))
		}
	}
	return mu.RawVector().Data, cov
}

// denseMixture returns the moments of the equal mixture over the draws, of the target if noisy.
func denseMixture(t *testing.T, c Config, points *kernel.Inputs, noisy bool) (mean []float64, cov *mat.SymDense) {
	t.Helper()
	m, draws := points.Len(), float64(len(c.Draws))
	mean, cov = make([]float64, m), mat.NewSymDense(m, nil)
	second := mat.NewSymDense(m, nil)
	for _, psi := range c.Draws {
		mu, sigma := denseJoint(t, c.Problem, psi, points)
		floats.AddScaled(mean, 1/draws, mu)
		second.SymRankOne(second, 1, mat.NewVecDense(m, mu))
		second.AddSym(second, sigma)
		for i := range m {
			if noisy {
				second.SetSym(i, i, second.At(i, i)+math.Exp(psi[len(psi)-1]))
			}
		}
	}
	second.ScaleSym(1/draws, second)
	cov.SymRankOne(second, -1, mat.NewVecDense(m, mean))
	return mean, cov
}

func jointly(t *testing.T, c Config, points *kernel.Inputs, o JointOptions) (*Joint, Stats) {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	j, stats, err := p.Joint(t.Context(), points, o)
	if err != nil {
		t.Fatal(err)
	}
	return j, stats
}

func TestJointCovarianceAgainstDense(t *testing.T) {
	sum, err := kernel.Parse("a*rbf(1:u)*matern32(2:v)+b*matern52(1-3:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range []*kernel.Covariance{sum, kernel.Single(kernel.RBF, 2, true), kernel.Single(kernel.Matern12, 3, false)} {
		c, points := exampleOf(f, 170, 140, 3) // more rows than are solved for side by side
		c.Mixed = i == 1
		for _, latent := range []bool{false, true} {
			got, stats := jointly(t, c, points, JointOptions{Options: Options{Latent: latent}, Covariance: true})
			mean, cov := denseMixture(t, c, points, !latent)
			if stats.Unconverged > 0 || stats.Clipped > 0 || stats.Bound > 1.01*jointTolerance || stats.Draws != 3 {
				t.Errorf("%v: %+v", f, stats)
			}
			for a := range mean {
				mu, sd := got.Moments.Mixture(a, latent).Moments()
				if math.Abs(mu-mean[a]) > 1e-7 || math.Abs(sd*sd-got.Covariance[a][a]) > 1e-12 {
					t.Errorf("%v, row %d: mean %g and sd %g, want %g and the covariance's %g", f, a, mu, sd, mean[a], math.Sqrt(got.Covariance[a][a]))
				}
				for b := range mean {
					scale := math.Sqrt(cov.At(a, a) * cov.At(b, b))
					if diff := got.Covariance[a][b] - cov.At(a, b); math.Abs(diff) > 1e-7*scale {
						t.Fatalf("%v, latent %v: covariance of rows %d and %d is %g, want %g", f, latent, a, b, got.Covariance[a][b], cov.At(a, b))
					}
				}
			}
		}
	}
}

// The paths' mean and covariance are those of the mixture: 6,000 paths of three draws that differ much. Of the 90
// standardised differences of means and covariances, which are nearly normal, none exceeds 5: a false alarm
// once in 20,000 seeds.
func TestPathsAreFromTheMixture(t *testing.T) {
	c, points := example(kernel.Matern32, false, 120, 2, 8, 3)
	for s, psi := range c.Draws {
		psi[0] += 0.7 * float64(s)
	}
	const paths = 6000
	for _, latent := range []bool{false, true} {
		mean, cov := denseMixture(t, c, points, !latent)
		got, stats := jointly(t, c, points, JointOptions{Options: Options{Latent: latent}, Paths: paths, Seed: 5})
		if got.Covariance != nil || got.Moments != nil || len(got.Paths) != paths || stats.Jitter != leastJitter {
			t.Fatalf("%+v", stats)
		}
		values := mat.NewDense(paths, len(mean), slices.Concat(got.Paths...))
		var sample mat.SymDense
		stat.CovarianceMatrix(&sample, values, nil)
		for a := range mean {
			z := (stat.Mean(mat.Col(nil, a, values), nil) - mean[a]) / math.Sqrt(cov.At(a, a)/paths)
			if math.Abs(z) > 5 {
				t.Errorf("latent %v, row %d: the paths' mean is off by %.1f standard errors", latent, a, z)
			}
			for b := range a + 1 {
				z := (sample.At(a, b) - cov.At(a, b)) / math.Sqrt((cov.At(a, a)*cov.At(b, b)+cov.At(a, b)*cov.At(a, b))/paths)
				if math.Abs(z) > 5 {
					t.Errorf("latent %v, rows %d and %d: the paths' covariance is off by %.1f standard errors", latent, a, b, z)
				}
			}
		}
	}
}

// Given the draw of the parameters a path is normal: the squared Mahalanobis distances of 400 paths at 20 rows
// add up to χ² with 8,000 degrees of freedom, within 5 standard deviations but once in 10⁶ seeds.
func TestPathsAreJointlyNormal(t *testing.T) {
	c, points := example(kernel.RBF, true, 120, 2, 20, 1)
	mean, cov := denseJoint(t, c.Problem, c.Draws[0], points)
	for i := range mean {
		cov.SetSym(i, i, cov.At(i, i)+leastJitter*c.Problem.Function(c.Draws[0]).Variance(points.Row(i)))
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		t.Fatal("the covariance is singular")
	}
	const paths = 400
	got, _ := jointly(t, c, points, JointOptions{Options: Options{Latent: true}, Paths: paths, Seed: 9})
	var square float64
	for _, path := range got.Paths {
		d := mat.NewVecDense(len(mean), slices.Clone(path))
		d.SubVec(d, mat.NewVecDense(len(mean), mean))
		var x mat.VecDense
		if err := chol.SolveVecTo(&x, d); err != nil {
			t.Fatal(err)
		}
		square += mat.Dot(d, &x)
	}
	df := float64(paths * len(mean))
	if z := (square - df) / math.Sqrt(2*df); math.Abs(z) > 5 {
		t.Errorf("the paths' squared distances add up to %.0f, want %.0f: %.1f standard deviations", square, df, z)
	}
}

// A path is a function of the set of rows and the seed: not of their order, of rows that are there twice, of
// threads, nor of how many paths there are.
func TestPathsAreAFunctionOfRowsAndSeed(t *testing.T) {
	c, points := example(kernel.Matern52, false, 150, 2, 140, 4)
	o := JointOptions{Options: Options{Latent: true}, Paths: 7, Seed: 3}
	whole, _ := jointly(t, c, points, o)
	c.Budget = parallel.NewBudget(3)
	o.Paths, o.Covariance = 3, true
	rows := span(0, points.Len())
	slices.Reverse(rows)
	rows = append(rows, 5, 17, 5)
	other, _ := jointly(t, c, points.Select(rows), o)
	for k, path := range other.Paths {
		for at, i := range rows {
			if path[at] != whole.Paths[k][i] {
				t.Fatalf("path %d at row %d is %v and, in another order, %v", k, i, whole.Paths[k][i], path[at])
			}
		}
	}
	o.Seed++
	if again, _ := jointly(t, c, points.Select(rows), o); again.Paths[0][0] == other.Paths[0][0] {
		t.Error("another seed gives the same path")
	}
	o.Latent = false
	noisy, _ := jointly(t, c, points.Select(rows), o)
	if last := len(rows) - 1; noisy.Paths[0][last] == noisy.Paths[0][last-2] {
		t.Error("two targets of equal rows have the same noise")
	}
}

// On a fine grid paths of a smooth covariance are smooth: neither the solves nor the jitter roughen them. And
// rows that nearly coincide have a path, too.
func TestPathsAreSmooth(t *testing.T) {
	c, _ := example(kernel.RBF, false, 150, 1, 1, 2)
	const step = 0.01
	var x []float64
	for i := range 150 {
		x = append(x, -0.7+step*float64(i))
	}
	points := kernel.NewInputs(len(x), 1, x)
	got, stats := jointly(t, c, points, JointOptions{Options: Options{Latent: true}, Paths: 4})
	if stats.Jitter > 1e-8 {
		t.Errorf("%+v", stats)
	}
	for k, path := range got.Paths {
		for i := 1; i < len(path)-1; i++ {
			// f″ is of the order of σ/ℓ², and of the function sin(2x)+x that the data are of: below 20 in any case.
			if bend := math.Abs(path[i+1] - 2*path[i] + path[i-1]); bend > 20*step*step+1e-3 {
				t.Fatalf("path %d bends by %g at %g", k, bend, x[i])
			}
		}
	}
	close := kernel.NewInputs(4, 1, []float64{0.3, 0.3 + 1e-12, 0.3 + 1e-9, 0.3 + 1e-6})
	got, _ = jointly(t, c, close, JointOptions{Options: Options{Latent: true}, Paths: 2})
	for _, path := range got.Paths {
		if floats.Max(path)-floats.Min(path) > 1e-3 {
			t.Errorf("rows a millionth apart have values %v", path)
		}
	}
}

func TestJointOfTooManyRows(t *testing.T) {
	c, _ := example(kernel.RBF, false, 50, 1, 1, 1)
	x := make([]float64, MaxJointRows+1)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Joint(t.Context(), kernel.NewInputs(len(x), 1, x), JointOptions{Paths: 1}); err != nil {
		t.Errorf("many equal rows: %v", err)
	}
	for i := range x {
		x[i] = float64(i)
	}
	var many *TooMany
	if _, _, err := p.Joint(t.Context(), kernel.NewInputs(len(x), 1, x), JointOptions{Paths: 1}); !errors.As(err, &many) || many.Most != MaxJointRows {
		t.Errorf("%d rows: %v", len(x), err)
	}
	if err := checkJoint(2000, 2_000_000); !errors.As(err, &many) || many.Most != 134 {
		t.Errorf("2000 rows of two millions: %v", err)
	}
}

func TestJointUnconvergedIsTold(t *testing.T) {
	c, points := example(kernel.RBF, false, 200, 3, 6, 1)
	c.Kind, c.MaxIter = "none", 3
	if _, stats := jointly(t, c, points, JointOptions{Covariance: true}); stats.Unconverged != 6 || stats.Bound < jointTolerance {
		t.Errorf("%+v", stats)
	}
}
