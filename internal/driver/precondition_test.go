package driver

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// A typical point of N(ψ, H⁻¹) has (x−ψ)ᵀH(x−ψ) = p, and one without a
// positive definite H is the mode.
func TestTypical(t *testing.T) {
	psi := []float64{1, -2, 0.5}
	info := mat.NewSymDense(3, []float64{400, 30, 5, 30, 900, -40, 5, -40, 2500})
	x := typical(psi, info, random.Key{Seed: 3})
	d := mat.NewVecDense(3, nil)
	for i := range psi {
		d.SetVec(i, x[i]-psi[i])
	}
	if q := mat.Inner(d, info, d); math.Abs(q-3) > 1e-9 {
		t.Errorf("squared distance %v, want 3", q)
	}
	if psi[0] != 1 {
		t.Error("the mode was changed")
	}
	info.SetSym(0, 0, -1)
	if x := typical(psi, info, random.Key{Seed: 3}); x[0] != psi[0] || x[2] != psi[2] {
		t.Errorf("got %v", x)
	}
}
