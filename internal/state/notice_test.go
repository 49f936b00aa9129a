package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// notices returns those that are kept.
func (r *replica) notices(t fataler) (out []*Notice) {
	t.Helper()
	err := r.db.View(func(tx *bbolt.Tx) (err error) { out, err = Notices(tx); return err })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What happens to a job leaves notices until somebody says that they were sent.
func TestNotices(t *testing.T) {
	r := newReplica(t)
	now := epoch
	do := func(c Command) {
		t.Helper()
		if _, err := r.apply(t, now, c); err != nil {
			t.Fatal(err)
		}
	}
	diagnose := func(s Status) Command {
		d := &Diagnose{Job: "a"}
		if s != "" {
			d.Health = &Health{Status: s, Message: "why it is " + string(s), Since: now}
		}
		return d
	}
	notify := &Notify{Webhooks: []string{"https://example.org/x"}, On: []Kind{OnFailed}}
	do(&Submit{ID: "a", Name: "n", Chains: 1, Notify: notify})
	do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}}})
	do(diagnose(Stalled))
	do(diagnose(""))
	now = now.Add(time.Minute)
	do(diagnose(Stalled)) // so soon again: no second notice
	do(diagnose(""))
	now = now.Add(alertEvery)
	do(diagnose(Diverging))
	do(diagnose(Stalled))
	do(&Fail{Job: "a", Message: "no such file"})
	var kinds []Kind
	for _, n := range r.notices(t) {
		kinds = append(kinds, n.Kind)
		if n.ID() != fmt.Sprintf("a-%d", n.Index) || n.Name != "n" || n.Notify == nil {
			t.Errorf("%+v", n)
		}
	}
	if want := []Kind{OnStalled, OnRecovered, OnRecovered, OnDiverging, OnFailed}; !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
	first, last := r.notices(t)[0], r.notices(t)[4]
	if first.Message != "why it is stalled" || last.Message != "no such file" || last.Phase != Failed {
		t.Errorf("%+v and %+v", first, last)
	}
	if _, err := r.apply(t, now, diagnose(Stalled)); !errors.Is(err, ErrPhase) {
		t.Errorf("a job that has ended is stalled: %v", err)
	}
	do(&Sent{Notice: first.Index, To: []string{"x"}})
	do(&Sent{Notice: first.Index, To: []string{"x", "y"}})
	if got := r.notices(t)[0].Done; !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("sent to %v", got)
	}
	do(&Sent{Notice: first.Index, Closed: true})
	do(&Sent{Notice: first.Index, To: []string{"z"}})
	if got := r.notices(t); len(got) != 4 || got[0].Index == first.Index {
		t.Errorf("a closed notice is still there: %+v", got)
	}
}

// Notices that nobody sends make room for newer ones.
func TestNoticesAreBounded(t *testing.T) {
	r := newReplica(t)
	for i := range maxNotices + 2 {
		id := fmt.Sprintf("j%d", i)
		for _, c := range []Command{&Submit{ID: id, Chains: 1}, &Act{Job: id, Action: Cancel}, &Act{Job: id, Action: Delete}} {
			if _, err := r.apply(t, epoch, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.notices(t); len(got) != maxNotices || got[0].Job != "j2" {
		t.Errorf("%d notices, from %s", len(got), got[0].Job)
	}
}
