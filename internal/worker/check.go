package worker

import (
	"context"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
)

// check carries out work that a driver has carried out, and tells what came of it.
func (w *Worker) check(ctx context.Context, c *pb.Check) {
	out := &pb.Checked{Number: c.Number}
	sum, err := w.again(ctx, c)
	if err != nil {
		w.Logger.Warn("what a driver has computed could not be checked", "job", c.Job, "error", err)
		out.Failure = err.Error()
	} else {
		out.Sha256 = sum
	}
	w.trimJobs()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.post(&pb.WorkerMessage{Message: &pb.WorkerMessage_Checked{Checked: out}})
}

// again returns the sum of the event that some work comes to, computed by this worker alone.
func (w *Worker) again(ctx context.Context, c *pb.Check) (string, error) {
	work, err := chains.WorkOf(c.Assignment.GetWork())
	if err != nil {
		return "", err
	}
	j, err := w.jobs.load(ctx, c.Job, c.Assignment)
	if err == nil {
		err = w.jobs.checkMemory(j, 1)
	}
	if err != nil {
		return "", err
	}
	if err := w.Budget.Acquire(ctx); err != nil {
		return "", err
	}
	defer w.Budget.Release()
	alone := func(int) driver.Operator { return cmvp.New(j.problem.Inputs, j.problem.Covariance, w.Budget) }
	e, err := j.driver.With(alone, nil).Again(ctx, *work, chains.PreparedOf(c.Assignment.Prepared), w.coords.latent)
	if err != nil {
		return "", err
	}
	return e.Sum()
}
