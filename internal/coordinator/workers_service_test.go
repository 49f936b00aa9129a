package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// A worker that does not introduce itself well is refused.
func TestHelloIsChecked(t *testing.T) {
	s := serve(t, Config{})
	many := hello("w")
	many.Driving = make([]*pb.Placement, maxDriving+1)
	for i := range many.Driving {
		many.Driving[i] = &pb.Placement{}
	}
	negative := hello("w")
	negative.Driving = []*pb.Placement{{Job: "a", Chain: -1}}
	for what, m := range map[string]*pb.WorkerMessage{
		"no hello":         {Message: &pb.WorkerMessage_Beat{Beat: &pb.Beat{}}},
		"nothing":          {},
		"no id":            {Message: &pb.WorkerMessage_Hello{Hello: hello("")}},
		"a path for an id": {Message: &pb.WorkerMessage_Hello{Hello: hello("../w")}},
		"a long id":        {Message: &pb.WorkerMessage_Hello{Hello: hello(strings.Repeat("w", 101))}},
		"too many chains":  {Message: &pb.WorkerMessage_Hello{Hello: many}},
		"a negative chain": {Message: &pb.WorkerMessage_Hello{Hello: negative}},
	} {
		stream, err := s.workers.Connect(t.Context())
		if err == nil {
			err = stream.Send(m)
		}
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, what, err, codes.InvalidArgument)
	}
	if n := len(s.Coordinator.workers.list()); n != 0 {
		t.Errorf("%d workers are known", n)
	}
}

// A worker that connects again ends the session before; one that leaves is lost.
func TestSessions(t *testing.T) {
	s := serve(t, Config{})
	first := connect(t, s.workers, hello("w"))
	within(t, "the worker is known", func() bool { return len(s.Coordinator.workers.list()) == 1 })
	second := connect(t, s.workers, hello("w"))
	wantCode(t, "the first session", <-first.ended, codes.Aborted, "anew")
	if w := s.Coordinator.workers.list()[0]; !w.Connected {
		t.Error("the second session ended with the first")
	}
	second.beat(&pb.Beat{Load: &pb.Load{Pairs: 7}})
	within(t, "the load is known", func() bool { return s.Coordinator.workers.list()[0].GetLoad().GetPairs() == 7 })
	if err := second.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-second.ended
	within(t, "it is gone", func() bool { return !s.Coordinator.workers.list()[0].Connected })
}

// A coordinator that leads no more sends its workers away, to the leader.
func TestSessionEndsWithTheLeadership(t *testing.T) {
	s := serve(t, Config{})
	w := connect(t, s.workers, hello("w"))
	within(t, "the worker is known", func() bool { return len(s.Coordinator.workers.list()) == 1 })
	s.node.Lose()
	wantCode(t, "the session", <-w.ended, codes.Unavailable, "no leader")
	other := connect(t, s.workers, hello("v"))
	wantCode(t, "a session where nobody leads", <-other.ended, codes.Unavailable)
}

// A worker that is drained gives its chains to another at their next checkpoints,
// and is told when it has nothing left.
func TestDrain(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	a := connect(t, s.workers, hello("a"))
	a.work()
	id := s.submit(testSpec(1_000_000, 10_000_000, never))
	s.awaitState(id, pb.JobState_JOB_STATE_SAMPLING)
	connect(t, s.workers, hello("b")).work()
	if w, err := s.workers.Drain(t.Context(), &pb.DrainRequest{Id: "a"}); err != nil || !w.Draining {
		t.Fatalf("%v %v", w, err)
	}
	within(t, "b has both chains", func() bool {
		p := s.get(id).Progress
		return p.Chains[0].Worker == "b" && p.Chains[1].Worker == "b"
	})
	within(t, "a has none", func() bool {
		i := slices.IndexFunc(s.Coordinator.workers.list(), func(w *pb.Worker) bool { return w.Id == "a" })
		return len(s.Coordinator.workers.list()[i].Driving) == 0
	})
	s.awaitLeave("a")
	_, err := s.workers.Drain(t.Context(), &pb.DrainRequest{Id: "nobody"})
	wantCode(t, "a worker that does not exist", err, codes.NotFound)
	before := s.get(id).Progress.Chains[0].Draws
	within(t, "the chains go on", func() bool { return s.get(id).Progress.Chains[0].Draws > before })
}

// awaitLeave waits until a worker was told that nothing is left for it to do.
func (s *served) awaitLeave(id string) {
	s.t.Helper()
	within(s.t, id+" may leave", func() bool {
		s.Coordinator.workers.mu.Lock()
		defer s.Coordinator.workers.mu.Unlock()
		return s.Coordinator.workers.byID[id].left
	})
}

// A worker that says that it drains is drained, and told to leave: it holds
// nothing.
func TestLeave(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	w := connect(t, s.workers, hello("w"))
	w.beat(&pb.Beat{Draining: true})
	for w.next().GetLeave() == nil {
	}
}

// A driver that was replaced is refused, whatever it says; a worker that comes
// back in time keeps its chains.
func TestFencing(t *testing.T) {
	s := serve(t, Config{Grace: 200 * time.Millisecond})
	s.lead()
	a := connect(t, s.workers, hello("a"))
	id := s.submit(testSpec(40, 60, 10))
	if err := a.prepare(t.Context(), a.nextDrive()); err != nil {
		t.Fatal(err)
	}
	p := a.nextDrive()
	if _, err := a.awaitTask(t.Context(), p); err != nil {
		t.Fatal(err)
	}

	// It is cut off for a moment: the placement stays, and is not told again.
	a.cancel()
	<-a.ended
	h := hello("a")
	h.Driving = []*pb.Placement{p}
	a = connect(t, s.workers, h)
	within(t, "it is back", func() bool { return s.Coordinator.workers.list()[0].Connected })
	task, err := a.awaitTask(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	k := chains.Event{Checkpoint: checkpointOf(task)}

	// It is cut off for good: b gets its chains under another attempt.
	a.cancel()
	<-a.ended
	b := connect(t, s.workers, hello("b"))
	var at *pb.Placement
	for at == nil || at.Chain != p.Chain {
		at = b.nextDrive()
	}
	if at.Attempt <= p.Attempt {
		t.Errorf("attempt %d after %d", at.Attempt, p.Attempt)
	}
	wantCode(t, "a report of the old attempt", a.report(t.Context(), p, k), codes.FailedPrecondition, "another driver")
	_, err = a.await(t.Context(), p)
	wantCode(t, "a question of the old attempt", err, codes.FailedPrecondition)
	_, err = a.workers.Report(t.Context(), &pb.ReportRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Failure: "no"})
	wantCode(t, "a failure of the old attempt", err, codes.FailedPrecondition)
	if err := b.report(t.Context(), at, k); err != nil {
		t.Errorf("the new driver: %v", err)
	}
	wantCode(t, "the same once more", b.report(t.Context(), at, k), codes.FailedPrecondition, "does not continue")
	if j := s.get(id); j.State != pb.JobState_JOB_STATE_WARMUP || j.Progress.Chains[p.Chain-1].Warmup != int32(len(k.Checkpoint.Draws)) {
		t.Errorf("%v", j)
	}
	for _, chain := range []int32{-1, 3, 99} {
		_, err := a.workers.Await(t.Context(), &pb.AwaitRequest{Job: id, Chain: chain, Attempt: 1})
		wantCode(t, fmt.Sprint("chain ", chain), err, codes.InvalidArgument)
	}
	_, err = a.workers.Await(t.Context(), &pb.AwaitRequest{Job: "unknown", Chain: 1})
	wantCode(t, "an unknown job", err, codes.NotFound)
}

// Who was not told to drive a lane says nothing of it, and is told nothing: its secret is
// with its driver alone, and another one with each attempt.
func TestOnlyTheDriverSpeaks(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	w := connect(t, s.workers, hello("w"))
	id := s.submit(testSpec(40, 60, 10))
	p := w.nextDrive()
	if len(p.Secret) != 32 {
		t.Fatalf("the secret is %q", p.Secret)
	}
	for _, secret := range []string{"", "x", strings.Repeat("0", 32)} {
		thief := proto.CloneOf(p)
		thief.Secret = secret
		wantCode(t, "data", w.loaded(t.Context(), thief), codes.FailedPrecondition, "another driver")
		wantCode(t, "events", w.report(t.Context(), thief, chains.Event{Prepared: testPreparation()}), codes.FailedPrecondition)
		_, err := w.await(t.Context(), thief)
		wantCode(t, "the specification", err, codes.FailedPrecondition)
		for _, elsewhere := range []bool{false, true} {
			_, err := s.workers.Report(t.Context(), &pb.ReportRequest{Job: id, Attempt: p.Attempt, Secret: secret, Failure: "so says a thief", Elsewhere: elsewhere})
			wantCode(t, "a failure", err, codes.FailedPrecondition)
		}
	}
	if err := w.loaded(t.Context(), p); err != nil {
		t.Error(err)
	}
	list, err := s.workers.List(t.Context(), &pb.ListWorkersRequest{})
	if err != nil || strings.Contains(list.String(), p.Secret) || len(list.Workers[0].Driving) != 1 {
		t.Errorf("%v %v", list, err)
	}
	node := &auth.Identity{Node: auth.Worker}
	list, err = (&workersService{c: s.Coordinator}).List(auth.With(t.Context(), node), &pb.ListWorkersRequest{})
	if err != nil || len(list.Workers) != 1 || list.Workers[0].Address == "" || len(list.Workers[0].Driving) != 0 {
		t.Errorf("a worker sees %v (%v)", list, err)
	}
	w.release(p)
	w.cancel()
	<-w.ended
	if again := connect(t, s.workers, hello("w")).nextDrive(); again.Attempt > p.Attempt && again.Secret == p.Secret {
		t.Error("another attempt has the same secret")
	}
}

// A driver that cannot go on ends the job, with its reason.
func TestFailure(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	w := connect(t, s.workers, hello("w"))
	id := s.submit(testSpec(40, 60, 10))
	p := w.nextDrive()
	if _, err := s.workers.Report(t.Context(), &pb.ReportRequest{Job: id, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Failure: "no such file" + strings.Repeat("!", 2*maxFailure)}); err != nil {
		t.Fatal(err)
	}
	j := s.get(id)
	if j.State != pb.JobState_JOB_STATE_FAILED || !strings.HasPrefix(j.Message, "no such file!") || len(j.Message) != maxFailure {
		t.Errorf("%v: %d bytes", j.State, len(j.Message))
	}
	for w.next().GetRevoke() == nil {
	}
	w.release(p)
	if _, err := s.jobs.Resume(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	if again := w.nextDrive(); again.Job != id || again.Attempt <= p.Attempt {
		t.Errorf("%v after %v", again, p)
	}
}

// What is no event, or says what cannot be, changes nothing.
func TestReportIsChecked(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	w := connect(t, s.workers, hello("w"))
	id := s.submit(testSpec(40, 60, 10))
	p := w.nextDrive()
	report := func(r *pb.ReportRequest) error {
		r.Job, r.Chain, r.Attempt, r.Secret = p.Job, p.Chain, p.Attempt, p.Secret
		_, err := s.workers.Report(t.Context(), r)
		return err
	}
	version := s.get(id).Progress.String()
	wantCode(t, "data that say nothing", report(&pb.ReportRequest{Loaded: &pb.Loaded{}}), codes.InvalidArgument)
	bad := testInfo().Wire("")
	bad.N = -1
	wantCode(t, "data that cannot be", report(&pb.ReportRequest{Loaded: &pb.Loaded{Data: bad}}), codes.InvalidArgument)
	wantCode(t, "events before the data", w.report(t.Context(), p, chains.Event{Prepared: testPreparation()}), codes.FailedPrecondition)
	if err := w.prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "the preparation again", w.report(t.Context(), p, chains.Event{Prepared: testPreparation()}), codes.FailedPrecondition)
	for p.Chain == 0 {
		p = w.nextDrive()
	}
	wantCode(t, "no event", report(&pb.ReportRequest{Events: [][]byte{[]byte("x")}}), codes.InvalidArgument)
	wantCode(t, "an event of another kind", w.report(t.Context(), p, chains.Event{Stop: &chains.Stop{}}), codes.InvalidArgument)
	task, err := w.awaitTask(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	k := checkpointOf(task)
	k.Chain = 3 - int(p.Chain)
	wantCode(t, "another chain's checkpoint", w.report(t.Context(), p, chains.Event{Checkpoint: k}), codes.InvalidArgument)
	large := checkpointOf(task)
	for range 280_000 {
		large.Draws = append(large.Draws, draw(1, 1))
	}
	wantCode(t, "a checkpoint that is too large", w.report(t.Context(), p, chains.Event{Checkpoint: large}), codes.InvalidArgument, "more than the log takes")
	if now := s.get(id).Progress; now.Chains[0].Warmup+now.Chains[1].Warmup != 0 {
		t.Errorf("something was taken: %v, before %s", now, version)
	}
	if err := report(&pb.ReportRequest{}); err != nil {
		t.Errorf("nothing to say: %v", err)
	}
}

// Await holds a call until there is something to do, and lets it go with its
// context.
func TestAwaitWaits(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	w := connect(t, s.workers, hello("w"))
	s.submit(testSpec(40, 60, 10))
	if err := w.prepare(t.Context(), w.nextDrive()); err != nil {
		t.Fatal(err)
	}
	first := w.nextDrive()
	second := w.nextDrive()
	finish := func(p *pb.Placement) { // the window of a tenth of the warm-up
		t.Helper()
		task, err := w.awaitTask(t.Context(), p)
		if err == nil {
			err = w.report(t.Context(), p, chains.Event{Checkpoint: checkpointOf(task)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	finish(first)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if task, err := w.awaitTask(short, first); err == nil {
		t.Errorf("a chain at a barrier is to do %+v", task)
	}
	done := make(chan error, 1)
	go func() {
		task, err := w.awaitTask(t.Context(), first)
		if err == nil && task.Settings.Window != 1 {
			err = errors.New("the task is of another window")
		}
		done <- err
	}()
	finish(second)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Whose jobs a worker drives is shown to those who see them.
func TestListHidesOthersJobs(t *testing.T) {
	node := coordinatortest.NewNode(t)
	s := serve(t, Config{Node: node})
	keep(t, s.Coordinator, &state.SetNamespace{Name: "lab", Fresh: true},
		&state.Submit{ID: "mine", Chains: 1}, &state.Submit{ID: "theirs", Chains: 1, Namespace: "lab"})
	h := hello("w")
	h.Driving = []*pb.Placement{{Job: "mine", Chain: 1, Attempt: 1}, {Job: "theirs", Chain: 1, Attempt: 1}, {Job: "gone", Chain: 1, Attempt: 1}}
	connect(t, s.workers, h)
	within(t, "the worker is known", func() bool { return len(s.Coordinator.workers.list()) == 1 })
	list := func(who *auth.Identity) (jobs []string) {
		r, err := (&workersService{c: s.Coordinator}).List(auth.With(t.Context(), who), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Workers[0].Driving {
			jobs = append(jobs, p.Job)
		}
		return jobs
	}
	if got := list(auth.Anybody()); !slices.Equal(got, []string{"gone", "mine", "theirs"}) {
		t.Errorf("all: %v", got)
	}
	if got := list(&auth.Identity{Role: state.Viewer, Namespaces: []string{state.DefaultNamespace}}); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("one namespace: %v", got)
	}
}
