package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

var (
	// ErrNotLeader is returned when the node does not lead; nothing was done.
	// errors.As with *NotLeaderError finds who does.
	ErrNotLeader = errors.New("cluster: this node is not the leader")

	// ErrUnknownOutcome is returned when a command may or may not be applied,
	// now or later. Propose it again only if it is idempotent.
	ErrUnknownOutcome = errors.New("cluster: the outcome is unknown")

	// ErrClosed is returned by a node that is closed; nothing was done.
	ErrClosed = errors.New("cluster: the node is closed")

	// ErrNoMember is returned for an id that no member has.
	ErrNoMember = errors.New("cluster: no such member")

	// ErrMajority is returned for a change that would leave no majority of voters.
	ErrMajority = errors.New("cluster: there would be no majority")

	// ErrBadBackup is returned for a backup that is damaged or is none.
	ErrBadBackup = errors.New("cluster: not a whole backup")
)

// Server is a member's identity and the address at which raft reaches it.
type Server struct {
	ID      string `json:"id"`
	Address string `json:"address"`
}

// NotLeaderError is ErrNotLeader with the leader as far as it is known.
type NotLeaderError struct{ Leader Server }

func (e *NotLeaderError) Error() string {
	if e.Leader.ID == "" {
		return ErrNotLeader.Error() + ", and none is known"
	}
	return fmt.Sprintf("%v: it is %s at %s", ErrNotLeader, e.Leader.ID, e.Leader.Address)
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// classify turns the error of a raft future into one of ours.
func (n *Node) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrNotVoter):
		return n.notLeader()
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore),
		errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrRaftShutdown),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

func (n *Node) notLeader() error { return &NotLeaderError{Leader: n.Leader()} }
