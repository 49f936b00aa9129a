package driver

import (
	"context"
	"errors"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// Again carries out work of any kind that somebody has carried out before, by itself, and
// returns the event that comes of it. Nothing is told of it: it was told of when it counted.
// latents brings the latent vectors that a chain's state names. The caller has a core of
// the budget.
func (d *Driver) Again(ctx context.Context, w chains.Work, prep *chains.Prepared, latents func(context.Context, latent.Ref) ([]byte, error)) (*chains.Event, error) {
	quiet := *d.For(w)
	quiet.Observe, quiet.Trace = func(runlog.Observation) {}, nil
	certificate := w.Certificate
	w.Certificate = false // quiet is its driver already
	var e *chains.Event
	var err error
	switch {
	case w.Advance != nil:
		e, err = quiet.advanceAgain(ctx, w.Advance, prep, latents)
	case w.Evaluate != nil, w.Conduct != nil:
		e, err = quiet.NewLane(0).Event(ctx, w, prep)
	case w.Prepare != nil, w.Weigh != nil, w.Conclude != nil:
		e, err = quiet.Event(ctx, w)
	default:
		err = errors.New("this is no work that is done twice")
	}
	if err != nil {
		return nil, err
	}
	e.Certificate = certificate
	return e, nil
}

func (d *Driver) advanceAgain(ctx context.Context, t *chains.Task, prep *chains.Prepared, latents func(context.Context, latent.Ref) ([]byte, error)) (*chains.Event, error) {
	c, err := d.NewChain(ctx, prep, t.Chain)
	if err != nil {
		return nil, err
	}
	if ref, lacks := c.Lacks(&t.From); lacks {
		blob, err := latents(ctx, ref)
		if err == nil {
			err = c.Give(blob)
		}
		if err != nil {
			return nil, err
		}
	}
	k, err := c.Advance(ctx, *t)
	return &chains.Event{Checkpoint: k}, err
}
