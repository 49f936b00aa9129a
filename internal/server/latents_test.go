package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	_ "github.com/ulisse-gp/ulisse/internal/sampler/samplertest"
)

// latentSpec is of chains that carry two vectors of length n.
const latentSpec = `
name: latent
data: {synthetic: {n: %d, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: chaotic, chains: 2, warmup: 20, draws: %d, checkpoint: 10, subset: 50}
solver: {method: cg, preconditioner: {kind: none}}
stop: {rhat: 1.0001, ess: 1e9, max_draws: %d}
`

// trio is three coordinators in this process.
type trio struct {
	dirs      []string
	addresses []string
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	raft := make([]string, 3)
	for i := range raft {
		raft[i] = freeAddress(t)
	}
	c := &trio{addresses: make([]string, 3)}
	ready, ended := make(chan int, 3), make(chan error, 3)
	for i := range 3 {
		c.dirs = append(c.dirs, t.TempDir())
		run := Coordinator{ID: fmt.Sprintf("c%d", i+1), Dir: c.dirs[i], Listen: "127.0.0.1:0", Raft: raft[i], BootstrapExpect: 3,
			Peers: slices.DeleteFunc(slices.Clone(raft), func(a string) bool { return a == raft[i] }),
			Grace: time.Second, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler),
			Latents: LatentTimes{Superseded: 100 * time.Millisecond, Unused: 5 * time.Second, Every: 50 * time.Millisecond},
			Ready:   func(grpc, _, _ string) { c.addresses[i] = grpc; ready <- i }}.Run
		start(t, func(ctx context.Context) error {
			err := run(ctx)
			ended <- err
			return err
		})
	}
	for range 3 {
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("a coordinator ended before it was ready: %v", err)
		}
	}
	return c
}

// kept returns the latent vectors on a coordinator's disk.
func (c *trio) kept(t *testing.T, i int) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dirs[i], "latents", "blobs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// freeAddress returns an address that nobody listens at, below the ports that connections get, which other tests make all the time.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("of 100 ports none is free")
	return ""
}

// cutWorker runs a worker until the test ends, or stop is called: then it goes
// without a word, as one that is killed.
func cutWorker(t *testing.T, id string, coordinators []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w := Worker{ID: id, Dir: t.TempDir(), Coordinators: coordinators, Listen: "127.0.0.1:0", Cores: 1, Logger: slog.New(slog.DiscardHandler)}
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// What chains go on from is on all coordinators; what they went on from before is on
// none soon. A worker that is gone is followed by another, with the same draws; the job
// is extended after its end; when it is deleted nothing is left.
func TestLatentVectorsComeAndGo(t *testing.T) {
	spec := func(draws int) string { return fmt.Sprintf(latentSpec, 200, draws, draws) }
	c := newTrio(t)
	r := connect(t, c.addresses[0])
	jobs := pb.NewJobsClient(r.conn)
	eventually(t, "a leader", func() bool {
		_, err := jobs.List(t.Context(), &pb.ListJobsRequest{})
		return err == nil
	})
	get := func(id string) *pb.Job {
		j, err := jobs.Get(t.Context(), &pb.GetJobRequest{Id: id})
		if err != nil {
			return &pb.Job{}
		}
		return j
	}
	ended := func(id string) *pb.Job {
		var j *pb.Job
		eventually(t, "the end of the job", func() bool {
			j = get(id)
			return j.State == pb.JobState_JOB_STATE_UNCONVERGED || j.State == pb.JobState_JOB_STATE_FAILED
		})
		if j.State == pb.JobState_JOB_STATE_FAILED {
			t.Fatal(j.Message)
		}
		return j
	}
	first, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: spec(1000)})
	if err != nil {
		t.Fatal(err)
	}
	stop := cutWorker(t, "a", c.addresses)
	draws := func() (n int32) {
		for _, ch := range get(first.Id).GetProgress().GetChains() {
			n += ch.Draws
		}
		return n
	}
	eventually(t, "some draws", func() bool { return draws() > 100 })
	stop()
	at := draws()
	cutWorker(t, "b", c.addresses)
	eventually(t, "some more", func() bool { return draws() > at })
	one := ended(first.Id)
	if _, err = jobs.Extend(t.Context(), &pb.ExtendRequest{Id: first.Id, Draws: 200}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the extension", func() bool { return get(first.Id).DrawsSha256 != one.DrawsSha256 })
	one = ended(first.Id)

	second, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: spec(1200)}) // undisturbed
	if err != nil {
		t.Fatal(err)
	}
	if two := ended(second.Id); two.DrawsSha256 != one.DrawsSha256 {
		t.Errorf("draws %s, and undisturbed %s", one.DrawsSha256, two.DrawsSha256)
	}
	t.Cleanup(func() {
		for i := range c.dirs {
			t.Logf("coordinator %d keeps %d", i+1, len(c.kept(t, i)))
		}
	})
	everywhere := func(n int) func() bool {
		return func() bool {
			for i := range c.dirs {
				if len(c.kept(t, i)) != n {
					return false
				}
			}
			return true
		}
	}
	// Both jobs go on from the same two encodings. What the first worker had stored, and not told before it
	// was gone, is one more, which is nobody's and kept for a day.
	lost, began := 0, time.Now()
	eventually(t, "two of each coordinator's", func() bool {
		if time.Since(began) > 30*time.Second && everywhere(3)() {
			lost = 1
		}
		return everywhere(2 + lost)()
	})
	if l, err := pb.NewDataClient(r.conn).List(t.Context(), &pb.ListBlobsRequest{}); err != nil || len(l.Blobs) != 0 {
		t.Errorf("among the data sets: %v, %v", l, err)
	}
	want, err := os.ReadFile(c.kept(t, 0)[0])
	if err != nil || len(want) != 24+2*8*200 {
		t.Errorf("%d bytes, %v", len(want), err)
	}
	if _, err := jobs.Delete(t.Context(), &pb.JobActionRequest{Id: first.Id}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the second needs them
	if !everywhere(2 + lost)() {
		t.Error("what a job goes on from went with another job")
	}
	if _, err := jobs.Delete(t.Context(), &pb.JobActionRequest{Id: second.Id}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool { return everywhere(lost)() })
}

// The log takes as many bytes for a checkpoint of vectors of 100,000 numbers as for
// those of 1,000.
func TestTheLogDoesNotGrowWithTheRows(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: vectors of 100,000 numbers at each checkpoint")
	}
	perCheckpoint := func(n int) float64 {
		dir := t.TempDir()
		ready := make(chan string, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		c := Coordinator{ID: "alone", Dir: dir, Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, Grace: time.Minute, DiskReserve: 1,
			Logger: slog.New(slog.DiscardHandler), Ready: func(grpc, _, _ string) { ready <- grpc }}
		go func() { done <- c.Run(ctx) }()
		r := connect(t, <-ready)
		stop := cutWorker(t, "a", []string{r.address})
		jobs := pb.NewJobsClient(r.conn)
		var id string
		eventually(t, "a leader", func() bool {
			j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: fmt.Sprintf(latentSpec, n, 100, 100), ClientId: "x"})
			if err == nil {
				id = j.Id
			}
			return err == nil
		})
		eventually(t, "the end", func() bool {
			j, err := jobs.Get(t.Context(), &pb.GetJobRequest{Id: id})
			return err == nil && j.State == pb.JobState_JOB_STATE_UNCONVERGED
		})
		stop()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return logBytes(t, filepath.Join(dir, "raft", "raft.db")) / (2 * (20 + 100) / 10)
	}
	small, large := perCheckpoint(1_000), perCheckpoint(100_000)
	t.Logf("bytes of the log for a checkpoint: %.0f at n = 1,000, %.0f at n = 100,000", small, large)
	if large > 1.5*small || small > 4000 {
		t.Errorf("%.0f bytes a checkpoint at n = 1,000, %.0f at n = 100,000", small, large)
	}
}

// logBytes returns the bytes of all entries of a raft log.
func logBytes(t *testing.T, path string) (n float64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, v []byte) error { n += float64(len(v)); return nil })
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
