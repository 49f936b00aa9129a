package job

import (
	"math"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// A range and a length-scale are in the units of the input, by the formula written out in these.
func TestWarpsInTheUnitsOfInputs(t *testing.T) {
	s, err := ParseString(modelSpec("rbf(warp(year, from=1980, to=2030, a=2, b=0.5), hum, lengthscale=1) + rbf(warp(year, from=1980, to=2030), lengthscale=5)", ""))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Covariance(weather)
	if err != nil {
		t.Fatal(err)
	}
	bend := func(year, a, b float64) float64 {
		u := max(0, min(1, (year-1980)/50))
		return 50 * (1 - math.Pow(1-math.Pow(u, a), b))
	}
	f := c.At([]float64{1.5, 0.7, 0.6, 3})
	for _, year := range []float64{1950, 1980, 1999, 2030, 2100} {
		x := weather.Standardize([][]float64{{year, 3, 1}, {2004, 3, 1}})
		p, q := (bend(year, 2, 0.5)-bend(2004, 2, 0.5))/10, bend(year, 0.6, 3)-bend(2004, 0.6, 3)
		want := 1.5*math.Exp(-p*p/2) + 0.7*math.Exp(-q*q/50)
		if got := f.Value(x.Row(0), x.Row(1)); math.Abs(got-want) > 1e-13 {
			t.Errorf("k(%g, 2004) = %v, want %v", year, got, want)
		}
	}
}

// A range is closed, and no row may be outside.
func TestRowsOutsideOfAWarp(t *testing.T) {
	const table = "x,y\n0.1,3\n0.3,1\n0.7,4\n9.7,1\n"
	for span, want := range map[string]string{
		"from=0.1, to=9.7": "",
		"from=-1, to=1e3":  "",
		"from=0.2, to=9.7": "model.kernel: 1 of 4 rows have x outside of its warp from 0.2 to 9.7, such as 0.1: give a range that all rows are in",
		"from=0.5, to=9":   "3 of 4 rows have x outside",
	} {
		s, err := ParseString("name: warps\ndata: {path: '-', target: y}\nmodel: {kernel: \"rbf(warp(x, " + span + "))\"}\n")
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Load(t.Context(), strings.NewReader(table), parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Problem(d); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", span, err, want)
		}
	}
}
