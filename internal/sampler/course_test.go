package sampler_test

import (
	"testing"

	"github.com/ulisse-gp/ulisse/internal/accuracy/study"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// What a run is expected to consist of is, to a factor of three, what one on a constructed posterior comes to, and what those on Concrete
// did: 128 evaluations with one length-scale; with one for each input some 1,250 factors beside those of 2,600 proposals (docs/benchmarks.md).
func TestCourseIsThatOfRuns(t *testing.T) {
	m, err := sampler.ByName("auto")
	if err != nil {
		t.Fatal(err)
	}
	course := func(rows, inputs, params int) *sampler.Course {
		p := &chains.Plan{Names: make([]string, params), Chains: 4, Draws: 500}
		return m.(sampler.Stager).Course(sampler.Model{Rows: rows, Inputs: inputs}, &sampler.Options{Section: m.Section()}, p)
	}
	w := study.DefaultWhole
	w.Error = 0
	r, _, err := w.Run(t.Context(), study.Targets()[0], 1, parallel.NewBudget(2)) // of two modes
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plan.Params()
	evaluations, proposals := 0, 0
	for _, s := range r.Stages {
		for _, x := range s.Results {
			if s.Kind == "pilot" || s.Kind == "propose" {
				proposals += len(x) / 2
			} else {
				evaluations += len(x) / (5 + 3*p + p*p)
			}
		}
	}
	for _, c := range []struct {
		rows, inputs, params   int
		evaluations, proposals int // 0 for none that are known
		factor, exact, checked bool
	}{
		{w.Rows, 1, p, evaluations, proposals, true, true, false},
		{1030, 8, 3, 128, 2180, true, false, true},
		{1030, 8, 10, 1250, 2600, true, true, false},
		{100_000, 8, 3, 0, 2180, false, false, true},
	} {
		got := course(c.rows, c.inputs, c.params)
		ev, pr, checked := 0, 0, false
		for _, s := range got.Stages {
			ev, pr, checked = ev+s.Evaluations, pr+s.Proposals, checked || s.Kind == "check"
			if points := s.Evaluations + s.Proposals; s.Items < 1 || s.Items > points || s.Sampling != (s.Kind == "propose") {
				t.Errorf("%d rows: %+v", c.rows, s)
			}
		}
		if c.evaluations > 0 && !within(ev, c.evaluations, 3) || !within(pr, c.proposals, 3) {
			t.Errorf("%d rows: %d evaluations and %d proposals, not %d and %d", c.rows, ev, pr, c.evaluations, c.proposals)
		}
		if got.Factor != c.factor || got.Exact != c.exact || checked != c.checked || (got.Probes > 0) == c.factor || (got.Basis > 0) == c.exact {
			t.Errorf("%d rows: %+v", c.rows, got)
		}
	}
}

func within(a, b int, factor float64) bool {
	return float64(a) <= factor*float64(b) && float64(b) <= factor*float64(a)
}
