package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/dashboard"
	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	"github.com/ulisse-gp/ulisse/internal/tracing"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Coordinator configures a coordinator's process.
type Coordinator struct {
	ID              string
	Dir             string
	Listen          string // RPCs
	Advertise       string // where others reach them; the address listened on if empty
	Raft            string
	RaftAdvertise   string
	HTTP            string   // JSON, health; none if empty
	HTTPHosts       []string // names under which HTTP is reached in plaintext, besides its own
	HTTPProxies     []string // networks of proxies before HTTP, who are believed for whom they ask
	Metrics         string   // metrics and probes; none if empty
	Pprof           bool     // profiles too, beside metrics
	OTLP            string   // where traces go; nowhere if empty
	BootstrapExpect int
	BootstrapIndex  int      // from BootstrapExpect on the node joins
	Peers           []string // raft addresses of other coordinators, or a name of all
	Grace           time.Duration
	MemberGrace     time.Duration
	SplitRows       int
	DiskReserve     int64 // bytes of the disk that uploads leave free
	LogBytes        int64 // of the logs of all jobs; 0: 1 GiB
	Latents         LatentTimes
	Hooks           *hooks.Hooks // are told what happens to jobs; nil for nobody
	Logger          *slog.Logger
	Security
	Users
	// HTTPFiles are those of a certificate for the HTTP port that is not the one of
	// the other ports: for browsers. Its CA is that of the others.
	HTTPFiles tlsconf.Files
	// Ready, if set, is called with the addresses once everything listens.
	Ready func(grpc, raft, http string)
	// Monitor, if set, is the private port in place of one at Metrics; the caller
	// closes it.
	Monitor *monitor.Server
	// Tracer, if set, is used in place of one for OTLP; the caller closes it.
	Tracer *tracing.Tracer

	exit func(error)           // tests: in place of the end of the process
	free func() (int64, error) // tests: in place of the bytes that the disk has free
}

// stopMost bounds how long calls may take to end when a process stops.
const stopMost = 5 * time.Second

// Run runs the coordinator until ctx is done.
func (c Coordinator) Run(ctx context.Context) (err error) {
	src, err := c.open(identity.Coordinator, c.Logger, c.Listen, c.Raft, c.HTTP)
	if err != nil {
		return err
	}
	httpSrc, err := c.openHTTP(src)
	if err != nil {
		return err
	}
	before, err := parseProxies(c.HTTPProxies)
	if err != nil {
		return err
	}
	mon, done, err := private(c.Monitor, monitor.Config{Address: c.Metrics, Pprof: c.Pprof})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	tracer, untrace, err := traces(ctx, c.Tracer, c.OTLP, "coordinator", c.ID)
	if err != nil {
		return err
	}
	defer untrace()
	grpcLis, err := c.listen(c.Listen)
	if err != nil {
		return fmt.Errorf("listening for RPCs: %w", err)
	}
	defer grpcLis.Close()
	raftLis, err := c.listen(c.Raft)
	if err != nil {
		return fmt.Errorf("listening for other coordinators: %w", err)
	}
	advertise := orListener(c.Advertise, grpcLis)
	httpAddress := ""
	var httpLis *door
	if c.HTTP != "" {
		if httpLis, err = c.listen(c.HTTP); err != nil {
			raftLis.Close()
			return fmt.Errorf("listening for HTTP: %w", err)
		}
		defer httpLis.Close()
		httpAddress = httpLis.Addr().String()
	}

	if err := c.check(c.Dir, src == nil, grpcLis, raftLis, httpLis); err != nil {
		raftLis.Close()
		return err
	}
	var coord *coordinator.Coordinator
	dial := rpc.Dialer(src.Credentials(identity.Coordinator), c.dialOptions(src == nil, func() string { return coord.NodeKey() })...)
	node := &replica{}
	measures := newNodeMetrics(node, c.Dir, c.DiskReserve)
	if c.free == nil {
		c.free = func() (int64, error) { return blob.DiskFree(c.Dir) }
	}
	room := newRoom(node, c.free, c.DiskReserve, c.Logger)
	machine := state.NewMachine()
	coord, err = coordinator.New(coordinator.Config{Node: node, Machine: machine, Dir: c.Dir, Logger: c.Logger, Dial: dial, DialWorker: rpc.Dialer(src.Credentials(identity.Worker)), Peers: node.peers,
		Grace: c.Grace, SplitRows: c.SplitRows, TokenFile: c.TokenFile, Hooks: c.Hooks, LogBytes: c.LogBytes, Tracer: tracer})
	if err != nil {
		raftLis.Close()
		return err
	}
	defer coord.Close()
	opened := make(chan struct{})
	lead := func(ctx context.Context) {
		<-opened
		coord.Lead(ctx)
	}
	node.Node, err = cluster.Open(cluster.Config{ID: c.ID, Dir: filepath.Join(c.Dir, "raft"), Machine: machine,
		Listener: secureRaft(src, raftLis), Dial: dialRaft(src), Advertise: orListener(c.RaftAdvertise, raftLis), GRPC: advertise, HTTP: httpAddress, Version: version.Version, Format: state.Format,
		BootstrapExpect: c.founders(), Peers: c.Peers, GracePeriod: c.MemberGrace, HandshakeTimeout: c.waits().handshake, Lead: lead, Logger: c.Logger,
		Applied: func(took time.Duration) { measures.apply.Observe(took.Seconds()) },
		Written: func(took time.Duration) { measures.write.Observe(took.Seconds()) }, Stalled: c.stalled, Room: room.bytes.Load})
	if err != nil {
		return err
	}
	node.committed = func(took time.Duration) { measures.commit.Observe(took.Seconds()) }
	close(opened)
	defer func() { err = errors.Join(err, node.Node.Close()) }()

	store, err := blob.Open(filepath.Join(c.Dir, "data"), blob.Options{Reserve: c.DiskReserve})
	if err != nil {
		return fmt.Errorf("opening the data sets: %w", err)
	}
	defer store.Close()
	data, err := blobnet.New(blobnet.Config{Store: store, Self: c.ID, Registry: coord.Registry(node.members), Access: coord.Access(), Log: c.Logger,
		Dial: func(p blobnet.Peer) (pb.DataClient, error) {
			conn, err := coord.Conn(p.Address)
			return pb.NewDataClient(conn), err
		}})
	if err != nil {
		return err
	}
	defer data.Close()
	vectors, err := openLatents(c.Dir, c.DiskReserve, c.ID, coord, node.members, c.Latents, c.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	unsafe := c.unsafe(src, c.Listen, c.Raft, c.HTTP)
	guard, closeGuard, err := c.guard(coord, src == nil, c.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeGuard()) }()
	in := ways{door: grpcLis, guard: guard, trusting: src == nil && c.Auth == AuthNone}
	if src != nil {
		in.gate = &identity.Gate{Anonymous: c.Auth == AuthTokens}
	}
	s, healthy := rpc.NewServer(src.Credentials(identity.Coordinator), func(s *grpc.Server) {
		coord.Register(s)
		pb.RegisterDataServer(s, data)
		pb.RegisterLatentsServer(s, vectors.Latents())
		coordinator.RegisterCluster(s, coord.KeepRevoked(node.Node))
	}, in.options(c.waits(), []grpc.UnaryServerInterceptor{coord.Forward, room.admit}, []grpc.StreamServerInterceptor{coord.ForwardStream})...)
	var wg sync.WaitGroup
	failed := make(chan error, 3)
	wg.Go(func() { failed <- s.Serve(grpcLis) })
	syncing, cancel := context.WithCancel(ctx)
	wg.Go(func() { data.Sync(syncing) })
	wg.Go(func() { vectors.Sync(syncing) })
	wg.Go(func() { guard.Run(syncing) })
	wg.Go(func() { room.run(syncing) })
	wg.Go(func() { c.watch(syncing, src, unsafe, c.Logger) })
	if httpSrc != src {
		wg.Go(func() { httpSrc.Watch(syncing) })
	}
	defer wg.Wait()
	defer cancel()
	defer stop(s, healthy)
	if httpLis != nil {
		here := newWithin()
		defer here.Close()
		wg.Go(func() { failed <- s.Serve(here) })
		conn, err := here.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		handler, err := gateway(ctx, conn, filepath.Join(c.Dir, "uploads"), c.DiskReserve, node, c.waits(), in, word(src, unsafe))
		if err != nil {
			return err
		}
		sign := newSignIn(pb.NewUsersClient(conn), httpSrc != nil, c.Auth == AuthTokens)
		sign.register(handler)
		pages, err := dashboard.New(dashboard.Config{Conn: conn, Node: c.ID, Logger: c.Logger, Protect: sign.protect, Viewer: viewer,
			Background: guard.Inside(identity.As(context.Background(), identity.Peer{Role: identity.Coordinator, Name: c.ID}))})
		if err != nil {
			return err
		}
		defer pages.Close()
		handler.Handle("/", pages)
		ours := newSites(httpSrc == nil, []string{c.HTTP, c.Advertise, c.RaftAdvertise}, c.HTTPHosts)
		h := newHTTP(ours.only(before.clients(identity.HTTP(sign.sessions(in.web(handler))))), httpSrc, c.waits(), c.Logger)
		wg.Go(func() { failed <- serveHTTP(h, httpLis) })
		defer h.Close()
	}
	mon.Registry.MustRegister(measures, coord, certMetrics{src, httpSrc})
	mon.Note("security: " + word(src, unsafe))
	mon.Handle("GET /workers-wanted", http.HandlerFunc(coord.ServeWanted))
	mon.Started(node.Ready)
	c.Logger.Info("coordinator ready", "id", c.ID, "grpc", advertise, "raft", raftLis.Addr(), "http", httpAddress, "metrics", mon.Address(),
		"security", word(src, unsafe), "version", version.Version)
	if c.Ready != nil {
		c.Ready(grpcLis.Addr().String(), raftLis.Addr().String(), httpAddress)
	}
	select {
	case <-ctx.Done():
		mon.Stopping()
		handOver(node.Node)
		return nil
	case err := <-failed:
		return err
	}
}

// founders is how many nodes found the cluster, this one among them; else 0.
func (c Coordinator) founders() int {
	if c.BootstrapIndex >= c.BootstrapExpect {
		return 0
	}
	return c.BootstrapExpect
}

// handOver lets another node lead before this one goes. Calls are still taken:
// they are passed on, and workers leave for the new leader by themselves.
func handOver(n *cluster.Node) {
	if !n.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopMost)
	defer cancel()
	_ = n.Transfer(ctx, "") // there may be nobody
}

// stop lets calls end, for a while.
func stop(s *grpc.Server, h *health.Server) {
	h.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	done := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopMost):
		s.Stop()
		<-done
	}
}

// stalled ends the process for a disk that hangs: whatever it is waited for would
// wait, too, and the others cannot go on while this one leads.
func (c Coordinator) stalled(err error) {
	c.Logger.Error("ending: the other coordinators go on", "error", err)
	if c.exit != nil {
		c.exit(err)
		return
	}
	os.Exit(1)
}

// orListener returns an advertised address, that of the listener if none is
// given.
func orListener(advertise string, l net.Listener) string {
	if advertise != "" {
		return advertise
	}
	return l.Addr().String()
}

// replica is a cluster.Node as a coordinator sees it.
type replica struct {
	*cluster.Node
	committed func(time.Duration) // is told what commands took; nil if nobody asks
}

// Apply replicates a command.
func (r *replica) Apply(ctx context.Context, command []byte) (any, error) {
	began := time.Now()
	out, _, err := r.Node.ApplyFormat(ctx, state.FormatOf(command), command)
	if r.committed != nil && !errors.Is(err, cluster.ErrNotLeader) {
		r.committed(time.Since(began)) // also what did not end: it took that long
	}
	return out, err
}

// Ready returns why the coordinator cannot serve.
func (r *replica) Ready() error { return cmp.Or(monitor.Files(), r.Node.Ready()) }

// Age returns the time since the leader was heard of.
func (r *replica) Age() time.Duration { return time.Since(r.LastContact()) }

// Leader returns the leader's id and the address of its RPCs.
func (r *replica) Leader() (id, grpcAddress string) {
	l := r.Node.Leader()
	m, _ := r.Node.Known(l.ID)
	return l.ID, m.GRPC
}

// members returns all coordinators.
func (r *replica) members() []blobnet.Peer {
	var out []blobnet.Peer
	for _, m := range r.Node.AllKnown() {
		out = append(out, blobnet.Peer{ID: m.ID, Address: m.GRPC})
	}
	return out
}

// peers returns the addresses of the other coordinators' RPCs.
func (r *replica) peers() []string {
	var out []string
	for _, m := range r.Node.AllKnown() {
		if m.ID != r.ID() && m.GRPC != "" {
			out = append(out, m.GRPC)
		}
	}
	return out
}
