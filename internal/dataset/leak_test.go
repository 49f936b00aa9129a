package dataset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Columns that add up to the target are found among others, and noise, or a column that is missing, keeps the target from being a sum.
func TestLeak(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	survey := func(noise float64) []Column {
		var table strings.Builder
		table.WriteString("hour,casual,registered,temp,text,y\n")
		for range 300 {
			casual, registered := r.IntN(40), r.IntN(300)
			fmt.Fprintf(&table, "%d,%d,%d,%v,a,%v\n", r.IntN(24), casual, registered, r.NormFloat64(), float64(casual+registered)+noise*r.NormFloat64())
		}
		columns, _, err := Survey(strings.NewReader(table.String()), "t", "y", DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		return columns
	}
	columns := survey(0)
	if got := Leak(columns, "y"); !slices.Equal(got, []string{"registered", "casual"}) {
		t.Errorf("%v", got)
	}
	if got := Leak(slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return c.Name == "casual" }), "y"); got != nil {
		t.Errorf("without one of them: %v", got)
	}
	for _, target := range []string{"hour", "text", "none"} {
		if got := Leak(columns, target); got != nil {
			t.Errorf("%s: %v", target, got)
		}
	}
	if got := Leak(survey(0.1), "y"); got != nil { // R² = 0.999998
		t.Errorf("with noise: %v", got)
	}
}
