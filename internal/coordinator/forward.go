package coordinator

import (
	"context"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

// leaderOnly are the calls that only the leader can answer.
var leaderOnly = map[string]bool{
	"/ulisse.v1.Jobs/Submit":           true,
	"/ulisse.v1.Jobs/Pause":            true,
	"/ulisse.v1.Jobs/Resume":           true,
	"/ulisse.v1.Jobs/Cancel":           true,
	"/ulisse.v1.Jobs/Extend":           true,
	"/ulisse.v1.Jobs/Delete":           true,
	"/ulisse.v1.Workers/Report":        true,
	"/ulisse.v1.Workers/Await":         true,
	"/ulisse.v1.Workers/Log":           true,
	"/ulisse.v1.Workers/List":          true,
	"/ulisse.v1.Workers/Drain":         true,
	"/ulisse.v1.History/Workers":       true,
	"/ulisse.v1.Records/Record":        true,
	"/ulisse.v1.Records/Forget":        true,
	"/ulisse.v1.Users/CreateToken":     true,
	"/ulisse.v1.Users/RevokeToken":     true,
	"/ulisse.v1.Users/SetNamespace":    true,
	"/ulisse.v1.Users/DeleteNamespace": true,
	"/ulisse.v1.Cluster/Join":          true,
	"/ulisse.v1.Cluster/Remove":        true,
	"/ulisse.v1.Cluster/Promote":       true,
	"/ulisse.v1.Cluster/Demote":        true,
	"/ulisse.v1.Cluster/Transfer":      true,
	"/ulisse.v1.Cluster/Members":       true,
	"/ulisse.v1.Cluster/ReadIndex":     true,
}

// forwardKey marks a call that a coordinator has passed on: it is not passed on
// again.
const forwardKey = "ulisse-forwarded"

// forwarded marks a call to another coordinator.
func forwarded(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardKey, "1")
}

func isForwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, forwardKey)) > 0
}

// Forward is the interceptor that passes calls on to the leader.
func (c *Coordinator) Forward(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	shared := info.FullMethod == "/ulisse.v1.Workers/Log" && isForwarded(ctx) // from the leader
	if !leaderOnly[info.FullMethod] || shared || c.Node.IsLeader() {
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
	reply, err := newReply(info.FullMethod)
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
	for _, k := range []string{"authorization", auth.NamespaceKey} {
		for _, v := range metadata.ValueFromIncomingContext(ctx, k) {
			out = metadata.AppendToOutgoingContext(out, k, v)
		}
	}
	return out
}

// newReply returns an empty answer of a method like /ulisse.v1.Jobs/Get.
func newReply(method string) (proto.Message, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a service", service)
	}
	m := sd.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, fmt.Errorf("there is no method %s", method)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// leader returns a connection to the leader.
func (c *Coordinator) leader() (*grpc.ClientConn, error) {
	_, address := c.Node.Leader()
	if address == "" {
		return nil, status.Error(codes.Unavailable, "the coordinators have no leader at the moment: try again")
	}
	return c.peers.Conn(address)
}

// notLeader tells a caller where the leader is.
func (c *Coordinator) notLeader() error {
	id, address := c.Node.Leader()
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

// ForwardStream is the interceptor of streaming calls. Of those only Restore has
// to be passed on to the leader: a worker's session goes there by itself, and
// the others are answered by every coordinator.
func (c *Coordinator) ForwardStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod != pb.Cluster_Restore_FullMethodName || c.Node.IsLeader() {
		return c.status(handler(srv, s))
	}
	if isForwarded(s.Context()) {
		return c.notLeader()
	}
	return c.forwardRestore(s)
}

// forwardRestore passes a backup on to the leader as it comes.
func (c *Coordinator) forwardRestore(s grpc.ServerStream) error {
	conn, err := c.leader()
	if err != nil {
		return err
	}
	out, err := pb.NewClusterClient(conn).Restore(onward(s.Context()))
	if err != nil {
		return err
	}
	for {
		var chunk pb.BackupChunk
		if err := s.RecvMsg(&chunk); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if out.Send(&chunk) != nil {
			break // the answer says why
		}
	}
	reply, err := out.CloseAndRecv()
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}
