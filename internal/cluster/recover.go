package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// Recover rewrites the membership in a stopped node's directory, for a cluster
// that has lost its majority for good: everything in the log here is taken as
// committed, also what never was, and the listed servers become the voters.
//
// Either recover the one survivor with the longest log (Applied and the log
// lines of a start tell) with itself as the only server and let fresh nodes
// join, or recover every survivor with the same list of all survivors. Nodes
// that are not recovered must be wiped before they meet the new cluster.
//
// A log that is damaged is left aside: the state has all that was acknowledged here.
//
// cfg needs ID, Dir and Machine.
func Recover(cfg Config, servers []Server) (err error) {
	if cfg.ID == "" || cfg.Dir == "" || cfg.Machine == nil || len(servers) == 0 {
		return errors.New("cluster: recovery needs an id, a directory, a state machine and the servers that remain")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg, _ = cfg.withDefaults() // a stopped node has no listener
	if _, _, bad := checkLog(filepath.Join(cfg.Dir, logFile)); errors.Is(bad, ErrDamaged) {
		return withoutLog(cfg, servers, bad)
	}
	d, err := openDisk(cfg)
	if errors.Is(err, ErrDamaged) {
		return withoutLog(cfg, servers, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	_, trans := raft.NewInmemTransport("")
	defer trans.Close()
	err = raft.RecoverCluster(cfg.raftConfig(), recovering{fsm{state: d.state}}, d.cache, d.store, d.snaps, trans, voters(servers))
	if err != nil {
		return fmt.Errorf("cluster: recover %s: %w", cfg.Dir, err)
	}
	return nil
}

// withoutLog makes a log in the place of one that is damaged, which begins with a
// snapshot of the state.
func withoutLog(cfg Config, servers []Server, why error) (err error) {
	if _, err := checkState(filepath.Join(cfg.Dir, stateFile), cfg.Machine); err != nil {
		return fmt.Errorf("cluster: neither the log (%w) nor the state (%w) is whole: restore a backup", why, err)
	}
	old := filepath.Join(cfg.Dir, logFile)
	cfg.Logger.Warn("the log is damaged: it is left aside, and the state taken as it is", "file", old+".damaged", "error", why)
	if err := os.Rename(old, old+".damaged"); err != nil {
		return err
	}
	d := disk{writes: &writes{}}
	defer func() { err = errors.Join(err, d.close()) }()
	if d.store, err = openLogStore(old, cfg.Logger); err != nil {
		return err
	}
	if d.state, err = openState(filepath.Join(cfg.Dir, stateFile), cfg.Machine, cfg.Format); err != nil {
		return err
	}
	if d.files, err = raft.NewFileSnapshotStoreWithLogger(cfg.Dir, 2, newRaftLogger(cfg.Logger)); err != nil {
		return err
	}
	if d.snaps, err = newSnapshotStore(d.files, filepath.Join(cfg.Dir, "snapshots"), d.store, nil); err != nil {
		return err
	}
	pos, _ := d.state.applied()
	if err := d.store.SetUint64(termKey, pos.term); err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport("")
	defer trans.Close()
	sink, err := d.snaps.Create(raft.SnapshotVersionMax, pos.index, pos.term, voters(servers), pos.index, trans)
	if err != nil {
		return err
	}
	snap, err := fsm{state: d.state}.snapshot()
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	defer snap.Release()
	return snap.Persist(sink)
}

// recovering is an fsm as raft.RecoverCluster needs it. It is handed commands
// only, so that the last entry in its state (a change of membership) may be
// after the last it was handed; and its snapshot is never released.
type recovering struct{ fsm }

func (r recovering) Snapshot() (raft.FSMSnapshot, error) {
	s, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	return releasing{s}, nil
}

type releasing struct{ raft.FSMSnapshot }

func (r releasing) Persist(sink raft.SnapshotSink) error {
	defer r.Release()
	return r.FSMSnapshot.Persist(sink)
}
