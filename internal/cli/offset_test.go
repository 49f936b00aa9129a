package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
)

const offsetSpec = `
name: off
data: {path: %s, target: y, holdout: 0.2%s}
sampler: {chains: 2, warmup: 15, draws: 20, checkpoint: 5}
solver: {cache: off}
stop: {rhat: 9, ess: 1, max_draws: 20}
`

// A Gaussian posterior with an offset is the one of the targets less the offset, to the last bit, and predictions, scores, loo
// and cross-validation are its own with the offset added.
func TestOffset(t *testing.T) {
	dir := t.TempDir()
	var raw, hand strings.Builder
	raw.WriteString("x,o,y\n")
	hand.WriteString("x,y\n")
	var offsets []float64
	for i := range 45 {
		x, o := float64(i)/9, float64(i*i%23)/3-2
		y := math.Sin(x) + o + float64(i*7919%13)/30
		offsets = append(offsets, o)
		fmt.Fprintf(&raw, "%v,%v,%v\n", x, o, y)
		fmt.Fprintf(&hand, "%v,%v\n", x, y-o)
	}
	rawTable, handTable := write(t, dir, "raw.csv", raw.String()), write(t, dir, "hand.csv", hand.String())
	a, _ := ran(t, dir, "a", fmt.Sprintf(offsetSpec, "raw.csv", ", offset: o"))
	b, _ := ran(t, dir, "b", fmt.Sprintf(offsetSpec, "hand.csv", ""))
	ra, err := report.ReadFolder(a)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := report.ReadFolder(b)
	if err != nil {
		t.Fatal(err)
	}
	if ra.Data.SHA256 != rb.Data.SHA256 || report.DrawsSHA256(ra.Run) != report.DrawsSHA256(rb.Run) {
		t.Fatalf("the data or draws are not those of the targets less the offset: %v, %v", ra.Data, rb.Data)
	}
	if !slices.Contains(ra.Data.Notes, "o is the offset: it is added to what is learnt, in the units of y") {
		t.Errorf("notes %q", ra.Data.Notes)
	}
	// same compares tables: locations differ by the offsets, all else is the same.
	same := func(args ...string) {
		t.Helper()
		x, y := filepath.Join(t.TempDir(), "x.csv"), filepath.Join(t.TempDir(), "y.csv")
		table := map[string]string{a: rawTable, b: handTable}
		for run, out := range map[string]string{a: x, b: y} {
			full := []string{args[0], run, "--out", out, "-q"}
			for _, arg := range args[1:] {
				full = append(full, strings.Replace(arg, "TABLE", table[run], 1))
			}
			good(t, full...)
		}
		with, without := predictions(t, x), predictions(t, y)
		for name := range without {
			for i, want := range without[name] {
				if with["row"] != nil && slices.Contains([]string{"mean", "q2.5", "q50", "q97.5", "target", "path_1", "path_2"}, name) {
					want += offsets[int(with["row"][i])-1]
				}
				if got := with[name][i]; math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
					t.Fatalf("%v: %s of line %d is %v, want %v", args, name, i, got, want)
				}
			}
		}
		if len(with) == 0 || len(with) != len(without) {
			t.Errorf("%v: columns %d and %d", args, len(with), len(without))
		}
	}
	same("predict", "--data", "TABLE")
	same("predict", "--data", "TABLE", "--latent", "--gradient")
	same("predict", "--holdout")
	same("predict", "--data", "TABLE", "--paths", "2", "--noise")
	same("loo")
	same("effects", "x", "--grid", "3", "--draws", "2")
	good(t, "report", a, "--check", "-q", "--draws", "2", "--out", filepath.Join(dir, "r.html"))

	code, _, stderr := ulisse(t, "x,y\n1,2\n", "predict", a, "--data", "-")
	if want := `standard input: line 1: there is no column "o", which is the offset of the rows that were learnt from: add it, as 0 where nothing is known`; code != ExitBadInput || !strings.Contains(stderr, want) {
		t.Errorf("%d: %s", code, stderr)
	}
}

// Counts of known exposures have rates: where the exposure doubles, so does the expected count.
func TestOffsetOfCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("x,exposure,y\n")
	for i := range 40 {
		x, exposure := float64(i)/8, []float64{1, 3, 10, 30}[i*7%4]
		fmt.Fprintf(&table, "%v,%v,%v\n", x, math.Log(exposure), math.Round(exposure*math.Exp(0.7*math.Sin(x))))
	}
	write(t, dir, "t.csv", table.String())
	spec := fmt.Sprintf(offsetSpec, "t.csv", ", offset: exposure") + "model: {likelihood: negative-binomial}\n"
	t.Setenv(client.EnvCoordinators, newLiveCluster(t, "w").address)
	there := filepath.Join(dir, "there")
	if code, _, stderr := ulisse(t, "", "submit", write(t, dir, "s.yaml", spec), "--wait", "--out", there, "-q"); code != 0 {
		t.Fatal(stderr)
	}
	new := write(t, dir, "new.csv", fmt.Sprintf("x,exposure\n2,0\n2,%v\n2,%v\n", math.Log(2), math.Log(20)))
	here := predictions(t, predicted(t, there, new))
	job := predictions(t, predicted(t, "off", new))
	if !slices.Equal(here["mean"], job["mean"]) || !slices.Equal(here["sd"], job["sd"]) {
		t.Errorf("a cluster predicts %v, the folder %v", job, here)
	}
	m, truth := here["mean"], math.Exp(0.7*math.Sin(2))
	if math.Abs(m[1]/m[0]-2) > 1e-9 || math.Abs(m[2]/m[0]-20) > 1e-8 || math.Abs(math.Log(m[0]/truth)) > 0.25 {
		t.Errorf("means %v, and the true rate is %v", m, truth)
	}
	// A rate that is learnt as if all exposures were one is far off: the offset is in the posterior, not in predictions alone.
	blind, _ := ran(t, dir, "blind", strings.Replace(spec, "offset: exposure", "exclude: [exposure]", 1))
	if rate := predictions(t, predicted(t, blind, new))["mean"][0]; rate < 2*truth {
		t.Errorf("without the offset the rate is %v", rate)
	}
	if out := good(t, "predict", "off", "--holdout", "--scores", "-q", "--out", filepath.Join(dir, "h.csv")); !strings.Contains(out, "MLPD") {
		t.Error(out)
	}
}
