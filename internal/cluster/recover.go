package cluster

import (
	"errors"
	"fmt"
	"log/slog"

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
// cfg needs ID, Dir and Machine.
func Recover(cfg Config, servers []Server) (err error) {
	if cfg.ID == "" || cfg.Dir == "" || cfg.Machine == nil || len(servers) == 0 {
		return errors.New("cluster: recovery needs an id, a directory, a state machine and the servers that remain")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg, _ = cfg.withDefaults() // a stopped node has no listener
	d, err := openDisk(cfg)
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
