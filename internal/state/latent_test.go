package state

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// latentPlan is a plan of chains that carry a latent vector, certified by others that do.
func latentPlan() *chains.Plan {
	p, exact := testPlan(), *testPlan()
	exact.Method, exact.Windows = "exact", []int{5}
	p.Latent, exact.Latent = latent.Size(1, 1), latent.Size(1, 1)
	p.Certificate = &exact
	return p
}

// vector names the latent vector of a number.
func vector(i int) latent.Ref { return latent.RefOf(latent.Encode([][]float64{{float64(i)}})) }

// latentActor comes up with commands about jobs a and b.
type latentActor struct {
	plan *chains.Plan
	f    map[string]*Follower
}

func (a *latentActor) act(t *rapid.T, at time.Time) Command {
	name := rapid.Custom(func(t *rapid.T) latent.Ref { return vector(rapid.IntRange(1, 6).Draw(t, "vector")) })
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job")
	f := a.f[id]
	switch kind := rapid.IntRange(0, 20).Draw(t, "kind"); {
	case kind < 4:
		r := name.Draw(t, "recorded")
		return &RecordLatent{SHA256: r.SHA256, Size: r.Size, Stored: at, Holders: []string{"c1"}}
	case kind == 4:
		ago := rapid.Custom(func(t *rapid.T) time.Time {
			return at.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * time.Second)
		})
		return &DropLatents{Unused: ago.Draw(t, "unused"), Superseded: ago.Draw(t, "superseded")}
	case f.Job == nil:
		return &Submit{ID: id, Chains: a.plan.Chains}
	case kind == 5:
		return &Act{Job: id, Action: Delete}
	case kind == 6:
		return &Extend{Job: id, Draws: 5}
	case f.Job.Phase == Queued || !f.Job.Placed():
		return &Place{Job: id, Places: []Move{{Chain: 0, Worker: "w"}, {Chain: 1, Worker: "w"}, {Chain: 2, Worker: "w"}}}
	case f.Run == nil:
		return &Loaded{Job: id, Attempt: f.Job.Placements[0].Attempt, Info: &dataset.Info{Rows: 1, SHA256: "x"}, Plan: a.plan}
	case f.Due != nil:
		return &Decide{Job: id, Extends: f.Job.Extends, Event: encoded(t, *f.Due)[0]}
	case f.Run.AtBarrier():
		e, err := sampler.Adapt(f.Run)
		if err != nil {
			t.Fatal(err)
		}
		return &Decide{Job: id, Extends: f.Job.Extends, Event: encoded(t, *e)[0]}
	}
	lane := rapid.IntRange(0, 2).Draw(t, "lane")
	report := &Report{Job: id, Chain: lane, Attempt: f.Job.Placements[lane].Attempt}
	if w, ok := f.Run.Work(lane); ok {
		for range 3 {
			e := chainstest.Event(*a.plan, w, 0)
			if e.Checkpoint != nil {
				e.Checkpoint.State.Latent = name.Draw(t, "named")
			}
			report.Events = append(report.Events, encoded(t, e)...)
			if e.Checkpoint == nil {
				break
			}
			next, ok := w.Advance.Next(a.plan, e.Checkpoint)
			if !ok || rapid.Bool().Draw(t, "no more") {
				break
			}
			w.Advance = &next
		}
	}
	return report
}

// index is what the state says of latent vectors.
type index struct {
	Uses map[string]int // of those that are recorded
	Idle map[string]int // entries of those that no chain uses
}

func indexOf(t *rapid.T, r *replica) index {
	x := index{map[string]int{}, map[string]int{}}
	err := r.db.View(func(tx *bbolt.Tx) error {
		err := tx.Bucket(latentIdleBucket).ForEach(func(k, _ []byte) error { x.Idle[string(k[9:])]++; return nil })
		return errors.Join(err, Latents(tx, func(l *Latent) bool { x.Uses[l.SHA256] = l.Uses; return true }))
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Whatever jobs do, what a chain goes on from is recorded, what is not used is due to
// be dropped, and nothing that is used is dropped, as a count over all runs says. A
// reader of the log of changes learns of each. A replica that was rolled back, or
// forgets its runs, agrees.
func TestLatentVectorsInUseStay(t *testing.T) {
	r, other := newReplica(t), newReplica(t)
	checkpoints, refused, dropped := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r.clear(t)
		other.clear(t)
		who := &latentActor{plan: latentPlan(), f: map[string]*Follower{"a": {}, "b": {}}}
		mark, known := LatentMark{}, map[string]bool{}
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			want := map[string]int{}
			for id, f := range who.f {
				*f = Follower{}
				_ = r.db.View(func(tx *bbolt.Tx) error { return f.Update(tx, id) }) // it may not be there
				if f.Run != nil {
					for _, ref := range f.Run.Latents() {
						if !ref.IsZero() {
							want[ref.SHA256]++
						}
					}
				}
			}
			got := indexOf(t, r)
			used, idle := maps.Clone(got.Uses), map[string]int{}
			for sha, n := range got.Uses {
				if n == 0 {
					delete(used, sha)
					idle[sha] = 1
				}
			}
			if diff := cmp.Diff(index{want, idle}, index{used, got.Idle}); diff != "" {
				t.Fatalf("the runs name, and the index has\n%s", diff)
			}
			_ = r.db.View(func(tx *bbolt.Tx) error {
				changed, end, ok := LatentChanges(tx, mark)
				if !ok {
					changed = slices.Concat(slices.Collect(maps.Keys(known)), slices.Collect(maps.Keys(got.Uses)))
				}
				for _, sha := range changed {
					_, err := GetLatent(tx, sha)
					if known[sha] = err == nil; err != nil {
						delete(known, sha)
					}
				}
				mark = end
				return nil
			})
			if len(known) != len(got.Uses) {
				t.Fatalf("the log of changes makes it %d, and there are %d", len(known), len(got.Uses))
			}
			at := epoch.Add(time.Duration(step) * time.Second)
			c := who.act(t, at)
			if rapid.IntRange(0, 4).Draw(t, "rolled back") == 0 {
				r.rollBack(t, at, c, who.act(t, at))
			}
			_, err := r.apply(t, at, c)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				other.m = NewMachine()
			}
			if _, otherErr := other.apply(t, at, c); (err == nil) != (otherErr == nil) {
				t.Fatalf("%v and %v", err, otherErr)
			}
			switch c.(type) {
			case *Report:
				if err == nil {
					checkpoints++
				} else if errors.Is(err, ErrLatent) {
					refused++
				}
			case *DropLatents:
				if len(indexOf(t, r).Uses) < len(got.Uses) {
					dropped++
				}
			}
		}
		if diff := cmp.Diff(r.dump(t), other.dump(t)); diff != "" {
			t.Fatal(diff)
		}
	})
	if checkpoints == 0 || refused == 0 || dropped == 0 {
		t.Errorf("%d checkpoints were taken, %d refused, %d times something was dropped: it says nothing", checkpoints, refused, dropped)
	}
}

// What was superseded goes after its time, what nobody has used yet after another;
// what was uploaded again begins anew.
func TestLatentVectorsAreDroppedInTime(t *testing.T) {
	r := newReplica(t)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	do := func(s int, c Command) {
		t.Helper()
		if _, err := r.apply(t, at(s), c); err != nil {
			t.Fatal(err)
		}
	}
	record := func(s, i int) {
		t.Helper()
		v := vector(i)
		do(s, &RecordLatent{SHA256: v.SHA256, Size: v.Size, Stored: at(s)})
	}
	there := func(i int) (ok bool) {
		_ = r.db.View(func(tx *bbolt.Tx) error { _, err := GetLatent(tx, vector(i).SHA256); ok = err == nil; return nil })
		return ok
	}
	record(0, 1)
	record(5, 2)
	drop := &DropLatents{Unused: at(5), Superseded: at(100)}
	due := func() (due bool) {
		_ = r.db.View(func(tx *bbolt.Tx) error { due = drop.Due(tx); return nil })
		return due
	}
	if !due() {
		t.Error("nothing is due")
	}
	do(10, drop)
	if there(1) || !there(2) || due() {
		t.Errorf("there: %v %v", there(1), there(2))
	}
	record(20, 2)
	do(21, &DropLatents{Unused: at(20)})
	if !there(2) {
		t.Error("what was uploaded again is gone")
	}
	do(22, &DropLatents{Unused: at(21)})
	if there(2) {
		t.Error("it stays")
	}
	for _, bad := range []RecordLatent{{SHA256: "x", Size: 32}, {SHA256: vector(1).SHA256, Size: -1}, {}} {
		if _, err := r.apply(t, at(30), &bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
