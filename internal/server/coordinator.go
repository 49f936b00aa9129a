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

	"github.com/ulisse-gp/ulisse/internal/auth"
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
	p := &coordinatorProcess{Coordinator: c, failed: make(chan error, 3)}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, step := range []func(context.Context) error{p.observe, p.listenAll, p.join, p.openStores, p.serve, p.serveHTTP} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	p.announce()
	select {
	case <-ctx.Done():
		p.monitor.Stopping()
		handOver(p.node.Node)
		return nil
	case err := <-p.failed:
		return err
	}
}

// coordinatorProcess is a coordinator on its way up. Each step of Run opens what the
// next ones need, and adds what closes it.
type coordinatorProcess struct {
	Coordinator
	closing
	src, httpSrc *tlsconf.Source // nil for plaintext
	proxies      proxies
	monitor      *monitor.Server
	tracer       *tracing.Tracer
	grpc, raft   *door
	http         *door  // nil for none
	advertise    string // where others reach the RPCs
	node         *replica
	coord        *coordinator.Coordinator
	measures     *nodeMetrics
	room         *room
	data         *blobnet.Service
	vectors      *latents
	guard        *auth.Guard
	ways         ways
	server       *grpc.Server
	unsafe       bool // plaintext, beyond this machine
	work         sync.WaitGroup
	failed       chan error // of what serves
}

// observe reads the certificates and the proxies, and opens the private port and traces.
func (p *coordinatorProcess) observe(ctx context.Context) (err error) {
	if p.src, err = p.open(identity.Coordinator, p.Logger, p.Listen, p.Raft, p.HTTP); err != nil {
		return err
	}
	if p.httpSrc, err = p.openHTTP(p.src); err != nil {
		return err
	}
	if p.proxies, err = parseProxies(p.HTTPProxies); err != nil {
		return err
	}
	var done func() error
	if p.monitor, done, err = private(p.Monitor, monitor.Config{Address: p.Metrics, Pprof: p.Pprof}); err != nil {
		return err
	}
	p.later(done)
	var untrace func()
	if p.tracer, untrace, err = traces(ctx, p.Tracer, p.OTLP, "coordinator", p.ID); err != nil {
		return err
	}
	p.finally(untrace)
	return nil
}

// listenAll opens the ports, and refuses settings that are not safe on them.
func (p *coordinatorProcess) listenAll(context.Context) error {
	for _, port := range []struct {
		address, what string
		door          **door
	}{{p.Listen, "RPCs", &p.grpc}, {p.Raft, "other coordinators", &p.raft}, {p.HTTP, "HTTP", &p.http}} {
		if port.address == "" && port.door == &p.http {
			continue
		}
		d, err := p.listen(port.address)
		if err != nil {
			return fmt.Errorf("listening for %s: %w", port.what, err)
		}
		*port.door = d
		p.finally(func() { d.Close() })
	}
	p.advertise = orListener(p.Advertise, p.grpc)
	if err := p.check(p.Dir, p.src == nil, p.grpc, p.raft, p.http); err != nil {
		return err
	}
	p.unsafe = p.Security.unsafe(p.src, p.Listen, p.Raft, p.HTTP)
	return nil
}

// join makes the coordinator and its node of the cluster, which may lead from here on.
func (p *coordinatorProcess) join(context.Context) (err error) {
	dial := rpc.Dialer(p.src.Credentials(identity.Coordinator), p.dialOptions(p.src == nil, func() string { return p.coord.NodeKey() })...)
	p.node = &replica{}
	p.measures = newNodeMetrics(p.node, p.Dir, p.DiskReserve)
	if p.free == nil {
		p.free = func() (int64, error) { return blob.DiskFree(p.Dir) }
	}
	p.room = newRoom(p.node, p.free, p.DiskReserve, p.Logger)
	machine := state.NewMachine()
	p.coord, err = coordinator.New(coordinator.Config{Node: p.node, Machine: machine, Dir: p.Dir, Logger: p.Logger,
		Dial: dial, DialWorker: rpc.Dialer(p.src.Credentials(identity.Worker)), Peers: p.node.peers,
		Grace: p.Grace, SplitRows: p.SplitRows, TokenFile: p.TokenFile, Hooks: p.Hooks, LogBytes: p.LogBytes, Tracer: p.tracer})
	if err != nil {
		return err
	}
	p.finally(func() { p.coord.Close() })
	opened := make(chan struct{})
	p.node.Node, err = cluster.Open(cluster.Config{ID: p.ID, Dir: filepath.Join(p.Dir, "raft"), Machine: machine,
		Listener: secureRaft(p.src, p.raft), Dial: dialRaft(p.src), Advertise: orListener(p.RaftAdvertise, p.raft),
		GRPC: p.advertise, HTTP: p.httpAddress(), Version: version.Version, Format: state.Format,
		BootstrapExpect: p.founders(), Peers: p.Peers, GracePeriod: p.MemberGrace, HandshakeTimeout: p.waits().handshake, Logger: p.Logger,
		Lead: func(ctx context.Context) {
			<-opened
			p.coord.Lead(ctx)
		},
		Applied: func(took time.Duration) { p.measures.apply.Observe(took.Seconds()) },
		Written: func(took time.Duration) { p.measures.write.Observe(took.Seconds()) }, Stalled: p.stalled, Room: p.room.bytes.Load})
	if err != nil {
		return err
	}
	p.node.committed = func(took time.Duration) { p.measures.commit.Observe(took.Seconds()) }
	close(opened)
	p.later(p.node.Node.Close)
	return nil
}

// openStores opens the data sets and the latent vectors.
func (p *coordinatorProcess) openStores(context.Context) error {
	store, err := blob.Open(filepath.Join(p.Dir, "data"), blob.Options{Reserve: p.DiskReserve})
	if err != nil {
		return fmt.Errorf("opening the data sets: %w", err)
	}
	p.finally(func() { store.Close() })
	p.data, err = blobnet.New(blobnet.Config{Store: store, Self: p.ID, Registry: p.coord.Registry(p.node.members), Access: p.coord.Access(), Log: p.Logger,
		Dial: func(peer blobnet.Peer) (pb.DataClient, error) {
			conn, err := p.coord.Conn(peer.Address)
			return pb.NewDataClient(conn), err
		}})
	if err != nil {
		return err
	}
	p.finally(func() { p.data.Close() })
	if p.vectors, err = openLatents(p.Dir, p.DiskReserve, p.ID, p.coord, p.node.members, p.Latents, p.Logger); err != nil {
		return err
	}
	p.later(p.vectors.Close)
	return nil
}

// serve answers RPCs, and keeps up what goes on beside them.
func (p *coordinatorProcess) serve(ctx context.Context) error {
	guard, closeGuard, err := p.Users.guard(p.coord, p.src == nil, p.Logger)
	if err != nil {
		return err
	}
	p.guard = guard
	p.later(closeGuard)
	p.ways = ways{door: p.grpc, guard: guard, trusting: p.src == nil && p.Auth == AuthNone}
	if p.src != nil {
		p.ways.gate = &identity.Gate{Anonymous: p.Auth == AuthTokens}
	}
	s, healthy := rpc.NewServer(p.src.Credentials(identity.Coordinator), func(s *grpc.Server) {
		p.coord.Register(s)
		pb.RegisterDataServer(s, p.data)
		pb.RegisterLatentsServer(s, p.vectors.Latents())
		coordinator.RegisterCluster(s, p.coord.KeepRevoked(p.node.Node))
	}, p.ways.options(p.waits(), []grpc.UnaryServerInterceptor{p.coord.Forward, p.room.admit}, []grpc.StreamServerInterceptor{p.coord.ForwardStream})...)
	p.server = s
	ctx, cancel := context.WithCancel(ctx)
	p.finally(p.work.Wait)
	p.finally(cancel)
	p.finally(func() { stop(s, healthy) })
	p.work.Go(func() { p.failed <- s.Serve(p.grpc) })
	p.work.Go(func() { p.watch(ctx, p.src, p.unsafe, p.Logger) })
	for _, keep := range []func(context.Context){p.data.Sync, p.vectors.Sync, guard.Run, p.room.run} {
		p.work.Go(func() { keep(ctx) })
	}
	if p.httpSrc != p.src {
		p.work.Go(func() { p.httpSrc.Watch(ctx) })
	}
	return nil
}

// serveHTTP answers requests of HTTP: JSON and pages, both through the RPCs.
func (p *coordinatorProcess) serveHTTP(ctx context.Context) error {
	if p.http == nil {
		return nil
	}
	here := newWithin()
	p.finally(func() { here.Close() })
	p.work.Go(func() { p.failed <- p.server.Serve(here) })
	conn, err := here.dial()
	if err != nil {
		return err
	}
	p.finally(func() { conn.Close() })
	handler, err := gateway(ctx, conn, filepath.Join(p.Dir, "uploads"), p.DiskReserve, p.node, p.waits(), p.ways, p.word())
	if err != nil {
		return err
	}
	sign := newSignIn(pb.NewUsersClient(conn), p.httpSrc != nil, p.Auth == AuthTokens)
	sign.register(handler)
	pages, err := dashboard.New(dashboard.Config{Conn: conn, Node: p.ID, Logger: p.Logger, Protect: sign.protect, Viewer: viewer,
		Background: p.guard.Inside(identity.As(context.Background(), identity.Peer{Role: identity.Coordinator, Name: p.ID}))})
	if err != nil {
		return err
	}
	p.finally(func() { pages.Close() })
	handler.Handle("/", pages)
	ours := newSites(p.httpSrc == nil, []string{p.HTTP, p.Advertise, p.RaftAdvertise}, p.HTTPHosts)
	h := newHTTP(ours.only(p.proxies.clients(identity.HTTP(sign.sessions(p.ways.web(handler))))), p.httpSrc, p.waits(), p.Logger)
	p.work.Go(func() { p.failed <- serveHTTP(h, p.http) })
	p.finally(func() { h.Close() })
	return nil
}

// announce says that the process is up, to the private port, the log and who asked.
func (p *coordinatorProcess) announce() {
	m := p.monitor
	m.Registry.MustRegister(p.measures, p.coord, certMetrics{p.src, p.httpSrc})
	m.Note("security: " + p.word())
	m.Handle("GET /workers-wanted", http.HandlerFunc(p.coord.ServeWanted))
	m.Started(p.node.Ready)
	p.Logger.Info("coordinator ready", "id", p.ID, "grpc", p.advertise, "raft", p.raft.Addr(), "http", p.httpAddress(), "metrics", m.Address(),
		"security", p.word(), "version", version.Version)
	if p.Ready != nil {
		p.Ready(p.grpc.Addr().String(), p.raft.Addr().String(), p.httpAddress())
	}
}

// httpAddress is where HTTP is served; empty for nowhere.
func (p *coordinatorProcess) httpAddress() string {
	if p.http == nil {
		return ""
	}
	return p.http.Addr().String()
}

func (p *coordinatorProcess) word() string { return word(p.src, p.unsafe) }

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
