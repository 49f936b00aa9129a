package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// jobOracle has a cluster predict, from the draws of a job.
type jobOracle struct {
	s     *session
	job   *pb.Job
	train string // path of the training table, if it is to be read here
	draws int
	info  *dataset.Info
	told  func() // says once what the predictions are from, if the job has not ended
}

// openJob finds a job that has something to predict from.
func (a *App) openJob(ctx context.Context, s *session, f *predictFlags, arg string) (oracle, error) {
	if f.threads != 0 {
		return nil, badInput(errors.New("--threads: the cluster's workers compute, on all of their cores"))
	}
	j, err := a.find(ctx, s, arg)
	if err != nil {
		return nil, err
	}
	if j.Data.GetSha256() == "" {
		return nil, fmt.Errorf("job %s has nothing to predict from yet: its state is %s", j.Id, client.StateWord(j.State))
	}
	told := func() {}
	if draws := client.MinDraws(j.GetProgress()); j.DrawsSha256 == "" || draws == 0 {
		told = sync.OnceFunc(func() {
			a.note("job %s is %s: %s", j.Id, client.StateWord(j.State), predictedSoFar(draws, "its warm-up or the normal approximation at the mode"))
		})
	}
	return &jobOracle{s: s, job: j, train: f.train, draws: f.draws, told: told,
		info: dataset.InfoOf(j.Data)}, nil
}

func (o *jobOracle) about() *dataset.Info { return o.info }

func (o *jobOracle) conditional() (likelihood.Likelihood, error) {
	spec, err := job.ParseString(o.job.Spec)
	if err != nil {
		return nil, err
	}
	return spec.Model.Conditional(), nil
}

// heldOut reads the job's data here, as its workers do.
func (o *jobOracle) heldOut(ctx context.Context) (*points, error) {
	spec, err := job.ParseString(o.job.Spec)
	if err != nil {
		return nil, err
	}
	var table io.Reader
	switch blob := o.job.Data.Blob; {
	case spec.Data.Synthetic != nil:
	case o.train != "":
		f, err := os.Open(o.train)
		if err != nil {
			return nil, badInput(err)
		}
		defer f.Close()
		table = f
	case blob != "":
		var b bytes.Buffer
		if _, err := o.s.Download(ctx, blob, &b); err != nil {
			return nil, err
		}
		table = &b
	default:
		return nil, badInput(fmt.Errorf("--holdout: the data at %s are not kept by the cluster: give the table with --train", spec.Data.Path))
	}
	d, err := spec.Load(ctx, table, parallel.NewBudget(0))
	if err != nil {
		return nil, err
	}
	if d.SHA256 != o.job.Data.Sha256 {
		return nil, badInput(errors.New("--train: this is not the table that the job has learnt from"))
	}
	return heldOut(d)
}

// predict has the rows predicted by the cluster's workers.
func (o *jobOracle) predict(ctx context.Context, r predict.Request, opt predict.Options) ([]predict.Row, predict.Stats, error) {
	if r.Joint() && len(r.X) > predict.MaxRows {
		return nil, predict.Stats{}, badInput(fmt.Errorf("the joint distribution of %d rows: a cluster predicts %d together at most: fetch the results (ulisse results %s) and predict from their folder", len(r.X), predict.MaxRows, o.job.Id))
	}
	rows, stats, err := o.s.PredictRows(ctx, o.job, r, opt, o.draws)
	if err == nil { // only now it is known that there is something to predict from
		o.told()
	}
	return rows, stats, err
}
