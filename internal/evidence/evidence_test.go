package evidence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func data(n, d int) (x, y []float64) {
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(d)))
	x, y = make([]float64, n*d), make([]float64, n)
	for i := range x {
		x[i] = 50 + rnd.NormFloat64() // a centre that has to cancel
	}
	for i := range y {
		y[i] = rnd.NormFloat64()
	}
	return x, y
}

// elements returns the elements of a covariance of one family over data of d inputs, and
// what sets it to the logarithms of σ, τ… and λ.
func elements(f kernel.Family, ard bool, d int, x []float64, b *parallel.Budget) (*cmvp.Elements, func(psi []float64)) {
	c := kernel.Single(f, d, ard)
	e := cmvp.NewElements(kernel.NewInputs(len(x)/d, d, x), c, b)
	return e, func(psi []float64) {
		theta := make([]float64, len(psi))
		for i := range psi {
			theta[i] = math.Exp(psi[i])
		}
		last := len(psi) - 1
		e.Set(c.At(theta[:last]), theta[last:])
	}
}

// gradients returns those with respect to log σ, log τ… and log λ.
func gradients(v *Value, psi []float64) (logDet, quad []float64) {
	lambda := math.Exp(psi[len(psi)-1])
	return append(slices.Clone(v.LogDetGrad), lambda*floats.Sum(v.LogDetNoise)), append(slices.Clone(v.QuadGrad), lambda*floats.Sum(v.QuadNoise))
}

func parameters(p int) []float64 {
	psi := make([]float64, p)
	for i := range psi {
		psi[i] = 0.4 - 0.3*float64(i%4)
	}
	psi[p-1] = -1.5
	return psi
}

// reference returns log|K| and yᵀK⁻¹y by gonum, K element by element.
func reference(f kernel.Family, d int, x, y, psi []float64) (logDet, quad float64) {
	n := len(y)
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			var u float64
			for c := range d {
				dx := x[i*d+c] - x[j*d+c]
				u += math.Exp(psi[1+min(c, len(psi)-3)]) * dx * dx
			}
			k.SetSym(i, j, math.Exp(psi[0])*f.Value(u))
		}
		k.SetSym(i, i, k.At(i, i)+math.Exp(psi[len(psi)-1]))
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return math.NaN(), math.NaN()
	}
	var a mat.VecDense
	if err := chol.SolveVecTo(&a, mat.NewVecDense(n, y)); err != nil {
		return math.NaN(), math.NaN()
	}
	return chol.LogDet(), mat.Dot(&a, mat.NewVecDense(n, y))
}

// Values against gonum's factor of elements computed one by one, gradients against
// finite differences of those.
func TestAgainstGonum(t *testing.T) {
	for _, f := range kernel.Families() {
		for _, ard := range []bool{false, true} {
			for _, n := range []int{1, 5, 11, 40, 300} {
				t.Run(fmt.Sprintf("%v/ard=%v/n=%d", f, ard, n), func(t *testing.T) {
					const d = 3
					b := parallel.NewBudget(2)
					x, y := data(n, d)
					cov, set := elements(f, ard, d, x, b)
					psi := parameters(cov.NumParams() + 1)
					set(psi)
					v, err := New(cov, y, b).At(ctx, true)
					if err != nil {
						t.Fatal(err)
					}
					logDet, quad := reference(f, d, x, y, psi)
					near := func(what string, got, want, tol float64) {
						t.Helper()
						if !(math.Abs(got-want) <= tol*(1+math.Abs(want))) {
							t.Errorf("%s is %v, want %v", what, got, want)
						}
					}
					near("log|K|", v.LogDet, logDet, 1e-11*float64(n))
					near("yᵀK⁻¹y", v.Quad, quad, 1e-11)
					logDetGrad, quadGrad := gradients(v, psi)
					fds := &fd.Settings{Formula: fd.Central, Step: 1e-5}
					for i, want := range fd.Gradient(nil, func(p []float64) float64 { l, _ := reference(f, d, x, y, p); return l }, psi, fds) {
						near(fmt.Sprintf("∂_%d log|K|", i), logDetGrad[i], want, 1e-7)
					}
					for i, want := range fd.Gradient(nil, func(p []float64) float64 { _, q := reference(f, d, x, y, p); return q }, psi, fds) {
						near(fmt.Sprintf("∂_%d yᵀK⁻¹y", i), quadGrad[i], want, 1e-7)
					}
				})
			}
		}
	}
}

// The same bits at any number of threads.
func TestBits(t *testing.T) {
	const n, d = 400, 2
	x, y := data(n, d)
	run := func(cores int) *Value {
		b := parallel.NewBudget(cores)
		cov, set := elements(kernel.Matern32, true, d, x, b)
		set(parameters(4))
		v, err := New(cov, y, b).At(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := fmt.Sprintf("%x", *run(1))
	for _, cores := range []int{2, 5} {
		if got := fmt.Sprintf("%x", *run(cores)); got != want {
			t.Errorf("%d cores: %s, want %s", cores, got, want)
		}
	}
}

func TestSingularAndCancelled(t *testing.T) {
	b := parallel.NewBudget(2)
	x, y := data(300, 1)
	copy(x[7:8], x[3:4]) // twice the same point, without noise
	cov, set := elements(kernel.RBF, false, 1, x, b)
	e := New(cov, y, b)
	set([]float64{0, 0, -200})
	var not *cholesky.NotPositive
	if _, err := e.At(ctx, false); !errors.As(err, &not) {
		t.Errorf("a singular matrix: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	set(parameters(3))
	if _, err := e.At(done, true); err != context.Canceled {
		t.Errorf("a context that is done: %v", err)
	}
}
