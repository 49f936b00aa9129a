package coordinator

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Bounds of what is sent.
const (
	watchEvery      = 200 * time.Millisecond // at most one message in
	queueEvery      = 2 * time.Second        // that it is looked what a job that is watched waits for
	chunkBytes      = 512 << 10
	drawsAMessage   = 1000
	maxSummaryDraws = 1 << 20
)

// result is what is known of a job, enough to write all files of ulisse run.
type result struct {
	Spec           string        `json:"spec"`
	Data           *dataset.Info `json:"data"`
	Run            *chains.Run   `json:"run"`
	WallSeconds    float64       `json:"wall_seconds"`
	InstructionSet string        `json:"instruction_set"`
	State          string        `json:"state,omitempty"` // of a job that has not come to its end
}

// result returns a job's result, and its specification.
func (s *jobsService) result(ctx context.Context, r *pb.GetJobRequest) (out *result, spec *job.Spec, err error) {
	if err := s.c.fresh(ctx, r.Stale); err != nil {
		return nil, nil, err
	}
	err = s.c.jobs.with(r.Id, func(j *followed) (err error) {
		if j.Run == nil {
			return status.Errorf(codes.FailedPrecondition, "job %s has no draws yet: its state is %s", r.Id, j.Job.Phase)
		}
		out = &result{Spec: j.Job.Spec, Data: j.Job.Info, Run: copyRun(j.Run), WallSeconds: j.Job.Elapsed(time.Now()).Seconds(), InstructionSet: j.Job.InstructionSet}
		if j.Run.Stopped == nil {
			out.State = stateText(j.Job)
		}
		spec, err = j.Spec()
		return err
	})
	return out, spec, err
}

// stateText says how a job stands, and why it failed.
func stateText(j *state.Job) string {
	if j.Phase == state.Failed && j.Message != "" {
		return fmt.Sprintf("%s: %s", j.Phase, j.Message)
	}
	return string(j.Phase)
}

// copyRun returns what results need of a run, which does not change when the
// run does.
func copyRun(r *chains.Run) *chains.Run {
	c := r.Snapshot()
	for i := range c.Chains {
		ch := &c.Chains[i]
		ch.Beyond, ch.Stats = nil, chains.Stats{}
		if r.MinDraws() > 0 { // else they are all that is known
			ch.Windows = nil
		}
	}
	c.Stages = nil
	if c.Certificate != nil {
		c.Certificate = copyRun(c.Certificate)
	}
	return c
}

// keptDraws returns what results need of a run that ends after a number of draws of
// each chain.
func keptDraws(r *chains.Run, draws int) *chains.Run {
	c := copyRun(r)
	for i := range c.Chains {
		c.Chains[i].Draws = c.Chains[i].Draws[:draws]
	}
	return c
}

// Summary returns the summary of a job at its draws so far.
func (s *jobsService) Summary(ctx context.Context, r *pb.GetJobRequest) (*pb.SummaryResponse, error) {
	res, spec, err := s.result(ctx, r)
	if err != nil {
		return nil, err
	}
	m, err := spec.KernelModel(res.Data)
	if err != nil {
		return nil, err
	}
	if res.Run.MinDraws()*len(res.Run.Chains) > maxSummaryDraws {
		return nil, status.Errorf(codes.FailedPrecondition, "more than %d draws: fetch them, and summarise them there", maxSummaryDraws)
	}
	wall := time.Duration(res.WallSeconds * float64(time.Second))
	sum := report.Summarize(spec, res.Data, m, res.Run, wall, res.InstructionSet)
	sum.State = res.State
	text, err := json.Marshal(sum)
	if err != nil {
		return nil, err
	}
	return &pb.SummaryResponse{Json: string(text)}, nil
}

// Results that are under way at a time, and the least that a client has to take of one
// in a time.
const (
	mostResults  = 4
	resultStalls = 30 * time.Second // for each chunk
)

// Result sends all that is known of a job.
func (s *jobsService) Result(r *pb.GetJobRequest, out grpc.ServerStreamingServer[pb.ResultChunk]) error {
	select {
	case s.c.results <- struct{}{}: // each is as large as its draws
		defer func() { <-s.c.results }()
	case <-out.Context().Done():
		return out.Context().Err()
	}
	res, _, err := s.result(out.Context(), r)
	if err != nil {
		return err
	}
	text, err := json.Marshal(res)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	for chunk := range slices.Chunk(text, chunkBytes) {
		go func() { sent <- out.Send(&pb.ResultChunk{Json: chunk}) }() // it ends with the call
		select {
		case err := <-sent:
			if err != nil {
				return err
			}
		case <-time.After(s.c.cfg.resultStalls):
			return status.Errorf(codes.DeadlineExceeded, "the client has taken nothing of the result for %v", s.c.cfg.resultStalls)
		}
	}
	return nil
}

// Watch sends a job whenever it changes, and a queued one whenever it waits for something else.
func (s *jobsService) Watch(r *pb.WatchRequest, out grpc.ServerStreamingServer[pb.Job]) error {
	ctx := out.Context()
	if err := s.c.catchUp(ctx); err != nil {
		return err
	}
	version, told := uint64(math.MaxUint64), ""
	for {
		var now *pb.Job
		ended, changed := false, false
		look, cancel := context.WithTimeout(ctx, queueEvery)
		err := s.c.jobs.wait(look, r.Id, func(j *followed) (bool, error) {
			changed = j.Job.Version != version
			if changed || j.Job.Phase == state.Queued {
				now = pbJob(&j.Follower)
			}
			version, ended = j.Job.Version, j.Job.Phase.Ended()
			return changed, nil
		})
		cancel()
		if err != nil && (ctx.Err() != nil || look.Err() == nil) {
			return err
		}
		if now != nil && unexplained(now) {
			now.Message = s.c.queueReason(auth.From(ctx))
		}
		if now == nil || !changed && now.Message == told {
			continue
		}
		told = now.Message
		if err := out.Send(now); err != nil || ended {
			return err
		}
		select { // a job that changes all the time is sent now and then
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Draws sends the kept draws of a job.
func (s *jobsService) Draws(r *pb.DrawsRequest, out grpc.ServerStreamingServer[pb.DrawBatch]) error {
	ctx := out.Context()
	if err := s.c.catchUp(ctx); err != nil {
		return err
	}
	var sent []int // of each chain
	restarts := 0
	for {
		var run *chains.Run
		var ended bool
		err := s.c.jobs.wait(ctx, r.Id, func(j *followed) (bool, error) {
			ended = j.Job.Phase.Ended()
			if j.Run == nil {
				return ended || !r.Follow, nil
			}
			if sent == nil {
				sent, restarts = make([]int, len(j.Run.Chains)), len(j.Run.Restarts)
			}
			if len(j.Run.Restarts) > restarts {
				return false, status.Error(codes.Aborted, "a chain of the job diverged, and all have begun again with a smaller step: the draws so far count no more, ask for them anew")
			}
			run = copyRun(j.Run)
			more := ended || !r.Follow
			for i := range run.Chains {
				more = more || len(run.Chains[i].Draws) > sent[i]
			}
			return more, nil
		})
		if err != nil {
			return err
		}
		if run != nil {
			if err := sendDraws(run, sent, out); err != nil {
				return err
			}
		}
		if ended || !r.Follow {
			return nil
		}
	}
}

// sendDraws sends the draws that were not sent yet.
func sendDraws(run *chains.Run, sent []int, out grpc.ServerStreamingServer[pb.DrawBatch]) error {
	for i := range run.Chains {
		draws := run.Chains[i].Draws
		for sent[i] < len(draws) {
			batch := draws[sent[i]:min(len(draws), sent[i]+drawsAMessage)]
			if err := out.Send(drawBatch(i+1, sent[i], batch)); err != nil {
				return err
			}
			sent[i] += len(batch)
		}
	}
	return nil
}

func drawBatch(chain, first int, draws [][]float64) *pb.DrawBatch {
	b := &pb.DrawBatch{Chain: int32(chain), First: int32(first), Params: int32(len(draws[0]))}
	for _, d := range draws {
		for _, x := range d {
			b.Psi = binary.LittleEndian.AppendUint64(b.Psi, math.Float64bits(x))
		}
	}
	return b
}
