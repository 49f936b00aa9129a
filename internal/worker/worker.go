package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/tracing"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Config configures a worker.
type Config struct {
	ID           string
	Address      string   // where others reach its row server
	Coordinators []string // addresses of coordinators; any will do
	Budget       *parallel.Budget
	Logger       *slog.Logger
	// Dial connects to a coordinator.
	Dial func(address string) (*grpc.ClientConn, error)
	// Open opens a table: that of a content address if one is given, else the one
	// at a path or URL.
	Open func(ctx context.Context, address, path string) (io.ReadCloser, error)
	// Peers connects to the row servers of other workers, Meter counts the work;
	// of both the defaults serve a worker that works alone.
	Peers *shard.Pool
	Meter *shard.Meter
	// MinRows is the number of rows from which products are split over a group.
	// Zero means shard.DefaultMinRows.
	MinRows int
	// Preloaded is the one job of an embedded cluster: its data are in memory.
	Preloaded *Preloaded
	// MemoryBytes is what the worker may use, to be shown to users.
	MemoryBytes int64
	// Tracer follows iterations; nil for none.
	Tracer *tracing.Tracer
	// Cached, if set, returns how many tables were there when they were asked
	// for, and how many had to be fetched.
	Cached func() (hits, misses int64)
}

// Preloaded is a job that need not be read.
type Preloaded struct {
	Spec    *job.Spec
	Data    *dataset.Dataset
	Problem *posterior.Problem
	Plan    *chains.Plan
	Driver  *driver.Driver
}

// Worker drives chains for a cluster.
type Worker struct {
	Config
	coords *coordinators
	jobs   *jobCache
	logs   *logBuffer
	isa    string

	metrics *metrics

	mu       sync.Mutex
	drives   map[chainKey]*drive
	wg       sync.WaitGroup
	draining bool
	send     chan *pb.WorkerMessage // of the session; nil while there is none
}

// chainKey names a chain of a job.
type chainKey struct {
	job   string
	chain int
}

// beatEvery is how often a worker tells that it is alive.
const beatEvery = time.Second

// New returns a worker.
func New(c Config) (*Worker, error) {
	isa, err := cmvp.ISA()
	if err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Meter == nil {
		c.Meter = &shard.Meter{}
	}
	if c.Open == nil {
		c.Open = func(_ context.Context, _, path string) (io.ReadCloser, error) { return os.Open(path) }
	}
	if len(c.Coordinators) == 0 {
		return nil, errors.New("a worker needs the address of a coordinator")
	}
	w := &Worker{Config: c, coords: &coordinators{pool: rpc.NewPool(c.Dial), addresses: c.Coordinators}, isa: isa, drives: map[chainKey]*drive{}}
	w.jobs = newJobCache(w)
	w.logs = &logBuffer{worker: w}
	w.metrics = newMetrics(w)
	return w, nil
}

// Run works until ctx is done, or until it has been drained and has nothing
// left to do (then it returns nil).
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	speed := measure(w.Budget)
	w.wg.Go(func() { w.logs.run(ctx) })
	defer func() {
		w.stopAll()
		cancel()
		w.wg.Wait()
		w.coords.pool.Close()
	}()
	wait := backoffMin
	for {
		began := time.Now()
		left, err := w.session(ctx, speed)
		if left {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.coords.failed(err)
		if time.Since(began) > time.Minute {
			wait = backoffMin
		}
		w.Logger.Debug("no session with the leader", "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, backoffMax)
	}
}

// Drain asks for all work to be taken away; Run returns when that is done.
func (w *Worker) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	w.post(w.beat())
}

// session talks with the leader until that ends. left reports that the leader
// has nothing more for a worker that drains.
func (w *Worker) session(ctx context.Context, speed float64) (left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := w.coords.conn()
	if err != nil {
		return false, err
	}
	s, err := pb.NewWorkersClient(conn).Connect(ctx)
	if err != nil {
		return false, err
	}
	hello := &pb.Hello{Id: w.ID, Address: w.Address, Version: version.Version,
		Capacity: &pb.Capacity{Cores: int32(w.Budget.Cores()), InstructionSet: w.isa, PairsPerSecond: speed, MemoryBytes: w.MemoryBytes}}
	send := make(chan *pb.WorkerMessage, 1024)
	w.mu.Lock()
	for k, d := range w.drives {
		hello.Driving = append(hello.Driving, &pb.Placement{Job: k.job, Chain: int32(k.chain), Attempt: d.attempt, Worker: w.ID})
	}
	w.send = send
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.send = nil
	}()
	if err := s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: hello}}); err != nil {
		_, err = s.Recv() // says why
		return false, err
	}
	w.wg.Go(func() {
		defer cancel()
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			var m *pb.WorkerMessage
			select {
			case m = <-send:
			case <-tick.C:
				w.mu.Lock()
				m = w.beat()
				w.mu.Unlock()
			case <-ctx.Done():
				return
			}
			if s.Send(m) != nil {
				return
			}
		}
	})
	for {
		m, err := s.Recv()
		if err != nil {
			return false, err
		}
		switch {
		case m.GetDrive() != nil:
			w.start(m.GetDrive().Placement)
		case m.GetRevoke() != nil:
			r := m.GetRevoke()
			w.revoke(chainKey{r.Job, int(r.Chain)}, r.Attempt)
		case m.GetLeave() != nil:
			return true, nil
		}
	}
}

// beat returns a sign of life; the caller holds the lock.
func (w *Worker) beat() *pb.WorkerMessage {
	return &pb.WorkerMessage{Message: &pb.WorkerMessage_Beat{Beat: &pb.Beat{Load: w.load(), Draining: w.draining}}}
}

// load returns what the worker has done since it started.
func (w *Worker) load() *pb.Load {
	l := w.Meter.Load()
	if w.Cached != nil {
		l.CacheHits, l.CacheMisses = w.Cached()
	}
	return l
}

// post sends a message if there is a session; the caller holds the lock. What
// a session did not carry, the next one's hello tells.
func (w *Worker) post(m *pb.WorkerMessage) {
	if w.send != nil {
		select {
		case w.send <- m:
		default:
		}
	}
}

// start drives a chain, or tells its driver of a new group.
func (w *Worker) start(p *pb.Placement) {
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := chainKey{p.Job, int(p.Chain)}
	old := w.drives[k]
	if old != nil && old.attempt >= p.Attempt {
		old.setGroup(p.Group)
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	d := &drive{w: w, key: k, attempt: p.Attempt, ctx: ctx, cancel: cancel, revoked: make(chan struct{}), done: make(chan struct{})}
	d.setGroup(p.Group)
	w.drives[k] = d
	w.wg.Go(func() {
		if old != nil { // it was replaced while this worker did not hear of it
			old.cancel(errReplaced)
			<-old.done
		}
		d.run()
	})
}

// revoke stops a driver at its next checkpoint.
func (w *Worker) revoke(k chainKey, attempt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.drives[k]; d != nil && d.attempt <= attempt {
		d.revoke()
		return
	}
	w.post(released(k, attempt))
}

func released(k chainKey, attempt int64) *pb.WorkerMessage {
	return &pb.WorkerMessage{Message: &pb.WorkerMessage_Release{Release: &pb.Release{Job: k.job, Chain: int32(k.chain), Attempt: attempt}}}
}

// finished forgets a driver and tells the leader.
func (w *Worker) finished(d *drive) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drives[d.key] == d {
		delete(w.drives, d.key)
	}
	w.post(released(d.key, d.attempt))
}

// Connected reports whether there is a session with the leader.
func (w *Worker) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.send != nil
}

// Driving returns the number of chains that the worker drives.
func (w *Worker) Driving() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.drives)
}

// stopAll ends all drivers.
func (w *Worker) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.drives {
		d.cancel(fmt.Errorf("the worker stops"))
	}
}
