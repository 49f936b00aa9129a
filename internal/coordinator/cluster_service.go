package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Group is the group of coordinators that a node belongs to.
type Group interface {
	Term() uint64
	Members(ctx context.Context) ([]cluster.Member, error)
	Join(ctx context.Context, s cluster.Server, nonVoter bool) error
	Remove(ctx context.Context, id string, force bool) error
	Promote(ctx context.Context, id string) error
	Demote(ctx context.Context, id string, force bool) error
	Transfer(ctx context.Context, id string) error
	Backup(w io.Writer) error
	Restore(ctx context.Context, r io.Reader) error
	ReadIndex(ctx context.Context) (uint64, error)
}

// clusterService is the Cluster service.
type clusterService struct {
	pb.UnimplementedClusterServer
	group Group
}

// RegisterCluster registers the Cluster service of a group.
func RegisterCluster(s grpc.ServiceRegistrar, g Group) {
	pb.RegisterClusterServer(s, &clusterService{group: g})
}

func (s *clusterService) members(ctx context.Context, err error) (*pb.MembersResponse, error) {
	if err != nil {
		return nil, err
	}
	all, err := s.group.Members(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.MembersResponse{Term: s.group.Term()}
	for _, m := range all {
		if m.Leader {
			out.Leader = m.ID
		}
		contact := m.Contact.Seconds()
		if m.Contact < 0 {
			contact = -1
		}
		out.Members = append(out.Members, &pb.ClusterMember{Id: m.ID, RaftAddress: m.Address, GrpcAddress: m.GRPC, HttpAddress: m.HTTP,
			Voter: m.Voter, Leader: m.Leader, Healthy: m.Healthy, AppliedIndex: m.Applied, Lag: m.Lag, ContactSeconds: contact, Version: m.Version, Fault: m.Fault})
	}
	return out, nil
}

// Members returns the members.
func (s *clusterService) Members(ctx context.Context, _ *pb.MembersRequest) (*pb.MembersResponse, error) {
	return s.members(ctx, nil)
}

// ReadIndex returns the index that a consistent read has to have seen.
func (s *clusterService) ReadIndex(ctx context.Context, _ *pb.ReadIndexRequest) (*pb.ReadIndexResponse, error) {
	i, err := s.group.ReadIndex(ctx)
	return &pb.ReadIndexResponse{Index: i}, err
}

// Join adds a coordinator.
func (s *clusterService) Join(ctx context.Context, r *pb.JoinRequest) (*pb.MembersResponse, error) {
	if !nodeName.MatchString(r.Id) {
		return nil, badField("id", "a coordinator needs an id of letters, digits, '.', '_' and '-', 100 at most")
	}
	if host, port, err := net.SplitHostPort(r.RaftAddress); err != nil || host == "" || port == "" {
		return nil, badField("raft_address", "give the address at which the others reach the coordinator, host:port")
	}
	return s.members(ctx, s.group.Join(ctx, cluster.Server{ID: r.Id, Address: r.RaftAddress}, r.NonVoter))
}

// Remove takes a coordinator out.
func (s *clusterService) Remove(ctx context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.members(ctx, s.group.Remove(ctx, r.Id, r.Force))
}

// Promote gives a coordinator a vote.
func (s *clusterService) Promote(ctx context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.members(ctx, s.group.Promote(ctx, r.Id))
}

// Demote takes a coordinator's vote.
func (s *clusterService) Demote(ctx context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.members(ctx, s.group.Demote(ctx, r.Id, r.Force))
}

// Transfer hands over leadership.
func (s *clusterService) Transfer(ctx context.Context, r *pb.TransferRequest) (*pb.MembersResponse, error) {
	return s.members(ctx, s.group.Transfer(ctx, r.Id))
}

// Backup sends a consistent copy of this node's state.
func (s *clusterService) Backup(_ *pb.BackupRequest, out grpc.ServerStreamingServer[pb.BackupChunk]) error {
	return s.group.Backup(&chunkWriter{send: func(b []byte) error { return out.Send(&pb.BackupChunk{Data: b}) }})
}

// Restore replaces the state by a backup.
func (s *clusterService) Restore(in grpc.ClientStreamingServer[pb.BackupChunk, pb.MembersResponse]) error {
	r, w := io.Pipe()
	go func() {
		for {
			c, err := in.Recv()
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if _, err := w.Write(c.Data); err != nil {
				return
			}
		}
	}()
	defer r.Close()
	m, err := s.members(in.Context(), s.group.Restore(in.Context(), r))
	if errors.Is(err, cluster.ErrBadBackup) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err != nil {
		return err
	}
	return in.SendAndClose(m)
}

// chunkWriter sends what is written to it in messages of bounded size.
type chunkWriter struct{ send func([]byte) error }

func (w *chunkWriter) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i += chunkBytes {
		if err := w.send(p[i:min(len(p), i+chunkBytes)]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// KeepRevoked returns a group that revokes, after a backup was restored, the tokens that
// were revoked since it was made: else it would revive them.
func (c *Coordinator) KeepRevoked(g Group) Group { return keepRevoked{g, c} }

type keepRevoked struct {
	Group
	c *Coordinator
}

func (k keepRevoked) Restore(ctx context.Context, r io.Reader) error {
	var revoked []string
	err := k.c.node.View(func(tx *bbolt.Tx) error {
		return state.Tokens(tx, func(t *state.Token) bool {
			if !t.Revoked.IsZero() {
				revoked = append(revoked, t.ID)
			}
			return true
		})
	})
	if err != nil {
		return err
	}
	if err := k.Group.Restore(ctx, r); err != nil {
		return err
	}
	for _, id := range revoked {
		_, err := k.c.apply(ctx, &state.RevokeToken{ID: id})
		if err != nil && !errors.Is(err, state.ErrToken) { // the backup does not know it
			return fmt.Errorf("the backup is restored, but token %s, which was revoked since, is valid again: %w", id, err)
		}
	}
	return nil
}
