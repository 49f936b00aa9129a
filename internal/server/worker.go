package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blob/ref"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/gradients"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	"github.com/ulisse-gp/ulisse/internal/tracing"
	"github.com/ulisse-gp/ulisse/internal/version"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

// Worker configures a worker's process.
type Worker struct {
	ID           string
	Dir          string // for the cache of data sets
	Coordinators []string
	Token        string // that coordinators ask for where there are no certificates
	Listen       string // row server
	Advertise    string // where other workers reach it; the address listened on if empty
	Metrics      string // metrics and probes; none if empty
	Pprof        bool   // profiles too
	OTLP         string // where traces go; nowhere if empty
	Cores        int    // 0: as many as GOMAXPROCS
	CacheBytes   int64  // of data sets; 0: no limit
	DiskReserve  int64  // bytes of the disk that the cache leaves free
	MinRows      int
	// What jobs may read by reference: folders, hosts.
	DataRoots, DataHosts []string
	// Monitor, if set, is the private port in place of one at Metrics; the caller
	// closes it.
	Monitor *monitor.Server
	// Tracer, if set, is used in place of one for OTLP; the caller closes it.
	Tracer *tracing.Tracer
	// DrainTime is how long a worker that is told to stop may take to finish the
	// checkpoints that it is at.
	DrainTime time.Duration
	Logger    *slog.Logger
	Security
}

// Run runs the worker until ctx is done and it has been drained, or has had
// DrainTime to be.
func (c Worker) Run(ctx context.Context) (err error) {
	p := &workerProcess{Worker: c, failed: make(chan error, 1), ended: make(chan error, 1)}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, step := range []func(context.Context) error{p.observe, p.openData, p.assemble, p.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	p.Logger.Info("worker started", "id", p.ID, "address", p.address, "metrics", p.monitor.Address(), "cores", p.budget.Cores(),
		"security", word(p.src, p.unsafe), "version", version.Version)
	select {
	case err := <-p.ended:
		return err
	case err := <-p.failed:
		return err
	case <-ctx.Done():
		p.monitor.Stopping()
		return p.drain()
	}
}

// workerProcess is a worker on its way up. Each step of Run opens what the next ones
// need, and adds what closes it.
type workerProcess struct {
	Worker
	closing
	src     *tlsconf.Source // nil for plaintext
	unsafe  bool            // plaintext, beyond this machine
	monitor *monitor.Server
	tracer  *tracing.Tracer
	door    *door
	address string // where others reach the door
	dial    func(string) (*grpc.ClientConn, error)
	store   *blob.Store
	cache   *blobnet.Cache
	budget  *parallel.Budget
	meter   *shard.Meter
	peers   *shard.Pool
	worker  *worker.Worker
	cancel  context.CancelFunc // of the work
	work    sync.WaitGroup
	failed  chan error // of what serves
	ended   chan error // of the work
}

// observe reads the certificate, opens the private port and traces, and listens.
func (p *workerProcess) observe(ctx context.Context) (err error) {
	if p.src, err = p.open(identity.Worker, p.Logger, p.Listen); err != nil {
		return err
	}
	p.unsafe = p.Security.unsafe(p.src, p.Listen)
	var done func() error
	if p.monitor, done, err = private(p.Monitor, monitor.Config{Address: p.Metrics, Pprof: p.Pprof}); err != nil {
		return err
	}
	p.later(done)
	var untrace func()
	if p.tracer, untrace, err = traces(ctx, p.Tracer, p.OTLP, "worker", p.ID); err != nil {
		return err
	}
	p.finally(untrace)
	if p.door, err = p.listen(p.Listen); err != nil {
		return fmt.Errorf("listening for other workers: %w", err)
	}
	p.finally(func() { p.door.Close() })
	p.address = orListener(p.Advertise, p.door)
	return nil
}

// openData opens the cache of data sets.
func (p *workerProcess) openData(context.Context) (err error) {
	if p.store, err = blob.Open(filepath.Join(p.Dir, "data"), blob.Options{Reserve: p.DiskReserve}); err != nil {
		return fmt.Errorf("opening the cache of data sets: %w", err)
	}
	p.finally(func() { p.store.Close() })
	if p.dial, err = p.dialer(p.src); err != nil {
		return err
	}
	nodes := &dataSources{pool: rpc.NewPool(func(address string) (*grpc.ClientConn, error) {
		if slices.Contains(p.Coordinators, address) {
			return p.dial(address)
		}
		return rpc.Dialer(p.src.Credentials(identity.Coordinator, identity.Worker))(address) // which has no business with the token
	}), coordinators: p.Coordinators, self: p.address}
	p.finally(func() { nodes.pool.Close() })
	p.cache = blobnet.NewCache(p.store, p.CacheBytes, nodes.sources)
	p.finally(func() { p.cache.Close() })
	return nil
}

// assemble makes the worker.
func (p *workerProcess) assemble(context.Context) (err error) {
	limitMemory(memory())
	p.budget, p.meter = parallel.NewBudget(p.Cores), &shard.Meter{}
	p.peers = shard.NewPool(p.meter, grpc.WithTransportCredentials(p.src.Credentials(identity.Worker)))
	p.finally(func() { p.peers.Close() })
	allowed := ref.Options{AllowedRoots: p.DataRoots, AllowedHosts: p.DataHosts}
	p.worker, err = worker.New(worker.Config{ID: p.ID, Address: p.address, Coordinators: p.Coordinators, Budget: p.budget, Logger: p.Logger,
		Dial: p.dial, Peers: p.peers, Meter: p.meter, MinRows: p.MinRows, Cached: p.cache.Counts, Tracer: p.tracer, MemoryBytes: memory(),
		Open: func(ctx context.Context, address, path string) (io.ReadCloser, error) {
			if address != "" {
				return p.cache.Get(ctx, address)
			}
			return ref.OpenURL(ctx, path, allowed)
		}})
	return err
}

// serve computes rows for other workers, and begins to work for the coordinator.
// The work goes on when ctx is done: drain ends it.
func (p *workerProcess) serve(ctx context.Context) error {
	blobs, err := blobnet.New(blobnet.Config{Store: p.store, Log: p.Logger}) // read-only
	if err != nil {
		return err
	}
	p.finally(func() { blobs.Close() })
	in := ways{door: p.door}
	if p.src != nil {
		in.gate = &identity.Gate{NodesOnly: true}
	}
	s, healthy := rpc.NewServer(p.src.Credentials(identity.Worker), func(s *grpc.Server) {
		pb.RegisterTilesServer(s, shard.NewServer(shard.ServerConfig{Source: p.worker, Budget: p.budget, Meter: p.meter, Peers: p.peers, Traced: traced(p.tracer), Room: roomForRows(memory(), p.worker.Driving)}))
		pb.RegisterGradientsServer(s, gradients.NewServer(gradients.ServerConfig{Budget: p.budget, MaxBytes: memory() / fitShare}))
		pb.RegisterDataServer(s, blobs)
		pb.RegisterPosteriorsServer(s, worker.NewPosteriors(p.worker, &predict.Solutions{Dir: filepath.Join(p.Dir, "predict"), Most: worker.SolutionsDiskBytes}))
	}, append(shard.ServerOptions(), in.options(p.waits(), nil, nil)...)...)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	p.finally(p.work.Wait)
	p.finally(func() { stop(s, healthy) })
	p.finally(cancel)
	p.work.Go(func() { p.failed <- s.Serve(p.door) })
	p.monitor.Registry.MustRegister(p.worker, certMetrics{p.src, nil})
	p.monitor.Note("security: " + word(p.src, p.unsafe))
	p.monitor.Started(func() error {
		if !p.worker.Connected() {
			return errors.New(strings.TrimSuffix("no session with the leading coordinator: "+p.worker.Absence(), ": "))
		}
		return nil
	})
	p.work.Go(func() { p.ended <- p.worker.Run(work) })
	p.work.Go(func() { p.watch(work, p.src, p.unsafe, p.Logger) })
	return nil
}

// drain lets the chains here reach their next checkpoints, for DrainTime at most, and
// ends the work.
func (p *workerProcess) drain() error {
	p.worker.Drain()
	late, tick := time.After(p.DrainTime), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case err := <-p.ended:
			return err
		case <-tick.C:
			waits = p.worker.Driving() > 0 || p.worker.Connected() // else nobody is there to take leave of
		case <-late:
			p.Logger.Warn("not drained in time: others go on from the last checkpoints", "chains", p.worker.Driving())
			waits = false
		}
	}
	p.cancel()
	if err := <-p.ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// dialer returns what connects to coordinators.
func (c *Worker) dialer(src *tlsconf.Source) (func(string) (*grpc.ClientConn, error), error) {
	if c.Token == "" {
		return rpc.Dialer(src.Credentials(identity.Coordinator)), nil
	}
	if src == nil && slices.ContainsFunc(c.Coordinators, func(a string) bool { return !rpc.Loopback(a) }) {
		return nil, errors.New("a token goes over TLS or to this machine only: the coordinators' address is neither")
	}
	return rpc.Dialer(src.Credentials(identity.Coordinator), rpc.WithCaller(c.Token, "", src != nil)), nil
}

// dataSources are the nodes that may have a data set: coordinators, then other
// workers.
type dataSources struct {
	pool         *rpc.Pool
	coordinators []string
	self         string
}

// askTime bounds the question who else works.
const askTime = 3 * time.Second

// limitMemory has what is not used any more collected in time, so that a worker whose job was reckoned to fit does not take twice as much. GOMEMLIMIT goes first.
func limitMemory(bytes int64) {
	if bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes / 20 * 19)
	}
}

// roomForRows returns how much of a worker's memory the rows of preconditioners may take that it holds for the chains of others: three fourths if it drives none
// itself, or else one. It is nil if the memory is not known.
func roomForRows(memory int64, driving func() int) func() int64 {
	if memory == 0 {
		return nil
	}
	return func() int64 {
		if driving() > 0 {
			return memory / 4
		}
		return memory / 4 * 3
	}
}

// fitShare is which part of the memory the rows of a fit may take that another process drives: a sixteenth.
const fitShare = 16

func (d *dataSources) sources(string) []blobnet.Source {
	var out []blobnet.Source
	add := func(address string) {
		if c, err := d.pool.Conn(address); err == nil && address != d.self {
			out = append(out, blobnet.Source{Name: address, DataClient: pb.NewDataClient(c)})
		}
	}
	var workers []string
	for _, address := range d.coordinators {
		add(address)
		if c, err := d.pool.Conn(address); err == nil && workers == nil {
			ctx, cancel := context.WithTimeout(context.Background(), askTime)
			list, err := pb.NewWorkersClient(c).List(ctx, &pb.ListWorkersRequest{})
			cancel()
			if err != nil {
				continue
			}
			for _, w := range list.Workers {
				if w.Connected && w.Address != "" {
					workers = append(workers, w.Address)
				}
			}
		}
	}
	for _, address := range workers {
		add(address)
	}
	return out
}
