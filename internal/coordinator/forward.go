package coordinator

import (
	"context"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// forwarded marks a call to another coordinator: it is not passed on again.
func forwarded(ctx context.Context) context.Context { return rpc.Mark(ctx, rpc.Forwarded) }

func isForwarded(ctx context.Context) bool { return rpc.Marked(ctx, rpc.Forwarded) }

// Forward is the interceptor that passes calls on to the leader.
func (c *Coordinator) Forward(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	shared := info.FullMethod == pb.Workers_Log_FullMethodName && isForwarded(ctx) // from the leader
	if !rpc.RuleOf(info.FullMethod).GetLeader() || shared || c.node.IsLeader() {
		r, err := handler(ctx, req)
		return r, c.status(err)
	}
	if isForwarded(ctx) {
		return nil, c.notLeader()
	}
	conn, err := c.leader()
	if err != nil {
		return nil, err
	}
	_, reply, err := rpc.NewMessages(info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := conn.Invoke(onward(ctx), info.FullMethod, req, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// onward is the context of a call that is passed on: whoever asks, asks there
// too.
func onward(ctx context.Context) context.Context {
	out := identity.OnBehalf(forwarded(ctx), ctx)
	for _, k := range []string{rpc.Authorization, rpc.Namespace} {
		for _, v := range metadata.ValueFromIncomingContext(ctx, k) {
			out = metadata.AppendToOutgoingContext(out, k, v)
		}
	}
	return out
}

// leader returns a connection to the leader.
func (c *Coordinator) leader() (*grpc.ClientConn, error) {
	_, address := c.node.Leader()
	if address == "" {
		return nil, status.Error(codes.Unavailable, "the coordinators have no leader at the moment: try again")
	}
	return c.peers.Conn(address)
}

// notLeader tells a caller where the leader is.
func (c *Coordinator) notLeader() error {
	id, address := c.node.Leader()
	s := status.New(codes.Unavailable, "this coordinator is not the leader")
	if address == "" {
		return status.Error(codes.Unavailable, "the coordinators have no leader at the moment: try again")
	}
	if d, err := s.WithDetails(&errdetails.ErrorInfo{Reason: "NOT_LEADER", Domain: "ulisse",
		Metadata: map[string]string{"leader": id, "address": address}}); err == nil {
		s = d
	}
	return s.Err()
}

// Conn returns the connection to another coordinator.
func (c *Coordinator) Conn(address string) (*grpc.ClientConn, error) { return c.peers.Conn(address) }

// ForwardStream is the interceptor that passes streams on to the leader. What
// they answer comes at their end.
func (c *Coordinator) ForwardStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !rpc.RuleOf(info.FullMethod).GetLeader() || c.node.IsLeader() {
		return c.status(handler(srv, s))
	}
	if isForwarded(s.Context()) {
		return c.notLeader()
	}
	conn, err := c.leader()
	if err != nil {
		return err
	}
	request, reply, err := rpc.NewMessages(info.FullMethod)
	if err != nil {
		return err
	}
	out, err := conn.NewStream(onward(s.Context()), &grpc.StreamDesc{ClientStreams: true}, info.FullMethod)
	if err != nil {
		return err
	}
	for {
		if err := s.RecvMsg(request); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if out.SendMsg(request) != nil {
			break // the answer says why
		}
	}
	_ = out.CloseSend() // the answer says why it failed
	if err := out.RecvMsg(reply); err != nil {
		return err
	}
	return s.SendMsg(reply)
}
