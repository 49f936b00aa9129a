package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/job"
)

// bike is a table as people have it: names of rows, a date, texts, a constant, gaps, a leak, and names that YAML trips over.
func bike(rows int) string {
	var b strings.Builder
	b.WriteString("date,season,temp,\"wind: km/h, mean\",yr,hum,no,weather,code,gone,leak,cnt\n")
	for i := range rows {
		hum, gone := fmt.Sprint(i%7), ""
		if i == 5 {
			hum = "NA"
		}
		if i < 3 {
			gone = fmt.Sprint(i)
		}
		y := i%11 + i*i%5
		fmt.Fprintf(&b, "%d.2.2011,spring,%d,%d,0,%s,%d,%s,r%d,%s,%d,%d.5\n", i%28+1, i%11, i*i%5, hum, i, []string{"clear", "mist: wet", "rain"}[i%3], i, gone, 2*y, y)
	}
	return b.String()
}

// What init writes is accepted by validate as it stands and runs, says what it leaves out and why, and
// overwrites nothing.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, filepath.Join("data", "bike 2.csv"), bike(40))
	code, _, stderr := ulisse(t, "", "init", "data/bike 2.csv")
	if code != 0 || !strings.Contains(stderr, "wrote bike-2.yaml: target cnt, 7 inputs of 11 other columns, 40 rows; next: ulisse validate bike-2.yaml") {
		t.Fatalf("%d: %s", code, stderr)
	}
	text, err := os.ReadFile("bike-2.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"path: data/bike 2.csv #", "target: cnt # the column to predict: the last that can be; from 0.5 to 14.5, standard deviation 3.",
		"    date: days 2.1.2006 # from 1.2.2011 to 28.2.2011\n",
		"- season # constant: \"spring\"\n", "- yr # constant: 0\n", "- gone # 37 of 40 values are missing\n",
		"- code # text, of which every row has another: a name of the row?\n",
		"- weather # 3 levels, the most common clear (14), mist: wet (13), rain (13)\n",
		"missing: impute-median #", "#   hum: 1 are missing\n",
		"#   no: every row has another value", "#   leak: its correlation with cnt is 1.0000: it is nearly the target",
		"signal_sd: \"halfnormal(3.",
		`kernel: 'rbf(date, temp, "wind: km/h, mean", hum, hum_missing, no, leak) * hamming(weather)'`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	short := strings.NewReplacer("{draws: 500}", "{draws: 8, warmup: 8, chains: 2, checkpoint: 4}", "{rhat: 1.01, ess: 400, max_time: 1h}", "{rhat: 9, ess: 1, max_draws: 8}").Replace(string(text))
	if code, _, stderr := ulisse(t, "", "run", write(t, dir, "short.yaml", short), "--out", "run", "--quiet"); code != ExitConverged && code != ExitUnconverged {
		t.Errorf("run: %d: %s", code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "validate", "bike-2.yaml"); code != 0 || !strings.Contains(stderr, "40 rows, 8 inputs (0 held out)") {
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

// Targets that are two classes get their likelihood, counts a word on it.
func TestInitOfOtherTargets(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,bites,outcome,other\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%g,%d,%s,%d\n", float64(i)*0.37, i*i%7, []string{"sick", "well"}[i*i%3%2], 1+i*i%3%2)
	}
	dir := t.TempDir()
	table := write(t, dir, "t.csv", b.String())
	for target, want := range map[string]string{
		"outcome": "likelihood: bernoulli # the targets are two classes, sick and well;",
		"other":   "likelihood: bernoulli # the targets are two classes, 1 and 2;",
		"bites":   "bites: whole numbers from 0 on: if they are counts, write likelihood: poisson, or negative-binomial where they vary more, under model",
	} {
		out := filepath.Join(dir, target+".yaml")
		good(t, "init", table, "--target", target, "--out", out)
		if text := string(must(os.ReadFile(out))); !strings.Contains(text, want) || strings.Contains(text, "halfnormal") != (target == "bites") {
			t.Errorf("%s: no %q in\n%s", target, want, text)
		}
		good(t, "validate", out)
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
		{[]string{table, "--target", "cntt"}, `there is no column "cntt", which target: names: did you mean cnt?`},
		{[]string{table, "--target", "season"}, `the target season cannot be used: text ("spring")`},
		{[]string{words}, `a target and at least one input are needed, but too few columns can be used (a: text ("x"); to use it name it under data: categories:; b: constant: 1)`},
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

// What describe shows is what one counts by hand.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	table := write(t, dir, "t.csv", "a,k,day,y\n1,u,2011-01-01,2\n2,v\x1b,2011-01-02,4\n4,u,2011-01-03,8.5\n11,u,,22\n")
	got := good(t, "describe", table, "--target", "y")
	want := `4 rows, 4 columns
COLUMN  TYPE      MISSING  DISTINCT  MIN         MEDIAN      MAX         VALUES          CORRELATION
a       integers  0        4         1           3           11          ██ █     █      1.00
k       texts     0        2         -           -           -           u (3), v· (1)   -
day     dates     1        3         2011-01-01  2011-01-02  2011-01-03  █    █    █     0.98
y       numbers   0        4         2           6.25        22          ██ █     █      -
`
	lines := func(s string) (out []string) {
		for _, l := range strings.Split(s, "\n") {
			out = append(out, strings.Join(strings.Fields(l), " "))
		}
		return out
	}
	if a, b := lines(got), lines(want); strings.Join(a[:6], "\n") != strings.Join(b[:6], "\n") || len(a) != 11 || a[6] != "a: its correlation with y is 0.9996: it is nearly the target, leave it out if it is not known before" {
		t.Errorf("%s", got)
	}
	var v struct {
		Rows    int
		Columns []map[string]any
	}
	if err := json.Unmarshal([]byte(good(t, "describe", table, "--json")), &v); err != nil || v.Rows != 4 || len(v.Columns) != 4 || v.Columns[0]["median"] != 3. || v.Columns[0]["correlation"] != nil ||
		v.Columns[2]["max"] != "2011-01-03" || v.Columns[1]["min"] != nil || fmt.Sprint(v.Columns[0]["histogram"]) != "[1 1 0 1 0 0 0 0 0 1]" {
		t.Errorf("%v: %+v", err, v)
	}
	for want, args := range map[string][]string{
		`there is no column "z"`: {table, "--target", "z"},
		"cannot read the data":   {filepath.Join(dir, "none.csv")},
	} {
		if code, _, stderr := ulisse(t, "", append([]string{"describe"}, args...)...); code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d: %s", args, code, stderr)
		}
	}
}

// Columns that add up to the target, as the counts of two kinds of users do, are pointed out.
func TestInitPointsOutSums(t *testing.T) {
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("temp,casual,registered,cnt\n")
	for i := range 60 {
		casual, registered := i*i%17, i*31%101
		fmt.Fprintf(&table, "%d,%d,%d,%d\n", i*7%23, casual, registered, casual+registered)
	}
	path := write(t, dir, "bike.csv", table.String())
	want := "cnt is nothing but a sum of registered, casual, with weights: leave these out if they are not known before it is"
	for _, out := range []string{good(t, "init", path, "--target", "cnt", "-o", "-"), good(t, "describe", path, "--target", "cnt"), good(t, "describe", path, "--target", "cnt", "--json")} {
		if strings.Count(out, want) != 2 || strings.Contains(out, "temp: cnt is") {
			t.Errorf("%s", out)
		}
	}
}

// Of many rows in few inputs init asks for pairs of rows to be passed over.
func TestInitAsksForSparsity(t *testing.T) {
	for rows, want := range map[int]bool{job.SparseRows: true, 100: false} {
		path, table := filepath.Join(t.TempDir(), "roads.csv"), []byte("lon,lat,altitude\n")
		for i := range rows {
			table = fmt.Appendf(table, "%d.5,%d.5,%d\n", i%129, i/129, i*i%1000)
		}
		if err := os.WriteFile(path, table, 0o600); err != nil {
			t.Fatal(err)
		}
		text := good(t, "init", path, "--target", "altitude", "-o", "-")
		if strings.Contains(text, "sparsity: auto") != want {
			t.Errorf("%d rows: %s", rows, text)
		}
	}
}
