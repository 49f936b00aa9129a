package sampler

import (
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Of few rows and of many, of few parameters and of many: by a factor and from values alone where that is less work for the error that is
// asked for. What an earlier version began by solves goes on by solves, without scouts.
func TestWaysOfManyRows(t *testing.T) {
	climbs := &chains.Stage{Kind: climbStage, Shared: [][]float64{{bySolves, 4}}}
	for _, c := range []struct {
		rows, inputs, params int
		wanted               float64
		begun                *chains.Stage
		many, factor, values bool
	}{
		{3000, 4, 3, 0.05, nil, false, true, false},
		{3000, 4, 3, 0.05, climbs, false, true, false},
		{9568, 4, 3, 0.05, nil, true, true, true},
		{9568, 4, 3, 0.05, climbs, false, false, false},
		{9568, 4, 3, 0.5, nil, true, false, false},
		{9568, 4, 6, 0.05, nil, true, true, false},
		{22_784, 8, 3, 0.05, nil, true, true, true},
		{17_379, 12, 14, 0.05, nil, true, false, false},
		{40_000, 8, 3, 0.01, nil, true, false, false},
	} {
		o := &Auto{Density: autoDensity, Evidence: autoEvidence}
		got := newCosts(Model{Rows: c.rows, Inputs: c.inputs}, c.params, c.wanted, o, c.begun)
		if got.many != c.many || got.values != c.values || got.factor != c.factor {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	for rows, want := range map[int][]int{4000: nil, 8000: {2000}, 9568: {2000, 3189}, 22_784: {2000, 7594}, 100_000: {2000, 8000}} {
		if got := ScoutedRows(rows); !slices.Equal(got, want) {
			t.Errorf("of %d rows %v are scouted, want %v", rows, got, want)
		}
	}
}
