package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/job"
)

// bike is a table as people have it: a date, text, a constant, gaps, and names that YAML trips over.
func bike(rows int) string {
	var b strings.Builder
	b.WriteString("date,season,temp,\"wind: km/h, mean\",yr,hum,no,cnt\n")
	for i := range rows {
		hum := fmt.Sprint(i % 7)
		if i == 5 {
			hum = "NA"
		}
		fmt.Fprintf(&b, "2011-01-%02d,spring,%d,%d,0,%s,%d,%d.5\n", i%28+1, i%11, i*i%5, hum, i, i%11+i*i%5)
	}
	return b.String()
}

// What init writes is accepted by validate as it stands, says what it leaves out and why, and
// overwrites nothing.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, filepath.Join("data", "bike 2.csv"), bike(40))
	code, _, stderr := ulisse(t, "", "init", "data/bike 2.csv")
	if code != 0 || !strings.Contains(stderr, "wrote bike-2.yaml: target cnt, 3 inputs of 7 other columns, 40 rows; next: ulisse validate bike-2.yaml") {
		t.Fatalf("%d: %s", code, stderr)
	}
	text, err := os.ReadFile("bike-2.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"path: data/bike 2.csv #", "target: cnt # the column to predict: the last that can be",
		"- date # dates or times; to use them make numbers of them, such as days since the first (\"2011-01-01\")\n",
		"- season # text (\"spring\"); to use it make a column of 0 and 1 for each value\n",
		"- yr # constant: 0 in all rows\n", "- hum # 1 of 40 values are missing; to use it fill them in, or drop these rows\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if code, _, stderr := ulisse(t, "", "validate", "bike-2.yaml"); code != 0 || !strings.Contains(stderr, "40 rows, 3 inputs (0 held out)") {
		t.Errorf("validate: %d: %s", code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "init", "data/bike 2.csv"); code != ExitBadInput || !strings.Contains(stderr, "there is a file bike-2.yaml: choose another with --out") {
		t.Errorf("twice: %d: %s", code, stderr)
	}

	for _, target := range []string{"temp", "wind: km/h, mean", "no"} {
		out := filepath.Join(dir, "data", target[:2]+".yaml")
		if code, _, stderr := ulisse(t, "", "init", "data/bike 2.csv", "--target", target, "--out", out); code != 0 {
			t.Fatalf("%s: %d: %s", target, code, stderr)
		}
		f, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		s, err := job.Parse(f, out)
		f.Close()
		if err != nil || s.Data.Target != target || s.Data.Path != "bike 2.csv" || s.Name != "bike-2" {
			t.Errorf("%s: %v, %+v", target, err, s)
		}
		if code, _, stderr := ulisse(t, "", "validate", out); code != 0 {
			t.Errorf("%s: validate: %d: %s", target, code, stderr)
		}
	}
	if code, stdout, _ := ulisse(t, "", "init", "data/bike 2.csv", "--out", "-"); code != 0 || stdout != string(text) {
		t.Errorf("on standard output: %d\n%s", code, stdout)
	}
}

func TestInitRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	table := write(t, dir, "bike.csv", bike(40))
	words := write(t, dir, "words.csv", "a,b,y\nx,1,1\ny,1,2\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"none.csv"}, "cannot read the data: open none.csv"},
		{[]string{table, "--target", "cntt"}, `there is no column "cntt": did you mean cnt?`},
		{[]string{table, "--target", "season"}, `the target season cannot be used: text ("spring")`},
		{[]string{words}, `a target and at least one input are needed, but too few columns can be used (a: text ("x"); to use it make a column of 0 and 1 for each value; b: constant: 1 in all rows)`},
		{[]string{dir}, "is a directory"},
	} {
		code, _, stderr := ulisse(t, "", append([]string{"init"}, c.args...)...)
		if code != ExitBadInput || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d: %s", c.args, code, stderr)
		}
	}
	if files, _ := filepath.Glob("*.yaml"); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}
