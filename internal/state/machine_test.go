package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// replica is a machine with its database.
type replica struct {
	db *bbolt.DB
	m  *Machine
	n  uint64
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	r := &replica{db: db, m: NewMachine()}
	r.clear(t)
	return r
}

// clear empties the database.
func (r *replica) clear(t fataler) {
	t.Helper()
	r.m, r.n = NewMachine(), 0
	err := r.db.Update(func(tx *bbolt.Tx) error {
		var names [][]byte
		_ = tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			names = append(names, bytes.Clone(name))
			return nil
		})
		for _, n := range names {
			if err := tx.DeleteBucket(n); err != nil {
				return err
			}
		}
		return r.m.Init(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// apply applies a command; what was refused leaves no trace.
func (r *replica) apply(t fataler, at time.Time, c Command) (*Job, error) {
	t.Helper()
	text, err := Encode(at, c)
	if err != nil {
		t.Fatal(err)
	}
	return r.applyText(text)
}

func (r *replica) applyText(text []byte) (*Job, error) {
	var out any
	r.n++
	err := r.db.Update(func(tx *bbolt.Tx) error {
		out = r.m.Apply(tx, r.n, text)
		err, _ := out.(error)
		return err
	})
	j, _ := out.(*Job)
	return j, err
}

// rollBack applies commands in a transaction that is not committed.
func (r *replica) rollBack(t fataler, at time.Time, cmds ...Command) {
	t.Helper()
	err := r.db.Update(func(tx *bbolt.Tx) error {
		for i, c := range cmds {
			text, err := Encode(at, c)
			if err != nil {
				t.Fatal(err)
			}
			if _, failed := r.m.Apply(tx, r.n+uint64(i)+1, text).(error); failed {
				break
			}
		}
		return errRolledBack
	})
	if err != errRolledBack {
		t.Fatal(err)
	}
}

var errRolledBack = errors.New("rolled back")

// dump returns all that is in the database.
func (r *replica) dump(t fataler) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(prefix string, b *bbolt.Bucket) error
	walk = func(prefix string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(fmt.Sprintf("%s/%x", prefix, k), b.Bucket(k))
			}
			out[fmt.Sprintf("%s/%x", prefix, k)] = string(v)
			return nil
		})
	}
	err := r.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// active returns the jobs that have not ended.
func (r *replica) active(t fataler) (ids []string) {
	t.Helper()
	if err := r.db.View(func(tx *bbolt.Tx) error { ids = Active(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (r *replica) follow(t fataler, f *Follower, id string) {
	t.Helper()
	if err := r.db.View(func(tx *bbolt.Tx) error { return f.Update(tx, id) }); err != nil {
		t.Fatal(err)
	}
}

func testPlan() *chains.Plan {
	return &chains.Plan{Method: "fisher", Names: []string{"sigma", "tau", "lambda"}, Chains: 2, Checkpoint: 5, Draws: 20, MaxDraws: 30,
		Windows: []int{5, 10}, RHat: 1.05, ESS: 1e9, Seed: 1, Step: 0.8, MaxProbes: 16}
}

func prepared() *chains.Prepared { return chainstest.Prepared(*testPlan()) }

// checkpoint carries out a task: draws are a function of chain and iteration.
func checkpoint(t chains.Task) *chains.Checkpoint { return chainstest.Checkpoint(t, 0) }

// testPlans are plans of runs of every kind: with a mean and a certificate, and staged.
func testPlans() []chains.Plan {
	certified, exact := *testPlan(), *testPlan()
	exact.Method, exact.Windows = "exact", []int{5}
	certified.Certificate, certified.Provisional, certified.Mean = &exact, true, true
	return []chains.Plan{*testPlan(), certified, chainstest.StagedPlan()}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// actor comes up with commands.
type actor struct {
	plan  chains.Plan
	items chains.Dispatcher
}

// act returns a command that a cluster might come up with: sensible, stale, or
// senseless.
func (a *actor) act(t *rapid.T, f *Follower) Command {
	j := f.Job
	lane := rapid.IntRange(0, len(j.Placements)).Draw(t, "lane")
	attempt := rapid.Int64Range(0, 4).Draw(t, "attempt")
	if lane < len(j.Placements) && rapid.IntRange(0, 3).Draw(t, "current") > 0 {
		attempt = j.Placements[lane].Attempt
	}
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0, 1, 2:
		return &Place{Job: "a", Places: []Move{{Chain: lane, Worker: rapid.SampledFrom([]string{"", "w1", "w2", "w2"}).Draw(t, "worker")}}}
	case 3:
		return &Loaded{Job: "a", Attempt: j.Placements[0].Attempt, Info: &dataset.Info{Rows: 10, SHA256: "x"}, Plan: &a.plan, InstructionSet: "portable"}
	case 4, 5, 6, 7:
		return &Report{Job: "a", Chain: lane, Attempt: attempt, Events: a.work(t, f, lane), Brief: rapid.Bool().Draw(t, "brief")}
	case 8:
		if f.Run != nil && f.Run.AtBarrier() {
			e, err := sampler.Adapt(f.Run)
			if err != nil {
				t.Fatal(err)
			}
			return &Decide{Job: "a", Extends: j.Extends, Event: encoded(t, *e)[0]}
		}
		if f.Due != nil {
			return &Decide{Job: "a", Extends: j.Extends, DrawsSHA256: "h", Event: encoded(t, *f.Due)[0]}
		}
		if f.Run != nil {
			return &Decide{Job: "a", Extends: j.Extends, DrawsSHA256: "h",
				Event: encoded(t, chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime, Draws: f.Run.MinDraws()}})[0]}
		}
		return &Decide{Job: "a"}
	case 9:
		return &Act{Job: "a", Action: rapid.SampledFrom([]Action{Pause, Resume, Preempt, "dance"}).Draw(t, "action")}
	case 10:
		d := &Diagnose{Job: "a"}
		if s := rapid.SampledFrom([]Status{"", Stalled, Diverging}).Draw(t, "status"); s != "" {
			d.Health = &Health{Status: s, Message: "why"}
		}
		return d
	case 11:
		return &Sent{Notice: rapid.Uint64Range(0, 60).Draw(t, "notice"), To: []string{"x"}, Closed: rapid.Bool().Draw(t, "closed")}
	}
	return &Extend{Job: "a", Draws: rapid.IntRange(-1, 10).Draw(t, "draws")}
}

// work returns what a lane might report: what comes of its work, and of the tasks
// that follow.
func (a *actor) work(t *rapid.T, f *Follower, lane int) [][]byte {
	if f.Run == nil {
		return encoded(t, chains.Event{Prepared: prepared()})
	}
	if lane >= len(f.Job.Placements) {
		return nil
	}
	w, ok := f.Run.Work(lane)
	if !ok && lane > 0 {
		w, ok = a.items.Next(f.Run, lane, epoch)
	}
	if !ok {
		return nil
	}
	events := []chains.Event{chainstest.Event(a.plan, w, 0)}
	for range rapid.IntRange(0, 2).Draw(t, "more") {
		if w.Advance == nil {
			break
		}
		next, ok := w.Advance.Next(&a.plan, events[len(events)-1].Checkpoint)
		if !ok {
			break
		}
		w.Advance = &next
		events = append(events, chainstest.Event(a.plan, w, 0))
	}
	return encoded(t, events...)
}

// encoded returns events as commands hold them.
func encoded(t fataler, events ...chains.Event) [][]byte {
	t.Helper()
	out, err := EncodeEvents(events...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Two replicas that apply the same commands hold the same bytes, though one of
// them forgets its caches now and then, and the other's transactions are rolled
// back now and then; a follower that keeps up, by itself or by the machine, sees
// the run that one which begins anew sees; and no driver that was replaced gets a
// word in.
func TestReplicasAgree(t *testing.T) {
	a, b := newReplica(t), newReplica(t)
	rapid.Check(t, func(t *rapid.T) {
		a.clear(t)
		b.clear(t)
		who := &actor{plan: rapid.SampledFrom(testPlans()).Draw(t, "plan")}
		submit := &Submit{ID: "a", Name: "n", Spec: "s", Chains: who.plan.Chains, ClientID: "c"}
		for _, r := range []*replica{a, b} {
			if _, err := r.apply(t, epoch, submit); err != nil {
				t.Fatal(err)
			}
		}
		f, shared := Follower{}, Follower{Machine: a.m}
		for step := range rapid.IntRange(1, 100).Draw(t, "steps") {
			a.follow(t, &f, "a")
			a.follow(t, &shared, "a")
			if diff := cmp.Diff(text(t, f.Run), text(t, shared.Run)); diff != "" || f.Convergence != shared.Convergence {
				t.Fatalf("a follower of the machine's run sees\n%s", diff)
			}
			c, at := who.act(t, &f), epoch.Add(time.Duration(step)*time.Second)
			if rapid.IntRange(0, 4).Draw(t, "rolled back") == 0 {
				a.rollBack(t, at, c, who.act(t, &f))
			}
			_, errA := a.apply(t, at, c)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				b.m = NewMachine()
			}
			_, errB := b.apply(t, at, c)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("%v and %v", errA, errB)
			}
			if r, ok := c.(*Report); ok && errA == nil && (f.Job.Placements[r.Chain].Attempt != r.Attempt || f.Job.Placements[r.Chain].Worker == "") {
				t.Fatalf("attempt %d got a word in, at %+v", r.Attempt, f.Job.Placements)
			}
		}
		if diff := cmp.Diff(a.dump(t), b.dump(t)); diff != "" {
			t.Fatal(diff)
		}
		a.follow(t, &f, "a")
		if active := a.active(t); (len(active) == 1) == f.Job.Phase.Ended() {
			t.Fatalf("a job that is %s, and %v have not ended", f.Job.Phase, active)
		}
		var fresh Follower
		b.follow(t, &fresh, "a")
		if diff := cmp.Diff(text(t, f.Run), text(t, fresh.Run)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func text(t fataler, v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSubmitTwice(t *testing.T) {
	r := newReplica(t)
	s := &Submit{ID: "a", Name: "n", Spec: "s", Chains: 2, ClientID: "c"}
	first, err := r.apply(t, epoch, s)
	if err != nil {
		t.Fatal(err)
	}
	again := *s
	again.ID = "b" // the coordinator makes a new id for every request
	if j, err := r.apply(t, epoch, &again); err != nil || j.ID != first.ID {
		t.Errorf("submitted again: %+v, %v", j, err)
	}
	other := again
	other.Spec = "t"
	if _, err := r.apply(t, epoch, &other); !errors.Is(err, ErrConflict) {
		t.Errorf("another job under the same client id: %v", err)
	}
	if _, err := r.apply(t, epoch, &Submit{ID: "a", Chains: 1}); !errors.Is(err, ErrMalformed) {
		t.Errorf("an id twice: %v", err)
	}
}

// Time at work counts while the job is at work.
func TestActiveTime(t *testing.T) {
	r := newReplica(t)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	do := func(at time.Time, c Command) *Job {
		t.Helper()
		j, err := r.apply(t, at, c)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	do(at(0), &Submit{ID: "a", Chains: 1})
	place := &Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}}}
	do(at(10), place)
	do(at(25), &Act{Job: "a", Action: Pause})
	do(at(50), &Act{Job: "a", Action: Resume})
	j := do(at(60), place)
	if got := j.Elapsed(at(65)); got != 20*time.Second {
		t.Errorf("%v at work, want 20 s", got)
	}
	if j = do(at(70), &Fail{Job: "a", Message: "why"}); j.Elapsed(at(100)) != 25*time.Second || j.Phase != Failed || j.Message != "why" {
		t.Errorf("%+v", j)
	}
	if do(at(80), &Act{Job: "a", Action: Delete}); r.notices(t)[0].Kind != OnFailed {
		t.Error("the notice of its failure is lost with the job")
	}
	for _, n := range r.notices(t) {
		do(at(80), &Sent{Notice: n.Index, Closed: true})
	}
	if len(r.dump(t)) != 0 {
		t.Errorf("something is left: %v", r.dump(t))
	}
}

// Time in which nobody tells that a job is at work is time at rest: a run of 9 s that
// stood still for an hour has been at work for 9 s.
func TestTimeAtRest(t *testing.T) {
	r := newReplica(t)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	do := func(s int, c Command) {
		t.Helper()
		if _, err := r.apply(t, at(s), c); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s, elapsed int) {
		t.Helper()
		var j *Job
		if err := r.db.View(func(tx *bbolt.Tx) (err error) { j, err = GetJob(tx, "a"); return err }); err != nil {
			t.Fatal(err)
		}
		if got := j.Elapsed(at(s)); got != time.Duration(elapsed)*time.Second {
			t.Errorf("at %d s: %v at work, not %d s", s, got, elapsed)
		}
	}
	place := &Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}}}
	tick := &Tick{Jobs: []string{"gone", "a"}}
	do(0, &Submit{ID: "a", Chains: 1})
	do(5, tick) // nobody is at work yet
	do(10, place)
	want(12, 2)
	do(13, tick)
	want(18, 8)
	do(19, tick)
	want(34, 24)   // it may only be late
	want(3600, 9)  // nobody told: it has stood still
	do(3619, tick) // the cluster is back
	want(3619, 9)
	do(3624, tick)
	want(3626, 16)
	do(3623, tick) // of a leader whose clock is behind
	want(3626, 16)
	do(3630, &Act{Job: "a", Action: Pause})
	want(9000, 20)
	do(9000, tick)
	do(9010, &Act{Job: "a", Action: Resume})
	do(9020, place)
	want(9025, 25)
	do(9100, &Act{Job: "a", Action: Pause}) // nobody told since
	want(9999, 20)
	do(10_000, &Act{Job: "a", Action: Cancel})
	do(10_000, tick)
	do(10_001, &Act{Job: "a", Action: Delete})
	do(10_002, tick)
	if len(r.dump(t)) != len(r.notices(t)) {
		t.Errorf("something is left: %v", r.dump(t))
	}
}

// Whatever bytes the log holds, Apply returns, and refuses what it cannot read.
func FuzzApply(f *testing.F) {
	for _, c := range []Command{
		&Submit{ID: "a", Chains: 1},
		&Report{Job: "a", Events: encoded(f, chains.Event{Prepared: prepared()})},
		&Place{Job: "a", Places: []Move{{Chain: 7}}},
		&RecordBlob{Blob{SHA256: "x"}}, &ForgetBlob{SHA256: "x"},
		&RecordLatent{SHA256: vector(1).SHA256, Size: 32}, &DropLatents{Unused: epoch},
	} {
		text, err := Encode(epoch, c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"submit":{},"place":{}}`))
	db, err := bbolt.Open(filepath.Join(f.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	f.Fuzz(func(t *testing.T, command []byte) {
		r := &replica{db: db, m: NewMachine()}
		r.clear(t)
		if _, err := r.apply(t, epoch, &Submit{ID: "a", Chains: 1}); err != nil {
			t.Fatal(err)
		}
		_, _ = r.applyText(command)
	})
}
