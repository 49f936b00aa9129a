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
func (r *replica) apply(t fataler, c Command) (*Job, error) {
	t.Helper()
	text, err := c.Encode()
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

var identity = []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}

func prepared() *chains.Prepared {
	return &chains.Prepared{Psi: []float64{0.1, 0.2, 0.3}, Cov: identity, ProbeCov: identity, Starts: [][]float64{{0, 0, 0}, {1, 1, 1}}}
}

// checkpoint carries out a task: draws are a function of chain and iteration.
func checkpoint(t chains.Task) *chains.Checkpoint {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From}
	for range t.Iterations {
		k.State.Iter++
		i := float64(k.State.Iter)
		k.State.Psi = []float64{float64(t.Chain), i, 1 / i}
		k.Draws = append(k.Draws, k.State.Psi)
		if t.Warmup {
			k.Stats.Spreads++
		}
	}
	if t.Warmup {
		k.Stats.ProbeCov = identity
	}
	return k
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// act returns a command that a cluster might come up with: sensible, stale, or
// senseless.
func act(t *rapid.T, r *replica, f *Follower, step int) Command {
	c := Command{Time: epoch.Add(time.Duration(step) * time.Second)}
	j := f.Job
	chain := rapid.IntRange(0, 3).Draw(t, "chain")
	attempt := rapid.Int64Range(0, 4).Draw(t, "attempt")
	if chain < len(j.Placements) && rapid.IntRange(0, 3).Draw(t, "current") > 0 {
		attempt = j.Placements[chain].Attempt
	}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 10:
		c.Diagnose = &Diagnose{Job: "a"}
		if s := rapid.SampledFrom([]Status{"", Stalled, Diverging}).Draw(t, "status"); s != "" {
			c.Diagnose.Health = &Health{Status: s, Message: "why"}
		}
	case 11:
		c.Sent = &Sent{Notice: rapid.Uint64Range(0, 60).Draw(t, "notice"), To: []string{"x"}, Closed: rapid.Bool().Draw(t, "closed")}
	case 0, 1:
		c.Place = &Place{Job: "a", Places: []Moved{{Chain: chain, Worker: rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker")}}}
	case 2:
		c.Loaded = &Loaded{Job: "a", Attempt: j.Placements[0].Attempt, Info: &dataset.Info{Rows: 10, SHA256: "x"}, Plan: testPlan(), InstructionSet: "portable"}
	case 3:
		c.Report = &Report{Job: "a", Chain: 0, Attempt: attempt, Events: []chains.Event{{Prepared: prepared()}}}
	case 4, 5, 6:
		c.Report = &Report{Job: "a", Chain: chain, Attempt: attempt}
		if f.Run != nil && chain >= 1 && chain <= 2 {
			if task, ok := f.Run.Task(chain); ok {
				for range rapid.IntRange(1, 3).Draw(t, "checkpoints") {
					k := checkpoint(task)
					c.Report.Events = append(c.Report.Events, chains.Event{Checkpoint: k})
					if task, ok = task.Next(&f.Run.Plan, k); !ok {
						break
					}
				}
			}
		}
	case 7:
		if f.Run != nil && f.Run.AtBarrier() {
			e, err := sampler.Adapt(f.Run)
			if err != nil {
				t.Fatal(err)
			}
			c.Decide = &Decide{Job: "a", Extends: j.Extends, Event: *e}
		} else if f.Run != nil {
			c.Decide = &Decide{Job: "a", Extends: j.Extends, Event: chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime, Draws: f.Run.MinDraws()}}, DrawsSHA256: "h"}
		} else {
			c.Decide = &Decide{Job: "a"}
		}
	case 8:
		c.Act = &Act{Job: "a", Action: rapid.SampledFrom([]Action{Pause, Resume, Preempt, "dance"}).Draw(t, "action")}
	case 9:
		c.Extend = &Extend{Job: "a", Draws: rapid.IntRange(-1, 10).Draw(t, "draws")}
	}
	return c
}

// Two replicas that apply the same commands hold the same bytes, though one of
// them forgets its caches now and then; a follower that keeps up sees the run
// that one which begins anew sees; and no driver that was replaced gets a word
// in.
func TestReplicasAgree(t *testing.T) {
	a, b := newReplica(t), newReplica(t)
	rapid.Check(t, func(t *rapid.T) {
		a.clear(t)
		b.clear(t)
		submit := Command{Time: epoch, Submit: &Submit{ID: "a", Name: "n", Spec: "s", Chains: 2, ClientID: "c"}}
		for _, r := range []*replica{a, b} {
			if _, err := r.apply(t, submit); err != nil {
				t.Fatal(err)
			}
		}
		var f Follower
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			a.follow(t, &f, "a")
			c := act(t, a, &f, step)
			_, errA := a.apply(t, c)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				b.m = NewMachine()
			}
			_, errB := b.apply(t, c)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("%v and %v", errA, errB)
			}
			if r := c.Report; r != nil && errA == nil && (f.Job.Placements[r.Chain].Attempt != r.Attempt || f.Job.Placements[r.Chain].Worker == "") {
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
	first, err := r.apply(t, Command{Time: epoch, Submit: s})
	if err != nil {
		t.Fatal(err)
	}
	again := *s
	again.ID = "b" // the coordinator makes a new id for every request
	if j, err := r.apply(t, Command{Time: epoch, Submit: &again}); err != nil || j.ID != first.ID {
		t.Errorf("submitted again: %+v, %v", j, err)
	}
	other := again
	other.Spec = "t"
	if _, err := r.apply(t, Command{Time: epoch, Submit: &other}); !errors.Is(err, ErrPhase) {
		t.Errorf("another job under the same client id: %v", err)
	}
	if _, err := r.apply(t, Command{Time: epoch, Submit: &Submit{ID: "a", Chains: 1}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("an id twice: %v", err)
	}
}

// Time at work counts while the job is at work.
func TestActiveTime(t *testing.T) {
	r := newReplica(t)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	do := func(c Command) *Job {
		t.Helper()
		j, err := r.apply(t, c)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	do(Command{Time: at(0), Submit: &Submit{ID: "a", Chains: 1}})
	place := &Place{Job: "a", Places: []Moved{{Chain: 0, Worker: "w"}}}
	do(Command{Time: at(10), Place: place})
	do(Command{Time: at(25), Act: &Act{Job: "a", Action: Pause}})
	do(Command{Time: at(50), Act: &Act{Job: "a", Action: Resume}})
	j := do(Command{Time: at(60), Place: place})
	if got := j.Elapsed(at(65)); got != 20*time.Second {
		t.Errorf("%v at work, want 20 s", got)
	}
	if j = do(Command{Time: at(70), Fail: &Fail{Job: "a", Message: "why"}}); j.Elapsed(at(100)) != 25*time.Second || j.Phase != Failed || j.Message != "why" {
		t.Errorf("%+v", j)
	}
	if do(Command{Time: at(80), Act: &Act{Job: "a", Action: Delete}}); r.notices(t)[0].Kind != OnFailed {
		t.Error("the notice of its failure is lost with the job")
	}
	for _, n := range r.notices(t) {
		do(Command{Time: at(80), Sent: &Sent{Notice: n.Index, Closed: true}})
	}
	if len(r.dump(t)) != 0 {
		t.Errorf("something is left: %v", r.dump(t))
	}
}

// Whatever bytes the log holds, Apply returns, and refuses what it cannot read.
func FuzzApply(f *testing.F) {
	for _, c := range []Command{
		{Submit: &Submit{ID: "a", Chains: 1}},
		{Report: &Report{Job: "a", Events: []chains.Event{{Prepared: prepared()}}}},
		{Place: &Place{Job: "a", Places: []Moved{{Chain: 7}}}},
		{Blob: &Blob{SHA256: "x"}}, {Drop: &Drop{SHA256: "x"}},
	} {
		text, err := c.Encode()
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
		if _, err := r.apply(t, Command{Time: epoch, Submit: &Submit{ID: "a", Chains: 1}}); err != nil {
			t.Fatal(err)
		}
		_, _ = r.applyText(command)
	})
}
