package coordinator

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

func TestClusterService(t *testing.T) {
	g := coordinatortest.NewGroup("a", "b", "c") // whose backup takes several messages
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
	if err != nil || m.Leader != "a" || m.Term != 7 || len(m.Members) != 3 || m.Members[1].ContactSeconds != 1.5 || m.Members[2].ContactSeconds != -1 ||
		m.Members[0].GrpcAddress != "10.0.0.1:7000" || m.Members[0].AppliedIndex != 9 || m.Members[1].Lag != 1 {
		t.Errorf("%v %v", m, err)
	}
	if r, err := c.ReadIndex(ctx, &pb.ReadIndexRequest{}); err != nil || r.Index != 5 {
		t.Errorf("%v %v", r, err)
	}
	// after returns the last member as the answer shows it.
	after := func(m *pb.MembersResponse, err error) *pb.ClusterMember {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m.Members[len(m.Members)-1]
	}
	if d := after(c.Join(ctx, &pb.JoinRequest{Id: "d", RaftAddress: "d:1", NonVoter: true})); d.Id != "d" || d.RaftAddress != "d:1" || d.Voter {
		t.Errorf("joined as %v", d)
	}
	if d := after(c.Promote(ctx, &pb.MemberRequest{Id: "d"})); !d.Voter {
		t.Error("it has no vote")
	}
	if d := after(c.Demote(ctx, &pb.MemberRequest{Id: "d"})); d.Voter {
		t.Error("it has a vote")
	}
	if m, err := c.Transfer(ctx, &pb.TransferRequest{Id: "d"}); err != nil || m.Leader != "d" {
		t.Errorf("%v %v", m, err)
	}
	if c := after(c.Remove(ctx, &pb.MemberRequest{Id: "d"})); c.Id != "c" {
		t.Errorf("the last is %v", c)
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
	if !bytes.Equal(got, g.Copy) {
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
	g.Err = errors.New("no disk")
	if err := restore(got); err == nil {
		t.Error("a restore that failed")
	}
}
