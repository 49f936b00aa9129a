package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// pipeline is how many checkpoints may be under way to the coordinators.
const pipeline = 8

// Why a driver stops.
var (
	errReplaced = errors.New("another driver has taken over the chain")
	errRefused  = errors.New("a checkpoint was refused")
)

// drive is the driving of one chain; chain 0 is the search for the mode.
type drive struct {
	w       *Worker
	key     chainKey
	attempt int64
	ctx     context.Context
	cancel  context.CancelCauseFunc
	revoked chan struct{}
	once    sync.Once
	done    chan struct{}

	mu    sync.Mutex
	group []string     // addresses of the workers that share the products
	op    *shard.Group // the operator, once there is one
}

func (d *drive) revoke() { d.once.Do(func() { close(d.revoked) }) }

func (d *drive) isRevoked() bool {
	select {
	case <-d.revoked:
		return true
	default:
		return false
	}
}

// setGroup changes who shares the chain's products, from the next one on.
func (d *drive) setGroup(g []*pb.Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group = nil
	for _, m := range g {
		d.group = append(d.group, m.Address)
	}
	if d.op != nil {
		d.op.SetMembers(d.group...)
	}
}

// setOperator hands over the operator whose group the drive keeps up to date.
func (d *drive) setOperator(op *shard.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.op != nil {
		d.op.Close()
	}
	d.op = op
	op.SetMembers(d.group...)
}

// alone reports whether nobody shares the chain's products.
func (d *drive) alone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.group) == 0
}

// close parts with the group.
func (d *drive) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.op != nil {
		d.op.Close()
	}
}

// run drives the chain until it is revoked, replaced, or has no more to do.
func (d *drive) run() {
	log := d.w.Logger.With("job", d.key.job, "chain", d.key.chain, "attempt", d.attempt)
	log.Info("driving")
	err := d.loop()
	switch {
	case err == nil, status.Code(err) == codes.FailedPrecondition, status.Code(err) == codes.NotFound, d.ctx.Err() != nil:
		log.Info("no longer driving", "reason", err)
	default:
		log.Warn("the job cannot go on", "error", err)
		d.fail(err)
	}
	d.cancel(nil)
	d.close()
	d.w.jobs.release(d.key.job)
	close(d.done)
	d.w.finished(d)
}

// fail tells that the job cannot go on.
func (d *drive) fail(err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), callTimeout)
	defer cancel()
	_ = d.w.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewWorkersClient(conn).Report(ctx, d.request(&pb.ReportRequest{Failure: err.Error()}))
		return err
	})
}

// request fills in who reports.
func (d *drive) request(r *pb.ReportRequest) *pb.ReportRequest {
	r.Job, r.Chain, r.Attempt, r.Worker = d.key.job, int32(d.key.chain), d.attempt, d.w.ID
	return r
}

// await asks what to do; nil means to ask again.
func (d *drive) await(ctx context.Context) (*coordinator.Assignment, error) {
	var out *pb.AwaitResponse
	err := d.w.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		out, err = pb.NewWorkersClient(conn).Await(ctx, &pb.AwaitRequest{Job: d.key.job, Chain: int32(d.key.chain), Attempt: d.attempt})
		return err
	})
	if err != nil || len(out.Assignment) == 0 {
		return nil, err
	}
	var a coordinator.Assignment
	if err := json.Unmarshal(out.Assignment, &a); err != nil {
		return nil, fmt.Errorf("reading an assignment: %w", err)
	}
	return &a, nil
}

func (d *drive) loop() error {
	idle, cancel := context.WithCancel(d.ctx) // a revoked driver waits no more, but computes on
	defer cancel()
	go func() {
		select {
		case <-d.revoked:
			cancel()
		case <-idle.Done():
		}
	}()
	var chain *driver.Chain
	certificate := false // what chain is of
	for {
		a, err := d.await(idle)
		if d.isRevoked() || d.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a == nil {
			continue
		}
		j, err := d.w.jobs.load(d.ctx, d.key.job, a)
		if err != nil {
			return err
		}
		switch w := a.Work; {
		case w == nil:
			err = d.tell(j)
		case w.Advance == nil:
			err = d.prepare(j, *w)
		default:
			if chain == nil || certificate != w.Certificate {
				if chain, err = j.chain(d, *w, a.Prepared); err != nil {
					return err
				}
				certificate = w.Certificate
			}
			err = d.advance(chain, j, *w)
		}
		if err != nil && !refused(err) {
			return err
		}
	}
}

// tell tells what the data are.
func (d *drive) tell(j *loaded) error {
	text, err := json.Marshal(coordinator.Loaded{Info: &j.data.Info, InstructionSet: d.w.isa})
	if err != nil {
		return err
	}
	return d.report(&pb.ReportRequest{Loaded: text})
}

// prepare does the work of lane 0.
func (d *drive) prepare(j *loaded, w chains.Work) error {
	if err := d.w.Budget.Acquire(d.ctx); err != nil {
		return err
	}
	e, err := j.driver(d).Event(d.ctx, w)
	d.w.Budget.Release()
	if err != nil {
		return err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return d.report(&pb.ReportRequest{Events: [][]byte{text}})
}

// report hands in what must be durable before the driver goes on.
func (d *drive) report(r *pb.ReportRequest) error {
	return d.w.coords.call(d.ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewWorkersClient(conn).Report(ctx, d.request(r))
		return err
	})
}

// advance carries out a task and those that follow from it, while a reporter
// hands in the checkpoints, and returns when all are durable. errRefused means
// that the run has moved otherwise: ask anew.
func (d *drive) advance(chain *driver.Chain, j *loaded, w chains.Work) error {
	t, plan := *w.Advance, j.driver(d).For(w).Plan
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	reports := make(chan []byte, pipeline)
	var wg sync.WaitGroup
	wg.Go(func() {
		for text := range reports {
			batch := [][]byte{text}
			for len(batch) < pipeline && len(reports) > 0 {
				batch = append(batch, <-reports)
			}
			d.w.logs.handIn(d.ctx, d.key) // whoever sees draws sees what made them, too
			if err := d.report(&pb.ReportRequest{Events: batch}); err != nil {
				cancel(fmt.Errorf("%w: %w", errRefused, err))
				for range reports { // whatever follows is void
				}
				return
			}
		}
	})
	err := func() error {
		for ok := true; ok && !d.isRevoked(); {
			k, err := d.compute(ctx, chain, t)
			if err != nil {
				return err
			}
			text, err := json.Marshal(chains.Event{Certificate: w.Certificate, Checkpoint: k})
			if err != nil {
				return fmt.Errorf("chain %d: %w", t.Chain, err)
			}
			select {
			case reports <- text:
			case <-ctx.Done():
				return ctx.Err()
			}
			t, ok = t.Next(plan, k)
		}
		return nil
	}()
	close(reports)
	wg.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errRefused) && d.ctx.Err() == nil {
		return cause
	}
	return err
}

// refused reports whether the run has moved otherwise than a driver thought: it
// has to ask anew, and is told if it was replaced.
func refused(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	return errors.Is(err, errRefused) && errors.As(err, &s) && s.GRPCStatus().Code() == codes.FailedPrecondition
}

// compute does one task.
func (d *drive) compute(ctx context.Context, chain *driver.Chain, t chains.Task) (*chains.Checkpoint, error) {
	if err := d.w.Budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer d.w.Budget.Release()
	k, err := chain.Advance(ctx, t)
	if err == nil {
		d.w.metrics.shortened.Add(float64(k.Cost.Shortened))
	}
	return k, err
}
