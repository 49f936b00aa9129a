package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// problem is a regression on n rows of two inputs.
func problem(t *testing.T, n int) *posterior.Problem {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	x, y := make([]float64, 2*n), make([]float64, n)
	for i := range n {
		x[2*i], x[2*i+1] = r.NormFloat64(), r.NormFloat64()
		y[i] = math.Sin(2*x[2*i]) + 0.3*x[2*i+1] + 0.2*r.NormFloat64()
	}
	m := posterior.NewModel(kernel.Single(kernel.RBF, 2, true), likelihood.Gaussian{}, func(p param.Param) param.Prior {
		q, err := p.ParsePrior("gamma(2,3)")
		if err != nil {
			t.Fatal(err)
		}
		return q
	})
	return posterior.NewProblem(m, kernel.NewInputs(n, 2, x), y)
}

// The estimate is where the gradient of the dense oracle vanishes, with and without priors, its covariance the inverse of
// the numerical Hessian of the oracle's density, and its value that density.
func TestExactAgainstDense(t *testing.T) {
	p := problem(t, 60)
	for name, p := range map[string]*posterior.Problem{"map": p, "ml": Likelihood(p)} {
		r, err := Exact(t.Context(), p, parallel.NewBudget(1), 1, Starts(p.Params, 3, 1), Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := posterior.NewDense(p, parallel.NewBudget(1))
		grad, _ := d.Gradient(r.Psi)
		if !r.Converged || floats.Norm(grad, math.Inf(1)) > 0.02 {
			t.Errorf("%s: the gradient at the estimate is %v", name, grad)
		}
		if v := d.LogDensity(r.Psi); math.Abs(v-r.Value) > 1e-6 {
			t.Errorf("%s: the log density is %v, want %v", name, r.Value, v)
		}
		if prior, _ := p.LogPrior(r.Psi); math.Abs(r.Value-prior-r.LogLikelihood) > 1e-9 || (name == "ml") != (prior == 0) {
			t.Errorf("%s: the log prior is %v", name, prior)
		}
		h := mat.NewSymDense(len(r.Psi), nil)
		fd.Hessian(h, func(x []float64) float64 { return -d.LogDensity(x) }, r.Psi, &fd.Settings{Formula: fd.Central, Step: 1e-3})
		var chol mat.Cholesky
		if !chol.Factorize(h) {
			t.Fatalf("%s: the estimate is no maximum", name)
		}
		var want mat.SymDense
		if err := chol.InverseTo(&want); err != nil {
			t.Fatal(err)
		}
		for i := range r.Psi { // by differences a quarter of a standard error wide
			if got, w := math.Sqrt(r.Cov.At(i, i)), math.Sqrt(want.At(i, i)); math.Abs(got/w-1) > 0.05 {
				t.Errorf("%s: the standard error of %s is %v, want %v", name, p.Names()[i], got, w)
			}
		}
	}
}

// Searches on a subset and by products alone come to the estimate with a stored factor, within the noise of their probes.
func TestByProducts(t *testing.T) {
	p := problem(t, 120)
	b := parallel.NewBudget(1)
	want, err := Exact(t.Context(), p, b, 1, Starts(p.Params, 1, 1), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := byProducts(t.Context(), p, b, 1, Starts(p.Params, 1, 1)[0], Options{}.filled())
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Psi {
		if sd := math.Sqrt(want.Cov.At(i, i)); math.Abs(r.Psi[i]-want.Psi[i]) > 0.3*sd {
			t.Errorf("%s is %v ± %v, want %v", p.Names()[i], r.Psi[i], sd, want.Psi[i])
		}
	}
	if r.ValueError <= 0 || math.Abs(r.Value-want.Value) > 5*r.ValueError+0.05 {
		t.Errorf("the log density is %v ± %v, want %v", r.Value, r.ValueError, want.Value)
	}
}

// Estimated gradients are unbiased, by the mean of many against the oracle (fails by chance for one seed in 10,000),
// and the end of ADAGRAD is a function of the seed, to the last bit, with any number of threads.
func TestAdagradOnSolves(t *testing.T) {
	p := problem(t, 50)
	psi := []float64{0.2, -0.3, -1, -2}
	s := NewSolves(p, parallel.NewBudget(1), 3, "nystrom")
	const draws = 300
	mean, square := make([]float64, len(psi)), make([]float64, len(psi))
	for i := range draws {
		g, err := s.Gradient(t.Context(), psi, i)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range g {
			mean[k] += v / draws
			square[k] += v * v / draws
		}
	}
	want, _ := posterior.NewDense(Likelihood(p), parallel.NewBudget(1)).Gradient(psi)
	for k := range psi {
		if se := math.Sqrt((square[k] - mean[k]*mean[k]) / draws); math.Abs(mean[k]-want[k]) > 4.5*se+1e-4 {
			t.Errorf("the mean of derivative %d is %v ± %v, want %v", k, mean[k], se, want[k])
		}
	}

	var ends [][]float64
	for _, run := range []struct {
		threads int
		seed    uint64
	}{{1, 5}, {2, 5}, {1, 6}} {
		b := parallel.NewBudget(run.threads)
		x, trace, err := Adagrad(t.Context(), p.Params, NewSolves(p, b, run.seed, "nystrom"), psi, 10, Options{})
		if err != nil || len(trace) != 10 {
			t.Fatal(len(trace), err)
		}
		ends = append(ends, x)
	}
	if !slices.Equal(ends[0], ends[1]) || slices.Equal(ends[0], ends[2]) {
		t.Errorf("the ends of seeds 5, 5 and 6 are %v", ends)
	}
}

// hill is a log density of ψ and one more coordinate with two maxima, the higher at (-2, 1): nowhere is there any beyond 50.
type hill struct{}

func (hill) Extra() []float64 { return []float64{0} }

func (hill) At(ctx context.Context, x []float64) (float64, []float64, error) {
	if math.Abs(x[0]) > 50 {
		return 0, nil, ctx.Err()
	}
	a, b := math.Exp(-2*(x[0]+2)*(x[0]+2)), 0.5*math.Exp(-2*(x[0]-2)*(x[0]-2))
	d := x[1] - 1
	v := a + b + 1e-9
	return math.Log(v) - d*d, []float64{(-4*a*(x[0]+2) - 4*b*(x[0]-2)) / v, -2 * d}, ctx.Err()
}

// Gradient is exact: the published steps can be computed by hand.
func (h hill) Gradient(ctx context.Context, x []float64, _ int) ([]float64, error) {
	_, g, err := h.At(ctx, x)
	return g, err
}

// Of several searches the highest end is kept, and all are told of; coordinates beyond ψ move, too.
func TestSearchKeepsTheBest(t *testing.T) {
	params := param.List{{Symbol: "a", Role: param.Variance, Prior: param.Prior{}.Flat()}}
	told := 0
	r, err := Search(t.Context(), params, hill{}, [][]float64{{2.5}, {-2.5}, {60}}, Options{Tell: func(Step) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	// The second derivative of -2(x+2)² is -4.
	if math.Abs(r.Psi[0]+2) > 1e-3 || math.Abs(r.Extra[0]-1) > 1e-3 || math.Abs(r.Cov.At(0, 0)-0.25) > 1e-3 || !r.Converged {
		t.Errorf("%+v", r)
	}
	if len(r.Searches) != 2 || math.Abs(r.Searches[1].Psi[0]-2) > 0.01 || r.Searches[0].Value <= r.Searches[1].Value {
		t.Errorf("the searches: %+v", r.Searches)
	}
	if want := len(r.Trace) + r.Searches[1].Evaluations + 1; told != want {
		t.Errorf("%d evaluations were told of, want %d", told, want)
	}
	if _, err := Search(t.Context(), params, hill{}, [][]float64{{60}}, Options{}); err == nil {
		t.Error("there is an estimate where there is no density")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Search(ctx, params, hill{}, [][]float64{{1}}, Options{}); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// ADAGRAD's steps are g/(√Σg² + 1e-6).
func TestAdagradSteps(t *testing.T) {
	params := param.List{{Symbol: "a", Role: param.Variance, Prior: param.Prior{}.Flat()}}
	got, trace, err := Adagrad(t.Context(), params, hill{}, []float64{-1}, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, h := []float64{-1, 0}, []float64{0, 0}
	for iter := range 3 {
		_, g, _ := hill{}.At(t.Context(), x)
		for i := range x {
			h[i] += g[i] * g[i]
			x[i] += g[i] / (math.Sqrt(h[i]) + 1e-6)
		}
		if trace[iter].Psi[0] != x[0] {
			t.Errorf("after step %d ψ is %v, want %v", iter+1, trace[iter].Psi[0], x[0])
		}
	}
	if !slices.Equal(got, x) {
		t.Errorf("the end is %v, want %v", got, x)
	}
}
