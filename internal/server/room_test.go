package server

import (
	"math"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// While a majority of the disks is nearly full there are no new jobs, then no more
// draws; what makes room is taken, and with room all goes on.
func TestRoomForJobsAndDraws(t *testing.T) {
	const reserve = 1 << 30
	var free atomic.Int64
	free.Store(math.MaxInt64 / 2)
	g := startGuarded(t, 1, func(c *Coordinator) {
		c.DiskReserve = reserve
		c.free = func() (int64, error) { return free.Load(), nil }
	})
	jobs := pb.NewJobsClient(g.admin)
	submit := func() (*pb.Job, error) { return jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec}) }
	worker := newFakeWorker(t, running{g.grpc[0], g.as(0, g.token("w1", "worker").Secret)}, "w1", "none")
	j, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	p := worker.driven(j.Id, 0)

	free.Store(reserve/4 + 100<<20)
	eventually(t, "no job to be taken", func() bool { _, err = submit(); return err != nil })
	wantCode(t, "a job without room", err, codes.ResourceExhausted, "no room for more jobs")
	_, err = jobs.Extend(t.Context(), &pb.ExtendRequest{Id: j.Id, Draws: 10})
	wantCode(t, "more draws of a job without room", err, codes.ResourceExhausted, "no room for more jobs")
	if err := worker.loaded(p, goodInfo().Wire("")); err != nil {
		t.Error("a worker's report while there is room for draws:", err)
	}

	free.Store(0)
	eventually(t, "no report to be taken", func() bool { err = worker.report(p); return err != nil })
	wantCode(t, "draws without room", err, codes.ResourceExhausted, "no room for more draws")
	if _, err := jobs.Get(t.Context(), &pb.GetJobRequest{Id: j.Id}); err != nil {
		t.Error("reading:", err)
	}
	if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Error("cancelling:", err)
	}
	if _, err := jobs.Delete(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Error("deleting:", err)
	}

	free.Store(math.MaxInt64 / 2)
	eventually(t, "a job to be taken", func() bool { _, err = submit(); return err == nil })
}

// The leader goes by the disks of a majority, and by its own.
func TestRoomOfAMajority(t *testing.T) {
	const reserve = 1 << 30
	free := make([]atomic.Int64, 3)
	set := func(bytes ...int64) {
		for i := range free {
			free[i].Store(bytes[i])
		}
	}
	const much = math.MaxInt64 / 2
	set(much, much, much)
	i := 0
	g := startGuarded(t, 3, func(c *Coordinator) {
		mine := &free[i]
		i++
		c.DiskReserve = reserve
		c.free = func() (int64, error) { return mine.Load(), nil }
	})
	jobs := pb.NewJobsClient(g.as(2, g.root))
	taken := func() bool {
		_, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec})
		return err == nil
	}
	eventually(t, "three votes", func() bool {
		m, err := pb.NewClusterClient(g.admin).Members(t.Context(), &pb.MembersRequest{})
		votes := 0
		for _, m := range m.GetMembers() {
			if m.Voter {
				votes++
			}
		}
		return err == nil && votes == 3
	})
	eventually(t, "a job", taken)
	set(much, 0, 0) // c0 leads
	eventually(t, "no job while two disks are full", func() bool { return !taken() })
	set(much, much, 0)
	eventually(t, "a job while one disk is full", taken)
	set(0, much, much)
	eventually(t, "no job while the leader's disk is full", func() bool { return !taken() })
}
