package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
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
		within(t, id, func() bool { return s.Coordinator.workers.there()[id] })
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
// third decides against it, and the job goes on.
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
}

// disputed is a check that one of several idle workers was asked about, and came to something else.
type disputed struct {
	*served
	t    *testing.T
	term *term
	c    *check
}

// dispute lets b come to something else than what a has reported: "1".
func dispute(t *testing.T, workers ...string) *disputed {
	t.Helper()
	s := serve(t, Config{CheckEvery: -1})
	d := &disputed{served: s, t: t, term: &term{c: s.Coordinator}}
	for _, id := range []string{"a", "b"} {
		d.comes(id)
	}
	d.c = &check{job: s.submit(testSpec(400, 600, 10)), what: "the checkpoint of chain 1 from iteration 5 to 10", assignment: &pb.Assignment{}, driver: "a",
		sums: map[string]string{"a": "1"}, repeated: map[string]bool{}}
	if !s.Coordinator.workers.check(d.c) {
		t.Fatal("b is not asked")
	}
	for _, id := range workers {
		d.comes(id)
	}
	d.says("b", "2")
	return d
}

func (d *disputed) comes(id string) {
	d.t.Helper()
	connect(d.t, d.served.workers, hello(id))
	within(d.t, id, func() bool { return d.Coordinator.workers.there()[id] })
}

// says lets a worker answer, which has to have been asked, and the leader conclude.
func (d *disputed) says(id, sum string) {
	d.t.Helper()
	r := d.Coordinator.workers
	r.mu.Lock()
	asked := r.checking.asked[id]
	r.mu.Unlock()
	if asked != d.c {
		d.t.Fatalf("%s is not asked", id)
	}
	r.checked(id, &pb.Checked{Number: d.c.number, Sha256: sum})
	d.settle()
}

func (d *disputed) settle() {
	d.t.Helper()
	if err := d.term.settleChecks(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// want wants a state, words of the job's message and of its log (none for an empty message), and who is put aside.
func (d *disputed) want(state pb.JobState, words string, aside ...string) {
	d.t.Helper()
	j := d.get(d.c.job)
	if j.State != state || !strings.Contains(j.Message, words) || words == "" && j.Message != "" {
		d.t.Errorf("%v %q, want %v and %q", j.State, j.Message, state, words)
	}
	if told := strings.Join(d.notes(), "\n"); !strings.Contains(told, words) {
		d.t.Errorf("the job's log does not say %q:\n%s", words, told)
	}
	var got []string
	for _, w := range d.Coordinator.workers.list() {
		if w.Aside {
			got = append(got, w.Id)
		}
	}
	if !slices.Equal(got, aside) {
		d.t.Errorf("aside: %q, want %q", got, aside)
	}
}

// notes returns what happened to the job.
func (d *disputed) notes() (out []string) {
	d.t.Helper()
	err := d.node.View(func(tx *bbolt.Tx) error {
		notes, err := state.Notes(tx, d.c.job)
		for _, n := range notes {
			out = append(out, n.Text)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// Two workers that agree are right. A driver that is outvoted has spoilt its job; who is outvoted by the
// driver and another has not, nor has one who says each time what nobody else does.
func TestDisputes(t *testing.T) {
	const queued, failed = pb.JobState_JOB_STATE_QUEUED, pb.JobState_JOB_STATE_FAILED
	const alone = "worker b comes to something else; there is no third one to decide who is right"
	t.Run("a third agrees with the driver", func(t *testing.T) {
		d := dispute(t, "c")
		d.says("c", "1")
		d.want(queued, "", "b")
	})
	t.Run("a third agrees with the other", func(t *testing.T) {
		d := dispute(t, "c")
		d.says("c", "2")
		d.want(failed, "the checkpoint of chain 1 from iteration 5 to 10 was computed by worker a, and not worker b alone but c, too", "a")
	})
	t.Run("a third agrees with nobody, a fourth with the other", func(t *testing.T) {
		d := dispute(t, "c", "d")
		third, fourth := "c", "d"
		if d.Coordinator.workers.checking.asked["d"] != nil {
			third, fourth = "d", "c"
		}
		d.says(third, "3")
		d.want(queued, "")
		d.says(fourth, "2")
		d.want(failed, "not worker b alone", "a")
	})
	t.Run("the driver comes to something else the second time", func(t *testing.T) {
		d := dispute(t)
		d.says("a", "2")
		d.want(failed, "which came to something else than before when it did so again", "a")
	})
	t.Run("the other comes to something else the second time", func(t *testing.T) {
		d := dispute(t)
		d.says("a", "1")
		d.says("b", "1")
		d.want(queued, "", "b")
	})
	t.Run("both stay with it", func(t *testing.T) {
		d := dispute(t)
		d.says("a", "1")
		d.says("b", "2")
		d.want(queued, alone)
		before := len(d.notes())
		d.settle()
		if n := len(d.notes()); n != before {
			t.Errorf("%d notes, there were %d", n, before)
		}
		d.comes("c")
		d.settle()
		d.says("c", "1")
		d.want(queued, "is in doubt no more: worker c comes to the same", "b")
	})
	t.Run("both stay with it, and a third comes late", func(t *testing.T) {
		d := dispute(t)
		d.says("a", "1")
		d.says("b", "") // it cannot say
		d.want(queued, alone)
		if _, err := d.jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: d.c.job}); err != nil {
			t.Fatal(err)
		}
		d.comes("c")
		d.settle()
		d.says("c", "2")
		d.want(pb.JobState_JOB_STATE_CANCELLED, "not worker b alone but c, too", "a")
	})
}

// An idle worker that lies does not stop the jobs of a cluster of two, which say that it does.
func TestLiarInAClusterOfTwo(t *testing.T) {
	s, j, aside := checkedJob(t, []string{"a", "z"}, "z")
	if j.State != pb.JobState_JOB_STATE_CONVERGED || len(aside) > 0 {
		t.Errorf("%v %s, aside %q", j.State, j.Message, aside)
	}
	want := " was computed by worker a, and worker z comes to something else; there is no third one"
	within(t, want, func() bool { return strings.Contains(s.get(j.Id).Message, want) })
}

// Who drives a chain of the job is asked if it has the memory for another one; best of all is who drives nothing.
func TestWhoChecks(t *testing.T) {
	const memory = 1 << 30
	ask := func(job string, c *check, others ...*pb.Hello) (asked string) {
		r := newRegistry()
		for _, h := range append(others, hello("driver")) {
			r.connect(h, newSession(""), time.Now())
		}
		for id, w := range r.byID {
			if strings.HasPrefix(id, "busy") {
				w.holds[state.ChainKey{Job: job, Chain: 2}] = &held{}
			}
		}
		r.check(c)
		for id := range r.checking.asked {
			asked += id
		}
		return asked
	}
	with := func(id string, bytes int64) *pb.Hello {
		h := hello(id)
		h.Capacity.MemoryBytes = bytes
		return h
	}
	for i, c := range []struct {
		job    string
		others []*pb.Hello
		want   string
	}{
		{"a", []*pb.Hello{with("busy", 2*memory), with("idle", memory)}, "idle"},
		{"a", []*pb.Hello{with("busy", 2*memory), with("idle", memory-1)}, "busy"},
		{"a", []*pb.Hello{with("busy", 2*memory-1)}, ""},
		{"a", []*pb.Hello{with("busy", 0)}, "busy"}, // it has not told
		{"another", []*pb.Hello{with("busy", 4*memory)}, ""},
	} {
		check := &check{job: "a", memory: memory, driver: "driver", sums: map[string]string{"driver": "1"}, repeated: map[string]bool{}}
		if got := ask(c.job, check, c.others...); got != c.want {
			t.Errorf("%d: %q is asked, want %q", i, got, c.want)
		}
	}
}
