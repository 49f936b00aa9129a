package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// marks are the metadata by which nodes mark calls among themselves.
var marks = []string{rpc.Forwarded, rpc.NodeOnly, rpc.NodeKey}

// Source is the replicated state, as far as it says who may do what.
type Source interface {
	// Token returns a token, or state.ErrToken.
	Token(id string) (*state.Token, error)
	// Job returns the namespace and the owner of a job, or state.ErrUnknownJob.
	Job(ctx context.Context, id string) (namespace, owner string, err error)
	// NodeKey returns the key that coordinators share.
	NodeKey() string
}

// Config configures a guard.
type Config struct {
	// Required: callers have to say who they are. Otherwise all are administrators.
	Required bool
	Source   Source
	// Certificates: nodes are known by them (package identity), not by a key.
	Certificates bool
	// Foreign verifies tokens that are not the cluster's own; nil refuses them.
	Foreign func(ctx context.Context, text string) (*Identity, error)
	Limits  *Limits     // none if nil
	Audit   func(Event) // what is to be kept of calls; not if nil
	// AuditStrangers is what is to be kept of callers who are not known; Audit if nil.
	AuditStrangers func(Event)
	AuditReads     bool // also calls that take data or draws are kept
	Now            func() time.Time
}

// Guard is what stands before the RPCs of a server.
type Guard struct {
	Config
	secret    string
	streams   streams
	receiving *rpc.Share
	refusals  refusals
}

// NewGuard returns a guard. Its Run has to be running for tokens that are
// revoked to end the calls that are under way.
func NewGuard(c Config) *Guard {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Guard{Config: c, secret: rand.Text(), receiving: &rpc.Share{Each: receiveEach, All: receiveAll}}
}

// Inside returns the context of calls that this process makes for itself over the
// connection within it: they are a coordinator's.
func (g *Guard) Inside(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpc.Inside, g.secret)
}

// who returns who calls.
func (g *Guard) who(ctx context.Context) (*Identity, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	within := isWithin(ctx)
	id := &Identity{From: from(ctx, md, within)}
	if n := md.Get(rpc.Namespace); len(n) > 0 {
		if len(n) > 1 || state.CheckName(n[0]) != nil {
			return id, status.Error(codes.InvalidArgument, "the metadata "+rpc.Namespace+" is not the name of one namespace")
		}
		id.Working = n[0]
	}
	by := g.node(ctx, md, within, id)
	if !g.Required {
		if id.Node != "" {
			return id, nil
		}
		user := Anybody()
		user.open = !within && !g.Certificates
		if p, ok := identity.FromContext(ctx); ok && p.Name != "" {
			user.User = "cert:" + p.Name
		}
		user.From, user.Working, user.Node = id.From, id.Working, by
		return user, nil
	}
	sent := md.Get(rpc.Authorization)
	switch {
	case len(sent) > 1:
		return id, status.Error(codes.Unauthenticated, "more than one token was sent")
	case len(sent) == 0 && id.Node != "":
		return id, nil
	case len(sent) == 0:
		return id, status.Error(codes.Unauthenticated, "no token was sent: give one with --token-file, $ULISSE_TOKEN or a context, over HTTP as Authorization: Bearer")
	}
	scheme, text, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "bearer") || text == "" {
		return id, status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	user, err := g.user(ctx, text)
	if err != nil {
		return id, err
	}
	user.From, user.Working = id.From, id.Working
	if user.Node == "" {
		user.Node = by
	}
	return user, nil
}

// isWithin reports whether a call comes over a connection within this process:
// from its gateway to JSON, which tells where requests came from. Nodes do not
// call there.
func isWithin(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, ok = p.AuthInfo.(identity.Local)
	return ok
}

// from returns a caller's address, without its port.
func from(ctx context.Context, md metadata.MD, within bool) string {
	if within { // the last of the list is what the gateway itself saw
		if f := md.Get(rpc.ForwardedFor); len(f) > 0 {
			list := strings.Split(f[len(f)-1], ",")
			return strings.TrimSpace(list[len(list)-1])
		}
		return "unknown"
	}
	if p, ok := peer.FromContext(ctx); ok {
		host, _, err := net.SplitHostPort(p.Addr.String())
		if err != nil {
			host = p.Addr.String()
		}
		return host
	}
	return "unknown"
}

// node notes in id which node a call is made for, if it is one, and returns the
// node that makes it: for itself, or for whoever asked there.
func (g *Guard) node(ctx context.Context, md metadata.MD, within bool, id *Identity) (by Node) {
	switch sent := md.Get(rpc.Inside); {
	case within && len(sent) == 1 && same(g.secret, sent[0]):
		id.Node = Coordinator
		return Coordinator
	case g.Certificates:
		if p, ok := identity.FromContext(ctx); ok && p.Role != identity.Client {
			id.Node, id.Name = Node(p.Role), p.Name
		}
		if p, ok := identity.Wire(ctx); ok && p.Role != identity.Client {
			by = Node(p.Role)
		}
		return by // where there are certificates they say all
	}
	if sent := md.Get(rpc.NodeKey); len(sent) == 1 && !within && g.Source != nil {
		if key := g.Source.NodeKey(); key != "" && same(key, sent[0]) {
			id.Node = Coordinator
		}
	}
	return id.Node
}

// user returns whose token this is.
func (g *Guard) user(ctx context.Context, text string) (*Identity, error) {
	id, err := ParseToken(text)
	if err != nil {
		if g.Foreign == nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
		user, err := g.Foreign(ctx, text)
		if err != nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
		return user, nil
	}
	if g.Source == nil {
		return nil, status.Error(codes.Unauthenticated, "tokens are taken by coordinators only")
	}
	k, err := g.Source.Token(id)
	if err != nil && !errors.Is(err, state.ErrToken) {
		return nil, status.Error(codes.Internal, "the token could not be looked up")
	}
	if err != nil || !matches(k, text) {
		return nil, status.Error(codes.Unauthenticated, "the token is not one of this cluster's")
	}
	if err := g.live(k); err != nil {
		return nil, err
	}
	user := &Identity{User: k.Name, Role: k.Role, Namespaces: k.Namespaces, Token: k.ID, Expires: k.Expires}
	if bot, ok := bots[k.Role]; ok {
		user.Role, user.Node, user.Namespaces = "", bot, nil
	}
	return user, nil
}

// live returns an error for a token that is not valid any more.
func (g *Guard) live(k *state.Token) error {
	switch {
	case !k.Revoked.IsZero():
		return status.Errorf(codes.Unauthenticated, "the token %s was revoked at %s", k.ID, k.Revoked.Format(time.RFC3339))
	case !k.Live(g.Now()):
		return status.Errorf(codes.Unauthenticated, "the token %s expired at %s", k.ID, k.Expires.Format(time.RFC3339))
	}
	return nil
}

// bots are the nodes that show tokens.
var bots = map[state.Role]Node{state.WorkerBot: Worker, state.BackupBot: Backup}

// roles are those of users, as rules name them.
var roles = map[state.Role]pb.Rule_Role{state.Viewer: pb.Rule_VIEWER, state.Submitter: pb.Rule_SUBMITTER, state.Admin: pb.Rule_ADMIN}

// nodes are those of the cluster, as rules name them.
var nodes = map[Node]pb.Rule_Node{Coordinator: pb.Rule_COORDINATOR, Worker: pb.Rule_WORKER, Backup: pb.Rule_BACKUP}

// allow returns an error for a call that the rule does not allow, as far as that
// can be told without the request.
func (g *Guard) allow(id *Identity, rule *pb.Rule, method string) error {
	if id.Role == "" && id.Node != "" && slices.Contains(rule.Nodes, nodes[id.Node]) || id.open && len(rule.Nodes) > 0 {
		return nil
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	switch {
	case rule.Role == pb.Rule_NONE:
		return status.Errorf(codes.PermissionDenied, "%s is for the cluster's own nodes: %s", name, listNodes(rule.Nodes))
	case id.IsNode():
		return status.Errorf(codes.PermissionDenied, "%s is not for a %s", name, id.Node)
	case roles[id.Role] < rule.Role:
		return status.Errorf(codes.PermissionDenied, "%s takes the role %s, and this token has the role %s", name,
			strings.ToLower(rule.Role.String()), cmp.Or(id.Role, "none"))
	case rule.Whole && !id.All():
		return status.Errorf(codes.PermissionDenied, "%s concerns the whole cluster, and this token is for the namespaces %s", name, strings.Join(id.Namespaces, ", "))
	}
	return nil
}

func listNodes(nodes []pb.Rule_Node) string {
	var s []string
	for _, n := range nodes {
		s = append(s, strings.ToLower(n.String())+"s")
	}
	return strings.Join(s, " and ")
}

// allowJob returns an error for a request that names a job that is not the
// caller's to see, or to change.
func (g *Guard) allowJob(ctx context.Context, id *Identity, rule *pb.Rule, req any) error {
	if rule.GetJob() == "" || id.All() && (!rule.Own || id.at(state.Admin)) {
		return nil // there may be no such job: the handler says so
	}
	m, ok := req.(proto.Message)
	if !ok {
		return status.Error(codes.Internal, "a request that is no message")
	}
	namespace, owner, err := g.Source.Job(ctx, rpc.Job(rule, m))
	if err == nil && !id.Sees(namespace) {
		err = state.ErrUnknownJob
	}
	switch {
	case errors.Is(err, state.ErrUnknownJob):
		return status.Error(codes.NotFound, state.ErrUnknownJob.Error())
	case err != nil:
		return err
	case rule.Own && owner != id.User && !id.at(state.Admin):
		return status.Errorf(codes.PermissionDenied, "the job is %s's: only they or an admin may do that", cmp.Or(owner, "nobody"))
	}
	return nil
}

// clean returns the context of the call for its handler: with who calls, and
// without the marks that only nodes may put on calls.
func (g *Guard) clean(ctx context.Context, id *Identity) context.Context {
	ctx = With(ctx, id)
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(rpc.Inside)) > 0 {
		md = md.Copy()
		md.Delete(rpc.Inside)
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	if id.Node != "" || id.open || !slices.ContainsFunc(marks, func(k string) bool { return len(md.Get(k)) > 0 }) {
		return ctx
	}
	md = md.Copy()
	for _, k := range marks {
		md.Delete(k)
	}
	return metadata.NewIncomingContext(ctx, md)
}

// noRule refuses a method that nobody has made a rule for.
func noRule(method string) error {
	return status.Error(codes.PermissionDenied, fmt.Sprintf("nobody may call %s: it has no rule", method))
}
