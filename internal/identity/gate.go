package identity

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Whom calls are for. Coordinators may call what users may.
var (
	users        = []Role{Client, Coordinator}
	usersWorkers = []Role{Client, Coordinator, Worker}
	nodes        = []Role{Coordinator, Worker}
	workers      = []Role{Worker}
	coordinators = []Role{Coordinator}
)

// rules says who may make which call. A call that is not here is refused.
var rules = map[string][]Role{
	"/ulisse.v1.Jobs/Submit":  users,
	"/ulisse.v1.Jobs/Get":     usersWorkers,
	"/ulisse.v1.Jobs/List":    users,
	"/ulisse.v1.Jobs/Pause":   users,
	"/ulisse.v1.Jobs/Resume":  users,
	"/ulisse.v1.Jobs/Cancel":  users,
	"/ulisse.v1.Jobs/Extend":  users,
	"/ulisse.v1.Jobs/Delete":  users,
	"/ulisse.v1.Jobs/Summary": users,
	"/ulisse.v1.Jobs/Result":  users,
	"/ulisse.v1.Jobs/Watch":   users,
	"/ulisse.v1.Jobs/Draws":   users,
	"/ulisse.v1.Jobs/Logs":    users,

	"/ulisse.v1.Workers/Connect": workers,
	"/ulisse.v1.Workers/Report":  workers,
	"/ulisse.v1.Workers/Await":   workers,
	"/ulisse.v1.Workers/Log":     nodes, // the leader shares what it was told
	"/ulisse.v1.Workers/List":    usersWorkers,
	"/ulisse.v1.Workers/Drain":   users,

	"/ulisse.v1.Cluster/Members":   users,
	"/ulisse.v1.Cluster/ReadIndex": coordinators,
	"/ulisse.v1.Cluster/Join":      users,
	"/ulisse.v1.Cluster/Remove":    users,
	"/ulisse.v1.Cluster/Promote":   users,
	"/ulisse.v1.Cluster/Demote":    users,
	"/ulisse.v1.Cluster/Transfer":  users,
	"/ulisse.v1.Cluster/Backup":    users,
	"/ulisse.v1.Cluster/Restore":   users,

	"/ulisse.v1.Data/Stat":     usersWorkers,
	"/ulisse.v1.Data/Upload":   users,
	"/ulisse.v1.Data/Download": usersWorkers,
	"/ulisse.v1.Data/List":     users,

	"/ulisse.v1.History/Run":     users,
	"/ulisse.v1.History/Workers": users,

	"/ulisse.v1.Records/Record": coordinators,
	"/ulisse.v1.Records/Forget": coordinators,

	"/ulisse.v1.Tiles/Session": nodes,

	"/ulisse.v1.Users/WhoAmI":          users,
	"/ulisse.v1.Users/CreateToken":     users,
	"/ulisse.v1.Users/ListTokens":      users,
	"/ulisse.v1.Users/RevokeToken":     users,
	"/ulisse.v1.Users/SetNamespace":    users,
	"/ulisse.v1.Users/ListNamespaces":  users,
	"/ulisse.v1.Users/DeleteNamespace": users,

	"/ulisse.v1.Predictions/Predict": users,
	"/ulisse.v1.Posteriors/Compute":  coordinators,
}

// Public reports whether everybody may make a call: to ask for the health.
func Public(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }

// ForUsers reports whether users may make a call, not nodes alone.
func ForUsers(method string) bool { return slices.Contains(Allowed(method), Client) }

// Allowed returns the roles that may make a call.
func Allowed(method string) []Role {
	if strings.HasPrefix(method, "/grpc.reflection.") {
		return users
	}
	return rules[method]
}

// Marks on calls by which nodes tell each other not to pass a call on.
var nodeMarks = map[string][]Role{
	"ulisse-forwarded": coordinators,
	"ulisse-node-only": nodes,
}

// Gate lets calls pass that their caller's role allows. It is for servers with
// TLS: over plaintext nobody is known.
type Gate struct {
	// Anonymous lets users without a certificate call what users may, because
	// something else looks who they are (a token, say).
	Anonymous bool
	// NodesOnly is for a worker's port, where users have no business.
	NodesOnly bool
}

// Check returns an error of gRPC if a call is not allowed.
func (g Gate) Check(ctx context.Context, method string) error {
	if Public(method) {
		return nil
	}
	w := onWire(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	for mark, roles := range nodeMarks {
		if len(md.Get(mark)) > 0 && !(w.known && slices.Contains(roles, w.peer.Role)) {
			return status.Errorf(codes.PermissionDenied, "a call marked %s comes from %s only", mark, list(roles))
		}
	}
	allowed := Allowed(method)
	if g.NodesOnly {
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(r Role) bool { return r == Client })
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
