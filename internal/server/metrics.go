package server

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/tracing"
)

// nodeMetrics is what a coordinator measures of the replication and of its
// disk.
type nodeMetrics struct {
	node    *replica
	dir     string // of the state
	reserve int64  // of the disk
	apply   prometheus.Histogram
	commit  prometheus.Histogram
	write   prometheus.Histogram
}

var (
	termFamily      = monitor.Gauge("raft_term", "Term of the replication; it grows with every election.")
	leaderFamily    = monitor.Gauge("raft_leader", "1 on the coordinator that leads, else 0.")
	indexFamily     = monitor.Gauge("raft_applied_index", "Last entry of the log in this coordinator's state.")
	lagFamily       = monitor.Gauge("raft_lag_entries", "Entries that this coordinator knows to be committed and has not applied.")
	contactFamily   = monitor.Gauge("raft_leader_contact_seconds", "Time since this coordinator heard of the leader; 0 on the leader.")
	writeAgeFamily  = monitor.Gauge("raft_write_age_seconds", "Time that the oldest write to the disk has been under way; 0 for none.")
	commitAgeFamily = monitor.Gauge("raft_commit_age_seconds", "Time that the oldest command has been under way that was proposed here; 0 for none.")
	readyFamily     = monitor.Gauge("coordinator_ready", "1 if this coordinator knows a leader, has caught up, and has no fault, else 0.")
	votersFamily    = monitor.Gauge("raft_voters", "Coordinators with a vote. Exported by the leader.")
	healthyFamily   = monitor.Gauge("raft_voters_healthy", "Coordinators with a vote that the leader has heard of lately, itself included. Exported by the leader.")
	followerFamily  = monitor.Gauge("raft_follower_lag_entries", "Entries that a coordinator is behind the leader. Exported by the leader.", "member")
	stateFamily     = monitor.Gauge("state_size_bytes", "Size of the replicated state's file.")
	freeFamily      = monitor.Gauge("disk_free_bytes", "Free bytes of the disk that holds the coordinator's folder.")
	reserveFamily   = monitor.Gauge("disk_reserve_bytes", "Bytes of that disk that uploads leave free.")

	nodeFamilies = []monitor.Family{termFamily, leaderFamily, indexFamily, lagFamily, contactFamily, writeAgeFamily, commitAgeFamily, readyFamily, votersFamily, healthyFamily,
		followerFamily, stateFamily, freeFamily, reserveFamily}
)

// membersTime bounds the question who is healthy.
const membersTime = time.Second

func newNodeMetrics(node *replica, dir string, reserve int64) *nodeMetrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: monitor.Namespace, Name: name, Help: help,
			Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}})
	}
	return &nodeMetrics{node: node, dir: dir, reserve: reserve,
		apply:  histogram("raft_apply_duration_seconds", "Time that a batch of entries took to enter this coordinator's state."),
		commit: histogram("raft_commit_duration_seconds", "Time from the proposal of a command by the leader until it was in its state, or given up."),
		write:  histogram("raft_write_duration_seconds", "Time that a write to the disk took, until it was durable."),
	}
}

// Describe implements prometheus.Collector.
func (m *nodeMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.apply.Describe(ch)
	m.commit.Describe(ch)
	m.write.Describe(ch)
	for _, f := range nodeFamilies {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector.
func (m *nodeMetrics) Collect(ch chan<- prometheus.Metric) {
	m.apply.Collect(ch)
	m.commit.Collect(ch)
	m.write.Collect(ch)
	n := m.node
	leads := 0.0
	if n.IsLeader() {
		leads = 1
		ctx, cancel := context.WithTimeout(context.Background(), membersTime)
		members, err := n.Members(ctx)
		cancel()
		if err == nil {
			voters, healthy := 0, 0
			for _, x := range members {
				if x.Voter {
					voters++
					if x.Healthy {
						healthy++
					}
				}
				if !x.Leader {
					ch <- followerFamily.At(float64(x.Lag), x.ID)
				}
			}
			ch <- votersFamily.At(float64(voters))
			ch <- healthyFamily.At(float64(healthy))
		}
	}
	ch <- termFamily.At(float64(n.Term()))
	ch <- leaderFamily.At(leads)
	ch <- indexFamily.At(float64(n.Applied()))
	ch <- lagFamily.At(float64(n.Behind()))
	ch <- writeAgeFamily.At(n.WriteAge().Seconds())
	ch <- commitAgeFamily.At(n.ProposalAge().Seconds())
	ready := 0.0
	if n.Ready() == nil {
		ready = 1
	}
	ch <- readyFamily.At(ready)
	ch <- contactFamily.At(n.Age().Seconds())
	if st, err := os.Stat(filepath.Join(m.dir, "raft", "state.db")); err == nil {
		ch <- stateFamily.At(float64(st.Size()))
	}
	if free, err := blob.DiskFree(m.dir); err == nil {
		ch <- freeFamily.At(float64(free))
	}
	ch <- reserveFamily.At(float64(m.reserve))
}

// private returns the private port of a process, and what closes it.
func private(given *monitor.Server, c monitor.Config) (*monitor.Server, func() error, error) {
	if given != nil {
		return given, func() error { return nil }, nil
	}
	s, err := monitor.Serve(c)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// traces returns the tracer of a process, and what closes it.
func traces(ctx context.Context, given *tracing.Tracer, endpoint, role, id string) (*tracing.Tracer, func(), error) {
	if given != nil {
		return given, func() {}, nil
	}
	t, err := tracing.Open(ctx, endpoint, role, id)
	return t, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopMost)
		defer cancel()
		_ = t.Close(ctx) // what could not be sent is lost
	}, err
}

// traced returns what tells a tracer of units that were computed for others.
func traced(t *tracing.Tracer) func([]byte, time.Time, shard.Unit) {
	if t == nil {
		return nil
	}
	return func(from []byte, began time.Time, u shard.Unit) {
		t.Remote(from, "tile", began, attribute.Int("ulisse.from", u.Lo), attribute.Int("ulisse.to", u.Hi))
	}
}
