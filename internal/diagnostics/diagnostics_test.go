package diagnostics

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// fixedDraws are autoregressive chains from a generator that is written out
// here, so that the values below can be recomputed anywhere.
func fixedDraws(chains, n int, rho, shift float64) [][]float64 {
	state := uint64(12345)
	uniform := func() float64 {
		state = state*6364136223846793005 + 1442695040888963407
		return float64(state>>11) / (1 << 53)
	}
	out := make([][]float64, chains)
	for c := range out {
		x := 0.0
		out[c] = make([]float64, n)
		for t := range out[c] {
			e := uniform() + uniform() + uniform() + uniform() - 2
			x = rho*x + e
			out[c][t] = x + shift*float64(c)
		}
	}
	return out
}

type values struct{ rhat, bulk, tail, mean, mcse, mcsesd, psrf, upper float64 }

func compute(chains [][]float64) values {
	v := values{rhat: RHat(chains), bulk: ESSBulk(chains), tail: ESSTail(chains), mean: ESSMean(chains),
		mcse: MCSEMean(chains), mcsesd: MCSESD(chains)}
	v.psrf, v.upper = PSRF(chains)
	return v
}

func (v values) list() []float64 {
	return []float64{v.rhat, v.bulk, v.tail, v.mean, v.mcse, v.mcsesd, v.psrf, v.upper}
}

var valueNames = []string{"rhat", "ess_bulk", "ess_tail", "ess_mean", "mcse_mean", "mcse_sd", "psrf", "psrf upper"}

func check(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6*math.Abs(want[i]) {
			t.Errorf("%s: %s = %.9g, want %.9g", what, valueNames[i], got[i], want[i])
		}
	}
}

var fixedCases = []struct {
	chains, n  int
	rho, shift float64
	want       []float64
}{
	{4, 100, 0, 0, []float64{1.0101862883758013, 338.2370753818551634, 221.3664803032255861, 332.6069537545923822, 0.0331395792919131, 0.0164204087741416, 1.0066986411734347, 1.0257682799462344}},
	{4, 101, 0.5, 0, []float64{1.0540895883564996, 83.7683597369165085, 143.4404326727804175, 86.2215378701884276, 0.0761441581353327, 0.0300070635331950, 1.0388460171340939, 1.1088021591164114}},
	{2, 500, 0.9, 0.3, []float64{1.007391391325580, 67.522993135935323, 108.536721973465319, 67.354909297660839, 0.174986595847686, 0.105045048211502, 1.018343690473993, 1.069685996296426}},
	{4, 50, -0.6, 0, []float64{0.9979799661782948, 460.2059991327961939, 205.1173264580138209, 460.2059991327961939, 0.0365983854559494, 0.0436365534185950, 1.0071921932300634, 1.0268772935479626}},
	{3, 1000, 0.99, 0, []float64{1.212386883359465, 13.401910907306414, 51.057429389133915, 14.383174301441789, 0.889084951836440, 0.352674245279363, 1.114375960770139, 1.353353706620279}},
}

// The values wanted are those that posterior 1.4.0 and coda 0.19-4 print for
// the fixed draws (TestAgainstR -v prints them).
func TestAgainstPosteriorValues(t *testing.T) {
	for _, c := range fixedCases {
		got := compute(fixedDraws(c.chains, c.n, c.rho, c.shift)).list()
		check(t, fmt.Sprintf("%d×%d rho=%v shift=%v", c.chains, c.n, c.rho, c.shift), got, c.want)
	}
}

const rScript = `
suppressMessages({library(posterior); library(coda)})
values <- function(name, m) {
  g <- if (ncol(m) > 1) gelman.diag(mcmc.list(lapply(seq_len(ncol(m)), function(i) mcmc(m[, i]))), autoburnin = FALSE)$psrf else c(NA, NA)
  v <- c(rhat(m), ess_bulk(m), ess_tail(m), ess_mean(m), mcse_mean(m), mcse_sd(m), g)
  cat("values,", name, ",", paste(format(v, digits = 15, trim = TRUE), collapse = ","), "\n", sep = "")
}
args <- commandArgs(TRUE)
if (length(args) == 0) {
  x <- example_draws("eight_schools")
  for (v in variables(x)) {
    m <- extract_variable_matrix(x, v)
    for (c in seq_len(ncol(m))) cat("draws,", v, ",", paste(format(m[, c], digits = 17, trim = TRUE), collapse = ","), "\n", sep = "")
    values(v, m)
  }
} else {
  m <- as.matrix(read.csv(file("stdin"), header = FALSE))
  colnames(m) <- NULL
  values("stdin", m)
}`

func rscript(t *testing.T, stdin string, args ...string) [][]string {
	t.Helper()
	if exec.Command("Rscript", "-e", "library(posterior); library(coda)").Run() != nil {
		t.Skip("needs R with the packages posterior and coda (Debian: r-cran-posterior, r-cran-coda)")
	}
	cmd := exec.Command("Rscript", append([]string{"-e", rScript}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	r := csv.NewReader(bytes.NewReader(out))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func numbers(t *testing.T, fields []string) []float64 {
	t.Helper()
	out := make([]float64, len(fields))
	for i, f := range fields {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = x
	}
	return out
}

// The documented example of posterior/R, eight schools, and our fixed draws,
// against the packages themselves.
func TestAgainstR(t *testing.T) {
	var chains [][]float64
	compared := 0
	for _, row := range rscript(t, "") {
		switch row[0] {
		case "draws":
			chains = append(chains, numbers(t, row[2:]))
		case "values":
			check(t, "eight schools "+row[1], compute(chains).list(), numbers(t, row[2:]))
			chains = nil
			compared++
		}
	}
	if compared != 10 {
		t.Errorf("compared %d variables of eight schools, want 10", compared)
	}
	for _, c := range fixedCases {
		chains := fixedDraws(c.chains, c.n, c.rho, c.shift)
		var in strings.Builder
		for i := range chains[0] {
			for k := range chains {
				if k > 0 {
					in.WriteByte(',')
				}
				in.WriteString(strconv.FormatFloat(chains[k][i], 'g', -1, 64))
			}
			in.WriteByte('\n')
		}
		rows := rscript(t, in.String(), "stdin")
		want := numbers(t, rows[0][2:])
		check(t, fmt.Sprintf("%d×%d rho=%v", c.chains, c.n, c.rho), compute(chains).list(), want)
		if testing.Verbose() {
			t.Logf("{%d, %d, %v, %v, []float64{%s}},", c.chains, c.n, c.rho, c.shift, strings.Join(rows[0][2:], ", "))
		}
	}
}

func TestUndefinedIsNaN(t *testing.T) {
	for name, chains := range map[string][][]float64{
		"too short":  {{1, 2, 3}, {1, 2, 3}},
		"constant":   {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
		"not finite": {{1, 2, math.NaN(), 4}, {1, 2, 3, 4}},
		"empty":      {},
	} {
		for i, v := range compute(chains).list() {
			if !math.IsNaN(v) {
				t.Errorf("%s: %s = %v", name, valueNames[i], v)
			}
		}
	}
}

func TestChainsThatDisagree(t *testing.T) {
	if r := RHat(fixedDraws(4, 200, 0, 5)); r < 2 {
		t.Errorf("R-hat %v of chains five apart", r)
	}
	chains := fixedDraws(4, 200, 0, 0)
	for i := range chains[0] {
		chains[0][i] *= 10 // the same location, another scale
	}
	if r := RHat(chains); r < 1.2 {
		t.Errorf("R-hat %v of chains of different scale", r)
	}
}

func TestAutocorrelation(t *testing.T) {
	rho := Autocorrelation(fixedDraws(1, 20000, 0.8, 0)[0], 5)
	for lag, r := range rho {
		if want := math.Pow(0.8, float64(lag)); math.Abs(r-want) > 0.05 {
			t.Errorf("lag %d: %v, want about %v", lag, r, want)
		}
	}
}
