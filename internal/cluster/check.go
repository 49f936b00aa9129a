package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// Replicas apply the same commands and hold the same state, unless a disk decays
// under one, or a fault of this program makes them differ. So now and again the
// leader proposes a check: each member hashes the state that it has just then, and
// tells the leader with its next beats. Who differs from a majority says so,
// answers nothing, does not lead, and gets the leader's state in place of its own;
// its log and its vote stay what they are. Where there is no majority they say that
// they differ, and somebody has to look.

// ErrDiverged is returned by a node whose state differs from the others'.
var ErrDiverged = errors.New("cluster: the state of this node differs from the others'")

// errNoMajority says that replicas differ, and nobody knows which is right.
var errNoMajority = errors.New("cluster: the states of the coordinators differ, and no majority of them agrees: restore a backup, or recover the one that is right")

// checked is the hash of a state at an index.
type checked struct {
	Index   uint64 `json:"index,omitempty"`
	Sum     string `json:"sum,omitempty"`
	Version string `json:"version,omitempty"` // of the program, which may keep a state in another form
}

// damagedSum is what stands for the hash of a state that is damaged.
const damagedSum = "damaged"

// hashState returns a hash of all that is in a state, but for what is kept
// otherwise on each node, and an error if a value is damaged.
func hashState(ctx context.Context, tx *bbolt.Tx, m Machine) (string, error) {
	h := sha256.New()
	add := func(pieces ...[]byte) {
		for _, p := range pieces {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
			h.Write(p)
		}
	}
	var walk func(path [][]byte, b *bbolt.Bucket) error
	walk = func(path [][]byte, b *bbolt.Bucket) error {
		add(path...)
		own := bytes.Equal(path[0], ownBucket)
		return b.ForEach(func(k, v []byte) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case v == nil && own && bytes.Equal(k, sumsBucket):
				return nil
			case v == nil:
				return walk(append(path[:len(path):len(path)], k), b.Bucket(k))
			case own && bytes.Equal(k, appliedKey):
				return nil
			}
			add(k, v)
			if own {
				return nil
			}
			return verify(m, path, k, v)
		})
	}
	err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk([][]byte{name}, b) })
	return hex.EncodeToString(h.Sum(nil)), err
}

// look begins to hash the state as it is, which is that after the entry at an
// index; one at a time.
func (n *Node) look(index uint64) {
	if n.ctx.Err() != nil || !n.looking.CompareAndSwap(false, true) {
		return
	}
	s, err := fsm{state: n.state}.snapshot()
	if err != nil {
		n.looking.Store(false)
		return
	}
	n.wg.Go(func() {
		defer n.looking.Store(false)
		defer s.Release()
		sum, err := hashState(n.ctx, s.(*stateSnapshot).tx, n.cfg.Machine)
		switch {
		case errors.Is(err, ErrDamaged):
			n.log.Error("the state is damaged", "index", index, "error", err)
			sum = damagedSum
		case err != nil:
			return
		}
		n.checked.Store(&checked{index, sum, n.cfg.Version})
	})
}

// checks proposes a check now and again, while this node leads.
func (n *Node) checks(ctx context.Context) {
	for wait := min(n.cfg.CheckEvery, 60*n.cfg.HeartbeatTimeout); sleep(ctx, wait); wait = n.cfg.CheckEvery {
		if _, _, err := n.propose(ctx, []byte{cmdCheck}); err != nil && ctx.Err() == nil {
			n.log.Warn("the states could not be checked", "error", err)
		}
	}
}

// compare takes, on the leader, the hash that a member tells, and returns the index
// at which its state is not that of the others, 0 if there is none.
func (n *Node) compare(id string, its checked) uint64 {
	mine := n.checked.Load()
	if mine == nil {
		mine = &checked{}
	}
	told := n.peers.told(id, its, n.cfg.ID, *mine)
	if its.Index == 0 || its.Index != mine.Index || its.Version != mine.Version {
		return 0 // not of one moment, or not to be compared
	}
	sums, voters, silent := map[string]int{}, 0, 0
	for _, s := range n.configuration() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if c := told[string(s.ID)]; c.Index == its.Index && c.Version == its.Version {
			sums[c.Sum]++
		} else if since, _ := n.peers.silentSince(string(s.ID)); time.Since(since) < n.silence() {
			silent++ // it will say
		}
	}
	right := ""
	for sum, votes := range sums {
		if votes > voters/2 && sum != damagedSum {
			right = sum
		}
	}
	if was := n.differs.Load(); right != "" && mine.Sum == right && was != nil && *was == errNoMajority {
		n.differs.CompareAndSwap(was, nil)
	}
	begun := n.barrier.Load() == n.raft.CurrentTerm() // else a new leader, who has heard of few
	switch {
	case right != "" && mine.Sum != right:
		n.diverge(its.Index)
	case right != "" && its.Sum != right, right == "" && its.Sum == damagedSum && mine.Sum != damagedSum:
		return its.Index
	case right == "" && silent == 0 && begun && its.Sum != mine.Sum:
		err := errNoMajority
		if n.differs.CompareAndSwap(nil, &err) {
			n.log.Error("the states differ, and nobody knows which is right", "index", its.Index)
		}
	}
	return 0
}

// diverge notes that this node's state is not that of the others, and has it made
// anew.
func (n *Node) diverge(index uint64) {
	err := fmt.Errorf("%w (at entry %d): it is made anew", ErrDiverged, index)
	if was := n.differs.Load(); was != nil && errors.Is(*was, ErrDiverged) || !n.differs.CompareAndSwap(was, &err) {
		return
	}
	n.log.Error("this state differs from the others': it is made anew of the leader's", "index", index)
	n.wg.Go(func() {
		for {
			err := n.takeState(n.ctx)
			if err == nil {
				break
			}
			n.log.Warn("the leader's state could not be taken", "error", err)
			if !sleep(n.ctx, n.cfg.HeartbeatTimeout) {
				return
			}
		}
		n.checked.Store(nil)
		n.differs.Store(nil)
		n.log.Warn("the state is that of the others again")
	})
}

// isDiverged reports whether the state is known to be wrong.
func (n *Node) isDiverged() bool {
	err := n.differs.Load()
	return err != nil && errors.Is(*err, ErrDiverged)
}

// takeState puts the leader's state in place of this node's.
func (n *Node) takeState(ctx context.Context) error {
	if n.IsLeader() {
		if err := n.Transfer(ctx, ""); err != nil {
			return fmt.Errorf("cluster: another one shall lead: %w", err)
		}
	}
	leader := n.Leader()
	if leader.ID == "" || leader.ID == n.cfg.ID {
		return n.notLeader()
	}
	spool, err := os.CreateTemp(n.cfg.Dir, stateSpool)
	if err != nil {
		return err
	}
	defer os.Remove(spool.Name()) // gone by then unless something failed
	defer spool.Close()
	pos, err := n.fetchState(ctx, leader, spool)
	if err != nil {
		return err
	}
	if err := n.cfg.seam.at("state take"); err != nil {
		return err
	}
	if err := spool.Sync(); err != nil {
		return err
	}
	if _, err := checkState(spool.Name(), n.cfg.Machine); err != nil {
		return fmt.Errorf("cluster: the state of %s: %w", leader.ID, err)
	}
	return n.state.replace(spool.Name(), pos, n.store)
}

// fetchState writes a member's state into a file, and returns its position.
func (n *Node) fetchState(ctx context.Context, from Server, to *os.File) (position, error) {
	c, err := n.mux.dial(ctx, from.Address, streamExchange)
	if err != nil {
		return position{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	resp, rest, err := n.put(c, from.Address, request{Op: opState})
	if err == nil {
		err = resp.err()
	}
	if err != nil {
		return position{}, err
	}
	in := &patientReader{io.MultiReader(rest, c), c}
	pos, _, err := checkBackup(in, to, n.cfg.Machine)
	return pos, err
}

// patientReader reads a connection that has to send something now and again.
type patientReader struct {
	io.Reader
	c interface{ SetReadDeadline(time.Time) error }
}

func (r *patientReader) Read(p []byte) (int, error) {
	r.c.SetReadDeadline(time.Now().Add(exchangeTimeout))
	return r.Reader.Read(p)
}

// replace puts a file in place of the state, and applies to it what raft has handed
// over since its position.
func (s *state) replace(path string, pos position, logs raft.LogStore) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.seam.at("state replace"); err != nil {
		return err
	}
	db, at, err := s.open(path, position{})
	if err != nil {
		return err
	}
	if at != pos {
		db.Close()
		return fmt.Errorf("cluster: a state at %d that says it is at %d", at.index, pos.index)
	}
	var since []*raft.Log
	for i := at.index + 1; i <= s.handed && err == nil; i++ {
		since = append(since, &raft.Log{})
		if err = logs.GetLog(i, since[len(since)-1]); err != nil {
			err = fmt.Errorf("cluster: what came after the state that was taken: entry %d: %w", i, err)
		}
	}
	if err == nil {
		err = s.seam.at("state replace rename")
	}
	if err == nil {
		err = errors.Join(os.Rename(path, s.path), atomicfile.SyncDir(filepath.Dir(s.path)))
	}
	if err != nil {
		db.Close()
		return err
	}
	s.moved(at, &generation{db: db})
	if len(since) > 0 {
		s.applyAll(since)
	}
	return nil
}
