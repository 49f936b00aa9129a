package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// usersService is the Users service.
type usersService struct {
	pb.UnimplementedUsersServer
	c *Coordinator
}

// WhoAmI tells the caller who it is.
func (s *usersService) WhoAmI(ctx context.Context, _ *pb.WhoAmIRequest) (*pb.Identity, error) {
	id := auth.From(ctx)
	return &pb.Identity{User: id.User, Role: string(id.Role), Namespaces: id.Namespaces, Token: id.Token, Expires: pbTime(id.Expires)}, nil
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
func (s *usersService) CreateToken(ctx context.Context, r *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
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
	if _, err := s.c.apply(ctx, &state.CreateToken{Token: *k}); err != nil {
		return nil, err
	}
	return &pb.CreateTokenResponse{Token: pbToken(k), Secret: text}, nil
}

func pbToken(k *state.Token) *pb.Token {
	return &pb.Token{Id: k.ID, Name: k.Name, Role: string(k.Role), Namespaces: k.Namespaces, Created: pbTime(k.Created),
		Expires: pbTime(k.Expires), Revoked: pbTime(k.Revoked), CreatedBy: k.CreatedBy}
}

// ListTokens returns the tokens for the caller's namespaces.
func (s *usersService) ListTokens(ctx context.Context, _ *pb.ListTokensRequest) (*pb.ListTokensResponse, error) {
	id := auth.From(ctx)
	out := &pb.ListTokensResponse{}
	err := s.c.read(ctx, false, func(tx *bbolt.Tx) error {
		return state.Tokens(tx, func(k *state.Token) bool {
			if covers(id, k.Namespaces) == nil {
				out.Tokens = append(out.Tokens, pbToken(k))
			}
			return true
		})
	})
	slices.SortFunc(out.Tokens, func(a, b *pb.Token) int { return a.Created.AsTime().Compare(b.Created.AsTime()) })
	return out, err
}

// RevokeToken ends a token's validity.
func (s *usersService) RevokeToken(ctx context.Context, r *pb.RevokeTokenRequest) (*pb.Token, error) {
	token := func() (k *state.Token, err error) {
		err = s.c.node.View(func(tx *bbolt.Tx) error { k, err = state.GetToken(tx, r.Id); return err })
		return k, err
	}
	k, err := token()
	if err == nil && covers(auth.From(ctx), k.Namespaces) != nil {
		err = state.ErrToken // of which the caller is not to know
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.c.apply(ctx, &state.RevokeToken{ID: r.Id, Spare: true}); err != nil {
		return nil, err
	}
	if k, err = token(); err != nil {
		return nil, err
	}
	return pbToken(k), nil
}

// SetNamespace makes or changes a namespace.
func (s *usersService) SetNamespace(ctx context.Context, r *pb.SetNamespaceRequest) (*pb.Namespace, error) {
	q := r.GetQuota()
	cmd := &state.SetNamespace{Name: r.Name, Fresh: r.Fresh,
		Quota: state.Quota{Jobs: q.GetJobs(), Chains: q.GetChains(), Draws: q.GetDraws(), Bytes: q.GetBytes()}}
	if _, err := s.c.apply(ctx, cmd); err != nil {
		return nil, err
	}
	var out *pb.Namespace
	err := s.c.node.View(func(tx *bbolt.Tx) (err error) {
		out, err = pbNamespace(tx, r.Name)
		return err
	})
	return out, err
}

func pbNamespace(tx *bbolt.Tx, name string) (*pb.Namespace, error) {
	q, used, err := state.GetNamespace(tx, name)
	return &pb.Namespace{Name: name, Quota: pbQuota(q), Used: pbQuota(state.Quota(used))}, err
}

func pbQuota(q state.Quota) *pb.Quota {
	return &pb.Quota{Jobs: q.Jobs, Chains: q.Chains, Draws: q.Draws, Bytes: q.Bytes}
}

// ListNamespaces returns the caller's namespaces.
func (s *usersService) ListNamespaces(ctx context.Context, _ *pb.ListNamespacesRequest) (*pb.ListNamespacesResponse, error) {
	id := auth.From(ctx)
	out := &pb.ListNamespacesResponse{}
	err := s.c.read(ctx, false, func(tx *bbolt.Tx) error {
		for _, name := range state.Namespaces(tx) {
			if !id.Sees(name) {
				continue
			}
			n, err := pbNamespace(tx, name)
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
func (s *usersService) DeleteNamespace(ctx context.Context, r *pb.DeleteNamespaceRequest) (*pb.DeleteNamespaceResponse, error) {
	_, err := s.c.apply(ctx, &state.DropNamespace{Name: r.Name})
	return &pb.DeleteNamespaceResponse{}, err
}

// Token returns a token as this coordinator knows it.
func (c *Coordinator) Token(id string) (k *state.Token, err error) {
	err = c.node.View(func(tx *bbolt.Tx) error { k, err = state.GetToken(tx, id); return err })
	return k, err
}

// Job returns a job's namespace and owner, which never change: only a job that
// this coordinator has not heard of is worth asking the leader.
func (c *Coordinator) Job(ctx context.Context, id string) (namespace, owner string, err error) {
	look := func(tx *bbolt.Tx) error {
		j, err := state.GetJob(tx, id)
		if err == nil {
			namespace, owner = j.NamespaceName(), j.Owner
		}
		return err
	}
	if err = c.node.View(look); errors.Is(err, state.ErrUnknownJob) {
		if err = c.catchUp(ctx); err == nil {
			err = c.node.View(look)
		}
	}
	if err != nil && !errors.Is(err, state.ErrUnknownJob) {
		err = c.status(err)
	}
	return namespace, owner, err
}

// NodeKey returns the key that the coordinators share.
func (c *Coordinator) NodeKey() (key string) {
	_ = c.node.View(func(tx *bbolt.Tx) (err error) { key, err = state.GetNodeKey(tx); return err })
	return key
}

// firstToken sees to it that the coordinators have a key and that there is an
// administrator: if none has a valid token for all namespaces, the one in the
// file becomes one. A file that is not there is written.
func (c *Coordinator) firstToken(ctx context.Context) error {
	if c.NodeKey() == "" {
		if _, err := c.apply(ctx, &state.SetNodeKey{Key: rand.Text() + rand.Text()}); err != nil {
			return err
		}
	}
	found := false
	err := c.node.View(func(tx *bbolt.Tx) error {
		return state.Tokens(tx, func(k *state.Token) bool {
			found = k.Rules(time.Now())
			return !found
		})
	})
	if err != nil || found {
		return err
	}
	text, err := readOrMake(c.cfg.TokenFile)
	if err != nil {
		return err
	}
	id, err := auth.ParseToken(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cfg.TokenFile, err)
	}
	_, err = c.apply(ctx, &state.CreateToken{Token: state.Token{ID: id, Name: "admin", Role: state.Admin, Namespaces: []string{state.AllNamespaces},
		Hash: auth.Hash(text), Created: time.Now().UTC(), CreatedBy: "bootstrap"}})
	if errors.Is(err, state.ErrMalformed) {
		return fmt.Errorf("the token in %s was revoked or has expired: delete the file for a new one", c.cfg.TokenFile)
	}
	if err == nil {
		c.log.Warn("nobody was administrator: the token in this file is one now; make your own, then revoke it", "file", c.cfg.TokenFile, "token", id)
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
	text, _ := auth.NewToken()
	if err := atomicfile.Create(path, 0o600, []byte(text+"\n")); err != nil {
		return "", fmt.Errorf("writing the first token: %w", err)
	}
	return text, nil
}
