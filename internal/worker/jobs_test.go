package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

const tableSpec = `
name: table
data: {path: /data/table.csv, target: y}
`

// table is data for tableSpec.
func table() string {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 40 {
		fmt.Fprintf(&b, "%d,%g\n", i, math.Sin(float64(i)/3))
	}
	return b.String()
}

// newCache returns a cache of jobs whose tables open opens.
func newCache(t *testing.T, open func() (io.ReadCloser, error)) *jobCache {
	t.Helper()
	w, err := New(Config{ID: "w", Coordinators: []string{"nobody:1"}, Budget: parallel.NewBudget(1), Dial: dial,
		Open: func(_ context.Context, _, path string) (io.ReadCloser, error) {
			if path != "/data/table.csv" {
				return nil, fmt.Errorf("there is no table at %q", path)
			}
			return open()
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.jobs.close)
	return w.jobs
}

// The data of a job are read once for all who want them; when they could not be
// read, the next one tries again.
func TestDataAreReadOnce(t *testing.T) {
	var opened atomic.Int32
	c := newCache(t, func() (io.ReadCloser, error) {
		if opened.Add(1) == 1 {
			return nil, errors.New("the disk is busy")
		}
		return io.NopCloser(strings.NewReader(table())), nil
	})
	a := &pb.Assignment{Spec: tableSpec}
	if _, err := c.load(t.Context(), "a", a); err == nil || !strings.Contains(err.Error(), "opening the data: the disk is busy") {
		t.Errorf("got %v", err)
	}
	var wg sync.WaitGroup
	var first atomic.Pointer[jobData]
	for range 8 {
		wg.Go(func() {
			j, err := c.load(t.Context(), "a", a)
			if err != nil || j.data.N() != 40 {
				t.Error(err)
			}
			if !first.CompareAndSwap(nil, j) && first.Load() != j {
				t.Error("the data are there twice")
			}
		})
	}
	wg.Wait()
	if opened.Load() != 2 {
		t.Errorf("the table was opened %d times", opened.Load())
	}
	if _, err := c.load(t.Context(), "a", &pb.Assignment{Spec: tableSpec, DataSha256: strings.Repeat("0", 64)}); err == nil || !strings.Contains(err.Error(), "are not those that the job began with") {
		t.Errorf("other data are taken: %v", err)
	}
	if _, err := c.load(t.Context(), "bad", &pb.Assignment{Spec: "name: ["}); err == nil {
		t.Error("a specification that is none is taken")
	}
}

// Whoever waits for data can leave; the reading goes on for the others, until the
// worker stops.
func TestWaitingForData(t *testing.T) {
	r, w := io.Pipe()
	c := newCache(t, func() (io.ReadCloser, error) { return r, nil })
	a := &pb.Assignment{Spec: tableSpec}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := c.load(ctx, "a", a); left <- err }()
	if _, err := io.WriteString(w, table()[:20]); err != nil { // somebody reads
		t.Fatal(err)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("left with %v", err)
	}
	stays := make(chan error)
	go func() { _, err := c.load(t.Context(), "a", a); stays <- err }()
	if _, err := io.WriteString(w, table()[20:]); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-stays; err != nil {
		t.Errorf("who stayed has %v", err)
	}
	c.close()
	if _, err := c.load(t.Context(), "b", a); !errors.Is(err, errStopping) {
		t.Errorf("of a worker that stops: %v", err)
	}
}

// Data are kept while somebody drives the job; of others the last few are.
func TestTrim(t *testing.T) {
	c := newCache(t, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(table())), nil })
	inUse := map[string]bool{}
	for i := range 8 {
		id := fmt.Sprint("job", i)
		inUse[id] = i < 3
		if _, err := c.load(t.Context(), id, &pb.Assignment{Spec: tableSpec}); err != nil {
			t.Fatal(err)
		}
	}
	c.trim(inUse)
	if len(c.byID) != 3+keepIdle || c.byID["job0"] == nil || c.byID["job1"] == nil || c.byID["job2"] == nil {
		t.Errorf("kept: %v", c.byID)
	}
}

// servePosteriors runs the service of predictions of a worker that drives nothing.
func servePosteriors(t *testing.T, w *Worker, disk *predict.Solutions) (*Posteriors, pb.PosteriorsClient) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, s := NewPosteriors(w, disk), grpc.NewServer()
	pb.RegisterPosteriorsServer(s, p)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(lis) }()
	conn, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
	})
	return p, pb.NewPosteriorsClient(conn)
}

// compute makes a call and returns its answer.
func compute(t *testing.T, c pb.PosteriorsClient, r *pb.ComputeRequest) (*pb.PredictResponse, error) {
	t.Helper()
	s, err := c.Compute(t.Context(), r)
	if err != nil {
		return nil, err
	}
	for {
		m, err := s.Recv()
		if err != nil || len(m.Rows) > 0 {
			return m, err
		}
	}
}

// A worker predicts, and gives its inputs to others, from data that it reads itself
// when it is first asked; what it answers is what a predictor on this machine does.
func TestAskedForAJob(t *testing.T) {
	c := newCluster(t)
	text := fmt.Sprintf(specText, 10, 10)
	id := c.submit(text)
	w := c.rowWorker("a")
	spec, err := job.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(1)
	data, err := spec.Load(t.Context(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	in, err := w.Inputs(t.Context(), inputsAddress(id, data.SHA256))
	if err != nil || in.Len() != 150 {
		t.Fatal(in, err)
	}
	for _, address := range []string{inputsAddress("nobody", data.SHA256), inputsAddress(id, strings.Repeat("0", 64)), "", "/"} {
		if _, err := w.Inputs(t.Context(), address); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("inputs at %q: %v", address, err)
		}
	}

	problem, err := spec.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	draws := [][]float64{make([]float64, problem.Model.NumParams()), make([]float64, problem.Model.NumParams())}
	for i := range draws[1] {
		draws[1][i] = -0.3
	}
	own, err := predict.New(predict.FromSpec(spec, problem, draws, budget))
	if err != nil {
		t.Fatal(err)
	}
	rows := predict.Request{X: [][]float64{{0.5, -0.5}, {0, 1}}, Probs: []float64{0.1, 0.9}}
	want, _, err := own.Rows(t.Context(), &data.Info, rows, predict.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, client := servePosteriors(t, w, &predict.Solutions{Dir: t.TempDir(), Most: 1 << 20})
	ask := &pb.ComputeRequest{Request: predict.Encode(id, rows, predict.Options{}, 0), Psi: predict.EncodeDraws(draws), Sha256: data.SHA256}
	for range 2 {
		m, err := compute(t, client, ask)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := predict.Answered(m, rows)
		if err != nil || len(got) != 2 || m.DrawsSha256 != predict.DrawsSHA256(draws) {
			t.Fatal(got, err)
		}
		for i := range got {
			if got[i].Mean != want[i].Mean || got[i].SD != want[i].SD || got[i].Quantiles[1] != want[i].Quantiles[1] {
				t.Errorf("row %d is %+v, want %+v", i, got[i], want[i])
			}
		}
	}
	if len(p.kept) != 1 {
		t.Errorf("%d predictors are kept for one job", len(p.kept))
	}
	for name, bad := range map[string]struct {
		r    *pb.ComputeRequest
		code codes.Code
	}{
		"no request":      {&pb.ComputeRequest{}, codes.InvalidArgument},
		"no such job":     {&pb.ComputeRequest{Request: predict.Encode("nobody", rows, predict.Options{}, 0), Psi: ask.Psi, Sha256: ask.Sha256}, codes.NotFound},
		"other data":      {&pb.ComputeRequest{Request: ask.Request, Psi: ask.Psi, Sha256: strings.Repeat("0", 64)}, codes.NotFound},
		"half a draw":     {&pb.ComputeRequest{Request: ask.Request, Psi: ask.Psi[:12], Sha256: ask.Sha256}, codes.InvalidArgument},
		"too many inputs": {&pb.ComputeRequest{Request: predict.Encode(id, predict.Request{X: [][]float64{{1, 2, 3}}}, predict.Options{}, 0), Psi: ask.Psi, Sha256: ask.Sha256}, codes.InvalidArgument},
	} {
		if _, err := compute(t, client, bad.r); status.Code(err) != bad.code {
			t.Errorf("%s: %v, want %v", name, err, bad.code)
		}
	}
	for range maxComputing {
		p.slots <- struct{}{}
	}
	if _, err := compute(t, client, ask); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call too many: %v", err)
	}
}
