package predict

import (
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Where all lines cross, nothing is to be learnt: the function is 0 there, alone and beside other points.
func TestWhereLinesCross(t *testing.T) {
	cov, err := kernel.Parse("a*linear(1)", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := exampleOf(cov, 60, 1, 12)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	points := kernel.NewInputs(3, 1, []float64{-1, 0, 2})
	for _, v := range []Variance{Exact, Surface} {
		m, stats, err := p.Predict(t.Context(), points, Options{Tolerance: 1e-8, Latent: true, Variance: v})
		if err != nil || !(stats.Bound < 1e-6) {
			t.Fatal(stats, err)
		}
		mean, sd := m.Mixture(1, true).Moments()
		_, away := m.Mixture(2, true).Moments()
		if mean != 0 || !(sd < 1e-100) || !(away > 0.01) {
			t.Errorf("%s: mean %v, sd %v where lines cross, sd %v away from it", v, mean, sd, away)
		}
	}
	j, stats, err := p.Joint(t.Context(), points, JointOptions{Options: Options{Tolerance: 1e-8, Latent: true}, Covariance: true, Paths: 5})
	if err != nil || math.IsNaN(stats.Bound) {
		t.Fatal(stats, err)
	}
	for _, path := range j.Paths {
		// A path is a line, up to what is added to the diagonal to factorise a matrix of rank one.
		if d := path[2] + 2*path[0]; math.Abs(d) > 1e-2 || math.Abs(path[1]) > 1e-2 {
			t.Errorf("path %v is no line through 0", path)
		}
	}
}
