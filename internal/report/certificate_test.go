package report

import (
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// drawn returns a run of 4×250 independent normal draws of the seed, those of
// the first parameter moved by shift and those of the second stretched.
func drawn(seed uint64, shift, stretch float64) *chains.Run {
	_, _, _, r := testRun(false, 250)
	for c := range r.Chains {
		for t, psi := range r.Chains[c].Draws {
			random.Normal(random.Key{Seed: seed, Chain: c, Iter: t}.Stream(random.Noise, 0), psi)
			psi[0] += shift
			psi[1] *= stretch
		}
	}
	return r
}

// A certificate finds a shift of 0.4 sd and a stretch of 30 %, by about 8 and 12
// Monte Carlo errors, and finds nothing between equal distributions: 100 of them
// give at most 4 false alarms, of which one is expected (false alarm 4 in 1,000).
func TestCertificate(t *testing.T) {
	_, _, m, _ := testRun(false, 4)
	params, alarms := m.Params, 0
	for seed := range uint64(100) {
		if c := compareRuns(params, drawn(2*seed+10, 0, 1), drawn(2*seed+11, 0, 1)); !c.Agrees {
			alarms++
		}
	}
	if alarms > 4 {
		t.Errorf("%d false alarms in 100", alarms)
	}
	c := compareRuns(params, drawn(1, 0.4, 1), drawn(2, 0, 1))
	if c.Agrees || len(c.Text) != 1 || !strings.Contains(c.Text[0], "the mean of log_sigma is +0.4") {
		t.Errorf("a shift: %q", c.Text)
	}
	c = compareRuns(params, drawn(1, 0, 1.3), drawn(2, 0, 1))
	if c.Agrees || len(c.Text) != 1 || !strings.Contains(c.Text[0], "the sd of log_tau is 1.") {
		t.Errorf("a stretch: %q", c.Text)
	}
	s, d, m, r := testRun(false, 250)
	fast, exact := drawn(1, 0, 1.3), drawn(2, 0, 1)
	exact.Phase = chains.Done
	fast.Certificate, fast.Plan, fast.Prepared = exact, r.Plan, r.Prepared
	sum := Summarize(s, d, m, fast, time.Second, "portable")
	var b strings.Builder
	if err := sum.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "certificate: the sd of log_tau"); n != 2 { // in its table, and as a warning
		t.Errorf("said %d times:\n%s", n, b.String())
	}
	if c = compareRuns(params, drawn(1, 0, 1), chains.New(r.Plan)); c.Agrees {
		t.Error("no draws agree with anything")
	}
}
