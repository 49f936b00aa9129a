package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// badPosteriors is a worker's service that gives no answer of use.
type badPosteriors struct {
	pb.UnimplementedPosteriorsServer
	asked  atomic.Int64
	answer func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error
}

func (b *badPosteriors) Compute(r *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error {
	b.asked.Add(1)
	return b.answer(r, s)
}

// startBadWorker connects a worker with such a service until the test ends.
func startBadWorker(t *testing.T, r running, id string, answer func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error) *badPosteriors {
	t.Helper()
	b := &badPosteriors{answer: answer}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) { pb.RegisterPosteriorsServer(s, b) })
	go s.Serve(lis)
	isa, err := cmvp.ISA()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := pb.NewWorkersClient(r.conn).Connect(ctx)
	if err == nil {
		err = c.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: &pb.Hello{Id: id, Address: lis.Addr().String(), Capacity: &pb.Capacity{Cores: 1, InstructionSet: isa}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := c.Recv(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done; s.Stop() })
	return b
}

// Whatever becomes of workers, predictions are those of the one that is right.
func TestPredictSurvivesWorkers(t *testing.T) {
	r := startCoordinator(t)
	startWorker(t, "right", r.address)
	id := submit(t, r, 40)
	jobs := pb.NewJobsClient(r.conn)
	eventually(t, "draws", func() bool {
		j, err := jobs.Get(t.Context(), &pb.GetJobRequest{Id: id})
		return err == nil && j.DrawsSha256 != ""
	})
	req := &pb.PredictRequest{Id: id, Rows: []*pb.Point{{Inputs: []float64{0.1, 0.2}}, {Inputs: []float64{1, -1}}}, Targets: []float64{0, 1}, Progress: true}
	predict := func() (*pb.PredictResponse, error) {
		s, err := pb.NewPredictionsClient(r.conn).Predict(t.Context(), req)
		for err == nil {
			var m *pb.PredictResponse
			if m, err = s.Recv(); err == nil && len(m.Rows) > 0 {
				return m, nil
			}
		}
		return nil, err
	}
	want, err := predict()
	if err != nil {
		t.Fatal(err)
	}
	var bad []*badPosteriors
	for i, answer := range []func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error{
		func(_ *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error { // dies at work
			_ = s.Send(&pb.PredictResponse{Progress: &pb.PredictProgress{Done: 1, Total: 2}})
			return status.Error(codes.Unavailable, "killed")
		},
		func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error { // has enough to do
			return status.Error(codes.ResourceExhausted, "busy")
		},
		func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error { return nil }, // says nothing
		func(_ *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error { // forgets a row
			return s.Send(&pb.PredictResponse{Rows: []*pb.PredictedRow{{Mean: 1}}})
		},
	} {
		bad = append(bad, startBadWorker(t, r, fmt.Sprintf("bad-%d", i), answer))
	}
	eventually(t, "five workers", func() bool {
		l, err := pb.NewWorkersClient(r.conn).List(t.Context(), &pb.ListWorkersRequest{})
		return err == nil && len(l.Workers) == 5
	})
	// Calls at once go to the least busy ones: all of them are asked.
	eventually(t, "every worker's being asked", func() bool {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got, err := predict()
				if err != nil {
					t.Error(err)
					return
				}
				if !proto.Equal(got, want) {
					t.Errorf("after failures %v, before %v", got, want)
				}
			})
		}
		wg.Wait()
		for _, b := range bad {
			if b.asked.Load() == 0 {
				return t.Failed()
			}
		}
		return true
	})
}
