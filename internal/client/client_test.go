package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/client/clienttest"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/state"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const spec = `
name: %s
data: {synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 5}
solver: {preconditioner: {kind: rpcholesky}}
stop: {rhat: 9, ess: 1, max_draws: 20}
`

func dial(t *testing.T, addresses ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Config{Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func submit(t *testing.T, c *client.Client, name string) *pb.Job {
	t.Helper()
	j, err := c.Submit(context.Background(), &pb.SubmitRequest{Spec: fmt.Sprintf(spec, name)})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// nobody returns an address where nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A job is run, watched and read back; coordinators that are not there are
// passed over.
func TestJob(t *testing.T) {
	ctx := context.Background()
	s := clienttest.New(t)
	s.Work("w")
	c := dial(t, nobody(t), s.Addr(), nobody(t))
	j := submit(t, c, "one")
	var states []pb.JobState
	end, err := c.Watch(ctx, j.Id, func(j *pb.Job) { states = append(states, j.State) })
	if err != nil || end.State != pb.JobState_JOB_STATE_CONVERGED || states[len(states)-1] != end.State {
		t.Fatalf("%v, %v", err, states)
	}
	res, err := c.Result(ctx, j.Id)
	if err != nil {
		t.Fatal(err)
	}
	if report.DrawsSHA256(res.Run) != end.DrawsSha256 || res.Data.Rows != 40 || res.InstructionSet == "" || !(res.WallSeconds > 0) || !strings.Contains(res.Spec, "name: one") {
		t.Errorf("%+v", res)
	}
	next := []int{0, 0, 0}
	s.Cut("Draws", 1)
	err = c.Draws(ctx, j.Id, false, func(chain, index int, psi []float64) error {
		if index != next[chain] || !slices.Equal(psi, res.Run.Chains[chain-1].Draws[index]) {
			t.Errorf("chain %d, draw %d: %v", chain, index, psi)
		}
		next[chain]++
		return nil
	})
	if err != nil || next[1] != 20 || next[2] != 20 || s.Calls("Draws") != 2 {
		t.Error(err, next, s.Calls("Draws"))
	}
	if text, err := c.Summary(ctx, j.Id); err != nil || !strings.Contains(text, end.DrawsSha256) {
		t.Error(err, text)
	}
}

// Calls are repeated while there is no leader; one id makes one job.
func TestRetry(t *testing.T) {
	ctx := context.Background()
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	s.Refuse("Submit", 3)
	j := submit(t, c, "one")
	if n := s.Calls("Submit"); n != 4 {
		t.Errorf("%d calls", n)
	}
	req := &pb.SubmitRequest{Spec: fmt.Sprintf(spec, "two"), ClientId: "mine"}
	first, err1 := c.Submit(ctx, req)
	again, err2 := c.Submit(ctx, req)
	if err1 != nil || err2 != nil || first.Id != again.Id || first.Id == j.Id {
		t.Error(first, again, err1, err2)
	}

	// What must not be done twice is not.
	s.Work("w")
	if _, err := c.Watch(ctx, first.Id, nil); err != nil {
		t.Fatal(err)
	}
	s.Refuse("Extend", 1)
	_, err := c.Extend(ctx, first.Id, 10, false)
	if status.Code(err) != codes.Unavailable || !strings.HasSuffix(err.Error(), "there is no leader; it may have been done all the same: look before you repeat it") {
		t.Error(err)
	}
	if j := s.Job(first.Id); j.Progress.Draws != 20 {
		t.Error(j)
	}
	if _, err := c.Extend(ctx, first.Id, 10, false); err != nil || s.Job(first.Id).Progress.Draws != 30 {
		t.Error(err, s.Job(first.Id))
	}

	// The end of the caller's time ends it, with the reason.
	s.Refuse("Get", 1<<30)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = c.Get(short, j.Id)
	if want := "no answer from the cluster at " + s.Addr() + ": there is no leader"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	gone, cancel2 := context.WithCancel(ctx)
	cancel2()
	if _, err = c.Get(gone, j.Id); !client.Interrupted(err) {
		t.Error(err)
	}
}

// Without anybody there, patience ends with one sentence.
func TestNobody(t *testing.T) {
	a, b := nobody(t), nobody(t)
	retries := 0
	c, err := client.Dial(client.Config{Addresses: []string{a, b}, Patience: 200 * time.Millisecond, OnRetry: func(error) { retries++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Members(context.Background())
	if want := fmt.Sprintf("no answer from the cluster at %s, %s: connection refused", a, b); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if retries < 4 {
		t.Errorf("%d retries", retries)
	}
}

// A coordinator that takes connections and says nothing is passed over.
func TestHungCoordinator(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := clienttest.New(t)
	c, err := client.Dial(client.Config{Addresses: []string{l.Addr().String(), s.Addr()}, Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m, err := c.Transfer(context.Background(), ""); err != nil || m.Leader != "c2" {
		t.Error(m, err)
	}
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close()
	alone, err := client.Dial(client.Config{Addresses: []string{l2.Addr().String()}, Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if _, err := alone.Members(context.Background()); err == nil || err.Error() != "no answer from the cluster at "+l2.Addr().String()+": it does not answer" {
		t.Error(err)
	}
}

// The fields at fault are named as they stand in the specification, once.
func TestFieldErrors(t *testing.T) {
	c := dial(t, clienttest.New(t).Addr())
	_, err := c.Submit(context.Background(), &pb.SubmitRequest{Spec: strings.Replace(fmt.Sprintf(spec, "long"), "max_draws: 20", "max_draws: 2000000000", 1)})
	var e *client.Error
	if !errors.As(err, &e) || !e.BadInput() || err.Error() != "stop.max_draws: a chain keeps 1073741824 draws at most" || e.Fields[0].Path != "spec.stop.max_draws" {
		t.Errorf("%#v", err)
	}
	_, err = c.Submit(context.Background(), &pb.SubmitRequest{Spec: "nam: x"})
	if want := `line 1, column 1: nam: unknown field: did you mean "name"?`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A watch outlives its coordinator, which comes back at the same address.
func TestWatchOutlivesCoordinator(t *testing.T) {
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	j := submit(t, c, "long")
	restarts := 0
	seen := make(chan pb.JobState, 1000)
	type ended struct {
		job *pb.Job
		err error
	}
	done := make(chan ended)
	go func() {
		end, err := c.Watch(context.Background(), j.Id, func(j *pb.Job) { seen <- j.State })
		done <- ended{end, err}
	}()
	if first := <-seen; first != pb.JobState_JOB_STATE_QUEUED {
		t.Fatal(first)
	}
	for ; restarts < 3; restarts++ {
		s.Stop()
		s.Start()
		<-seen // it is there again
	}
	s.Stop()
	s.Work("w") // the cluster works on unseen
	for s.Job(j.Id).Ended == nil {
		time.Sleep(time.Millisecond)
	}
	s.Start()
	e := <-done
	if e.err != nil || e.job.State != pb.JobState_JOB_STATE_CONVERGED {
		t.Error(e.err, e.job)
	}
	if n := s.Calls("Watch"); n < 1+restarts {
		t.Errorf("%d watches", n)
	}
}

// Followed log lines come once each, over restarts too.
func TestLogsOnce(t *testing.T) {
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	j := submit(t, c, "talks")
	s.Log(j.Id, 1, "w", "0", "1", "2") // lines that come together share their time
	s.Log(j.Id, 2, "w", "3", "4")
	var got []string
	lines := make(chan string, 100)
	done := make(chan error)
	go func() {
		done <- c.Logs(context.Background(), &pb.LogsRequest{Id: j.Id, Follow: true}, func(l *pb.LogLine) error {
			lines <- l.Text
			return nil
		})
	}()
	for range 5 {
		got = append(got, <-lines)
	}
	s.Stop()
	s.Log(j.Id, 2, "w", "5", "6", "7")
	s.Log(j.Id, 1, "w", "8")
	s.Start()
	for range 4 {
		got = append(got, <-lines)
	}
	if _, err := c.Cancel(context.Background(), j.Id); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || strings.Join(got, " ") != "0 1 2 3 4 5 6 7 8" || len(lines) > 0 {
		t.Error(err, got, len(lines))
	}
	// Which lines: those of a chain, the last of them.
	got = nil
	err := c.Logs(context.Background(), &pb.LogsRequest{Id: j.Id, Chain: 2, Tail: 2}, func(l *pb.LogLine) error {
		got = append(got, l.Text)
		return nil
	})
	if err != nil || strings.Join(got, " ") != "6 7" {
		t.Error(err, got)
	}
}

// An upload that is cut off goes on where it was; one that is there is not sent
// again; a download is checked and goes on too.
func TestUpload(t *testing.T) {
	ctx := context.Background()
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	data := make([]byte, 5<<20+12345)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	s.Cut("Upload", 2, 2)
	var last int64
	blob, err := c.UploadFile(ctx, path, func(present, size int64) {
		if size != int64(len(data)) {
			t.Errorf("size %d", size)
		}
		last = present
	})
	if err != nil || !blob.Complete || blob.Sha256 != sha || last != int64(len(data)) {
		t.Fatal(err, blob, last)
	}
	if n := s.Calls("Upload"); n != 3 {
		t.Errorf("%d uploads", n)
	}
	if _, err := c.UploadFile(ctx, path, nil); err != nil || s.Calls("Upload") != 3 {
		t.Error(err, s.Calls("Upload"))
	}
	var back bytes.Buffer
	s.Cut("Download", 2)
	if n, err := c.Download(ctx, sha, &back); err != nil || n != int64(len(data)) || !bytes.Equal(back.Bytes(), data) || s.Calls("Download") != 2 {
		t.Error(n, err, s.Calls("Download"))
	}
	if _, err := c.Download(ctx, strings.Repeat("0", 64), &back); !client.NotFound(err) {
		t.Error(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	os.WriteFile(empty, nil, 0o600)
	if _, err := c.UploadFile(ctx, empty, nil); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Error(err)
	}
	if b, err := c.Stat(ctx, strings.Repeat("0", 64)); err != nil || b.Present != 0 || b.Complete {
		t.Error(b, err)
	}
}

func TestFind(t *testing.T) {
	ctx := context.Background()
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	for i, name := range []string{"a", "b", "a", "aa", "b", "c", "d"} {
		s.Apply(time.Unix(int64(i), 0), &state.Submit{ID: fmt.Sprintf("%cjob%d", 'x'+i%3, i), Name: name, Chains: 1, Spec: fmt.Sprintf(spec, name)})
	}
	for _, w := range []struct {
		arg    string
		id     string
		others int
		err    string
	}{
		{"yjob1", "yjob1", 0, ""},
		{"a", "zjob2", 1, ""}, // the newest of that name, not that of a name that contains it
		{"b", "yjob4", 1, ""},
		{"xjob3", "xjob3", 0, ""},
		{"xj", "", 0, "begins the ids of 3 jobs"},
		{"yjob4x", "", 0, `there is no job "yjob4x": see 'ulisse jobs'`},
		{"", "", 0, "a job's id or name is empty"},
	} {
		j, others, err := c.Find(ctx, w.arg)
		switch {
		case w.err != "" && (err == nil || !strings.Contains(err.Error(), w.err)):
			t.Errorf("%q: %v", w.arg, err)
		case w.err == "" && (err != nil || j.Id != w.id || others != w.others):
			t.Errorf("%q: %v, %v, %d", w.arg, err, j, others)
		}
	}
	if err := c.Delete(ctx, "xjob0"); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if _, err := c.Cancel(ctx, "xjob0"); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "xjob0"); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "xjob0"); !client.NotFound(err) {
		t.Error(err)
	}
}

func TestClusterCalls(t *testing.T) {
	ctx := context.Background()
	s := clienttest.New(t)
	c := dial(t, s.Addr())
	var backup bytes.Buffer
	if n, err := c.Backup(ctx, &backup); err != nil || n != 1_800_000 {
		t.Fatal(n, err)
	}
	if m, err := c.Restore(ctx, &backup); err != nil || m.Leader != "c1" {
		t.Error(m, err)
	}
	if _, err := c.Restore(ctx, strings.NewReader("x")); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not a whole backup") {
		t.Error(err)
	}
	s.Connect(&pb.Hello{Id: "w-alpha"})
	s.Connect(&pb.Hello{Id: "w-beta"})
	if w, err := c.FindWorker(ctx, "w-b"); err != nil || w.Id != "w-beta" {
		t.Error(w, err)
	}
	if _, err := c.FindWorker(ctx, "w-"); err == nil || err.Error() != `"w-" begins the ids of 2 workers, w-alpha, w-beta: give more of it` {
		t.Error(err)
	}
}
