package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
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
	if err != nil || provisional != "the normal approximation at the mode" || len(draws) != 1 || len(draws[0]) != provisionalPoints {
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

// The draws of a warm-up that was cut short are what is known, if they are enough and have
// mixed: without the first window, as many of each chain. They are marked, and outlive the folder.
func TestWarmupIsAllThereIs(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, later []int // draws of each chain, by window
		apart        float64
		want         int // draws of each chain that are shown; 0 for the mode's
	}{
		{"mixed", []int{5, 40}, []int{5, 25}, 0, 25},
		{"a third window", []int{5, 15, 12}, []int{5, 15, 10}, 0, 25},
		{"few", []int{5, 9}, []int{5, 9}, 0, 0},
		{"the first window", []int{5}, []int{5}, 0, 0},
		{"apart", []int{5, 40}, []int{5, 40}, 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := testRecord(t, true, 0)
			r := rec.Run
			r.Stopped, r.Phase = &chains.Stop{Reason: chains.MaxTime, Phase: chains.Warmup}, chains.Done
			r.Prepared = &chains.Prepared{Psi: make([]float64, 4), Cov: make([]float64, 16)}
			rnd := rand.New(rand.NewPCG(1, 2))
			sum, n := 0.0, 0.0
			for i := range r.Chains {
				r.Prepared.Cov[5*(i%4)] = 1
				lengths := c.first
				if i == 1 {
					lengths = c.later
				}
				var kept [][]float64
				for w, length := range lengths {
					var window [][]float64
					for range length {
						psi := []float64{rnd.NormFloat64() + c.apart*float64(i), rnd.NormFloat64(), rnd.NormFloat64(), rnd.NormFloat64()}
						window = append(window, psi)
						if w > 0 {
							kept = append(kept, psi)
						}
					}
					r.Chains[i].Windows = append(r.Chains[i].Windows, window)
				}
				for _, psi := range kept[max(0, len(kept)-c.want):] {
					sum, n = sum+psi[1], n+1
				}
			}
			for i := range 4 {
				r.Prepared.Cov[5*i] = 1
			}
			dir := t.TempDir()
			if err := WriteAll(dir, rec, rec.Summary()); err != nil {
				t.Fatal(err)
			}
			back, err := ReadFolder(dir)
			if err != nil {
				t.Fatal(err)
			}
			v := back.Summary().Provisional
			points, from, err := Points(back.Run)
			if err != nil || v == nil {
				t.Fatal(v, err)
			}
			if c.want == 0 {
				if !strings.Contains(v.Note, "at the mode") || from != "the normal approximation at the mode" {
					t.Errorf("%q, %q", v.Note, from)
				}
				return
			}
			note := fmt.Sprintf("%d draws of the warm-up, %d of each chain", c.want*len(r.Chains), c.want)
			if !strings.Contains(v.Note, "provisional: "+note) || from != note || v.Draws != c.want*len(r.Chains) || len(points) != len(r.Chains) || len(points[0]) != c.want || len(points[1]) != c.want {
				t.Errorf("%q, %q, %d points", v.Note, from, len(points[0]))
			}
			for _, p := range v.Parameters {
				if p.Name == "log_tau[1]" && math.Abs(float64(p.Mean)-sum/n) > 1e-12 {
					t.Errorf("the mean is %v, want %v", p.Mean, sum/n)
				}
			}
		})
	}
}

// What is known of the mode of a subset only says so.
func TestModeOfASubset(t *testing.T) {
	rec := testRecord(t, false, 0)
	rec.Run.Plan.Method = "sgld"
	p := rec.Run.Plan.Params()
	rec.Run.Prepared = &chains.Prepared{Psi: make([]float64, p), Cov: make([]float64, p*p), OthersRows: rec.Data.N() - 1}
	for i := range p {
		rec.Run.Prepared.Cov[(p+1)*i] = 0.01
	}
	v := rec.Summary().Provisional
	if want := fmt.Sprintf("at the mode of %d of %d rows", rec.Data.N()-1, rec.Data.N()); v == nil || !strings.Contains(v.Note, want) {
		t.Errorf("%+v", v)
	}
}
