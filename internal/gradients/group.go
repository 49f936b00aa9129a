// Package gradients computes the gradients of minibatches over a group of workers, for a network of random features (package deep) that one process learns: the driver. A Group is
// the deep.Summer of the driver, a Server what workers run, and between them is the gRPC service Gradients.
//
// Steps are synchronous. A minibatch is chunks of 64 rows, whose random numbers depend on the step and the chunk alone, and what they come to is added up in their order, so
// the bits are those of one process, whatever the workers, and whatever becomes of them.
//
// A worker is sent all rows once, the parameters at each step, and the rows' numbers of the chunks that it takes. Chunks are pulled, by the cores of the driver too. One that
// has been out for much longer than the driver takes itself is done again by the driver, and the first answer counts. A worker whose answer is that late is left alone until it has come, and for a second at least, then two, up to a minute; one that
// fails, or does not answer at all, is left alone as long, and told everything anew. About one chunk in 64 is computed again and compared bit by bit: numbers that are wrong end the fit, since steps have
// been made with them. With no worker left the driver learns alone.
package gradients

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Config says how a group computes.
type Config struct {
	Workers []string // host:port
	// Options are those of connections; they must contain transport credentials.
	Options []grpc.DialOption
	// Log is told of workers that come and go; nil means slog.Default.
	Log *slog.Logger
}

// Group computes sums over rows with workers. It is not safe for concurrent use.
type Group struct {
	*posterior.Deep
	conf    Config
	members []*member
	cancel  context.CancelFunc
	running sync.WaitGroup
	each    time.Duration // that a chunk takes the driver, about
}

// sampled is one in how many chunks of others the driver computes again.
const sampled = 64

// New returns a group, which connects to its workers in the background. The error says what of the network cannot be learnt so.
func New(d *posterior.Deep, c Config) (*Group, error) {
	out, err := d.Outcomes()
	if err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Group{Deep: d, conf: c, cancel: cancel}
	for _, address := range c.Workers {
		m := &member{Group: g, address: address, targets: out}
		g.members = append(g.members, m)
		g.running.Go(func() { m.stay(ctx) })
	}
	return g, nil
}

// Close ends the sessions with all workers.
func (g *Group) Close() {
	g.cancel()
	g.running.Wait()
}

// Shares returns how many chunks each worker has computed that were used.
func (g *Group) Shares() (shares []int) {
	for _, m := range g.members {
		shares = append(shares, int(m.done.Load()))
	}
	return shares
}

// ready returns the sessions that can be given chunks.
func (g *Group) ready() (all []*session) {
	for _, m := range g.members {
		if s := m.session.Load(); s != nil && s.ready(time.Now()) {
			all = append(all, s)
		}
	}
	return all
}

var _ deep.Summer = (*Group)(nil)

// Sum computes chunks, as deep.Summer.
func (g *Group) Sum(ctx context.Context, s *deep.Sample, t *deep.Terms, take func(value float64, grad []float64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	q := newQueue(ctx, t.Chunks(), patience+10*g.each)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	at := &params{s.Step(), slices.Clone(s.X())} // which a worker that is late may be sent when the driver is a step ahead
	open := g.ready()
	share := (t.Chunks() + len(open)) / (1 + len(open)) // of each, rounded up
	for _, w := range open {
		for range min(w.parts, share) {
			working.Go(func() { w.work(ctx, q, at, t) })
		}
	}
	committed := make(chan error, 1)
	working.Go(func() { committed <- g.commit(q, s, t, take) })
	g.Budget().NewLoop(func(int, int) { g.local(q, s, t) }).Run(min(g.Budget().Cores(), t.Chunks()))
	if err := <-committed; err != nil {
		return err
	}
	g.each = q.slowest()
	return nil
}

// params are the parameters of a sum.
type params struct {
	step int
	x    []float64
}

// local computes chunks until none is left.
func (g *Group) local(q *queue, s *deep.Sample, t *deep.Terms) {
	for {
		c, ok := q.next(nil)
		if !ok {
			return
		}
		began := time.Now()
		value, grad := s.Chunk(g.Inputs(), t.Chunk(c), c, t.Factor, t.Slopes)
		q.measured(time.Since(began))
		q.put(c, answer{value: value, grad: grad})
	}
}

// commit gives what chunks come to in their order. A sample of what others have computed is held against the driver's bits.
func (g *Group) commit(q *queue, s *deep.Sample, t *deep.Terms, take func(value float64, grad []float64)) error {
	for c := range t.Chunks() {
		a, err := q.await(c)
		if err != nil {
			return err
		}
		if a.by != nil {
			if a.by.done.Add(1); rand.IntN(sampled) == 0 {
				value, grad := s.Chunk(g.Inputs(), t.Chunk(c), c, t.Factor, t.Slopes)
				if !same(value, a.value) || !sameAll(grad, a.grad) {
					err := fmt.Errorf("the worker at %s has computed a gradient whose bits are not the driver's: steps may have been made with wrong numbers; begin the fit again without it", a.by.address)
					q.end(err)
					return err
				}
			}
		}
		take(a.value, a.grad)
	}
	g.each = q.slowest()
	return nil
}

func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func sameAll(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// patience is how long a chunk may be out before the driver does it again, beside ten times what one takes itself.
const patience = 50 * time.Millisecond

// answer is what a chunk comes to.
type answer struct {
	value float64
	grad  []float64
	by    *member // nil for the driver
}

// queue has the chunks of a sum. Each is out with at most one worker at a time, and with the driver.
type queue struct {
	patience time.Duration

	mu      sync.Mutex
	changed sync.Cond
	state   []out
	taken   int // all before are done
	err     error
	most    time.Duration // that a chunk has taken the driver
}

// out is a chunk on its way.
type out struct {
	done, local bool
	with        *member // nil if with none
	since       time.Time
	answer      answer
}

// ahead is how many chunks may be done before the first that is not: their answers wait.
const ahead = 64

func newQueue(ctx context.Context, chunks int, patience time.Duration) *queue {
	q := &queue{patience: patience, state: make([]out, chunks)}
	q.changed.L = &q.mu
	context.AfterFunc(ctx, func() { q.end(ctx.Err()) })
	return q
}

// end ends all waiting, for an error.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.changed.Broadcast()
}

// next takes a chunk for a worker, or for the driver (nil), which takes those again that have been out for longer than its patience. It waits for one; false says that there
// will be none.
func (q *queue) next(m *member) (chunk int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && q.taken < len(q.state) {
		chunk, wait := q.free(m)
		if chunk >= 0 {
			return chunk, true
		}
		if wait > 0 {
			timer := time.AfterFunc(wait, q.wake)
			q.changed.Wait()
			timer.Stop()
		} else {
			q.changed.Wait()
		}
	}
	return 0, false
}

func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// free takes a chunk, or returns −1 and, for the driver, when one is late, 0 if never.
func (q *queue) free(m *member) (chunk int, wait time.Duration) {
	late := -1
	for c := q.taken; c < min(len(q.state), q.taken+ahead); c++ {
		o := &q.state[c]
		switch {
		case o.done || o.local:
		case o.with == nil:
			if o.local = m == nil; m != nil {
				o.with, o.since = m, time.Now()
			}
			return c, 0
		case m == nil:
			if left := q.patience - time.Since(o.since); left <= 0 && late < 0 {
				late = c
			} else if left > 0 && (wait == 0 || left < wait) {
				wait = left
			}
		}
	}
	if late >= 0 {
		q.state[late].local = true
	}
	return late, wait
}

// put gives the answer of a chunk, if it is the first.
func (q *queue) put(c int, a answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o := &q.state[c]; !o.done {
		o.done, o.with, o.answer = true, nil, a
		for q.taken < len(q.state) && q.state[q.taken].done {
			q.taken++
		}
		q.changed.Broadcast()
	}
}

// back says that a worker will not answer a chunk.
func (q *queue) back(c int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state[c].with = nil
	q.changed.Broadcast()
}

// await returns the answer of a chunk, once it is there.
func (q *queue) await(c int) (answer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && !q.state[c].done {
		q.changed.Wait()
	}
	a := q.state[c].answer
	q.state[c].answer = answer{}
	return a, q.err
}

// isDone reports whether a chunk is.
func (q *queue) isDone(c int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state[c].done
}

func (q *queue) measured(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most = max(q.most, d)
}

func (q *queue) slowest() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.most
}
