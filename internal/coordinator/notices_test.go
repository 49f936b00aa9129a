package coordinator

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

func newHooks(t *testing.T, c hooks.Config) *hooks.Hooks {
	t.Helper()
	h, err := hooks.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// While a coordinator leads, hooks are told of what happened to jobs, and the
// state remembers that they were.
func TestHooksAreTold(t *testing.T) {
	var told atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ulisse-Event") == "failed" {
			told.Add(1)
		}
	}))
	defer hook.Close()
	s := serve(t, Config{Hooks: newHooks(t, hooks.Config{Webhooks: []string{hook.URL}})})
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1})
	s.lead()
	s.awaitState("a", pb.JobState_JOB_STATE_QUEUED)
	if _, err := s.apply(t.Context(), &state.Fail{Job: "a", Message: "why"}); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitNotices(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := told.Load(); n != 1 || s.notifier.Counts().Sent != 1 {
		t.Errorf("told %d times", n)
	}
}

// A job may name webhooks of hosts that the operator lists and of no others.
func TestNotifyIsChecked(t *testing.T) {
	s := serve(t, Config{Hooks: newHooks(t, hooks.Config{Hosts: []string{"hooks.example.org"}})})
	submit := func(notify string) error {
		_, err := s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: "name: n\ndata: {synthetic: {n: 40, d: 2, sigma: 1, tau: 0.5, lambda: 0.1}}\n" + notify})
		return err
	}
	if err := submit("notify: {webhooks: [\"https://hooks.example.org/x\"], on: [failed]}"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`["http://169.254.169.254/latest/meta-data"]`, `["https://hooks.example.org/x", "https://evil.example/"]`} {
		wantCode(t, bad, submit("notify: {webhooks: "+bad+"}"), codes.InvalidArgument, "--webhook-hosts")
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
	if len(kinds) == 0 {
		t.Error("there are none")
	}
}
