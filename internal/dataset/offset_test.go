package dataset

import (
	"math"
	"strings"
	"testing"
)

const offsetTable = "x,o,y\n1,0.5,2\n2,-1,9\n3,2,1\n4,0,4\n"

// A transformed target is less the offset in its own units, and is told with it; targets that are not standardised are what
// they are.
func TestOffsetOfTargets(t *testing.T) {
	tab, err := Read(strings.NewReader(offsetTable), "t.csv", Select{Target: "y", Offset: "o"}, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(tab, Options{Standardize: true, Transform: "log", Holdout: 0.25, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d.D() != 1 || d.Offset != "o" || !d.Shifted {
		t.Errorf("%+v", d.Info)
	}
	for i, row := range d.TrainingRows() {
		z := math.Log(tab.Y[row]) - tab.Offset[row]
		if got := d.YScale.Undo(d.Y[i]); math.Abs(got-z) > 1e-14 || math.Abs(d.Observed(i)-tab.Y[row]) > 1e-13 || math.Abs(d.RowOffset[i]*d.YScale.SD-tab.Offset[row]) > 1e-15 {
			t.Errorf("row %d: %v, want %v; observed %v", row, got, z, d.Observed(i))
		}
	}
	if row := d.HoldoutRows[0]; math.Abs(d.ObservedHoldout(0)-tab.Y[row]) > 1e-13 || d.HoldoutOffset[0] != tab.Offset[row] {
		t.Errorf("held out: %v, want %v", d.ObservedHoldout(0), tab.Y[row])
	}
	raw, err := New(tab, Options{Standardize: true, RawTarget: true})
	if err != nil {
		t.Fatal(err)
	}
	if raw.Shifted || raw.Y[1] != 9 || raw.Observed(1) != 9 || raw.RowOffset[1] != -1 {
		t.Errorf("%+v", raw)
	}
	tab.Offset[1] = 7
	other, err := New(tab, Options{Standardize: true, RawTarget: true})
	if err != nil || other.SHA256 == raw.SHA256 {
		t.Errorf("other offsets have the same hash, %v", err)
	}
}

func TestMistakesInOffsets(t *testing.T) {
	for table, want := range map[string]string{
		"x,o,y\n1,,2\n2,1,3\n":                                   `t.csv: line 2, column "o" (field 2): the value is missing ("")`,
		"x,o,y\n1,inf,2\n2,1,3\n":                                `t.csv: line 2, column "o" (field 2): the value is infinite`,
		"x,o,y\n1,log,2\n2,1,3\n":                                `t.csv: line 2, column "o" (field 2): "log" is not a number`,
		"x,of,y\n1,1,2\n2,1,3\n":                                 `t.csv: line 1: there is no column "o", which offset: names; the columns are x, of, y`,
		strings.Replace(offsetTable, "x,o,y", "x,exposure,y", 1): "the columns are x, exposure, y",
	} {
		if _, err := Read(strings.NewReader(table), "t.csv", Select{Target: "y", Offset: "o", Missing: MissingDrop}, DefaultLimits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", table, err)
		}
	}
}
