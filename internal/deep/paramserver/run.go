package paramserver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Gradient computes the gradient of the minibatch of a number at x, into grad. Numbers are given out in order, from 1.
type Gradient func(ctx context.Context, batch int, x, grad []float64) error

// Clock is a simulated one: how long it takes a worker to compute the gradient of a batch.
type Clock func(worker, batch int) float64

// worker is a simulated one.
type worker struct {
	number  int
	x, grad []float64
	version int
	busy    bool
	done    float64 // when its gradient will be there
}

// Simulate has workers push gradients until the server has made so many steps, and returns the time that this takes by the clock. Of two gradients that come at the same time that of the
// worker of the lower number comes first. tell, if not nil, is told of each step and its time. The error is that of a gradient.
func Simulate(ctx context.Context, s *Server, workers, steps int, clock Clock, gradient Gradient, tell func(step int, now float64)) (now float64, err error) {
	pool := make([]*worker, workers)
	for i := range pool {
		pool[i] = &worker{number: i, x: make([]float64, len(s.x)), grad: make([]float64, len(s.x)), version: -1}
	}
	batch := 0
	for {
		for _, w := range pool {
			if w.busy || s.Waits(w.version) {
				continue
			}
			batch++
			w.version = s.Pull(w.x)
			clear(w.grad)
			if err := gradient(ctx, batch, w.x, w.grad); err != nil {
				return now, err
			}
			w.busy, w.done = true, now+clock(w.number, batch)
		}
		next := slices.MinFunc(pool, func(a, b *worker) int {
			switch {
			case a.busy != b.busy:
				if a.busy {
					return -1
				}
				return 1
			case a.done < b.done:
				return -1
			case a.done > b.done:
				return 1
			}
			return a.number - b.number
		})
		before := s.Report().Steps
		now, next.busy = next.done, false
		s.Push(next.version, next.grad)
		if after := s.Report().Steps; after > before {
			if tell != nil {
				tell(after, now)
			}
			if after == steps {
				return now, nil
			}
		}
	}
}

// Run has workers push gradients, each in a goroutine, until the server has made so many steps at least. The error is that of a gradient.
func Run(ctx context.Context, s *Server, workers, steps int, gradient Gradient) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var batch atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			x, grad := make([]float64, len(s.x)), make([]float64, len(s.x))
			for s.Report().Steps < steps && ctx.Err() == nil {
				version := s.Pull(x)
				clear(grad)
				if err := gradient(ctx, int(batch.Add(1)), x, grad); err != nil {
					cancel(err)
					break
				}
				s.Push(version, grad)
				if s.Report().Steps < steps {
					s.wait(version)
				}
			}
			s.close()
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
