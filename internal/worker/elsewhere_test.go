package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
)

func TestOfWorker(t *testing.T) {
	_, missing := os.Open("/nowhere/table.csv")
	_, bad := job.ParseString("sampler: {chains: no}")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{missing, true},
		{fmt.Errorf("writing: %w", syscall.ENOSPC), true},
		{fmt.Errorf("too many files: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}), true},
		{&net.DNSError{Err: "no such host", Name: "h"}, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{fmt.Errorf("fetching: %w", context.DeadlineExceeded), true},
		{status.Error(codes.Unavailable, "nobody has it"), true},
		{status.Error(codes.DataLoss, "decayed"), true},
		{fmt.Errorf("a: %w", elsewhere{errors.New("b")}), true},
		{status.Error(codes.PermissionDenied, "no"), false},
		{status.Error(codes.InvalidArgument, "no"), false},
		{errors.New("line 3 has 4 columns, not 5"), false},
		{bad, false},
	} {
		if got := ofWorker(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// What this worker cannot read, one of a later version may: in a rolling upgrade no job fails for it.
func TestSpecificationOfALaterVersion(t *testing.T) {
	c := newJobCache(&Config{}, nil)
	err := c.read(t.Context(), &jobData{}, &pb.Assignment{Spec: "data: {path: a.csv}\nmodel: {later: 1}\n"})
	if err == nil || !ofWorker(err) || !strings.Contains(err.Error(), "bring it to the cluster's version") || !strings.Contains(err.Error(), "model.later") {
		t.Errorf("%v", err)
	}
}

// A worker that has not the memory, or whose disk is full, keeps no job from going on
// where another one can.
func TestWorkerThatCannot(t *testing.T) {
	text := fmt.Sprintf(specText, 20, 20)
	t.Run("memory", func(t *testing.T) {
		c := newCluster(t)
		cfg := c.config("bad")
		cfg.MemoryBytes = 1000
		c.run(cfg)
		c.worker("good")
		c.wantDraws(c.submit(text), undisturbed(t, text))
	})
	t.Run("disk", func(t *testing.T) {
		var table strings.Builder
		table.WriteString("a,b,y\n")
		r := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			fmt.Fprintf(&table, "%g,%g,%g\n", r.NormFloat64(), r.NormFloat64(), r.NormFloat64())
		}
		start, end := strings.Index(text, "data:"), strings.Index(text, "sampler:")
		text := text[:start] + "data: {path: table.csv, target: y}\n" + text[end:]
		c := newCluster(t)
		cfg := c.config("full")
		cfg.Open = func(context.Context, string, string) (io.ReadCloser, error) { return nil, syscall.ENOSPC }
		c.run(cfg)
		id := c.submit(text)
		c.wait("its failure", func() bool { return c.get(id).State == pb.JobState_JOB_STATE_FAILED })
		if j := c.get(id); !strings.Contains(j.Message, "no space left on device failed 3 times") {
			t.Errorf("with nobody else: %q", j.Message)
		}
		good := c.config("good")
		good.Open = func(context.Context, string, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(table.String())), nil
		}
		c.run(good)
		for range 2 {
			if j := c.end(c.submit(text)); j.StopReason != "max_draws" {
				t.Errorf("beside a worker whose disk is full: %v by %q: %s", j.State, j.StopReason, j.Message)
			}
		}
	})
}

// Who has the memory to drive a chain in a group of three, but not of two, waits for the second member: of a preconditioner of 640 MB it has 0.7 GB then, and before 0.8.
// Who has it in no group says so at once, and who is told to stop waits no more.
func TestWaitingForTheGroup(t *testing.T) {
	spec, err := job.ParseString("name: test\ndata: {path: table.csv, target: y}\n" +
		"sampler: {method: fisher, chains: 1, probes: 16}\nsolver: {preconditioner: {kind: rpcholesky, rank: 4000}}\n")
	if err != nil {
		t.Fatal(err)
	}
	j := &jobData{id: "a", spec: spec, data: &dataset.Dataset{Info: dataset.Info{Rows: 20_000, InputNames: []string{"a", "b"}}}}
	lane := func(memory int64) *placement {
		p := &placement{w: &Worker{Config: Config{Logger: slog.New(slog.DiscardHandler)}, jobs: &jobCache{memory: memory}}, key: laneKey{"a", 1}}
		p.setGroup([]*pb.Member{{Worker: "b", Address: "b:1"}})
		return p
	}
	p, done := lane(760e6), make(chan error, 1)
	go func() { done <- p.awaitMemory(t.Context(), j) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	p.setGroup([]*pb.Member{{Worker: "b", Address: "b:1"}, {Worker: "c", Address: "c:1"}})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := lane(100e6).awaitMemory(t.Context(), j); err == nil || !ofWorker(err) || !strings.Contains(err.Error(), "of memory at the least, and this worker has 95 MiB") {
		t.Errorf("in no group: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lane(760e6).awaitMemory(ctx, j); err != nil {
		t.Errorf("told to stop: %v", err)
	}
}
