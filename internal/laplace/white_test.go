package laplace

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// The density of (ψ,ν) is that of (ψ,f) times the volume element, by dense algebra with all of K: log p(ψ) + log p(y|f) + log N(f|0,K)
// + log|∂f/∂ν| − log N(ν|0,I), of which only the constant is another.
func TestWhiteDensity(t *testing.T) {
	const n = 20
	for name, c := range cases() {
		base := problem(t, c.l, n, c.target)
		m := base.Model
		m.Covariance = kernel.Single(kernel.Matern12, 2, true) // whose factor has all columns
		p := posterior.NewProblem(m, base.Inputs, base.Y)
		psi := make([]float64, p.NumParams())
		w, err := NewWhite(t.Context(), p, psi)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		first := math.NaN()
		for range 3 {
			nu := make([]float64, n)
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
			k, fn := mat.NewSymDense(n, nil), p.Function(psi)
			for i := range n {
				for j := range i + 1 {
					k.SetSym(i, j, fn.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
				}
			}
			var chol mat.Cholesky
			if !chol.Factorize(k) {
				t.Fatal("singular")
			}
			var a mat.VecDense
			if err := chol.SolveVecTo(&a, mat.NewVecDense(n, f)); err != nil {
				t.Fatal(err)
			}
			prior, _ := p.LogPrior(psi)
			want := prior - floats.Dot(f, a.RawVector().Data)/2 - chol.LogDet()/2 + volume + floats.Dot(nu, nu)/2
			_, own := p.Natural(psi)
			for i, y := range p.Y {
				v, _, _ := likelihood.At(p.Likelihood, i).LogDensity(own, y, f[i])
				want += v
			}
			if math.IsNaN(first) {
				first = got - want
			}
			if math.Abs(got-want-first) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: %v, by dense algebra %v, and before they were %v apart", name, got, want, first)
			}
		}
	}
}

// The evidence and its gradient are those of the approximation with a stored K.
func TestWhiteEvidence(t *testing.T) {
	for name, c := range cases() {
		p := problem(t, c.l, 40, c.target)
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.3 * math.Sin(float64(3*i+1))
		}
		w, err := NewEvidence(t.Context(), p, psi)
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(p, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		value, grad, err := w.At(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		want, slope, err := l.At(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(value-want) > 3*whiteError {
			t.Errorf("%s: the evidence is %v, want %v", name, value, want)
		}
		for i := range grad {
			if math.Abs(grad[i]-slope[i]) > 5*whiteError*(1+math.Abs(slope[i])) {
				t.Errorf("%s: derivative %d is %v, want %v", name, i, grad[i], slope[i])
			}
		}
	}
}

// Slices of the Gaussian likelihood, of which the approximation is exact, draw from p(f|y): mean and variance of f at each of 8 rows
// within 4.5 standard errors, which fails by chance once in 9,000 seeds.
func TestWhiteSlices(t *testing.T) {
	const n, draws = 8, 4000
	c := cases()["gaussian"]
	p := problem(t, c.l, n, c.target)
	psi := []float64{0.3, 0.2, -1, -1.5}
	w, err := NewWhite(t.Context(), p, psi)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(p, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Mode(t.Context(), psi)
	if err != nil {
		t.Fatal(err)
	}
	nu, r := make([]float64, n), rand.New(rand.NewPCG(5, 6))
	sum, square := make([]float64, n), make([]float64, n)
	for range draws {
		if err := w.Slice(t.Context(), psi, nu, r); err != nil {
			t.Fatal(err)
		}
		f, _ := w.Function(t.Context(), psi, nu)
		for i, v := range f {
			d := v - m.F[i]
			sum[i], square[i] = sum[i]+d, square[i]+d*d
		}
	}
	// S = K − KRK, R = (K+W⁻¹)⁻¹.
	k, b := mat.NewSymDense(n, nil), mat.NewSymDense(n, nil)
	f := p.Function(psi)
	for i := range n {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
			b.SetSym(i, j, k.At(i, j))
		}
		b.SetSym(i, i, k.At(i, i)+1/m.W[i])
	}
	var chol mat.Cholesky
	var rk, krk mat.Dense
	if !chol.Factorize(b) {
		t.Fatal("singular")
	}
	if err := chol.SolveTo(&rk, k); err != nil {
		t.Fatal(err)
	}
	krk.Mul(k, &rk)
	for i := range n {
		// Slices of a constant density are independent of where they were but for the angle: e's of 2,000 draws.
		v := k.At(i, i) - krk.At(i, i)
		if e := 4.5 * math.Sqrt(v/(draws/2)); math.Abs(sum[i]/draws) > e {
			t.Errorf("f at row %d is off by %v, error %v", i, sum[i]/draws, e/4.5)
		}
		if e := 4.5 * v * math.Sqrt(2./(draws/2)); math.Abs(square[i]/draws-v) > e {
			t.Errorf("the variance of f at row %d is %v, want %v", i, square[i]/draws, v)
		}
	}
}

// Where there is no density it is −∞ and no error; a cancelled context is one.
func TestWhiteOutside(t *testing.T) {
	c := cases()["counts"]
	p := problem(t, c.l, 10, c.target)
	psi := make([]float64, p.NumParams())
	w, err := NewWhite(t.Context(), p, psi)
	if err != nil {
		t.Fatal(err)
	}
	far := append([]float64{800}, psi[1:]...)
	if v, err := w.Density(t.Context(), far, make([]float64, 10)); err != nil || !math.IsInf(v, -1) {
		t.Errorf("%v, %v", v, err)
	}
	e, err := NewEvidence(t.Context(), p, psi)
	if err != nil {
		t.Fatal(err)
	}
	if v, grad, err := e.At(t.Context(), far); err != nil || grad != nil || !math.IsInf(v, -1) {
		t.Errorf("%v, %v, %v", v, grad, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Density(ctx, []float64{0.1, 0, 0, 0}, make([]float64, 10)); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// logVolume returns the log of the volume that the latent function makes of ν, which is linear in it.
func logVolume(t *testing.T, w *White, psi, nu []float64) float64 {
	t.Helper()
	f, err := w.Function(t.Context(), psi, nu)
	if err != nil {
		t.Fatal(err)
	}
	jacobian := mat.NewDense(len(nu), len(nu), nil)
	for j := range nu {
		nu[j]++
		g, _ := w.Function(t.Context(), psi, nu)
		nu[j]--
		floats.Sub(g, f)
		jacobian.SetCol(j, g)
	}
	volume, _ := mat.LogDet(jacobian)
	return volume
}
