package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

var workerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// maxDriving bounds the chains that a worker says it drives.
const maxDriving = 10_000

// awaitMost bounds how long Await holds a call that has nothing to say.
const awaitMost = 20 * time.Second

// Connect is a worker's session with the leader.
func (c *Coordinator) Connect(s grpc.BidiStreamingServer[pb.WorkerMessage, pb.CoordinatorMessage]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	h := first.GetHello()
	if h == nil {
		return status.Error(codes.InvalidArgument, "a worker has to say hello first")
	}
	if !workerForm.MatchString(h.Id) {
		return badField("id", "a worker needs an id of letters, digits, '.', '_' and '-', 100 at most")
	}
	who := auth.From(s.Context())
	if who.Name != "" && who.Name != h.Id {
		return status.Errorf(codes.PermissionDenied, "the certificate is that of the worker %s, not of %s: give --id %s, or a certificate that is shared", who.Name, h.Id, who.Name)
	}
	if len(h.Driving) > maxDriving || slices.ContainsFunc(h.Driving, func(p *pb.Placement) bool { return p.Chain < 0 }) {
		return badField("driving", fmt.Sprintf("a worker drives %d chains at most, which are numbered from 0", maxDriving))
	}
	if !c.Node.IsLeader() {
		return c.notLeader()
	}
	ses := &session{peer: who.Peer(), out: make(chan *pb.CoordinatorMessage, 1024), done: make(chan struct{})}
	w := c.workers.connect(h, ses, time.Now())
	if w == nil {
		return status.Errorf(codes.AlreadyExists, "there is a worker %s already, which shows something else: give another --id", h.Id)
	}
	c.Logger.Info("worker connected", "worker", h.Id, "address", h.Address, "cores", h.Capacity.GetCores(), "instruction_set", h.Capacity.GetInstructionSet())
	defer func() {
		ses.end()
		c.workers.disconnect(h.Id, ses, time.Now())
		c.Logger.Info("worker disconnected", "worker", h.Id)
	}()

	received := make(chan error, 1)
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				received <- err
				return
			}
			c.heard(w.id, m)
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case m := <-ses.out:
			if err := s.Send(m); err != nil {
				return err
			}
		case err := <-received:
			if err == io.EOF {
				return nil
			}
			return err
		case <-ses.done:
			return status.Error(codes.Aborted, "the worker has connected anew")
		case <-tick.C:
			if !c.Node.IsLeader() {
				return c.notLeader()
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// heard takes a message of a connected worker.
func (c *Coordinator) heard(id string, m *pb.WorkerMessage) {
	switch {
	case m.GetBeat() != nil:
		c.workers.mu.Lock()
		defer c.workers.mu.Unlock()
		if w := c.workers.byID[id]; w != nil {
			w.seen, w.load = time.Now(), m.GetBeat().Load
			w.course.see(w.seen, w.load)
			if m.GetBeat().Draining && !w.leaving {
				c.workers.activity.add(w.seen, id, workerDraining)
				w.draining, w.leaving = true, true
				c.workers.notify()
			}
		}
	case m.GetRelease() != nil:
		r := m.GetRelease()
		c.workers.update(id, func(w *worker) {
			k := chainKey{r.Job, int(r.Chain)}
			if h := w.holds[k]; h != nil && h.attempt <= r.Attempt {
				delete(w.holds, k)
			}
		})
	}
}

// Report takes events of a run from a driver.
func (c *Coordinator) Report(ctx context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	if r.Failure != "" {
		_, err := c.apply(ctx, state.Command{Fail: &state.Fail{Job: r.Job, Chain: int(r.Chain), Attempt: r.Attempt, Message: r.Failure[:min(len(r.Failure), 4096)]}})
		if err == nil {
			c.Logger.Warn("job failed", "job", r.Job, "worker", r.Worker, "error", r.Failure)
		}
		return &pb.ReportResponse{}, err
	}
	if r.Loaded != nil {
		if err := c.loaded(ctx, r); err != nil {
			return nil, err
		}
	}
	if len(r.Events) == 0 {
		return &pb.ReportResponse{}, nil
	}
	cmd := &state.Report{Job: r.Job, Chain: int(r.Chain), Attempt: r.Attempt}
	for _, text := range r.Events {
		var e chains.Event
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, badField("events", "not an event: "+err.Error())
		}
		cmd.Events = append(cmd.Events, e)
	}
	_, err := c.apply(ctx, state.Command{Report: cmd})
	return &pb.ReportResponse{}, err
}

// Loaded is what the driver of the preparation tells of the data.
type Loaded struct {
	Info           *dataset.Info `json:"info"`
	InstructionSet string        `json:"instruction_set"`
}

func (c *Coordinator) loaded(ctx context.Context, r *pb.ReportRequest) error {
	var l Loaded
	if err := json.Unmarshal(r.Loaded, &l); err != nil || l.Info == nil {
		return badField("loaded", "this does not tell what the data are")
	}
	if err := l.Info.Check(); err != nil {
		return badField("loaded", err.Error())
	}
	var text string
	err := c.views.with(r.Job, func(f *state.Follower) error { text = f.Job.Spec; return nil })
	if err != nil {
		return err
	}
	plan, err := planOf(text, l.Info.D())
	if err != nil {
		return err
	}
	_, err = c.apply(ctx, state.Command{Loaded: &state.Loaded{Job: r.Job, Attempt: r.Attempt, Info: l.Info, Plan: plan, InstructionSet: l.InstructionSet}})
	return err
}

// Assignment is what Await answers.
type Assignment struct {
	Spec     string           `json:"spec"`
	Data     string           `json:"data,omitempty"` // address of the table
	Info     *dataset.Info    `json:"info,omitempty"`
	Plan     *chains.Plan     `json:"plan,omitempty"`
	Prepared *chains.Prepared `json:"prepared,omitempty"`
	Task     *chains.Task     `json:"task,omitempty"` // none for the preparation
}

// Await returns what a driver is to do, once there is something.
func (c *Coordinator) Await(ctx context.Context, r *pb.AwaitRequest) (*pb.AwaitResponse, error) {
	short, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	var out []byte
	err := c.views.wait(short, r.Job, func(f *state.Follower) (bool, error) {
		j := f.Job
		if r.Chain < 0 || int(r.Chain) >= len(j.Placements) {
			return false, state.ErrMalformed
		}
		if p := &j.Placements[r.Chain]; p.Worker == "" || p.Attempt != r.Attempt || j.Phase.Ended() {
			return false, state.ErrFenced
		}
		a := Assignment{Spec: j.Spec, Data: j.Data, Info: j.Info, Plan: j.Plan}
		if r.Chain > 0 {
			if f.Run == nil || f.Due != nil {
				return false, nil
			}
			t, ok := f.Run.Task(int(r.Chain))
			if !ok {
				return false, nil
			}
			a.Prepared, a.Task = f.Run.Prepared, &t
		}
		var err error
		out, err = json.Marshal(a)
		return true, err
	})
	if short.Err() != nil && ctx.Err() == nil {
		return &pb.AwaitResponse{}, nil
	}
	return &pb.AwaitResponse{Assignment: out}, err
}

// Drain takes all work from a worker.
func (c *Coordinator) Drain(_ context.Context, r *pb.DrainRequest) (*pb.Worker, error) {
	found := false
	c.workers.update(r.Id, func(w *worker) {
		if !w.draining {
			c.workers.activity.add(time.Now(), r.Id, workerDraining)
		}
		w.draining, found = true, true
	})
	if !found {
		return nil, status.Errorf(codes.NotFound, "there is no worker %q", r.Id)
	}
	for _, w := range c.list() {
		if w.Id == r.Id {
			return w, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no worker %q", r.Id)
}

// list returns the workers that the leader knows.
func (c *Coordinator) list() []*pb.Worker {
	c.workers.mu.Lock()
	defer c.workers.mu.Unlock()
	var out []*pb.Worker
	serving := map[string][]*pb.Placement{}
	for _, w := range c.workers.byID {
		p := &pb.Worker{Id: w.id, Address: w.address, Capacity: w.capacity, Draining: w.draining, Connected: w.session != nil,
			Joined: stamp(w.joined), LastSeen: stamp(w.seen), Load: w.load, Version: w.version}
		for k, h := range w.holds {
			at := &pb.Placement{Job: k.job, Chain: int32(k.chain), Attempt: h.attempt, Worker: w.id}
			p.Driving = append(p.Driving, at)
			for _, g := range h.group {
				serving[g] = append(serving[g], at)
			}
		}
		slices.SortFunc(p.Driving, byChain)
		out = append(out, p)
	}
	for _, p := range out {
		p.Serving = serving[p.Id]
		slices.SortFunc(p.Serving, byChain)
	}
	slices.SortFunc(out, func(a, b *pb.Worker) int { return cmp.Compare(a.Id, b.Id) })
	return out
}

func byChain(a, b *pb.Placement) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Chain, b.Chain))
}

// workersServer is the Workers service: its List is not that of Jobs.
type workersServer struct{ *Coordinator }

// List returns the workers.
func (s workersServer) List(ctx context.Context, _ *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	all := s.list()
	if who := auth.From(ctx); !who.All() {
		hidden := func(p *pb.Placement) bool {
			namespace, _, err := s.Job(ctx, p.Job)
			return err != nil || !who.Sees(namespace)
		}
		for _, w := range all {
			w.Driving, w.Serving = slices.DeleteFunc(w.Driving, hidden), slices.DeleteFunc(w.Serving, hidden)
		}
	}
	return &pb.ListWorkersResponse{Workers: all}, nil
}

// planOf returns the plan of a specification for d inputs.
func planOf(text string, d int) (*chains.Plan, error) {
	spec, err := job.ParseString(text)
	if err != nil {
		return nil, fmt.Errorf("the job's specification: %w", err)
	}
	m, err := spec.KernelModel(d)
	if err != nil {
		return nil, err
	}
	p := chains.NewPlan(spec, m.Names())
	return &p, nil
}
