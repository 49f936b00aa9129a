package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testHeartbeat is long enough for a loaded machine with two cores under the
// race detector.
const testHeartbeat = 500 * time.Millisecond

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// patience bounds every wait; no test measures time.
const patience = 3 * time.Minute

// chain is a machine whose state is a running hash of its commands, so that two
// replicas that ever differed differ forever.
type chain struct{ calls, stale atomic.Int64 }

var errRefused = errors.New("refused")

func (c *chain) Init(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists([]byte("chain"))
	return err
}

// Apply returns how many commands have been applied. A command that begins
// with "!" writes and then fails.
func (c *chain) Apply(tx *bbolt.Tx, index uint64, cmd []byte) any {
	c.calls.Add(1)
	if bytes.HasPrefix(cmd, []byte("stale")) {
		c.stale.Add(1)
	}
	b := tx.Bucket([]byte("chain"))
	if bytes.HasPrefix(cmd, []byte("panic")) {
		panic("as told")
	}
	count := uint64(1)
	if v := b.Get([]byte("count")); v != nil {
		count += binary.BigEndian.Uint64(v)
	}
	h := sha256.Sum256(append(binary.BigEndian.AppendUint64(bytes.Clone(b.Get([]byte("hash"))), index), cmd...))
	err := errors.Join(b.Put([]byte("hash"), h[:]), b.Put([]byte("count"), indexKey(count)), b.Put(append([]byte("cmd-"), cmd...), indexKey(index)))
	if bytes.HasPrefix(cmd, []byte("!")) {
		return errRefused
	}
	if err != nil {
		return err
	}
	return count
}

// sum is the chain's state.
func sum(tx *bbolt.Tx) (hash string, count uint64) {
	b := tx.Bucket([]byte("chain"))
	if v := b.Get([]byte("count")); v != nil {
		count = binary.BigEndian.Uint64(v)
	}
	return hex.EncodeToString(b.Get([]byte("hash"))), count
}

// fabric is a network that can be cut: it knows who dials whom.
type fabric struct {
	mu     sync.Mutex
	names  map[string]string // by address
	island map[string]int    // nodes on different islands do not hear each other
	conns  map[net.Conn][2]string
}

func newFabric() *fabric {
	return &fabric{names: map[string]string{}, island: map[string]int{}, conns: map[net.Conn][2]string{}}
}

type fabricConn struct {
	net.Conn
	f *fabric
}

func (c *fabricConn) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c)
	c.f.mu.Unlock()
	return c.Conn.Close()
}

func (f *fabric) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		to := f.names[address]
		if f.island[from] != f.island[to] {
			c.Close()
			return nil, fmt.Errorf("no route from %s to %s", from, to)
		}
		fc := &fabricConn{c, f}
		f.conns[fc] = [2]string{from, to}
		return fc, nil
	}
}

// cut puts each group on an island of its own; nodes not named stay on one.
func (f *fabric) cut(groups ...[]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.island)
	for i, g := range groups {
		for _, id := range g {
			f.island[id] = i + 1
		}
	}
	for c, ends := range f.conns {
		if f.island[ends[0]] != f.island[ends[1]] {
			c.(*fabricConn).Conn.Close()
		}
	}
}

// counter is a log handler that counts messages, and shows them if asked to.
type counter struct {
	slog.Handler
	mu   *sync.Mutex
	seen map[string]int
}

func (c counter) Handle(ctx context.Context, r slog.Record) error {
	c.mu.Lock()
	c.seen[r.Message]++
	c.mu.Unlock()
	if os.Getenv("CLUSTER_LOG") == "" {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}
func (c counter) WithAttrs(a []slog.Attr) slog.Handler {
	return counter{c.Handler.WithAttrs(a), c.mu, c.seen}
}
func (c counter) WithGroup(g string) slog.Handler {
	return counter{c.Handler.WithGroup(g), c.mu, c.seen}
}
func (c counter) count(msg string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[msg]
}

// member is one node of a test, that can be stopped and started.
type member struct {
	*Node
	cfg     Config
	address string
	chain   *chain
	log     counter
}

type testCluster struct {
	t   *testing.T
	net *fabric
	ids []string
	m   map[string]*member
}

// newCluster starts n nodes that find each other and founds a cluster of them.
func newCluster(t *testing.T, n int, set func(*Config)) *testCluster {
	t.Helper()
	t.TempDir() // its removal is registered now, to come after the nodes' end
	tc := &testCluster{t: t, net: newFabric(), m: map[string]*member{}}
	t.Cleanup(func() {
		for _, m := range tc.m {
			tc.stop(m)
		}
	})
	var listeners []net.Listener
	for range n {
		listeners = append(listeners, listen(t, "127.0.0.1:0"))
	}
	var all []string
	for _, l := range listeners {
		all = append(all, l.Addr().String())
	}
	for i, l := range listeners {
		tc.add(fmt.Sprint("n", i+1), l, func(c *Config) {
			c.BootstrapExpect, c.Peers = n, all
			if set != nil {
				set(c)
			}
		})
	}
	tc.leader()
	return tc
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var l net.Listener
	eventually(t, "listen at "+address, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	return l
}

// add starts a node that has not been there.
func (tc *testCluster) add(id string, l net.Listener, set func(*Config)) *member {
	tc.t.Helper()
	if l == nil {
		l = listen(tc.t, "127.0.0.1:0")
	}
	m := &member{chain: &chain{}, address: l.Addr().String()}
	m.log = counter{slog.NewTextHandler(os.Stderr, nil), &sync.Mutex{}, map[string]int{}}
	m.cfg = Config{
		ID: id, Dir: filepath.Join(tc.t.TempDir(), id), Machine: m.chain, Advertise: m.address,
		Dial: tc.net.dialer(id), HeartbeatTimeout: testHeartbeat, Logger: slog.New(m.log),
		GRPC: id + ":9000", Version: "v1",
	}
	if set != nil {
		set(&m.cfg)
	}
	tc.net.mu.Lock()
	tc.net.names[m.address] = id
	tc.net.mu.Unlock()
	tc.ids = append(tc.ids, id)
	tc.m[id] = m
	tc.open(m, l)
	return m
}

func (tc *testCluster) open(m *member, l net.Listener) {
	tc.t.Helper()
	m.cfg.Listener = l
	n, err := Open(m.cfg)
	if err != nil {
		tc.t.Fatal(err)
	}
	m.Node = n
}

func (tc *testCluster) start(m *member) {
	tc.t.Helper()
	tc.open(m, listen(tc.t, m.address))
}

func (tc *testCluster) stop(m *member) {
	tc.t.Helper()
	if m.Node == nil {
		return
	}
	if err := m.Close(); err != nil {
		tc.t.Errorf("close %s: %v", m.cfg.ID, err)
	}
	m.Node = nil
}

func (tc *testCluster) live() (out []*member) {
	for _, id := range tc.ids {
		if m := tc.m[id]; m != nil && m.Node != nil {
			out = append(out, m)
		}
	}
	return out
}

// leader waits for a leader among some nodes (all if none is named) that
// serves linearizable reads.
func (tc *testCluster) leader(among ...string) (leader *member) {
	tc.t.Helper()
	eventually(tc.t, "a leader", func() bool {
		for _, m := range tc.live() {
			if len(among) > 0 && !slices.Contains(among, m.cfg.ID) || !m.IsLeader() {
				continue
			}
			ctx, cancel := context.WithTimeout(tc.t.Context(), 5*time.Second)
			_, err := m.ReadIndex(ctx)
			cancel()
			if err == nil {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

func (tc *testCluster) others(m *member) (out []*member) {
	for _, o := range tc.live() {
		if o != m {
			out = append(out, o)
		}
	}
	return out
}

// write applies commands one after the other.
func (m *member) write(t *testing.T, prefix string, n int) (last uint64) {
	t.Helper()
	for i := range n {
		_, index, err := m.Apply(t.Context(), fmt.Appendf(nil, "%s-%d", prefix, i))
		if err != nil {
			t.Fatalf("write %s-%d: %v", prefix, i, err)
		}
		last = index
	}
	return last
}

func (m *member) sum(t *testing.T) (hash string, count uint64) {
	t.Helper()
	err := m.View(func(tx *bbolt.Tx) error {
		hash, count = sum(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hash, count
}

// agree waits until all live nodes are at one position that contains all that
// was acknowledged, and compares them there.
func (tc *testCluster) agree() (count uint64) {
	tc.t.Helper()
	ctx, cancel := context.WithTimeout(tc.t.Context(), patience)
	defer cancel()
	index, err := tc.leader().ReadIndex(ctx)
	if err != nil {
		tc.t.Fatal(err)
	}
	type at struct {
		pos   position
		hash  string
		count uint64
	}
	eventually(tc.t, "all nodes at one position", func() bool {
		var first at
		for i, m := range tc.live() {
			var now at
			err := m.View(func(tx *bbolt.Tx) (err error) {
				now.hash, now.count = sum(tx)
				now.pos, err = readPosition(tx)
				return err
			})
			switch {
			case err != nil:
				tc.t.Fatal(err)
			case now.pos.index < index || i > 0 && now.pos != first.pos:
				return false
			case i == 0:
				first = now
			case now != first:
				tc.t.Fatalf("%s is %+v, %s is %+v", tc.live()[0].cfg.ID, first, m.cfg.ID, now)
			}
		}
		count = first.count
		return true
	})
	return count
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}
