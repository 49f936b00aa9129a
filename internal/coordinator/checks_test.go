package coordinator

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// checkedJob runs a job with workers, of whom some lie about checkpoints of others, and returns how it
// ended, and who is put aside. Two drive a chain each.
func checkedJob(t *testing.T, all []string, liars ...string) (s *served, j *pb.Job, aside []string) {
	t.Helper()
	s = serve(t, Config{CheckEvery: 1})
	s.lead()
	for _, id := range all {
		w := connect(t, s.workers, hello(id))
		w.lies = slices.Contains(liars, id)
		w.work()
	}
	id := s.submit(testSpec(400, 600, 10))
	within(t, "the end", func() bool {
		j = s.get(id)
		return j.State == pb.JobState_JOB_STATE_CONVERGED || j.State == pb.JobState_JOB_STATE_FAILED
	})
	list, err := s.workers.List(t.Context(), &pb.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list.Workers {
		if w.Aside {
			aside = append(aside, w.Id)
		}
	}
	return s, j, aside
}

// Checkpoints that come out the same are the end of it. Where a worker alone comes to something else a
// third decides against it, and the job goes on; where two do, the driver was wrong, and the job fails
// with a sentence that names the checkpoint and the workers.
func TestCheckpointsDoneTwice(t *testing.T) {
	t.Run("same", func(t *testing.T) {
		s, j, aside := checkedJob(t, []string{"a", "b", "c"})
		n := s.Coordinator.workers.checkCounts()
		if j.State != pb.JobState_JOB_STATE_CONVERGED || n[checkSame] == 0 || n[checkOther]+n[checkNone] > 0 || len(aside) > 0 {
			t.Errorf("%v, %v, aside %q", j.State, n, aside)
		}
	})
	t.Run("one lies", func(t *testing.T) {
		s, j, aside := checkedJob(t, []string{"a", "b", "c", "z"}, "z")
		if j.State != pb.JobState_JOB_STATE_CONVERGED || !slices.Equal(aside, []string{"z"}) {
			t.Errorf("%v %s, aside %q, %v", j.State, j.Message, aside, s.Coordinator.workers.checkCounts())
		}
	})
	t.Run("the driver is wrong", func(t *testing.T) {
		s := serve(t, Config{CheckEvery: -1})
		for _, id := range []string{"a", "b", "c"} {
			w := connect(t, s.workers, hello(id))
			within(t, id, func() bool { return s.Coordinator.workers.there()[w.id] })
		}
		id := s.submit(testSpec(400, 600, 10))
		k, r := &term{c: s.Coordinator}, s.Coordinator.workers
		c := &check{job: id, what: "the checkpoint of chain 1 from iteration 5 to 10", assignment: &pb.Assignment{}, driver: "a", sums: map[string]string{"a": "1"}}
		r.check(c)
		for range 2 { // by one that was asked, and by a third
			for _, w := range []string{"b", "c"} {
				r.checked(w, &pb.Checked{Number: c.number, Sha256: "2"}) // of who was not asked it is not heard
			}
			if err := k.settleChecks(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		j := s.get(id)
		if want := "the checkpoint of chain 1 from iteration 5 to 10 was computed by worker a, and not worker "; j.State != pb.JobState_JOB_STATE_FAILED || !strings.Contains(j.Message, want) {
			t.Errorf("%v %s", j.State, j.Message)
		}
		for _, w := range r.list() {
			if w.Aside != (w.Id == "a") {
				t.Errorf("%s is put aside: %v", w.Id, w.Aside)
			}
		}
	})
	t.Run("nobody to decide", func(t *testing.T) {
		s := serve(t, Config{CheckEvery: -1})
		s.lead()
		id := s.submit(testSpec(400, 600, 10))
		k := &term{c: s.Coordinator}
		k.askThird(&check{job: id, what: "the checkpoint of chain 1 from iteration 5 to 10", driver: "a", rival: "b"})
		if err := k.settleChecks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if j := s.get(id); j.State != pb.JobState_JOB_STATE_FAILED || !strings.Contains(j.Message, "worker b comes to something else; there is no third") {
			t.Errorf("%v %s", j.State, j.Message)
		}
	})
}
