package shard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how many times the time that an idle member takes for a unit it
	// may be out before that member does it again.
	patience = 1.5
	// grace is added to that, so that units of no work are not done twice.
	grace = 5 * time.Millisecond
	// maxAttempts bounds how often a unit is out at a time. The driver itself may
	// always add one.
	maxAttempts = 3
	// A member that failed gets no work for a time that doubles each time it fails
	// again.
	firstPause, longestPause = time.Second, time.Minute
)

// peer is a member and what its group knows of it.
type peer struct {
	Member
	rows    *holder // its session for the factor of a preconditioner
	name    string
	backoff time.Duration // the last one; 0 if it has done well since
	until   time.Time     // it gets no work before
	proved  *State        // the last θ for which a product that it had a part in was found right
	pace    float64       // what a unit of the last product took it, in ns; 0 if it had none
}

// setAside keeps a peer from work for a while, longer each time.
func (p *peer) setAside(now time.Time) {
	p.backoff = min(max(firstPause, 2*p.backoff), longestPause)
	p.until = now.Add(p.backoff)
}

// scheduler hands out the units of products, one product at a time.
type scheduler struct {
	self      Member
	units     int     // for each member
	depth     int     // units that a peer has at a time: one computed, others waiting
	bandwidth float64 // bytes a second that the driver sends
	rate      float64 // elements of K, or of L and columns, a second that the driver computes; 0 until measured
	meter     *Meter
	log       *slog.Logger
	// wrong, if set, is told of a member whose numbers were wrong. It does not wait.
	wrong func(member, reason string)
}

// limit returns how many of the members are of use.
func (s *scheduler) limit(p *Product, members int) int {
	switch {
	case p.L != nil || p.Pass != nil: // whoever holds rows, or was chosen
		return members
	case p.Exchange != nil:
		return min(members, p.Exchange.members)
	}
	return Cost{Kind: p.Kind, Rows: p.N, Columns: len(p.V), Rate: s.rate, Bandwidth: s.bandwidth}.Members(members)
}

// run is one product under way.
type run struct {
	*scheduler
	p       *Product
	members int  // beside the driver
	patient bool // with members that did nothing while others did their work
	commit  func(u Unit, out []float64)

	mu      sync.Mutex
	units   []unitState
	failed  error         // why it cannot go on
	active  int           // members that may get units
	came    time.Time     // when the last answer did
	longest float64       // what a unit would take the driver at most, in ns
	todo    []int         // units to give out, the last first
	out     []int         // units given out and not done
	left    int           // units not committed
	pace    []float64     // what units took, sorted
	changed chan struct{} // closed when idle members should look again
	ended   chan struct{} // closed when left is 0
}

type unitState struct {
	Unit
	extent   float64 // what it is of a unit of the grid, or in tasks of forms
	needs    pieces
	rows     pieces // of L
	holders  int    // members that have these
	not      *peer  // who must not have it; nil for none
	done     bool
	by       *peer // whose answer counts; nil for the driver
	attempts []*attempt
	others   []answer // that came later
}

// answer is what a member made of a unit. A nil peer is the driver.
type answer struct {
	by  *peer
	out []float64
}

// share is a unit of a product that is computed, by whom, nil for the driver, and what
// others made of it who had it, too.
type share struct {
	Unit
	by     *peer
	others []answer
}

// mayHave reports whether a member may be given the unit. The driver may always.
func (u *unitState) mayHave(w *worker) bool {
	return w.peer == nil || w.peer != u.not && u.rows&^w.holds == 0
}

// since returns when the unit was last given out, or last had to wait behind
// another of the same member.
func (u *unitState) since() time.Time {
	var last time.Time
	for _, a := range u.attempts {
		for _, t := range []time.Time{a.started, a.by.last} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// attempt is a unit in the hands of a member.
type attempt struct {
	unit    int
	by      *worker
	started time.Time
	cancel  context.CancelFunc
}

// worker is a member in a run. A nil peer is the driver itself.
type worker struct {
	Member
	peer      *peer
	has       pieces // of the vectors
	holds     pieces // of the rows of L
	delivered int
	last      time.Time // when it came back with a unit
	pace      float64   // what that took for each unit of the grid or task, in ns
	overtaken bool      // a unit that it had was done by a later one
	gone      bool      // it gets no more units
	lacked    int       // units that it could not compute because others did not give it what they have
	slow      bool      // it took much longer than others for the last product
}

// run computes a product, and calls commit with each unit's answer, once, maybe
// concurrently. It runs the driver's own share on the calling goroutine and
// returns who computed what when all units are committed, or the context's error, or
// that of the driver's own share; no member works on the product then.
func (s *scheduler) run(ctx context.Context, p *Product, peers []*peer, commit func(Unit, []float64)) ([]share, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := time.Now()
	var workers []*worker
	limit := s.limit(p, 1+len(peers))
	for _, m := range peers {
		if !m.until.After(now) && len(workers)+1 < limit {
			w := &worker{Member: m, peer: m}
			if p.L != nil {
				w.Member, w.holds = m.rows, m.rows.ready(p.State)
			}
			workers = append(workers, w)
		}
	}
	r := &run{scheduler: s, p: p, members: len(workers), patient: p.L != nil || p.Add, commit: commit, changed: make(chan struct{}), ended: make(chan struct{})}
	for _, u := range p.again {
		r.units = append(r.units, unitState{Unit: u.Unit, not: u.by})
	}
	if p.again == nil {
		for _, u := range p.split(1+len(workers), s.units) {
			r.units = append(r.units, unitState{Unit: u})
		}
	}
	for i := range r.units {
		u := &r.units[i]
		u.needs, u.extent = p.needs(u.Unit), p.extent(u.Unit)
		if p.L != nil {
			u.rows = rowsOf(u.Unit)
			for _, w := range workers {
				if u.mayHave(w) {
					u.holders++
				}
			}
		}
		r.longest = max(r.longest, p.work(u.Unit)/cmp.Or(s.rate, startRate/10)*1e9)
		r.todo = append(r.todo, i)
	}
	slices.Reverse(r.todo)
	r.left, r.active, r.came = len(r.units), len(workers), now
	r.findSlow(workers)

	self := &worker{Member: s.self, has: ^pieces(0)}
	first, _, _, err := r.nextOf(self) // before others take them all
	var wg sync.WaitGroup
	depth := max(1, min(s.depth, len(r.units)/(1+len(workers)))) // so that there is a unit for each
	for _, w := range workers {
		for range depth {
			wg.Go(func() { r.serve(ctx, w, nil) })
		}
	}
	if err == nil {
		err = r.serve(ctx, self, first)
	}
	cancel()
	wg.Wait()
	if self.pace > 0 {
		s.rate = p.work(Unit{0, 1}) / p.extent(Unit{0, 1}) / self.pace * 1e9
	}
	for _, w := range workers {
		if p.L == nil && p.Pass == nil && !p.Add {
			w.peer.pace = w.pace
		}
		if !w.gone && w.delivered > 0 && p.L == nil {
			w.peer.backoff = 0
		}
	}
	shares := make([]share, len(r.units))
	for i, u := range r.units {
		shares[i] = share{u.Unit, u.by, u.others}
	}
	return shares, err
}

// serve gives units to a member until none is left for it, maybe a first one
// that it has already.
func (r *run) serve(ctx context.Context, w *worker, a *attempt) error {
	var buf []float64
	for ; ; a = nil {
		var changed <-chan struct{}
		var wait time.Duration
		if a == nil {
			var err error
			if a, changed, wait, err = r.nextOf(w); err != nil {
				return err
			}
		}
		if a == nil {
			if changed == nil {
				return nil
			}
			if err := r.idle(ctx, changed, wait); err != nil {
				return err
			}
			continue
		}
		u := r.units[a.unit].Unit
		actx, cancel := context.WithCancel(ctx)
		if !r.begin(a, cancel) {
			cancel()
			continue
		}
		if n := r.p.Size(u); cap(buf) < n {
			buf = make([]float64, n)
		}
		out := buf[:r.p.Size(u)]
		if w.peer == nil {
			r.yield(actx)
		}
		err := w.Do(actx, r.p, u, out)
		if err == nil && w.peer != nil {
			if err = r.p.check(u, out); err != nil {
				err = wrongAnswer{err}
			}
		}
		won := r.end(ctx, a, out, err)
		cancel()
		if won {
			r.commit(u, out)
			r.committed()
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && w.peer == nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// idle waits until there may be something to do.
func (r *run) idle(ctx context.Context, changed <-chan struct{}, wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ended:
	case <-changed:
	case <-due:
	}
	return nil
}

// nextOf is next, but for the driver's share of an exchange: it takes the last part that is left, if those after that are its own,
// and gives up where no other member is left or nothing comes any more.
func (r *run) nextOf(w *worker) (a *attempt, changed <-chan struct{}, wait time.Duration, err error) {
	x := r.p.Exchange
	if w.peer != nil || x == nil {
		a, changed, wait = r.next(w)
		return a, changed, wait, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch stalled := r.came.Add(x.stall + time.Duration(slowest*r.longest)); {
	case r.failed != nil:
		return nil, nil, 0, r.failed
	case r.left == 0:
		return nil, nil, 0, nil
	case !r.p.Add:
		at := slices.IndexFunc(r.todo, func(i int) bool { return r.units[i].Lo == x.floor-1 })
		if at >= 0 {
			i := r.todo[at]
			r.todo = slices.Delete(r.todo, at, at+1)
			return r.give(w, i, now), nil, 0, nil
		}
		fallthrough
	default:
		if r.active == 0 || now.After(stalled) {
			return nil, nil, 0, errExchange
		}
		return nil, r.changed, stalled.Sub(now) + time.Millisecond, nil
	}
}

// findSlow notes which members took more than twice the median time for the last product.
func (r *run) findSlow(workers []*worker) {
	var paces []float64
	for _, w := range workers {
		if w.peer.pace > 0 {
			paces = append(paces, w.peer.pace)
		}
	}
	slices.Sort(paces)
	for _, w := range workers {
		w.slow = len(paces) > 0 && w.peer.pace > 2*paces[len(paces)/2]
	}
}

// next chooses a unit for a member: one that nobody has, or, if there is none,
// one that has been out for longer than the member itself takes for it. If there
// is nothing to do now it returns how long to wait (0 for no limit) and a
// channel that is closed if there may be something sooner, nil if the member is
// not needed any more.
func (r *run) next(w *worker) (*attempt, <-chan struct{}, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 || w.gone {
		return nil, nil, 0
	}
	now := time.Now()
	if at := r.nearest(w); at >= 0 {
		i := r.todo[at]
		r.todo = slices.Delete(r.todo, at, at+1)
		return r.give(w, i, now), nil, 0
	}
	pace := w.pace
	if pace == 0 {
		if len(r.pace) == 0 {
			return nil, r.changed, 0
		}
		pace = r.pace[len(r.pace)/2]
	}
	due, at := -1, now // the unit that may be done again first, and when
	for _, i := range r.out {
		u := &r.units[i]
		mine := slices.ContainsFunc(u.attempts, func(a *attempt) bool { return a.by == w })
		if mine || !u.mayHave(w) || len(u.attempts) >= maxAttempts && w.peer != nil {
			continue
		}
		t := u.since().Add(time.Duration(patience*pace*u.extent) + grace)
		if due < 0 || t.Before(at) {
			due, at = i, t
		}
	}
	if due < 0 {
		return nil, r.changed, 0
	}
	if wait := at.Sub(now); wait > 0 {
		return nil, r.changed, wait
	}
	r.meter.hedges.Add(1)
	return r.give(w, due, now), nil, 0
}

// nearest returns where among those to give out the unit is that a member needs the fewest
// vectors for, among equals one that the fewest others can compute: the first of them; -1 if it may have none.
func (r *run) nearest(w *worker) int {
	best, least := -1, math.MaxInt
	for at, i := range slices.Backward(r.todo) {
		u := &r.units[i]
		score := (1+r.members)*bits.OnesCount64(uint64(u.needs&^w.has)) + u.holders
		if x := r.p.Exchange; x != nil && !r.p.Add && (u.Lo >= x.whole) != w.slow { // pieces last, but for slow members
			score += (1 + r.members) * 64
		}
		if score < least && u.mayHave(w) {
			best, least = at, score
		}
	}
	return best
}

// give notes that a member has a unit.
func (r *run) give(w *worker, i int, now time.Time) *attempt {
	u := &r.units[i]
	w.has |= u.needs
	a := &attempt{unit: i, by: w, started: now}
	u.attempts = append(u.attempts, a)
	if len(u.attempts) == 1 {
		r.out = append(r.out, i)
	}
	return a
}

func remove(list []int, i int) []int {
	if at := slices.Index(list, i); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// begin notes how to cancel an attempt. It returns false if there is no need for
// it any more.
func (r *run) begin(a *attempt, cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.cancel = cancel
	return !r.units[a.unit].done
}

// end notes what came of an attempt, and reports whether its answer is the
// unit's first.
func (r *run) end(ctx context.Context, a *attempt, out []float64, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, w, now := &r.units[a.unit], a.by, time.Now()
	u.attempts = slices.DeleteFunc(u.attempts, func(b *attempt) bool { return a == b })
	if err == nil {
		began := a.started
		if w.last.After(began) {
			began = w.last
		}
		w.delivered++
		w.last = now
		w.pace = float64(now.Sub(began)) / u.extent
		if u.done {
			u.others = append(u.others, answer{w.peer, slices.Clone(out)})
			return false
		}
		u.done, u.by, r.came = true, w.peer, now
		if x := r.p.Exchange; x != nil && w.peer == nil {
			x.floor = u.Lo
		}
		r.out = remove(r.out, a.unit)
		for _, b := range u.attempts { // those that are overtaken
			b.by.overtaken = b.by.overtaken || b.started.Before(a.started)
			r.setAside(b.by, now, nil)
			if b.cancel != nil {
				b.cancel()
			}
		}
		at, _ := slices.BinarySearch(r.pace, w.pace)
		r.pace = slices.Insert(r.pace, at, w.pace)
		if len(r.pace) == 1 {
			r.wake()
		}
		return true
	}
	var lacks missing
	if errors.As(err, &lacks) && ctx.Err() == nil && r.lose(w, lacks) {
		err = nil // it is not this member's fault
	}
	var wrong wrongAnswer
	if errors.As(err, &wrong) {
		r.blame(w.peer, err.Error())
	}
	if ctx.Err() != nil || u.done {
		return false
	}
	if len(u.attempts) == 0 {
		r.out = remove(r.out, a.unit)
		r.todo = append(r.todo, a.unit)
		r.meter.retries.Add(1)
	}
	if err != nil {
		r.setAside(w, now, err)
	}
	r.wake()
	return false
}

// lose notes that a member does not give what another one needs. What it keeps is lost: points are added up anew when that has
// been computed again. It returns false if it is rather that one's fault.
func (r *run) lose(w *worker, m missing) bool {
	x := r.p.Exchange
	if w.lacked++; x == nil || m.address == "" || w.lacked > x.grid.Points() {
		return false
	}
	x.lose(m)
	if r.p.Add {
		r.failed = errLost
	}
	return true
}

// setAside takes a peer out of the run if it failed, or if it was overtaken before
// it had done anything: not with a factor, where the driver may do as much while vectors travel.
func (r *run) setAside(w *worker, now time.Time, err error) {
	if w.peer == nil || w.gone || err == nil && (!w.overtaken || w.delivered > 0 || r.patient) {
		return
	}
	w.gone = true
	r.active--
	if w.peer.until.After(now) { // for longer, because it was wrong
		return
	}
	w.peer.setAside(now)
	why := "it did nothing while others did its work"
	if err != nil {
		why = err.Error()
	}
	r.log.Warn("group member gets no work for a while", "member", w.peer.name, "seconds", w.peer.backoff.Seconds(), "reason", why)
}

// wake makes idle members look again.
func (r *run) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// committed notes that a unit's answer is in its place.
func (r *run) committed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left--; r.left == 0 {
		close(r.ended)
	}
}
