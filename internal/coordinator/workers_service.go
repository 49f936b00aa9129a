package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// nodeName is what the id of a worker or of a coordinator looks like.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Limits of what workers say.
const (
	maxDriving = 10_000           // chains that a worker says it drives
	maxFailure = 4096             // bytes of the reason why a job cannot go on
	awaitMost  = 20 * time.Second // that Await holds a call that has nothing to say
)

// workersService is the Workers service.
type workersService struct {
	pb.UnimplementedWorkersServer
	c *Coordinator
}

// Connect is a worker's session with the leader.
func (s *workersService) Connect(stream grpc.BidiStreamingServer[pb.WorkerMessage, pb.CoordinatorMessage]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := first.GetHello()
	if err := checkHello(h); err != nil {
		return err
	}
	who := auth.From(stream.Context())
	if who.Name != "" && who.Name != h.Id {
		return status.Errorf(codes.PermissionDenied, "the certificate is that of the worker %s, not of %s: give --id %s, or a certificate that is shared", who.Name, h.Id, who.Name)
	}
	if !s.c.node.IsLeader() {
		return s.c.notLeader()
	}
	ses := newSession(who.Peer())
	if !s.c.workers.connect(h, ses, time.Now()) {
		return status.Errorf(codes.AlreadyExists, "there is a worker %s already, which shows something else: give another --id", h.Id)
	}
	s.c.log.Info("worker connected", "worker", h.Id, "address", h.Address, "cores", h.Capacity.GetCores(), "instruction_set", h.Capacity.GetInstructionSet())
	defer func() {
		ses.end()
		s.c.workers.disconnect(h.Id, ses, time.Now())
		s.c.log.Info("worker disconnected", "worker", h.Id)
	}()
	if err := stream.SendHeader(nil); err != nil { // tells the worker that it is in
		return err
	}
	received := make(chan error, 1)
	go func() { received <- s.receive(h.Id, stream) }() // ends with the stream
	return s.serve(ses, stream, received)
}

// checkHello says what is wrong with how a worker introduces itself.
func checkHello(h *pb.Hello) error {
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "a worker has to say hello first")
	case !nodeName.MatchString(h.Id):
		return badField("id", "a worker needs an id of letters, digits, '.', '_' and '-', 100 at most")
	case len(h.Process) > 100:
		return badField("process", "what tells a worker's process has 100 characters at most")
	case len(h.Driving) > maxDriving || slices.ContainsFunc(h.Driving, func(p *pb.Placement) bool { return p.Chain < 0 }):
		return badField("driving", fmt.Sprintf("a worker drives %d chains at most, which are numbered from 0", maxDriving))
	}
	return nil
}

// receive takes what a worker says until its stream ends: with nil, if the worker
// has ended it.
func (s *workersService) receive(id string, stream grpc.BidiStreamingServer[pb.WorkerMessage, pb.CoordinatorMessage]) error {
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case m.GetBeat() != nil:
			s.c.workers.beat(id, m.GetBeat(), time.Now())
		case m.GetRelease() != nil:
			s.c.workers.release(id, m.GetRelease())
		case m.GetChecked() != nil:
			s.c.workers.checked(id, m.GetChecked())
		}
	}
}

// serve sends a worker what there is to tell it, until its session ends.
func (s *workersService) serve(ses *session, stream grpc.BidiStreamingServer[pb.WorkerMessage, pb.CoordinatorMessage], received <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case m := <-ses.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case err := <-received:
			return err
		case <-ses.done:
			return status.Error(codes.Aborted, "the worker has connected anew")
		case <-tick.C:
			if !s.c.node.IsLeader() {
				return s.c.notLeader()
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Report takes events of a run from a driver.
func (s *workersService) Report(ctx context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	at, err := s.placement(r)
	if err != nil {
		return nil, err
	}
	s.disagreements(ctx, r, at)
	if r.Failure != "" && r.Elsewhere {
		reason := r.Failure[:min(len(r.Failure), maxFailure)]
		s.c.log.Warn("a worker cannot go on with a job: another one is tried", "job", r.Job, "chain", r.Chain, "worker", at.Worker, "error", reason)
		s.c.workers.fail(r.Job, at.Worker, reason, time.Now())
		return &pb.ReportResponse{}, nil
	}
	if r.Failure != "" {
		_, err := s.c.apply(ctx, &state.Fail{Job: r.Job, Chain: int(r.Chain), Attempt: r.Attempt, Message: r.Failure[:min(len(r.Failure), maxFailure)]})
		if err == nil {
			s.c.log.Warn("job failed", "job", r.Job, "worker", r.Worker, "error", r.Failure)
		}
		return &pb.ReportResponse{}, err
	}
	if r.Loaded != nil {
		if err := s.loaded(ctx, r); err != nil {
			return nil, err
		}
	}
	if len(r.Events) == 0 {
		return &pb.ReportResponse{}, nil
	}
	if decided, err := s.settings(ctx, r); decided || err != nil {
		return &pb.ReportResponse{}, err
	}
	cmd := &state.Report{Job: r.Job, Chain: int(r.Chain), Attempt: r.Attempt, Events: r.Events, Brief: true}
	again := s.c.candidate(r, at.Worker)
	if _, err = s.c.apply(ctx, cmd); errors.Is(err, cluster.ErrMixedVersions) {
		cmd.Brief = false
		_, err = s.c.apply(ctx, cmd)
	}
	if err == nil {
		s.c.workers.heard(r.Job, at.Worker)
		if again != nil {
			s.c.workers.check(again)
		}
	}
	return &pb.ReportResponse{}, err
}

// settings takes what a driver has computed at a barrier in place of the leader, and reports
// whether the events were that.
func (s *workersService) settings(ctx context.Context, r *pb.ReportRequest) (bool, error) {
	if r.Chain != adaptingLane || len(r.Events) != 1 {
		return false, nil
	}
	if e, err := chains.DecodeEvent(r.Events[0]); err != nil || e.Settings == nil {
		return false, nil // Report says what is wrong with it
	}
	d := &state.Decide{Job: r.Job, Event: r.Events[0]}
	err := s.c.jobs.with(r.Job, func(j *followed) error {
		d.Extends = j.Job.Extends
		if s.c.rounds(j.Job) {
			return state.ErrPhase // another leader asked
		}
		return nil
	})
	if err == nil {
		_, err = s.c.apply(ctx, d)
	}
	return true, err
}

// adaptingLane is the lane whose driver computes the settings of a window where the leader
// cannot: one that has a driver whenever there is a barrier.
const adaptingLane = 1

// placement returns that of the driver who reports.
func (s *workersService) placement(r *pb.ReportRequest) (at state.Placement, err error) {
	err = s.c.jobs.with(r.Job, func(j *followed) error {
		err := j.Job.Knows(int(r.Chain), r.Attempt, r.Secret)
		if err == nil {
			at = j.Job.Placements[r.Chain]
		}
		return err
	})
	return at, err
}

// loaded takes what the first driver tells of the data, from which the plan
// follows.
func (s *workersService) loaded(ctx context.Context, r *pb.ReportRequest) error {
	info := dataset.InfoOf(r.Loaded.GetData())
	if err := info.Check(); err != nil {
		return badField("loaded", err.Error())
	}
	var plan *chains.Plan
	err := s.c.jobs.with(r.Job, func(j *followed) error {
		spec, err := j.Spec()
		if err != nil {
			return err
		}
		plan, err = planOf(spec, info)
		return err
	})
	if err != nil {
		return err
	}
	_, err = s.c.apply(ctx, &state.Loaded{Job: r.Job, Attempt: r.Attempt, Info: info, Plan: plan, InstructionSet: r.Loaded.InstructionSet})
	return err
}

// Await returns what a driver is to do, once there is something.
func (s *workersService) Await(ctx context.Context, r *pb.AwaitRequest) (*pb.AwaitResponse, error) {
	short, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	out := &pb.AwaitResponse{}
	err := s.c.jobs.wait(short, r.Job, func(j *followed) (done bool, err error) {
		if err := j.Job.Knows(int(r.Chain), r.Attempt, r.Secret); err != nil {
			return false, err
		}
		out.Assignment, err = j.assignment(int(r.Chain), r.Attempt, s.c.rounds(j.Job), time.Now())
		return out.Assignment != nil, err
	})
	if short.Err() != nil && ctx.Err() == nil {
		return &pb.AwaitResponse{}, nil
	}
	return out, err
}

// assignment returns what the driver of a lane is to do, nil for nothing yet. rounds says
// that this program rounds as the job's workers do.
func (j *followed) assignment(lane int, attempt int64, rounds bool, now time.Time) (*pb.Assignment, error) {
	if err := j.Job.Fence(lane, attempt); err != nil {
		return nil, err
	}
	a := &pb.Assignment{Spec: j.Job.Spec, Data: j.Job.Data}
	if j.Job.Info != nil {
		a.DataSha256 = j.Job.Info.SHA256
	}
	if j.Run == nil {
		if lane > 0 {
			return nil, nil
		}
		return a, nil
	}
	if j.Due != nil {
		return nil, nil
	}
	w, ok := j.Run.Work(lane)
	if !ok && lane == adaptingLane && !rounds {
		w, ok = j.Run.Adapting()
	}
	if !ok && lane > 0 {
		w, ok = j.items.Next(j.Run, lane, now)
	}
	if !ok || !rounds && w.Certificate && w.Prepare != nil {
		return nil, nil
	}
	a.Work, a.Prepared = w.Wire(), j.Run.PreparedFor(w).Wire()
	return a, nil
}

// Drain takes all work from a worker.
func (s *workersService) Drain(_ context.Context, r *pb.DrainRequest) (*pb.Worker, error) {
	if s.c.workers.drain(r.Id, time.Now()) {
		for _, w := range s.c.workers.list() {
			if w.Id == r.Id {
				return w, nil
			}
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no worker %q", r.Id)
}

// List returns the workers.
func (s *workersService) List(ctx context.Context, _ *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	all := s.c.workers.list()
	who := auth.From(ctx)
	if who.IsNode() && who.Node == auth.Worker { // it wants addresses
		for _, w := range all {
			w.Driving, w.Serving, w.Troubles, w.Disagreements = nil, nil, nil, nil
		}
	}
	if !who.All() {
		hidden := func(p *pb.Placement) bool {
			namespace, _, err := s.c.Job(ctx, p.Job)
			return err != nil || !who.Sees(namespace)
		}
		for _, w := range all {
			w.Driving, w.Serving = slices.DeleteFunc(w.Driving, hidden), slices.DeleteFunc(w.Serving, hidden)
		}
	}
	return &pb.ListWorkersResponse{Workers: all}, nil
}
