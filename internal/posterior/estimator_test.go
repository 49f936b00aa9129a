package posterior

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// newTestEstimator returns an estimator whose preconditioner was made at θ(ψ).
func newTestEstimator(t testing.TB, p *Problem, psi []float64, kind ProbeKind, early *Early, redraw int) *Estimator {
	t.Helper()
	op := cmvp.New(p.Inputs, p.Covariance, parallel.NewBudget(2))
	op.Set(p.At(psi))
	pre, err := precond.Build(t.Context(), "rpcholesky", op, len(p.Y)/4, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return NewEstimator(EstimatorConfig{
		Problem: p, Operator: op, Early: early, Probes: kind, Factor: pre, Redraw: redraw,
		Solver: solve.New(op, solve.Options{Tolerance: 1e-11, Precond: pre}),
	})
}

// basis makes the probes of a gradient the vectors √n·e_j: with n of them, the
// mean over probes is the expectation over w, exactly, because every kind of
// probe is a quadratic form in w and E[wwᵀ] = I.
func (e *Estimator) basis() {
	e.fill = func(_ random.Key, j int, w []float64) {
		clear(w)
		w[j] = math.Sqrt(float64(len(w)))
	}
}

// The expectation of the estimate is the gradient, for every kernel and every
// kind of probe, also where P was made at other parameters.
func TestGradientIsUnbiased(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	ctx := context.Background()
	for _, f := range kernel.Families() {
		for _, ard := range []bool{false, true} {
			p := testProblem(t, f, 50, 3, ard)
			psi := testPsi(p.Model)
			want, ok := NewDense(p, parallel.NewBudget(1)).Gradient(psi)
			if !ok {
				t.Fatal("singular")
			}
			away := append([]float64(nil), psi...)
			for i := range away {
				away[i] += 0.3
			}
			for _, kind := range []ProbeKind{Whitened, Rademacher, Pathwise} {
				for _, at := range [][]float64{psi, away} {
					for _, spread := range []bool{false, true} {
						e := newTestEstimator(t, p, at, kind, nil, 1)
						e.basis()
						g, err := e.Gradient(ctx, psi, random.Key{Seed: 1}, 50, spread)
						if err != nil {
							t.Fatal(err)
						}
						for i := range want {
							if math.Abs(g.Value[i]-want[i]) > 1e-5*math.Abs(want[i])+1e-7 {
								t.Errorf("%v ard=%v probes=%d spread=%v: g[%d] = %v, want %v", f, ard, kind, spread, i, g.Value[i], want[i])
							}
						}
						if (g.ProbeCov != nil) != spread {
							t.Errorf("spread %v gives ProbeCov %v", spread, g.ProbeCov)
						}
					}
				}
			}
		}
	}
}

// With early stopping too: the mean of 400 estimates is within 5 standard
// errors in each of 3 parameters (false alarms 2 in 10⁶ for other seeds; the
// seeds are fixed). Probes are the basis, so that all noise is the stopping's.
func TestEarlyStoppingIsUnbiased(t *testing.T) {
	const reps = 400
	ctx := context.Background()
	p := testProblem(t, kernel.RBF, 40, 2, false)
	psi := testPsi(p.Model)
	want, _ := NewDense(p, parallel.NewBudget(1)).Gradient(psi)
	for _, replicates := range []int{1, 2} {
		e := newTestEstimator(t, p, psi, Rademacher, &Early{Q: 0.1, Law: solve.GeometricLaw{P: 0.85}, Replicates: replicates}, 1)
		e.basis()
		e.solver = solve.New(e.op, solve.Options{Tolerance: 1e-11}) // no preconditioner: a long tail
		samples := make([][]float64, len(psi))
		var claimed float64
		for r := range reps {
			e.Reset()
			g, err := e.Gradient(ctx, psi, random.Key{Seed: 9, Iter: r}, 40, true)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range g.Value {
				samples[i] = append(samples[i], v)
			}
			if (g.SolverCov != nil) != (replicates > 1) {
				t.Fatalf("%d replicates, solver covariance %v", replicates, g.SolverCov)
			}
			if g.SolverCov != nil {
				claimed += g.SolverCov.At(0, 0) / reps
			}
		}
		for i := range samples {
			m, sd := stat.MeanStdDev(samples[i], nil)
			if se := sd / math.Sqrt(reps); se == 0 || math.Abs(m-want[i]) > 5*se {
				t.Errorf("%d replicates: g[%d] is %v on average, standard error %v, want %v", replicates, i, m, se, want[i])
			}
		}
	}
}

// The measured covariances are those of the estimates. A variance from r
// samples has relative standard error √(2/r): 5 of them allowed.
func TestMeasuredCovariance(t *testing.T) {
	ctx := context.Background()
	p := testProblem(t, kernel.RBF, 60, 2, false)
	psi := testPsi(p.Model)
	for _, kind := range []ProbeKind{Whitened, Rademacher, Pathwise} {
		const reps, probes = 300, 4
		e := newTestEstimator(t, p, psi, kind, nil, 1)
		values := make([][]float64, len(psi))
		claimed := make([]float64, len(psi))
		for r := range reps {
			g, err := e.Gradient(ctx, psi, random.Key{Seed: 4, Iter: r}, probes, true)
			if err != nil {
				t.Fatal(err)
			}
			for i := range psi {
				values[i] = append(values[i], g.Value[i])
				claimed[i] += g.ProbeCov.At(i, i) / probes / reps
			}
		}
		for i := range psi {
			v := stat.Variance(values[i], nil)
			if math.Abs(claimed[i]/v-1) > 5*math.Sqrt(2.0/reps) {
				t.Errorf("probes %d: variance of g[%d] is %v, claimed %v", kind, i, v, claimed[i])
			}
		}
	}
}

// The covariance of pathwise probes is the Fisher information
// ½ tr(K⁻¹∂_iK K⁻¹∂_jK), and whitened probes with P = K come near it.
func TestProbesReachTheFisherInformation(t *testing.T) {
	const n = 50
	p := testProblem(t, kernel.RBF, n, 2, false)
	psi := testPsi(p.Model)
	theta, noise := p.At(psi)
	f := p.Function(psi)
	k := mat.NewSymDense(n, nil)
	d := make([]*mat.Dense, 3)
	for i := range d {
		d[i] = mat.NewDense(n, n, nil)
	}
	for i := range n {
		for j := range n {
			kf := f.Value(p.Inputs.Row(i), p.Inputs.Row(j))
			d[0].Set(i, j, kf)
			d[1].Set(i, j, kf*math.Log(kf/theta[0])) // −k·u
			if i == j {
				d[2].Set(i, j, noise[0])
				kf += noise[0]
			}
			if j >= i {
				k.SetSym(i, j, kf)
			}
		}
	}
	var chol mat.Cholesky
	chol.Factorize(k)
	m := make([]mat.Dense, 3)
	for i := range m {
		if err := chol.SolveTo(&m[i], d[i]); err != nil {
			t.Fatal(err)
		}
	}
	const probes = 3000
	for name, kind := range map[string]ProbeKind{"pathwise": Pathwise, "whitened": Whitened} {
		op := cmvp.New(p.Inputs, p.Covariance, parallel.NewBudget(2))
		op.Set(theta, noise)
		pre, err := precond.Build(t.Context(), "cholesky", op, n, random.Key{})
		if err != nil {
			t.Fatal(err)
		}
		e := NewEstimator(EstimatorConfig{Problem: p, Operator: op, Probes: kind, Factor: pre,
			Solver: solve.New(op, solve.Options{Tolerance: 1e-9, Precond: pre})})
		g, err := e.Gradient(context.Background(), psi, random.Key{Seed: 11}, probes, true)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			var mm mat.Dense
			mm.Mul(&m[i], &m[i])
			fisher := 0.5 * mat.Trace(&mm)
			ratio := g.ProbeCov.At(i, i) / fisher
			// Signs instead of normals have less variance, never more.
			if ratio > 1+5*math.Sqrt(2.0/probes)*1.5 || kind == Pathwise && ratio < 1-5*math.Sqrt(2.0/probes)*1.5 {
				t.Errorf("%s: variance of g[%d] is %.3f of the Fisher information", name, i, ratio)
			}
		}
	}
}

// Kept probes with warm starts give the same gradient in fewer iterations, and
// after Reset the gradient depends on its arguments alone.
func TestWarmStartsAndReset(t *testing.T) {
	ctx := context.Background()
	p := testProblem(t, kernel.RBF, 80, 2, false)
	psi := testPsi(p.Model)
	e := newTestEstimator(t, p, psi, Rademacher, nil, 20)
	first, err := e.Gradient(ctx, psi, random.Key{Seed: 2, Iter: 40}, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	near := append([]float64(nil), psi...)
	near[0] += 1e-3
	warm, err := e.Gradient(ctx, near, random.Key{Seed: 2, Iter: 41}, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	if warm.Report.MeanIterations() >= first.Report.MeanIterations() {
		t.Errorf("%v iterations from a warm start, %v from none", warm.Report.MeanIterations(), first.Report.MeanIterations())
	}
	e.Reset()
	cold, err := e.Gradient(ctx, near, random.Key{Seed: 2, Iter: 41}, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	if floats.Distance(cold.Value, warm.Value, 2) > 1e-6*floats.Norm(cold.Value, 2) {
		t.Errorf("warm %v, cold %v", warm.Value, cold.Value)
	}
	again := newTestEstimator(t, p, psi, Rademacher, nil, 20)
	g, err := again.Gradient(ctx, near, random.Key{Seed: 2, Iter: 41}, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	if !floats.Equal(g.Value, cold.Value) {
		t.Error("after Reset the gradient still depends on history")
	}
	next, err := again.Gradient(ctx, near, random.Key{Seed: 2, Iter: 60}, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	if floats.Distance(next.Value, cold.Value, 2) < 1e-6 {
		t.Error("the probes were not redrawn")
	}
}
