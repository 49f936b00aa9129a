package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client/clienttest"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// wait runs a command that watches the newest job, while the test does something
// to it.
func wait(t *testing.T, s *clienttest.Cluster, a *App, ctx context.Context, meanwhile func(id string), args ...string) int {
	t.Helper()
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
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	never := write(t, dir, "n.yaml", strings.Replace(tinySpec, "ess: 1,", "ess: 1e9,", 1))
	unready := write(t, dir, "u.yaml", strings.Replace(tinySpec, "{synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}", "{path: "+dir+"/none.csv, target: y}", 1))
	var stdout, stderr bytes.Buffer
	app := func() *App {
		stdout.Reset()
		stderr.Reset()
		return &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	}
	ctx, cancel := context.WithCancel(context.Background())
	code := wait(t, s, app(), ctx, func(string) { cancel() }, "submit", spec, "--wait")
	id := s.Newest()
	if code != ExitInterrupted || !strings.Contains(stderr.String(), "interrupted; the job goes on: come back with 'ulisse watch "+id+"'") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
	if jobs := asJSON[[]object](t, "jobs", "--state", "queued"); len(jobs) != 1 || jobs[0]["id"] != id {
		t.Errorf("got %v", jobs)
	}
	good(t, "cancel", id)
	work := func(string) { s.Work("w") }
	none := func(string) {}
	for _, c := range []struct {
		args []string
		do   func(id string)
		code int
		want string
	}{
		{[]string{spec}, func(id string) { good(t, "cancel", id) }, 1, "was cancelled: see 'ulisse results"},
		{[]string{unready, "--by-reference"}, work, 1, "none.csv: no such file or directory"},
		{[]string{spec}, none, 0, ""},
		{[]string{never}, none, 3, ""},
	} {
		args := append([]string{"submit", "--wait", "-q"}, c.args...)
		code := wait(t, s, app(), context.Background(), c.do, args...)
		if code != c.code || !strings.Contains(stderr.String(), c.want) || c.want == "" && stderr.String() != "" {
			t.Errorf("exit %d, want %d\n%s", code, c.code, stderr.String())
		}
		if code, _, _ := ulisse(t, "", "watch", s.Newest()); code != c.code {
			t.Errorf("watch: exit %d, want %d", code, c.code)
		}
	}
	s.Refuse("Result", 1<<30)
	code, _, errs := ulisse(t, "", "submit", spec, "--wait", "-q", "--timeout", "50ms")
	if want := "is converged, but its results did not come: no answer from the cluster at " + s.Addr() + ": there is no leader; fetch them with 'ulisse results " + s.Newest() + "'\n"; code != ExitFailure || !strings.HasSuffix(errs, want) {
		t.Errorf("exit %d\n%s", code, errs)
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
	id := strings.TrimSpace(good(t, "submit", write(t, t.TempDir(), "s.yaml", tinySpec), "-q"))
	shows := func(text string) {
		for !strings.Contains(stdout.String(), text) {
			time.Sleep(time.Millisecond)
		}
	}
	code := wait(t, s, a, context.Background(), func(string) {
		shows("tiny  " + id + "  queued")
		s.Stop()
		shows("no answer from the cluster at " + s.Addr())
		s.Work("w")
		s.Start()
	}, "watch", id)
	if code != 0 || stderr.String() != "" {
		t.Fatalf("exit %d\n%s", code, stderr.String())
	}
	if out := stdout.String(); !strings.Contains(out, "tiny  "+id+"  converged") || !strings.Contains(out, "\x1b[K") {
		t.Errorf("got\n%s", out)
	}
}

// The lines of the live view are of the chains and of the workers at them, with
// their shares of what they have computed since it began.
func TestJobLines(t *testing.T) {
	worker := func(id string, pairs float64, connected bool) *pb.Worker {
		return &pb.Worker{Id: id, Connected: connected, Load: &pb.Load{Pairs: pairs}, Capacity: &pb.Capacity{Cores: 4, InstructionSet: "avx2", PairsPerSecond: 1e9}}
	}
	var w shares
	w.see([]*pb.Worker{worker("w-alpha", 3e9, true), worker("w-beta", 1e9, true), worker("w-gamma", 0, true)})
	j := &pb.Job{Id: "x", Name: "tiny", State: pb.JobState_JOB_STATE_SAMPLING, Progress: &pb.Progress{Rhat: 1.02, Ess: 100, RhatWanted: 9, EssWanted: 1, LargestError: 0.0312, ErrorWanted: 0.05,
		JudgedDraws: 5, Draws: 20, MaxDraws: 40, Warmup: 10, ActiveSeconds: 36, EtaSeconds: 108, Step: 0.8, Probes: 8, Chains: []*pb.ChainProgress{
			{Chain: 1, Warmup: 10, Draws: 5, SolverIterations: 12, Worker: "w-alpha", Group: []string{"w-alpha", "w-beta"}},
			{Chain: 2, Warmup: 5, Worker: "w-alpha"},
			{Chain: 3, Warmup: 10, Draws: 30}}}}
	want := []string{"tiny  x  sampling  36s  ETA 1m48s",
		"R-hat 1.020 of 9  ESS 100 of 1  error 0.031 of 0.05  ESS/h 10000  at 5 draws  step 0.80  8 probes",
		"chain 1  [======                  ]    5/20 draws    12 its  on w-alpha with w-beta",
		"chain 2  [============            ]    5/10 warm-up  on w-alpha",
		"chain 3  [==================      ]   30/40 draws  ",
		"worker w-alpha   50 % of the speed  4 cores avx2",
		"worker w-beta   50 % of the speed  4 cores avx2"}
	if got := jobLines(j, &w); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	w.see([]*pb.Worker{worker("w-alpha", 6e9, true), worker("w-beta", 2e9, false), worker("w-gamma", 5e9, true)})
	want = append(want[:5], "worker w-alpha   75 % of the work  4 cores avx2", "worker w-beta   25 % of the work  4 cores avx2  lost")
	if got := jobLines(j, &w); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	waits := &pb.Job{Id: "x", Name: "tiny", State: pb.JobState_JOB_STATE_QUEUED, Message: "no worker is connected",
		Health: &pb.Health{Status: pb.HealthStatus_HEALTH_STATUS_STALLED, Message: "it has waited for an hour"}}
	if got := jobLines(waits, &w); !slices.Equal(got, []string{"tiny  x  queued", "no worker is connected", "stalled: it has waited for an hour"}) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
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
	s.Connect(&pb.Hello{Id: "w-alpha"})
	_, leave := s.Connect(&pb.Hello{Id: "w-beta"})
	leave()
	id := strings.TrimSpace(good(t, "submit", write(t, t.TempDir(), "s.yaml", tinySpec), "-q"))
	good(t, "pause", id)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"watch", ""}, id + "\ttiny, paused\ntiny\tpaused\n"},
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
