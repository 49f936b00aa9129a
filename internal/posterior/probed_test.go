package posterior

import (
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

// newTestProbed returns estimates whose P was made at ψ.
func newTestProbed(t *testing.T, p *Problem, psi []float64) *Probed {
	t.Helper()
	b := parallel.NewBudget(2)
	op := cmvp.New(p.Inputs, p.Covariance, b)
	op.Set(p.At(psi))
	pre, err := precond.Build(t.Context(), "rpcholesky", op, len(p.Y)/4, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return NewProbed(p, op, solve.New(op, solve.Options{Tolerance: 1e-10, Budget: b}), pre)
}

// With the probes √n·e_j the mean over them is the expectation: it is the evidence of the
// dense oracle and its gradient, also where P was made at other parameters.
func TestProbedIsUnbiased(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	const n = 50
	for _, f := range kernel.Families() {
		p := testProblem(t, f, n, 3, true)
		psi := testPsi(p.Model)
		want, err := NewStored(p, parallel.NewBudget(1)).At(t.Context(), psi, true)
		if err != nil || want == nil {
			t.Fatal("singular", err)
		}
		away := append([]float64(nil), psi...)
		for i := range away {
			away[i] += 0.3
		}
		for _, at := range [][]float64{psi, away} {
			q := newTestProbed(t, p, at)
			q.fill = func(_ random.Key, j int, w []float64) {
				clear(w)
				w[j] = math.Sqrt(n)
			}
			got, err := q.At(t.Context(), psi, random.Key{Seed: 1}, n)
			if err != nil || got == nil {
				t.Fatal(got, err)
			}
			near := func(what string, got, want float64) {
				if math.Abs(got-want) > 1e-5*math.Abs(want)+1e-6 {
					t.Errorf("%v: %s %v, want %v", f, what, got, want)
				}
			}
			near("log|K|", got.LogDet, want.LogDet)
			near("the quadratic form", got.Quad, want.Quad)
			for i := range psi {
				near("the gradient of log|K|", got.LogDetGrad[i], want.LogDetGrad[i])
				near("the gradient of the quadratic form", got.QuadGrad[i], want.QuadGrad[i])
			}
		}
	}
}

// The stated variances are right: over 300 estimates with 4 probes the mean square of the
// error over its stated variance is 1 ± 0.08, and beyond [0.7,1.4] with a probability below
// 1e-4; and no mean is off by more than 4.5 standard errors (7e-6 each). Seeds are fixed.
func TestProbedStatesItsNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	const reps, probes = 300, 4
	p := testProblem(t, kernel.Families()[0], 60, 2, false)
	psi := testPsi(p.Model)
	want, err := NewStored(p, parallel.NewBudget(1)).At(t.Context(), psi, true)
	if err != nil {
		t.Fatal(err)
	}
	q := newTestProbed(t, p, psi)
	d := len(psi)
	errs, vars := make([][]float64, d+1), make([]float64, d+1)
	for r := range reps {
		got, err := q.At(t.Context(), psi, random.Key{Seed: 7, Iter: r}, probes)
		if err != nil || got == nil {
			t.Fatal(got, err)
		}
		for i := range d {
			errs[i] = append(errs[i], got.LogDetGrad[i]-want.LogDetGrad[i])
			vars[i] += got.GradCov.At(i, i) / probes / reps
		}
		errs[d] = append(errs[d], got.LogDet-want.LogDet)
		vars[d] += got.LogDetVar / reps
	}
	for i, e := range errs {
		mean, sd := stat.MeanStdDev(e, nil)
		if vars[i] < 1e-16 { // λ alone: known
			continue
		}
		if z := mean / sd * math.Sqrt(reps); math.Abs(z) > 4.5 {
			t.Errorf("estimate %d is off by %.1f standard errors", i, z)
		}
		if ratio := floats.Dot(e, e) / reps / vars[i]; ratio < 0.7 || ratio > 1.4 {
			t.Errorf("estimate %d has %.2f times the variance that is stated", i, ratio)
		}
	}
}

// The gradient is that of the value with the same probes.
func TestProbedGradientIsOfItsValue(t *testing.T) {
	p := testProblem(t, kernel.Families()[0], 60, 2, true)
	psi := testPsi(p.Model)
	q := newTestProbed(t, p, psi)
	at := func(psi []float64) *Estimated {
		e, err := q.At(t.Context(), psi, random.Key{Seed: 3}, 3)
		if err != nil || e == nil {
			t.Fatal(e, err)
		}
		return e
	}
	e := at(psi)
	const h = 1e-4
	for i := range psi {
		up, down := append([]float64(nil), psi...), append([]float64(nil), psi...)
		up[i], down[i] = psi[i]+h, psi[i]-h
		a, b := at(up), at(down)
		if want := (a.LogDet - b.LogDet) / (2 * h); math.Abs(e.LogDetGrad[i]-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("derivative %d of log|K| is %v, by differences %v", i, e.LogDetGrad[i], want)
		}
		if want := (a.Quad - b.Quad) / (2 * h); math.Abs(e.QuadGrad[i]-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("derivative %d of the quadratic form is %v, by differences %v", i, e.QuadGrad[i], want)
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(e.GradCov, false) || eig.Values(nil)[0] < -1e-9*mat.Trace(e.GradCov) {
		t.Error("the covariance of the gradient has negative eigenvalues")
	}
}
