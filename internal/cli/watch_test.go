package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client/clienttest"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// wait runs submit --wait while the test does something to the job.
func wait(t *testing.T, s *clienttest.Server, a *App, ctx context.Context, meanwhile func(id string), args ...string) int {
	t.Helper()
	s.Hold = true
	done := make(chan int)
	watches := s.Calls("Watch")
	go func() { done <- a.Execute(ctx, args) }()
	for s.Calls("Watch") == watches {
		time.Sleep(time.Millisecond)
	}
	meanwhile(s.Newest())
	return <-done
}

// The exit of --wait tells how the job ended; an interruption leaves it.
func TestWaitExits(t *testing.T) {
	s := cluster(t)
	spec := write(t, t.TempDir(), "s.yaml", tinySpec)
	never := write(t, t.TempDir(), "n.yaml", strings.Replace(tinySpec, "ess: 1,", "ess: 1e9,", 1))
	for _, c := range []struct {
		spec string
		do   func(id string)
		code int
		want string
	}{
		{spec, s.Run, 0, ""},
		{never, s.Run, 3, ""},
		{spec, func(id string) {
			s.Change(id, func(j *pb.Job) {
				j.State, j.Message, j.Ended = pb.JobState_JOB_STATE_FAILED, "the mode was not found", j.Submitted
			})
		}, 1, "failed: the mode was not found\n"},
		{spec, func(id string) {
			s.Change(id, func(j *pb.Job) { j.State, j.Ended = pb.JobState_JOB_STATE_CANCELLED, j.Submitted })
		}, 1, "was cancelled: see 'ulisse results"},
	} {
		var stdout, stderr bytes.Buffer
		a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
		code := wait(t, s, a, context.Background(), c.do, "submit", c.spec, "--wait", "-q")
		if code != c.code || !strings.Contains(stderr.String(), c.want) || c.want == "" && stderr.String() != "" {
			t.Errorf("exit %d, want %d\n%s", code, c.code, stderr.String())
		}
		if code, _, _ := ulisse(t, "", "watch", s.Newest()); code != c.code {
			t.Errorf("watch: exit %d, want %d", code, c.code)
		}
	}
	s.Hold = false
	s.Fail("Result", 1<<30)
	code, _, errs := ulisse(t, "", "submit", spec, "--wait", "-q", "--timeout", "50ms")
	if want := "is converged, but its results did not come: no answer from the cluster at " + s.Addr() + ": there is no leader; fetch them with 'ulisse results " + s.Newest() + "'\n"; code != ExitFailure || !strings.HasSuffix(errs, want) {
		t.Errorf("exit %d\n%s", code, errs)
	}
	var stdout, stderr bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	ctx, cancel := context.WithCancel(context.Background())
	code = wait(t, s, a, ctx, func(string) { cancel() }, "submit", spec, "--wait")
	id := s.Newest()
	if code != ExitInterrupted || !strings.Contains(stderr.String(), "interrupted; the job goes on: come back with 'ulisse watch "+id+"'") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
	if jobs := asJSON[[]object](t, "jobs", "--state", "queued"); len(jobs) != 1 || jobs[0]["id"] != id {
		t.Errorf("got %v", jobs)
	}
}

// locked is a buffer that may be written by many.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// On a terminal there is a live view, which tells of lost coordinators too.
func TestLiveView(t *testing.T) {
	s := cluster(t)
	var stdout, stderr locked
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, OutTTY: true, Now: time.Now}
	s.Hold = true
	id := strings.TrimSpace(good(t, "submit", write(t, t.TempDir(), "s.yaml", tinySpec), "-q"))
	shows := func(text string) {
		for !strings.Contains(stdout.String(), text) {
			time.Sleep(time.Millisecond)
		}
	}
	code := wait(t, s, a, context.Background(), func(string) {
		shows("waits for workers")
		s.Change(id, func(j *pb.Job) {
			j.State, j.Message = pb.JobState_JOB_STATE_SAMPLING, ""
			j.Progress = &pb.Progress{Rhat: 1.02, Ess: 100, JudgedDraws: 5, Draws: 20, MaxDraws: 20, ActiveSeconds: 36, Step: 0.8, Probes: 8,
				Chains: []*pb.ChainProgress{
					{Chain: 1, Warmup: 10, Draws: 5, SolverIterations: 12, Worker: "w-alpha", Group: []string{"w-alpha", "w-beta"}},
					{Chain: 2, Warmup: 10, Draws: 5, Worker: "w-alpha"}}}
		})
		shows("of the")
		s.Stop()
		s.Start()
		s.Run(id)
	}, "watch", id)
	if code != 0 || stderr.String() != "" {
		t.Fatalf("exit %d\n%s", code, stderr.String())
	}
	for _, want := range []string{"tiny  " + id + "  queued", "waits for workers", "sampling  36s  ETA 36s", "R-hat 1.020 of 9  ESS 100 of 1  ESS/h 10000  at 5 draws  step 0.80  8 probes",
		"chain 1  [======                  ]    5/20 draws    12 its  on w-alpha with w-beta", "worker w-alpha", "75 % of the", "worker w-beta", "25 % of the", "4 cores avx2  lost",
		"converged", "\x1b[K"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
}

func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := screen{w: &b}
	s.draw([]string{"a", strings.Repeat("é", 200)})
	s.draw([]string{"b"})
	if got, want := b.String(), "\r\x1b[Ka\n\r\x1b[K"+strings.Repeat("é", 98)+"…\n\x1b[J"+"\x1b[2A\r\x1b[Kb\n\x1b[J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Completion offers ids and names, and nothing where there is no cluster.
func TestCompletion(t *testing.T) {
	s := cluster(t)
	s.Hold = true
	id := strings.TrimSpace(good(t, "submit", write(t, t.TempDir(), "s.yaml", tinySpec), "-q"))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"watch", ""}, id + "\ttiny, queued\ntiny\tqueued\n"},
		{[]string{"drain", ""}, "w-alpha\tready\nw-beta\tlost\n"},
		{[]string{"cluster", "remove", ""}, "c1\t10.0.0.1:7000\n"},
		{[]string{"jobs", "--state", ""}, "queued\npreparing\n"},
	} {
		if out := good(t, append([]string{"__complete"}, c.args...)...); !strings.HasPrefix(out, c.want) {
			t.Errorf("%v: got %q, want %q", c.args, out, c.want)
		}
	}
	s.Stop()
	if out := good(t, "__complete", "watch", "--timeout", "50ms", ""); out != ":4\n" {
		t.Errorf("got %q", out)
	}
	s.Start()
}
