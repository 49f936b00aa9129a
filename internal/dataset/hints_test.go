package dataset

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// hinted returns the hints for targets.
func hinted(t *testing.T, y []float64, holdout float64) (*Dataset, string) {
	t.Helper()
	x := make([]float64, len(y))
	for i := range x {
		x[i] = float64(i)
	}
	d, err := New(&Table{Target: "y", Inputs: []string{"x"}, X: [][]float64{x}, Y: y}, Options{Standardize: true, Holdout: holdout, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return d, strings.Join(d.Hints(), "\n")
}

func TestHints(t *testing.T) {
	const n = 300
	normal := make([]float64, n)
	random.Normal(random.Key{Seed: 1}.Stream(random.Noise, 0), normal)
	each := func(f func(i int, z float64) float64) []float64 {
		y := make([]float64, n)
		for i, z := range normal {
			y[i] = f(i, z)
		}
		return y
	}
	for name, c := range map[string]struct {
		y    []float64
		want string // "" for no hint
	}{
		"normal":         {normal, ""},
		"lognormal":      {each(func(_ int, z float64) float64 { return math.Exp(z / 2) }), ""},
		"large counts":   {each(func(_ int, z float64) float64 { return math.Round(1e4 + 100*z) }), ""},
		"classes":        {each(func(i int, _ float64) float64 { return float64(i % 2) }), "two values, 0 and 1"},
		"classes, coded": {each(func(i int, _ float64) float64 { return float64(2*(i%2) - 1) }), "two values, -1 and 1"},
		"counts":         {each(func(_ int, z float64) float64 { return math.Floor(z * z) }), "whole numbers from 0 on"},
		"grades":         {each(func(i int, _ float64) float64 { return float64(1 + i%5) }), "few whole numbers only, from 1 to 5"},
		"outliers": {each(func(i int, z float64) float64 {
			if i == 4 || i == 99 {
				return 1e6
			}
			return z
		}), "2 of 300 targets lie more than 10 robust standard deviations from the median"},
	} {
		_, got := hinted(t, c.y, 0)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// Rows are those of the table, whatever is held out before them.
	for _, holdout := range []float64{0, 0.1, 0.5} {
		d, _ := hinted(t, normal, holdout)
		far := n - 1
		for slices.Contains(d.HoldoutRows, far) {
			far--
		}
		y := slices.Clone(normal)
		y[far] = 1e6
		if _, got := hinted(t, y, holdout); !strings.Contains(got, fmt.Sprintf("row %d (1e+06)", far+1)) {
			t.Errorf("holdout %g: %q", holdout, got)
		}
	}
}
