package auth

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// begin decides about a call as far as that can be told without its request.
func (g *Guard) begin(ctx context.Context, method string) (id *Identity, rule *pb.Rule, err error) {
	id, err = g.who(ctx)
	if rule = rpc.RuleOf(method); rule == nil && !rpc.Public(method) {
		return id, rule, noRule(method)
	}
	if err != nil && rule != nil {
		return id, rule, err // before the rate: others' calls from an address do not hide that a token was revoked
	}
	key := id.key()
	if id.open && len(rule.GetNodes()) > 0 {
		key = "" // it may be a node's
	}
	if limited := g.Limits.Call(key, g.Now()); limited != nil {
		return id, rule, limited
	}
	if rule == nil {
		return id, rule, nil // everybody may
	}
	return id, rule, g.allow(id, rule, method)
}

// Unary is the interceptor of calls with one request and one answer.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := g.Now()
	received(ctx)
	id, rule, err := g.begin(ctx, info.FullMethod)
	if err == nil {
		err = g.allowJob(ctx, id, rule, req)
	}
	if err == nil {
		resp, err = handler(g.clean(ctx, id), req)
	}
	g.note(ctx, id, rule, info.FullMethod, named(req, inRequests), named(resp, inAnswers), start, err)
	return resp, err
}

// Stream is the interceptor of streams.
func (g *Guard) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	start := g.Now()
	id, rule, err := g.begin(s.Context(), info.FullMethod)
	defer received(s.Context()) // also if no message comes
	guarded := &stream{ServerStream: s, check: func(ctx context.Context, req any) error { return g.allowJob(ctx, id, rule, req) }}
	if err == nil {
		err = g.serve(srv, guarded, id, handler)
	}
	g.note(s.Context(), id, rule, info.FullMethod, guarded.what, guarded.made, start, err)
	return err
}

func (g *Guard) serve(srv any, s *stream, id *Identity, handler grpc.StreamHandler) error {
	end, err := g.Limits.Stream(id.key(), g.Now())
	if err != nil {
		return err
	}
	defer end()
	ctx, done := g.Valid(g.clean(s.Context(), id), id)
	defer done()
	s.ctx = ctx
	err = handler(srv, s)
	if cause, ok := context.Cause(ctx).(ended); ok {
		return cause.error
	}
	return err
}

// Valid returns a context that ends, with the reason as its cause, when the
// caller's token is revoked or expires. done is to be called at the end.
func (g *Guard) Valid(ctx context.Context, id *Identity) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	remove := g.streams.add(id, cancel)
	return ctx, func() {
		remove()
		cancel(nil)
	}
}

// stream is a stream whose first message is checked.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	check func(ctx context.Context, req any) error
	seen  bool
	what  string

	answered bool
	made     string
}

func (s *stream) Context() context.Context {
	if s.ctx != nil {
		return s.ctx
	}
	return s.ServerStream.Context()
}

func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.seen {
		return err
	}
	received(s.Context())
	s.seen, s.what = true, named(m, inRequests)
	return s.check(s.ctx, m)
}

func (s *stream) SendMsg(m any) error {
	if !s.answered {
		s.answered, s.made = true, named(m, inAnswers)
	}
	return s.ServerStream.SendMsg(m)
}

// ended is why a stream was ended: the token is not valid any more.
type ended struct{ error }

func (e ended) Unwrap() error { return e.error }

// streams are those that are under way, by the token that they were opened with.
type streams struct {
	mu   sync.Mutex
	next int
	open map[int]open
}

type open struct {
	id     *Identity
	cancel context.CancelCauseFunc
}

func (s *streams) add(id *Identity, cancel context.CancelCauseFunc) (remove func()) {
	if id.Token == "" && id.Expires.IsZero() {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[int]open{}
	}
	n := s.next
	s.next++
	s.open[n] = open{id, cancel}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, n)
	}
}

// recheckEvery is how long a stream may outlive its token.
const recheckEvery = 500 * time.Millisecond

// Run ends streams whose token has been revoked, or has expired, and keeps the
// audit log whole, until ctx is done.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			g.refusals.flush(g, g.Now().Add(refusalEvery))
			return
		case <-tick.C:
			g.recheck()
			g.refusals.flush(g, g.Now())
		}
	}
}

func (g *Guard) recheck() {
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	verdicts := map[string]error{} // by token
	for _, o := range g.streams.open {
		err, known := verdicts[o.id.Token]
		if o.id.Token == "" {
			err = nil
			if !g.Now().Before(o.id.Expires) {
				err = status.Errorf(codes.Unauthenticated, "the token of %s has expired", o.id.User)
			}
		} else if !known {
			var k *state.Token
			if k, err = g.Source.Token(o.id.Token); err == nil {
				err = g.live(k)
			}
			if err != nil && status.Code(err) != codes.Unauthenticated {
				err = status.Errorf(codes.Unauthenticated, "the token %s: %v", o.id.Token, err)
			}
			verdicts[o.id.Token] = err
		}
		if err != nil {
			o.cancel(ended{err})
		}
	}
}
