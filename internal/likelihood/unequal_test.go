package likelihood

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/stat/distuv"
)

func TestUnequalNoise(t *testing.T) {
	known, weight, level := []float64{0, 0.3, 2}, []float64{1, 4, 0.5}, []int{1, 0, 1}
	for name, x := range map[string]struct {
		u     ByRow
		theta []float64
		want  []float64
	}{
		"known and λ":   {NewUnequal([]string{""}, true).Of(Rows{Known: known}), []float64{0.1}, []float64{0.1, 0.4, 2.1}},
		"known":         {NewUnequal(nil, true).Of(Rows{Known: []float64{1, 2, 3}}), nil, []float64{1, 2, 3}},
		"weights":       {NewUnequal([]string{""}, false).Of(Rows{Weight: weight}), []float64{0.2}, []float64{0.2, 0.05, 0.4}},
		"levels":        {NewUnequal([]string{"s=a", "s=b"}, false).Of(Rows{Level: level}), []float64{0.2, 3}, []float64{3, 0.2, 3}},
		"all of these":  {NewUnequal([]string{"s=a", "s=b"}, true).Of(Rows{known, weight, level}), []float64{0.2, 3}, []float64{3, 0.35, 8}},
		"of some of it": {NewUnequal([]string{""}, true).Of(Rows{Known: known}).Select([]int{2, 0}).(ByRow), []float64{0.1}, []float64{2.1, 0.1}},
	} {
		a := x.u.Augmentation()
		got := a.Noise(x.theta, nil)
		if !slices.EqualFunc(got, x.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-15*(1+b) }) {
			t.Errorf("%s: noise %v, want %v", name, got, x.want)
		}
		if len(x.u.Params()) != len(x.theta) {
			t.Errorf("%s: parameters %v", name, x.u.Params().Names())
		}
		psi := x.u.Params().Sampled(x.theta)
		for p, g := range a.NoiseGradient(x.theta, nil) {
			for i := range g {
				of := func(v float64) float64 {
					at := slices.Clone(psi)
					at[p] = v
					return a.Noise(x.u.Params().Natural(at), nil)[i]
				}
				if want := fd.Derivative(of, psi[p], &fd.Settings{Formula: fd.Central}); math.Abs(g[i]-want) > 1e-6 {
					t.Errorf("%s: derivative of row %d by parameter %d is %v, differences %v", name, i, p, g[i], want)
				}
			}
		}
	}
}

// The distributions are those of the row, with all of its noise.
func TestUnequalPredictsARow(t *testing.T) {
	u := NewUnequal([]string{"s=a", "s=b"}, true).Of(Rows{Known: []float64{0, 0.3}, Weight: []float64{1, 4}, Level: []int{1, 0}})
	row, theta := u.Select([]int{1}), []float64{0.2, 3}
	want := distuv.Normal{Mu: 0.7, Sigma: math.Sqrt(0.5 + 0.3 + 0.05)}
	if got := row.Predict([][]float64{theta}, []float64{0.7}, []float64{0.5}).LogDensity(1); math.Abs(got-want.LogProb(1)) > 1e-14 {
		t.Errorf("log density %v, want %v", got, want.LogProb(1))
	}
	if got, _, _ := row.LogDensity(theta, 1, 0.4); math.Abs(got-distuv.Normal{Mu: 0.4, Sigma: math.Sqrt(0.35)}.LogProb(1)) > 1e-14 {
		t.Errorf("log density given f %v", got)
	}
	z := rand.New(rand.NewPCG(1, 2)).NormFloat64()
	if got := row.Draw(rand.New(rand.NewPCG(1, 2)), theta, 0.7, 0.5); math.Abs(got-(want.Mu+want.Sigma*z)) > 1e-14 {
		t.Errorf("a draw is %v, want %v", got, want.Mu+want.Sigma*z)
	}
	if names := row.Params().Names(); !slices.Equal(names, []string{"lambda[s=a]", "lambda[s=b]"}) {
		t.Errorf("parameters %v", names)
	}
}
