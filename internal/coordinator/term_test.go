package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// decided returns the event of a decision.
func decided(t *testing.T, c state.Command) chains.Event {
	t.Helper()
	d, ok := c.(*state.Decide)
	if !ok {
		t.Fatalf("%T", c)
	}
	e, err := chains.DecodeEvent(d.Event)
	if err != nil {
		t.Fatal(err)
	}
	return *e
}

// What is due in a job: nothing while its chains work, settings at a barrier, the
// end when the draws are enough or the time is up.
func TestDecisions(t *testing.T) {
	text := testSpec(20, 30, never)
	follower := func(draws int) *state.Follower {
		r := referenceRun(t, text, draws)
		return &state.Follower{Job: &state.Job{ID: "a", Phase: state.Sampling, Chains: 2, Extends: 3, Plan: &r.Plan, Active: time.Minute}, Run: r}
	}
	due := func(f *state.Follower) state.Command {
		t.Helper()
		c, err := dueIn(f, true, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := due(&state.Follower{Job: &state.Job{ID: "a"}}); c != nil {
		t.Errorf("before the data are read: %v", c)
	}
	if c := due(follower(10)); c != nil {
		t.Errorf("while chains work: %v", c)
	}
	barrier := follower(0)
	if e := decided(t, due(barrier)); e.Settings == nil || e.Settings.Window != 0 {
		t.Errorf("at a barrier: %+v", e)
	}
	end := follower(30)
	end.Due = &chains.Event{Stop: &chains.Stop{Reason: chains.MaxDraws, Draws: 25}}
	c := due(end)
	d := c.(*state.Decide)
	if e := decided(t, c); e.Stop == nil || e.Stop.Reason != chains.MaxDraws || e.Stop.Draws != 25 || e.Stop.Elapsed != 60 || d.Extends != 3 || d.Final.Draws != 25 || d.DrawsSHA256 != report.DrawsSHA256(referenceRun(t, text, 25)) {
		t.Errorf("at the end: %+v %+v", d, e.Stop)
	}
	if n := len(end.Run.Chains[0].Draws); n != 30 {
		t.Errorf("the run has %d draws after a look", n)
	}
	late := follower(15)
	late.Run.Plan.MaxTime = time.Minute
	if e := decided(t, due(late)); e.Stop == nil || e.Stop.Reason != chains.MaxTime || e.Stop.Draws != 15 {
		t.Errorf("when the time is up: %+v", e.Stop)
	}
	late.Job.Phase = state.Cancelled
	if c := due(late); c != nil {
		t.Errorf("after the end: %v", c)
	}
	bad := follower(0)
	bad.Run.Prepared.ProbeCov = nil // without which no step can be chosen
	if c, ok := due(bad).(*state.Fail); !ok || c.Job != "a" || !strings.Contains(c.Message, "noise") {
		t.Errorf("where no settings can be made: %+v", c)
	}
}

// broken is a node whose state cannot be read, or changed, for a while.
type broken struct {
	*coordinatortest.Node
	views int
	knows uint64 // the format that all members know, if not all
}

func (n *broken) Apply(ctx context.Context, command []byte) (any, error) {
	if n.knows > 0 && state.FormatOf(command) > n.knows {
		return nil, fmt.Errorf("%w: upgrade n3", cluster.ErrMixedVersions)
	}
	return n.Node.Apply(ctx, command)
}

func (n *broken) View(f func(*bbolt.Tx) error) error {
	if n.views > 0 {
		n.views--
		return errors.New("the disk is busy")
	}
	return n.Node.View(f)
}

// While members of the release before are there a job goes on, and comes to the same.
func TestMixedVersions(t *testing.T) {
	s := serve(t, Config{Node: &broken{Node: coordinatortest.NewNode(t), knows: 4}})
	s.lead()
	connect(t, s.workers, hello("a")).work()
	text := testSpec(40, 60, 10)
	if j := s.awaitState(s.submit(text), pb.JobState_JOB_STATE_CONVERGED); j.DrawsSha256 != report.DrawsSHA256(referenceRun(t, text, 40)) {
		t.Errorf("draws %s", j.DrawsSha256)
	}
}

// A look that fails changes nothing, and the next one goes on.
func TestLookIsRepeated(t *testing.T) {
	n := &broken{Node: coordinatortest.NewNode(t)}
	s := serve(t, Config{Node: n})
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1})
	k := &term{c: s.Coordinator, since: time.Now()}
	n.views = 1
	if err := k.look(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("%v", err)
	}
	if err := k.look(t.Context()); err != nil {
		t.Error(err)
	}
}

// A job whose events cannot be read fails, and keeps no other from going on.
func TestDamagedJob(t *testing.T) {
	s := serve(t, Config{})
	stop := s.lead()
	w := connect(t, s.workers, hello("w"))
	w.work()
	bad := s.submit(testSpec(1_000_000, 10_000_000, never))
	s.awaitState(bad, pb.JobState_JOB_STATE_SAMPLING)
	stop()
	err := s.node.Break(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte("events")).Bucket([]byte(bad))
		k, _ := events.Cursor().First()
		return events.Put(k, []byte("damaged"))
	})
	if err != nil {
		t.Fatal(err)
	}
	next := serve(t, Config{Node: &broken{Node: s.node}}) // which has nothing in its memory
	next.lead()
	connect(t, next.workers, hello("v")).work()
	good := next.submit(testSpec(40, 60, 10))
	next.awaitState(good, pb.JobState_JOB_STATE_CONVERGED)
	list, err := next.jobs.List(t.Context(), &pb.ListJobsRequest{States: []pb.JobState{pb.JobState_JOB_STATE_FAILED}})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Id != bad || !strings.Contains(list.Jobs[0].Message, "event 1") {
		t.Errorf("%v %v", list, err)
	}
	if _, err := next.jobs.Delete(t.Context(), &pb.JobActionRequest{Id: bad}); err != nil {
		t.Error(err)
	}
}

// That a job is at work is recorded while a worker is there who drives it, and no
// longer.
func TestTicks(t *testing.T) {
	s := serve(t, Config{})
	k := &term{c: s.Coordinator, since: time.Now()}
	keepAt(t, s.Coordinator, time.Now().Add(-time.Minute), &state.Submit{ID: "a", Chains: 1}, &state.Place{Job: "a", Places: []state.Move{{Chain: 0, Worker: "w"}}})
	alive := func() time.Time {
		t.Helper()
		var j *state.Job
		if err := s.node.View(func(tx *bbolt.Tx) (err error) { j, err = state.GetJob(tx, "a"); return err }); err != nil {
			t.Fatal(err)
		}
		k.tick(t.Context(), map[string]*state.Job{"a": j}, time.Now())
		if err := s.node.View(func(tx *bbolt.Tx) (err error) { j, err = state.GetJob(tx, "a"); return err }); err != nil {
			t.Fatal(err)
		}
		return j.Alive
	}
	if at := alive(); !at.IsZero() {
		t.Errorf("without its worker: %v", at)
	}
	ses := newSession("")
	s.Coordinator.workers.connect(hello("w"), ses, time.Now())
	first := alive()
	if time.Since(first) > time.Minute {
		t.Errorf("with its worker: %v", first)
	}
	if again := alive(); !again.Equal(first) {
		t.Errorf("recorded twice within %v", tickEvery)
	}
	s.Coordinator.workers.disconnect("w", ses, time.Now())
	keepAt(t, s.Coordinator, time.Now().Add(time.Hour), &state.Tick{})
	if again := alive(); !again.Equal(first) {
		t.Errorf("after its worker went: %v", again)
	}
}

// A job about which nothing can be decided stays where it is, and keeps no other from
// going on.
func TestUnclearJob(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.Submit{ID: "bad", Spec: "no: [specification", Chains: 1}, &state.Place{Job: "bad", Places: []state.Move{{Chain: 0, Worker: "w"}}})
	good, err := job.ParseString(testSpec(40, 60, 10))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planOf(good, testInfo())
	if err != nil {
		t.Fatal(err)
	}
	plan.Chains = 1
	keep(t, s.Coordinator, &state.Loaded{Job: "bad", Attempt: 1, Info: testInfo(), Plan: plan})
	s.lead()
	connect(t, s.workers, hello("w")).work()
	s.awaitState(s.submit(testSpec(40, 60, 10)), pb.JobState_JOB_STATE_CONVERGED)
	var bad *state.Job
	if err := s.node.View(func(tx *bbolt.Tx) (err error) { bad, err = state.GetJob(tx, "bad"); return err }); err != nil {
		t.Fatal(err)
	}
	if bad.Placements[0].Worker != "w" || bad.Phase != state.Preparing || s.jobErrors.Load() == 0 {
		t.Errorf("%+v after %d errors", bad, s.jobErrors.Load())
	}
	if _, err := s.jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: "bad"}); err != nil {
		t.Error("cancelling it:", err)
	}
}

// A job without a worker is found to be stalled, and well again with one.
func TestHealthIsNoted(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1})
	k := &term{c: s.Coordinator, since: time.Now()}
	s.checker.Reset(time.Now().Add(-time.Hour)) // for an hour nobody was there
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := s.get("a").Health; h.GetStatus() != pb.HealthStatus_HEALTH_STATUS_STALLED || !strings.Contains(h.Message, "no worker is connected") || !h.Since.IsValid() {
		t.Errorf("%v", h)
	}
	s.Coordinator.workers.connect(hello("w"), newSession(""), time.Now())
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := s.get("a").Health; h == nil {
		t.Error("it was looked at twice within a second")
	}
	k.checked = time.Time{}
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := s.get("a").Health; h != nil {
		t.Errorf("%v", h)
	}
}

// A new leader leaves the chains of workers that it does not know alone for the
// grace period; then it gives them to others.
func TestNewLeaderWaits(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1}, &state.Place{Job: "a", Places: []state.Move{{Chain: 0, Worker: "old"}}})
	s.Coordinator.workers.connect(hello("new"), newSession(""), time.Now())
	k := &term{c: s.Coordinator, since: time.Now()}
	at := func() string {
		t.Helper()
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		var j *state.Job
		if err := s.node.View(func(tx *bbolt.Tx) (err error) { j, err = state.GetJob(tx, "a"); return err }); err != nil {
			t.Fatal(err)
		}
		return j.Placements[0].Worker
	}
	if w := at(); w != "old" {
		t.Errorf("placed at %q at once", w)
	}
	k.since = k.since.Add(-s.cfg.Grace - time.Second)
	if w := at(); w != "new" {
		t.Errorf("placed at %q after the grace period", w)
	}
}

// Where callers are asked who they are, the first leader writes an administrator's
// token, of which the state knows the hash; and it makes no second one.
func TestFirstToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	s := serve(t, Config{TokenFile: path})
	k := &term{c: s.Coordinator}
	k.ensureAdmin(t.Context())
	text, err := os.ReadFile(path)
	if err != nil || !k.hasAdmin {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	id, err := auth.ParseToken(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Token(id)
	if err != nil || token.Role != state.Admin || token.Hash != auth.Hash(strings.TrimSpace(string(text))) || !token.Live(time.Now()) {
		t.Errorf("%+v %v", token, err)
	}
	key := s.NodeKey()
	if len(key) < 32 {
		t.Errorf("the coordinators' key is %q", key)
	}
	if err := s.firstToken(t.Context()); err != nil || s.NodeKey() != key {
		t.Errorf("again: %v", err)
	}
	keep(t, s.Coordinator, &state.RevokeToken{ID: id})
	if err := s.firstToken(t.Context()); err == nil || !strings.Contains(err.Error(), "delete the file") {
		t.Errorf("when it was revoked: %v", err)
	}
	for _, bad := range []string{"", "no token"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.firstToken(t.Context()); err == nil {
			t.Errorf("%q is a token", bad)
		}
	}
	s.cfg.TokenFile = filepath.Join(t.TempDir(), "nowhere", "token")
	k = &term{c: s.Coordinator}
	k.ensureAdmin(t.Context())
	if k.hasAdmin || !k.tryAdmin.After(time.Now()) {
		t.Errorf("%+v", k)
	}
}
