package coordinator

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Who disagrees with two others is put aside, for an hour or until it is started again; one that
// accuses all is put aside itself, and takes nobody with it.
func TestDisagreements(t *testing.T) {
	now := time.Now()
	come := func(r *registry, id, process string) {
		if !r.connect(&pb.Hello{Id: id, Process: process}, newSession(""), now) {
			t.Fatal(id)
		}
	}
	fresh := func() *registry {
		r := newRegistry()
		for _, id := range []string{"a", "b", "c", "d"} {
			come(r, id, "1")
		}
		return r
	}
	aside := func(r *registry, at time.Time) (out string) {
		for _, w := range r.known(at, at, time.Hour, nil) {
			if w.Wrong {
				out += w.ID
			}
		}
		return out
	}
	r := fresh()
	for i, say := range []struct {
		by, with string
		news     bool
		aside    string
	}{
		{"a", "b", true, ""}, {"a", "b", false, ""}, {"b", "a", false, ""}, // each may say so of the other: it is one disagreement
		{"c", "b", true, "b"}, {"b", "d", false, "b"}, // who is put aside is not heard
		{"d", "d", true, "b"}, {"c", "d", true, "bcd"},
	} {
		if news, _ := r.disagree(say.by, say.with, "bits", now); news != say.news || aside(r, now) != say.aside {
			t.Fatalf("%d: %s of %s: news %v, aside %q", i, say.by, say.with, news, aside(r, now))
		}
	}
	for _, w := range r.known(now, now, time.Hour, nil) {
		if w.ID == "a" && (len(w.Apart) != 1 || !w.Apart["b"]) {
			t.Errorf("a is kept apart from %v", w.Apart)
		}
	}
	if got := aside(r, now.Add(disagreeFor)); got != "" {
		t.Errorf("%q after an hour", got)
	}
	come(r, "b", "2")
	if got := aside(r, now); got != "d" {
		t.Errorf("%q after b was started again", got)
	}

	liar := fresh()
	for _, with := range []string{"b", "c", "d", "b"} {
		liar.disagree("a", with, "lies", now)
	}
	if got := aside(liar, now); got != "a" {
		t.Errorf("%q after a accused all", got)
	}
}

// What a driver says of its group is seen in the list of workers, in the job's log and in metrics,
// and keeps the two apart; what it says of others is not heard, nor is who drives nothing.
func TestDisagreementIsSeen(t *testing.T) {
	s := serve(t, Config{SplitRows: 1})
	s.lead()
	w := connect(t, s.workers, hello("a"))
	id := s.submit(strings.Replace(testSpec(1_000_000, 10_000_000, never), "chains: 2", "chains: 1", 1))
	p := w.nextDrive()
	if err := w.loaded(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"b", "c"} {
		connect(t, s.workers, hello(other))
	}
	group := func() []string { // of the preparation
		var out []string
		_ = s.Coordinator.jobs.with(id, func(j *followed) error { out = append(out, j.Job.Placements[0].Group...); return nil })
		return out
	}
	within(t, "a group of three", func() bool { return len(group()) == 2 })
	say := func(secret string, ds ...*pb.Disagreement) error {
		_, err := s.workers.Report(t.Context(), &pb.ReportRequest{Job: id, Attempt: p.Attempt, Secret: secret, Disagreements: ds})
		return err
	}
	if say("guessed", &pb.Disagreement{Worker: "b"}) == nil {
		t.Error("a stranger is heard")
	}
	if err := say(p.Secret, &pb.Disagreement{Worker: "somebody", Reason: "x"}, &pb.Disagreement{Worker: "b", Reason: "rows [0,64)"}); err != nil {
		t.Fatal(err)
	}
	within(t, "b out of the group", func() bool { g := group(); return len(g) == 1 && g[0] == "c" })
	list, err := s.workers.List(t.Context(), &pb.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list.Workers {
		want := map[string]string{"a": "b: ", "b": "a: "}[x.Id]
		if got := strings.Join(x.Disagreements, "; "); want != "" && (!strings.HasPrefix(got, want) || !strings.Contains(got, "rows [0,64)")) || want == "" && got != "" || x.Aside {
			t.Errorf("%s: %q, aside: %v", x.Id, got, x.Aside)
		}
	}
	var notes []state.Note
	err = s.node.View(func(tx *bbolt.Tx) (err error) { notes, err = state.Notes(tx, id); return err })
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, n := range notes {
		if n.Kind == state.NoteWrong && strings.Contains(n.Text, "workers a and b do not compute the same numbers") {
			seen++
		}
	}
	if seen != 1 || s.disagreed.Load() != 1 {
		t.Errorf("%d notes, %d counted", seen, s.disagreed.Load())
	}
	if err := say(p.Secret, &pb.Disagreement{Worker: "a", Reason: "other numbers each time"}); err != nil {
		t.Fatal(err)
	}
	within(t, "a let go", func() bool { return w.next().GetRevoke() != nil })
}
