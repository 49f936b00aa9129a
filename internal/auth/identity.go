package auth

import (
	"context"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Node is the role of a process of the cluster; none is a user's.
type Node string

// The nodes. They are the roles that certificates carry.
const (
	Coordinator Node = "coordinator"
	Worker      Node = "worker"
	Backup      Node = "backup" // what makes backups; by a token alone
)

// Identity is who calls.
type Identity struct {
	User       string // empty of nodes, and where nobody is asked and shows no certificate
	Role       state.Role
	Namespaces []string // state.AllNamespaces stands for all
	Token      string   // id
	Expires    time.Time
	Node       Node   // what the caller, or who passes its call on, is
	Name       string // of a node, as its certificate has it; empty where several share one
	From       string // its address
	Working    string // the namespace that it wants to work in, if it says so

	open bool // nobody is asked: it may call as a node does, too
}

// key names whose rates and streams are counted together. Nodes' are not.
func (i *Identity) key() string {
	switch {
	case i.Node != "":
		return ""
	case i.Token != "":
		return "token " + i.Token
	case i.User != "":
		return "user " + i.User
	}
	return "address " + i.From
}

// Peer returns what a node has shown: the same for all processes that share it.
func (i *Identity) Peer() string {
	if i.Token != "" {
		return "token " + i.Token
	}
	return "certificate " + i.Name
}

// Anybody is who calls where nobody is asked.
func Anybody() *Identity {
	return &Identity{Role: state.Admin, Namespaces: []string{state.AllNamespaces}, open: true}
}

type contextKey struct{}

// With returns a context of a call by this caller.
func With(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// From returns who calls. A call within the process is anybody's.
func From(ctx context.Context) *Identity {
	if id, ok := ctx.Value(contextKey{}).(*Identity); ok {
		return id
	}
	return Anybody()
}

// IsNode reports whether the caller is a node that calls for itself.
func (i *Identity) IsNode() bool { return i.Node != "" && i.Role == "" }

// All reports whether the caller sees all namespaces.
func (i *Identity) All() bool {
	return slices.Contains(i.Namespaces, state.AllNamespaces) || i.IsNode()
}

// Sees reports whether a namespace is one of the caller's. No name means the
// default one.
func (i *Identity) Sees(namespace string) bool {
	if namespace == "" {
		namespace = state.DefaultNamespace
	}
	return i.All() || slices.Contains(i.Namespaces, namespace)
}

// Namespace returns the namespace that a request works in: the one named, the
// one that the caller works in, its only one, or the default.
func (i *Identity) Namespace(named string) string {
	switch {
	case named != "":
		return named
	case i.Working != "":
		return i.Working
	case len(i.Namespaces) == 1 && !i.All():
		return i.Namespaces[0]
	}
	return state.DefaultNamespace
}

// Shows reports whether what is in a namespace belongs in a list that the caller
// asks for.
func (i *Identity) Shows(namespace string) bool {
	if namespace == "" {
		namespace = state.DefaultNamespace
	}
	return i.Sees(namespace) && (i.Working == "" || i.Working == namespace)
}

// at reports whether the caller is a user of a role, or of one above.
func (i *Identity) at(least state.Role) bool {
	return roles[i.Role] > 0 && roles[i.Role] >= roles[least]
}
