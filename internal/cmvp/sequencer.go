package cmvp

import "sync"

// sequencer lets tasks finish out of order and commits them in order, with a
// bounded number in flight.
type sequencer struct {
	mu        sync.Mutex
	cond      sync.Cond
	cancelled <-chan struct{} // of the context
	done      []bool          // ring: task i has finished but is not committed
	committed int             // tasks [0,committed) are
	stopped   bool
}

func (q *sequencer) init(window int) {
	q.done = make([]bool, window)
	q.cond.L = &q.mu
}

// start begins a new sequence, which ends early if cancelled is closed.
func (q *sequencer) start(cancelled <-chan struct{}) {
	clear(q.done)
	q.cancelled, q.committed, q.stopped = cancelled, 0, false
}

// enter waits until task i may use its slot, and reports false if the sequence is
// cancelled. Tasks enter in increasing order, so the task that the others wait
// for is always running.
func (q *sequencer) enter(i int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.stopped && i-q.committed >= len(q.done) {
		q.cond.Wait()
	}
	if !q.stopped && isDone(q.cancelled) {
		q.stopped = true
		q.cond.Broadcast()
	}
	return !q.stopped
}

// leave marks task i as finished and commits all tasks whose turn has come.
func (q *sequencer) leave(i int, commit func(j int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done[i%len(q.done)] = true
	for w := len(q.done); q.done[q.committed%w]; q.committed++ {
		q.done[q.committed%w] = false
		commit(q.committed)
	}
	q.cond.Broadcast()
}

// isDone reports whether a context's channel is closed; nil never is.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
