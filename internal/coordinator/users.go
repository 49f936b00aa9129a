package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"crypto/rand"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// users is the Users service.
type users struct {
	pb.UnimplementedUsersServer
	*Coordinator
}

// WhoAmI tells the caller who it is.
func (users) WhoAmI(ctx context.Context, _ *pb.WhoAmIRequest) (*pb.Identity, error) {
	id := auth.From(ctx)
	return &pb.Identity{User: id.User, Role: string(id.Role), Namespaces: id.Namespaces, Token: id.Token, Expires: stamp(id.Expires)}, nil
}

// covers returns an error if somebody is to be given, or to lose, more than the
// caller has.
func covers(id *auth.Identity, namespaces []string) error {
	for _, n := range namespaces {
		if !id.All() && (n == state.AllNamespaces || !id.Sees(n)) {
			return status.Errorf(codes.PermissionDenied, "this token is for the namespaces %s, not for %s", strings.Join(id.Namespaces, ", "), n)
		}
	}
	return nil
}

// CreateToken makes a token.
func (u users) CreateToken(ctx context.Context, r *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	id := auth.From(ctx)
	if len(r.Namespaces) == 0 {
		r.Namespaces = []string{id.Namespace("")}
	}
	if role := state.Role(r.Role); role == state.WorkerBot || role == state.BackupBot {
		r.Namespaces = []string{state.AllNamespaces} // it works for all
	}
	if err := covers(id, r.Namespaces); err != nil {
		return nil, err
	}
	switch state.Role(r.Role) {
	case state.Viewer, state.Submitter, state.Admin, state.WorkerBot, state.BackupBot:
	default:
		return nil, badField("role", "a token's role is viewer, submitter, admin, worker or backup")
	}
	if err := state.CheckName(r.Name); err != nil {
		return nil, badField("name", err.Error())
	}
	now := time.Now().UTC()
	text, tokenID := auth.NewToken()
	k := &state.Token{ID: tokenID, Name: r.Name, Role: state.Role(r.Role), Namespaces: r.Namespaces, Hash: auth.Hash(text), Created: now, CreatedBy: id.User}
	if r.Lifetime != nil {
		d := r.Lifetime.AsDuration()
		if d <= 0 {
			return nil, badField("lifetime", "a token lives for a positive time")
		}
		k.Expires = now.Add(d)
	}
	cmd := state.Command{Token: k}
	if k.Role == state.BackupBot {
		cmd.Format = 2
	}
	if _, err := u.apply(ctx, cmd); err != nil {
		return nil, err
	}
	return &pb.CreateTokenResponse{Token: tokenOf(k), Secret: text}, nil
}

func tokenOf(k *state.Token) *pb.Token {
	return &pb.Token{Id: k.ID, Name: k.Name, Role: string(k.Role), Namespaces: k.Namespaces, Created: stamp(k.Created),
		Expires: stamp(k.Expires), Revoked: stamp(k.Revoked), CreatedBy: k.CreatedBy}
}

// ListTokens returns the tokens for the caller's namespaces.
func (u users) ListTokens(ctx context.Context, _ *pb.ListTokensRequest) (*pb.ListTokensResponse, error) {
	id := auth.From(ctx)
	out := &pb.ListTokensResponse{}
	err := u.read(ctx, false, func(tx *bbolt.Tx) error {
		return state.Tokens(tx, func(k *state.Token) bool {
			if covers(id, k.Namespaces) == nil {
				out.Tokens = append(out.Tokens, tokenOf(k))
			}
			return true
		})
	})
	slices.SortFunc(out.Tokens, func(a, b *pb.Token) int { return a.Created.AsTime().Compare(b.Created.AsTime()) })
	return out, err
}

// RevokeToken ends a token's validity.
func (u users) RevokeToken(ctx context.Context, r *pb.RevokeTokenRequest) (*pb.Token, error) {
	token := func() (k *state.Token, err error) {
		err = u.Node.View(func(tx *bbolt.Tx) error { k, err = state.GetToken(tx, r.Id); return err })
		return k, err
	}
	k, err := token()
	if err == nil && covers(auth.From(ctx), k.Namespaces) != nil {
		err = state.ErrToken // of which the caller is not to know
	}
	if err != nil {
		return nil, err
	}
	if _, err := u.apply(ctx, state.Command{Revoke: &state.Revoke{ID: r.Id}}); err != nil {
		return nil, err
	}
	if k, err = token(); err != nil {
		return nil, err
	}
	return tokenOf(k), nil
}

// SetNamespace makes or changes a namespace.
func (u users) SetNamespace(ctx context.Context, r *pb.SetNamespaceRequest) (*pb.Namespace, error) {
	q := r.GetQuota()
	cmd := state.Command{SetNamespace: &state.SetNamespace{Name: r.Name, Fresh: r.Fresh,
		Quota: state.Quota{Jobs: q.GetJobs(), Chains: q.GetChains(), Draws: q.GetDraws(), Bytes: q.GetBytes()}}}
	if _, err := u.apply(ctx, cmd); err != nil {
		return nil, err
	}
	var out *pb.Namespace
	err := u.Node.View(func(tx *bbolt.Tx) (err error) {
		out, err = namespaceOf(tx, r.Name)
		return err
	})
	return out, err
}

func namespaceOf(tx *bbolt.Tx, name string) (*pb.Namespace, error) {
	q, used, err := state.GetNamespace(tx, name)
	return &pb.Namespace{Name: name, Quota: quotaOf(q), Used: quotaOf(state.Quota(used))}, err
}

func quotaOf(q state.Quota) *pb.Quota {
	return &pb.Quota{Jobs: q.Jobs, Chains: q.Chains, Draws: q.Draws, Bytes: q.Bytes}
}

// ListNamespaces returns the caller's namespaces.
func (u users) ListNamespaces(ctx context.Context, _ *pb.ListNamespacesRequest) (*pb.ListNamespacesResponse, error) {
	id := auth.From(ctx)
	out := &pb.ListNamespacesResponse{}
	err := u.read(ctx, false, func(tx *bbolt.Tx) error {
		for _, name := range state.Namespaces(tx) {
			if !id.Sees(name) {
				continue
			}
			n, err := namespaceOf(tx, name)
			if err != nil {
				return err
			}
			out.Namespaces = append(out.Namespaces, n)
		}
		return nil
	})
	return out, err
}

// DeleteNamespace removes a namespace.
func (u users) DeleteNamespace(ctx context.Context, r *pb.DeleteNamespaceRequest) (*pb.DeleteNamespaceResponse, error) {
	_, err := u.apply(ctx, state.Command{DropNamespace: &state.DropNamespace{Name: r.Name}})
	return &pb.DeleteNamespaceResponse{}, err
}

// Token returns a token as this coordinator knows it.
func (c *Coordinator) Token(id string) (k *state.Token, err error) {
	err = c.Node.View(func(tx *bbolt.Tx) error { k, err = state.GetToken(tx, id); return err })
	return k, err
}

// Job returns a job's namespace and owner, which never change: only a job that
// this coordinator has not heard of is worth asking the leader.
func (c *Coordinator) Job(ctx context.Context, id string) (namespace, owner string, err error) {
	look := func(tx *bbolt.Tx) error {
		j, err := state.GetJob(tx, id)
		if err == nil {
			namespace, owner = j.Space(), j.Owner
		}
		return err
	}
	if err = c.Node.View(look); errors.Is(err, state.ErrUnknown) {
		if err = c.catchUp(ctx); err == nil {
			err = c.Node.View(look)
		}
	}
	if err != nil && !errors.Is(err, state.ErrUnknown) {
		err = c.status(err)
	}
	return namespace, owner, err
}

// NodeKey returns the key that the coordinators share.
func (c *Coordinator) NodeKey() (key string) {
	_ = c.Node.View(func(tx *bbolt.Tx) (err error) { key, err = state.GetNodeKey(tx); return err })
	return key
}

// firstToken sees to it that the coordinators have a key and that there is an
// administrator: if none has a valid token for all namespaces, the one in the
// file becomes one. A file that is not there is written.
func (c *Coordinator) firstToken(ctx context.Context) error {
	if c.NodeKey() == "" {
		if _, err := c.apply(ctx, state.Command{NodeKey: &state.NodeKey{Key: rand.Text() + rand.Text()}}); err != nil {
			return err
		}
	}
	found := false
	err := c.Node.View(func(tx *bbolt.Tx) error {
		return state.Tokens(tx, func(k *state.Token) bool {
			found = k.Role == state.Admin && slices.Contains(k.Namespaces, state.AllNamespaces) && k.Live(time.Now())
			return !found
		})
	})
	if err != nil || found {
		return err
	}
	text, err := readOrMake(c.TokenFile)
	if err != nil {
		return err
	}
	id, err := auth.ParseToken(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.TokenFile, err)
	}
	_, err = c.apply(ctx, state.Command{Token: &state.Token{ID: id, Name: "admin", Role: state.Admin, Namespaces: []string{state.AllNamespaces},
		Hash: auth.Hash(text), Created: time.Now().UTC(), CreatedBy: "bootstrap"}})
	if errors.Is(err, state.ErrMalformed) {
		return fmt.Errorf("the token in %s was revoked or has expired: delete the file for a new one", c.TokenFile)
	}
	if err == nil {
		c.Logger.Warn("nobody was administrator: the token in this file is one now; make your own, then revoke it", "file", c.TokenFile, "token", id)
	}
	return err
}

// readOrMake returns the token in a file, or makes one there for its owner's
// eyes only.
func readOrMake(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the first token: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("writing the first token: %w", err)
	}
	text, _ := auth.NewToken()
	_, err = f.WriteString(text + "\n")
	return text, errors.Join(err, f.Sync(), f.Close())
}
