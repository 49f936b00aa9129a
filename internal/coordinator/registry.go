package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// registry is what the leader knows of workers. It is not replicated: workers
// tell a new leader themselves.
type registry struct {
	mu      sync.Mutex
	byID    map[string]*worker
	changed chan struct{}
	activity
}

// worker is a worker as the leader knows it.
type worker struct {
	id       string
	address  string
	capacity *pb.Capacity
	version  string
	joined   time.Time
	seen     time.Time
	load     *pb.Load
	course   course
	draining bool
	leaving  bool     // it drains because it was told to stop, as it says itself
	left     bool     // it was told that nothing is left for it to do
	session  *session // nil while it is not connected
	// holds are the placements that it has been told to drive, or says that it
	// drives, and has not released.
	holds map[chainKey]*held
}

// chainKey names a chain of a job.
type chainKey struct {
	job   string
	chain int
}

// held is a placement at a worker.
type held struct {
	attempt  int64
	group    []string
	revoked  bool // it was asked to release it
	restated bool // the worker said so itself; it may not know its group
}

// session is a connection of a worker.
type session struct {
	peer string // what the worker shows: another one does not take its place
	out  chan *pb.CoordinatorMessage
	done chan struct{}
	once sync.Once
}

func (s *session) end() { s.once.Do(func() { close(s.done) }) }

func newRegistry() *registry {
	return &registry{byID: map[string]*worker{}, changed: make(chan struct{}), activity: activity{since: time.Now()}}
}

// notify wakes whoever waits for changes; the caller holds the lock.
func (r *registry) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (r *registry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// update calls f with a worker, nil if it is unknown, and wakes the scheduler.
func (r *registry) update(id string, f func(w *worker)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byID[id]; w != nil {
		f(w)
		r.notify()
	}
}

// connect takes up a worker that says hello. An older session of the same
// worker is ended; while it is there, another one does not get its name: then nil
// is returned.
func (r *registry) connect(h *pb.Hello, s *session, now time.Time) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[h.Id]
	if w != nil && w.session != nil && w.session.peer != s.peer {
		return nil
	}
	if w == nil {
		w = &worker{id: h.Id, joined: now}
		r.byID[h.Id] = w
	}
	if w.session != nil {
		w.session.end()
	}
	if w.left || w.leaving { // then this is another process, or it will say so again
		w.draining, w.leaving, w.left = false, false, false
	}
	w.address, w.capacity, w.version, w.seen, w.session = h.Address, h.Capacity, h.Version, now, s
	if w.capacity == nil {
		w.capacity = &pb.Capacity{}
	}
	w.holds = map[chainKey]*held{}
	for _, p := range h.Driving {
		w.holds[chainKey{p.Job, int(p.Chain)}] = &held{attempt: p.Attempt, restated: true}
	}
	r.activity.add(now, h.Id, workerJoined)
	r.notify()
	return w
}

// disconnect notes the end of a session.
func (r *registry) disconnect(id string, s *session, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byID[id]; w != nil && w.session == s {
		w.session, w.seen = nil, now
		how := workerLost
		if w.left {
			how = workerLeft
		}
		r.activity.add(now, id, how)
		r.notify()
	}
}

// forget drops workers that have been gone for so long.
func (r *registry) forget(now time.Time, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byID, func(_ string, w *worker) bool { return w.session == nil && now.Sub(w.seen) > after })
}

// snapshot returns the workers as the scheduler sees them. Those that are not
// connected are there for as long as they may come back; so are, while a leader
// is new, those that it only knows from the placements.
func (r *registry) snapshot(now, since time.Time, grace time.Duration, placed map[string]bool) []candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []candidate
	for id := range placed {
		if r.byID[id] == nil && now.Sub(since) <= grace {
			out = append(out, candidate{id: id, cores: 1, anyISA: true})
		}
	}
	for _, w := range r.byID {
		if w.session == nil && now.Sub(w.seen) > grace {
			continue
		}
		out = append(out, candidate{id: w.id, cores: max(1, int(w.capacity.Cores)), isa: w.capacity.InstructionSet,
			connected: w.session != nil, draining: w.draining, speed: w.capacity.PairsPerSecond})
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return out
}
