package coordinator

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// notices is the replicated state as the notifier sees it.
type notices struct{ c *Coordinator }

// Notices returns those that are kept, oldest first.
func (n notices) Notices() (out []*state.Notice, err error) {
	err = n.c.node.View(func(tx *bbolt.Tx) error { out, err = state.Notices(tx); return err })
	return out, err
}

// Changed returns a channel that is closed when there may be others.
func (n notices) Changed() <-chan struct{} { return n.c.node.Changed() }

// Sent notes that a target was told of a notice.
func (n notices) Sent(ctx context.Context, notice uint64, target string) error {
	_, err := n.c.propose(ctx, &state.Sent{Notice: notice, To: []string{target}})
	return err
}

// Close forgets a notice.
func (n notices) Close(ctx context.Context, notice uint64) error {
	_, err := n.c.propose(ctx, &state.Sent{Notice: notice, Closed: true})
	return err
}

// AwaitNotices waits until all notices were sent or given up, or ctx is done.
func (c *Coordinator) AwaitNotices(ctx context.Context) error {
	for {
		changed := c.node.Changed()
		left, err := notices{c}.Notices()
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d notices were not sent: %w", len(left), ctx.Err())
		}
	}
}
