package coordinator

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// A worker that failed a job gets no chain of it for a time that doubles; the job
// fails when several workers have failed it, or all that there are, and none got any
// further in between.
func TestTroubles(t *testing.T) {
	now := epoch
	var k troubles
	aside := func(w string) bool { _, is := k.of(w, now)["j"]; return is }
	k.add("j", "a", "disk full", now)
	k.add("j", "a", "disk full", now) // another chain
	if !aside("a") || aside("b") || len(k.of("a", now)) != 1 || k.verdict("j", []string{"a", "b"}) != "" || k.last("j") != "" {
		t.Errorf("after one failure: %+v", k)
	}
	for _, pause := range []time.Duration{1, 2, 4, 8} {
		if now = now.Add(pause*time.Second - 1); !aside("a") {
			t.Errorf("not put aside for %d s", pause)
		}
		if now = now.Add(1); aside("a") {
			t.Errorf("put aside for more than %d s", pause)
		}
		k.add("j", "a", "disk full", now)
	}
	if v := k.verdict("j", []string{"a", "b"}); v != "" {
		t.Errorf("b was not asked: %q", v)
	}
	if v := k.verdict("j", []string{"a"}); v != "worker a: disk full failed 5 times" {
		t.Errorf("a is all there is: %q", v)
	}
	k.heard("j", "b")
	if k.verdict("j", []string{"a"}) != "" || !aside("a") {
		t.Error("after b got further")
	}
	for _, w := range []string{"b", "c", "d"} {
		k.add("j", w, "no memory", now)
	}
	if v := k.verdict("j", []string{"a", "b", "c", "d", "e"}); !strings.Contains(v, "3 workers failed: b: no memory; c: no memory; d: no memory") {
		t.Errorf("three of five: %q", v)
	}
	if !strings.Contains(k.last("j"), "worker d could not go on with it: no memory") {
		t.Error(k.last("j"))
	}
	k.add("i", "a", lostReason, now)
	if len(k.of("a", now)) != 1 {
		t.Error("a worker that was lost once, maybe by chance, is put aside")
	}
	k.add("i", "a", lostReason, now)
	if len(k.of("a", now)) != 2 {
		t.Error("a worker that was lost twice is not put aside")
	}
	k.keep(map[string]*state.Job{"i": {}})
	if aside("a") || len(k.strikes) != 1 {
		t.Errorf("after the job is over: %+v", k)
	}
}

// refuseAll reports of each placement that a worker cannot do it, but another might.
func refuseAll(w *testWorker, why string) (stop func()) {
	ended := make(chan struct{})
	quit := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case m := <-w.told:
				p := m.GetDrive().GetPlacement()
				if p == nil {
					continue
				}
				_, _ = w.workers.Report(w.t.Context(), &pb.ReportRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Worker: w.id, Failure: why, Elsewhere: true}) // it may be over
				w.release(p)
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// What a worker reports as its own failure is done by another one; where there is no
// other, the job fails in the end, says why, and can be resumed.
func TestFailureOfAWorkerIsNotTheJobs(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	defer refuseAll(connect(t, s.workers, hello("full")), "opening the data: the disk is full")()
	id := s.submit(testSpec(40, 60, 10))
	s.awaitState(id, pb.JobState_JOB_STATE_FAILED)
	j := s.get(id)
	if !strings.Contains(j.Message, "worker full: opening the data: the disk is full failed 3 times") {
		t.Errorf("%q", j.Message)
	}
	connect(t, s.workers, hello("good")).work()
	for range 3 {
		id := s.submit(testSpec(40, 60, 10))
		s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	}
	if _, err := s.jobs.Resume(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
		t.Error(err)
	}
	s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	_, err := s.workers.Report(t.Context(), &pb.ReportRequest{Job: id, Chain: 0, Attempt: 99, Worker: "good", Failure: "no", Elsewhere: true})
	wantCode(t, "a failure of a driver that is none", err, codes.FailedPrecondition)
}

// A job whose workers are lost again and again, before anything came of it, fails; one
// that goes on in between does not.
func TestJobThatKillsItsWorkers(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	id := s.submit(testSpec(1_000_000, 10_000_000, never))
	process := func(id string, number int) *pb.Hello {
		h := hello(id)
		h.Process = strconv.Itoa(number)
		return h
	}
	for i := range mostStrikes {
		w := connect(t, s.workers, process("w", i))
		w.nextDrive()
		w.cancel() // the process is gone, and starts again
		<-w.ended
	}
	w := connect(t, s.workers, process("w", mostStrikes))
	s.awaitState(id, pb.JobState_JOB_STATE_FAILED)
	if m := s.get(id).Message; !strings.Contains(m, "out of memory?") || !strings.Contains(m, "worker w") {
		t.Errorf("%q", m)
	}
	w.cancel()
	<-w.ended

	id = s.submit(testSpec(1_000_000, 10_000_000, never))
	for i := range 2 * mostStrikes {
		w := connect(t, s.workers, process("v", i))
		p := w.nextDrive()
		if _, err := s.workers.Log(t.Context(), &pb.LogRequest{Job: p.Job, Chain: p.Chain, Worker: "v", Secret: p.Secret, Lines: []string{"a gradient"}}); err != nil {
			t.Error(err)
		}
		w.cancel()
		<-w.ended
	}
	connect(t, s.workers, hello("v")).work()
	s.awaitState(id, pb.JobState_JOB_STATE_SAMPLING)
}

// Silence is nobody's failure: a network that fails cuts off all workers. A process that
// takes a worker's place, however late, says that the one before was lost.
func TestSilenceIsNoFailure(t *testing.T) {
	r, now, grace := newRegistry(), time.Now(), time.Second
	key := state.ChainKey{Job: "j", Chain: 1}
	jobs := map[string]*state.Job{"j": {}}
	driving := []*pb.Placement{{Job: "j", Chain: 1, Attempt: 1}}
	come := func(id, process string, driving []*pb.Placement) *session {
		s := newSession("")
		if !r.connect(&pb.Hello{Id: id, Process: process, Driving: driving}, s, now) {
			t.Fatal(id)
		}
		return s
	}
	there := []string{"a", "b", "c"}
	var sessions []*session
	for _, id := range there {
		sessions = append(sessions, come(id, "1", driving))
	}
	for i, id := range there {
		r.disconnect(id, sessions[i], now)
	}
	now = now.Add(10 * grace)
	r.forget(now, time.Hour, grace, jobs)
	for _, id := range there {
		if len(r.byID[id].holds) != 0 {
			t.Errorf("%s still holds %v", id, key)
		}
		come(id, "1", nil) // its driver has ended meanwhile
	}
	if n := len(r.troubles.strikes["j"]); n != 0 {
		t.Errorf("%d failures of workers that were only silent", n)
	}
	s := come("a", "1", driving)
	r.disconnect("a", s, now)
	now = now.Add(10 * grace)
	r.forget(now, time.Hour, grace, jobs)
	r.forget(now, time.Hour, grace, jobs)
	come("a", "2", nil)
	if all := r.troubles.strikes["j"]; len(all) != 1 || all[0] != (strike{"a", lostReason, now}) {
		t.Errorf("after another process of a came: %v", all)
	}
}

// Workers that are lost together are lost by no job, whose chains all of them had; one after
// another, each with a chain that it took up after the one before was lost, they are.
func TestLostTogether(t *testing.T) {
	there := []string{"a", "b", "c"}
	jobs := map[string]*state.Job{"j": {ID: "j", Placements: make([]state.Placement, len(there))}}
	keep := map[state.ChainKey]bool{}
	for i := range there {
		keep[state.ChainKey{Job: "j", Chain: i}] = true
	}
	for _, together := range []bool{true, false} {
		r, now := newRegistry(), time.Now()
		process := 0
		come := func(id string) {
			process++
			now = now.Add(time.Second)
			if r.byID[id] != nil {
				r.disconnect(id, r.byID[id].session, now)
			}
			if !r.connect(&pb.Hello{Id: id, Process: fmt.Sprint(process)}, newSession(""), now) {
				t.Fatal(id)
			}
		}
		place := func(chain int, id string) {
			now = now.Add(time.Second)
			jobs["j"].Placements[chain] = state.Placement{Worker: id, Attempt: int64(process)}
			r.tell(keep, jobs, now)
		}
		for _, id := range there {
			come(id)
		}
		for i, id := range there {
			if together {
				place(i, id)
			}
		}
		for i, id := range there {
			if !together {
				place(i, id)
			}
			come(id)
		}
		v := r.verdict("j")
		if n := len(r.troubles.strikes["j"]); together && (v != "" || n != 1) || !together && (v == "" || n != 3) {
			t.Errorf("together %v: %d strikes, %q", together, n, v)
		}
	}
}

// A job that needs more memory than any worker has waits, says so, and keeps nobody
// else waiting.
func TestJobOfTooMuchMemory(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	small := hello("small")
	small.Capacity.MemoryBytes = 1 << 20
	connect(t, s.workers, small).work()
	big := s.submit(strings.Replace(testSpec(40, 60, 10), "method: cg", "method: cg, preconditioner: {kind: rpcholesky, rank: 1000}", 1))
	within(t, "the reason", func() bool { return strings.Contains(s.get(big).Health.GetMessage(), "of memory for it") })
	s.awaitState(s.submit(testSpec(40, 60, 10)), pb.JobState_JOB_STATE_CONVERGED)
	large := hello("large")
	large.Capacity.MemoryBytes = 1 << 40
	connect(t, s.workers, large).work()
	s.awaitState(big, pb.JobState_JOB_STATE_CONVERGED)
}

// A job of two chains for which no worker has the memory alone, but three have that keep its preconditioner together, a factor of 640 MB, waits for the sixth: alone a driver
// needs 1.1 GB, with one other member 0.8, with two 0.7.
func TestJobOfGroupsThatHaveTheMemory(t *testing.T) {
	s := serve(t, Config{SplitRows: 1})
	s.lead()
	work := func(id string) {
		h := hello(id)
		h.Capacity.MemoryBytes = 760e6
		w := connect(t, s.workers, h)
		w.rows = 20_000
		w.work()
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		work(id)
	}
	id := s.submit(strings.Replace(testSpec(40, 60, 10), "method: cg", "method: cg, preconditioner: {kind: rpcholesky, rank: 4000}", 1))
	within(t, "the reason", func() bool {
		return strings.Contains(s.get(id).Health.GetMessage(), "of memory for it, in groups of 2 for each chain, which is what there are, and the one with most has 725 MiB")
	})
	s.awaitState(s.submit(testSpec(40, 60, 10)), pb.JobState_JOB_STATE_CONVERGED) // nobody waits for it
	work("f")
	s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
}
