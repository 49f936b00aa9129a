package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/parallel"
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
	// MemoryBytes is what the worker may use: it gets no job that needs more. 0 if
	// that is not known.
	MemoryBytes int64
	// Tracer follows iterations; nil for none.
	Tracer *tracing.Tracer
	// Cached, if set, returns how many tables were there when they were asked
	// for, and how many had to be fetched.
	Cached func() (hits, misses int64)
}

// Worker drives lanes of jobs for a cluster.
type Worker struct {
	Config
	coords  *coordinators
	jobs    *jobCache
	logs    *logBuffer
	metrics *metrics
	absence absence
	isa     string // its instruction set
	process string // tells this process from others of the same worker

	mu         sync.Mutex
	placements map[laneKey]*placement
	draining   bool
	send       chan *pb.WorkerMessage // of the session; nil while there is none

	wg sync.WaitGroup // of all that Run started
}

// Times and bounds of a session.
const (
	beatEvery   = time.Second // that the worker tells that it is alive
	longSession = time.Minute // after which pauses between sessions begin anew
	sendQueue   = 1024        // messages that wait to be sent
)

// New returns a worker.
func New(c Config) (*Worker, error) {
	isa, err := cmvp.ISA()
	if err != nil {
		return nil, err
	}
	if len(c.Coordinators) == 0 {
		return nil, errors.New("a worker needs the address of a coordinator")
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
	w := &Worker{Config: c, isa: isa, process: rand.Text(), placements: map[laneKey]*placement{}, metrics: newMetrics(),
		coords: &coordinators{pool: rpc.NewPool(c.Dial), addresses: c.Coordinators}, absence: absence{log: c.Logger}}
	w.logs = &logBuffer{worker: c.ID, coords: w.coords, secret: w.secretOf}
	w.jobs = newJobCache(&w.Config, w.observe)
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
		w.jobs.close()
		w.coords.pool.Close()
	}()
	pause := pauses()
	w.absence.begin(time.Now())
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
		if time.Since(began) > longSession {
			pause.Reset()
		}
		w.absence.failed(err, w.Coordinators, time.Now())
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
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
	send := make(chan *pb.WorkerMessage, sendQueue)
	hello := w.open(send, speed)
	defer w.close()
	if err := s.Send(hello); err != nil {
		_, err = s.Recv() // says why
		return false, err
	}
	w.wg.Go(func() {
		defer cancel()
		w.talk(ctx, s, send)
	})
	w.wg.Go(func() {
		if head, err := s.Header(); err == nil && head != nil { // of a session that is refused there is none
			w.absence.joined(strings.TrimPrefix(conn.Target(), rpc.Target("")), time.Now())
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
			w.revoke(laneKey{r.Job, int(r.Chain)}, r.Attempt, r.Over)
		case m.GetCheck() != nil:
			w.wg.Go(func() { w.check(ctx, m.GetCheck()) })
		case m.GetLeave() != nil:
			return true, nil
		}
	}
}

// open lets messages go to a session, and returns what introduces the worker in it.
func (w *Worker) open(send chan *pb.WorkerMessage, speed float64) *pb.WorkerMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = send
	h := &pb.Hello{Id: w.ID, Process: w.process, Address: w.Address, Version: version.Version,
		Capacity: &pb.Capacity{Cores: int32(w.Budget.Cores()), InstructionSet: w.isa, PairsPerSecond: speed, MemoryBytes: w.MemoryBytes}}
	for k, p := range w.placements {
		h.Driving = append(h.Driving, &pb.Placement{Job: k.job, Chain: int32(k.lane), Attempt: p.attempt, Worker: w.ID})
	}
	return &pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: h}}
}

// close notes that there is no session.
func (w *Worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = nil
}

// talk sends the leader what there is to say, and now and then that the worker is
// alive, until ctx is done or it cannot.
func (w *Worker) talk(ctx context.Context, s grpc.BidiStreamingClient[pb.WorkerMessage, pb.CoordinatorMessage], send <-chan *pb.WorkerMessage) {
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
}

// beat returns a heartbeat; the caller holds the lock.
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

// start drives a lane, or tells its driver of a new group.
func (w *Worker) start(to *pb.Placement) {
	if to == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := laneKey{to.Job, int(to.Chain)}
	old := w.placements[k]
	if old != nil && old.attempt >= to.Attempt {
		old.setGroup(to.Group)
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting, revoke := context.WithCancel(ctx)
	p := &placement{w: w, key: k, attempt: to.Attempt, secret: to.Secret, cancel: cancel, revoke: revoke, done: make(chan struct{})}
	p.setGroup(to.Group)
	w.placements[k] = p
	w.wg.Go(func() {
		if old != nil { // it was replaced while this worker did not hear of it
			old.cancel(errReplaced)
			<-old.done
		}
		p.run(ctx, waiting)
	})
}

// revoke stops a driver at its next checkpoint, or at once if its job is over: then nothing
// that is under way is of use to anybody.
func (w *Worker) revoke(k laneKey, attempt int64, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.placements[k]; p != nil && p.attempt <= attempt {
		if over {
			p.cancel(errOver)
		}
		p.revoke()
		return
	}
	w.post(released(k, attempt))
}

func released(k laneKey, attempt int64) *pb.WorkerMessage {
	return &pb.WorkerMessage{Message: &pb.WorkerMessage_Release{Release: &pb.Release{Job: k.job, Chain: int32(k.lane), Attempt: attempt}}}
}

// finished forgets a driver, tells the leader, and lets data go that nobody needs.
func (w *Worker) finished(p *placement) {
	w.mu.Lock()
	if w.placements[p.key] == p {
		delete(w.placements, p.key)
	}
	w.post(released(p.key, p.attempt))
	w.mu.Unlock()
	w.trimJobs()
}

// trimJobs forgets the data of jobs that nobody drives, but for a few.
func (w *Worker) trimJobs() {
	inUse := map[string]bool{}
	w.mu.Lock()
	for k := range w.placements {
		inUse[k.job] = true
	}
	w.mu.Unlock()
	w.jobs.trim(inUse)
}

// secretOf returns the secret of a lane, or if the worker does not drive it, of another of
// its job, empty for none. That of another may be over, and worth nothing.
func (w *Worker) secretOf(k laneKey) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.placements[k]; p != nil {
		return p.secret
	}
	for other, p := range w.placements {
		if other.job == k.job {
			return p.secret
		}
	}
	return ""
}

// Connected reports whether there is a session with the leader.
func (w *Worker) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.send != nil
}

// Absence is why there is no session with the leader, as far as that is known.
func (w *Worker) Absence() string { return w.absence.why() }

// Driving returns the number of lanes that the worker drives.
func (w *Worker) Driving() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.placements)
}

// stopAll ends all drivers.
func (w *Worker) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.placements {
		p.cancel(errStopping)
	}
}
