package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The tables of generated data are what their specifications generate, as the model
// sees them: others can use the references without this program.
func TestTables(t *testing.T) {
	for _, name := range []string{"eleven", "thirty"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := job.Parse(bytes.NewReader(text), name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := spec.Load(context.Background(), nil, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := spec.Problem(data)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		w := csv.NewWriter(&want)
		row := make([]string, p.Inputs.Dim()+1)
		for k := range row {
			row[k] = "x" + strconv.Itoa(k+1)
		}
		row[len(row)-1] = "y"
		w.Write(row)
		for i, y := range p.Y {
			for k, x := range p.Inputs.Row(i) {
				row[k] = strconv.FormatFloat(x, 'g', -1, 64)
			}
			row[len(row)-1] = strconv.FormatFloat(y, 'g', -1, 64)
			w.Write(row)
		}
		w.Flush()
		if os.Getenv("ULISSE_WRITE") != "" {
			os.WriteFile("testdata/"+name+".csv", want.Bytes(), 0o644)
		}
		if got, err := os.ReadFile("testdata/" + name + ".csv"); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("testdata/%s.csv is not what testdata/%s.yaml generates (%v); it is\n%s", name, name, err, want.String())
		}
	}
}
