package cv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// example is a specification of a table of n rows, three rows to a label.
func example(t *testing.T, n int, data string) (*job.Spec, *dataset.Table) {
	t.Helper()
	spec, err := job.ParseString("name: x\ndata: {path: t.csv, target: y" + data + "}\nmodel: {kernel: rbf}\n")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	table := &dataset.Table{Target: "y", Inputs: []string{"a", "b"}, X: make([][]float64, 2)}
	for i := range n {
		a, b := r.NormFloat64(), r.NormFloat64()
		table.X[0], table.X[1] = append(table.X[0], a), append(table.X[1], b)
		table.Y, table.Labels = append(table.Y, math.Sin(a)+b+0.3*r.NormFloat64()), append(table.Labels, fmt.Sprint(i/3))
	}
	return spec, table
}

// Each row predicted from all others, at given parameters, is what leave-one-out says, which knows
// nothing of folds: where nothing is standardised the parameters mean the same in every fold.
func TestFoldsOfOneRowAreLeaveOneOut(t *testing.T) {
	const n = 25
	spec, table := example(t, n, ", standardize: false")
	v, err := New(spec, table, Random, "", n)
	if err != nil {
		t.Fatal(err)
	}
	draws := [][]float64{{0, -0.5, -2}, {0.2, -0.8, -1.8}}
	budget := parallel.NewBudget(2)
	predictor := func(d *dataset.Dataset) *predict.Predictor {
		problem, err := spec.Problem(d)
		if err != nil {
			t.Fatal(err)
		}
		p, err := predict.New(predict.FromSpec(spec, problem, draws, budget))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all, err := spec.Dataset(table)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	want, _, err := predictor(all).LeaveOneOut(t.Context(), rows, predict.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for fold := 1; fold <= n; fold++ {
		d, err := v.Dataset(fold)
		if err != nil {
			t.Fatal(err)
		}
		left, numbers := v.LeftOut(fold)
		got, _, err := predictor(d).Predict(t.Context(), d.Standardize([][]float64{left.Row(0)}), predict.Options{Tolerance: 1e-9})
		if err != nil || len(numbers) != 1 {
			t.Fatal(numbers, err)
		}
		row := numbers[0] - 1
		y := table.Y[row]
		if a, b := got.Mixture(0, false).LogDensity(y), want.Mixture(row, false).LogDensity(y); math.Abs(a-b) > 1e-8 {
			t.Errorf("row %d: log density %.12g, leave-one-out says %.12g", row, a, b)
		}
	}
}

func TestFolder(t *testing.T) {
	spec, table := example(t, 30, ", holdout: 0.2")
	held, err := spec.Dataset(table)
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(spec, table, Groups, "station", 4)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if IsFolder(dir) {
		t.Error("an empty folder")
	}
	if err := v.Write(dir); err != nil {
		t.Fatal(err)
	}
	back, err := Read(dir)
	if err != nil || !IsFolder(dir) || back.Column != "station" || len(back.Rows) != 24 {
		t.Fatal(err, back)
	}
	for _, row := range held.HoldoutRows {
		if slices.Contains(back.Rows, row+1) {
			t.Errorf("row %d, which is held out, is in a fold", row+1)
		}
	}
	for fold := 1; fold <= 4; fold++ {
		was, err := v.Dataset(fold)
		is, err2 := back.Dataset(fold)
		if err != nil || err2 != nil || was.SHA256 != is.SHA256 || was.HeldOut != 0 {
			t.Errorf("fold %d: %v, %v", fold, err, err2)
		}
		left, numbers := back.LeftOut(fold)
		for i, number := range numbers {
			if left.Y[i] != table.Y[number-1] || left.X[1][i] != table.X[1][number-1] {
				t.Errorf("row %d is another", number)
			}
		}
		if s := back.FoldSpec(fold); s.Name != fmt.Sprintf("x-fold-%d", fold) || s.Data.Holdout != 0 || s.Validate() != nil {
			t.Errorf("%+v, %v", s, s.Validate())
		}
	}
	long := *v.Spec
	long.Name = strings.Repeat("n", 100)
	if s := (&Validation{Spec: &long, Data: v.Data}).FoldSpec(10); s.Validate() != nil || !strings.HasSuffix(s.Name, "-fold-10") {
		t.Errorf("%s: %v", s.Name, s.Validate())
	}
	if _, _, err := ReadAll(dir); err == nil || !strings.Contains(err.Error(), "has not ended: fold 1 of 4") {
		t.Error(err)
	}
	for _, name := range []string{tableFile, planFile} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s is damaged: %v", name, err)
		}
	}
}

func TestWhatCannotBeCut(t *testing.T) {
	for text, c := range map[string]struct {
		scheme Scheme
		k      int
		change func(*dataset.Table)
	}{
		"31 folds of 30 rows":                    {Random, 31, nil},
		`column "station": 11 folds of 10 group`: {Groups, 11, nil},
		"11 stretches of 10 different times":     {Blocks, 11, nil},
		"11 stretches of 10 different times: e":  {Forecasts, 10, nil},
		`"noon" is neither a number nor a time`:  {Blocks, 2, func(t *dataset.Table) { t.Labels[0] = "noon" }},
		"2 folds of 1 groups":                    {Groups, 0, func(t *dataset.Table) { clear(t.Labels) }},
		`when fold 2 is left out, column "a": all 15 values are 0: leave it out`: {Blocks, 2, func(t *dataset.Table) {
			clear(t.X[0][:15]) // and the second half is left out
		}},
		"what is learnt from when fold 1 is left out: 1 rows of data": {Forecasts, 10, func(t *dataset.Table) { t.Labels[0] = "-1" }},
	} {
		spec, table := example(t, 30, "")
		if c.change != nil {
			c.change(table)
		}
		column := "station"
		if c.scheme == Random {
			column = ""
		}
		if _, err := New(spec, table, c.scheme, column, c.k); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	spec, table := example(t, 27, "")
	for scheme, want := range map[Scheme]int{Random: 10, Groups: 9, Blocks: 9, Forecasts: 8} {
		if v, err := New(spec, table, scheme, "station", 0); err != nil || v.Cut.K != want {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// A fold learns with the offset of its rows, whether a column of the table holds it or events were counted in cells: the
// table that its run is given, read as that run reads it, has the same data.
func TestFoldsHaveOffsets(t *testing.T) {
	dir := t.TempDir()
	var offsets, events strings.Builder
	offsets.WriteString("x,o,y\n")
	events.WriteString("t\n")
	for i := range 24 {
		fmt.Fprintf(&offsets, "%d,%g,%d\n", i, float64(i%5)/4, i*i%7)
		fmt.Fprintln(&events, math.Sqrt(float64(i)+0.5))
	}
	for data, text := range map[string]string{
		"{path: '-', target: y, offset: o}":                         offsets.String(),
		"{path: '-', points: [t], window: {t: [0, 5]}, grid: '12'}": events.String(),
	} {
		spec, err := job.Parse(strings.NewReader("name: x\ndata: "+data+"\nmodel: {likelihood: poisson}\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		table, err := spec.Table(strings.NewReader(text), "", parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		v, err := New(spec, table, Random, "", 3)
		if err == nil {
			err = v.Write(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		back, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []*Validation{v, back} {
			var csv strings.Builder
			if err := of.Learnt(2).WriteCSV(&csv); err != nil {
				t.Fatal(err)
			}
			want, err := v.Dataset(2)
			if err != nil {
				t.Fatal(err)
			}
			got, err := of.FoldSpec(2).Load(t.Context(), strings.NewReader(csv.String()), parallel.NewBudget(1))
			if err != nil || got.D() != 1 || got.RowOffset == nil || got.SHA256 != want.SHA256 {
				t.Errorf("%s: %v, %+v", data, err, got)
			}
		}
	}
}
