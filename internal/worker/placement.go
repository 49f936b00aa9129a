package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// laneKey names a lane of a job's run (package chains): 0 is the work of the run as a
// whole, c that of chain c.
type laneKey struct {
	job  string
	lane int
}

// placement is a lane that this worker was told to drive.
type placement struct {
	w       *Worker
	key     laneKey
	attempt int64
	secret  string                  // which shows that this worker was told to
	cancel  context.CancelCauseFunc // of all it does
	// revoke lets it stop at its next checkpoint: it waits for work no more.
	revoke context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	group   []string          // addresses of the workers that share the products
	grouped chan struct{}     // closed when that changes
	names   map[string]string // of workers by address, those of earlier groups, too
	op      *shard.Group      // the operator over them, once there is one
}

// Why a placement ends.
var (
	errReplaced = errors.New("another driver has taken over the chain")
	errStopping = errors.New("the worker stops")
	errOver     = errors.New("the job has ended")
)

// setGroup changes who shares the lane's products, from the next one on.
func (p *placement) setGroup(g []*pb.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group = nil
	if p.names == nil {
		p.names = map[string]string{}
	}
	for _, m := range g {
		p.group = append(p.group, m.Address)
		p.names[m.Address] = m.Worker
	}
	if p.op != nil {
		p.op.SetMembers(p.group...)
	}
	if p.grouped != nil {
		close(p.grouped)
	}
	p.grouped = make(chan struct{})
}

// awaitMemory waits until the group is large enough for this worker to have the memory for what is its own of a job. It returns an error
// if no group is, and nil if ctx is done.
func (p *placement) awaitMemory(ctx context.Context, j *jobData) error {
	for said := false; ; said = true {
		p.mu.Lock()
		members, changed := 1+len(p.group), p.grouped
		p.mu.Unlock()
		short := p.w.jobs.checkMemory(j, members)
		if short == nil {
			return nil
		}
		if err := p.w.jobs.checkMemory(j, math.MaxInt); err != nil {
			return short
		}
		if !said {
			p.w.Logger.Info("waiting for more workers to share the preconditioner", "job", p.key.job, "chain", p.key.lane, "members", members, "reason", short)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// operator returns a new operator over the group, in place of the one before. Its
// elements are kept between products as the plan says.
func (p *placement) operator(ctx context.Context, j *jobData) driver.Operator {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := cmvp.New(j.problem.Inputs, j.problem.Covariance, p.w.Budget)
	if j.cache != nil && len(p.group) == 0 { // members of a group compute other rows each time
		j.cache.Apply(own)
	}
	data := shard.Data{Address: inputsAddress(j.id, j.data.SHA256), Covariance: j.problem.Covariance, ISA: p.w.isa, Rows: j.data.N()}
	if p.op != nil {
		p.op.Close()
	}
	p.op = shard.New(shard.Config{Local: own, MinRows: p.w.MinRows, Meter: p.w.Meter, Log: p.w.Logger,
		Wrong: func(address, reason string) { p.w.wg.Go(func() { p.disagree(ctx, address, reason) }) },
		Dial:  func(address string) shard.Member { return p.w.Peers.Member(address, data) }})
	p.op.SetMembers(p.group...)
	return p.op
}

// closeGroup closes the operator over the group.
func (p *placement) closeGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.op != nil {
		p.op.Close()
	}
}

// disagree tells that a member of the group computes other numbers.
func (p *placement) disagree(ctx context.Context, address, reason string) {
	p.mu.Lock()
	d := &pb.Disagreement{Worker: p.names[address], Reason: reason}
	p.mu.Unlock()
	if err := p.report(ctx, &pb.ReportRequest{Disagreements: []*pb.Disagreement{d}}); err != nil && ctx.Err() == nil {
		p.w.Logger.Warn("telling that a worker computes wrong numbers", "worker", d.Worker, "error", err)
	}
}

// driver returns the job's driver for this lane, whose products end with ctx.
func (p *placement) driver(ctx context.Context, j *jobData) *driver.Driver {
	if j.preloaded {
		return j.driver
	}
	trace := func(ctx context.Context, chain, iter int) (context.Context, func()) {
		if p.w.Tracer == nil {
			return ctx, func() {}
		}
		return p.w.Tracer.Iteration(ctx, p.key.job, chain, p.attempt, iter)
	}
	return j.driver.With(func(int) driver.Operator { return p.operator(ctx, j) }, trace)
}

// run drives the lane until it is revoked, replaced, or has no more to do. waiting is
// the context of waiting for work.
func (p *placement) run(ctx, waiting context.Context) {
	log := p.w.Logger.With("job", p.key.job, "chain", p.key.lane, "attempt", p.attempt)
	log.Info("driving")
	err := p.drive(ctx, waiting)
	switch {
	case err == nil, status.Code(err) == codes.FailedPrecondition, status.Code(err) == codes.NotFound, ctx.Err() != nil:
		log.Info("no longer driving", "reason", err)
	default:
		log.Warn("the job cannot go on", "error", err, "elsewhere", ofWorker(err))
		p.fail(ctx, err)
	}
	p.cancel(nil)
	p.closeGroup()
	close(p.done)
	p.w.finished(p)
}

// drive does the lane's work, as long as there is any.
func (p *placement) drive(ctx, waiting context.Context) error {
	var chain *driver.Chain
	certificate := false    // what chain is of
	var stages *driver.Lane // of a staged run
	for {
		a, err := p.await(waiting)
		if waiting.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a == nil {
			continue
		}
		j, err := p.w.jobs.load(ctx, p.key.job, a)
		if err != nil {
			return err
		}
		if a.Work == nil {
			if err := p.w.jobs.checkMemory(j, math.MaxInt); err != nil {
				return err
			}
			if err := p.report(ctx, &pb.ReportRequest{Loaded: &pb.Loaded{Data: j.data.Info.Wire(a.Data), InstructionSet: p.w.isa}}); err != nil {
				return err
			}
			continue
		}
		if err := p.awaitMemory(waiting, j); err != nil || waiting.Err() != nil {
			return err
		}
		w, err := chains.WorkOf(a.Work)
		if err != nil {
			return err
		}
		if w.Conduct != nil || w.Evaluate != nil {
			if stages == nil {
				stages = p.driver(ctx, j).NewLane(p.key.lane)
			}
			do := func(ctx context.Context, w chains.Work) (*chains.Event, error) {
				return stages.Event(ctx, w, chains.PreparedOf(a.Prepared))
			}
			if err := p.carryOut(ctx, do, w); err != nil && !refused(err) {
				return err
			}
			continue
		}
		if w.Advance == nil {
			if err := p.carryOut(ctx, p.driver(ctx, j).Event, w); err != nil && !refused(err) {
				return err
			}
			continue
		}
		if chain == nil || certificate != w.Certificate {
			if chain, err = p.newChain(ctx, j, w, chains.PreparedOf(a.Prepared)); err != nil {
				return err
			}
			certificate = w.Certificate
		}
		if err := p.advance(ctx, waiting, chain, j, w); err != nil && !refused(err) {
			return err
		}
	}
}

// await asks what to do; nil means to ask again.
func (p *placement) await(ctx context.Context) (*pb.Assignment, error) {
	var out *pb.AwaitResponse
	err := p.w.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		out, err = pb.NewWorkersClient(conn).Await(ctx, &pb.AwaitRequest{Job: p.key.job, Chain: int32(p.key.lane), Attempt: p.attempt, Secret: p.secret})
		return err
	})
	return out.GetAssignment(), err
}

// carryOut does some work that is no chain's, and reports what came of it. errRefused
// means that the run has gone on without: another lane was faster.
func (p *placement) carryOut(ctx context.Context, do func(context.Context, chains.Work) (*chains.Event, error), w *chains.Work) error {
	if err := p.w.Budget.Acquire(ctx); err != nil {
		return err
	}
	e, err := do(ctx, *w)
	p.w.Budget.Release()
	if err != nil {
		return err
	}
	text, err := e.Encode()
	if err != nil {
		return err
	}
	if err := p.report(ctx, &pb.ReportRequest{Events: [][]byte{text}}); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// newChain returns what advances the lane's chain.
func (p *placement) newChain(ctx context.Context, j *jobData, w *chains.Work, prep *chains.Prepared) (*driver.Chain, error) {
	if err := p.w.Budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer p.w.Budget.Release()
	return p.driver(ctx, j).For(*w).NewChain(ctx, prep, p.key.lane)
}

// report hands in what must be durable before the driver goes on, after the log
// lines of how it came about.
func (p *placement) report(ctx context.Context, r *pb.ReportRequest) error {
	p.w.logs.handIn(ctx, p.key)
	r.Job, r.Chain, r.Attempt, r.Worker, r.Secret = p.key.job, int32(p.key.lane), p.attempt, p.w.ID, p.secret
	return p.w.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewWorkersClient(conn).Report(ctx, r)
		return err
	})
}

// fail tells that the job cannot go on, here or anywhere.
func (p *placement) fail(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	r := &pb.ReportRequest{Failure: err.Error(), Elsewhere: ofWorker(err)}
	if errors.Is(err, shard.ErrUnsteady) {
		r.Disagreements = []*pb.Disagreement{{Worker: p.w.ID, Reason: err.Error()}}
	}
	if err := p.report(ctx, r); err != nil { // then the job is tried again elsewhere
		p.w.Logger.Warn("telling why the job cannot go on", "job", p.key.job, "error", err)
	}
}

// errRefused says that a checkpoint, or the result of an item, was refused.
var errRefused = errors.New("a result was refused")

// refused reports whether the run has moved otherwise than a driver thought: it
// has to ask anew, and is told if it was replaced.
func refused(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	return errors.Is(err, errRefused) && errors.As(err, &s) && s.GRPCStatus().Code() == codes.FailedPrecondition
}

// Checkpoints that are under way to the coordinators.
const (
	pipeline    = 8        // at most
	reportBytes = 4 << 20  // that go in one report, if there are several
	latentBytes = 64 << 20 // of latent vectors that wait for it
)

// reported is a checkpoint under way to the coordinators.
type reported struct {
	text   []byte // of the event
	latent []byte // latent vectors that it names, nil for none
}

// advance carries out a task and those that follow from it, while a reporter
// hands in the checkpoints, and returns when all are durable. errRefused means
// that the run has moved otherwise: ask anew.
func (p *placement) advance(ctx, waiting context.Context, chain *driver.Chain, j *jobData, w *chains.Work) error {
	t, plan := *w.Advance, j.driver.For(*w).Plan
	if ref, lacks := chain.Lacks(&t.From); lacks {
		blob, err := p.w.coords.latent(ctx, ref)
		if err == nil {
			err = chain.Give(blob)
		}
		if err != nil {
			return fmt.Errorf("chain %d: %w", t.Chain, err)
		}
	}
	most := pipeline
	if plan.Latent > 0 {
		most = int(max(1, min(pipeline, latentBytes/plan.Latent)))
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reports := make(chan reported, most)
	var wg sync.WaitGroup
	wg.Go(func() { p.reportAll(ctx, reports, cancel) })
	err := func() error {
		for ok := true; ok && waiting.Err() == nil; {
			e, err := p.compute(work, chain, t)
			if err != nil {
				return err
			}
			e.Certificate = w.Certificate
			text, err := e.Encode()
			if err != nil {
				return fmt.Errorf("chain %d: %w", t.Chain, err)
			}
			select {
			case reports <- reported{text, chain.Latent()}:
			case <-work.Done():
				return work.Err()
			}
			if e.Diverged != nil {
				return nil
			}
			t, ok = t.Next(plan, e.Checkpoint)
		}
		return nil
	}()
	close(reports)
	wg.Wait()
	if cause := context.Cause(work); errors.Is(cause, errRefused) && ctx.Err() == nil {
		return cause
	}
	return err
}

// reportAll hands in checkpoints as they come, those that wait together in one
// report, until there are no more or one is refused: then it says so by cancel. Of the
// latent vectors those of the last in a report have to be there before it: nobody
// goes on from the others.
func (p *placement) reportAll(ctx context.Context, reports <-chan reported, cancel context.CancelCauseFunc) {
	for k := range reports {
		batch, size := [][]byte{k.text}, len(k.text)
		for len(batch) < pipeline && size < reportBytes && len(reports) > 0 {
			k = <-reports
			batch, size = append(batch, k.text), size+len(k.text)
		}
		var err error
		if k.latent != nil {
			err = p.w.coords.keepLatent(ctx, k.latent)
		}
		if err == nil {
			err = p.report(ctx, &pb.ReportRequest{Events: batch})
		}
		if err != nil {
			cancel(fmt.Errorf("%w: %w", errRefused, err))
			for range reports { // whatever follows is void
			}
			return
		}
	}
}

// compute does one task.
func (p *placement) compute(ctx context.Context, chain *driver.Chain, t chains.Task) (*chains.Event, error) {
	if err := p.w.Budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer p.w.Budget.Release()
	e, err := chain.Checkpoint(ctx, t)
	if err == nil && e.Checkpoint != nil {
		p.w.metrics.shortened.Add(float64(e.Checkpoint.Cost.Shortened))
	}
	return e, err
}
