package clienttest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Sizes of what clients get, small so that there are many.
const (
	pageSize    = 2    // jobs
	resultBytes = 1000 // of a message of a result
)

// faults are what the calls of clients meet. Methods go by their last names.
type faults struct {
	mu     *sync.Mutex
	calls  map[string]int
	refuse map[string]int   // how many of the calls to come
	cut    map[string][]int // the streams to come: after how many messages
	tokens []string
}

func newFaults() faults {
	return faults{mu: &sync.Mutex{}, calls: map[string]int{}, refuse: map[string]int{}, cut: map[string][]int{}}
}

// Refuse lets the next n calls of a method fail: the cluster has no leader.
func (c *Cluster) Refuse(method string, n int) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.refuse[method] = n
}

// Cut breaks the next streams of a method, each after a number of messages: of those
// that the client sends if it sends many, else of those that it gets.
func (c *Cluster) Cut(method string, after ...int) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.cut[method] = after
}

// Calls returns how often a method was called.
func (c *Cluster) Calls(method string) int {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.calls[method]
}

// Tokens returns the authorization of every call that had one.
func (c *Cluster) Tokens() []string {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return slices.Clone(c.faults.tokens)
}

// begin notes a call, and returns after how many messages it breaks, if ever.
func (f *faults) begin(ctx context.Context, full string) (cut int, err error) {
	method := full[strings.LastIndexByte(full, '/')+1:]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	md, _ := metadata.FromIncomingContext(ctx)
	f.tokens = append(f.tokens, md.Get("authorization")...)
	if f.refuse[method] > 0 {
		f.refuse[method]--
		return 0, status.Error(codes.Unavailable, "there is no leader")
	}
	if next := f.cut[method]; len(next) > 0 {
		cut, f.cut[method] = next[0], next[1:]
	}
	return cut, nil
}

func (f *faults) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if _, err := f.begin(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	if r, ok := req.(*pb.ListJobsRequest); ok && r.PageSize != 1 {
		r.PageSize = pageSize
	}
	return h(ctx, req)
}

func (f *faults) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	cut, err := f.begin(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return h(srv, &cutStream{ServerStream: ss, fromClient: info.IsClientStream, cut: cut > 0, left: cut})
}

// cutStream is a stream that breaks.
type cutStream struct {
	grpc.ServerStream
	fromClient bool // count the client's messages, not the server's
	cut        bool
	left       int // messages
}

// next counts a message and reports whether the stream breaks in its place.
func (s *cutStream) next(fromClient bool) error {
	if !s.cut || fromClient != s.fromClient {
		return nil
	}
	if s.left == 0 {
		return status.Error(codes.Unavailable, "the connection broke")
	}
	s.left--
	return nil
}

func (s *cutStream) RecvMsg(m any) error {
	if err := s.next(true); err != nil {
		return err
	}
	return s.ServerStream.RecvMsg(m)
}

func (s *cutStream) SendMsg(m any) error {
	if err := s.next(false); err != nil {
		return err
	}
	r, ok := m.(*pb.ResultChunk)
	if !ok {
		return s.ServerStream.SendMsg(m)
	}
	for piece := range slices.Chunk(r.Json, resultBytes) {
		if err := s.ServerStream.SendMsg(&pb.ResultChunk{Json: piece}); err != nil {
			return err
		}
	}
	return nil
}
