package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Of a run that has not ended, whose chains are not equally far, everything is told of the draws
// that all have, and it is said that there will be more.
func TestUnequalChains(t *testing.T) {
	rec := testRecord(t, true, 40)
	rec.Run.Stopped, rec.Run.Phase = nil, chains.Sampling
	rec.Run.Chains[1].Draws = rec.Run.Chains[1].Draws[:25]
	whole := len(rec.Run.Chains[0].Draws)
	given := rec.Run
	rec.Origin.State = "failed: chain 2 diverged"
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	if len(given.Chains[0].Draws) != whole {
		t.Error("the run that was given has changed")
	}
	dir := t.TempDir()
	if err := rec.WriteSoFar(dir); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Record{rec, back} {
		var page, table bytes.Buffer
		sum := r.Summary()
		if err := sum.WriteText(&page); err != nil {
			t.Fatal(err)
		}
		text := page.String()
		if err := WriteHTML(&page, r, sum, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := WriteTable(&table, r, nil); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(table.String(), "\n"); n != 1+25*len(given.Chains) {
			t.Errorf("%d lines", n)
		}
		for _, want := range []string{"not ended, failed: chain 2 diverged", "this is what the first 25 draws of each chain say"} {
			if strings.Count(text, want) != 1 || strings.Count(page.String(), want) < 2 {
				t.Errorf("%q is not on both:\n%.2000s", want, page.String())
			}
		}
		// The mean is that of the draws that all chains have.
		mean, n := 0.0, 0.0
		for _, c := range given.Chains {
			for _, psi := range c.Draws[:25] {
				mean, n = mean+psi[0], n+1
			}
		}
		if got := float64(find(t, sum, "log_sigma").Mean); math.Abs(got-mean/n) > 1e-12 {
			t.Errorf("the mean is %v, want %v", got, mean/n)
		}
	}
}

// Before there are draws the summary is the normal approximation at the mode: its moments are those
// that the record has (within 5 standard errors of 4,000 draws), and predictions are from it.
func TestNoDraws(t *testing.T) {
	rec := testRecord(t, true, 0)
	rec.Run.Stopped, rec.Run.Phase = nil, chains.Warmup
	mean, sd := []float64{0.5, -1, -2, -3}, []float64{0.1, 0.2, 0.3, 0.4}
	rec.Run.Prepared = &chains.Prepared{Psi: mean, Cov: make([]float64, 16)}
	for i, s := range sd {
		rec.Run.Prepared.Cov[5*i] = s * s
	}
	sum := rec.Summary()
	if sum.Provisional == nil {
		t.Fatal("nothing is said")
	}
	for _, p := range sum.Provisional.Parameters {
		for i, name := range []string{"log_sigma", "log_tau[1]", "log_tau[2]", "log_lambda"} {
			if p.Name == name && (math.Abs(float64(p.Mean)-mean[i]) > 5*sd[i]/math.Sqrt(4000) || math.Abs(float64(p.SD)/sd[i]-1) > 5/math.Sqrt(8000)) {
				t.Errorf("%+v", p)
			}
		}
	}
	var page bytes.Buffer
	if err := sum.WriteText(&page); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page, rec, sum, time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "provisional: the Laplace approximation at the mode"); n != 2 {
		t.Errorf("%d times\n%.3000s", n, page.String())
	}
	draws, provisional, err := Points(rec.Run)
	if err != nil || !provisional || len(draws) != 1 || len(draws[0]) != provisionalPoints {
		t.Fatal(draws, provisional, err)
	}
	got := 0.0
	for _, psi := range draws[0] {
		got += psi[3] / provisionalPoints
	}
	if math.Abs(got+3) > 5*0.4/math.Sqrt(provisionalPoints) {
		t.Errorf("the mean is %v", got)
	}
}
