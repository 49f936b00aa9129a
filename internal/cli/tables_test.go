package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/report"
)

const tableSpec = `
name: people
data: {path: %s, target: y%s}
model: {kernel: "rbf(day) + matern52(temp, temp_missing)"}
sampler: {method: fisher, chains: 2, warmup: 15, draws: 20, checkpoint: 5}
solver: {cache: off}
stop: {rhat: 9, ess: 1, max_draws: 20}
`

// peoplesTable writes a table with a category, dates, gaps and a constant, and the same one as numbers, as one codes it by
// hand. Every tenth row has no target, every seventh no temp.
func peoplesTable(t testing.TB, dir string, n int) (temps []float64) {
	t.Helper()
	var raw, coded strings.Builder
	raw.WriteString("station,day,temp,same,y\n")
	coded.WriteString("day,temp,temp_missing,y\n")
	for i := range n {
		if i%7 != 3 && i%10 != 9 {
			temps = append(temps, float64(i*i%31))
		}
	}
	sorted := slices.Sorted(slices.Values(temps))
	median := (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	for i := range n {
		temp, lacks, text := float64(i*i%31), 0, fmt.Sprint(i*i%31)
		y := fmt.Sprint(math.Sin(float64(i)/9)+float64(i*i%31)/20+float64(i*7919%13)/5, "5")
		if i%7 == 3 {
			temp, lacks, text = median, 1, ""
		}
		day := 41*365 + 10 + i // 2011-01-01 and on
		if i%10 != 9 {
			fmt.Fprintf(&coded, "%d,%v,%d,%s\n", day, temp, lacks, y)
		} else {
			y = "NA"
		}
		fmt.Fprintf(&raw, "%q,2011-%02d-%02d,%s,7,%s\n", []string{"Oslo", "Bern, CH", "Lima"}[i%3], 1+i/31, 1+i%31, text, y)
	}
	write(t, dir, "raw.csv", raw.String())
	write(t, dir, "coded.csv", coded.String())
	return temps
}

// grouped returns a specification whose functions of the day are those of stations.
func grouped(spec string) string {
	return strings.Replace(spec, "rbf(day)", "rbf(day) * hamming(station)", 1)
}

func ran(t testing.TB, dir, name, spec string, more ...string) (out, stderr string) {
	t.Helper()
	out = filepath.Join(dir, name)
	code, _, stderr := ulisse(t, "", append([]string{"run", write(t, dir, name+".yaml", spec), "--out", out, "--quiet"}, more...)...)
	if code != ExitConverged {
		t.Fatalf("%s: code %d: %s", name, code, stderr)
	}
	return out, stderr
}

// A table as people have it gives what the same table gives that was coded by hand, to the last bit of the draws, and
// its rows are predicted alike.
func TestTableAsPeopleHaveIt(t *testing.T) {
	dir := t.TempDir()
	peoplesTable(t, dir, 50)
	raw, stderr := ran(t, dir, "raw", fmt.Sprintf(tableSpec, "raw.csv", ", exclude: [station], dates: {day: days}, missing: impute-median, constant: drop"))
	coded, _ := ran(t, dir, "coded", fmt.Sprintf(tableSpec, "coded.csv", ", inputs: [day, temp, temp_missing]"))
	a, err := report.ReadFolder(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := report.ReadFolder(coded)
	if err != nil {
		t.Fatal(err)
	}
	if a.Data.SHA256 != b.Data.SHA256 || report.DrawsSHA256(a.Run) != report.DrawsSHA256(b.Run) {
		t.Errorf("the data or draws are not those of the table that was coded by hand: %v, %v", a.Data, b.Data)
	}
	text, err := os.ReadFile(filepath.Join(raw, "summary.txt"))
	for _, want := range []string{"data: 5 of 50 rows have no y and are not learnt from: ulisse predict --data predicts the rows of a table, these too\n",
		"data: same is 7 in all rows that are learnt from: it is left out\n", "data: day is in days since 1970-01-01 00:00 UTC\n", " values are missing in the rows that are learnt from; their median, "} {
		if err != nil || !strings.Contains(string(text), want) || !strings.Contains(stderr+string(text), want) {
			t.Errorf("%q is not in the summary:\n%s", want, text)
		}
	}
	pa, pb := filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv")
	new := write(t, dir, "new.csv", "temp,day,y\n,2011-01-20,\n5,2011-02-03 12:00,1.5\n")
	temp := a.Data.Imputed[1].Median
	newCoded := write(t, dir, "new-coded.csv", fmt.Sprintf("temp_missing,temp,day\n1,%v,%d\n0,5,%v\n", temp, 14975+19, 14975+33.5))
	for _, args := range [][]string{{raw, "--data", new, "--out", pa}, {coded, "--data", newCoded, "--out", pb}} {
		if code, _, stderr := ulisse(t, "", append([]string{"predict", "-q"}, args...)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	x, y := predictions(t, pa), predictions(t, pb)
	if !slices.Equal(x["mean"], y["mean"]) || !slices.Equal(x["sd"], y["sd"]) || !math.IsNaN(x["target"][0]) || x["target"][1] != 1.5 || !math.IsNaN(x["crps"][0]) || math.IsNaN(x["crps"][1]) {
		t.Errorf("predictions are\n%v\nof the coded table\n%v", x, y)
	}
	// All rows of the table, also those without a target, whose numbers are those of the file.
	code, stdout, stderr := ulisse(t, "", "predict", "-q", raw, "--data", filepath.Join(dir, "raw.csv"), "--scores", "--json", "--out", pa)
	if code != 0 || !strings.Contains(stdout, `"rows": 45`) || len(predictions(t, pa)["row"]) != 50 {
		t.Errorf("%d: %s %s", code, stdout, stderr)
	}
}

// A category goes through everything that walks over inputs.
func TestCategory(t *testing.T) {
	dir := t.TempDir()
	peoplesTable(t, dir, 50)
	spec := grouped(fmt.Sprintf(tableSpec, "raw.csv", ", categories: [station], dates: {day: days}, missing: impute-median, constant: drop, holdout: 0.2"))
	out, _ := ran(t, dir, "out", spec)
	told := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := ulisse(t, "", args...)
		if code != 0 {
			t.Fatalf("%v: code %d: %s", args, code, stderr)
		}
		return stdout
	}
	if text, err := os.ReadFile(filepath.Join(out, "summary.txt")); err != nil || !strings.Contains(string(text), "data: station is a category of 3 levels: \"Bern, CH\", Lima, Oslo\n") {
		t.Errorf("%s", text)
	}
	svg := filepath.Join(dir, "e.svg")
	effects := told("effects", out, "station", "-q", "--draws", "2", "--plot", svg)
	if lines := strings.Split(effects, "\n"); len(lines) != 5 || !strings.HasPrefix(lines[1], "\"Bern, CH\",") || !strings.HasPrefix(lines[3], "Oslo,") {
		t.Errorf("%s", effects)
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), ">Oslo<") {
		t.Errorf("levels are not named in the picture: %v", err)
	}
	two := told("effects", out, "day", "station", "-q", "--draws", "2", "--grid", "3", "--plot", svg)
	if strings.Count(two, "\n") != 10 || !strings.Contains(two, "\n2011-01-") {
		t.Errorf("%s", two)
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), "station = Lima") || !strings.Contains(string(text), ">2011-01-") {
		t.Errorf("dates or levels are not told in the picture: %v", err)
	}
	rows := strings.Split(told("predict", out, "-q", "--holdout"), "\n")
	if len(rows) != 11 {
		t.Errorf("%v", rows)
	}
	for i, row := range strings.Split(told("loo", out, "-q", "--out", "-"), "\n")[1:] { // row 10 of the file has no target
		if strings.HasPrefix(row, "10,") || strings.HasPrefix(row, "50,") {
			t.Errorf("line %d: %s", i, row)
		}
	}
	told("prior", filepath.Join(dir, "out.yaml"), "--plot", svg)
	told("report", out, "--effects", "-q", "--draws", "2", "--out", filepath.Join(dir, "r.html"))
	if text, err := os.ReadFile(filepath.Join(dir, "r.html")); err != nil || !strings.Contains(string(text), ">Oslo<") || !strings.Contains(string(text), ">2011-01-") {
		t.Errorf("the report's effects have no levels or dates: %v", err)
	}
	code, _, stderr := ulisse(t, "station,day,temp\nRome,2011-01-01,1\n", "predict", out, "--data", "-")
	if want := `standard input: line 2, column "station" (field 1): "Rome" is none of the levels, which are "Bern, CH", Lima, Oslo`; code != ExitBadInput || !strings.Contains(stderr, want) {
		t.Errorf("%d: %s", code, stderr)
	}
}

// Folds that lack a level can predict it, and medians are those of the rows that are learnt from.
func TestCrossValidationOfCategories(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	temps := peoplesTable(t, dir, 30)
	spec := write(t, dir, "s.yaml", grouped(fmt.Sprintf(tableSpec, "raw.csv", ", categories: [station], dates: {day: days}, missing: impute-median, constant: drop")))
	out := filepath.Join(dir, "cv")
	if code, _, stderr := ulisse(t, "", "cv", spec, "--group", "station", "--out", out, "-q"); code != 0 && code != ExitConverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	rows := leftOut(t, out)["mean"]
	if _, there := rows[10]; len(rows) != 27 || there {
		t.Errorf("rows %v", rows)
	}
	rec, err := report.ReadFolder(filepath.Join(out, "fold-1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.Spec.Data.Levels["station"]; !slices.Equal(got, []string{"Bern, CH", "Lima", "Oslo"}) || rec.Data.N() == 27 {
		t.Errorf("levels %v of %d rows", got, rec.Data.N())
	}
	whole, err := must(((&source{}).spec([]string{spec}))).Load(t.Context(), nil, parallel.NewBudget(1))
	if err != nil || whole.Imputed[1].Median == rec.Data.Imputed[len(rec.Data.Imputed)-1].Median && len(temps) == rec.Data.N() {
		t.Errorf("%v, %v", whole.Imputed, rec.Data.Imputed)
	}
}
