package calibration

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pcg = "{preconditioner: {kind: rpcholesky}}"

// The ranks of the truth among the draws are uniform for every parameter, and for latent functions of classes. The
// test fails if a chi-squared p-value is below 10⁻⁴: false alarms 19 in 10⁴ of
// sequences of tests, and the seeds are fixed. ULISSE_CALIBRATION sets the number of
// repetitions; the 8 of the usual test see gross errors only.
func TestRanksAreUniform(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: whole runs")
	}
	reps := 8
	if s := os.Getenv("ULISSE_CALIBRATION"); s != "" {
		var err error
		if reps, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]Config{
		"fisher": {Method: "fisher", Thin: 3, N: 80},
		"exact":  {Method: "exact", Thin: 6, N: 80},
		"exact, of a sum": {Method: "exact", Thin: 6, N: 40,
			Model: `{kernel: "a: rbf(t) + b: matern32(x)", priors: {sigma: "lognormal(0,0.5)", lambda: "lognormal(-2,0.5)", tau: "lognormal(-1,0.7)"}}`},
		"elliptical, of classes": {Method: "elliptical", Thin: 5, N: 15, Warmup: 30, Classes: 3, Functions: true,
			Model: `{kernel: rbf(t), likelihood: categorical, priors: {sigma: "lognormal(0,0.5)", tau: "lognormal(-1,0.7)"}}`},
	} {
		c.Solver, c.Reps, c.Kept, c.Seed, c.Cores = pcg, reps, 19, 1, 2
		names, ranks, err := Ranks(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		bins := 4
		if reps >= 100 {
			bins = 10
		}
		for i, param := range names {
			h := Histogram(ranks[i], c.Kept, bins)
			p := PValue(h)
			t.Logf("%s of %s: %v, p = %.3f", param, name, h, p)
			if p < 1e-4 {
				t.Errorf("the ranks of %s are not uniform with %s: %v, p = %v", param, name, h, p)
			}
		}
	}
}

// The chi-squared test accepts uniform ranks and refuses those of draws that
// are too narrow, too wide, or to one side.
func TestPValue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		shift, scale float64
		uniform      bool
	}{"right": {0, 1, true}, "narrow": {0, 0.8, false}, "wide": {0, 1.3, false}, "aside": {0.3, 1, false}} {
		var ranks []int
		for range 1000 {
			truth, rank := r.NormFloat64(), 0
			for range 19 {
				if c.shift+c.scale*r.NormFloat64() < truth {
					rank++
				}
			}
			ranks = append(ranks, rank)
		}
		h := Histogram(ranks, 19, 10)
		if p := PValue(h); (p > 1e-4) != c.uniform {
			t.Errorf("%s: p = %v for %v", name, p, h)
		}
	}
	if lo, hi := Band(100, 10, 0.99); lo < 2 || lo > 4 || hi < 17 || hi > 20 {
		t.Errorf("a bin of mean 10 and sd 3 within %d and %d", lo, hi)
	}
}
