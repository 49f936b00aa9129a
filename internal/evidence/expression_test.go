package evidence

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// A sum of terms, one of them a product, with a leaf in two terms, and a noise variance
// for each row: values against gonum's factor of elements computed one by one, gradients
// against finite differences of those.
func TestExpressionAgainstGonum(t *testing.T) {
	for _, text := range []string{
		"sigma*rbf(1:a)*matern32(2-3:b)+s2*matern52(1:c,2:e)*periodic(3:=0.3:p:1.5)+s3*rbf(1:a)*linear(0,2:0.4)+s4*linear(1,3)+=2*linear(0)",
		"sigma*rq(1-2:a;al)*hamming(3:b)+s2*rq(1:c,2:e;be)*cosine(1:p:1.5)+s3*wendland(1-2:w)*hamming(3:b)",
		"sigma*coregion(3:0:s:f:A,B,C)*matern52(1-2:a)+s2*coregion(3:1:1:g:A,B,C)*rbf(1:c)",
	} {
		againstGonum(t, text)
	}
}

func againstGonum(t *testing.T, text string) {
	const n, d = 90, 3
	c, err := kernel.Parse(text, d)
	if err != nil {
		t.Fatal(err)
	}
	b := parallel.NewBudget(2)
	x, y := data(n, d)
	for i := 2; i < len(x); i += d { // a category
		if x[i] = math.Round(x[i]); strings.Contains(text, "coregion") {
			x[i] = min(2, math.Abs(x[i])) // from 0
		}
	}
	in := kernel.NewInputs(n, d, x)
	p := len(c.Params())
	at := parameters(p + n)
	for i := range at {
		at[i] = math.Exp(at[i]) // of the covariance, then the noise
	}
	reference := func(at []float64) (logDet, quad float64) {
		f := c.At(at[:p])
		k := mat.NewSymDense(n, nil)
		for i := range n {
			for j := range i + 1 {
				k.SetSym(i, j, f.Value(in.Row(i), in.Row(j)))
			}
			k.SetSym(i, i, k.At(i, i)+at[p+i])
		}
		var chol mat.Cholesky
		if !chol.Factorize(k) {
			t.Fatal("singular")
		}
		var a mat.VecDense
		if err := chol.SolveVecTo(&a, mat.NewVecDense(n, y)); err != nil {
			t.Fatal(err)
		}
		return chol.LogDet(), mat.Dot(&a, mat.NewVecDense(n, y))
	}
	e := cmvp.NewElements(in, c, b)
	e.Set(c.At(at[:p]), at[p:])
	v, err := New(e, y, b).At(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	logDet, quad := reference(at)
	near := func(what string, got, want, tol float64) {
		t.Helper()
		if !(math.Abs(got-want) <= tol*(1+math.Abs(want))) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("log|K|", v.LogDet, logDet, 1e-9)
	near("yᵀK⁻¹y", v.Quad, quad, 1e-9)
	set := &fd.Settings{Formula: fd.Central, Step: 2e-5}
	gotL := append(append([]float64(nil), v.LogDetGrad...), v.LogDetNoise...)
	gotQ := append(append([]float64(nil), v.QuadGrad...), v.QuadNoise...)
	for i, want := range fd.Gradient(nil, func(at []float64) float64 { l, _ := reference(at); return l }, at, set) {
		if i < p { // with respect to the logarithm
			want *= at[i]
		}
		near("a derivative of log|K|", gotL[i], want, 1e-6)
	}
	for i, want := range fd.Gradient(nil, func(at []float64) float64 { _, q := reference(at); return q }, at, set) {
		if i < p {
			want *= at[i]
		}
		near("a derivative of yᵀK⁻¹y", gotQ[i], want, 1e-6)
	}
}
