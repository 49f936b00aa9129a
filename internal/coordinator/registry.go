package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/health"
	"github.com/ulisse-gp/ulisse/internal/schedule"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// registry is what the leader knows of workers. It is not replicated: workers
// tell a new leader themselves.
type registry struct {
	mu       sync.Mutex
	byID     map[string]*worker
	changed  chan struct{}
	activity activity
	troubles troubles
	// disagreements are between workers that did not compute the same bits.
	disagreements disagreements
	checking      checking
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
	holds map[state.ChainKey]*held
	// process tells the worker's process from the one before, and gone is what that one held
	// when it was silent for too long.
	process string
	gone    map[state.ChainKey]*held
}

// drives reports whether the worker drives a lane of a job.
func (w *worker) drives(job string) bool {
	for k := range w.holds {
		if k.Job == job {
			return true
		}
	}
	return false
}

// held is a placement at a worker.
type held struct {
	attempt  int64
	group    []string
	revoked  bool      // it was asked to release it
	restated bool      // the worker said so itself; it may not know its group
	since    time.Time // when it was told to drive; zero if it was restated
}

// session is a connection of a worker.
type session struct {
	peer string // what the worker shows: another one does not take its place
	out  chan *pb.CoordinatorMessage
	done chan struct{}
	once sync.Once
}

// sessionQueue bounds the messages that wait for a worker.
const sessionQueue = 1024

func newSession(peer string) *session {
	return &session{peer: peer, out: make(chan *pb.CoordinatorMessage, sessionQueue), done: make(chan struct{})}
}

func (s *session) end() { s.once.Do(func() { close(s.done) }) }

// send queues a message; a worker that does not read is cut off.
func (s *session) send(m *pb.CoordinatorMessage) {
	select {
	case s.out <- m:
	default:
		s.end()
	}
}

func newRegistry() *registry {
	return &registry{byID: map[string]*worker{}, changed: make(chan struct{}), activity: activity{since: time.Now()}, disagreements: disagreements{},
		checking: checking{asked: map[string]*check{}, counts: map[string]int64{}}}
}

// wake wakes whoever waits for changes; the caller holds the lock.
func (r *registry) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (r *registry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// connect takes up a worker that says hello. An older session of the same
// worker is ended; while it is there, another one does not get its name: then false
// is returned.
func (r *registry) connect(h *pb.Hello, s *session, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[h.Id]
	if w != nil && w.session != nil && w.session.peer != s.peer {
		return false
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
	holds := map[state.ChainKey]*held{}
	for _, p := range h.Driving {
		holds[state.ChainKey{Job: p.Job, Chain: int(p.Chain)}] = &held{attempt: p.Attempt, restated: true}
	}
	if h.Process != "" && w.process != "" && h.Process != w.process {
		r.disagreements.forget(w.id)
		r.strikeLost(w, holds, now)
	}
	w.process, w.holds, w.gone = h.Process, holds, nil
	r.activity.add(now, h.Id, workerJoined)
	r.wake()
	return true
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
		r.wake()
	}
}

// beat takes a worker's heartbeat.
func (r *registry) beat(id string, b *pb.Beat, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil {
		return
	}
	w.seen, w.load = now, b.Load
	w.course.see(now, b.Load)
	if b.Draining && !w.leaving {
		r.activity.add(now, id, workerDraining)
		w.draining, w.leaving = true, true
		r.wake()
	}
}

// release notes that a worker drives a chain no more.
func (r *registry) release(id string, p *pb.Release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byID[id]; w != nil {
		k := state.ChainKey{Job: p.Job, Chain: int(p.Chain)}
		if h := w.holds[k]; h != nil && h.attempt <= p.Attempt {
			delete(w.holds, k)
		}
		r.wake()
	}
}

// drain takes all work from a worker, and reports whether it is known.
func (r *registry) drain(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil {
		return false
	}
	if !w.draining {
		r.activity.add(now, id, workerDraining)
	}
	w.draining = true
	r.wake()
	return true
}

// forget drops workers that have been gone for so long, what workers held that will
// not come back in time, and the troubles of all jobs but some.
func (r *registry) forget(now time.Time, after, grace time.Duration, jobs map[string]*state.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.byID {
		if w.session == nil && now.Sub(w.seen) > grace && w.holds != nil {
			w.gone, w.holds = w.holds, nil
		}
	}
	r.troubles.keep(jobs)
	r.disagreements.expire(now)
	maps.DeleteFunc(r.byID, func(_ string, w *worker) bool { return w.session == nil && now.Sub(w.seen) > after })
}

// known returns the workers as the schedule sees them. Those that are not
// connected are there for as long as they may come back; so are, while a leader
// is new, those that it only knows from the placements.
func (r *registry) known(now, since time.Time, grace time.Duration, placed map[string]bool) []schedule.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []schedule.Worker
	for id := range placed {
		if r.byID[id] == nil && now.Sub(since) <= grace {
			out = append(out, schedule.Worker{ID: id, Cores: 1, Unheard: true})
		}
	}
	for _, w := range r.byID {
		if w.session == nil && now.Sub(w.seen) > grace {
			continue
		}
		s := schedule.Worker{ID: w.id, Cores: max(1, int(w.capacity.Cores)), InstructionSet: w.capacity.InstructionSet,
			Connected: w.session != nil, Draining: w.draining, Holds: map[state.ChainKey]bool{}, Memory: w.capacity.MemoryBytes, Aside: map[string]bool{},
			Wrong: r.disagreements.aside(w.id, now), Apart: map[string]bool{}}
		for other := range r.disagreements.of(w.id, now) {
			s.Apart[other] = true
		}
		for job := range r.troubles.of(w.id, now) {
			s.Aside[job] = true
		}
		for k := range w.holds {
			s.Holds[k] = true
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b schedule.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// there returns the workers that are connected.
func (r *registry) there() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]bool{}
	for _, w := range r.byID {
		if w.session != nil {
			out[w.id] = true
		}
	}
	return out
}

// health returns what the health of jobs depends on.
func (r *registry) health() health.Workers {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := health.Workers{InstructionSets: map[string]bool{}, Seen: map[string]time.Time{}, Troubles: map[string]string{}}
	for id := range r.troubles.strikes {
		if why := r.troubles.last(id); why != "" {
			out.Troubles[id] = why
		}
	}
	for _, w := range r.byID {
		out.Seen[w.id] = w.seen
		if w.session != nil && !w.draining {
			out.InstructionSets[w.capacity.GetInstructionSet()] = true
			if m := w.capacity.GetMemoryBytes(); m == 0 || out.Memory < 0 {
				out.Memory = -1 // one that has not told may have any
			} else {
				out.Memory = max(out.Memory, m)
			}
		}
	}
	return out
}

// tell tells the workers what has changed for them: which placements of the jobs
// they are to drive, namely those to be kept, and which to release.
func (r *registry) tell(keep map[state.ChainKey]bool, jobs map[string]*state.Job, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		for chain, at := range j.Placements {
			k := state.ChainKey{Job: j.ID, Chain: chain}
			if w := r.byID[at.Worker]; w != nil && w.session != nil && keep[k] {
				r.drive(w, k, &at, now)
			}
		}
	}
	for _, w := range r.byID {
		if w.session == nil {
			continue
		}
		for k, h := range w.holds {
			if !h.revoked && !(keep[k] && isAt(jobs[k.Job], k.Chain, w.id, h.attempt)) {
				h.revoked = true
				w.session.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Revoke{Revoke: &pb.Revoke{Job: k.Job, Chain: int32(k.Chain), Attempt: h.attempt}}})
			}
		}
		if w.draining && !w.left && len(w.holds) == 0 {
			w.left = true
			w.session.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Leave{Leave: &pb.Leave{}}})
		}
	}
}

// drive tells a worker to drive a chain, unless it does so already.
func (r *registry) drive(w *worker, k state.ChainKey, at *state.Placement, now time.Time) {
	h := w.holds[k]
	if h != nil && h.attempt == at.Attempt && slices.Equal(h.group, at.Group) && !h.revoked && !(h.restated && len(at.Group) > 0) {
		return
	}
	w.holds[k] = &held{attempt: at.Attempt, group: at.Group, since: now}
	p := &pb.Placement{Job: k.Job, Chain: int32(k.Chain), Attempt: at.Attempt, Worker: at.Worker, Secret: at.Secret}
	for _, g := range at.Group {
		if o := r.byID[g]; o != nil {
			p.Group = append(p.Group, &pb.Member{Worker: g, Address: o.address})
		}
	}
	w.session.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Drive{Drive: &pb.Drive{Placement: p}}})
}

// isAt reports whether a chain of a job is placed at a worker, under an attempt.
func isAt(j *state.Job, chain int, worker string, attempt int64) bool {
	return j != nil && chain >= 0 && chain < len(j.Placements) && j.Placements[chain].Worker == worker && j.Placements[chain].Attempt == attempt
}

// list returns the workers as users see them.
func (r *registry) list() []*pb.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*pb.Worker
	serving := map[string][]*pb.Placement{}
	for _, w := range r.byID {
		p := &pb.Worker{Id: w.id, Address: w.address, Capacity: w.capacity, Draining: w.draining, Connected: w.session != nil,
			Joined: pbTime(w.joined), LastSeen: pbTime(w.seen), Load: w.load, Version: w.version}
		troubles := r.troubles.of(w.id, time.Now())
		for _, job := range slices.Sorted(maps.Keys(troubles)) {
			p.Troubles = append(p.Troubles, job+": "+troubles[job])
		}
		p.Aside = r.disagreements.aside(w.id, time.Now())
		with := r.disagreements.of(w.id, time.Now())
		for _, other := range slices.Sorted(maps.Keys(with)) {
			p.Disagreements = append(p.Disagreements, other+": "+with[other])
		}
		for k, h := range w.holds {
			at := &pb.Placement{Job: k.Job, Chain: int32(k.Chain), Attempt: h.attempt, Worker: w.id}
			p.Driving = append(p.Driving, at)
			for _, g := range h.group {
				serving[g] = append(serving[g], at)
			}
		}
		slices.SortFunc(p.Driving, byChain)
		out = append(out, p)
	}
	for _, p := range out {
		p.Serving = serving[p.Id]
		slices.SortFunc(p.Serving, byChain)
	}
	slices.SortFunc(out, func(a, b *pb.Worker) int { return cmp.Compare(a.Id, b.Id) })
	return out
}

func byChain(a, b *pb.Placement) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Chain, b.Chain))
}

// count returns how many workers there are by state, and the cores of those that
// take work.
func (r *registry) count() (byState map[string]int, cores int) {
	byState = map[string]int{"connected": 0, "draining": 0, "lost": 0, "aside": 0}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.byID {
		switch {
		case w.session == nil && (w.left || w.leaving):
		case w.session == nil:
			byState["lost"]++
		case w.draining:
			byState["draining"]++
		case r.disagreements.aside(w.id, time.Now()):
			byState["aside"]++
		default:
			byState["connected"]++
			cores += int(w.capacity.GetCores())
		}
	}
	return byState, cores
}
