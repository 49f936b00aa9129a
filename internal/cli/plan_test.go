package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/sizing"
)

// An estimate says that the specification's time is up before, and only then.
func TestPlanAndMaxTime(t *testing.T) {
	for limit, want := range map[time.Duration]bool{0: false, time.Hour: true, 3 * time.Hour: false} {
		var out bytes.Buffer
		a := &App{Stdout: &out}
		if err := a.printEstimate(&driver.Estimate{Gradients: 1, SecondsEstimated: 7200}, limit); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "stop.max_time, "+limit.String()+", would end it before"); got != want {
			t.Errorf("%s: %s", limit, out.String())
		}
		var errs bytes.Buffer
		(&App{Stderr: &errs}).hintTime(&driver.Estimate{Gradients: 1, SecondsEstimated: 7200}, limit)
		if got := strings.Contains(errs.String(), "would take about 2h0m0s, and stop.max_time, "+limit.String()); got != want {
			t.Errorf("%s: %s", limit, errs.String())
		}
	}
}

// A plan for several workers needs neither a cluster nor the table.
func TestPlanOfAGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second")
	}
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("a,y\n")
	for i := range 60 {
		fmt.Fprintf(&table, "%g,%g\n", float64(i)/7, math.Sin(float64(i)))
	}
	write(t, dir, "t.csv", table.String())
	spec := write(t, dir, "s.yaml", "name: s\ndata: {path: t.csv, target: y}\nsampler: {chains: 2, draws: 100, probes: 4}\nsolver: {preconditioner: {kind: rpcholesky, rank: 500}}\n")
	var out, errs bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now}
	args := []string{"plan", spec, "--workers", "6", "--cores", "8", "--network", "1Gbps", "--memory", "6GB", "--rows", "10000000", "--iterations", "12"}
	if code := a.Execute(t.Context(), append(args, "--json")); code != 0 {
		t.Fatal(errs.String())
	}
	p := parse[groupPlan](t, out.String())
	if w := p.Work; w.Rows != 10_000_000 || w.Inputs != 1 || w.Chains != 2 || w.Rank != 500 || w.Columns != 5 || w.Iterations != 12 || p.IterationsFrom != "flag" || w.Draws != 100 {
		t.Errorf("the work: %+v", w)
	}
	if p.Worker.Cores != 8 || p.Worker.Bandwidth != 1.25e8 || p.Worker.Memory != 6e9 {
		t.Errorf("the worker: %+v", p.Worker)
	}
	var workers []int
	for _, r := range p.Rows {
		workers = append(workers, r.Workers)
		if !(r.First > r.Mode && r.Run > r.First && r.Round > 0 && r.CoreHours > 0) || r.Fits { // L alone takes 40 GB
			t.Errorf("%+v", r)
		}
	}
	if want := []int{1, 2, 4, 6, 10, 36, 72, 300}; !slices.Equal(workers, want) || p.Recommended != 0 {
		t.Errorf("plans of %v workers; %d recommended", workers, p.Recommended)
	}
	if !strings.Contains(errs.String(), "measured on 60") {
		t.Errorf("no hint: %s", errs.String())
	}
	out.Reset()
	if err := a.printGroup(&p); err != nil || !strings.Contains(out.String(), "chain's driver's alone") || !strings.Contains(out.String(), "No number of workers has the memory") {
		t.Errorf("%v: %s", err, out.String())
	}
	if strings.Contains(out.String(), "of the pairs of rows are left") {
		t.Errorf("pairs are passed over: %s", out.String())
	}
	p.Work.Near, p.TrialRows = 0.0123, 1024
	out.Reset()
	if err := a.printGroup(&p); err != nil || !strings.Contains(out.String(), "1.23 % of the pairs of rows are left, at the mode of a trial of 1024 rows") {
		t.Errorf("%v: %s", err, out.String())
	}
	named := write(t, dir, "named.yaml", "name: s\ndata: {path: t.csv, target: y}\nmodel: {kernel: rbf(a)}\n")
	errs.Reset()
	if code := a.Execute(t.Context(), []string{"plan", named, "--workers", "2", "--rows", "1000", "--inputs", "1"}); code != ExitBadInput || !strings.Contains(errs.String(), "some rows of one with --data") {
		t.Errorf("an expression without a table: exit %d, %s", code, errs.String())
	}
	for _, bad := range []struct{ flags, says string }{
		{"--cores 4", "give --workers"}, {"--workers 0", "--workers 0"}, {"--workers 2 --network fast", "--network"}, {"--workers 2 --network 10GB", "--network"},
		{"--workers 2 --memory much", "--memory"}, {"--workers 2 --inputs 3", "--rows 0"}, {"--workers 2 --rows 10", "has 60 already"},
		{"--workers 2 --rows 1000 --inputs 3 --data t.csv", "--inputs is for plans without a table"},
		{"--workers 2 --iterations -1", "--iterations"}, {"--workers 2 --cores -1", "--cores -1"},
	} {
		errs.Reset()
		if code := a.Execute(t.Context(), append([]string{"plan", spec}, strings.Fields(bad.flags)...)); code != ExitBadInput || !strings.Contains(errs.String(), bad.says) {
			t.Errorf("%s: exit %d, %s", bad.flags, code, errs.String())
		}
	}
}

// What is worth it is told beside what there is.
func TestAdviceOnWorkers(t *testing.T) {
	rows := []sizing.Row{{Fits: true}}
	for _, x := range []struct {
		p    groupPlan
		says string
	}{
		{groupPlan{Workers: 10, Recommended: 36, Rows: rows}, "all 10 workers; up to 36"},
		{groupPlan{Workers: 10, Recommended: 10, Rows: rows}, "all 10 workers, and no more"},
		{groupPlan{Workers: 10, Recommended: 4, Rows: rows}, "Worth it: 4 workers"},
		{groupPlan{Workers: 10, Rows: []sizing.Row{{}}, Worker: sizing.Worker{Memory: 1}, FittingRank: 70}, "rank 70 would fit"},
	} {
		if got := x.p.advice(); !strings.Contains(got, x.says) {
			t.Errorf("%q says nothing of %q", got, x.says)
		}
	}
}

// Who is told to resume is one for whom that helps.
func TestAdviceAfterFailure(t *testing.T) {
	a := &App{}
	for text, want := range map[string]bool{"chain 4 diverged at iteration 53: use a smaller sampler.step": false, "the disk is full": true} {
		err := a.interrupted(context.Background(), &folder{dir: "out"}, errors.New(text))
		if strings.Contains(err.Error(), "--resume out") != want || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
}
