package plots

import (
	"math"
	"slices"
	"testing"
)

// Of rows of two kinds, whose classes come as often as is said, groups lie on the diagonal; rejecting the least sure rows leaves those that are right more often.
func TestClassesByHand(t *testing.T) {
	var p [][]float64
	var class []int
	for i := range 20 {
		p = append(p, []float64{0.9, 0.1}, []float64{0.4, 0.6})
		class = append(class, map[bool]int{true: 1, false: 0}[i%10 == 0], map[bool]int{true: 0, false: 1}[i%5 < 2])
	}
	x, y := reliability(0, p, class)
	for i := range x {
		want := 0.4
		if i >= len(x)/2 {
			want = 0.9
		}
		if len(x) != 8 || math.Abs(x[i]-want) > 1e-12 {
			t.Errorf("mean probabilities %v", x)
		}
	}
	if math.Abs(y[0]+y[1]+y[2]+y[3]-1.6) > 1e-12 || math.Abs(y[4]+y[5]+y[6]+y[7]-3.6) > 1e-12 {
		t.Errorf("shares %v", y)
	}
	x, y = rejection(p, class)
	half := slices.IndexFunc(x, func(v float64) bool { return math.Abs(v-0.5) < 1e-12 })
	if last := len(x) - 1; math.Abs(x[last]) > 1e-12 || math.Abs(y[last]-0.75) > 1e-12 || math.Abs(y[half]-0.9) > 1e-12 {
		t.Errorf("of all rows %v are right, of half %v", y[last], y[half])
	}
}
