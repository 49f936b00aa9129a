package notify

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a webhook that fails as often as it is told to.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	fails   int
	tries   int
	now     int // calls that are being answered
	most    int // of those at a time
	got     []hooks.Event
	holding chan struct{} // calls wait for it to be closed, if it is set
}

func newReceiver(t *testing.T, fails int) *receiver {
	r := &receiver{fails: fails}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.now++
		r.most = max(r.most, r.now)
		hold := r.holding
		r.mu.Unlock()
		if hold != nil {
			<-hold
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now--
		if r.tries++; r.tries <= r.fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var e hooks.Event
		if err := json.NewDecoder(q.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		r.got = append(r.got, e)
	}))
	t.Cleanup(r.Close)
	return r
}

// events returns what was received, as "kind id", sorted.
func (r *receiver) events() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.got {
		out = append(out, e.Event+" "+e.ID)
	}
	slices.Sort(out)
	return out
}

func (r *receiver) host() string { return strings.TrimPrefix(r.URL, "http://") }

// memory holds notices as the replicated state does.
type memory struct {
	mu      sync.Mutex
	notices map[uint64]*state.Notice
	changed chan struct{}
	// lost says that nothing can be noted: this node leads no more.
	lost bool
	// broken is how often looking fails.
	broken int
}

func newMemory(notices ...*state.Notice) *memory {
	m := &memory{notices: map[uint64]*state.Notice{}, changed: make(chan struct{})}
	for _, n := range notices {
		m.notices[n.Index] = n
	}
	return m
}

var errLost = errors.New("the leadership is lost")

func (m *memory) change(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return errLost
	}
	f()
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *memory) Notices() (out []*state.Notice, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken > 0 {
		m.broken--
		return nil, errors.New("the disk is gone")
	}
	for _, n := range m.notices {
		c := *n
		c.Done = slices.Clone(n.Done)
		out = append(out, &c)
	}
	slices.SortFunc(out, func(a, b *state.Notice) int { return int(a.Index) - int(b.Index) })
	return out, nil
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *memory) Sent(_ context.Context, notice uint64, target string) error {
	return m.change(func() {
		if n := m.notices[notice]; n != nil {
			n.Done = append(n.Done, target)
		}
	})
}

func (m *memory) Close(_ context.Context, notice uint64) error {
	return m.change(func() { delete(m.notices, notice) })
}

func (m *memory) add(n *state.Notice) {
	_ = m.change(func() { m.notices[n.Index] = n })
}

func (m *memory) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.notices)
}

func failed(index uint64, job string, n *state.Notify) *state.Notice {
	return &state.Notice{Index: index, Kind: state.OnFailed, Time: time.Now(), Job: job, Name: "n", Phase: state.Failed, Message: "no such file", Notify: n}
}

// newNotifier returns a notifier whose pauses are short.
func newNotifier(t *testing.T, m *memory, c hooks.Config) *Notifier {
	t.Helper()
	h, err := hooks.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Store: m, Hooks: h, Logger: slog.New(slog.DiscardHandler), FirstPause: time.Millisecond})
}

// run runs a term until done, a minute at most.
func run(t *testing.T, n *Notifier, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for !done() {
		if ctx.Err() != nil {
			t.Fatal("not within a minute")
		}
		time.Sleep(time.Millisecond)
	}
}

// A webhook that fails at first gets every event in the end, once each, and so
// does each of several; a job's own webhook gets what the job asks for.
func TestDelivery(t *testing.T) {
	a, b, own := newReceiver(t, 3), newReceiver(t, 0), newReceiver(t, 1)
	m := newMemory(failed(2, "one", nil),
		failed(4, "two", &state.Notify{Webhooks: []string{own.URL, "http://elsewhere.example/"}}),
		failed(6, "three", &state.Notify{Webhooks: []string{own.URL}, On: []state.Kind{state.OnConverged}}))
	n := newNotifier(t, m, hooks.Config{Webhooks: []string{a.URL, b.URL}, Hosts: []string{own.host()}})
	run(t, n, func() bool { return m.left() == 0 })
	all := []string{"failed one-2", "failed three-6", "failed two-4"}
	for name, r := range map[string]*receiver{"a": a, "b": b} {
		if got := r.events(); !slices.Equal(got, all) {
			t.Errorf("%s got %v, want %v", name, got, all)
		}
	}
	if got := own.events(); !slices.Equal(got, []string{"failed two-4"}) {
		t.Errorf("the job's own webhook got %v", got)
	}
	if e := own.got[0]; e.Version != hooks.Version || e.Job.ID != "two" || e.Job.State != "failed" || e.Job.Message != "no such file" || e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
	if c := n.Counts(); c != (Counts{Sent: 7, Failed: 4}) {
		t.Errorf("%+v, want 7 sent and 4 failed", c)
	}
}

// A notice that comes while nothing is to be done is sent at once, also after a
// look that failed.
func TestNoticeWakes(t *testing.T) {
	r, m := newReceiver(t, 0), newMemory()
	m.broken = 2
	n := newNotifier(t, m, hooks.Config{Webhooks: []string{r.URL}})
	added := false
	run(t, n, func() bool {
		if !added {
			m.add(failed(1, "late", nil))
			added = true
		}
		return len(r.events()) == 1
	})
}

// A leader that is lost after it sent a notice, and before that was noted, leaves
// it to the next one, which sends it again under the same id; what was noted is
// not sent again.
func TestDeliveryAcrossLeaders(t *testing.T) {
	r := newReceiver(t, 0)
	m := newMemory(failed(2, "one", nil))
	m.lost = true
	c := hooks.Config{Webhooks: []string{r.URL}}
	run(t, newNotifier(t, m, c), func() bool { return len(r.events()) > 0 })
	m.mu.Lock()
	m.lost = false
	m.mu.Unlock()
	before := len(r.events())
	run(t, newNotifier(t, m, c), func() bool { return m.left() == 0 })
	got := r.events()
	if len(got) != before+1 || slices.ContainsFunc(got, func(e string) bool { return e != "failed one-2" }) {
		t.Errorf("%v, %d of them from the first leader", got, before)
	}
}

// What one target was told is not told again because of another that fails.
func TestTargetsAreApart(t *testing.T) {
	good, bad := newReceiver(t, 0), newReceiver(t, 5)
	m := newMemory(failed(2, "one", nil))
	run(t, newNotifier(t, m, hooks.Config{Webhooks: []string{good.URL, bad.URL}}), func() bool { return m.left() == 0 })
	if n := len(good.events()); n != 1 {
		t.Errorf("told %d times", n)
	}
	if n := len(bad.events()); n != 1 || bad.tries != 6 {
		t.Errorf("told %d times in %d attempts", n, bad.tries)
	}
}

// A webhook that never answers well is given up after a day, and a notice that
// goes nowhere is closed at once.
func TestGivenUp(t *testing.T) {
	r := newReceiver(t, 1_000_000)
	old := failed(2, "one", nil)
	old.Time = time.Now().Add(-giveUpAfter - time.Minute)
	m := newMemory(old)
	n := newNotifier(t, m, hooks.Config{Webhooks: []string{r.URL}})
	run(t, n, func() bool { return m.left() == 0 })
	if c := n.Counts(); c.GivenUp != 1 || c.Sent != 0 {
		t.Errorf("%+v", c)
	}
	nobody := newMemory(failed(3, "two", nil))
	n = newNotifier(t, nobody, hooks.Config{})
	run(t, n, func() bool { return nobody.left() == 0 })
	if c := n.Counts(); c != (Counts{}) {
		t.Errorf("%+v", c)
	}
}

// No more than a few attempts are under way, and a receiver that hangs does not
// keep the notifier from ending.
func TestAtOnce(t *testing.T) {
	r := newReceiver(t, 0)
	r.holding = make(chan struct{})
	m := newMemory()
	for i := range uint64(5 * sendAtOnce) {
		m.notices[i] = failed(i, "j", nil)
	}
	n := newNotifier(t, m, hooks.Config{Webhooks: []string{r.URL}})
	busy := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}
	run(t, n, func() bool { return busy() == sendAtOnce })
	close(r.holding)
	r.mu.Lock()
	most := r.most
	r.mu.Unlock()
	if most != sendAtOnce {
		t.Errorf("%d at once", most)
	}
	run(t, n, func() bool { return m.left() == 0 })
}

// By default a job's webhooks get all but that it was cancelled or is well again.
func TestAsksFor(t *testing.T) {
	for _, k := range state.Kinds() {
		if got, want := asksFor(&state.Notify{}, k), k != state.OnCancelled && k != state.OnRecovered; got != want {
			t.Errorf("%s: %v", k, got)
		}
		if asksFor(&state.Notify{On: []state.Kind{state.OnStalled}}, k) != (k == state.OnStalled) {
			t.Errorf("%s where only stalls are asked for", k)
		}
	}
}

// What an event tells of the end of a job.
func TestEvent(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := eventOf(&state.Notice{Index: 9, Kind: state.OnConverged, Time: at, Job: "a", Name: "n", Namespace: "lab", Owner: "ann", Phase: state.Converged,
		Reason: "converged", Final: &state.Final{Draws: 500, RHat: 1.01, ESS: 900}})
	want := hooks.Event{Version: hooks.Version, ID: "a-9", Event: "converged", Time: at, Job: hooks.Job{ID: "a", Name: "n", Namespace: "lab", Owner: "ann",
		State: "converged", StopReason: "converged", Draws: 500, RHat: 1.01, ESS: 900}}
	if *e != want {
		t.Errorf("%+v, want %+v", *e, want)
	}
}
