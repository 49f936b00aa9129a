// Package cluster replicates a state machine over one, three or five nodes with
// hashicorp/raft. It knows nothing of what it replicates: the caller's Machine
// changes a bbolt file by commands, and every node ends with the same file.
//
//	n, err := cluster.Open(cluster.Config{ID: "a", Dir: dir, Machine: m, Listener: l, Advertise: "a.example:7001", BootstrapExpect: 1})
//	result, index, err := n.Apply(ctx, command)   // on the leader
//	_, err = n.ReadIndex(ctx)                     // then View is linearizable
//	err = n.View(func(tx *bbolt.Tx) error { ... })
//
// # The way of a command
//
// Apply puts a type byte before the command and gives it to raft. raft appends
// it to raft.db on a majority (two fsyncs each, up to 64 commands together) and
// hands committed entries to the state in batches. A batch is one transaction on
// state.db, with the index and term of its last entry inside. Watchers wake
// (Changed), the proposer gets what Machine.Apply returned.
//
// # Why the obvious ways fail
//
// State in memory, rebuilt from snapshot and log at each start: a coordinator
// with a thousand jobs would restart slowly, and read every snapshot twice. The
// file is the state; a start opens it, and what raft hands over again is
// passed over by its index. The price is an fsync a batch. A term is stored
// beside the index because an index alone does not name a history: after
// Recover, two nodes can have different entries with one index. A state ahead
// of its log is refused at Open, since new entries with old numbers would be
// passed over too; a state.db that is deleted is made anew.
//
// Committing the commands that worked and returning the errors of the others:
// a command that fails half-way has written. bbolt has no nested transactions,
// so the batch is rolled back and run again without the failed ones. A batch of
// 64 with f failures costs up to 64(f+1) calls of Machine.Apply, and one fsync.
//
// Copying the file for a snapshot: Apply would have to wait. A read transaction
// is opened on raft's goroutine, in no time, and copied beside Apply. The map
// of the file is made large at once, since a writer that must enlarge it waits
// for all readers. Closing the old file in Restore would wait for readers too,
// and one of them may be a snapshot that waits for raft, which waits for the
// restore: so old files close themselves after their last reader.
//
// Labelling that snapshot with raft's own count: just after a start the state is
// ahead of what raft has handed over, so snapshots wait until it has caught up.
//
// raft.NewTCPTransport: it resolves the advertised address once, and a cluster
// whose pods all got new addresses never recovers. Members are known by id and
// name, and names are looked up at each connection. raft reads snapshots without
// a deadline, so all connections are known and closed first at Close.
//
// raft's reaction to a snapshot over a log of another history (#697): it keeps
// the old entries. The follower then fails the check of the entry at the
// snapshot's end forever and is sent the snapshot in a circle; and entries that
// were never committed stay in its log, where, once it leads, they are sent to
// others as if they had been: followers apply them. Both happen in this
// package's tests when the mending is off. Storing an entry of the right term at
// the snapshot's end cures only one case of the first: that entry may be
// compacted away at once, and where the old log ends just there raft compares
// with a copy in memory. So the old entries are deleted when the snapshot is
// complete, and the transport spares raft the check whose outcome is known
// (snapshotStore, transport).
//
// LeaderCh and a goroutine: a leader that loses and regains leadership between
// two looks goes on with what it knew in the old term. See monitor.
//
// Founding a cluster by whoever sees N nodes first: with five nodes and N = 3
// two groups could each found one. Nodes found it only when all N have seen the
// same N, and what was seen is not forgotten while the process lives.
//
// Reading on the leader because it leads: it may have been deposed without
// knowing. ReadIndex asks a majority; the first one of a term commits an entry
// first, for a new leader does not know how far its predecessor got. The entry
// is a command of ours, because raft's own barrier and no-op never reach the
// state, and waiting for their index would last until the next command.
//
// Removing whoever raft's heartbeats do not reach: one direction may be broken.
// A member is dead when it does not speak (beats, each half a heartbeat timeout)
// and is not reached, for the whole grace period; and only while the living
// voters are a majority. A member that was taken for dead joins again by itself;
// one that was removed by hand does not.
//
// # Locks and goroutines
//
// One goroutine of raft's applies, snapshots and restores; state.mu guards what
// it publishes. Node.changing is held while the leader changes the membership.
// Close ends what leads, then connections, raft, and the files.
package cluster
