package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// A backup is a header and a bbolt file:
//
//	magic(8) version(4) index(8) term(8) size(8) sha256(32), big-endian
const (
	backupMagic   = "ulisseBK"
	backupVersion = 1
	backupHeader  = 8 + 4 + 8 + 8 + 8 + sha256.Size
)

// Backup writes a consistent copy of the state as applied here. On the leader
// after ReadIndex it holds everything acknowledged. It needs room for one copy
// in the node's directory.
func (n *Node) Backup(w io.Writer) error {
	spool, err := os.CreateTemp(n.cfg.Dir, backupSpool)
	if err != nil {
		return err
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	// Pages that are free in the transaction change under the copy: two copies
	// of one state may differ, so what is sent is what was summed.
	var pos position
	var size int64
	sum := sha256.New()
	err = n.View(func(tx *bbolt.Tx) error {
		if pos, err = readPosition(tx); err != nil {
			return err
		}
		size, err = tx.WriteTo(io.MultiWriter(spool, sum))
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: backup: %w", err)
	}
	h := append(make([]byte, 0, backupHeader), backupMagic...)
	h = binary.BigEndian.AppendUint32(h, backupVersion)
	for _, v := range []uint64{pos.index, pos.term, uint64(size)} {
		h = binary.BigEndian.AppendUint64(h, v)
	}
	if _, err := w.Write(sum.Sum(h)); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(w, spool)
	return err
}

// Restore replaces the state of the whole cluster by a backup, of this cluster
// or another. It is read to its end and checked before anything changes. The
// membership stays. Only the leader can; commands in flight fail with
// ErrUnknownOutcome.
func (n *Node) Restore(ctx context.Context, r io.Reader) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	spool, err := os.CreateTemp(n.cfg.Dir, restoreSpool)
	if err != nil {
		return err
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	pos, size, err := checkBackup(r, spool, n.cfg.Machine)
	if err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	err = n.await(ctx, func() error {
		return n.raft.Restore(&raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: pos.index, Term: pos.term, Size: size}, spool, 0)
	})
	if err != nil {
		return n.classify(err)
	}
	// raft's own empty entry after it is not seen by the state: one that is.
	return n.Barrier(ctx)
}

// checkBackup copies a backup's file to spool and checks it.
func checkBackup(r io.Reader, spool *os.File, m Machine) (pos position, size int64, err error) {
	h := make([]byte, backupHeader)
	if _, err := io.ReadFull(r, h); err != nil {
		return pos, 0, fmt.Errorf("%w: it ends in its header", ErrBadBackup)
	}
	if string(h[:8]) != backupMagic {
		return pos, 0, fmt.Errorf("%w: it does not begin as one", ErrBadBackup)
	}
	if v := binary.BigEndian.Uint32(h[8:]); v != backupVersion {
		return pos, 0, fmt.Errorf("%w: version %d, this program reads %d", ErrBadBackup, v, backupVersion)
	}
	pos = position{binary.BigEndian.Uint64(h[12:]), binary.BigEndian.Uint64(h[20:])}
	size = int64(binary.BigEndian.Uint64(h[28:]))
	sum := sha256.New()
	if n, err := io.Copy(io.MultiWriter(spool, sum), io.LimitReader(r, max(size, 0))); err != nil {
		return pos, 0, err
	} else if n != size {
		return pos, 0, fmt.Errorf("%w: %d of %d bytes", ErrBadBackup, n, size)
	}
	if !equalSum(sum, h[36:]) {
		return pos, 0, fmt.Errorf("%w: its SHA-256 is wrong", ErrBadBackup)
	}
	return pos, size, checkStateFile(spool.Name(), pos)
}

func equalSum(h hash.Hash, want []byte) bool { return string(h.Sum(nil)) == string(want) }

// checkStateFile opens a state file for reading and compares its position.
func checkStateFile(path string, want position) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("%w: %v", ErrBadBackup, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(ownBucket) == nil {
			return errors.New("it is not a state of this program")
		}
		pos, err := readPosition(tx)
		if err == nil && pos != want {
			err = errors.New("its header names another index")
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("%w: %v", ErrBadBackup, err)
	}
	return nil
}
