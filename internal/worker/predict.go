package worker

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// Posteriors serves predictions from the posteriors of jobs. Predictors, with
// their solutions, are kept for as long as there is memory for them, and the
// solutions on disk for as long as there is space.
type Posteriors struct {
	w     *Worker
	disk  *predict.Solutions // nil for none
	slots chan struct{}

	mu   sync.Mutex
	kept []*servedPosterior // used last first

	pb.UnimplementedPosteriorsServer
}

// servedPosterior is a predictor that is kept.
type servedPosterior struct {
	job, sha256, draws string
	info               *dataset.Info
	p                  *predict.Predictor
}

// Bounds on what predictions take. Calls beyond maxComputing are refused, to be
// answered by another worker or later.
const (
	maxComputing       = 64
	predictorBytes     = 2 << 30
	SolutionsDiskBytes = 1 << 30
	progressEvery      = time.Second
)

// NewPosteriors returns the service of a worker.
func NewPosteriors(w *Worker, disk *predict.Solutions) *Posteriors {
	return &Posteriors{w: w, disk: disk, slots: make(chan struct{}, maxComputing)}
}

// Compute predicts rows.
func (s *Posteriors) Compute(r *pb.ComputeRequest, out grpc.ServerStreamingServer[pb.PredictResponse]) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return status.Errorf(codes.ResourceExhausted, "this worker has %d predictions to compute already", maxComputing)
	}
	ctx, req := out.Context(), r.Request
	if req == nil {
		return status.Error(codes.InvalidArgument, "there is no request")
	}
	p, err := s.posterior(out, r)
	if err != nil {
		return err
	}
	if _, err := predict.CheckRequest(req, p.info); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	rows, o := predict.Decode(req)
	if err := p.p.Fits(rows, o); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	var at atomic.Pointer[predict.Progress]
	at.Store(&predict.Progress{Stage: predict.SolutionsStage})
	o.Progress = func(p predict.Progress) { at.Store(&p) }
	done := make(chan struct{})
	var answer []predict.Row
	var stats predict.Stats
	go func() {
		defer close(done)
		answer, stats, err = p.p.Rows(ctx, p.info, rows, o)
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C: // also a heartbeat
			p := at.Load()
			_ = out.Send(&pb.PredictResponse{Progress: &pb.PredictProgress{Stage: p.Stage, Done: int64(p.Done), Total: int64(p.Total)}})
			continue
		case <-done:
		}
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err != nil:
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		return out.Send(predict.Answer(answer, stats, p.p.Draws))
	}
}

// posterior returns the predictor of a job's draws, reading its data if need be.
func (s *Posteriors) posterior(out grpc.ServerStreamingServer[pb.PredictResponse], r *pb.ComputeRequest) (*servedPosterior, error) {
	id := r.Request.Id
	s.mu.Lock()
	for i, k := range s.kept {
		if k.job == id && k.sha256 == r.Sha256 && k.draws == string(r.Psi) {
			s.kept = slices.Insert(slices.Delete(s.kept, i, i+1), 0, k)
			s.mu.Unlock()
			return k, nil
		}
	}
	s.mu.Unlock()
	l, err := s.w.jobWithData(out.Context(), id, r.Sha256)
	defer s.w.trimJobs()
	if err != nil {
		if ctx := out.Context(); ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		code := codes.Internal
		if errors.Is(err, fs.ErrNotExist) {
			code = codes.NotFound
		}
		return nil, status.Errorf(code, "reading the data of a job: %v", err)
	}
	draws, err := predict.DecodeDraws(r.Psi, l.problem.Model.NumParams())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	c := predict.FromSpec(l.spec, l.problem, draws, s.w.Budget)
	c.Solutions = s.disk
	p, err := predict.New(c)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return s.keep(&servedPosterior{job: id, sha256: r.Sha256, draws: string(r.Psi), info: &l.data.Info, p: p}), nil
}

// keep keeps a predictor, unless the same has come to be kept meanwhile, and
// drops those that there is no memory for, those not used longest first.
func (s *Posteriors) keep(k *servedPosterior) *servedPosterior {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.kept {
		if other.job == k.job && other.sha256 == k.sha256 && other.draws == k.draws {
			return other
		}
	}
	s.kept = slices.Insert(s.kept, 0, k)
	total := int64(0)
	for i, other := range s.kept {
		if total += other.p.Bytes(); total > predictorBytes && i > 0 {
			s.kept = s.kept[:i]
			break
		}
	}
	return k
}
