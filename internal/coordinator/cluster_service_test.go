package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// group notes what it is asked for.
type group struct {
	asked  []string
	backup []byte
	err    error
}

func (g *group) note(format string, args ...any) error {
	g.asked = append(g.asked, fmt.Sprintf(format, args...))
	return g.err
}

func (g *group) Term() uint64 { return 7 }
func (g *group) Members(context.Context) ([]cluster.Member, error) {
	return []cluster.Member{{ID: "a", Address: "a:1", GRPC: "a:2", Voter: true, Leader: true, Healthy: true, Applied: 9, Version: "v"},
		{ID: "b", Address: "b:1", Contact: -1}, {ID: "c", Contact: 1500 * time.Millisecond, Lag: 3}}, nil
}
func (g *group) Join(_ context.Context, s cluster.Server, nonVoter bool) error {
	return g.note("join %s at %s, non-voter %v", s.ID, s.Address, nonVoter)
}
func (g *group) Remove(_ context.Context, id string) error   { return g.note("remove %s", id) }
func (g *group) Promote(_ context.Context, id string) error  { return g.note("promote %s", id) }
func (g *group) Demote(_ context.Context, id string) error   { return g.note("demote %s", id) }
func (g *group) Transfer(_ context.Context, id string) error { return g.note("transfer %s", id) }
func (g *group) Backup(w io.Writer) error {
	_, err := w.Write(g.backup)
	return err
}
func (g *group) Restore(_ context.Context, r io.Reader) error {
	got, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, g.backup) {
		return fmt.Errorf("%w: of %d bytes", cluster.ErrBadBackup, len(got))
	}
	return g.err
}
func (g *group) ReadIndex(context.Context) (uint64, error) { return 5, g.err }

func TestClusterService(t *testing.T) {
	g := &group{backup: bytes.Repeat([]byte("state "), 300_000)} // several messages
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) { RegisterCluster(s, g) })
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	defer func() { s.Stop(); <-done }()
	conn, err := rpc.Dialer(nil)(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, ctx := pb.NewClusterClient(conn), t.Context()

	m, err := c.Members(ctx, &pb.MembersRequest{})
	if err != nil || m.Leader != "a" || m.Term != 7 || len(m.Members) != 3 || m.Members[1].ContactSeconds != -1 || m.Members[2].ContactSeconds != 1.5 ||
		m.Members[0].GrpcAddress != "a:2" || m.Members[0].AppliedIndex != 9 || m.Members[2].Lag != 3 {
		t.Errorf("%v %v", m, err)
	}
	if r, err := c.ReadIndex(ctx, &pb.ReadIndexRequest{}); err != nil || r.Index != 5 {
		t.Errorf("%v %v", r, err)
	}
	for _, call := range []func() error{
		func() error {
			_, err := c.Join(ctx, &pb.JoinRequest{Id: "d", RaftAddress: "d:1", NonVoter: true})
			return err
		},
		func() error { _, err := c.Promote(ctx, &pb.MemberRequest{Id: "d"}); return err },
		func() error { _, err := c.Demote(ctx, &pb.MemberRequest{Id: "d"}); return err },
		func() error { _, err := c.Transfer(ctx, &pb.TransferRequest{Id: "d"}); return err },
		func() error { _, err := c.Remove(ctx, &pb.MemberRequest{Id: "d"}); return err },
	} {
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(g.asked); got != "[join d at d:1, non-voter true promote d demote d transfer d remove d]" {
		t.Errorf("%s", got)
	}
	for _, bad := range []*pb.JoinRequest{{Id: "", RaftAddress: "d:1"}, {Id: "../d", RaftAddress: "d:1"}, {Id: "d", RaftAddress: "d"}, {Id: "d", RaftAddress: ":1"}} {
		_, err := c.Join(ctx, bad)
		wantCode(t, bad.String(), err, codes.InvalidArgument)
	}

	backup, err := c.Backup(ctx, &pb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		chunk, err := backup.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk.Data) > chunkBytes {
			t.Errorf("a message of %d bytes", len(chunk.Data))
		}
		got = append(got, chunk.Data...)
	}
	if !bytes.Equal(got, g.backup) {
		t.Errorf("a backup of %d bytes", len(got))
	}
	restore := func(data []byte) error {
		in, err := c.Restore(ctx)
		if err != nil {
			return err
		}
		for len(data) > 0 {
			n := min(len(data), 100_000)
			if in.Send(&pb.BackupChunk{Data: data[:n]}) != nil {
				break
			}
			data = data[n:]
		}
		_, err = in.CloseAndRecv()
		return err
	}
	if err := restore(got); err != nil {
		t.Error(err)
	}
	wantCode(t, "what is no backup", restore([]byte("x")), codes.InvalidArgument)
	g.err = errors.New("no disk")
	if err := restore(got); err == nil {
		t.Error("a restore that failed")
	}
}
