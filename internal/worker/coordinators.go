package worker

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// coordinators are the ways to the cluster: any coordinator passes calls on to
// the leader, so it is enough to reach one.
type coordinators struct {
	pool      *rpc.Pool
	addresses []string

	mu   sync.Mutex
	at   int    // the one in use
	hint string // the leader, as another coordinator told
}

// Times of calls.
const (
	callTimeout  = 30 * time.Second // longer than the coordinator holds a call
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// pauses returns the times between attempts: they grow.
func pauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, RandomizationFactor: backoff.DefaultRandomizationFactor, MaxInterval: longestPause}
}

// conn returns the connection to use next.
func (c *coordinators) conn() (*grpc.ClientConn, error) {
	c.mu.Lock()
	address := c.hint
	if address == "" {
		address = c.addresses[c.at%len(c.addresses)]
	}
	c.mu.Unlock()
	return c.pool.Conn(address)
}

// failed notes that a call did not get through, and where the leader is said
// to be.
func (c *coordinators) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hint := ""
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*errdetails.ErrorInfo); ok && e.Reason == "NOT_LEADER" {
			hint = e.Metadata["address"]
		}
	}
	if hint == "" || hint == c.hint {
		c.at++
	}
	c.hint = hint
}

// temporary reports whether a call that failed so may succeed elsewhere or later.
func temporary(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Canceled, codes.Internal, codes.Unknown, codes.ResourceExhausted:
		return true
	}
	return false
}

// call makes a call until it succeeds, or fails for good, or ctx is done.
func (c *coordinators) call(ctx context.Context, f func(context.Context, *grpc.ClientConn) error) error {
	attempt := func() (none struct{}, err error) {
		conn, err := c.conn()
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			err = f(ctx, conn)
			cancel()
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case !temporary(err):
			err = backoff.Permanent(err)
		default:
			c.failed(err)
		}
		return none, err
	}
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses()), backoff.WithMaxElapsedTime(0))
	return err
}
