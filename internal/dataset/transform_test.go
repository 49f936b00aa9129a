package dataset

import (
	"math"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// Targets are learnt transformed and standardised, held-out ones with what the others decide, and told as
// they were.
func TestTransformedTargets(t *testing.T) {
	table := &Table{Target: "y", Inputs: []string{"x"}, X: [][]float64{nil}}
	for i := range 40 {
		table.X[0], table.Y = append(table.X[0], float64(i)), append(table.Y, 0.02+0.9*math.Pow(float64(i)/39, 3))
	}
	for kind, learnt := range map[string]string{likelihood.None: "y", likelihood.Log: "log(y)", likelihood.Logit: "logit(y)", likelihood.YeoJohnson: "yeo-johnson(y, λ=0)"} {
		d, err := New(table, Options{Standardize: true, Transform: kind, Holdout: 0.25, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if d.Learnt() != learnt {
			t.Errorf("%s is learnt as %s", kind, d.Learnt())
		}
		var sum, square float64
		for i, row := range d.TrainingRows() {
			if got := d.Undo(d.Y[i]); math.Abs(got/table.Y[row]-1) > 1e-12 {
				t.Errorf("%s: row %d is %g, came back as %g", kind, row, table.Y[row], got)
			}
			sum, square = sum+d.Y[i], square+d.Y[i]*d.Y[i]
		}
		if math.Abs(sum) > 1e-10 || math.Abs(square/30-1) > 1e-10 {
			t.Errorf("%s: the targets' mean is %g, their mean square %g", kind, sum/30, square/30)
		}
		for i, row := range d.HoldoutRows {
			if want := d.YScale.Apply(d.Transform.Forward(table.Y[row])); d.HoldoutY[i] != want {
				t.Errorf("%s: held out %g, want %g", kind, d.HoldoutY[i], want)
			}
		}
		if err := d.Check(); err != nil {
			t.Error(err)
		}
	}
	table.Y[3] = -1
	for kind, want := range map[string]string{
		likelihood.Log:   `the target "y" of row 4: -1 has no logarithm: the targets have to be positive`,
		likelihood.Logit: `the target "y" of row 4: -1 has no logit: the targets have to be between 0 and 1`,
	} {
		if _, err := New(table, Options{Standardize: true, Transform: kind}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := (&Info{Rows: 1, InputNames: []string{"x"}, XScale: []Scale{{SD: 1}}, YScale: Scale{SD: 1}, SHA256: strings.Repeat("0", 64),
		Transform: likelihood.Transform{Kind: "cube"}}).Check(); err == nil {
		t.Error("a transform that there is not")
	}
}

// A target's distribution in the user's units is that of the transform's inverse.
func TestToldInUnits(t *testing.T) {
	i := &Info{YScale: Scale{Mean: 1, SD: 0.5}, Transform: likelihood.Transform{Kind: likelihood.Log}}
	p := i.Told(likelihood.Mixture{Mean: []float64{0.2}, SD: []float64{2}})
	mean, _ := p.Moments()
	if want := math.Exp(1 + 0.5*0.2 + 0.5*(0.5*2)*(0.5*2)); math.Abs(mean/want-1) > 1e-12 {
		t.Errorf("the mean is %g, want %g", mean, want)
	}
	if want := math.Exp(1 + 0.5*0.2); math.Abs(p.Quantile(0.5)/want-1) > 1e-12 {
		t.Errorf("the median is %g, want %g", p.Quantile(0.5), want)
	}
}
