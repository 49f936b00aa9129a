package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/tracing"
)

// Node is the replicated state, as package cluster keeps it.
type Node interface {
	ID() string
	// Apply replicates a command and returns what the state machine returned.
	// Only the leader can.
	Apply(ctx context.Context, command []byte) (any, error)
	// View reads this node's copy of the state.
	View(func(*bbolt.Tx) error) error
	// Changed returns a channel that is closed when the state next changes.
	Changed() <-chan struct{}
	// ReadIndex returns the index that a consistent read has to have seen. Only
	// the leader can.
	ReadIndex(ctx context.Context) (uint64, error)
	// WaitApplied waits until this node has applied an index.
	WaitApplied(ctx context.Context, index uint64) error
	// IsLeader reports whether this node leads; Leader returns the leader's id
	// and the address of its RPCs, empty if there is none.
	IsLeader() bool
	Leader() (id, grpcAddress string)
	// Age returns how old this node's copy of the state may be: the time since it
	// has heard of the leader.
	Age() time.Duration
}

// Config configures a coordinator.
type Config struct {
	Node   Node
	Dir    string // for logs
	Logger *slog.Logger
	// Dial connects to another coordinator.
	Dial func(address string) (*grpc.ClientConn, error)
	// DialWorker connects to a worker. nil means Dial.
	DialWorker func(address string) (*grpc.ClientConn, error)
	// Peers returns the addresses of the other coordinators' RPCs.
	Peers func() []string
	// Grace is how long a worker may be silent before its chains are given to
	// others. Zero means 10 s.
	Grace time.Duration
	// SplitRows is the number of rows from which idle workers share a chain's
	// products. Zero means 20,000; negative never.
	SplitRows int
	// Hooks are told what happens to jobs; nil for nobody.
	Hooks *hooks.Hooks
	// Tracer follows jobs; nil for none.
	Tracer *tracing.Tracer
	// LogBytes bounds the logs of all jobs: the oldest make room. Zero means 1 GiB.
	LogBytes int64
	// MaxJobs bounds the jobs that are kept. Zero means 100,000.
	MaxJobs int
	// TokenFile has the first administrator's token, and gets one if it is not
	// there. Empty means that callers are not asked who they are.
	TokenFile string
}

// Coordinator serves the RPCs of a coordinator, and leads when its node does.
type Coordinator struct {
	Config
	views   *views
	workers *registry
	pulses  *pulses
	logs    *logs
	peers   *rpc.Pool
	// toWorkers are the connections to workers, which predict.
	toWorkers *rpc.Pool

	deliveries deliveries

	pb.UnimplementedJobsServer
	pb.UnimplementedWorkersServer
}

// New returns a coordinator.
func New(c Config) (*Coordinator, error) {
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.SplitRows == 0 {
		c.SplitRows = 20_000
	}
	if c.LogBytes == 0 {
		c.LogBytes = 1 << 30
	}
	if c.MaxJobs == 0 {
		c.MaxJobs = 100_000
	}
	if c.DialWorker == nil {
		c.DialWorker = c.Dial
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := openLogs(c.Dir, c.LogBytes)
	if err != nil {
		return nil, fmt.Errorf("opening the job logs: %w", err)
	}
	return &Coordinator{Config: c, views: newViews(c.Node), workers: newRegistry(), pulses: newPulses(), logs: l, peers: rpc.NewPool(c.Dial), toWorkers: rpc.NewPool(c.DialWorker)}, nil
}

// Register registers the services.
func (c *Coordinator) Register(s grpc.ServiceRegistrar) {
	pb.RegisterJobsServer(s, c)
	pb.RegisterWorkersServer(s, workersServer{c})
	pb.RegisterHistoryServer(s, &historyServer{c: c})
	pb.RegisterRecordsServer(s, &records{c: c})
	pb.RegisterUsersServer(s, users{Coordinator: c})
	pb.RegisterPredictionsServer(s, newPredictions(c))
}

// Close releases what the coordinator holds.
func (c *Coordinator) Close() error {
	c.peers.Close()
	c.toWorkers.Close()
	return c.logs.close()
}

// apply replicates a command and returns the job that it made or changed.
func (c *Coordinator) apply(ctx context.Context, cmd state.Command) (*state.Job, error) {
	cmd.Time = time.Now().UTC()
	text, err := cmd.Encode()
	if err != nil {
		return nil, err
	}
	if len(text) > maxCommand {
		return nil, fmt.Errorf("%w: %d bytes, more than the log takes in one entry", state.ErrMalformed, len(text))
	}
	r, err := c.Node.Apply(ctx, text)
	if err != nil {
		return nil, err
	}
	j, _ := r.(*state.Job)
	return j, nil
}

// maxCommand bounds an entry of the log.
const maxCommand = 8 << 20

// catchUp makes reads of this node's state consistent.
func (c *Coordinator) catchUp(ctx context.Context) error {
	if c.Node.IsLeader() {
		_, err := c.Node.ReadIndex(ctx)
		return err
	}
	conn, err := c.leader()
	if err != nil {
		return err
	}
	r, err := pb.NewClusterClient(conn).ReadIndex(forwarded(ctx), &pb.ReadIndexRequest{})
	if err != nil {
		return err
	}
	return c.Node.WaitApplied(ctx, r.Index)
}

// read makes a consistent read, or a stale one if that will do.
func (c *Coordinator) read(ctx context.Context, stale bool, f func(*bbolt.Tx) error) error {
	if err := c.fresh(ctx, stale); err != nil {
		return err
	}
	return c.Node.View(f)
}

// fresh makes reads consistent; if stale ones will do it says how old they are.
func (c *Coordinator) fresh(ctx context.Context, stale bool) error {
	if !stale {
		return c.catchUp(ctx)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(rpc.StateAge, fmt.Sprintf("%.3f", c.Node.Age().Seconds()))) // not a call over the wire: nobody to tell
	return nil
}
