package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// An order has each point once, is the same for the same points, and its cells lie in boxes that a cut separates: those of the
// two halves overlap at no more than their border, in one of the inputs.
func TestSpatialOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, d, cell := rapid.IntRange(1, 90).Draw(t, "n"), rapid.IntRange(1, 3).Draw(t, "d"), rapid.IntRange(1, 20).Draw(t, "cell")
		x := rapid.SliceOfN(rapid.Float64Range(-2, 2), n*d, n*d).Draw(t, "x")
		for i := range x {
			if rapid.Bool().Draw(t, "round") {
				x[i] = float64(int(x[i])) // points that are equal
			}
		}
		in, inputs := NewInputs(n, d, x), []int{0, 1, 2}[:d]
		order := in.SpatialOrder(inputs, cell)
		if !slices.Equal(order, in.SpatialOrder(inputs, cell)) {
			t.Fatal("the order is another one the second time")
		}
		arranged, got := in.Arrange(order).Arranged() // panics if a point is missing
		if !slices.Equal(got, order) || !slices.Equal(arranged.Row(n-1), in.Row(order[n-1])) {
			t.Fatal("the arrangement is not that of the order")
		}
		separated(t, arranged, 0, n, cell)
		arranged, _ = in.Arrange(in.SpatialOrder(inputs, 3*cell, cell)).Arranged()
		separated(t, arranged, 0, n, 3*cell)
		for lo := 0; lo < n; lo += 3 * cell {
			separated(t, arranged, lo, min(n, lo+3*cell), cell)
		}
	})
}

// separated fails unless points [lo,hi) are cut at a multiple of cell in one of the inputs, and so on.
func separated(t *rapid.T, in *Inputs, lo, hi, cell int) {
	if hi-lo <= cell {
		return
	}
	cells := (hi - lo + cell - 1) / cell
	mid := lo + (cells+1)/2*cell
	for k := range in.Dim() {
		below, above := in.Row(lo)[k], in.Row(mid)[k]
		for i := lo; i < mid; i++ {
			below = max(below, in.Row(i)[k])
		}
		for i := mid; i < hi; i++ {
			above = min(above, in.Row(i)[k])
		}
		if below <= above {
			separated(t, in, lo, mid, cell)
			separated(t, in, mid, hi, cell)
			return
		}
	}
	t.Fatalf("points %d to %d are not cut at %d", lo, hi, mid)
}

func TestArrangePanics(t *testing.T) {
	in := NewInputs(3, 1, []float64{1, 2, 3})
	for _, order := range [][]int{{0, 1}, {0, 1, 1}, {0, 1, 3}, {0, 1, 2, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v is taken for an order", order)
				}
			}()
			in.Arrange(order)
		}()
	}
	if _, order := in.Arranged(); order != nil {
		t.Error("points have an arrangement of their own")
	}
}

func TestLocal(t *testing.T) {
	for text, want := range map[string]struct {
		inputs     []int
		everywhere bool
	}{
		"a*rbf(1-2:u)": {[]int{0, 1}, true},
		"a*rbf(3:u)+b*periodic(1:v:p:1)*matern12(1:w)":                {[]int{0, 2}, true},
		"a*rbf(3:u)+b*periodic(1:v:p:1)":                              {[]int{2}, false},
		"a*rq(1:u;al)":                                                {nil, false},
		"a*rq(1:u;al)*wendland(2:v)+b*linear(0,1)":                    {[]int{1}, true},
		"a*linear(0,1)":                                               {nil, false},
		"a*warped(rbf(1-2:u);2:p:q:-2:2.5)*cosine(3:=2:2.5)":          {[]int{0, 1}, true},
		"a*rbf(2:u)*linear(0,3)+b*rbf(1:u)*hamming(3:t)+=1*linear(0)": {[]int{0, 1}, true},
	} {
		c, err := Parse(text, 3)
		if err != nil {
			t.Fatal(err)
		}
		if inputs, everywhere := c.Local(); !slices.Equal(inputs, want.inputs) || everywhere != want.everywhere {
			t.Errorf("%s: %v, %v, want %v", text, inputs, everywhere, want)
		}
	}
}

func BenchmarkSpatialOrder(b *testing.B) {
	const n = 100_000
	r, x := rand.New(rand.NewPCG(1, 2)), make([]float64, 3*n)
	for i := range x {
		x[i] = r.Float64()
	}
	in := NewInputs(n, 3, x)
	for b.Loop() {
		in.SpatialOrder([]int{0, 1, 2}, 256)
	}
}
