package chains

import (
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func sym(p int, v ...float64) *mat.SymDense { return mat.NewSymDense(p, v) }

func TestPool(t *testing.T) {
	chains := [][][]float64{{{1, 2}, {3, 4}}, {{5, 6}, {7, 9}}}
	mean, cov := Pool(chains, sym(2, 1, 0, 0, 1), 4)
	if !floats.EqualApprox(mean, []float64{4, 5.25}, 1e-15) {
		t.Errorf("mean %v", mean)
	}
	// Sample covariance [[20/3, 23/3],[23/3, 107/12]], half and half.
	want := sym(2, (1+20.0/3)/2, 23.0/6, 23.0/6, (1+107.0/12)/2)
	if !mat.EqualApprox(cov, want, 1e-14) {
		t.Errorf("covariance\n%v", mat.Formatted(cov))
	}
}
