package sparse

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func somewhere(m int) []float64 {
	r, v := rand.New(rand.NewPCG(5, 6)), make([]float64, m)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return v
}

// Under normal noise the joint density is SGPR's times that of v given θ, which is normal.
func TestJointOfNormalNoiseIsSGPRTimesANormalDensity(t *testing.T) {
	for _, e := range examples(t, 40) {
		z, f := moved(e.x, 8), e.cov.At(e.theta)
		a := New(SGPR, e.cov, e.x, z, parallel.NewBudget(1))
		bound, err := a.LogDensity(ctx, f, e.noise, e.y)
		if err != nil {
			t.Fatal(err)
		}
		q, err := a.Posterior(ctx, f, e.noise, e.y)
		if err != nil {
			t.Fatal(err)
		}
		v := somewhere(8)
		got, err := a.Joint(ctx, f, normal(e), v)
		if err != nil {
			t.Fatal(err)
		}
		mean, root, logDet := q.Whitened()
		away, white := mat.NewVecDense(8, nil), mat.NewVecDense(8, nil)
		away.SubVec(mat.NewVecDense(8, v), mat.NewVecDense(8, mean))
		if err := white.SolveVec(root.T(), away); err != nil {
			t.Fatal(err)
		}
		if want := bound - 0.5*(mat.Dot(white, white)-logDet+8*math.Log(2*math.Pi)); math.Abs(got.Value-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s: a joint log density of %.10g, want %.10g", e.name, got.Value, want)
		}
	}
}

// Its derivatives are those of differences, by v and, through the factor of K_uu, by the parameters; its value is that of dense algebra.
func TestJointGradientIsThatOfDifferences(t *testing.T) {
	for _, e := range examples(t, 30) {
		z, row, v := moved(e.x, 5), classes(e), somewhere(5)
		a := New(SGPR, e.cov, e.x, z, parallel.NewBudget(2))
		at := func(theta, v []float64) *Joint {
			j, err := a.Joint(ctx, e.cov.At(theta), row, v)
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		if want := denseJoint(e, z, row, v); math.Abs(at(e.theta, v).Value-want) > 1e-6 {
			t.Errorf("%s: %.9g, by dense algebra %.9g", e.name, at(e.theta, v).Value, want)
		}
		j := at(e.theta, v)
		byV := append([]float64(nil), j.V...)
		byTheta, err := j.Theta(ctx)
		if err != nil {
			t.Fatal(err)
		}
		settings := &fd.Settings{Formula: fd.Central, Step: 1e-5}
		close := func(what string, got, want []float64) {
			t.Helper()
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-5*(1+math.Abs(want[i])) {
					t.Errorf("%s: derivative %d by %s is %.9g, differences %.9g", e.name, i, what, got[i], want[i])
				}
			}
		}
		close("v", byV, fd.Gradient(nil, func(v []float64) float64 { return at(e.theta, v).Value }, v, settings))
		byLog := fd.Gradient(nil, func(x []float64) float64 {
			theta := append([]float64(nil), e.theta...)
			for i := range theta {
				theta[i] *= math.Exp(x[i])
			}
			return at(theta, v).Value
		}, make([]float64, len(e.theta)), settings)
		close("θ", byTheta, byLog)
	}
}

func denseJoint(e example, z *kernel.Inputs, row Row, v []float64) float64 {
	f, m := e.cov.At(e.theta), z.Len()
	k := mat.NewSymDense(m, nil)
	kuu := matrix(f, z, z)
	for i := range m {
		for j := i; j < m; j++ {
			k.SetSym(i, j, kuu.At(i, j))
		}
		k.SetSym(i, i, kuu.At(i, i)+Jitter*mat.Trace(kuu)/float64(m))
	}
	var chol mat.Cholesky
	chol.Factorize(k)
	var l mat.TriDense
	chol.LTo(&l)
	var a mat.Dense
	if err := a.Solve(&l, matrix(f, z, e.x)); err != nil {
		panic(err)
	}
	sum := 0.0
	for _, x := range v {
		sum -= 0.5 * (x*x + math.Log(2*math.Pi))
	}
	for i := range e.y {
		col := a.ColView(i)
		value, _, _ := row(i, mat.Dot(col, mat.NewVecDense(m, v)), f.Variance(e.x.Row(i))-mat.Dot(col, col))
		sum += value
	}
	return sum
}
