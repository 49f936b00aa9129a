package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Limits of a request.
const (
	maxClientID  = 200
	maxPageSize  = 1000
	maxExtend    = 1 << 24
	watchEvery   = 200 * time.Millisecond // at most one message in
	chunkBytes   = 512 << 10
	drawsAMsg    = 1000
	maxPriority  = 1000
	maxDraws     = 1 << 30
	summaryAtMax = 1 << 20 // draws
)

// Submit accepts a job.
func (c *Coordinator) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.Job, error) {
	began := time.Now()
	spec, err := job.Parse(strings.NewReader(r.Spec), "")
	if err != nil {
		return nil, err
	}
	switch {
	case len(r.ClientId) > maxClientID:
		return nil, badField("client_id", fmt.Sprintf("a client id has at most %d characters", maxClientID))
	case r.Priority < -maxPriority || r.Priority > maxPriority:
		return nil, badField("priority", fmt.Sprintf("a priority is between -%d and %d", maxPriority, maxPriority))
	case spec.Stop.MaxDraws > maxDraws:
		return nil, badField("spec.stop.max_draws", fmt.Sprintf("a chain keeps %d draws at most", maxDraws))
	case r.Data != "" && spec.Data.Synthetic != nil:
		return nil, badField("data", "the specification generates its data")
	case r.Data == "" && spec.Data.Path == dataset.Stdin:
		return nil, badField("spec.data.path", "workers have no standard input: upload the table")
	}
	who := auth.From(ctx)
	namespace := who.Namespace(r.Namespace)
	if !who.Sees(namespace) {
		return nil, fmt.Errorf("%w: %q", state.ErrNamespace, namespace)
	}
	notify, err := c.notify(spec)
	if err != nil {
		return nil, err
	}
	jobs := 0
	err = c.Node.View(func(tx *bbolt.Tx) error {
		if r.Data != "" {
			if b, err := state.GetBlob(tx, r.Data); err != nil || !slices.Contains(b.Spaces(), namespace) {
				return badField("data", fmt.Sprintf("there is no data set %s in the namespace %s: upload it first", r.Data, namespace))
			}
		}
		jobs = state.CountJobs(tx)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if jobs >= c.MaxJobs {
		return nil, badField("spec", fmt.Sprintf("the cluster keeps %d jobs: delete some that have ended", jobs))
	}
	text, err := spec.YAML()
	if err != nil {
		return nil, err
	}
	j, err := c.apply(ctx, state.Command{Submit: &state.Submit{ID: newID(), Name: spec.Name, ClientID: r.ClientId, Owner: who.User, Namespace: namespace,
		Spec: string(text), Data: r.Data, Priority: int(r.Priority), Chains: spec.Sampler.Chains, Keeps: int64(spec.Sampler.Chains) * int64(spec.Stop.MaxDraws), Notify: notify}})
	if err != nil {
		return nil, err
	}
	c.Tracer.Submit(j.ID, j.Name, began)
	c.Logger.Info("job submitted", "job", j.ID, "name", j.Name)
	return record(j), nil
}

// notify returns whom a job wants told, if the operator allows it.
func (c *Coordinator) notify(s *job.Spec) (*state.Notify, error) {
	if s.Notify == nil {
		return nil, nil
	}
	n := &state.Notify{Webhooks: s.Notify.Webhooks}
	for i, u := range n.Webhooks {
		if err := c.Hooks.Allowed(u); err != nil {
			return nil, badField(fmt.Sprintf("spec.notify.webhooks[%d]", i), err.Error())
		}
	}
	for _, k := range s.Notify.On {
		n.On = append(n.On, state.Kind(k))
	}
	return n, nil
}

// newID returns a new job's id: ten letters and digits, by chance unique.
func newID() string {
	var b [6]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// Get returns a job.
func (c *Coordinator) Get(ctx context.Context, r *pb.GetJobRequest) (*pb.Job, error) {
	if err := c.fresh(ctx, r.Stale); err != nil {
		return nil, err
	}
	var out *pb.Job
	err := c.views.with(r.Id, func(f *state.Follower) error {
		out = jobOf(f)
		return nil
	})
	return out, err
}

// Pause stops a job's chains at their next checkpoints.
func (c *Coordinator) Pause(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return c.act(ctx, r.Id, state.Pause)
}

// Resume lets a paused job go on, and tries a failed one again.
func (c *Coordinator) Resume(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return c.act(ctx, r.Id, state.Resume)
}

func (c *Coordinator) act(ctx context.Context, id string, a state.Action) (*pb.Job, error) {
	j, err := c.apply(ctx, state.Command{Act: &state.Act{Job: id, Action: a}})
	if err != nil {
		return nil, c.explain(id, string(a), err)
	}
	c.Logger.Info("job "+string(a), "job", id)
	return record(j), nil
}

// explain says in which state a job is that refused an action.
func (c *Coordinator) explain(id, action string, err error) error {
	var phase state.Phase
	_ = c.Node.View(func(tx *bbolt.Tx) error {
		j, err := state.GetJob(tx, id)
		if err == nil {
			phase = j.Phase
		}
		return err
	})
	if phase == "" {
		return err
	}
	return fmt.Errorf("cannot %s job %s, which is %s: %w", action, id, phase, err)
}

// Cancel ends a job; its draws are kept.
func (c *Coordinator) Cancel(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	var decide *state.Decide
	err := c.views.with(r.Id, func(f *state.Follower) error {
		if f.Run != nil && !f.Job.Phase.Ended() {
			decide = ending(f, &chains.Event{Stop: &chains.Stop{Reason: chains.Cancelled, Draws: f.Run.MinDraws()}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if decide == nil {
		return c.act(ctx, r.Id, state.Cancel)
	}
	j, err := c.apply(ctx, state.Command{Decide: decide})
	if err != nil {
		return nil, c.explain(r.Id, "cancel", err)
	}
	return record(j), nil
}

// ending returns the command that ends the sampling of a run, or its certificate.
func ending(f *state.Follower, end *chains.Event) *state.Decide {
	e := *end
	stop := *e.Stop
	stop.Elapsed = f.Job.Elapsed(time.Now()).Seconds()
	e.Stop = &stop
	d := &state.Decide{Job: f.Job.ID, Extends: f.Job.Extends, Event: e}
	if f.Run.Stopped != nil {
		return d
	}
	kept := copyRun(f.Run)
	for i := range kept.Chains {
		kept.Chains[i].Draws = kept.Chains[i].Draws[:stop.Draws]
	}
	c := kept.Diagnose(stop.Draws)
	d.DrawsSHA256 = report.DrawsSHA256(kept)
	d.Final = &state.Final{Draws: stop.Draws, RHat: finite(c.RHat), ESS: finite(c.ESS)}
	return d
}

// Extend lets a job draw more, or be certified.
func (c *Coordinator) Extend(ctx context.Context, r *pb.ExtendRequest) (*pb.Job, error) {
	if r.Draws < 0 || r.Draws > maxExtend || r.Draws == 0 && !r.Certify {
		return nil, badField("draws", fmt.Sprintf("give a number of draws between 1 and %d", maxExtend))
	}
	cmd := &state.Extend{Job: r.Id, Draws: int(r.Draws)}
	if r.Certify {
		var done *pb.Job
		err := c.views.with(r.Id, func(f *state.Follower) (err error) {
			if f.Run != nil && f.Run.Certificate != nil && r.Draws == 0 {
				done = record(f.Job) // which is what was asked for
			}
			cmd.Certificate, err = certificateOf(f.Job)
			return err
		})
		if err != nil || done != nil {
			return done, err
		}
	}
	j, err := c.apply(ctx, state.Command{Extend: cmd})
	if err != nil {
		return nil, c.explain(r.Id, "extend", err)
	}
	return record(j), nil
}

// Delete removes a job that has ended.
func (c *Coordinator) Delete(ctx context.Context, r *pb.JobActionRequest) (*pb.DeleteJobResponse, error) {
	if _, err := c.act(ctx, r.Id, state.Delete); err != nil {
		return nil, err
	}
	c.logs.remove(r.Id)
	return &pb.DeleteJobResponse{}, nil
}

// result is what is known of a job, enough to write all files of ulisse run.
type result struct {
	Spec           string        `json:"spec"`
	Data           *dataset.Info `json:"data"`
	Run            *chains.Run   `json:"run"`
	WallSeconds    float64       `json:"wall_seconds"`
	InstructionSet string        `json:"instruction_set"`
}

func (c *Coordinator) result(ctx context.Context, r *pb.GetJobRequest) (*result, error) {
	if err := c.fresh(ctx, r.Stale); err != nil {
		return nil, err
	}
	var out *result
	err := c.views.with(r.Id, func(f *state.Follower) error {
		if f.Run == nil {
			return fmt.Errorf("%w: job %s has not read its data yet", state.ErrPhase, r.Id)
		}
		out = &result{Spec: f.Job.Spec, Data: f.Job.Info, Run: copyRun(f.Run), WallSeconds: f.Job.Elapsed(time.Now()).Seconds(), InstructionSet: f.Job.InstructionSet}
		return nil
	})
	return out, err
}

// Summary returns the summary of a job at its draws so far.
func (c *Coordinator) Summary(ctx context.Context, r *pb.GetJobRequest) (*pb.SummaryResponse, error) {
	res, err := c.result(ctx, r)
	if err != nil {
		return nil, err
	}
	spec, err := job.Parse(strings.NewReader(res.Spec), "")
	if err != nil {
		return nil, err
	}
	m, err := spec.KernelModel(res.Data.D())
	if err != nil {
		return nil, err
	}
	if res.Run.MinDraws()*len(res.Run.Chains) > summaryAtMax {
		return nil, fmt.Errorf("%w: more than %d draws: fetch them, and summarise them there", state.ErrPhase, summaryAtMax)
	}
	least := res.Run.MinDraws() // chains at work are not equally far
	for i := range res.Run.Chains {
		res.Run.Chains[i].Draws = res.Run.Chains[i].Draws[:least]
	}
	wall := time.Duration(res.WallSeconds * float64(time.Second))
	text, err := json.Marshal(report.Summarize(spec, res.Data, m, res.Run, wall, res.InstructionSet))
	if err != nil {
		return nil, err
	}
	return &pb.SummaryResponse{Json: string(text)}, nil
}

// Result sends all that is known of a job.
func (c *Coordinator) Result(r *pb.GetJobRequest, s grpc.ServerStreamingServer[pb.ResultChunk]) error {
	res, err := c.result(s.Context(), r)
	if err != nil {
		return err
	}
	text, err := json.Marshal(res)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(text, chunkBytes) {
		if err := s.Send(&pb.ResultChunk{Json: chunk}); err != nil {
			return err
		}
	}
	return nil
}

// Watch sends a job whenever it changes.
func (c *Coordinator) Watch(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.Job]) error {
	ctx := s.Context()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	version := uint64(math.MaxUint64)
	for {
		var out *pb.Job
		ended := false
		err := c.views.wait(ctx, r.Id, func(f *state.Follower) (bool, error) {
			if f.Job.Version == version {
				return false, nil
			}
			version, out, ended = f.Job.Version, jobOf(f), f.Job.Phase.Ended()
			return true, nil
		})
		if err != nil {
			return err
		}
		if err := s.Send(out); err != nil || ended {
			return err
		}
		select { // a job that changes all the time is sent now and then
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Follow calls f with a job now and whenever it has changed, until f returns
// true or an error, or ctx is done. f must not keep what it is given.
func (c *Coordinator) Follow(ctx context.Context, id string, f func(*state.Follower) (bool, error)) error {
	return c.views.wait(ctx, id, f)
}

// Draws sends the kept draws of a job.
func (c *Coordinator) Draws(r *pb.DrawsRequest, s grpc.ServerStreamingServer[pb.DrawBatch]) error {
	ctx := s.Context()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	var sent []int
	for {
		var run *chains.Run
		var ended bool
		err := c.views.wait(ctx, r.Id, func(f *state.Follower) (bool, error) {
			ended = f.Job.Phase.Ended()
			if f.Run == nil {
				return ended || !r.Follow, nil
			}
			if sent == nil {
				sent = make([]int, len(f.Run.Chains))
			}
			run = copyRun(f.Run)
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
			for i := range run.Chains {
				for sent[i] < len(run.Chains[i].Draws) {
					batch := run.Chains[i].Draws[sent[i]:min(len(run.Chains[i].Draws), sent[i]+drawsAMsg)]
					if err := s.Send(drawBatch(i+1, sent[i], batch)); err != nil {
						return err
					}
					sent[i] += len(batch)
				}
			}
		}
		if ended || !r.Follow {
			return nil
		}
	}
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
