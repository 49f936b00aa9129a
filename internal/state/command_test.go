package state

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Every command is read back as it was written, with its time.
func TestCommandsAreReadBack(t *testing.T) {
	stop := encoded(t, chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime, Draws: 3}})
	for _, want := range []Command{
		&Submit{ID: "a", Name: "n", ClientID: "c", Spec: "name: \"n\"\n", Data: "d", Priority: -3, Chains: 2, Notify: &Notify{Webhooks: []string{"https://example.org"}}, Keeps: 7},
		&Loaded{Job: "a", Attempt: 2, Plan: testPlan(), InstructionSet: "avx2"},
		&Report{Job: "a", Chain: 1, Attempt: 3, Events: stop},
		&Decide{Job: "a", Extends: 1, Event: stop[0], DrawsSHA256: "h", Final: &Final{Draws: 3, RHat: 1.5, ESS: 2, Error: 0.1}},
		&Place{Job: "a", Places: []Move{{Chain: 1, Worker: "w", Group: []string{"x", "y"}}, {Chain: 2}}},
		&Act{Job: "a", Action: Pause},
		&Extend{Job: "a", Draws: 9},
		&Fail{Job: "a", Chain: 1, Attempt: 3, Message: "<&>"},
		&Tick{Jobs: []string{"a", "b"}},
		&Remark{Job: "a", Kind: NoteWrong, Text: "x"},
		&Annotate{Job: "a", Note: new(string), Tag: []string{"x"}, Untag: []string{"y"}},
		&Diagnose{Job: "a", Health: &Health{Status: Stalled, Cause: "c", Message: "m", Since: epoch}},
		&Sent{Notice: 5, To: []string{"x"}, Closed: true},
		&RecordBlob{Blob{SHA256: "x", Size: 3, Stored: epoch, Holders: []string{"c1"}, Namespaces: []string{"lab"}}},
		&ForgetBlob{SHA256: "x"},
		&RecordLatent{SHA256: "x", Size: 3, Stored: epoch, Holders: []string{"c1"}},
		&DropLatents{Unused: epoch, Superseded: epoch},
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
