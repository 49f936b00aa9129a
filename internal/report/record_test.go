package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// testRecord is the record of testRun.
func testRecord(t *testing.T, ard bool, draws int) *Record {
	t.Helper()
	s, d, _, r := testRun(ard, draws)
	s.Data.Synthetic = &job.Synthetic{N: 3, D: 2, Sigma: 1, Tau: job.Floats{0.5}, Lambda: 0.1}
	s.Model.ARD = ard
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	d.SHA256 = strings.Repeat("0f", 32)
	r.Prepared = &chains.Prepared{}
	rec := &Record{SpecText: string(text), Data: *d, Run: r, WallSeconds: 1, InstructionSet: "portable"}
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	return rec
}

// A record comes back from its folder to the last bit, but for what only the
// sampler needs; a changed one does not.
func TestReadFolder(t *testing.T) {
	rec := testRecord(t, true, 20)
	rec.Run.Chains[0].Beyond = [][]float64{{1, 2, 3, 4}}
	dir := t.TempDir()
	if IsFolder(dir) {
		t.Error("an empty folder has results")
	}
	if _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), "there are no results in "+dir) {
		t.Errorf("got %v", err)
	}
	if err := WriteAll(dir, rec, rec.Summary()); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFolder(dir)
	if err != nil || !IsFolder(dir) {
		t.Fatal(err)
	}
	for c := range rec.Run.Chains {
		if diff := cmp.Diff(rec.Run.Chains[c].Draws, back.Run.Chains[c].Draws); diff != "" {
			t.Error(diff)
		}
	}
	if back.Run.Chains[0].Beyond != nil || len(rec.Run.Chains[0].Beyond) != 1 {
		t.Error("draws beyond the end were written, or are lost")
	}
	a, _ := json.Marshal(rec.Summary())
	b, _ := json.Marshal(back.Summary())
	if string(a) != string(b) {
		t.Errorf("the summary was\n%s\nand is\n%s", a, b)
	}
	path := filepath.Join(dir, "result.json")
	text, _ := os.ReadFile(path)
	older := string(text[:strings.LastIndex(string(text), `,"checksum"`)]) + "}\n" // has none of its own
	first, _ := json.Marshal(rec.Run.Chains[2].Draws[0][1])
	for what, changed := range map[string]string{
		"it has another checksum":                     strings.Replace(string(text), string(first), "0.25", 1),
		"the draws are not those of its draws_sha256": strings.Replace(older, string(first), "0.25", 1),
		"where the model has":                         strings.Replace(older, "ard: true", "ard: false", 1),
		"there are no draws yet":                      `{"spec": "name: x"}`,
		"unexpected end":                              string(text[:len(text)/2]),
	} {
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
}

// A byte that changes in any file of a run's folder is found: in result.json when it is read, in all by
// sha256sum.
func TestFlippedBytes(t *testing.T) {
	rec := testRecord(t, true, 20)
	dir := t.TempDir()
	if err := WriteAll(dir, rec, rec.Summary()); err != nil {
		t.Fatal(err)
	}
	want, err := ReadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func() error {
		cmd := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
		cmd.Dir = dir
		return cmd.Run()
	}
	_, err = exec.LookPath("sha256sum")
	hasTool := err == nil
	if hasTool && check() != nil {
		t.Error("the sums are not those of the files")
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	listed := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "SHA256SUMS" {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if !strings.Contains(string(sums), "  "+name+"\n") {
			t.Errorf("%s is not in SHA256SUMS", name)
		}
		listed++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		flips := 1
		if name == recordFile {
			flips = 300
		}
		for range flips {
			bad := slices.Clone(text)
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				return err
			}
			if got, err := ReadFolder(dir); err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: a flipped bit is read", name)
			}
		}
		if hasTool && check() == nil {
			t.Errorf("%s: a flipped bit is not found", name)
		}
		return os.WriteFile(path, text, 0o644)
	})
	if err != nil || listed < 10 {
		t.Errorf("%d files, %v", listed, err)
	}
}

// The log of a run that was resumed tells of some iterations twice, and of a
// certificate's, and need not be whole.
func TestStats(t *testing.T) {
	rec := testRecord(t, false, 3)
	r := rec.Run // 7 iterations of warm-up
	s := NewStats(r)
	if s.Known() {
		t.Error("nothing is known")
	}
	for _, line := range []string{
		`{"msg":"gradient","chain":0,"iter":8,"probes":9}`,
		`{"msg":"gradient","chain":1,"iter":7,"probes":9}`,
		`{"msg":"gradient","chain":1,"iter":11,"probes":9}`,
		`{"msg":"gradient","chain":5,"iter":8,"probes":9}`,
		`{"msg":"gradient","chain":1,"iter":8,"probes":4,"solver_iterations":3.5,"residual":1e-7,"unconverged":0,"products":5,"seconds":0.25}`,
		`{"msg":"gradient","chain":1,"iter":10,"probes":4,"solver_iterations":7,"seconds":1}`,
		`{"msg":"gradient","chain":1,"iter":10,"probes":4,"solver_iterations":6,"seconds":2}`,
		`{"msg":"gradient","certificate":true,"chain":1,"iter":8,"probes":9}`,
		`{"msg":"sampling"`,
	} {
		s.Add(r, []byte(line))
	}
	nan := math.NaN()
	for name, want := range map[string][]float64{"probes": {4, nan, 4}, "solver_iterations": {3.5, nan, 6}, "seconds": {0.25, nan, 2}, "residual": {1e-7, nan, 0}} {
		if got := s.X[name][0]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !s.Known() || len(s.X["probes"]) != 4 || s.X[sampler.AcceptanceRate] != nil {
		t.Errorf("%v", s)
	}
	r.Plan.Method = "exact"
	s = NewStats(r)
	s.Add(r, []byte(`{"msg":"step","chain":2,"iter":9,"acceptance":0.5}`))
	s.Add(r, []byte(`{"msg":"step","chain":2,"iter":10,"acceptance":0}`))
	if got := s.X[sampler.AcceptanceRate][1]; fmt.Sprint(got) != fmt.Sprint([]float64{nan, 0.5, 0}) {
		t.Errorf("%v", got)
	}
}

const posteriorScript = `
suppressMessages(library(posterior))
files <- commandArgs(TRUE)
chains <- lapply(files, function(f) as.matrix(read.csv(f, comment.char = "#")))
x <- array(unlist(chains), c(nrow(chains[[1]]), ncol(chains[[1]]), length(chains)), list(NULL, colnames(chains[[1]]), NULL))
d <- as_draws_array(aperm(x, c(1, 3, 2)))
s <- summarise_draws(d, mean, mcse_mean, sd, mad, ~quantile(.x, c(0.05, 0.5, 0.95)), ess_bulk, ess_tail, rhat)
cat(colnames(s), sep = ","); cat("\n")
cat(do.call(paste, c(lapply(s, function(v) if (is.character(v)) v else sprintf("%.17g", as.numeric(v))), sep = ",")), sep = "\n")
`

// The table is that which R's posterior makes of the files that CmdStan's users
// would read, to 1e-9 relative (1e-6 for what rests on normal scores).
func TestSummaryAgainstPosterior(t *testing.T) {
	if exec.Command("Rscript", "-e", "library(posterior)").Run() != nil {
		t.Skip("needs R with the package posterior (Debian: r-cran-posterior)")
	}
	rec := testRecord(t, true, 60)
	for c := range rec.Run.Chains { // chains that do not quite agree
		for i := range rec.Run.Chains[c].Draws {
			rec.Run.Chains[c].Draws[i][1] += 0.02 * float64(c)
		}
	}
	dir := t.TempDir()
	sum := rec.Summary()
	if err := WriteAll(dir, rec, sum); err != nil {
		t.Fatal(err)
	}
	args := []string{"-e", posteriorScript}
	for c := range rec.Run.Chains {
		args = append(args, filepath.Join(dir, "draws", fmt.Sprintf("chain-%d.csv", c+1)))
	}
	out, err := exec.Command("Rscript", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := sum.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || strings.Join(got[0], ",") != "name,Mean,MCSE,StdDev,MAD,5%,50%,95%,ESS_bulk,ESS_tail,ESS_bulk/s,R_hat" {
		t.Fatal(err, got[0])
	}
	if len(want) != len(got) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	quantities := Quantities(rec.Model, &rec.Data)
	for i := 1; i < len(got); i++ {
		perSecond := got[i][10]
		row := append(append([]string{}, got[i][:10]...), got[i][11]) // posterior knows no seconds
		if q := quantities[i-1]; row[0] != q.Name || strings.TrimSpace(want[i][0]) != q.Stan {
			t.Fatalf("row %q, which CmdStan calls %q; want %q", row[0], q.Stan, want[i][0])
		}
		for k := 1; k < len(row); k++ {
			x, y := number(t, row[k]), number(t, want[i][k])
			tolerance := 1e-9
			if k >= 8 || k == 2 {
				tolerance = 1e-6
			}
			if math.Abs(x-y) > tolerance*math.Abs(y) {
				t.Errorf("%s, %s: %v, want %v", row[0], want[0][k], x, y)
			}
		}
		if x, y := number(t, perSecond), number(t, row[8])/8; math.Abs(x-y) > 1e-12*y { // four chains of 2 s
			t.Errorf("%s: ESS %v per second, want %v", row[0], x, y)
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
