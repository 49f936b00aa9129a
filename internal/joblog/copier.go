package joblog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Batch is what is handed on at once: lines of a chain that one worker has said.
type Batch struct {
	Job     string
	Entries []Entry
}

func (b *Batch) size() int64 {
	n := 0
	for _, e := range b.Entries {
		n += len(e.Text)
	}
	return int64(n)
}

// Bounds of what waits for a peer. What does not fit is dropped: readers find it
// where it was taken.
const (
	queueLength = 256     // batches
	queueBytes  = 4 << 20 // of lines
)

// Copier hands batches on to peers, to each in order. A peer that is slow, or does
// not answer, keeps nobody waiting.
type Copier struct {
	send   func(ctx context.Context, peer string, b Batch)
	ctx    context.Context // of all sending, until Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*queue
}

// queue is what waits for a peer.
type queue struct {
	batches chan Batch
	bytes   atomic.Int64
}

// NewCopier returns a copier. send hands a batch to a peer; it must return soon
// after its context is done.
func NewCopier(send func(ctx context.Context, peer string, b Batch)) *Copier {
	c := &Copier{send: send, queues: map[string]*queue{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Copy hands a batch on to the peers that there are now.
func (c *Copier) Copy(peers []string, b Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	for peer, q := range c.queues {
		if !slices.Contains(peers, peer) { // it has left
			close(q.batches)
			delete(c.queues, peer)
		}
	}
	size := b.size()
	for _, peer := range peers {
		q := c.queues[peer]
		if q == nil {
			q = &queue{batches: make(chan Batch, queueLength)}
			c.queues[peer] = q
			c.wg.Go(func() { c.drain(peer, q) })
		}
		if q.bytes.Load()+size > queueBytes {
			continue
		}
		q.bytes.Add(size)
		select {
		case q.batches <- b:
		default:
			q.bytes.Add(-size)
		}
	}
}

// drain sends what is in a queue until it is closed.
func (c *Copier) drain(peer string, q *queue) {
	for b := range q.batches {
		if c.ctx.Err() == nil {
			c.send(c.ctx, peer, b)
		}
		q.bytes.Add(-b.size())
	}
}

// Close ends all sending; what waits is dropped.
func (c *Copier) Close() {
	c.mu.Lock()
	c.cancel()
	for peer, q := range c.queues {
		close(q.batches)
		delete(c.queues, peer)
	}
	c.mu.Unlock()
	c.wg.Wait()
}
