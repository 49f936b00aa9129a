package dataset

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

const noisyTable = "x,sd,w,station,y\n1,0.5,1,A,3\n2,0,2,B,5\n4,2,1,A,1\n7,0.1,4,C,2\n"

var allNoise = &Noise{Column: "sd", Weights: "w", By: "station"}

func readNoise(t *testing.T, text string, sel Select) (*Table, error) {
	t.Helper()
	sel.Target = "y"
	return Read(strings.NewReader(text), "t.csv", sel, DefaultLimits)
}

// Columns of noise are no inputs; what they say reaches the rows in standardised units, and the hash.
func TestNoiseOfRows(t *testing.T) {
	table, err := readNoise(t, noisyTable, Select{Noise: allNoise})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(table.Inputs, []string{"x"}) {
		t.Errorf("inputs %v", table.Inputs)
	}
	d, err := New(table, Options{Standardize: true, Holdout: 0.25, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Noise.Levels, []string{"A", "B", "C"}) {
		t.Errorf("levels %v", d.Noise.Levels)
	}
	for i, row := range d.TrainingRows() {
		was := table.Noise[row]
		if got := math.Sqrt(d.RowNoise.Known[i]) * d.YScale.SD; math.Abs(got-was.Known) > 1e-12 || d.RowNoise.Weight[i] != was.Weight || d.Noise.Levels[d.RowNoise.Level[i]] != was.Level {
			t.Errorf("row %d: %g, %g, %d; the table says %+v", row, got, d.RowNoise.Weight[i], d.RowNoise.Level[i], was)
		}
	}
	if len(d.HoldoutNoise) != 1 || d.HoldoutNoise[0] != table.Noise[d.HoldoutRows[0]] {
		t.Errorf("held out: %+v", d.HoldoutNoise)
	}
	hashes := map[string]bool{d.SHA256: true}
	for _, change := range []func(r *NoiseRow){func(r *NoiseRow) { r.Known += 0.01 }, func(r *NoiseRow) { r.Weight *= 2 }, func(r *NoiseRow) { r.Level = "B" }} {
		other := *table
		other.Noise = slices.Clone(table.Noise)
		change(&other.Noise[d.TrainingRows()[0]])
		e, err := New(&other, Options{Standardize: true, Holdout: 0.25, Seed: 1})
		if err != nil || hashes[e.SHA256] {
			t.Errorf("other noise has the same hash, or %v", err)
		}
		hashes[e.SHA256] = true
	}
	// Variances are in the square of the target's units.
	variances, err := (&Noise{Column: "v", Variance: true}).Rows([]NoiseRow{{Known: 3}}, Scale{SD: 2})
	if err != nil || variances.Known[0] != 0.75 {
		t.Errorf("variances %+v, %v", variances, err)
	}
}

// A table that was written is read as it was; so is one of Parquet.
func TestNoiseOfWrittenTables(t *testing.T) {
	sel := Select{Noise: allNoise}
	table, err := readNoise(t, noisyTable, sel)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := table.Select([]int{0, 1, 2, 3}).WriteCSV(&text); err != nil {
		t.Fatal(err)
	}
	again, err := readNoise(t, text.String(), sel)
	if err != nil || !slices.Equal(again.Noise, table.Noise) || !slices.Equal(again.Inputs, table.Inputs) || !slices.Equal(again.Y, table.Y) {
		t.Errorf("%s\n%v %+v", text.String(), err, again)
	}
	type row struct {
		X       float64 `parquet:"x"`
		SD      float32 `parquet:"sd"`
		W       int32   `parquet:"w"`
		Station string  `parquet:"station"`
		Y       float64 `parquet:"y"`
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[row](&file)
	for i, n := range table.Noise {
		if _, err := w.Write([]row{{table.X[0][i], float32(n.Known), int32(n.Weight), n.Level, table.Y[i]}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err = readNoise(t, file.String(), sel)
	if err != nil || len(again.Noise) != 4 {
		t.Fatal(err)
	}
	for i, n := range again.Noise {
		if n.Known = math.Round(n.Known*10) / 10; n != table.Noise[i] {
			t.Errorf("row %d of Parquet: %+v, want %+v", i, n, table.Noise[i])
		}
	}
}

// What points lack is told; weights may be left out, and the column that rows belong to may be an input.
func TestNoiseOfPoints(t *testing.T) {
	for _, c := range []struct {
		header, lacks string
		noise         []NoiseRow
	}{
		{"x,sd,station,w\n1,2,B,3\n", "", []NoiseRow{{2, 3, "B"}}},
		{"x,sd,station\n1,2,B\n", "", []NoiseRow{{2, 1, "B"}}},
		{"x,station,w\n1,B,3\n", "sd", nil},
		{"x,sd\n1,2\n", "station", nil},
	} {
		table, err := readNoise(t, c.header, Select{Inputs: []string{"x"}, Noise: allNoise, Points: true})
		if err != nil || table.Lacks != c.lacks || !slices.Equal(table.Noise, c.noise) {
			t.Errorf("%q: %v, lacks %q, %+v", c.header, err, table.Lacks, table.Noise)
		}
	}
	numbers := strings.NewReplacer("A", "1", "B", "2", "C", "3").Replace(noisyTable)
	table, err := readNoise(t, numbers, Select{Inputs: []string{"x", "station"}, Noise: allNoise})
	if err != nil || len(table.X) != 2 || table.Noise[3].Level != "3" || table.X[1][3] != 3 {
		t.Errorf("%v, %+v", err, table)
	}
}

func TestBadNoise(t *testing.T) {
	swap := func(old, by string) string { return strings.Replace(noisyTable, old, by, 1) }
	levels := "station,x,y\n"
	for i := range MaxNoiseLevels + 1 {
		levels += strings.Repeat("i", i+1) + "," + strings.Repeat("1", 1+i%5) + ".0," + strings.Repeat("2", 1+i%3) + "\n"
	}
	for name, c := range map[string]struct {
		text string
		sel  Select
		want string
	}{
		"negative":      {swap("0.5", "-0.5"), Select{Noise: allNoise}, `t.csv: row 1: the standard deviation sd is -0.5: it has to be 0 or more`},
		"no weight":     {swap(",4,C", ",0,C"), Select{Noise: allNoise}, `t.csv: row 4: w is 0: it has to be positive`},
		"text":          {swap("0.5", "high"), Select{Noise: allNoise}, `t.csv: line 2, column "sd" (field 2): "high" is not a number`},
		"missing":       {swap("0.5", ""), Select{Noise: allNoise}, `t.csv: line 2, column "sd" (field 2): the value is missing (""): drop the row or fill it in`},
		"missing level": {swap("A", ""), Select{Noise: allNoise}, `t.csv: line 2, column "station" (field 4): the value is missing (""): drop the row or fill it in`},
		"misspelt":      {noisyTable, Select{Noise: &Noise{By: "statoin"}, Exclude: []string{"station"}}, `t.csv: line 1: there is no column "statoin", which noise.by: names: did you mean station?`},
		"no column":     {noisyTable, Select{Noise: &Noise{Weights: "count"}, Exclude: []string{"station"}}, `t.csv: line 1: there is no column "count", which weights: names; the columns are x, sd, w, station, y`},
		"an input":      {noisyTable, Select{Noise: allNoise, Inputs: []string{"x", "sd"}}, `t.csv: line 1: inputs: names "sd", which says what noise the rows have`},
		"many levels":   {levels, Select{Noise: &Noise{By: "station"}}, `column "station" has more than 50 levels: each would have a variance of the noise of its own; put levels together`},
		"bad level":     {swap("A", "A[1]"), Select{Noise: allNoise}, `column "station": the level "A[1]" has to be part of a parameter's name: use at most 100 characters, and no comma, quote or bracket`},
	} {
		table, err := readNoise(t, c.text, c.sel)
		if err == nil {
			_, err = New(table, Options{Standardize: true})
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}
