package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// Members of several versions make one cluster while it is upgraded. A command
// that the older ones do not know would make their state differ from the others',
// so each command has a format, each program a newest format that it knows, and
// the leader proposes nothing that a member does not know. From the first command
// of a format on the cluster is of that format: members that do not know it are
// not taken in, and cannot open the state.

// ErrMixedVersions says that a command waits for the upgrade of a member.
var ErrMixedVersions = errors.New("cluster: members of older versions do not know this command")

// errTooNew says that a state or an entry is of a newer version.
var errTooNew = errors.New("cluster: written by a newer version: upgrade this node")

var formatKey = []byte("format")

// usedFormat returns the newest format of the commands in a state.
func usedFormat(tx *bbolt.Tx) uint64 {
	if v := tx.Bucket(ownBucket).Get(formatKey); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 1
}

// useFormat notes that a command of a format is in the state.
func useFormat(tx *bbolt.Tx, format uint64) error {
	if format <= usedFormat(tx) {
		return nil
	}
	return putOwn(tx, nil, formatKey, binary.BigEndian.AppendUint64(nil, format))
}

// known returns an error if this program does not know a format.
func (s *state) known(format uint64) error {
	if format > s.knows {
		return fmt.Errorf("%w (format %d, this program knows %d)", errTooNew, format, s.knows)
	}
	return nil
}

// format returns the newest format of the commands in the state.
func (s *state) format() uint64 {
	used := uint64(1)
	_ = s.view(func(tx *bbolt.Tx) error { // of a closed state nothing is asked
		used = usedFormat(tx)
		return nil
	})
	return used
}

// ApplyFormat is Apply for a command of a format. It returns ErrMixedVersions, and
// nothing was done, while there are members that do not know the format.
func (n *Node) ApplyFormat(ctx context.Context, format uint64, cmd []byte) (result any, index uint64, err error) {
	if format <= 1 {
		return n.propose(ctx, append([]byte{cmdUser}, cmd...))
	}
	if n.state.format() < format {
		n.waitTold(ctx)
		n.changing.Lock() // nobody joins between the question and the command
		defer n.changing.Unlock()
		if err := n.allKnow(format); err != nil {
			return nil, 0, err
		}
	}
	return n.propose(ctx, append(binary.AppendUvarint([]byte{cmdFormat}, format), cmd...))
}

// tellTime is how long a command of a newer format waits for members that have not said what they
// know: those of a cluster that was just founded do so within a second.
const tellTime = 5 * time.Second

// waitTold waits for members that have said nothing of themselves yet, but not for long.
func (n *Node) waitTold(ctx context.Context) {
	told := func() bool {
		records, err := n.state.members()
		return err != nil || !slices.ContainsFunc(n.configuration(), func(s raft.Server) bool {
			_, ok := records[string(s.ID)]
			return !ok && string(s.ID) != n.cfg.ID
		})
	}
	for end := time.Now().Add(tellTime); n.IsLeader() && time.Now().Before(end) && !told(); {
		if !sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// allKnow returns ErrMixedVersions with the members that do not know a format.
func (n *Node) allKnow(format uint64) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	records, err := n.state.members()
	if err != nil {
		return err
	}
	var old []string
	for _, s := range n.configuration() {
		id := string(s.ID)
		knows := max(records[id].Format, 1)
		if id == n.cfg.ID {
			knows = n.cfg.Format
		}
		if knows < format {
			old = append(old, id)
		}
	}
	if len(old) > 0 {
		return fmt.Errorf("%w: upgrade %s", ErrMixedVersions, strings.Join(old, ", "))
	}
	return nil
}
