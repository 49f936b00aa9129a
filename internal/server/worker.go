package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blob/ref"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
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
	src, err := c.open(identity.Worker, c.Logger, c.Listen)
	if err != nil {
		return err
	}
	unsafe := c.unsafe(src, c.Listen)
	mon, done, err := private(c.Monitor, monitor.Config{Address: c.Metrics, Pprof: c.Pprof})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	tracer, untrace, err := traces(ctx, c.Tracer, c.OTLP, "worker", c.ID)
	if err != nil {
		return err
	}
	defer untrace()
	lis, err := c.listen(c.Listen)
	if err != nil {
		return fmt.Errorf("listening for other workers: %w", err)
	}
	defer lis.Close()
	store, err := blob.Open(filepath.Join(c.Dir, "data"), blob.Options{Reserve: c.DiskReserve})
	if err != nil {
		return fmt.Errorf("opening the cache of data sets: %w", err)
	}
	defer store.Close()
	dial, err := c.dialer(src)
	if err != nil {
		return err
	}
	data := &dataSources{pool: rpc.NewPool(func(address string) (*grpc.ClientConn, error) {
		if slices.Contains(c.Coordinators, address) {
			return dial(address)
		}
		return rpc.Dialer(src.Credentials(identity.Coordinator, identity.Worker))(address) // which has no business with the token
	}), coordinators: c.Coordinators, self: orListener(c.Advertise, lis)}
	defer data.pool.Close()
	cache := blobnet.NewCache(store, c.CacheBytes, data.sources)
	defer cache.Close()
	allowed := ref.Options{AllowedRoots: c.DataRoots, AllowedHosts: c.DataHosts}

	budget, meter := parallel.NewBudget(c.Cores), &shard.Meter{}
	pool := shard.NewPool(meter, grpc.WithTransportCredentials(src.Credentials(identity.Worker)))
	defer pool.Close()
	w, err := worker.New(worker.Config{ID: c.ID, Address: data.self, Coordinators: c.Coordinators, Budget: budget, Logger: c.Logger,
		Dial: dial, Peers: pool, Meter: meter, MinRows: c.MinRows, Cached: cache.Counts, Tracer: tracer, MemoryBytes: memory(),
		Open: func(ctx context.Context, address, path string) (io.ReadCloser, error) {
			if address != "" {
				return cache.Get(ctx, address)
			}
			return ref.OpenURL(ctx, path, allowed)
		}})
	if err != nil {
		return err
	}
	blobs, err := blobnet.New(blobnet.Config{Store: store, Log: c.Logger}) // read-only
	if err != nil {
		return err
	}
	defer blobs.Close()
	rows := shard.NewServer(shard.ServerConfig{Source: w, Budget: budget, Meter: meter, Traced: traced(tracer)})
	posteriors := worker.NewPosteriors(w, &predict.Solutions{Dir: filepath.Join(c.Dir, "predict"), Most: worker.SolutionsDiskBytes})
	in := ways{door: lis}
	if src != nil {
		in.gate = &identity.Gate{NodesOnly: true}
	}
	s, healthy := rpc.NewServer(src.Credentials(identity.Worker), func(s *grpc.Server) {
		pb.RegisterTilesServer(s, rows)
		pb.RegisterDataServer(s, blobs)
		pb.RegisterPosteriorsServer(s, posteriors)
	}, append(shard.ServerOptions(), in.options(c.waits(), nil, nil)...)...)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { failed <- s.Serve(lis) })
	defer wg.Wait()
	defer stop(s, healthy)
	mon.Registry.MustRegister(w, certMetrics{src, nil})
	mon.Note("security: " + word(src, unsafe))
	mon.Started(func() error {
		if !w.Connected() {
			return errors.New(strings.TrimSuffix("no session with the leading coordinator: "+w.Absence(), ": "))
		}
		return nil
	})

	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	wg.Go(func() { ended <- w.Run(work) })
	wg.Go(func() { c.watch(work, src, unsafe, c.Logger) })
	c.Logger.Info("worker started", "id", c.ID, "address", data.self, "metrics", mon.Address(), "cores", budget.Cores(),
		"security", word(src, unsafe), "version", version.Version)
	select {
	case err := <-ended:
		return err
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	mon.Stopping()
	w.Drain()
	late, tick := time.After(c.DrainTime), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			waits = w.Driving() > 0 || w.Connected() // else nobody is there to take leave of
		case <-late:
			c.Logger.Warn("not drained in time: others go on from the last checkpoints", "chains", w.Driving())
			waits = false
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
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
