package shard

import (
	"context"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// Member computes units: this process, another worker, or a simulation.
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
	dst   [][]float64
}

func (l *local) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	began := time.Now()
	var err error
	if l.dst, err = compute(ctx, l.op, p, u, l.dst, out); err != nil {
		return err
	}
	l.meter.computed(p.work(u), time.Since(began), false)
	return nil
}

func (l *local) Close() error { return nil }

// compute sets out to the answer of a unit, with dst as space for columns, which
// it returns, maybe grown.
func compute(ctx context.Context, op *cmvp.Operator, p *Product, u Unit, dst [][]float64, out []float64) ([][]float64, error) {
	if p.Kind == Forms {
		return dst, op.FormsTasks(ctx, out, p.U, p.V, p.Group, p.Groups, u.Lo, u.Hi)
	}
	s := len(p.V)
	for len(dst) < s {
		dst = append(dst, make([]float64, p.N))
	}
	mul := op.MulRows
	if p.Kind == Single {
		mul = op.MulSingleRows
	}
	if err := mul(ctx, dst[:s], p.V, u.Lo, u.Hi); err != nil {
		return dst, err
	}
	for c, y := range dst[:s] {
		copy(out[c*(u.Hi-u.Lo):], y[u.Lo:u.Hi])
	}
	return dst, nil
}
