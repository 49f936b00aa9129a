package dataset

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Each event is counted once, in the cell that holds it, and the ends of the window belong to the cells next to them.
func TestBin(t *testing.T) {
	events := &Table{Inputs: []string{"y", "x"}, X: [][]float64{{0, 1, 2, 0.9}, {-1, 1, 0.5, -0.1}}}
	got, err := events.Bin([]Axis{{"x", -1, 1, 4}, {"y", 0, 2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	// x in cells from −1, −0.5, 0, 0.5; y from 0, 1: (x,y) = (−1,0) (1,1) (0.5,2) (−0.1,0.9)
	if want := []float64{1, 0, 1, 0, 0, 0, 0, 2}; !slices.Equal(got.Y, want) {
		t.Errorf("counts %v, want %v", got.Y, want)
	}
	if x, y := got.X[0][2], got.X[1][2]; x != -0.25 || y != 0.5 || got.Inputs[0] != "x" || math.Abs(got.Offset[5]-math.Log(0.5)) > 1e-15 {
		t.Errorf("cell 3 is at %g, %g of %v, offset %g", x, y, got.Inputs, got.Offset[5])
	}
	for _, bad := range []Axis{{"x", -0.9, 1, 4}, {"x", -1, 0.9, 4}} {
		if _, err := events.Bin([]Axis{bad}); err == nil || !strings.Contains(err.Error(), "outside of the window") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Whatever the window and the grid, no event is lost, and each is within half a cell of its cell's centre.
func TestBinKeepsEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lo := rapid.Float64Range(-1e3, 1e3).Draw(rt, "lo")
		a := Axis{"x", lo, lo + rapid.Float64Range(1e-3, 1e3).Draw(rt, "width"), rapid.IntRange(1, 300).Draw(rt, "cells")}
		x := rapid.SliceOfN(rapid.Float64Range(a.Lo, a.Hi), 1, 1).Draw(rt, "x")
		got, err := (&Table{Inputs: []string{"x"}, X: [][]float64{x}}).Bin([]Axis{a})
		if err != nil {
			rt.Fatal(err)
		}
		at := slices.Index(got.Y, 1)
		if width := (a.Hi - a.Lo) / float64(a.Cells); at < 0 || math.Abs(got.X[0][at]-x[0]) > width*(0.5+1e-6)+1e-9 {
			rt.Fatalf("%v is in cell %d of %+v", x, at, a)
		}
	})
}
