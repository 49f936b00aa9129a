package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// notLeader is the answer of a coordinator that does not lead.
func notLeader(t *testing.T, leader string) error {
	t.Helper()
	s, err := status.New(codes.Unavailable, "this coordinator does not lead").
		WithDetails(&errdetails.ErrorInfo{Reason: "NOT_LEADER", Metadata: map[string]string{"address": leader}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func newCoordinators(t *testing.T, addresses ...string) *coordinators {
	c := &coordinators{pool: rpc.NewPool(dial), addresses: addresses}
	t.Cleanup(c.pool.Close)
	return c
}

// at returns the address that a call would go to.
func (c *coordinators) address(t *testing.T) string {
	t.Helper()
	conn, err := c.conn()
	if err != nil {
		t.Fatal(err)
	}
	return conn.Target()
}

// One coordinator after the other is asked, or the one that is said to lead; who was
// said to lead and does not is not asked again at once.
func TestWhoIsAsked(t *testing.T) {
	c := newCoordinators(t, "a:1", "b:1", "c:1")
	for i, step := range []struct {
		err  error
		want string
	}{
		{nil, "a:1"},
		{io.EOF, "b:1"},
		{status.Error(codes.Unavailable, "gone"), "c:1"},
		{io.EOF, "a:1"},
		{notLeader(t, "leader:1"), "leader:1"},
		{notLeader(t, "c:1"), "c:1"},
		{notLeader(t, "c:1"), "c:1"}, // the same hint again: the next one's turn will come
		{notLeader(t, ""), "c:1"},
		{io.EOF, "a:1"},
	} {
		if i > 0 {
			c.failed(step.err)
		}
		if got := c.address(t); got != step.want {
			t.Errorf("step %d: %s is asked, want %s", i, got, step.want)
		}
	}
}

// Calls are repeated while another attempt may help, and no longer.
func TestCall(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Canceled, codes.Internal, codes.Unknown, codes.ResourceExhausted} {
		c, calls := newCoordinators(t, "a:1", "b:1"), []string(nil)
		err := c.call(t.Context(), func(_ context.Context, conn *grpc.ClientConn) error {
			if calls = append(calls, conn.Target()); len(calls) < 3 {
				return status.Error(code, "not now")
			}
			return nil
		})
		if err != nil || !slices.Equal(calls, []string{"a:1", "b:1", "a:1"}) {
			t.Errorf("%v: %v after calls of %v", code, err, calls)
		}
	}
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition, codes.Unauthenticated, codes.Unimplemented} {
		c, calls := newCoordinators(t, "a:1", "b:1"), 0
		err := c.call(t.Context(), func(context.Context, *grpc.ClientConn) error {
			calls++
			return fmt.Errorf("asking: %w", status.Error(code, "never"))
		})
		if calls != 1 || status.Code(err) != code {
			t.Errorf("%v: %d calls, then %v", code, calls, err)
		}
	}
	c := newCoordinators(t, "a:1", "b:1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := c.call(ctx, func(ctx context.Context, _ *grpc.ClientConn) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if got := c.address(t); got != "a:1" {
		t.Errorf("a call that was given up turned to %s", got)
	}
}
