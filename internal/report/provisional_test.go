package report

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// The weighted draws have the means of the posterior, as a long run of
// Metropolis–Hastings has them (within 5 of its errors and theirs), where those
// of the Laplace approximation are off.
func TestProvisional(t *testing.T) {
	ctx, budget := context.Background(), parallel.NewBudget(2)
	s, err := job.Parse(strings.NewReader(`
name: test
data: {synthetic: {n: 60, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Load(ctx, nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(d)
	if err != nil {
		t.Fatal(err)
	}
	pt, _, err := mode.Dense(ctx, p, budget)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(p.Model.Names(), len(p.Y))
	cov, err := pt.Covariance()
	if err != nil {
		t.Fatal(err)
	}
	prep := &chains.Prepared{Psi: pt.Psi, Cov: chains.Flat(cov)}
	run := chains.New(plan)
	run.Prepared = prep
	laplace, err := NewProvisional(p.Model, &d.Info, run)
	if err != nil || laplace.Corrected {
		t.Fatal(laplace, err)
	}
	dense := posterior.NewDense(p, budget)
	run.Provisional = &chains.Provisional{}
	at, _, err := sampler.Provisional(&plan, prep)
	if err != nil {
		t.Fatal(err)
	}
	for _, psi := range at {
		run.Provisional.LogDensities = append(run.Provisional.LogDensities, dense.LogDensity(psi))
	}
	weighted, err := NewProvisional(p.Model, &d.Info, run)
	if err != nil || !weighted.Corrected || !(*weighted.KHat < trustedKHat) || !strings.Contains(weighted.Note, "right but for chance") {
		t.Fatal(weighted, err)
	}

	density := func(_ context.Context, psi []float64) (float64, error) { return dense.LogDensity(psi), nil }
	kern, err := sgld.NewMetropolis(density, cov, prep.Psi, false)
	if err != nil {
		t.Fatal(err)
	}
	psi := append([]float64(nil), pt.Psi...)
	st, err := kern.Start(ctx, psi)
	if err != nil {
		t.Fatal(err)
	}
	draws := make([][][]float64, len(psi))
	for i := range draws {
		draws[i] = make([][]float64, 1)
	}
	for it := range 5000 {
		if _, _, err := kern.Advance(ctx, psi, &st, random.Key{Seed: 9, Iter: it}.Stream(random.Accept, 0)); err != nil {
			t.Fatal(err)
		}
		for i := range psi {
			draws[i][0] = append(draws[i][0], psi[i])
		}
	}
	off := 0.0 // of Laplace, in sds
	for i := range psi {
		at := len(weighted.Parameters) - len(psi) + i
		w, l := weighted.Parameters[at], laplace.Parameters[at]
		mean, sd := moments(draws[i])
		e := math.Hypot(diagnostics.MCSEMean(draws[i]), sd/math.Sqrt(float64(*weighted.ESS)))
		if math.Abs(float64(w.Mean)-mean) > 5*e || math.Abs(float64(w.SD)/sd-1) > 0.3 {
			t.Errorf("%s: %v ± %v, Metropolis %v ± %v", w.Name, w.Mean, w.SD, mean, sd)
		}
		if !(w.Q5 < w.Q50 && w.Q50 < w.Q95) {
			t.Errorf("%+v", w)
		}
		off = max(off, math.Abs(float64(l.Mean)-mean)/sd)
	}
	if off < 0.1 {
		t.Errorf("the Laplace approximation is right to %v sd: this shows nothing", off)
	}

	dir := t.TempDir()
	if err := weighted.Write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "provisional.txt"))
	if err != nil || !strings.HasPrefix(string(text), "provisional: ") || !strings.Contains(string(text), "noise_sd") || strings.Contains(string(text), "log_") {
		t.Errorf("%s, %v", text, err)
	}
	RemoveProvisional(dir)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v were left", left)
	}
}
