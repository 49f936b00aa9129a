package shard

import (
	"context"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// Member computes units: this process, another worker, or a simulation. It is a
// cmvp.Engine somewhere else: a unit is what Units or Forms compute, in the order of
// summation that is their contract, for the θ that comes with the product.
type Member interface {
	// Do computes a unit of a product into out, p.Size(u) numbers. It may be
	// called concurrently. It returns soon after ctx is done, and does not touch
	// out or the product after it has returned.
	Do(ctx context.Context, p *Product, u Unit, out []float64) error
	// Close ends the calls in progress and frees what the member holds.
	Close() error
}

// local is the driver's own share: its operator, one unit at a time.
type local struct {
	op    *cmvp.Operator
	meter *Meter
}

func (l *local) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	began := time.Now()
	if x := p.Exchange; x != nil {
		sums, err := p.part(ctx, l.op, u.Lo, nil)
		if err != nil {
			return err
		}
		x.own[u.Lo] = sums
		copy(out, x.checksums(u.Lo, len(p.V), sums))
	} else if err := p.compute(ctx, l.op, u, out); err != nil {
		return err
	}
	l.meter.computed(p.pairs(u), time.Since(began), false)
	return nil
}

func (l *local) Close() error { return nil }

// compute sets out to the answer of a unit.
func (p *Product) compute(ctx context.Context, op *cmvp.Operator, u Unit, out []float64) error {
	switch p.Kind {
	case Hold, Trans, Low:
		return p.L.compute(ctx, p, u, out, op.Budget())
	case Pass:
		return p.Pass.compute(ctx, u, out)
	case Forms:
		return op.FormsTasks(ctx, out, p.U, p.V, p.Group, p.Groups, u.Lo, u.Hi)
	}
	return op.MulUnits(ctx, out, p.V, p.Factor, u.Lo, u.Hi, p.Kind.precision())
}

// part computes the sums of a part that is to be kept, in space that may be used for them.
func (p *Product) part(ctx context.Context, op *cmvp.Operator, i int, space []float64) ([]float64, error) {
	x := p.Exchange
	n := len(p.V) * x.rows(i, -1)
	if cap(space) < n {
		space = make([]float64, n)
	}
	unit, lo, hi := x.tasks(i)
	if i < x.whole {
		return space[:n], op.MulUnits(ctx, space[:n], p.V, p.Factor, unit, unit+1, p.Kind.precision())
	}
	return space[:n], op.MulTasks(ctx, space[:n], p.V, p.Factor, lo, hi, p.Kind.precision())
}
