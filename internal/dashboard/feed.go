package dashboard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// feed follows a job for all who look at it.
type feed struct {
	ctx     context.Context // of its calls: it is done when the feed ends
	wg      *sync.WaitGroup // of all that feeds started
	id      string
	jobs    pb.JobsClient
	history pb.HistoryClient
	every   time.Duration // between two versions of the plots, at least
	stop    context.CancelFunc

	mu      sync.Mutex
	job     *pb.Job // not to be changed
	err     error   // why there is no more
	names   []string
	truth   []float64 // log parameters that the data were made with, if known
	rhat    float64   // that counts as converged
	series  *series
	changed chan struct{}
	users   int
	left    time.Time // when the last user left

	begun   int           // how often the draws have begun again
	shown   int           // draws of each chain that plots show
	shownAt time.Time     // since when
	spent   time.Duration // on plots of that many draws

	summaries remembered[[]byte]
	courses   remembered[*pb.RunHistory]
	logs      remembered[[]logLine]
}

// remembered is an answer that is asked for anew when something has changed, but
// not more often than is worth what it takes.
type remembered[T any] struct {
	mu    sync.Mutex
	value T
	of    any           // what it depends on
	next  time.Time     // not before
	busy  chan struct{} // closed when what was asked is answered; nil if nothing was
}

// patience is how long a page waits for an answer; then it goes without, and the
// page's stream brings it.
const patience = 300 * time.Millisecond

// get returns the answer. If it is of something else than of, which can be
// compared, it is asked for on the feed's behalf, not before its time. After an
// error the old answer stays.
func (m *remembered[T]) get(f *feed, of any, every time.Duration, ask func(context.Context) (T, error)) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy == nil && f.ctx.Err() == nil && m.of != of && !time.Now().Before(m.next) {
		busy := make(chan struct{})
		m.busy = busy
		f.wg.Go(func() {
			began := time.Now()
			ctx, cancel := context.WithTimeout(f.ctx, answerMost)
			defer cancel()
			v, err := ask(ctx)
			m.mu.Lock()
			defer m.mu.Unlock()
			if err == nil {
				m.value, m.of = v, of
			}
			m.next, m.busy = time.Now().Add(max(every, 10*time.Since(began))), nil
			close(busy)
			f.update(func() {})
		})
	}
	if busy := m.busy; busy != nil {
		m.mu.Unlock()
		select {
		case <-busy:
		case <-time.After(min(patience, 10*every)):
		}
		m.mu.Lock()
	}
	return m.value
}

// Times of a feed.
const (
	retryAfter = time.Second
	arriveMost = 3 * time.Second
	answerMost = time.Minute
	lookAgain  = 3 * time.Second // at a job that has ended: it may be extended
)

// run follows the job until ctx is done or there is no such job any more.
func (f *feed) run(ctx context.Context, log *slog.Logger) {
	for {
		err := f.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case status.Code(err) == codes.NotFound:
			f.update(func() { f.err = err })
			return
		case err != nil:
			log.Debug("following a job", "job", f.id, "error", err)
		}
		for {
			wait := retryAfter
			if err == nil {
				wait = lookAgain
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			j, again := f.jobs.Get(ctx, &pb.GetJobRequest{Id: f.id, Stale: true})
			if err != nil || again != nil || !client.Ended(j.State) {
				break
			}
		}
	}
}

// follow follows the job to its end.
func (f *feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := f.jobs.Watch(ctx, &pb.WatchRequest{Id: f.id})
	if err != nil {
		return err
	}
	j, err := watch.Recv()
	if err != nil {
		return err
	}
	f.see(j)
	var wg sync.WaitGroup
	defer wg.Wait()
	drawn := make(chan error, 1)
	wg.Go(func() { drawn <- f.draws(ctx, len(j.GetProgress().GetChains())) })
	for {
		j, err := watch.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			cancel()
			return err
		}
		f.see(j)
	}
	err = <-drawn
	f.update(func() {}) // the last draws are there
	return err
}

// draws takes the job's draws, anew where they have begun again.
func (f *feed) draws(ctx context.Context, chains int) error {
	for {
		err := f.take(ctx, chains)
		if status.Code(err) != codes.Aborted || ctx.Err() != nil {
			return err
		}
		f.update(func() { f.series, f.shown, f.begun = nil, 0, f.begun+1 })
	}
}

// take takes the job's draws until they end.
func (f *feed) take(ctx context.Context, chains int) error {
	in, err := f.jobs.Draws(ctx, &pb.DrawsRequest{Id: f.id, Follow: true})
	if err != nil {
		return err
	}
	for {
		b, err := in.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		if f.series == nil {
			f.series = newSeries(max(chains, int(b.Chain)), int(b.Params))
		}
		err = f.series.add(b)
		f.mu.Unlock()
		if err != nil {
			return err
		}
		f.update(func() {})
	}
}

// see takes a new state of the job.
func (f *feed) see(j *pb.Job) {
	names, truth, rhat := f.names, f.truth, f.rhat
	if p := j.GetProgress(); names == nil && len(p.GetParameters()) > 0 {
		names = labels(j)
		rhat = p.RhatWanted
		if t := j.GetData().GetTruth(); len(t) == len(names) {
			truth = t
		}
	}
	f.update(func() { f.job, f.names, f.truth, f.rhat, f.err = j, names, truth, rhat, nil })
}

// labels returns what the job's parameters are called on the scale of their draws.
func labels(j *pb.Job) (names []string) {
	for _, n := range j.GetProgress().GetParameters() {
		names = append(names, param.Log.Label(n))
	}
	info := dataset.InfoOf(j.GetData())
	spec, err := job.ParseString(j.Spec)
	if err != nil || info.Check() != nil {
		return names
	}
	m, err := spec.KernelModel(info)
	if err != nil || len(m.Params) != len(names) {
		return names
	}
	for i, p := range m.Params {
		names[i] = p.Scale().Label(j.Progress.Parameters[i])
	}
	return names
}

// update changes the feed and wakes who waits for that.
func (f *feed) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// state returns the job, nil if it is not known yet, and a channel that is
// closed at the next change.
func (f *feed) state() (*pb.Job, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job, f.changed, f.err
}

// version returns the number of draws that plots show. It grows now and then:
// the longer plots took to draw, the more seldom.
func (f *feed) version(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.series == nil || f.job == nil {
		return 0
	}
	most := 0
	if client.Ended(f.job.State) { // those beyond the end do not count
		most = client.MinDraws(f.job.Progress)
		if most == 0 {
			return 0
		}
	}
	n := f.series.draws(most)
	if n != f.shown && (f.shown == 0 || now.Sub(f.shownAt) >= max(f.every, 10*f.spent) || client.Ended(f.job.State)) {
		f.shown, f.shownAt, f.spent = n, now, 0
	}
	return f.shown
}

// restarts returns how often the draws have begun again.
func (f *feed) restarts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// arrive waits for the draws that a job has, for a while: a feed that was just
// opened has none yet.
func (f *feed) arrive(ctx context.Context, j *pb.Job) {
	ctx, cancel := context.WithTimeout(ctx, arriveMost)
	defer cancel()
	for want := client.MinDraws(j.GetProgress()); want > 0 && ctx.Err() == nil; {
		f.mu.Lock()
		there := f.err != nil || f.series != nil && f.series.draws(0) >= want
		changed := f.changed
		f.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// took notes how long a plot took.
func (f *feed) took(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spent += d
}

// picture returns the draws to plot, all or the latest, with what else plots
// want to know.
func (f *feed) picture(latest bool, shown selection, modes []report.Mode) (d plots.Draws, truth []float64, rhat float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.series == nil || len(f.names) != f.series.params || f.shown == 0 {
		return d, nil, f.rhat
	}
	if d = f.series.all(f.names, f.shown); latest {
		d = f.series.last(f.names, f.shown)
	}
	report.LabelModes(&d, modes)
	names, x := d.Names, d.X
	d.Names, d.X = nil, nil
	for _, i := range shown.of(len(names)) {
		d.Names, d.X = append(d.Names, names[i]), append(d.X, x[i])
		if f.truth != nil {
			truth = append(truth, f.truth[i])
		}
	}
	return d, truth, f.rhat
}

// model returns the names of the log parameters, and the R-hat that counts as
// converged.
func (f *feed) model() (names []string, rhat float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names, f.rhat
}

// stage is what answers about a job depend on.
type stage struct {
	state pb.JobState
	draws int
	work  int32 // iterations of all chains
}

func stageOf(j *pb.Job, draws int) stage {
	s := stage{state: j.State, draws: draws}
	for _, c := range j.GetProgress().GetChains() {
		s.work += c.Warmup + c.Draws
	}
	return s
}

// summary returns the job's summary as JSON, at about that many draws; without draws what is known from
// the mode, once it has been found.
func (f *feed) summary(j *pb.Job, draws int) []byte {
	if draws == 0 && j.State < pb.JobState_JOB_STATE_WARMUP {
		return nil
	}
	return f.summaries.get(f, stage{state: j.State, draws: draws}, 3*f.every, func(ctx context.Context) ([]byte, error) {
		r, err := f.jobs.Summary(ctx, &pb.GetJobRequest{Id: f.id, Stale: true})
		return []byte(r.GetJson()), err
	})
}

// course returns how the job's computation went. It may be nil.
func (f *feed) course(j *pb.Job) *pb.RunHistory {
	return f.courses.get(f, stageOf(j, len(j.GetProgress().GetChains())), f.every, func(ctx context.Context) (*pb.RunHistory, error) {
		return f.history.Run(ctx, &pb.RunHistoryRequest{Id: f.id, Stale: true})
	})
}

// log returns the last lines of the job's log.
func (f *feed) log(j *pb.Job) []logLine {
	return f.logs.get(f, stageOf(j, 0), 3*f.every, func(ctx context.Context) ([]logLine, error) {
		return readLog(ctx, f.jobs, f.id, 0, shortTail)
	})
}

// feeds are the jobs that are looked at.
type feeds struct {
	ctx   context.Context
	wg    *sync.WaitGroup
	conn  grpc.ClientConnInterface
	every time.Duration
	log   *slog.Logger
	mu    sync.Mutex
	byID  map[string]*feed
}

func newFeeds(ctx context.Context, wg *sync.WaitGroup, conn grpc.ClientConnInterface, every time.Duration, log *slog.Logger) *feeds {
	return &feeds{ctx: ctx, wg: wg, conn: conn, every: every, log: log, byID: map[string]*feed{}}
}

var errBusy = errors.New("this coordinator follows as many jobs as it can: close some pages, or look at another coordinator's")

// open returns the feed of a job, to be handed back with close.
func (s *feeds) open(id string) (*feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(time.Now())
	f := s.byID[id]
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err == nil {
			f.users++
			return f, nil
		}
		f.stop() // there was no such job; there may be one now
		delete(s.byID, id)
	}
	if len(s.byID) >= maxFeeds {
		return nil, errBusy
	}
	ctx, cancel := context.WithCancel(s.ctx)
	f = &feed{id: id, ctx: ctx, wg: s.wg, jobs: pb.NewJobsClient(s.conn), history: pb.NewHistoryClient(s.conn), every: 2 * s.every, stop: cancel, changed: make(chan struct{}), users: 1}
	s.byID[id] = f
	s.wg.Go(func() { f.run(ctx, s.log) })
	return f, nil
}

// close hands a feed back. It goes on for a while, for who comes next.
func (s *feeds) close(f *feed) {
	f.mu.Lock()
	f.users--
	f.left = time.Now()
	idle := f.users == 0
	f.mu.Unlock()
	if idle {
		time.AfterFunc(feedIdle+time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sweep(time.Now())
		})
	}
}

// sweep ends feeds that nobody looks at: those that were left long ago, and if
// there are too many those that were left first. s.mu is held.
func (s *feeds) sweep(now time.Time) {
	for {
		var oldest *feed
		for id, f := range s.byID {
			f.mu.Lock()
			users, left := f.users, f.left
			f.mu.Unlock()
			switch {
			case users > 0:
			case now.Sub(left) > feedIdle:
				f.stop()
				delete(s.byID, id)
			case oldest == nil || left.Before(oldest.left):
				oldest = f
			}
		}
		if len(s.byID) < maxFeeds || oldest == nil {
			return
		}
		oldest.stop()
		delete(s.byID, oldest.id)
	}
}
