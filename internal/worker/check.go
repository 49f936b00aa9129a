package worker

import (
	"context"
	"errors"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// check carries out a task that another worker has carried out, and tells what came of it.
func (w *Worker) check(ctx context.Context, c *pb.Check) {
	out := &pb.Checked{Number: c.Number}
	sum, err := w.again(ctx, c)
	if err != nil {
		w.Logger.Warn("a checkpoint of another worker could not be checked", "job", c.Job, "error", err)
		out.Failure = err.Error()
	} else {
		out.Sha256 = sum
	}
	w.trimJobs()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.post(&pb.WorkerMessage{Message: &pb.WorkerMessage_Checked{Checked: out}})
}

// again returns the sum of the checkpoint that a task comes to, computed by this worker alone.
func (w *Worker) again(ctx context.Context, c *pb.Check) (string, error) {
	work, err := chains.WorkOf(c.Assignment.GetWork())
	if err != nil {
		return "", err
	}
	if work.Advance == nil {
		return "", errors.New("there is no task of a chain to check")
	}
	j, err := w.jobs.load(ctx, c.Job, c.Assignment)
	if err != nil {
		return "", err
	}
	if err := w.Budget.Acquire(ctx); err != nil {
		return "", err
	}
	defer w.Budget.Release()
	alone := func(int) driver.Operator { return cmvp.New(j.problem.Inputs, j.problem.Covariance, w.Budget) }
	d := j.driver.With(alone, nil).For(*work)
	d.Observe = func(runlog.Observation) {} // it was told of when it counted
	chain, err := d.NewChain(ctx, chains.PreparedOf(c.Assignment.Prepared), work.Advance.Chain)
	if err != nil {
		return "", err
	}
	if ref, lacks := chain.Lacks(&work.Advance.From); lacks {
		blob, err := w.coords.latent(ctx, ref)
		if err == nil {
			err = chain.Give(blob)
		}
		if err != nil {
			return "", err
		}
	}
	k, err := chain.Advance(ctx, *work.Advance)
	if err != nil {
		return "", err
	}
	return k.Sum()
}
