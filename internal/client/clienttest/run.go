package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	jobspec "github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// job is a job and all that is known of it.
type job struct {
	view   *pb.Job
	client string
	spec   *jobspec.Spec
	data   *dataset.Info
	model  posterior.Model
	run    []byte // chains.Run as JSON, at the last event
	wall   time.Duration
	logs   []*pb.LogLine
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }

func grpcToken(ctx context.Context) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get("authorization")
}

// find returns a job; s.mu is held.
func (s *Server) find(id string) (*job, error) {
	for _, j := range s.jobs {
		if j.view.Id == id {
			return j, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no job %q", id)
}

// Change changes a job's view and tells its watchers.
func (s *Server) Change(id string, f func(*pb.Job)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(id)
	if err != nil {
		s.t.Error(err)
		return
	}
	f(j.view)
	s.notify()
}

// AddLog adds a line to a job's log.
func (s *Server) AddLog(id string, line *pb.LogLine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(id)
	if err != nil {
		s.t.Error(err)
		return
	}
	j.logs = append(j.logs, line)
	s.notify()
}

// Run runs a job that was held, in the background.
func (s *Server) Run(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, err := s.find(id); err != nil {
		s.t.Error(err)
	} else {
		s.start(j)
	}
}

func (s *Server) start(j *job) {
	s.work.Go(func() {
		if err := s.sample(j); err != nil && s.ctx.Err() == nil {
			s.Change(j.view.Id, func(v *pb.Job) {
				v.State, v.Message, v.Ended = pb.JobState_JOB_STATE_FAILED, err.Error(), timestamppb.Now()
			})
		}
	})
}

// sample runs a job to its end as ulisse run would.
func (s *Server) sample(j *job) error {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return err
	}
	budget := parallel.NewBudget(1)
	spec := *j.spec
	if b := j.view.Data.GetBlob(); b != "" { // the table is where workers keep it
		spec.Data.Path = filepath.Join(dir, "data")
		s.mu.Lock()
		text := bytes.Clone(s.blobs[b].bytes)
		s.mu.Unlock()
		if err := report.WriteFile(spec.Data.Path, writes(text)); err != nil {
			return err
		}
	}
	ds, err := spec.Load(s.ctx, nil, budget)
	if err != nil {
		return err
	}
	p, err := spec.Problem(ds)
	if err != nil {
		return err
	}
	s.mu.Lock()
	j.data, j.model = &ds.Info, p.Model
	s.mu.Unlock()
	plan := spec.Plan(p.Model.Names(), ds.N())
	d := driver.New(driver.Config{Spec: &spec, Problem: p, Plan: &plan, Budget: budget, Observe: func(o runlog.Observation) {
		s.AddLog(j.view.Id, &pb.LogLine{Time: timestamppb.Now(), Chain: int32(o.Chain), Worker: "w-alpha",
			Text: fmt.Sprintf(`{"msg":"gradient","chain":%d,"iter":%d}`, o.Chain, o.Iter)})
	}, Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
	_, _, err = local.Run(s.ctx, local.Config{Plan: plan, Driver: d, Budget: budget, Journal: filepath.Join(dir, "journal"),
		Watch: func(v local.View) { s.event(j, v) }})
	return err
}

// event takes in what an event changed.
func (s *Server) event(j *job, v local.View) {
	run, err := json.Marshal(v.Run)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	j.run, j.wall = run, v.Elapsed
	w := j.view
	w.Data.N, w.Data.D, w.Data.Target, w.Data.Inputs = int64(j.data.N()), int32(j.data.D()), j.data.Target, j.data.InputNames
	w.Started, w.Message = timestamppb.Now(), ""
	w.State = map[chains.Phase]pb.JobState{chains.Warmup: pb.JobState_JOB_STATE_WARMUP, chains.Sampling: pb.JobState_JOB_STATE_SAMPLING}[v.Run.Phase]
	pr := &pb.Progress{Rhat: v.Convergence.RHat, Ess: v.Convergence.ESS, JudgedDraws: int32(v.Convergence.Draws),
		Draws: int32(v.Run.Plan.Draws), MaxDraws: int32(v.Run.Plan.MaxDraws), ActiveSeconds: v.Elapsed.Seconds()}
	for c, ch := range v.Run.Chains {
		it := 0.0
		if ch.Cost.Solves > 0 {
			it = float64(ch.Cost.Iterations) / float64(ch.Cost.Solves)
		}
		pr.Chains = append(pr.Chains, &pb.ChainProgress{Chain: int32(c + 1), Warmup: int32(ch.Warmup), Draws: int32(len(ch.Draws)),
			SolverIterations: it, Worker: "w-alpha", Group: []string{"w-alpha", "w-beta"}, Attempt: 1, Seconds: ch.Cost.Seconds})
	}
	w.Progress = pr
	if st := v.Run.Stopped; st != nil {
		w.Ended, w.StopReason, w.DrawsSha256 = timestamppb.Now(), string(st.Reason), report.DrawsSHA256(v.Run)
		w.State = pb.JobState_JOB_STATE_UNCONVERGED
		if st.Reason == chains.Converged {
			w.State = pb.JobState_JOB_STATE_CONVERGED
		}
	}
}

// Newest returns the id of the job that was submitted last.
func (s *Server) Newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[len(s.jobs)-1].view.Id
}

// Job returns a job as it is.
func (s *Server) Job(id string) (*pb.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return clone(j.view), nil
}
