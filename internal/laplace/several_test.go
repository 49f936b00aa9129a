package laplace

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// severalProblem returns one of n rows of one input. Of all but classes the second function has a term of its own.
func severalProblem(t *testing.T, l likelihood.Likelihood, n int, target func(r *rand.Rand, x float64) float64) *posterior.Problem {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	x, y := make([]float64, n), make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
		y[i] = target(r, x[i])
	}
	c := kernel.Single(kernel.Matern12, 1, false) // whose factor has all columns
	two := !likelihood.OfCategories(l) && l.Name() != flat{}.Name()
	if two {
		var err error
		c, err = c.Plus(kernel.Term{Variance: param.Param{Term: "g", Symbol: "variance", Role: param.Variance},
			Leaves: []kernel.Leaf{&kernel.Stationary{Family: kernel.Matern12, Inputs: []int{0}, Rates: []param.Param{{Term: "g", Symbol: "tau", Role: param.Rate}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	m := posterior.NewModel(c, l, func(p param.Param) param.Prior {
		text := "gamma(1,1)"
		if p.Role == param.Share {
			text = "beta(1,4)"
		}
		prior, err := p.ParsePrior(text)
		if err != nil {
			t.Fatal(err)
		}
		return prior
	})
	if two {
		m.Terms = [][]int{{0}, {1}}
	}
	return posterior.NewProblem(m, kernel.NewInputs(n, 1, x), y)
}

// flat is a likelihood of three functions that the data say nothing of.
type flat struct{ likelihood.Categorical }

func (flat) Terms(_ []float64, _ float64, _, score, curvature []float64) float64 {
	for k := range score {
		score[k] = 0
	}
	for k := range curvature {
		curvature[k] = 0
	}
	return 0
}

var severalClasses = likelihood.Categorical{Classes: []string{"a", "b", "c"}}

func severalCases(t *testing.T, n int) map[string]*posterior.Problem {
	class := func(r *rand.Rand, x float64) float64 { return math.Mod(math.Floor(9+x+r.Float64()), 3) }
	return map[string]*posterior.Problem{
		"categorical":     severalProblem(t, severalClasses, n, class),
		"flat":            severalProblem(t, flat{severalClasses}, n, class),
		"heteroscedastic": severalProblem(t, likelihood.Heteroscedastic{}, n, func(r *rand.Rand, x float64) float64 { return x + math.Exp(x/2)*r.NormFloat64() }),
		"twinned": severalProblem(t, likelihood.Twinned{}, n, func(r *rand.Rand, x float64) float64 {
			return x + 0.2*(1+20*math.Round(r.Float64()))*r.NormFloat64()
		}),
		"noisy-labels": severalProblem(t, likelihood.NoisyLabels{}, n, func(r *rand.Rand, x float64) float64 { return math.Round(1 / (1 + math.Exp(-4*x-2*r.NormFloat64()))) }),
	}
}

// The density of (ψ,ν) of several latent functions is that of (ψ,f) times the volume element, by dense algebra (as in TestWhiteDensity).
func TestSeveralDensity(t *testing.T) {
	const n = 9
	for name, p := range severalCases(t, n) {
		psi := make([]float64, p.NumParams())
		w, err := NewWhite(t.Context(), p, psi)
		if err != nil {
			t.Fatal(err)
		}
		r, size := rand.New(rand.NewPCG(1, 2)), n*p.Functions()
		first := math.NaN()
		for range 3 {
			nu := make([]float64, size)
			for i := range nu {
				nu[i] = r.NormFloat64()
			}
			for i := range psi {
				psi[i] = 0.5 * r.NormFloat64()
			}
			got, err := w.Density(t.Context(), psi, nu)
			if err != nil {
				t.Fatal(err)
			}
			f, _ := w.Function(t.Context(), psi, nu)
			volume := logVolume(t, w, psi, nu)
			want, _ := p.LogPrior(psi)
			want += volume + floats.Dot(nu, nu)/2 + logPriorOf(t, p, psi, f) + logLikelihood(p, psi, f)
			if math.IsNaN(first) {
				first = got - want
			}
			if math.Abs(got-want-first) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: %v, by dense algebra %v, and before they were %v apart", name, got, want, first)
			}
			// Where data say nothing the posterior is the prior, and ν is standard normal.
			if prior, _ := p.LogPrior(psi); name == "flat" && math.Abs(got-prior) > 1e-9 {
				t.Errorf("without information the density is %v, the prior's %v", got, prior)
			}
		}
	}
}

// logPriorOf returns log N(f|0,K) of all functions.
func logPriorOf(t *testing.T, p *posterior.Problem, psi, f []float64) (sum float64) {
	t.Helper()
	n := len(p.Y)
	theta := p.Params.Natural(psi)
	for c := range p.Functions() {
		sigma, tau := theta[0], theta[1]
		if p.Terms != nil {
			sigma, tau = theta[2*c], theta[2*c+1]
		}
		k := mat.NewSymDense(n, nil)
		for i := range n {
			for j := range i + 1 {
				k.SetSym(i, j, sigma*math.Exp(-math.Sqrt(2*tau)*math.Abs(p.Inputs.Row(i)[0]-p.Inputs.Row(j)[0])))
			}
		}
		var chol mat.Cholesky
		if !chol.Factorize(k) {
			t.Fatal("singular")
		}
		var a mat.VecDense
		if err := chol.SolveVecTo(&a, mat.NewVecDense(n, f[c*n:(c+1)*n])); err != nil {
			t.Fatal(err)
		}
		sum -= floats.Dot(f[c*n:(c+1)*n], a.RawVector().Data)/2 + chol.LogDet()/2
	}
	return sum
}

func logLikelihood(p *posterior.Problem, psi, f []float64) (sum float64) {
	n, at := len(p.Y), make([]float64, p.Functions())
	_, own := p.Natural(psi)
	for i, y := range p.Y {
		for c := range at {
			at[c] = f[c*n+i]
		}
		sum += p.Likelihood.(likelihood.Several).Terms(own, y, at, nil, nil)
	}
	return sum
}

// The mode of the functions of classes is where the gradient of the log posterior of f is zero: score = K⁻¹f.
func TestSeveralMode(t *testing.T) {
	const n = 12
	p := severalCases(t, n)["categorical"]
	psi := []float64{0.4, -0.3}
	e, err := NewEvidence(t.Context(), p, psi)
	if err != nil {
		t.Fatal(err)
	}
	pt, err := e.white.point(t.Context(), psi)
	if err != nil {
		t.Fatal(err)
	}
	f := pt.function(pt.mode)
	top := logPriorOf(t, p, psi, f) + logLikelihood(p, psi, f)
	r := rand.New(rand.NewPCG(9, 9))
	for range 100 {
		g := append([]float64(nil), f...)
		for i := range g {
			g[i] += 1e-2 * r.NormFloat64()
		}
		if h := logPriorOf(t, p, psi, g) + logLikelihood(p, psi, g); h > top {
			t.Errorf("near the mode the density is greater by %v", h-top)
		}
	}
}

// Far from all data functions at points have their prior's moments given any draw of ψ; at a training row they have a draw's value there, and
// the same request has the same answer, in whatever order.
func TestFunctionsAtPoints(t *testing.T) {
	for name, p := range severalCases(t, 30) {
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.2 * float64(i)
		}
		d := NewFunctions(p, psi, 3)
		points := kernel.NewInputs(3, 1, []float64{500, p.Inputs.Row(4)[0], 0.1})
		mean, variance, err := d.At(t.Context(), psi, points)
		if err != nil {
			t.Fatal(err)
		}
		theta := p.Params.Natural(psi)
		for k := range mean {
			for c := range p.Functions() {
				sigma := theta[0]
				if p.Terms != nil {
					sigma = theta[2*c]
				}
				if m, v := mean[k][3*c], variance[k][3*c]; math.Abs(m) > 1e-9 || math.Abs(v/sigma-1) > 1e-9 {
					t.Errorf("%s: far from the data function %d is %v ± %v, prior variance %v", name, c, m, v, sigma)
				}
				if v := variance[k][3*c+1]; v > 1e-4*sigma {
					t.Errorf("%s: given the functions at the rows the variance at one is %v", name, v)
				}
			}
		}
		other := NewFunctions(p, psi, 3)
		if _, _, err := other.At(t.Context(), []float64{0.3, 0.1, 0, 0.2, -1, 0.4, -0.7}[:len(psi)], points); err != nil {
			t.Fatal(err)
		}
		again, _, err := other.At(t.Context(), psi, points.Select([]int{2}))
		if err != nil {
			t.Fatal(err)
		}
		for k := range again {
			for c := range p.Functions() {
				if again[k][c] != mean[k][3*c+2] {
					t.Errorf("%s: function %d at a point is %v, and %v beside other points", name, c, again[k][c], mean[k][3*c+2])
				}
			}
		}
	}
}

// Together, functions at points have the moments that dense algebra gives them where they are known at the rows.
func TestFunctionsTogether(t *testing.T) {
	for name, p := range severalCases(t, 20) {
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.2 * float64(i)
		}
		d := NewFunctions(p, psi, 3)
		rows, _, err := d.At(t.Context(), psi, p.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		points := kernel.NewInputs(4, 1, []float64{-0.3, 0.1, 0.15, 3})
		theta, _ := p.Natural(psi)
		err = d.Joint(t.Context(), psi, []*kernel.Inputs{p.Inputs.Select([]int{0}), points}, func(set int, mean [][]float64, covariance []*mat.SymDense) error {
			if set == 0 {
				return nil
			}
			for c := range p.Functions() {
				f := p.Part(c).Function(theta)
				k, cross := mat.NewSymDense(20, nil), mat.NewDense(4, 20, nil)
				for i := range 20 {
					for j := range i + 1 {
						k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
					}
					for a := range 4 {
						cross.Set(a, i, f.Value(points.Row(a), p.Inputs.Row(i)))
					}
				}
				var factor mat.Cholesky
				if !factor.Factorize(k) {
					t.Fatal("no factor")
				}
				var weights, explained mat.Dense
				if err := factor.SolveTo(&weights, cross.T()); err != nil {
					t.Fatal(err)
				}
				explained.Mul(cross, &weights)
				for a := range 4 {
					for b := range 4 {
						if want := f.Value(points.Row(a), points.Row(b)) - explained.At(a, b); math.Abs(covariance[c].At(a, b)-want) > 1e-8 {
							t.Errorf("%s: function %d has the covariance %v of points %d and %d, want %v", name, c, covariance[c].At(a, b), a, b, want)
						}
					}
					for k := range mean {
						if want := mat.Dot(weights.ColView(a), mat.NewVecDense(20, rows[k][c*20:(c+1)*20])); math.Abs(mean[k][c*4+a]-want) > 1e-6 {
							t.Errorf("%s: function %d at point %d is %v in the mean, want %v", name, c, a, mean[k][c*4+a], want)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Draws by the kinds of rows have the means of both functions that a quadrature has, of two rows of which one is an outlier or the other. Means of
// 300 draws by four are to be within 4.5 standard errors: one in 10⁵ seeds fails.
func TestKinds(t *testing.T) {
	p := severalProblem(t, likelihood.Twinned{}, 2, func(r *rand.Rand, _ float64) float64 { return 0 })
	p.Inputs, p.Y = kernel.NewInputs(2, 1, []float64{0, 0.6}), []float64{0.4, 3}
	// Of Matérn 1/2, exp(−√(2τ)·d): with d = 0.6 the correlation of a quadrature that has exp(−0.18).
	rate := 0.5 * (0.18 / 0.6) * (0.18 / 0.6)
	psi := p.Params.Sampled([]float64{1, rate, 1.5, rate, 0.05, math.Sqrt(180), 0.5 * math.Erfc(0.5/math.Sqrt2)})
	w, err := NewWhite(t.Context(), p, psi)
	if err != nil {
		t.Fatal(err)
	}
	pt, err := w.point(t.Context(), psi)
	if err != nil {
		t.Fatal(err)
	}
	const draws = 300
	var sum, square [4]float64
	r := rand.New(rand.NewPCG(1, 2))
	for range draws {
		x, err := w.byKinds(t.Context(), pt, likelihood.Twinned{}, r)
		if err != nil {
			t.Fatal(err)
		}
		var mean [4]float64
		for _, one := range x {
			for k, v := range pt.function(one) {
				mean[k] += v / float64(len(x))
			}
		}
		for k, v := range mean {
			sum[k], square[k] = sum[k]+v/draws, square[k]+v*v/draws
		}
	}
	for k, want := range []float64{0.3775, 0.4158, 0.0262 - 0.5, -0.2272 - 0.5} { // likelihood.TestTwinnedEvidence tells these
		if se := math.Sqrt((square[k] - sum[k]*sum[k]) / draws); math.Abs(sum[k]-want) > 4.5*se+1e-4 {
			t.Errorf("mean %d is %.4f ± %.4f, want %.4f", k, sum[k], se, want)
		}
	}
}
