package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/health"
	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/joblog"
	"github.com/ulisse-gp/ulisse/internal/notify"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/tracing"
	"github.com/ulisse-gp/ulisse/internal/version"
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
	Node Node
	// Machine is the one that the node applies commands with: its runs need not be
	// rebuilt. nil rebuilds them.
	Machine *state.Machine
	Dir     string // for logs
	Logger  *slog.Logger
	// Dial connects to another coordinator.
	Dial func(address string) (*grpc.ClientConn, error)
	// DialWorker connects to a worker. nil means Dial.
	DialWorker func(address string) (*grpc.ClientConn, error)
	// Peers returns the addresses of the other coordinators' RPCs. nil means that
	// there are none.
	Peers func() []string
	// Grace is how long a worker may be silent before its chains are given to
	// others. Zero means 10 s.
	Grace time.Duration
	// SplitRows is the number of rows from which idle workers share a chain's
	// products. Zero means shard.DefaultSplitRows; negative never.
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

	// CheckEvery says of how many reports of drivers one is computed again by another worker, if one
	// can. Zero means 100; negative none.
	CheckEvery int

	resultStalls time.Duration // tests: in place of the constant
	rounding     string        // tests: in place of version.Rounding
}

// Coordinator serves the RPCs of a coordinator, and leads when its node does. Its
// parts are of one idea each; it passes between them what none of them knows.
type Coordinator struct {
	cfg  Config
	node Node
	log  *slog.Logger

	jobs     *followers       // what is known of jobs
	workers  *registry        // what the leader knows of workers
	checker  *health.Checker  // what the leader knows of the jobs' health
	notifier *notify.Notifier // tells hooks, while this node leads
	// lastRound is when the leader's last round went through, in Unix nanoseconds, and
	// jobErrors counts the times that nothing could be decided about a job, disagreed those that
	// two workers did not compute the same bits.
	lastRound, jobErrors, disagreed atomic.Int64
	results                         chan struct{} // has those that are under way
	logs                            *joblog.Store
	copier                          *joblog.Copier // hands log lines on to the other coordinators
	peers                           *rpc.Pool
	// toWorkers are the connections to workers, which predict.
	toWorkers *rpc.Pool
}

// New returns a coordinator.
func New(cfg Config) (*Coordinator, error) {
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.SplitRows = cmp.Or(cfg.SplitRows, shard.DefaultSplitRows)
	cfg.CheckEvery = cmp.Or(cfg.CheckEvery, 100)
	cfg.LogBytes = cmp.Or(cfg.LogBytes, 1<<30)
	cfg.MaxJobs = cmp.Or(cfg.MaxJobs, 100_000)
	cfg.resultStalls = cmp.Or(cfg.resultStalls, resultStalls)
	cfg.rounding = cmp.Or(cfg.rounding, version.Rounding())
	if cfg.DialWorker == nil {
		cfg.DialWorker = cfg.Dial
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Peers == nil {
		cfg.Peers = func() []string { return nil }
	}
	logs, err := joblog.Open(filepath.Join(cfg.Dir, "logs"), cfg.LogBytes)
	if err != nil {
		return nil, fmt.Errorf("opening the job logs: %w", err)
	}
	c := &Coordinator{cfg: cfg, node: cfg.Node, log: cfg.Logger, jobs: newFollowers(cfg.Node, cfg.Machine), workers: newRegistry(),
		checker: health.NewChecker(time.Now()), logs: logs, results: make(chan struct{}, mostResults), peers: rpc.NewPool(cfg.Dial), toWorkers: rpc.NewPool(cfg.DialWorker)}
	c.copier = joblog.NewCopier(c.sendLog)
	c.notifier = notify.New(notify.Config{Store: notices{c}, Hooks: cfg.Hooks, Logger: cfg.Logger})
	return c, nil
}

// Register registers the services.
func (c *Coordinator) Register(s grpc.ServiceRegistrar) {
	pb.RegisterJobsServer(s, c.Jobs())
	pb.RegisterWorkersServer(s, &workersService{c: c})
	pb.RegisterHistoryServer(s, &historyService{c: c})
	pb.RegisterRecordsServer(s, &recordsService{c: c})
	pb.RegisterUsersServer(s, &usersService{c: c})
	pb.RegisterPredictionsServer(s, newPredictionsService(c))
}

// Jobs returns the Jobs service, for who is in the same process.
func (c *Coordinator) Jobs() pb.JobsServer { return &jobsService{c: c} }

// Close releases what the coordinator holds.
func (c *Coordinator) Close() {
	c.copier.Close()
	c.peers.Close()
	c.toWorkers.Close()
}

// maxCommand bounds an entry of the log, in bytes.
const maxCommand = 8 << 20

// apply replicates a command and returns the job that it made or changed.
func (c *Coordinator) apply(ctx context.Context, cmd state.Command) (*state.Job, error) {
	text, err := state.Encode(time.Now().UTC(), cmd)
	if err != nil {
		return nil, err
	}
	if len(text) > maxCommand {
		return nil, fmt.Errorf("%w: %d bytes, more than the log takes in one entry", state.ErrMalformed, len(text))
	}
	r, err := c.node.Apply(ctx, text)
	if err != nil {
		return nil, err
	}
	j, _ := r.(*state.Job)
	return j, nil
}

// catchUp makes reads of this node's state consistent.
func (c *Coordinator) catchUp(ctx context.Context) error {
	if c.node.IsLeader() {
		_, err := c.node.ReadIndex(ctx)
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
	return c.node.WaitApplied(ctx, r.Index)
}

// fresh makes reads consistent; if stale ones will do it says how old they are.
func (c *Coordinator) fresh(ctx context.Context, stale bool) error {
	if !stale {
		return c.catchUp(ctx)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(rpc.StateAge, fmt.Sprintf("%.3f", c.node.Age().Seconds()))) // not a call over the wire: nobody to tell
	return nil
}

// read makes a consistent read, or a stale one if that will do.
func (c *Coordinator) read(ctx context.Context, stale bool, f func(*bbolt.Tx) error) error {
	if err := c.fresh(ctx, stale); err != nil {
		return err
	}
	return c.node.View(f)
}

// Follow calls f with a job now and whenever it has changed, until f returns
// true or an error, or ctx is done. f must not keep what it is given.
func (c *Coordinator) Follow(ctx context.Context, id string, f func(*state.Follower) (bool, error)) error {
	return c.jobs.wait(ctx, id, func(j *followed) (bool, error) { return f(&j.Follower) })
}
