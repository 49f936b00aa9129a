// Package client talks to a cluster: it submits, watches and ends jobs, moves
// data sets and results, and looks after workers and coordinators.
//
// Every coordinator answers every call, so a Client has a list of them and
// keeps to one while it answers. When it does not, the next is asked; calls
// that can be repeated are, with growing pauses, until the caller's context is
// done or Config.Patience is over. A watch goes on at another coordinator, an
// upload where it stopped.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// DefaultPort is where coordinators listen unless told otherwise.
const DefaultPort = "7000"

const (
	defaultTry = 15 * time.Second      // for one attempt at a call
	firstPause = 50 * time.Millisecond // between rounds over all coordinators
	lastPause  = 2 * time.Second       //
	maxReceive = 64 << 20              // a page of jobs with their specifications
)

// Config says how to reach a cluster.
type Config struct {
	Addresses []string    // host:port of coordinators; the port may be left out
	TLS       *tls.Config // nil: no encryption
	Token     string      // sent with every call; over TLS or to this machine only
	// Patience is how long a call goes on without any answer; 0 means until
	// its context is done.
	Patience time.Duration
	// OnRetry, if set, is told why an attempt failed that will be repeated.
	OnRetry     func(error)
	DialOptions []grpc.DialOption
}

// Client is a connection to a cluster. It may be used by many goroutines.
type Client struct {
	cfg   Config
	conns []*grpc.ClientConn

	mu  sync.Mutex
	cur int // the coordinator that answered last
}

// Dial returns a client of the cluster. It does not wait for a connection: calls
// do.
func Dial(_ context.Context, cfg Config) (*Client, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("no coordinator's address is given")
	}
	c := &Client{cfg: cfg}
	c.cfg.Addresses = slices.Clone(cfg.Addresses)
	opts, err := dialOptions(cfg)
	if err != nil {
		return nil, err
	}
	for i, a := range c.cfg.Addresses {
		a, err := withPort(a)
		if err != nil {
			return nil, err
		}
		c.cfg.Addresses[i] = a
		cc, err := grpc.NewClient(a, opts...)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("the coordinator's address %q: %w", a, err)
		}
		c.conns = append(c.conns, cc)
	}
	return c, nil
}

func dialOptions(cfg Config) ([]grpc.DialOption, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastPause}}),
	}
	if cfg.Token != "" {
		if cfg.TLS == nil && slices.ContainsFunc(cfg.Addresses, func(a string) bool { return !isLocal(a) }) {
			return nil, errors.New("a token goes over TLS or to this machine only: the cluster's address is neither")
		}
		opts = append(opts, grpc.WithPerRPCCredentials(token(cfg.Token)))
	}
	return append(opts, cfg.DialOptions...), nil
}

// withPort completes an address.
func withPort(a string) (string, error) {
	if a = strings.TrimSpace(a); a == "" {
		return "", errors.New("an empty coordinator's address: give host:port")
	}
	if strings.Contains(a, "://") {
		return "", fmt.Errorf("the coordinator's address %q: give host:port, without a scheme", a)
	}
	if _, _, err := net.SplitHostPort(a); err == nil {
		return a, nil
	}
	return net.JoinHostPort(strings.Trim(a, "[]"), DefaultPort), nil
}

func isLocal(a string) bool {
	host, _, err := net.SplitHostPort(a)
	if err != nil {
		host = a
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// token is sent as a bearer token.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is false because Dial has seen to it.
func (token) RequireTransportSecurity() bool { return false }

// Addresses returns the coordinators' addresses.
func (c *Client) Addresses() []string { return c.cfg.Addresses }

// Close ends all connections.
func (c *Client) Close() error {
	var errs []error
	for _, cc := range c.conns {
		errs = append(errs, cc.Close())
	}
	return errors.Join(errs...)
}

// current returns the coordinator to ask.
func (c *Client) current() (int, *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur, c.conns[c.cur]
}

// leave turns to the next coordinator, if nobody has turned already.
func (c *Client) leave(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == i {
		c.cur = (i + 1) % len(c.conns)
	}
}

// attempts repeats f at one coordinator after the other until it succeeds,
// fails for good, or there is no hope. f calls heard when it gets an answer:
// from then on its patience starts anew.
func (c *Client) attempts(ctx context.Context, patience time.Duration, again func(error) bool, f func(ctx context.Context, cc *grpc.ClientConn, heard func()) error) error {
	since, tries, pause := time.Now(), 0, firstPause
	for {
		i, cc := c.current()
		err := f(ctx, cc, func() { since, tries, pause = time.Now(), 0, firstPause })
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return c.ended(ctx, err)
		}
		if !again(err) {
			return c.explain(err)
		}
		c.leave(i)
		if c.cfg.OnRetry != nil {
			c.cfg.OnRetry(c.explain(err))
		}
		if tries++; tries%len(c.conns) != 0 { // the others first, at once
			continue
		}
		if patience > 0 && time.Since(since)+pause > patience {
			return c.explain(err)
		}
		select {
		case <-ctx.Done():
			return c.ended(ctx, err)
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, lastPause)
	}
}

// ended returns what to say when the caller's time was over: that it
// interrupted, or why there was no answer.
func (c *Client) ended(ctx context.Context, last error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && unavailable(last) {
		return c.explain(last)
	}
	return ctx.Err()
}

// unavailable reports whether an error says nothing but that there was no
// answer this time.
func unavailable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	}
	return false
}

func never(error) bool { return false }

// unary makes a call that can be repeated.
func unary[S, Req, Resp any](ctx context.Context, c *Client, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	return try(ctx, c, unavailable, stub, method, req)
}

// once makes a call that must not be made twice.
func once[S, Req, Resp any](ctx context.Context, c *Client, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	resp, err := try(ctx, c, never, stub, method, req)
	var e *Error
	if errors.As(err, &e) && unavailable(e) {
		e.Message += "; it may have been done all the same: look before you repeat it"
	}
	return resp, err
}

func try[S, Req, Resp any](ctx context.Context, c *Client, again func(error) bool, stub func(grpc.ClientConnInterface) S,
	method func(S, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (resp Resp, err error) {
	err = c.attempts(ctx, c.cfg.Patience, again, func(ctx context.Context, cc *grpc.ClientConn, _ func()) (err error) {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(min(c.cfg.Patience, defaultTry), defaultTry))
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
			late := time.AfterFunc(defaultTry, func() { cancel(status.Error(codes.Unavailable, "no answer for "+defaultTry.String())) })
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
