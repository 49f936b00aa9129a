// Package parallel shares a fixed number of cores between the goroutines of a
// process. A chain holds one core while it computes; its loops recruit the
// cores that nobody else is using and give them back when the loop ends.
// Results never depend on how many were found: a loop's iterations are
// independent, and sums over them are taken in a fixed order.
package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Budget is a number of cores.
type Budget struct {
	tokens chan struct{} // one for each free core
}

// NewBudget returns a budget of n cores, or of GOMAXPROCS if n ≤ 0 (which
// follows a container's CPU limit).
func NewBudget(n int) *Budget {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	b := &Budget{tokens: make(chan struct{}, n)}
	for range n {
		b.tokens <- struct{}{}
	}
	return b
}

// Cores returns the size of the budget.
func (b *Budget) Cores() int { return cap(b.tokens) }

// Acquire takes one core, waiting until one is free or ctx is done.
func (b *Budget) Acquire(ctx context.Context) error {
	select {
	case <-b.tokens:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release gives one core back.
func (b *Budget) Release() { b.tokens <- struct{}{} }

func (b *Budget) tryAcquire() bool {
	select {
	case <-b.tokens:
		return true
	default:
		return false
	}
}

// Loop is a reusable parallel loop: body(worker, i) for i in [0,n), where
// worker < Budget.Cores()+1 names the goroutine, so that body can use a
// workspace of its own. Iterations are started in increasing order. A Loop
// allocates nothing after NewLoop, and runs one loop at a time.
type Loop struct {
	budget *Budget
	body   func(worker, i int)
	helper func()

	n       int64
	next    atomic.Int64
	workers atomic.Int64
	wg      sync.WaitGroup
}

// NewLoop returns a loop over body.
func (b *Budget) NewLoop(body func(worker, i int)) *Loop {
	l := &Loop{budget: b, body: body}
	l.helper = func() {
		l.work()
		l.budget.Release()
		l.wg.Done()
	}
	return l
}

// MaxWorkers returns a bound on the worker numbers that a body sees.
func (b *Budget) MaxWorkers() int { return cap(b.tokens) + 1 }

// Run runs the loop over [0,n) on the calling goroutine, which should hold a
// core, and on every free core.
func (l *Loop) Run(n int) {
	l.n = int64(n)
	l.next.Store(0)
	l.workers.Store(0)
	for i := 1; i < n && l.budget.tryAcquire(); i++ {
		l.wg.Add(1)
		go l.helper()
	}
	l.work()
	l.wg.Wait()
}

func (l *Loop) work() {
	w := int(l.workers.Add(1)) - 1
	for {
		i := l.next.Add(1) - 1
		if i >= l.n {
			return
		}
		l.body(w, int(i))
	}
}

// Chunks runs body over consecutive ranges of [0,n) of at most size elements
// each. The ranges depend on n and size alone.
func (b *Budget) Chunks(n, size int, body func(chunk, lo, hi int)) {
	chunks := (n + size - 1) / size
	if chunks <= 1 {
		if n > 0 {
			body(0, 0, n)
		}
		return
	}
	b.NewLoop(func(_, i int) {
		body(i, i*size, min(n, (i+1)*size))
	}).Run(chunks)
}
