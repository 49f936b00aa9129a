package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Event is a call as the audit log keeps it.
type Event struct {
	Time    time.Time     `json:"time"`
	User    string        `json:"user,omitempty"`
	Token   string        `json:"token,omitempty"` // id
	Role    state.Role    `json:"role,omitempty"`
	Node    Node          `json:"node,omitempty"` // that called, or passed the call on
	From    string        `json:"from"`           // address
	Passed  bool          `json:"passed_on,omitempty"`
	Method  string        `json:"method"`
	What    string        `json:"what,omitempty"` // what the request names
	Outcome string        `json:"outcome"`        // OK, or the code of the error
	Error   string        `json:"error,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

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

// note keeps a call that changed something, or was not allowed.
func (g *Guard) note(ctx context.Context, id *Identity, rule *pb.Rule, method, what string, start time.Time, err error) {
	code := status.Code(err)
	if g.Audit == nil || !(rule.GetChange() && !id.IsNode() || code == codes.Unauthenticated || code == codes.PermissionDenied) {
		return
	}
	md, _ := metadata.FromIncomingContext(ctx)
	e := Event{Time: start.UTC(), User: id.User, Token: id.Token, Role: id.Role, Node: id.Node, From: id.From, Method: method, What: what,
		Passed: id.Node != "" && len(md.Get(rpc.Forwarded)) > 0, Outcome: code.String(), Took: g.Now().Sub(start)}
	if err != nil {
		e.Error = short(status.Convert(err).Message())
	}
	g.Audit(e)
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
	g.note(ctx, id, rule, info.FullMethod, named(req), start, err)
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
	g.note(s.Context(), id, rule, info.FullMethod, guarded.what, start, err)
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
	s.seen, s.what = true, named(m)
	return s.check(s.ctx, m)
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

// Run ends streams whose token has been revoked, or has expired, until ctx is
// done.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.recheck()
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

// named returns what a request names: its short texts of these names. Contents
// and secrets have others.
func named(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	out := ""
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch f.Name() {
		case "id", "name", "job", "sha256", "namespace", "client_id", "role", "data":
		default:
			continue
		}
		if f.Kind() != protoreflect.StringKind || f.IsList() || !m.ProtoReflect().Has(f) {
			continue
		}
		if out != "" {
			out += " "
		}
		out += fmt.Sprintf("%s=%s", f.Name(), short(m.ProtoReflect().Get(f).String()))
	}
	return out
}

// short bounds a text.
func short(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
