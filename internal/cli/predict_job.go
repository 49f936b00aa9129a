package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
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
	info  dataset.Info
}

// openJob finds a job that has ended.
func (a *App) openJob(ctx context.Context, s *session, f *predictFlags, arg string) (oracle, error) {
	if f.threads != 0 {
		return nil, badInput(errors.New("--threads: the cluster's workers compute, on all of their cores"))
	}
	j, err := a.find(ctx, s, arg)
	if err != nil {
		return nil, err
	}
	if !client.Ended(j.State) || j.DrawsSha256 == "" {
		return nil, fmt.Errorf("job %s is %s: predictions are made from the draws of jobs that have ended", j.Id, client.StateWord(j.State))
	}
	return &jobOracle{s: s, job: j, train: f.train, draws: f.draws,
		info: dataset.Info{Rows: int(j.Data.N), HeldOut: int(j.Data.HeldOut), Target: j.Data.Target, InputNames: j.Data.Inputs}}, nil
}

func (o *jobOracle) about() *dataset.Info { return &o.info }

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

// predict has the rows predicted, a batch at a time by every worker.
func (o *jobOracle) predict(ctx context.Context, pts *points, opt predict.Options, probs []float64) ([]predict.Row, predict.Stats, error) {
	workers, err := o.s.Workers(ctx)
	if err != nil {
		return nil, predict.Stats{}, err
	}
	many := 0
	for _, w := range workers {
		if w.Connected && !w.Draining {
			many++
		}
	}
	size := predict.Batch(o.info.Rows)
	batches := (len(pts.x) + size - 1) / size
	out := make([][]predict.Row, batches)
	var mu sync.Mutex // guards what follows
	var stats predict.Stats
	sha256, done := "", make([]float64, batches) // rows
	tell := func(b int, rows float64) {
		done[b] = rows
		total := 0.0
		for _, d := range done {
			total += d
		}
		opt.Progress(predict.Progress{Stage: predict.RowsStage, Done: int(total), Total: len(pts.x)})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, many))
	for b := range batches {
		lo, hi := b*size, min(len(pts.x), (b+1)*size)
		r := predict.Request{X: pts.x[lo:hi], Probs: probs}
		if pts.y != nil {
			r.Targets = pts.y[lo:hi]
		}
		g.Go(func() error {
			m, err := o.s.Predict(ctx, predict.Encode(o.job.Id, r, opt, o.draws), func(p *pb.PredictProgress) {
				mu.Lock()
				defer mu.Unlock()
				if p.Stage == predict.SolutionsStage {
					opt.Progress(predict.Progress{Stage: p.Stage, Done: int(p.Done), Total: int(p.Total)})
				} else if p.Total > 0 {
					tell(b, float64(hi-lo)*float64(p.Done)/float64(p.Total))
				}
			})
			if err != nil {
				return err
			}
			rows, s, err := predict.Answered(m, r)
			if err != nil {
				return fmt.Errorf("the cluster's answer cannot be read: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if sha256 == "" {
				sha256 = m.DrawsSha256
			}
			if m.DrawsSha256 != sha256 {
				return fmt.Errorf("job %s has other draws than a moment ago: it was extended meanwhile", o.job.Id)
			}
			out[b] = rows
			stats.Add(s)
			tell(b, float64(hi-lo))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, stats, err
	}
	var all []predict.Row
	for _, rows := range out {
		all = append(all, rows...)
	}
	return all, stats, nil
}
