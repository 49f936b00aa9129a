package server

import (
	"os"
	"runtime"
	"testing"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A hundred jobs leave no goroutine and no open file behind, neither while the
// cluster runs on nor (TestMain) when it has ended.
func TestManyJobsLeaveNothing(t *testing.T) {
	jobs := 100
	if testing.Short() {
		jobs = 10
	}
	c := startCoordinator(t)
	startWorker(t, "a", c.address)
	startWorker(t, "b", c.address)
	client := pb.NewJobsClient(c.conn)
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	wait := func(id string) {
		t.Helper()
		s, err := client.Watch(t.Context(), &pb.WatchRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		var last *pb.Job
		for {
			j, err := s.Recv()
			if err != nil {
				break
			}
			last = j
		}
		if last.GetState() != pb.JobState_JOB_STATE_UNCONVERGED {
			t.Fatalf("the job is %v: %s", last.GetState(), last.GetMessage())
		}
	}
	run := func(n int) {
		t.Helper()
		var ids []string
		for range n {
			ids = append(ids, submit(t, c, 4))
		}
		for _, id := range ids {
			wait(id)
		}
	}
	run(3) // connections that stay
	goroutines, open := runtime.NumGoroutine(), files()
	run(jobs)
	// Some end a little after their job, and some connections come and go.
	const spare = 5
	eventually(t, "the end of all goroutines of jobs", func() bool { return runtime.NumGoroutine() <= goroutines+spare })
	eventually(t, "the closing of all files of jobs", func() bool { return files() <= open+spare })
	t.Logf("%d jobs: goroutines %d → %d, files %d → %d", jobs, goroutines, runtime.NumGoroutine(), open, files())
}
