package identity

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// roleOf are the certificates' roles of nodes.
var roleOf = map[pb.Rule_Node]Role{pb.Rule_USER: Client, pb.Rule_COORDINATOR: Coordinator, pb.Rule_WORKER: Worker}

// allowed returns the roles that may make a call.
func allowed(r *pb.Rule) (out []Role) {
	if r.GetRole() != pb.Rule_NONE {
		out = append(out, Client)
	}
	for _, n := range r.GetNodes() {
		if role, ok := roleOf[n]; ok { // others have no certificates
			out = append(out, role)
		}
	}
	return out
}

// Marks on calls by which nodes tell each other not to pass a call on.
var nodeMarks = map[string][]Role{
	rpc.Forwarded: {Coordinator},
	rpc.NodeOnly:  {Coordinator, Worker},
}

// Gate lets calls pass that their rule in proto/ has for the caller's role. It is
// for servers with TLS: over plaintext nobody is known.
type Gate struct {
	// Anonymous lets users without a certificate call what users may, because
	// something else looks who they are (a token, say).
	Anonymous bool
	// NodesOnly is for a worker's port, where users have no business.
	NodesOnly bool
}

// Check returns an error of gRPC if a call is not allowed.
func (g Gate) Check(ctx context.Context, method string) error {
	if rpc.Public(method) {
		return nil
	}
	w := onWire(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	for mark, roles := range nodeMarks {
		if len(md.Get(mark)) > 0 && !(w.known && slices.Contains(roles, w.peer.Role)) {
			return status.Errorf(codes.PermissionDenied, "a call marked %s comes from %s only", mark, list(roles))
		}
	}
	allowed := allowed(rpc.RuleOf(method))
	if g.NodesOnly {
		allowed = slices.DeleteFunc(allowed, func(r Role) bool { return r == Client })
	}
	p, ok := FromContext(ctx)
	name := strings.TrimPrefix(method, "/ulisse.v1.")
	switch {
	case ok && slices.Contains(allowed, p.Role), !ok && g.Anonymous && slices.Contains(allowed, Client):
		return nil
	case len(allowed) == 0:
		return status.Errorf(codes.PermissionDenied, "nobody may call %s here", name)
	case ok:
		return status.Errorf(codes.PermissionDenied, "%s is for %s: the certificate shown is that of %s", name, list(allowed), p)
	case w.err != nil:
		return status.Errorf(codes.Unauthenticated, "%s is for %s: the certificate shown is not one of the cluster's: %v", name, list(allowed), w.err)
	}
	return status.Errorf(codes.Unauthenticated, "%s is for %s, and no certificate was shown: give --tls-cert and --tls-key", name, list(allowed))
}

// Unary is the interceptor of calls.
func (g Gate) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if err := g.Check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return h(ctx, req)
}

// Stream is the interceptor of streams.
func (g Gate) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if err := g.Check(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return h(srv, s)
}
