package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Limits of a request.
const (
	maxClientID = 200
	maxPageSize = 1000
	maxPriority = 1000
)

// jobsService is the Jobs service.
type jobsService struct {
	pb.UnimplementedJobsServer
	c *Coordinator
}

// Submit accepts a job.
func (s *jobsService) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.Job, error) {
	began := time.Now()
	cmd, err := s.submission(ctx, r)
	if err != nil {
		return nil, err
	}
	j, err := s.c.apply(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s.c.cfg.Tracer.Submit(j.ID, j.Name, began)
	s.c.log.Info("job submitted", "job", j.ID, "name", j.Name)
	return pbRecord(j), nil
}

// submission returns the command that makes the job of a request, or what is wrong with it.
func (s *jobsService) submission(ctx context.Context, r *pb.SubmitRequest) (*state.Submit, error) {
	spec, err := checkSubmit(r)
	if err != nil {
		return nil, err
	}
	who := auth.From(ctx)
	namespace := who.Namespace(r.Namespace)
	if !who.Sees(namespace) {
		return nil, fmt.Errorf("%w: %q", state.ErrNamespace, namespace)
	}
	if err := s.checkShare(who, namespace, int(r.Priority), spec.Sampler.Chains); err != nil {
		return nil, err
	}
	notify, err := s.notify(spec)
	if err != nil {
		return nil, err
	}
	if err := s.checkRoom(r.Data, namespace); err != nil {
		return nil, err
	}
	text, err := spec.YAML()
	if err != nil {
		return nil, err
	}
	return &state.Submit{ID: newID(), Name: spec.Name, ClientID: r.ClientId, Owner: who.User, Namespace: namespace,
		Spec: string(text), Data: r.Data, Priority: int(r.Priority), Chains: spec.Sampler.Chains, Keeps: int64(spec.Sampler.Chains) * int64(spec.Stop.MaxDraws), Notify: notify}, nil
}

// Validate says what Submit would refuse.
func (s *jobsService) Validate(ctx context.Context, r *pb.SubmitRequest) (*pb.ValidateResponse, error) {
	if err := s.c.fresh(ctx, false); err != nil {
		return nil, err
	}
	cmd, err := s.submission(ctx, r)
	if err == nil {
		more := state.Usage{Jobs: 1, Chains: int64(cmd.Chains), Draws: cmd.Keeps}
		err = s.c.node.View(func(tx *bbolt.Tx) error { return state.CheckQuota(tx, cmd.Namespace, more) })
	}
	if err != nil {
		m, err := s.c.mistake(err)
		if err != nil {
			return nil, err
		}
		return &pb.ValidateResponse{Mistakes: []*pb.Mistake{m}}, nil
	}
	return &pb.ValidateResponse{Spec: cmd.Spec}, nil
}

// mistake returns an error about a request as what is wrong with the request; other errors are returned.
func (c *Coordinator) mistake(err error) (*pb.Mistake, error) {
	var f *job.FieldError
	if errors.As(err, &f) {
		return &pb.Mistake{Field: specField(f), Message: f.Msg, Line: int32(f.Line), Column: int32(f.Column)}, nil
	}
	st := status.Convert(c.status(err))
	switch st.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted, codes.PermissionDenied, codes.FailedPrecondition:
	default:
		return nil, err
	}
	m := &pb.Mistake{Message: st.Message()}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && len(bad.FieldViolations) > 0 {
			m.Field = bad.FieldViolations[0].Field
		}
	}
	return m, nil
}

// checkSubmit returns the specification of a request, or what is wrong with it.
func checkSubmit(r *pb.SubmitRequest) (*job.Spec, error) {
	spec, err := job.Parse(strings.NewReader(r.Spec), "")
	if err == nil {
		err = spec.Samplable()
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(r.ClientId) > maxClientID:
		return nil, badField("client_id", fmt.Sprintf("a client id has at most %d characters", maxClientID))
	case r.Priority < -maxPriority || r.Priority > maxPriority:
		return nil, badField("priority", fmt.Sprintf("a priority is between -%d and %d", maxPriority, maxPriority))
	case spec.Stop.MaxDraws > chains.MaxGoal:
		return nil, badField("spec.stop.max_draws", fmt.Sprintf("a chain keeps %d draws at most", chains.MaxGoal))
	case r.Data != "" && spec.Data.Synthetic != nil:
		return nil, badField("data", "the specification generates its data")
	case r.Data == "" && spec.Data.Path == dataset.Stdin:
		return nil, badField("spec.data.path", "workers have no standard input: upload the table")
	}
	return spec, nil
}

// defaultChains bounds the chains that users of a namespace without a quota of chains
// may have in jobs that have not ended.
const defaultChains = 512

// checkShare returns an error for a job by which somebody would take more of the
// cluster than is his to take: it would wait for no other, or leave them nothing.
func (s *jobsService) checkShare(who *auth.Identity, namespace string, priority, chains int) error {
	if who.Role == state.Admin && who.All() {
		return nil
	}
	if priority > 0 {
		return status.Error(codes.PermissionDenied, "a priority above 0 takes the workers from everybody else's jobs: ask an administrator of all namespaces")
	}
	return s.c.node.View(func(tx *bbolt.Tx) error {
		q, u, err := state.GetNamespace(tx, namespace)
		if err == nil && q.Chains == 0 && u.Chains+int64(chains) > defaultChains {
			err = fmt.Errorf("%w: %q may have %d chains of jobs that have not ended, as long as no quota is set, has %d, and this needs %d", state.ErrQuota, namespace, defaultChains, u.Chains, chains)
		}
		return err
	})
}

// checkRoom returns an error if a job's data are not there, or if there are too
// many jobs.
func (s *jobsService) checkRoom(data, namespace string) error {
	jobs := 0
	err := s.c.node.View(func(tx *bbolt.Tx) error {
		if data != "" {
			if b, err := state.GetBlob(tx, data); err != nil || !slices.Contains(b.NamespaceNames(), namespace) {
				return badField("data", fmt.Sprintf("there is no data set %s in the namespace %s: upload it first", data, namespace))
			}
		}
		jobs = state.CountJobs(tx)
		return nil
	})
	if err == nil && jobs >= s.c.cfg.MaxJobs {
		err = badField("spec", fmt.Sprintf("the cluster keeps %d jobs: delete some that have ended", jobs))
	}
	return err
}

// notify returns whom a job wants told, if the operator allows it.
func (s *jobsService) notify(spec *job.Spec) (*state.Notify, error) {
	if spec.Notify == nil {
		return nil, nil
	}
	n := &state.Notify{Webhooks: spec.Notify.Webhooks}
	for i, u := range n.Webhooks {
		if err := s.c.cfg.Hooks.Allowed(u); err != nil {
			return nil, badField(fmt.Sprintf("spec.notify.webhooks[%d]", i), err.Error())
		}
	}
	for _, k := range spec.Notify.On {
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
func (s *jobsService) Get(ctx context.Context, r *pb.GetJobRequest) (out *pb.Job, err error) {
	if err := s.c.fresh(ctx, r.Stale); err != nil {
		return nil, err
	}
	err = s.c.jobs.with(r.Id, func(j *followed) error {
		out = pbJob(&j.Follower)
		return nil
	})
	if err == nil && unexplained(out) {
		out.Message = s.c.queueReason(auth.From(ctx))
	}
	return out, err
}

// Pause stops a job's chains at their next checkpoints.
func (s *jobsService) Pause(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return s.act(ctx, r.Id, state.Pause)
}

// Resume lets a paused job go on, and tries a failed one again.
func (s *jobsService) Resume(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return s.act(ctx, r.Id, state.Resume)
}

func (s *jobsService) act(ctx context.Context, id string, a state.Action) (*pb.Job, error) {
	return s.change(ctx, id, string(a), &state.Act{Job: id, Action: a})
}

// change replicates a command that a user has given to a job. If it is refused,
// the error says in which state the job is.
func (s *jobsService) change(ctx context.Context, id, action string, cmd state.Command) (*pb.Job, error) {
	j, err := s.c.apply(ctx, cmd)
	if err == nil {
		s.c.log.Info("job "+action, "job", id)
		return pbRecord(j), nil
	}
	var phase state.Phase
	_ = s.c.node.View(func(tx *bbolt.Tx) error { // else the error is all there is to say
		j, err := state.GetJob(tx, id)
		if err == nil {
			phase = j.Phase
		}
		return err
	})
	if phase == "" {
		return nil, err
	}
	what := fmt.Sprintf("cannot %s job %s, which is %s", action, id, phase)
	switch {
	case !errors.Is(err, state.ErrPhase):
		return nil, fmt.Errorf("%s: %w", what, err)
	case action == string(state.Delete):
		what += ": cancel it first"
	}
	return nil, status.Error(codes.FailedPrecondition, what)
}

// Cancel ends a job; its draws are kept.
func (s *jobsService) Cancel(ctx context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	var cmd state.Command = &state.Act{Job: r.Id, Action: state.Cancel}
	err := s.c.jobs.with(r.Id, func(j *followed) (err error) {
		if j.Run != nil && !j.Job.Phase.Ended() {
			cmd, err = ending(&j.Follower, &chains.Event{Stop: &chains.Stop{Reason: chains.Cancelled, Draws: j.Run.MinDraws()}}, time.Now())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.change(ctx, r.Id, "cancel", cmd)
}

// Extend lets a job draw more, be certified, or go on to another goal.
func (s *jobsService) Extend(ctx context.Context, r *pb.ExtendRequest) (*pb.Job, error) {
	if r.Spec != "" {
		if r.Draws != 0 || r.Certify {
			return nil, badField("spec", "draws and certify say what else is wanted: give one of them, or the specification")
		}
		return s.redirect(ctx, r)
	}
	if r.Draws < 0 || r.Draws > chains.MaxExtend || r.Draws == 0 && !r.Certify {
		return nil, badField("draws", fmt.Sprintf("give a number of draws between 1 and %d", chains.MaxExtend))
	}
	cmd := &state.Extend{Job: r.Id, Draws: int(r.Draws)}
	if r.Certify {
		var done *pb.Job
		err := s.c.jobs.with(r.Id, func(j *followed) (err error) {
			if j.Run != nil && j.Run.Certificate != nil && r.Draws == 0 {
				done = pbRecord(j.Job) // which is what was asked for
			}
			cmd.Certificate, err = certificatePlan(j)
			return err
		})
		if err != nil || done != nil {
			return done, err
		}
	}
	return s.change(ctx, r.Id, "extend", cmd)
}

// redirect lets a job go on to what another specification says of its end.
func (s *jobsService) redirect(ctx context.Context, r *pb.ExtendRequest) (out *pb.Job, err error) {
	spec, err := job.ParseString(r.Spec)
	if err != nil {
		return nil, err
	}
	if spec.Stop.MaxDraws > chains.MaxGoal {
		return nil, badField("spec.stop.max_draws", fmt.Sprintf("a chain keeps %d draws at most", chains.MaxGoal))
	}
	err = s.c.jobs.with(r.Id, func(j *followed) error {
		old, err := j.Spec()
		if err != nil {
			return err
		}
		if field := spec.Differs(old); field != "" {
			return badField("spec", fmt.Sprintf("%s is not what job %s began with: only stop and sampler.draws may change, for anything else make another job", field, r.Id))
		}
		if spec.Stop == old.Stop && spec.Sampler.Draws == old.Sampler.Draws {
			out = pbRecord(j.Job)
		}
		return nil
	})
	if err != nil || out != nil {
		return out, err
	}
	text, err := spec.YAML()
	if err != nil {
		return nil, err
	}
	return s.change(ctx, r.Id, "extend", &state.Extend{Job: r.Id, Spec: string(text), Goal: &chains.Goal{Draws: spec.Sampler.Draws, MaxDraws: spec.Stop.MaxDraws,
		RHat: spec.Stop.RHat, ESS: spec.Stop.ESS, MaxTime: time.Duration(spec.Stop.MaxTime)}})
}

// certificatePlan returns the plan of a run that certifies that of a job.
func certificatePlan(j *followed) (*chains.Plan, error) {
	if j.Job.Info == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has no draws yet: its state is %s", j.Job.ID, j.Job.Phase)
	}
	spec, err := j.Spec()
	if err != nil {
		return nil, err
	}
	certified := *spec
	certified.Sampler.Certify = true
	if err := certified.Validate(); err != nil {
		return nil, badField("certify", err.Error())
	}
	plan, err := planOf(&certified, j.Job.Info)
	if err != nil {
		return nil, err
	}
	return plan.Certificate, nil
}

// planOf returns the plan of a specification for a data set.
func planOf(spec *job.Spec, data *dataset.Info) (*chains.Plan, error) {
	m, err := spec.KernelModel(data)
	if err != nil {
		return nil, err
	}
	p := spec.PlanOf(m.Params.NamesBy(data.InputNames), data.N(), m.Functions())
	return &p, nil
}

// Annotate changes what people write on a job.
func (s *jobsService) Annotate(ctx context.Context, r *pb.AnnotateRequest) (*pb.Job, error) {
	if err := state.CheckNote(r.GetNote()); err != nil {
		return nil, badField("note", err.Error())
	}
	for _, tag := range r.Tag {
		if err := state.CheckTag(tag); err != nil {
			return nil, badField("tag", err.Error())
		}
	}
	j, err := s.c.apply(ctx, &state.Annotate{Job: r.Id, Note: r.Note, Tag: r.Tag, Untag: r.Untag})
	if err != nil {
		return nil, err
	}
	return pbRecord(j), nil
}

// Delete removes a job that has ended.
func (s *jobsService) Delete(ctx context.Context, r *pb.JobActionRequest) (*pb.DeleteJobResponse, error) {
	if _, err := s.act(ctx, r.Id, state.Delete); err != nil {
		return nil, err
	}
	s.c.logs.Remove(r.Id)
	return &pb.DeleteJobResponse{}, nil
}
