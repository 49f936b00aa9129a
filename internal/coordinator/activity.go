package coordinator

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// activity is what the leader saw of a cluster's workers: who came and went, and
// what each did. It is kept in memory, in bounded detail, and lost with the
// leadership.
type activity struct {
	since  time.Time
	events []workerEvent
}

type workerEvent struct {
	at           time.Time
	worker, kind string
}

// What happens to workers.
const (
	workerJoined   = "joined"
	workerDraining = "draining"
	workerLeft     = "left"
	workerLost     = "lost"  // its connection broke
	workerAside    = "aside" // it computes other numbers than others do
)

// Bounds of what is kept.
const (
	maxWorkerEvents = 1000
	courseStep      = 5 * time.Second
	maxCourse       = 360 // steps: of half an hour, or of longer ones after that
)

func (a *activity) add(at time.Time, worker, kind string) {
	if len(a.events) == maxWorkerEvents {
		a.events = append(a.events[:0], a.events[maxWorkerEvents/4:]...)
	}
	a.events = append(a.events, workerEvent{at, worker, kind})
}

// course is what a worker did, in steps of time.
type course struct {
	step time.Duration
	last time.Time // of the last point
	load *pb.Load  // then
	at   []time.Time
	rate []float64 // pairs a second
	busy []float64 // cores
}

// see takes a worker's counts, which grow while its process lives.
func (c *course) see(now time.Time, l *pb.Load) {
	if l == nil {
		return
	}
	if c.step == 0 {
		c.step = courseStep
	}
	if c.load == nil || l.Pairs < c.load.Pairs || l.BusySeconds < c.load.BusySeconds { // another process
		c.last, c.load = now, l
		return
	}
	t := now.Sub(c.last)
	if t < c.step {
		return
	}
	if len(c.at) == maxCourse { // two steps become one
		n := 0
		for i := 0; i+1 < len(c.at); i += 2 {
			c.at[n], c.rate[n], c.busy[n] = c.at[i+1], (c.rate[i]+c.rate[i+1])/2, (c.busy[i]+c.busy[i+1])/2
			n++
		}
		c.at, c.rate, c.busy = c.at[:n], c.rate[:n], c.busy[:n]
		c.step *= 2
	}
	c.at = append(c.at, now)
	c.rate = append(c.rate, (l.Pairs-c.load.Pairs)/t.Seconds())
	c.busy = append(c.busy, (l.BusySeconds-c.load.BusySeconds)/t.Seconds())
	c.last, c.load = now, l
}

// history returns what is known of workers.
func (r *registry) history() *pb.WorkersHistory {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &pb.WorkersHistory{Since: pbTime(r.activity.since)}
	for _, e := range r.activity.events {
		out.Events = append(out.Events, &pb.WorkerEvent{Time: pbTime(e.at), Worker: e.worker, Kind: e.kind})
	}
	for _, w := range r.byID {
		c := &pb.WorkerCourse{Worker: w.id, PairsPerSecond: slices.Clone(w.course.rate), Busy: slices.Clone(w.course.busy)}
		for _, t := range w.course.at {
			c.Time = append(c.Time, timestamppb.New(t))
		}
		out.Workers = append(out.Workers, c)
	}
	slices.SortFunc(out.Workers, func(a, b *pb.WorkerCourse) int { return cmp.Compare(a.Worker, b.Worker) })
	return out
}
