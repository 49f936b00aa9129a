package sampler_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// What every method says of itself hangs together: whatever is added to the registry
// is asked the same.
func TestMethodsAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range sampler.Names() {
		m, err := sampler.ByName(name)
		if err != nil || m.Name() != name || seen[name] {
			t.Fatalf("%q is %v (%v), or there twice", name, m, err)
		}
		seen[name] = true
		n := m.Needs()
		if _, staged := m.(sampler.Stager); !n.Gradients && !n.Joint && !n.Dense && !n.Staged && !n.Inducing || staged != n.Staged {
			t.Errorf("%s steps by nothing, or says that it is staged and is not", name)
		}
		if n.Noise && !n.Gradients || n.MaxStep < n.Step || n.Step < 0 {
			t.Errorf("%s: %+v", name, n)
		}
		if (n.Gradients || n.Search == sampler.ByGradients) && n.Probes == "" {
			t.Errorf("%s has gradients without probes", name)
		}
		if n.Subset < 100 {
			t.Errorf("%s looks for the mode on %d rows first", name, n.Subset)
		}
		if len(m.Statistics()) == 0 && !n.Staged {
			t.Errorf("%s has nothing to say of an iteration", name)
		}
		section := m.Section()
		if section != nil && reflect.TypeOf(section).Kind() != reflect.Pointer {
			t.Errorf("%s: the section is a %T, not a pointer", name, section)
		}
		o := &sampler.Options{Chains: 4, Draws: 500, Checkpoint: 20, Section: section}
		if field, msg := m.Check(o); msg != "" {
			t.Errorf("%s refuses its own defaults: %s: %s", name, field, msg)
		}
		total := 0
		o.Warmup = 37
		for _, w := range m.Windows(o) {
			total += w
		}
		if total != 37 && m.Windows(o) != nil {
			t.Errorf("%s cuts a warm-up of 37 into %v", name, m.Windows(o))
		}
	}
	for _, name := range []string{sampler.Default, sampler.Certifier} {
		if !seen[name] {
			t.Errorf("%q is no method", name)
		}
	}
	if m, _ := sampler.ByName(sampler.Certifier); !m.Needs().Exact {
		t.Error("the method that certifies is not exact")
	}
	if _, err := sampler.ByName("nuts"); err == nil || !strings.Contains(err.Error(), "fisher") {
		t.Errorf("an unknown method: %v", err)
	}
}

// A metric that is not positive definite is an error of the settings or of the
// step, never a panic.
func TestIndefiniteMetric(t *testing.T) {
	for _, name := range sampler.Names() {
		p := chainstest.Plan(name)
		r := chains.New(p)
		prep := chainstest.Prepared(p)
		prep.Cov = []float64{-1, 0, 0, 0, 1, 0, 0, 0, 1}
		if err := r.Apply(chains.Event{Prepared: prep}); err != nil {
			t.Fatal(err)
		}
		e, err := sampler.Adapt(r)
		if err != nil {
			continue
		}
		if err := r.Apply(*e); err != nil {
			t.Fatal(err)
		}
		w, _ := r.Work(1)
		m := sampler.Of(&p)
		o := &sampler.Options{Checkpoint: 20, Section: m.Section()}
		k := &chains.Checkpoint{State: w.Advance.From}
		if _, err := m.Start(nothing{}, o, &p, w.Advance, k); err == nil {
			t.Errorf("%s steps with an indefinite metric", name)
		}
	}
}

// nothing computes nothing.
type nothing struct{ sampler.Env }

func (nothing) Joint() sampler.Joint { return noJoint{} }

type noJoint struct{ sampler.Joint }
