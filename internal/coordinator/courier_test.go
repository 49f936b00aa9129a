package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// receiver is a webhook that fails as often as it is told to.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	fails int
	tries int
	got   []hooks.Event
}

func newReceiver(t *testing.T, fails int) *receiver {
	r := &receiver{fails: fails}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
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

func (r *receiver) events() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.got {
		out = append(out, e.Event+" "+e.ID)
	}
	return out
}

// forgetful is a node that does not take word of what was sent while it is told
// not to: as one that lost its leadership just then.
type forgetful struct {
	*coordinatortest.Node
	mu  sync.Mutex
	not bool
}

func (n *forgetful) Apply(ctx context.Context, command []byte) (any, error) {
	n.mu.Lock()
	not := n.not
	n.mu.Unlock()
	if not && strings.Contains(string(command), `"sent"`) {
		return nil, errors.New("the leadership is lost")
	}
	return n.Node.Apply(ctx, command)
}

func withHooks(t *testing.T, n Node, c hooks.Config) *Coordinator {
	t.Helper()
	h, err := hooks.New(c)
	if err != nil {
		t.Fatal(err)
	}
	out, err := New(Config{Node: n, Dir: t.TempDir(), Dial: rpc.Dialer(nil), Hooks: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

// deliver runs a term of a courier until done, or until all is sent if it is nil.
func deliver(t *testing.T, c *Coordinator, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := newCourier(&leader{Coordinator: c, since: time.Now()})
	k.backoff = time.Millisecond
	ended := make(chan struct{})
	go func() { defer close(ended); k.run(ctx) }()
	defer func() { cancel(); <-ended }()
	if done == nil {
		if err := c.AwaitNotices(ctx); err != nil {
			t.Fatal(err)
		}
		return
	}
	for !done() {
		if ctx.Err() != nil {
			t.Fatal("not within a minute")
		}
		time.Sleep(time.Millisecond)
	}
}

// failJob submits a job that fails at once.
func failJob(t *testing.T, c *Coordinator, id string, n *state.Notify) {
	t.Helper()
	now := time.Now()
	keep(t, c, state.Command{Time: now, Submit: &state.Submit{ID: id, Name: "n", Chains: 1, Notify: n}},
		state.Command{Time: now, Fail: &state.Fail{Job: id, Message: "no such file"}})
}

// A webhook that fails at first gets every event in the end, once each, and so
// does each of several.
func TestDelivery(t *testing.T) {
	a, b, own := newReceiver(t, 3), newReceiver(t, 0), newReceiver(t, 1)
	c := withHooks(t, coordinatortest.NewNode(t), hooks.Config{Webhooks: []string{a.URL, b.URL}, Hosts: []string{strings.TrimPrefix(own.URL, "http://")}})
	failJob(t, c, "one", nil)
	failJob(t, c, "two", &state.Notify{Webhooks: []string{own.URL, "http://elsewhere.example/"}})
	failJob(t, c, "three", &state.Notify{Webhooks: []string{own.URL}, On: []state.Kind{state.OnConverged}})
	deliver(t, c, nil)
	all := []string{"failed one-2", "failed three-6", "failed two-4"}
	for name, r := range map[string]*receiver{"a": a, "b": b} {
		if got := slices.Sorted(slices.Values(r.events())); !slices.Equal(got, all) {
			t.Errorf("%s got %v, want %v", name, got, all)
		}
	}
	if got := own.events(); !slices.Equal(got, []string{"failed two-4"}) {
		t.Errorf("the job's own webhook got %v", got)
	}
	if e := own.got[0]; e.Version != 1 || e.Job.ID != "two" || e.Job.State != "failed" || e.Job.Message != "no such file" || e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
	if s, f := c.deliveries.sent.Load(), c.deliveries.failed.Load(); s != 7 || f != 4 {
		t.Errorf("%d sent and %d failed, want 7 and 4", s, f)
	}
}

// A leader that is lost after it sent a notice, and before that was noted, leaves
// it to the next one, which sends it again under the same id; what was noted is
// not sent again.
func TestDeliveryAcrossLeaders(t *testing.T) {
	r := newReceiver(t, 0)
	n := &forgetful{Node: coordinatortest.NewNode(t), not: true}
	c := withHooks(t, n, hooks.Config{Webhooks: []string{r.URL}})
	failJob(t, c, "one", nil)
	deliver(t, c, func() bool { return len(r.events()) > 0 })
	n.mu.Lock()
	n.not = false
	n.mu.Unlock()
	next := withHooks(t, n, hooks.Config{Webhooks: []string{r.URL}})
	before := len(r.events())
	deliver(t, next, nil)
	got := r.events()
	if len(got) != before+1 || slices.ContainsFunc(got, func(e string) bool { return e != "failed one-2" }) {
		t.Errorf("%v, %d of them from the first leader", got, before)
	}
	third := withHooks(t, n, hooks.Config{Webhooks: []string{r.URL}})
	deliver(t, third, nil)
	if now := r.events(); len(now) != len(got) {
		t.Errorf("sent again: %v", now)
	}
}

// A webhook that never answers well is given up after a day.
func TestDeliveryIsGivenUp(t *testing.T) {
	r := newReceiver(t, 1_000_000)
	c := withHooks(t, coordinatortest.NewNode(t), hooks.Config{Webhooks: []string{r.URL}})
	old := time.Now().Add(-sendFor - time.Minute)
	keep(t, c, state.Command{Time: old, Submit: &state.Submit{ID: "one", Chains: 1}}, state.Command{Time: old, Fail: &state.Fail{Job: "one", Message: "why"}})
	deliver(t, c, nil)
	if n := c.deliveries.givenUp.Load(); n != 1 {
		t.Errorf("%d given up", n)
	}
}

func TestPauseGrows(t *testing.T) {
	for n := 1; n < 100; n++ {
		least, most := time.Duration(0), sendSlowest
		if n < 9 {
			least, most = time.Second<<(n-1)/2, time.Second<<(n-1)
		}
		if p := pause(time.Second, n); p < least || p > most+1 {
			t.Errorf("after %d attempts: %v", n, p)
		}
	}
}

// A job may name webhooks of hosts that the operator lists and of no others.
func TestNotifyIsChecked(t *testing.T) {
	c := withHooks(t, coordinatortest.NewNode(t), hooks.Config{Hosts: []string{"hooks.example.org"}})
	submit := func(notify string) error {
		_, err := c.Submit(t.Context(), &pb.SubmitRequest{Spec: "name: n\ndata: {synthetic: {n: 40, d: 2, sigma: 1, tau: 0.5, lambda: 0.1}}\n" + notify})
		return err
	}
	if err := submit("notify: {webhooks: [\"https://hooks.example.org/x\"], on: [failed]}"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`["http://169.254.169.254/latest/meta-data"]`, `["https://hooks.example.org/x", "https://evil.example/"]`} {
		err := submit("notify: {webhooks: " + bad + "}")
		if err == nil || !strings.Contains(status.Convert(err).Message(), "--webhook-hosts") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, bad := range []string{"notify: {webhooks: [\"file:///etc/passwd\"]}", "notify: {webhooks: []}", "notify: {webhooks: [\"https://hooks.example.org/x\"], on: [converge]}", "notify: {command: rm}"} {
		if submit(bad) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// The words of a specification are the kinds of notices.
func TestNoticeKinds(t *testing.T) {
	var kinds []string
	for _, k := range state.Kinds() {
		kinds = append(kinds, string(k))
	}
	if !slices.Equal(kinds, job.NoticeKinds) {
		t.Errorf("%v and %v", kinds, job.NoticeKinds)
	}
}
