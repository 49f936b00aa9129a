// Package clienttest is a cluster in memory for tests of its clients: one
// coordinator on a loopback port that runs jobs in its own process, keeps what
// it knows when it is stopped, and fails on demand.
package clienttest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Server is the cluster.
type Server struct {
	t    testing.TB
	dir  string
	addr string
	ctx  context.Context // of the jobs
	work sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at every change
	grpc    *grpc.Server
	jobs    []*job // oldest first
	blobs   map[string]*blob
	workers []*pb.Worker
	members *pb.MembersResponse
	backup  []byte
	calls   map[string]int // by method
	fail    map[string]int // calls of a method that will be refused

	// Hold lets submitted jobs wait in the queue until Run.
	Hold bool
	// CutUpload, if positive, breaks every upload after so many bytes, and a
	// download at its beginning.
	CutUpload int
	// CutDraws, if positive, breaks a stream of draws after so many batches.
	CutDraws int
	// Tokens collects what came as authorization.
	Tokens []string
}

// New starts a cluster, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{t: t, dir: t.TempDir(), addr: "127.0.0.1:0", ctx: ctx, changed: make(chan struct{}), blobs: map[string]*blob{},
		calls: map[string]int{}, fail: map[string]int{}, backup: []byte(strings.Repeat("state ", 300_000))}
	s.workers = []*pb.Worker{
		{Id: "w-alpha", Address: "10.0.0.1:7100", Connected: true, Version: "1", LastSeen: timestamppb.Now(), Load: &pb.Load{Pairs: 3e9},
			Capacity: &pb.Capacity{Cores: 8, InstructionSet: "avx512", PairsPerSecond: 3e9, MemoryBytes: 16 << 30}},
		{Id: "w-beta", Address: "10.0.0.2:7100", Version: "1", Load: &pb.Load{Pairs: 1e9}, Capacity: &pb.Capacity{Cores: 4, InstructionSet: "avx2", PairsPerSecond: 1e9}},
	}
	s.members = &pb.MembersResponse{Leader: "c1", Term: 3, Members: []*pb.ClusterMember{
		{Id: "c1", RaftAddress: "10.0.0.1:7001", GrpcAddress: "10.0.0.1:7000", Voter: true, Leader: true, Healthy: true, AppliedIndex: 9, Version: "1"},
		{Id: "c2", RaftAddress: "10.0.0.2:7001", GrpcAddress: "10.0.0.2:7000", Voter: true, Healthy: true, AppliedIndex: 8, Lag: 1, ContactSeconds: 0.02, Version: "1"},
		{Id: "c3", RaftAddress: "10.0.0.3:7001", GrpcAddress: "10.0.0.3:7000", ContactSeconds: -1},
	}}
	s.Start()
	t.Cleanup(func() {
		cancel()
		s.Stop()
		s.work.Wait()
	})
	return s
}

// Addr returns its address, which stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// Start lets it listen, again after Stop.
func (s *Server) Start() {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if err := s.count(ctx, info.FullMethod); err != nil {
			return nil, err
		}
		return h(ctx, req)
	}
	streams := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if err := s.count(ss.Context(), info.FullMethod); err != nil {
			return err
		}
		return h(srv, ss)
	}
	g, _ := rpc.NewServer(nil, func(g *grpc.Server) {
		pb.RegisterJobsServer(g, jobsServer{Server: s})
		pb.RegisterDataServer(g, dataServer{Server: s})
		pb.RegisterWorkersServer(g, workersServer{Server: s})
		pb.RegisterClusterServer(g, clusterServer{Server: s})
	}, grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(streams))
	s.mu.Lock()
	s.grpc = g
	s.mu.Unlock()
	s.work.Go(func() { g.Serve(l) })
}

// Stop breaks all connections and stops listening. Jobs go on.
func (s *Server) Stop() {
	s.mu.Lock()
	g := s.grpc
	s.mu.Unlock()
	g.Stop()
}

// Fail lets the next n calls of a method (its last name) be refused as
// unavailable.
func (s *Server) Fail(method string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[method] = n
}

// Calls returns how often a method was called.
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *Server) count(ctx context.Context, full string) error {
	method := full[strings.LastIndexByte(full, '/')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	s.Tokens = append(s.Tokens, grpcToken(ctx)...)
	if s.fail[method] > 0 {
		s.fail[method]--
		return status.Error(codes.Unavailable, "there is no leader")
	}
	return nil
}

// notify tells watchers of a change; s.mu is held.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

type workersServer struct {
	pb.UnimplementedWorkersServer
	*Server
}

func (s workersServer) List(context.Context, *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[0].Load.Pairs += 3e8
	s.workers[1].Load.Pairs += 1e8
	return clone(&pb.ListWorkersResponse{Workers: s.workers}), nil
}

func (s workersServer) Drain(_ context.Context, r *pb.DrainRequest) (*pb.Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if w.Id == r.Id {
			w.Draining = true
			return clone(w), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no worker %q", r.Id)
}

type clusterServer struct {
	pb.UnimplementedClusterServer
	*Server
}

func (s clusterServer) Members(context.Context, *pb.MembersRequest) (*pb.MembersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.members), nil
}

// member changes a member.
func (s clusterServer) member(id string, change func(i int, m *pb.ClusterMember)) (*pb.MembersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.members.Members {
		if m.Id == id {
			change(i, m)
			return clone(s.members), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no coordinator %q", id)
}

func (s clusterServer) Promote(_ context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.member(r.Id, func(_ int, m *pb.ClusterMember) { m.Voter = true })
}

func (s clusterServer) Demote(_ context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.member(r.Id, func(_ int, m *pb.ClusterMember) { m.Voter = false })
}

func (s clusterServer) Remove(_ context.Context, r *pb.MemberRequest) (*pb.MembersResponse, error) {
	return s.member(r.Id, func(i int, _ *pb.ClusterMember) { s.members.Members = slices.Delete(s.members.Members, i, i+1) })
}

func (s clusterServer) Transfer(_ context.Context, r *pb.TransferRequest) (*pb.MembersResponse, error) {
	if r.Id == "" {
		r.Id = "c2"
	}
	return s.member(r.Id, func(_ int, to *pb.ClusterMember) {
		for _, m := range s.members.Members {
			m.Leader = m == to
		}
		s.members.Leader = to.Id
	})
}

func (s clusterServer) Backup(_ *pb.BackupRequest, out pb.Cluster_BackupServer) error {
	for rest := range slices.Chunk(s.backup, 1<<19) {
		if err := out.Send(&pb.BackupChunk{Data: rest}); err != nil {
			return err
		}
	}
	return nil
}

func (s clusterServer) Restore(in pb.Cluster_RestoreServer) error {
	var got []byte
	for {
		c, err := in.Recv()
		if err != nil {
			break
		}
		got = append(got, c.Data...)
	}
	if string(got) != string(s.backup) {
		return status.Error(codes.InvalidArgument, "this is not a backup")
	}
	m, _ := s.Members(context.Background(), nil)
	return in.SendAndClose(m)
}
