package client

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/ulisse-gp/ulisse/internal/predict"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Predict predicts rows from a job: at whichever coordinator
// answers, anew where one is lost on the way. progress, if not nil, is told how
// far it is.
func (c *Client) Predict(ctx context.Context, req *pb.PredictRequest, progress func(*pb.PredictProgress)) (*pb.PredictResponse, error) {
	req.Progress = progress != nil
	var answer *pb.PredictResponse
	err := stream(ctx, c, c.cfg.Patience, false, pb.NewPredictionsClient, pb.PredictionsClient.Predict, func() *pb.PredictRequest { return req },
		func(m *pb.PredictResponse) error {
			if len(m.Rows) > 0 {
				answer = m
			} else if progress != nil && m.Progress != nil {
				progress(m.Progress)
			}
			return nil
		})
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, &Error{Code: codes.Internal, Message: "the cluster ended its answer without rows"}
	case len(answer.Rows) != len(req.Rows):
		return nil, &Error{Code: codes.Internal, Message: fmt.Sprintf("the cluster sent %d rows for %d", len(answer.Rows), len(req.Rows))}
	}
	return answer, nil
}

// PredictRows predicts any number of rows from a job, averaged over a number of its draws so
// far or, if that is 0, over as many as are independent. Every worker is given a batch at a time.
func (c *Client) PredictRows(ctx context.Context, j *pb.Job, r predict.Request, o predict.Options, draws int) ([]predict.Row, predict.Stats, error) {
	workers, err := c.Workers(ctx)
	if err != nil {
		return nil, predict.Stats{}, err
	}
	ready := 0
	for _, w := range workers {
		if w.Connected && !w.Draining {
			ready++
		}
	}
	if err := o.Check(); err != nil {
		return nil, predict.Stats{}, err
	}
	size := predict.Batch(int(j.GetData().GetN()))
	if r.Joint() {
		size = max(1, len(r.X))
	}
	batches := (len(r.X) + size - 1) / size
	p := &prediction{options: o, total: len(r.X), out: make([][]predict.Row, batches), done: make([]float64, batches)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, ready))
	for b := range batches {
		lo, hi := b*size, min(len(r.X), (b+1)*size)
		part := r.Part(lo, hi)
		g.Go(func() error {
			req := predict.Encode(j.Id, part, o, draws)
			req.Inputs = j.GetData().GetInputs()
			if !Ended(j.State) { // all batches from the same draws
				req.Kept = int32(MinDraws(j.Progress))
			}
			m, err := c.Predict(ctx, req, func(m *pb.PredictProgress) { p.hear(b, hi-lo, m) })
			if err != nil {
				return err
			}
			return p.take(b, j.Id, part, m)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, p.stats, err
	}
	return slices.Concat(p.out...), p.stats, nil
}

// prediction gathers the answers to the batches of a prediction.
type prediction struct {
	options predict.Options
	total   int // rows

	mu     sync.Mutex
	out    [][]predict.Row // of each batch
	done   []float64       // rows of each batch
	stats  predict.Stats
	sha256 string // of the draws
}

// tell passes on how many rows of a batch are done; p.mu is held.
func (p *prediction) tell(batch int, rows float64) {
	p.done[batch] = rows
	sum := 0.0
	for _, d := range p.done {
		sum += d
	}
	p.options.Progress(predict.Progress{Stage: predict.RowsStage, Done: int(sum), Total: p.total})
}

// hear passes on how far a batch is.
func (p *prediction) hear(batch, rows int, m *pb.PredictProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Stage == predict.SolutionsStage {
		p.options.Progress(predict.Progress{Stage: m.Stage, Done: int(m.Done), Total: int(m.Total)})
	} else if m.Total > 0 {
		p.tell(batch, float64(rows)*float64(m.Done)/float64(m.Total))
	}
}

// take keeps the answer to a batch.
func (p *prediction) take(batch int, job string, r predict.Request, m *pb.PredictResponse) error {
	rows, stats, err := predict.Answered(m, r)
	if err != nil {
		return fmt.Errorf("the cluster's answer cannot be read: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sha256 == "" {
		p.sha256 = m.DrawsSha256
	}
	if m.DrawsSha256 != p.sha256 {
		return fmt.Errorf("job %s has other draws than a moment ago: it goes on, or was extended; predict again", job)
	}
	p.out[batch] = rows
	p.stats.Add(stats)
	p.tell(batch, float64(len(rows)))
	return nil
}
