package state

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestNotes(t *testing.T) {
	r := newReplica(t)
	steps := 0
	do := func(c Command) {
		t.Helper()
		at := epoch.Add(time.Duration(steps) * time.Second)
		steps++
		if _, err := r.apply(t, at, c); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (out []Note) {
		t.Helper()
		if err := r.db.View(func(tx *bbolt.Tx) (err error) { out, err = Notes(tx, "a"); return err }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	do(&Submit{ID: "a", Chains: 2, ClientID: "c"})
	do(&Submit{ID: "b", Chains: 2, ClientID: "c"}) // the same again: nothing happens
	do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w1", Group: []string{"w2"}}}})
	do(&Fail{Job: "a", Message: "no such file"})
	var got []string
	for _, n := range read() {
		got = append(got, string(n.Kind)+": "+n.Text)
	}
	want := "submitted: submitted with 2 chains, placed: preparation on w1 with w2, state: preparing, state: failed: no such file"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s, not %s", s, want)
	}
	do(&Act{Job: "a", Action: Resume})
	for range maxNotes {
		do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w1"}}})
	}
	n := read()
	if len(n) != maxNotes || !n[len(n)-1].Time.Equal(epoch.Add(time.Duration(steps-1)*time.Second)) {
		t.Errorf("%d notes, the last of %v", len(n), n[len(n)-1].Time)
	}
}
