package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// Node is one member of the cluster.
type Node struct {
	cfg    Config
	log    *slog.Logger
	raft   *raft.Raft
	store  *logStore
	state  *state
	snaps  *snapshotStore
	mux    *mux
	trans  *transport
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	writes    *writes
	proposals writes
	stalled   atomic.Pointer[error] // the disk hangs
	differs   atomic.Pointer[error] // the state is not that of the others
	mute      atomic.Pointer[error] // it leads and takes no commands
	caught    atomic.Bool           // it was as far as the leader once

	looking atomic.Bool // at the state, for a check
	checked atomic.Pointer[checked]

	barrier  atomic.Uint64 // the term whose barrier has been applied here
	changing sync.Mutex    // held while the leader changes the membership
	peers    peers
	view     candidates
	refused  string            // why the last attempt to join failed; keepMembership only
	troubles map[string]string // why peers could not be asked, by address; keepMembership only

	pending atomic.Int64 // functions that await runs

	closeOnce sync.Once
	closeErr  error
}

// disk is what a node keeps in its directory.
type disk struct {
	writes *writes
	store  *logStore
	cache  raft.LogStore // store behind a cache, for raft and the snapshots
	state  *state
	files  raft.SnapshotStore
	snaps  *snapshotStore
}

func openDisk(cfg Config) (d disk, err error) {
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return d, err
	}
	d.writes = &writes{slowFrom: cfg.HeartbeatTimeout, took: cfg.Written}
	if d.store, err = openLogStore(filepath.Join(cfg.Dir, logFile), cfg.Logger); err != nil {
		return d, err
	}
	d.store.writes, d.store.seam = d.writes, cfg.seam
	if err := removeLeftovers(cfg.Dir); err != nil { // they are nobody's: the log is locked
		return d, err
	}
	if d.cache, err = raft.NewLogCache(512, d.store); err != nil {
		return d, err
	}
	if d.state, err = openSound(filepath.Join(cfg.Dir, stateFile), cfg); err != nil {
		return d, err
	}
	d.state.writes, d.state.seam, d.state.log = d.writes, cfg.seam, cfg.Logger
	if d.files, err = raft.NewFileSnapshotStoreWithLogger(cfg.Dir, 2, newRaftLogger(cfg.Logger)); err != nil {
		return d, err
	}
	if d.snaps, err = newSnapshotStore(d.files, filepath.Join(cfg.Dir, "snapshots"), d.cache, cfg.seam); err != nil {
		return d, err
	}
	return d, errors.Join(d.unfound(), d.check(), d.mend(cfg.Logger))
}

// leftovers are what a process that dies may leave behind, as large as the state.
var leftovers = []string{backupSpool, restoreSpool, stateSpool, logFile + smallMark, stateFile + smallMark, stateFile + restoreMark}

func removeLeftovers(dir string) error {
	for _, pattern := range leftovers {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		for _, f := range files {
			err = errors.Join(err, os.Remove(f))
		}
		if err != nil {
			return fmt.Errorf("cluster: what was left behind: %w", err)
		}
	}
	return nil
}

// Names, or patterns, of files on their way.
const (
	backupSpool  = "backup-*"
	restoreSpool = "restore-*"
	stateSpool   = "state-*"
	smallMark    = ".small"
	restoreMark  = ".restore"
)

// termKey is how raft calls the term in the stable store.
var termKey = []byte("CurrentTerm")

// unfound undoes a founding that was cut short: raft sets the term to 1, then writes the first
// entry of the log, and would found no cluster where there is a term. No election has that term.
func (d disk) unfound() error {
	last, err := d.store.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	snap, err := d.snaps.last()
	if err != nil || snap.index > 0 {
		return err
	}
	term, err := d.store.GetUint64(termKey)
	if errors.Is(err, errKeyNotFound) || err == nil && term != 1 {
		return nil
	}
	return errors.Join(err, d.store.SetUint64(termKey, 0))
}

// The files of a node.
const (
	logFile   = "raft.db"
	stateFile = "state.db"
)

// openSound opens the state, and a new one in the place of one that is damaged:
// snapshots and the log make it again.
func openSound(path string, cfg Config) (*state, error) {
	sight, err := checkState(path, cfg.Machine)
	switch {
	case errors.Is(err, ErrDamaged):
		cfg.Logger.Error("the state is damaged: it is made anew of the last snapshot and the log", "file", path, "error", err)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("cluster: %s: %w", path, err)
	case sight.halves == 1:
		cfg.Logger.Warn("one of the state's two first pages is damaged: it goes on from the other one", "file", path)
	}
	if err == nil && sight.used > 0 {
		if err := shrink(path, sight.used, cfg.Logger); err != nil {
			return nil, fmt.Errorf("cluster: %s: %w", path, err)
		}
	}
	return openState(path, cfg.Machine, cfg.Format)
}

// mend drops entries of the log that are damaged, and those before, if they are in
// a snapshot: nobody here needs them any more.
func (d disk) mend(log *slog.Logger) error {
	bad := d.store.damaged
	if bad == 0 {
		return nil
	}
	snap, err := d.snaps.last()
	if err != nil {
		return err
	}
	first, err := d.store.FirstIndex()
	if err != nil {
		return err
	}
	if snap.index < bad {
		return fmt.Errorf("cluster: %w: entry %d of the log, which no snapshot has", ErrDamaged, bad)
	}
	log.Warn("a damaged entry of the log is dropped, with those before: a snapshot has them", "entry", bad)
	return d.store.DeleteRange(first, bad)
}

// check refuses a state that is ahead of the log: raft.db was deleted or
// exchanged, and new entries with old numbers would be passed over. It refuses a
// log that begins after the newest snapshot, too: what lies between is nowhere.
func (d disk) check() error {
	first, err := d.store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := d.store.LastIndex()
	if err != nil {
		return err
	}
	snap, err := d.snaps.last()
	if err != nil {
		return err
	}
	if first > snap.index+1 {
		return fmt.Errorf("cluster: %w: the log in %s begins at entry %d, and the last snapshot that is whole ends at %d", ErrDamaged, filepath.Dir(d.state.path), first, snap.index)
	}
	pos, _ := d.state.applied()
	if pos.index > max(last, snap.index) {
		return fmt.Errorf("cluster: %s has applied entry %d but the log ends at %d: the files do not belong together; delete the whole directory and join anew",
			d.state.path, pos.index, max(last, snap.index))
	}
	return nil
}

func (d disk) close() (err error) {
	if d.state != nil {
		err = d.state.close()
	}
	if d.store != nil {
		err = errors.Join(err, d.store.Close())
	}
	return err
}

// Open starts a node. It takes over cfg.Listener, also when it fails.
func Open(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close()
		}
		return nil, err
	}
	d, err := openDisk(cfg)
	if err != nil {
		cfg.Listener.Close()
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger, writes: d.writes, store: d.store, state: d.state, snaps: d.snaps, troubles: map[string]string{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.state.check, n.state.stop = n.look, n.ctx.Done()
	n.peers.init()
	n.view.init(Server{cfg.ID, cfg.Advertise})
	if err := n.start(d); err != nil {
		n.cancel()
		return nil, errors.Join(err, d.close())
	}
	return n, nil
}

func (n *Node) start(d disk) error {
	// The exchange answers once raft is there.
	ready := make(chan struct{})
	n.mux = newMux(n.cfg.Listener, n.cfg.Advertise, n.cfg.HandshakeTimeout, n.cfg.Dial, connHandler(func(ctx context.Context, r request) response {
		select {
		case <-ready:
			return n.answer(ctx, r)
		case <-n.ctx.Done():
			return response{Error: ErrClosed.Error()}
		}
	}, n.Backup))
	network := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  streamLayer{n.mux},
		MaxPool: 3,
		Timeout: 10 * time.Second,
		Logger:  newRaftLogger(n.log),
	})
	holds, snaps := d.snaps.holds, raft.SnapshotStore(d.snaps)
	if n.cfg.unmended {
		holds, snaps = func(uint64, uint64) bool { return false }, unmended{d.files}
	}
	n.trans = newTransport(network, holds)

	conf := n.cfg.raftConfig()
	newest, err := d.snaps.last()
	if err == nil {
		// The state on disk is raft's state unless a snapshot is newer.
		pos, _ := n.state.applied()
		conf.NoSnapshotRestoreOnStart = pos.covers(newest)
		n.raft, err = raft.NewRaft(conf, fsm{n.state, n.cfg.Applied}, d.cache, d.store, snaps, n.trans)
	}
	if err != nil {
		n.cancel()
		n.trans.Close()
		return fmt.Errorf("cluster: start raft: %w", err)
	}
	close(ready)
	n.watchHeartbeats()
	n.wg.Go(n.monitor)
	n.wg.Go(n.keepMembership)
	n.wg.Go(n.watchDisk)
	n.wg.Go(n.checkSnapshot)
	n.wg.Go(n.keepSmall)
	return nil
}

// Close stops the node: first what leads, then the connections, then raft,
// then the files. It does not leave the cluster.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		n.cancel()
		n.wg.Wait()
		n.settle()
		err := n.trans.Close()
		err = errors.Join(err, n.mux.close(), n.raft.Shutdown().Error())
		n.closeErr = errors.Join(err, n.state.close(), n.store.Close())
	})
	return n.closeErr
}

// checkSnapshot reads the newest snapshot, which others may be sent, and takes
// another if it is damaged.
func (n *Node) checkSnapshot() {
	all, err := n.snaps.List()
	if err != nil || len(all) == 0 {
		return
	}
	_, r, err := n.snaps.Open(all[0].ID)
	if err == nil {
		r.Close()
		return
	}
	n.log.Error("the last snapshot is damaged: another one is taken", "snapshot", all[0].ID, "error", err)
	for sleep(n.ctx, n.cfg.HeartbeatTimeout) {
		if err := n.Snapshot(n.ctx); err == nil {
			if now, err := n.snaps.last(); err != nil || now.index > all[0].Index {
				return
			}
		}
	}
}

// ID returns the node's name.
func (n *Node) ID() string { return n.cfg.ID }

// View runs f in a read transaction over the state as applied here, which may
// be behind the leader's. A long one keeps space from being reused.
func (n *Node) View(f func(*bbolt.Tx) error) error {
	if n.isDiverged() {
		return ErrDiverged
	}
	return n.state.view(f)
}

// Applied returns the index of the last entry in the state.
func (n *Node) Applied() uint64 {
	pos, _ := n.state.applied()
	return pos.index
}

// Changed returns a channel that is closed when the next batch is applied. Take
// it before looking at the state.
func (n *Node) Changed() <-chan struct{} {
	_, ch := n.state.applied()
	return ch
}

// caughtUp notes how far the leader was at a beat.
func (n *Node) caughtUp(commit uint64) {
	if !n.caught.Load() && n.Applied()+promoteLag >= commit {
		n.caught.Store(true)
	}
}

// Ready returns why this node is not one of a cluster that works: nil if it knows
// a leader, has caught up with it once since it was opened, has the vote that it is
// to have, and has no fault. What it answers may be old all the same.
func (n *Node) Ready() error {
	leader := n.Leader()
	if err := n.Fault(); err != nil {
		return err
	}
	if leader.ID == "" {
		return errors.New("the coordinators have no leader at the moment")
	}
	me, err := n.find(n.cfg.ID)
	if err != nil {
		return errors.New("this one is not, or not any more, one of the coordinators")
	}
	records, err := n.state.members()
	if err != nil {
		return err
	}
	switch {
	case n.IsLeader():
		n.caught.Store(true)
	case !n.caught.Load():
		return fmt.Errorf("this one has not caught up with the leader: it is at %d", n.Applied())
	case records[n.cfg.ID].Voter && me.Suffrage != raft.Voter:
		return errors.New("this one has not got its vote yet")
	}
	return nil
}

// Term returns raft's term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Behind returns the number of entries that this node knows to be committed and
// has not applied.
func (n *Node) Behind() uint64 {
	commit, applied := n.raft.CommitIndex(), n.Applied()
	return commit - min(applied, commit)
}

// Leader returns the leader as this node knows it; zero if it knows none.
func (n *Node) Leader() Server {
	address, id := n.raft.LeaderWithID()
	return Server{ID: string(id), Address: string(address)}
}

// IsLeader says whether the node believes to lead. Only ReadIndex and Apply
// know.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// LastContact returns when the leader was last heard; now on the leader. It is
// the age of a stale read.
func (n *Node) LastContact() time.Time {
	if n.IsLeader() {
		return time.Now()
	}
	return n.raft.LastContact()
}

// Snapshot takes a snapshot now and shortens the log.
func (n *Node) Snapshot(ctx context.Context) error {
	err := n.await(ctx, n.raft.Snapshot().Error)
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// await runs a function that blocks, such as a raft future's Error, until it
// returns or ctx or the node ends.
func (n *Node) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	n.pending.Add(1)
	go func() {
		defer n.pending.Add(-1)
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return raft.ErrRaftShutdown
	}
}

// settleMost bounds how long a node that closes waits for what it has proposed.
const settleMost = 500 * time.Millisecond

// settle waits for futures: raft does not answer those whose entries it has
// committed and not handed to the state when it shuts down.
func (n *Node) settle() {
	for end := time.Now().Add(settleMost); n.pending.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
