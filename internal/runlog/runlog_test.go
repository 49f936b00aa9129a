package runlog

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is written of an observation is read back whole, whatever its kind: so a
// field that is added to the one and not to the other is found.
func TestRoundTrip(t *testing.T) {
	cost := Observation{Chain: 2, Iter: 31, Rows: 900, Psi: []float64{0.5, -1}, Seconds: 0.25,
		Solves: 5, Iterations: 7.5, Residual: 1e-7, Unconverged: 1, Products: 11, Singles: 7, Pairs: 1e6, PairsRead: 2e5}
	gradient, step := cost, cost
	gradient.Kind, gradient.Gradient, gradient.Probes, gradient.Tolerance = Gradient, []float64{3, 4}, 4, 1e-3
	gradient.Noise, gradient.NoiseBudget, gradient.Drift = 0.8, 0.4, 1.1
	step.Kind, step.Acceptance, step.Correction, step.Certificate = Step, 0.3, 0.9, true
	item := cost
	item.Kind, item.Stage, item.StageKind = Item, 3, "learn"
	trials := Observation{Kind: Trials, Rows: 900, Psi: []float64{0, 0}, Preconditioner: "svd", Rank: 40, Trials: []any{"svd", "fitc"}}
	said := map[string]bool{}
	for _, o := range []Observation{gradient, step, item, trials} {
		got, ok := Parse([]byte(o.Line()))
		if diff := cmp.Diff(o, got); !ok || diff != "" {
			t.Errorf("%s: %s", o.Line(), diff)
		}
		for i := range reflect.TypeOf(o).NumField() {
			if !reflect.ValueOf(o).Field(i).IsZero() {
				said[reflect.TypeOf(o).Field(i).Name] = true
			}
		}
	}
	if n := reflect.TypeFor[Observation]().NumField(); len(said) != n {
		t.Errorf("%d of %d fields are tested", len(said), n)
	}
}

func TestParseRefusesOtherLines(t *testing.T) {
	for _, line := range []string{`{"msg":"started","chain":1}`, `{"msg":"gradient","chain":"x"}`, `nonsense`, ``} {
		if o, ok := Parse([]byte(line)); ok {
			t.Errorf("%q was read as %+v", line, o)
		}
	}
}
