package clienttest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/chains"
	jobspec "github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

type jobsServer struct {
	pb.UnimplementedJobsServer
	*Server
}

// invalid is the answer to a mistake in a field.
func invalid(path, msg string) error {
	st, err := status.New(codes.InvalidArgument, "the request is invalid").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: path, Description: msg}}})
	if err != nil {
		return err
	}
	return st.Err()
}

func (s jobsServer) Submit(_ context.Context, r *pb.SubmitRequest) (*pb.Job, error) {
	spec, err := jobspec.Parse(strings.NewReader(r.Spec), "")
	var field *jobspec.FieldError
	if errors.As(err, &field) {
		return nil, invalid("spec."+field.Path, field.Error())
	}
	if spec.Name == "refused" {
		return nil, invalid("spec.sampler.chains", "4, but this cluster allows 2")
	}
	text, err := spec.YAML()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.client == r.ClientId {
			return clone(j.view), nil
		}
	}
	if r.Data != "" && (s.blobs[r.Data] == nil || !s.blobs[r.Data].complete()) {
		return nil, invalid("data", "there is no such data set")
	}
	n := len(s.jobs) + 1
	j := &job{client: r.ClientId, spec: spec, view: &pb.Job{Id: fmt.Sprintf("%x%06d", 0xa+n%3, n), Name: spec.Name,
		State: pb.JobState_JOB_STATE_QUEUED, Message: "waits for workers", Priority: r.Priority,
		Submitted: timestamppb.New(time.Unix(1_700_000_000+int64(n), 0)), Spec: string(text), Data: &pb.DataInfo{Blob: r.Data}}}
	s.jobs = append(s.jobs, j)
	if !s.Hold {
		s.start(j)
	}
	return clone(j.view), nil
}

func (s jobsServer) Get(_ context.Context, r *pb.GetJobRequest) (*pb.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(r.Id)
	if err != nil {
		return nil, err
	}
	return clone(j.view), nil
}

// List pages two jobs at a time, whatever is asked for.
func (s jobsServer) List(_ context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*pb.Job
	for _, j := range slices.Backward(s.jobs) {
		v := j.view
		if (len(r.States) == 0 || slices.Contains(r.States, v.State)) && strings.Contains(v.Name, r.Name) &&
			(r.Since == nil || v.Submitted.AsTime().After(r.Since.AsTime())) {
			all = append(all, clone(v))
		}
	}
	from := 0
	fmt.Sscan(r.PageToken, &from)
	resp := &pb.ListJobsResponse{Jobs: all[from:min(from+2, len(all))]}
	if from+2 < len(all) {
		resp.NextPageToken = fmt.Sprint(from + 2)
	}
	return resp, nil
}

// act moves a job to a state, unless it has ended.
func (s jobsServer) act(id string, to pb.JobState) (*pb.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(id)
	if err != nil {
		return nil, err
	}
	if j.view.Ended != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has ended", id)
	}
	if j.view.State = to; to == pb.JobState_JOB_STATE_CANCELLED {
		j.view.Ended = timestamppb.Now()
	}
	s.notify()
	return clone(j.view), nil
}

func (s jobsServer) Pause(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return s.act(r.Id, pb.JobState_JOB_STATE_PAUSED)
}

func (s jobsServer) Resume(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return s.act(r.Id, pb.JobState_JOB_STATE_QUEUED)
}

func (s jobsServer) Cancel(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return s.act(r.Id, pb.JobState_JOB_STATE_CANCELLED)
}

func (s jobsServer) Extend(_ context.Context, r *pb.ExtendRequest) (*pb.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(r.Id)
	if err != nil {
		return nil, err
	}
	if j.view.Progress == nil {
		j.view.Progress = &pb.Progress{}
	}
	j.view.Progress.Draws += r.Draws
	return clone(j.view), nil
}

func (s jobsServer) Delete(_ context.Context, r *pb.JobActionRequest) (*pb.DeleteJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(r.Id)
	if err != nil {
		return nil, err
	}
	if j.view.Ended == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has not ended: cancel it first", r.Id)
	}
	s.jobs = slices.DeleteFunc(s.jobs, func(k *job) bool { return k == j })
	return &pb.DeleteJobResponse{}, nil
}

// state returns the run of a job as it is now.
func (s jobsServer) state(id string) (*job, *chains.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(id)
	if err != nil || j.run == nil {
		return j, nil, err
	}
	run := &chains.Run{}
	return j, run, json.Unmarshal(j.run, run)
}

func (s jobsServer) Summary(_ context.Context, r *pb.GetJobRequest) (*pb.SummaryResponse, error) {
	j, run, err := s.state(r.Id)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has no draws yet", r.Id)
	}
	text, err := json.Marshal(report.Summarize(j.spec, j.data, j.model, run, j.wall, "portable"))
	return &pb.SummaryResponse{Json: string(text)}, err
}

// Result sends pieces of a thousand bytes, to have many.
func (s jobsServer) Result(r *pb.GetJobRequest, out pb.Jobs_ResultServer) error {
	j, run, err := s.state(r.Id)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"spec": j.view.Spec, "data": j.data, "run": run, "wall_seconds": j.wall.Seconds(), "instruction_set": "portable"})
	if err != nil {
		return err
	}
	for piece := range slices.Chunk(text, 1000) {
		if err := out.Send(&pb.ResultChunk{Json: piece}); err != nil {
			return err
		}
	}
	return nil
}

// follow calls send at once and after every change until it is done.
func (s jobsServer) follow(ctx context.Context, send func() (done bool, err error)) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if done, err := send(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (s jobsServer) Watch(r *pb.WatchRequest, out pb.Jobs_WatchServer) error {
	return s.follow(out.Context(), func() (bool, error) {
		j, err := s.Get(out.Context(), &pb.GetJobRequest{Id: r.Id})
		if err != nil {
			return false, err
		}
		return j.Ended != nil, out.Send(j)
	})
}

// cutDraws reports whether the batch after which draws are cut off was sent.
func (s jobsServer) cutDraws() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.CutDraws--
	return s.CutDraws == 0
}

func (s jobsServer) Draws(r *pb.DrawsRequest, out pb.Jobs_DrawsServer) error {
	sent := map[int]int{}
	return s.follow(out.Context(), func() (bool, error) {
		_, run, err := s.state(r.Id)
		if err != nil || run == nil {
			return !r.Follow, err
		}
		for c, ch := range run.Chains {
			const batch = 3
			for first := sent[c]; first < len(ch.Draws); first = sent[c] {
				b := &pb.DrawBatch{Chain: int32(c + 1), First: int32(first), Params: int32(run.Plan.Params())}
				for _, psi := range ch.Draws[first:min(first+batch, len(ch.Draws))] {
					for _, x := range psi {
						b.Psi = binary.LittleEndian.AppendUint64(b.Psi, math.Float64bits(x))
					}
					sent[c]++
				}
				if err := out.Send(b); err != nil {
					return false, err
				}
				if s.cutDraws() {
					return false, status.Error(codes.Unavailable, "cut")
				}
			}
		}
		return !r.Follow || run.Phase == chains.Done, nil
	})
}

func (s jobsServer) Logs(r *pb.LogsRequest, out pb.Jobs_LogsServer) error {
	sent, tail := 0, int(r.Tail)
	return s.follow(out.Context(), func() (bool, error) {
		s.mu.Lock()
		j, err := s.find(r.Id)
		var lines []*pb.LogLine
		ended := false
		if err == nil {
			ended = j.view.Ended != nil
			for _, l := range j.logs {
				if r.Chain == 0 || l.Chain == r.Chain {
					lines = append(lines, clone(l))
				}
			}
		}
		s.mu.Unlock()
		if err != nil {
			return false, err
		}
		if tail > 0 {
			sent, tail = max(0, len(lines)-tail), 0
		}
		for _, l := range lines[sent:] {
			if err := out.Send(l); err != nil {
				return false, err
			}
		}
		sent = len(lines)
		return !r.Follow || ended, nil
	})
}
