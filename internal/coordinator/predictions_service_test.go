package coordinator

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// oracle is a worker that predicts: its answers are those of a function.
type oracle struct {
	pb.UnimplementedPosteriorsServer
	answer func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error
	mu     sync.Mutex
	asked  []*pb.ComputeRequest
}

func (o *oracle) Compute(r *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error {
	o.mu.Lock()
	o.asked = append(o.asked, r)
	o.mu.Unlock()
	return o.answer(r, s)
}

func (o *oracle) calls() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

// addOracle makes a worker that predicts known.
func (s *served) addOracle(id, instructionSet string, answer func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error) *oracle {
	s.t.Helper()
	o := &oracle{answer: answer}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	g, _ := rpc.NewServer(nil, func(g *grpc.Server) { pb.RegisterPosteriorsServer(g, o) })
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	s.t.Cleanup(func() { g.Stop(); <-done })
	h := hello(id)
	h.Address, h.Capacity.InstructionSet = lis.Addr().String(), instructionSet
	connect(s.t, s.workers, h)
	within(s.t, id+" is known", func() bool {
		return slices.ContainsFunc(s.Coordinator.workers.list(), func(w *pb.Worker) bool { return w.Id == id && w.Connected })
	})
	return o
}

// sums answers each row with the sum of its inputs.
func sums(r *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error {
	out := &pb.PredictResponse{}
	for _, p := range r.Request.Rows {
		out.Rows = append(out.Rows, &pb.PredictedRow{Mean: p.Inputs[0] + p.Inputs[1]})
	}
	if err := s.Send(&pb.PredictResponse{Progress: &pb.PredictProgress{Stage: "rows", Done: 1, Total: 2}}); err != nil {
		return err
	}
	return s.Send(out)
}

// ended leaves a job that has ended in the state, computed with avx2.
func (s *served) ended() string {
	s.t.Helper()
	stop := s.lead()
	w := connect(s.t, s.workers, hello("sampler"))
	w.work()
	id := s.submit(testSpec(40, 60, 10))
	s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	w.cancel()
	<-w.ended
	within(s.t, "the sampler is gone", func() bool { return !s.Coordinator.workers.list()[0].Connected })
	stop()
	return id
}

// predict returns the rows that a coordinator answers with, and how often it told
// of its progress.
func (s *served) predict(r *pb.PredictRequest) (means []float64, progress int, err error) {
	in, err := s.predictions.Predict(s.t.Context(), r)
	for err == nil {
		var m *pb.PredictResponse
		if m, err = in.Recv(); err != nil {
			break
		}
		if m.Progress != nil {
			progress++
		}
		for _, row := range m.Rows {
			means = append(means, row.Mean)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return means, progress, err
}

// Rows go to a worker with the draws of the job, all of them or as many as are
// asked for; workers that fail are passed over; those that would compute other
// bits come last; an error of the request is told at once.
func TestPredict(t *testing.T) {
	s := serve(t, Config{})
	id := s.ended()
	req := func() *pb.PredictRequest {
		return &pb.PredictRequest{Id: id, Rows: []*pb.Point{{Inputs: []float64{1, 2}}, {Inputs: []float64{3, 4}}}}
	}
	_, _, err := s.predict(req())
	wantCode(t, "without a worker", err, codes.Unavailable, "no worker to predict")

	other := s.addOracle("a-other", "portable", sums)
	if got, _, err := s.predict(req()); err != nil || !slices.Equal(got, []float64{3, 7}) {
		t.Errorf("%v %v", got, err)
	}
	right := s.addOracle("z-right", "avx2", sums)
	for range 3 {
		r := req()
		r.Progress = true
		if got, progress, err := s.predict(r); err != nil || !slices.Equal(got, []float64{3, 7}) || progress != 1 {
			t.Errorf("%v, %d times told of progress, %v", got, progress, err)
		}
	}
	if other.calls() != 1 || right.calls() != 3 {
		t.Errorf("asked %d and %d times", other.calls(), right.calls())
	}
	asked := right.asked[0]
	if asked.Sha256 != testInfo().SHA256 || len(asked.Psi) == 0 || len(asked.Psi)%(8*params) != 0 {
		t.Errorf("asked with %d bytes of draws of the data %s", len(asked.Psi), asked.Sha256)
	}
	first := math.Float64frombits(binary.LittleEndian.Uint64(asked.Psi[len(asked.Psi)-8*params:]))
	found := false
	for i := 11; i <= 50; i++ {
		found = found || draw(2, i)[0] == first || draw(1, i)[0] == first
	}
	if !found {
		t.Errorf("%v is no draw of the job", first)
	}

	refuse := s.addOracle("b-refuses", "avx2", func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error {
		return status.Error(codes.Unavailable, "killed")
	})
	silent := s.addOracle("c-silent", "avx2", func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error { return nil })
	short := s.addOracle("d-short", "avx2", func(_ *pb.ComputeRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error {
		return s.Send(&pb.PredictResponse{Rows: []*pb.PredictedRow{{Mean: 1}}})
	})
	within(t, "all are asked", func() bool {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got, _, err := s.predict(req()); err != nil || !slices.Equal(got, []float64{3, 7}) {
					t.Errorf("%v %v", got, err)
				}
			})
		}
		wg.Wait()
		return refuse.calls() > 0 && silent.calls() > 0 && short.calls() > 0 || t.Failed()
	})
}

// What no worker could answer is refused before one is asked.
func TestPredictIsChecked(t *testing.T) {
	s := serve(t, Config{})
	id := s.ended()
	asked := s.addOracle("w", "avx2", sums)
	_, _, err := s.predict(&pb.PredictRequest{Id: id, Rows: []*pb.Point{{Inputs: []float64{1}}}})
	wantCode(t, "a row of another length", err, codes.InvalidArgument)
	_, _, err = s.predict(&pb.PredictRequest{Id: "unknown", Rows: []*pb.Point{{Inputs: []float64{1, 2}}}})
	wantCode(t, "an unknown job", err, codes.NotFound)
	keep(t, s.Coordinator, &state.Submit{ID: "queued", Chains: 1})
	_, _, err = s.predict(&pb.PredictRequest{Id: "queued", Rows: []*pb.Point{{Inputs: []float64{1, 2}}}})
	wantCode(t, "a job that has not ended", err, codes.FailedPrecondition, "queued")
	if n := asked.calls(); n != 0 {
		t.Errorf("a worker was asked %d times", n)
	}
	asked.answer = func(*pb.ComputeRequest, grpc.ServerStreamingServer[pb.PredictResponse]) error {
		return status.Error(codes.FailedPrecondition, "K is singular")
	}
	s.addOracle("v", "avx2", asked.answer)
	_, _, err = s.predict(&pb.PredictRequest{Id: id, Rows: []*pb.Point{{Inputs: []float64{1, 2}}}})
	wantCode(t, "what no worker can do", err, codes.FailedPrecondition, "singular")
}

// The draws of a few jobs are kept, those that were used last.
func TestThinnedDrawsAreKept(t *testing.T) {
	s := newPredictionsService(nil)
	f := &state.Follower{Job: &state.Job{ID: "a", DrawsSHA256: "x"}, Run: referenceRun(t, testSpec(20, 30, never), 20)}
	thin := func(kept, want int) [][]float64 {
		t.Helper()
		psi, err := s.thin(f, kept, want)
		if err != nil {
			t.Fatal(err)
		}
		return psi
	}
	first := thin(0, 10)
	if len(first) != 10 || &thin(0, 10)[0] != &first[0] {
		t.Errorf("%d draws, thinned again", len(first))
	}
	for n := range maxThinned {
		thin(0, n+11)
	}
	if len(s.draws) != maxThinned || &thin(0, 10)[0] == &first[0] {
		t.Errorf("%d are kept", len(s.draws))
	}
}

// Of a job that goes on the draws are those that the request names, however far it has come
// meanwhile.
func TestThinnedDrawsOfAJobThatGoesOn(t *testing.T) {
	s := newPredictionsService(nil)
	early := &state.Follower{Job: &state.Job{ID: "a"}, Run: referenceRun(t, testSpec(20, 30, never), 10)}
	late := &state.Follower{Job: &state.Job{ID: "a"}, Run: referenceRun(t, testSpec(20, 30, never), 20)}
	want, err := s.thin(early, 0, 8)
	if err != nil {
		t.Fatal(err)
	}
	kept := early.Run.MinDraws()
	s.draws = nil
	got, err := s.thin(late, kept, 8)
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) || late.Run.MinDraws() <= kept {
		t.Errorf("the draws have changed: %v", err)
	}
	if _, err := s.thin(early, kept+1, 8); err == nil || !strings.Contains(err.Error(), "where there are") {
		t.Error(err)
	}
}
