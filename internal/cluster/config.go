package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Config says what a node is. ID, Dir, Machine, Listener and Advertise must be
// set; everything else has a default.
type Config struct {
	// ID names the node forever, whatever its address.
	ID string
	// Dir holds raft.db, state.db and snapshots/. One process at a time.
	Dir string
	// Machine is the replicated state.
	Machine Machine

	// Listener takes the other nodes' connections. The node closes it.
	Listener net.Listener
	// Advertise is host:port at which the others reach Listener. Give a name
	// where addresses change (a pod's): it is looked up at each connection.
	Advertise string
	// Dial opens a connection to host:port; Host says which host that is, where
	// certificates are checked. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// GRPC, HTTP and Version are what the other members shall know of this one.
	GRPC, HTTP, Version string

	// Format is the newest format of commands that Machine knows (format.go).
	// Default 1.
	Format uint64

	// BootstrapExpect is the number of nodes that found the cluster together;
	// all must be given the same. 0: this node waits for a cluster to join, and
	// founders do not count it. It has no effect on a node that has a log. Never
	// give a new node of an old cluster 1: unless it reaches one of Peers that
	// has a cluster, it founds one of its own.
	BootstrapExpect int
	// Peers are host:port of other nodes. A host that is the name of several
	// (a headless service) stands for all of them.
	Peers []string
	// Resolve looks up a host of Peers. Default: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)

	// HeartbeatTimeout is how long a follower waits for its leader before it
	// stands for election. Default 1 s: a pause of the machine shorter than
	// this costs nothing; after a leader's death there is none for two to
	// three times as long. Also the pace of beats and of housekeeping.
	HeartbeatTimeout time.Duration
	// GracePeriod is how long a member may be silent before it is removed.
	// 0: never. Shorter than a machine's reboot, members leave in vain.
	GracePeriod time.Duration

	// HandshakeTimeout is how long a connection may stay without its first byte.
	// Default 10 s.
	HandshakeTimeout time.Duration

	// SnapshotInterval is how often the need of a snapshot is looked at (up to
	// twice that); default 120 s. SnapshotThreshold is how many entries make
	// one needed; default 8192. TrailingLogs is how many entries stay behind
	// for slow followers; default 10240. If moving a snapshot takes longer than
	// TrailingLogs entries take to be written, a follower never catches up.
	SnapshotInterval  time.Duration
	SnapshotThreshold uint64
	TrailingLogs      uint64

	// Lead runs while this node leads, from when it has applied everything
	// that was committed before. Its context ends with the leadership, and it
	// must return then: the next Lead waits for it. Leadership that was lost and
	// regained ends one Lead and begins another.
	Lead func(ctx context.Context)

	// Applied, if set, is told how long each batch of entries took to enter the
	// state, Written how long each write to the disk took. They must return at once.
	Applied, Written func(took time.Duration)

	// StallTimeout is how long a write to the disk may take. Default 10
	// HeartbeatTimeouts. Stalled, if set, is told once one has taken longer and
	// there are other voters: it ends the process, for as long as that lives and
	// leads nothing goes on.
	StallTimeout time.Duration
	Stalled      func(error)

	// CheckEvery is how often the members compare their states; default 10 min,
	// negative never.
	CheckEvery time.Duration

	// Room, if set, returns the bytes that this node's disk has for more. It must
	// return at once.
	Room func() int64

	// Logger takes raft's messages too. Default: slog.Default().
	Logger *slog.Logger

	shrinkFrom int64 // tests: how large a file is that may be made smaller
	unmended   bool  // tests: leave the livelock of snapshotStore in
	seam       seam  // tests
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("cluster: "+what))
		}
	}
	need(c.ID != "", "a node needs an ID")
	need(c.Dir != "", "a node needs a directory")
	need(c.Machine != nil, "a node needs a state machine")
	need(c.Listener != nil, "a node needs a listener")
	need(c.BootstrapExpect >= 0, "the number of nodes to expect is negative")
	for _, a := range append([]string{c.Advertise}, c.Peers...) {
		if _, _, err := net.SplitHostPort(a); err != nil {
			errs = append(errs, fmt.Errorf("cluster: address %q is not host:port", a))
		}
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("node", c.ID)
	orElse(&c.HeartbeatTimeout, time.Second)
	orElse(&c.CheckEvery, 10*time.Minute)
	orElse(&c.StallTimeout, 10*c.HeartbeatTimeout)
	orElse(&c.Format, 1)
	orElse(&c.HandshakeTimeout, 10*time.Second)
	orElse(&c.SnapshotInterval, 120*time.Second)
	orElse(&c.SnapshotThreshold, 8192)
	orElse(&c.TrailingLogs, 10240)
	return c, errors.Join(errs...)
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// raftConfig is raft's own configuration. LeaderLease <= Heartbeat <= Election;
// reads ask a majority, so the lease need not be short.
func (c Config) raftConfig() *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.ID)
	r.HeartbeatTimeout = c.HeartbeatTimeout
	r.ElectionTimeout = c.HeartbeatTimeout
	r.LeaderLeaseTimeout = c.HeartbeatTimeout
	r.SnapshotInterval = c.SnapshotInterval
	r.SnapshotThreshold = c.SnapshotThreshold
	r.TrailingLogs = c.TrailingLogs
	r.ShutdownOnRemove = false // a member that was taken for dead may come back
	r.NoLegacyTelemetry = true
	if c.Logger != nil {
		r.Logger = newRaftLogger(c.Logger)
	}
	return r
}
