package state

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// Every command is read back as it was written, with its time.
func TestCommandsAreReadBack(t *testing.T) {
	stop := encoded(t, chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime, Draws: 3}})
	for _, want := range []Command{
		&Submit{ID: "a", Name: "n", ClientID: "c", Spec: "name: \"n\"\n", Data: "d", Priority: -3, Chains: 2, Notify: &Notify{Webhooks: []string{"https://example.org"}}, Keeps: 7},
		&Loaded{Job: "a", Attempt: 2, Plan: testPlan(), InstructionSet: "avx2"},
		&Report{Job: "a", Chain: 1, Attempt: 3, Events: stop},
		&Decide{Job: "a", Extends: 1, Event: stop[0], DrawsSHA256: "h", Final: &Final{Draws: 3, RHat: 1.5, ESS: 2}},
		&Place{Job: "a", Places: []Move{{Chain: 1, Worker: "w", Group: []string{"x", "y"}}, {Chain: 2}}},
		&Act{Job: "a", Action: Pause},
		&Extend{Job: "a", Draws: 9},
		&Fail{Job: "a", Chain: 1, Attempt: 3, Message: "<&>"},
		&Diagnose{Job: "a", Health: &Health{Status: Stalled, Cause: "c", Message: "m", Since: epoch}},
		&Sent{Notice: 5, To: []string{"x"}, Closed: true},
		&RecordBlob{Blob{SHA256: "x", Size: 3, Stored: epoch, Holders: []string{"c1"}, Namespaces: []string{"lab"}}},
		&ForgetBlob{SHA256: "x"},
		testToken("k", Admin, AllNamespaces),
		&RevokeToken{ID: "k"},
		&SetNamespace{Name: "lab", Quota: Quota{Jobs: 1, Chains: 2, Draws: 3, Bytes: 4}, Fresh: true},
		&DropNamespace{Name: "lab"},
		&SetNodeKey{Key: "secret"},
	} {
		text, err := Encode(epoch, want)
		if err != nil {
			t.Fatal(err)
		}
		at, got, err := decode(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || !at.Equal(epoch) {
			t.Errorf("%s: %v %v\n%s", text, at, err, diff)
		}
	}
}

// Every kind of command has a name of its own.
func TestCommandNames(t *testing.T) {
	if len(names) != len(commands) {
		t.Errorf("%d names for %d commands", len(names), len(commands))
	}
	for name, make := range commands {
		if got := names[reflect.TypeOf(make())]; got != name {
			t.Errorf("%s is called %s", name, got)
		}
	}
}

// What is not exactly one known command is refused.
func TestMalformedCommands(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `{`, `{}`, `{"time":"2026-01-01T00:00:00Z"}`,
		`{"time":"2026-01-01T00:00:00Z","dance":{"job":"a"}}`,
		`{"time":"2026-01-01T00:00:00Z","act":{"job":"a"},"fail":{"job":"a"}}`,
		`{"time":"2026-01-01T00:00:00Z","act":{"job":"a","how":"fast"}}`,
		`{"time":"yesterday","act":{"job":"a"}}`,
		`{"format":"new","act":{"job":"a"}}`,
	} {
		if _, _, err := decode([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A log of the format before, whose events were JSON, leaves the same state as
// the same commands do now. The lines were written by a program of that format.
func TestLogsOfFormatOne(t *testing.T) {
	old, now := newReplica(t), newReplica(t)
	apply := func(line string, c Command) {
		t.Helper()
		if _, err := old.applyText([]byte(line)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if _, err := now.apply(t, time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC), c); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	plan := &chains.Plan{Method: "fisher", Names: []string{"s", "l"}, Chains: 1, Checkpoint: 2, Windows: []int{2}, Draws: 4, MaxDraws: 4}
	prep := &chains.Prepared{Psi: []float64{0.5, -1}, Starts: [][]float64{{0, 0}}, Cov: []float64{1, 0, 0, 1}}
	const at = `{"time":"2026-01-01T00:00:05Z",`
	apply(at+`"submit":{"id":"a","name":"n","spec":"s","chains":1}}`, &Submit{ID: "a", Name: "n", Spec: "s", Chains: 1})
	apply(at+`"place":{"job":"a","places":[{"chain":0,"worker":"w"}]}}`, &Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}}})
	apply(at+`"loaded":{"job":"a","attempt":1,"info":{"rows":3,"held_out":0,"target":"","inputs":null,"input_scales":null,"target_scale":{"mean":0,"sd":0},"sha256":"x"},`+
		`"plan":{"method":"fisher","names":["s","l"],"chains":1,"windows":[2],"checkpoint":2,"draws":4,"max_draws":4,"rhat":0,"ess":0,"max_time":0,"seed":0,"step":0,"probes":0,"max_probes":0,"solver":""},"instruction_set":"avx2"}}`,
		&Loaded{Job: "a", Attempt: 1, Info: &dataset.Info{Rows: 3, SHA256: "x"}, Plan: plan, InstructionSet: "avx2"})
	apply(at+`"report":{"job":"a","chain":0,"attempt":1,"events":[{"prepared":{"psi":[0.5,-1],"starts":[[0,0]],"cov":[1,0,0,1],"asymmetry":0,`+
		`"cost":{"gradients":0,"solves":0,"iterations":0,"products":0,"single_products":0,"pairs":0,"unconverged":0,"seconds":0}}}]}}`,
		&Report{Job: "a", Attempt: 1, Events: encoded(t, chains.Event{Prepared: prep})})
	apply(at+`"decide":{"job":"a","extends":0,"event":{"settings":{"window":0,"c":[1,0,0,1]}}}}`,
		&Decide{Job: "a", Event: encoded(t, chains.Event{Settings: &chains.Settings{C: []float64{1, 0, 0, 1}}})[0]})
	if diff := cmp.Diff(old.dump(t), now.dump(t)); diff != "" {
		t.Error(diff)
	}
	var f Follower
	old.follow(t, &f, "a")
	if f.Run == nil || f.Run.Phase != chains.Warmup || f.Job.Events != 2 || f.Job.Phase != Warmup {
		t.Errorf("%+v %+v", f.Job, f.Run)
	}
}
