package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// predictionsService is the Predictions service: it hands rows to workers to
// predict. It keeps nothing but the draws that were last averaged over.
type predictionsService struct {
	pb.UnimplementedPredictionsServer
	c *Coordinator

	mu    sync.Mutex
	busy  map[string]int // predictions under way, by worker
	draws []*thinned     // used last first
}

// thinned are the draws of a job that predictions are averaged over.
type thinned struct {
	job  string
	kept int // the first so many of each chain, which do not change unless the run begins again
	run  int // how often it did
	want int
	psi  [][]float64
}

// maxThinned bounds the choices of draws that are kept.
const maxThinned = 16

func newPredictionsService(c *Coordinator) *predictionsService {
	return &predictionsService{c: c, busy: map[string]int{}}
}

// Predict has rows predicted by a worker, or by the next one if that is lost.
func (s *predictionsService) Predict(r *pb.PredictRequest, out grpc.ServerStreamingServer[pb.PredictResponse]) error {
	ctx := out.Context()
	req, isa, err := s.request(ctx, r)
	if err != nil {
		return err
	}
	workers, err := s.c.knownWorkers(onward(ctx))
	if err != nil {
		return err
	}
	var last error
	for tried := map[string]bool{}; ; {
		w := s.choose(workers, r.Id, isa, tried)
		if w == nil {
			if last == nil {
				return status.Error(codes.Unavailable, "there is no worker to predict with: try again")
			}
			return status.Error(codes.Unavailable, "no worker could predict; the last one: "+status.Convert(last).Message())
		}
		tried[w.Id] = true
		answer, err := s.compute(ctx, w.Address, req, out)
		s.release(w.Id)
		switch {
		case err == nil:
			return out.Send(answer)
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		}
		switch status.Code(err) {
		case codes.InvalidArgument, codes.FailedPrecondition: // another would say the same
			return err
		}
		s.c.log.Warn("a worker did not predict", "job", r.Id, "worker", w.Id, "error", err)
		last = err
	}
}

// request checks a request and adds the draws.
func (s *predictionsService) request(ctx context.Context, r *pb.PredictRequest) (req *pb.ComputeRequest, isa string, err error) {
	if err := s.c.fresh(ctx, false); err != nil {
		return nil, "", err
	}
	req = &pb.ComputeRequest{Request: r}
	err = s.c.jobs.with(r.Id, func(f *followed) error {
		j := f.Job
		if f.Run == nil || f.Run.Prepared == nil || j.Info == nil {
			return status.Errorf(codes.FailedPrecondition, "job %s has nothing to predict from yet: its state is %s", r.Id, j.Phase)
		}
		if field, err := predict.CheckRequest(r, j.Info); err != nil {
			return badField(field, err.Error())
		}
		psi, err := s.thin(&f.Follower, int(r.Kept), int(r.Draws))
		if err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		req.Sha256, isa = j.Info.SHA256, j.InstructionSet
		req.Psi = predict.EncodeDraws(psi)
		return nil
	})
	return req, isa, err
}

// thin returns draws of a job, as many as are wanted, of the first kept ones of each chain, or
// of all if kept is 0.
func (s *predictionsService) thin(f *state.Follower, kept, want int) ([][]float64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := f.Run.MinDraws()
	if kept > have {
		return nil, fmt.Errorf("kept: %d draws of each chain, where there are %d", kept, have)
	}
	key := thinned{job: f.Job.ID, kept: cmp.Or(kept, have), run: len(f.Run.Restarts), want: want}
	for i, t := range s.draws {
		if t.job == key.job && t.kept == key.kept && t.run == key.run && t.want == want {
			s.draws = slices.Insert(slices.Delete(s.draws, i, i+1), 0, t)
			return t.psi, nil
		}
	}
	chains, provisional, err := report.Points(f.Run)
	if err != nil {
		return nil, err
	}
	for c := range chains {
		if kept > 0 {
			chains[c] = chains[c][:kept]
		}
	}
	key.psi = predict.Thin(chains, want)
	if provisional != "" { // there may soon be better
		return key.psi, nil
	}
	s.draws = slices.Insert(s.draws, 0, &key)
	s.draws = s.draws[:min(len(s.draws), maxThinned)]
	return key.psi, nil
}

// choose returns the worker to ask next, nil if all have been tried, and counts
// it as busy: one with the instruction set that the job was computed with, if
// there is one, whose bits are the same. It is the least busy of these; of several,
// always the same one for a job, since it keeps what it has computed.
func (s *predictionsService) choose(workers []*pb.Worker, job, isa string, tried map[string]bool) *pb.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *pb.Worker
	for _, w := range workers {
		if !w.Connected || w.Draining || w.Address == "" || tried[w.Id] {
			continue
		}
		if best == nil || s.compare(w, best, job, isa) < 0 {
			best = w
		}
	}
	if best != nil {
		s.busy[best.Id]++
	}
	return best
}

func (s *predictionsService) compare(a, b *pb.Worker, job, isa string) int {
	other := func(w *pb.Worker) int {
		if w.Capacity.GetInstructionSet() == isa {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(other(a), other(b)), cmp.Compare(s.busy[a.Id], s.busy[b.Id]), cmp.Compare(affinity(job, a.Id), affinity(job, b.Id)), cmp.Compare(a.Id, b.Id))
}

// affinity orders the workers for a job, by rendezvous hashing.
func affinity(job, worker string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, job+"\x00"+worker)
	return h.Sum64()
}

func (s *predictionsService) release(worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[worker]--; s.busy[worker] == 0 {
		delete(s.busy, worker)
	}
}

// compute asks a worker, passes its progress on, and returns its answer.
func (s *predictionsService) compute(ctx context.Context, address string, req *pb.ComputeRequest, out grpc.ServerStreamingServer[pb.PredictResponse]) (*pb.PredictResponse, error) {
	conn, err := s.c.toWorkers.Conn(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := pb.NewPosteriorsClient(conn).Compute(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		m, err := in.Recv()
		if err != nil {
			if err == io.EOF {
				err = status.Error(codes.Unavailable, "it sent no rows")
			}
			return nil, err
		}
		if len(m.Rows) > 0 {
			if len(m.Rows) != len(req.Request.Rows) {
				return nil, status.Errorf(codes.Internal, "it sent %d rows for %d", len(m.Rows), len(req.Request.Rows))
			}
			return m, nil
		}
		if m.Progress != nil && req.Request.Progress {
			if err := out.Send(&pb.PredictResponse{Progress: m.Progress}); err != nil {
				return nil, err
			}
		}
	}
}
