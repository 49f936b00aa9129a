package posterior

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Draws by Matheron's rule have the mean K(K+D)⁻¹z and the covariance K − K(K+D)⁻¹K of dense algebra, for
// noise that differs between rows and targets that are shifted, with a preconditioner on three rows and without: 8 means and 36 covariances within 4.5 standard
// errors each, which fails by chance once in 1,500 seeds.
func TestMatheron(t *testing.T) {
	const n, draws = 8, 4000
	plain := testProblem(t, kernel.RBF, n, 2, false)
	m := plain.Model
	m.Likelihood = heavy{}
	p := NewProblem(m, plain.Inputs, plain.Y)
	for i := range p.State {
		p.State[i] = 0.2 + float64(i%3)
	}
	psi := testPsi(m)
	theta, noise := p.At(psi)
	k, a := mat.NewSymDense(n, nil), mat.NewSymDense(n, nil)
	f := p.Covariance.At(theta)
	for i := range n {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
		}
	}
	a.CopySym(k)
	for i := range n {
		a.SetSym(i, i, a.At(i, i)+noise[i])
	}
	var chol mat.Cholesky
	if !chol.Factorize(a) {
		t.Fatal("singular")
	}
	var x mat.VecDense
	var y, explained mat.Dense
	if err := chol.SolveVecTo(&x, mat.NewVecDense(n, p.Targets())); err != nil {
		t.Fatal(err)
	}
	if err := chol.SolveTo(&y, k); err != nil {
		t.Fatal(err)
	}
	var mean mat.VecDense
	mean.MulVec(k, &x)
	explained.Mul(k, &y)

	op := cmvp.New(p.Inputs, p.Covariance, parallel.NewBudget(1))
	for _, rows := range [][]int{nil, {1, 4, 6}} {
		op.Set(p.At(psi))
		opt := solve.Options{Tolerance: 1e-8}
		if rows != nil {
			pre, err := precond.OnRows(t.Context(), op, rows)
			if err != nil {
				t.Fatal(err)
			}
			opt.Precond = pre
		}
		all := mat.NewDense(draws, n, nil)
		for i := range draws {
			f, key := make([]float64, n), random.Key{Seed: 4, Iter: i}
			normal := func(index int, z []float64) { random.Normal(key.Stream(random.Latent, index), z) }
			if _, err := Matheron(t.Context(), p, op, opt, psi, normal, f, nil); err != nil {
				t.Fatal(err)
			}
			all.SetRow(i, f)
		}
		for i := range n {
			vi := k.At(i, i) - explained.At(i, i)
			if got, want := stat.Mean(mat.Col(nil, i, all), nil), mean.AtVec(i); math.Abs(got-want) > 4.5*math.Sqrt(vi/draws) {
				t.Errorf("on rows %v: mean of row %d is %v, want %v", rows, i, got, want)
			}
			for j := range i + 1 {
				got, want := stat.Covariance(mat.Col(nil, i, all), mat.Col(nil, j, all), nil), k.At(i, j)-explained.At(i, j)
				vj := k.At(j, j) - explained.At(j, j)
				if se := math.Sqrt((vi*vj + want*want) / draws); math.Abs(got-want) > 4.5*se {
					t.Errorf("on rows %v: covariance of rows %d and %d is %v, want %v ± %v", rows, i, j, got, want, se)
				}
			}
		}
	}
}
