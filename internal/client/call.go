package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// attempts repeats f at one coordinator after the other until it succeeds,
// fails for good, or there is no hope. f calls heard when it gets an answer:
// from then on its patience starts anew.
func (c *Client) attempts(ctx context.Context, patience time.Duration, again func(error) bool, f func(ctx context.Context, cc *grpc.ClientConn, heard func()) error) error {
	since, tries, pause := time.Now(), 0, pauses()
	var reason error // of the last attempt that was not cut short by the caller
	heard := func() {
		since, tries, reason = time.Now(), 0, nil
		pause.Reset()
	}
	for {
		i, cc := c.current()
		err := c.connect(ctx, cc)
		if err == nil {
			err = f(ctx, cc, heard)
		}
		switch {
		case err == nil:
			return nil
		case over(ctx):
			return c.ended(ctx, cmp.Or(reason, err))
		case !again(err):
			return c.explain(err)
		}
		reason = err
		c.leave(i)
		if c.certs != nil {
			_ = c.certs.Reload() // new ones may be the remedy; bad ones are not used
		}
		if c.cfg.OnRetry != nil {
			c.cfg.OnRetry(c.explain(err))
		}
		if tries++; tries%len(c.conns) != 0 { // the others first, at once
			continue
		}
		next := pause.NextBackOff()
		if patience > 0 {
			left := patience - time.Since(since)
			if left <= 0 {
				return c.explain(err)
			}
			next = min(next, left)
		}
		if !sleep(ctx, next) {
			return c.ended(ctx, err)
		}
	}
}

// pauses returns the times between rounds over all coordinators: they grow.
func pauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, RandomizationFactor: backoff.DefaultRandomizationFactor, MaxInterval: longestPause}
}

// sleep waits for a time and reports whether ctx was not done before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// over reports whether the caller's time is over. A coordinator may see that
// before the context does.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// connect waits for a connection, but not for long: a host that hangs takes
// connections and does not answer, while others might. A failure to connect is
// left to the call, which tells of it.
func (c *Client) connect(ctx context.Context, cc *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, c.atMost(connectTime))
	defer cancel()
	for {
		state := cc.GetState()
		if state == connectivity.Idle {
			cc.Connect()
		} else if state != connectivity.Connecting {
			return nil
		}
		if !cc.WaitForStateChange(ctx, state) {
			return status.Error(codes.Unavailable, "it does not answer")
		}
	}
}

// atMost is a time, or the client's patience if that is less.
func (c *Client) atMost(t time.Duration) time.Duration {
	if p := c.cfg.Patience; p > 0 {
		return min(p, t)
	}
	return t
}

// ended returns what to say when the caller's time was over: that it
// interrupted, or why there was no answer.
func (c *Client) ended(ctx context.Context, last error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case unavailable(last):
		return c.explain(last)
	}
	return context.DeadlineExceeded
}

// unavailable reports whether an error says nothing but that there was no
// answer this time.
func unavailable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.ResourceExhausted: // of calls a second, if it says when to come back
		return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool { _, ok := d.(*errdetails.RetryInfo); return ok })
	}
	return false
}

func never(error) bool { return false }

// unary makes a call that can be repeated.
func unary[S, Req, Resp any](ctx context.Context, c *Client, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	return try(ctx, c, unavailable, stub, method, req)
}

// once makes a call that must not be made twice. It looks for a coordinator
// that answers first.
func once[S, Req, Resp any](ctx context.Context, c *Client, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	if err := c.reach(ctx); err != nil {
		var none Resp
		return none, err
	}
	resp, err := try(ctx, c, never, stub, method, req)
	var e *Error
	if errors.As(err, &e) && unavailable(e) {
		e.Message += "; it may have been done all the same: look before you repeat it"
	}
	return resp, err
}

// reach finds a coordinator that answers and that the leader answers to.
func (c *Client) reach(ctx context.Context) error {
	_, err := unary(ctx, c, pb.NewJobsClient, pb.JobsClient.List, &pb.ListJobsRequest{PageSize: 1})
	return err
}

func try[S, Req, Resp any](ctx context.Context, c *Client, again func(error) bool, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (resp Resp, err error) {
	err = c.attempts(ctx, c.cfg.Patience, again, func(ctx context.Context, cc *grpc.ClientConn, _ func()) (err error) {
		ctx, cancel := context.WithTimeout(ctx, c.atMost(callTime))
		defer cancel()
		resp, err = method(stub(cc), ctx, req)
		return err
	})
	return resp, err
}

// stop is an error of who receives a stream: it ends the stream for good.
type stop struct{ error }

// stream receives all of a stream, which it opens anew, with a new request, when
// it breaks. prompt says that its first message comes at once, or something is
// wrong. If patience is 0 it never gives up.
func stream[S, Req, Msg any](ctx context.Context, c *Client, patience time.Duration, prompt bool, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Msg], error), req func() Req, each func(*Msg) error) error {
	again := func(err error) bool { return !errors.As(err, &stop{}) && unavailable(err) }
	err := c.attempts(ctx, patience, again, func(ctx context.Context, cc *grpc.ClientConn, heard func()) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if prompt {
			late := time.AfterFunc(callTime, func() { cancel(status.Error(codes.Unavailable, "no answer for "+callTime.String())) })
			defer late.Stop()
			inner := heard
			heard = func() { late.Stop(); inner() }
		}
		s, err := method(stub(cc), ctx, req())
		for err == nil {
			var m *Msg
			if m, err = s.Recv(); err == nil {
				heard()
				if err := each(m); err != nil {
					return stop{err}
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != cause {
			return cause
		}
		return err
	})
	var s stop
	if errors.As(err, &s) {
		return s.error
	}
	return err
}
