package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Nobody but an administrator of all namespaces goes before everybody else, or takes
// more chains than the default where there is no quota.
func TestSharesOfTheCluster(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.SetNamespace{Name: "lab", Fresh: true}, &state.SetNamespace{Name: "large", Fresh: true, Quota: state.Quota{Chains: 1000}})
	submit := func(role state.Role, namespace string, all bool, priority int32, chains string) error {
		id := &auth.Identity{User: "ann", Role: role, Namespaces: []string{namespace}}
		if all {
			id.Namespaces = []string{state.AllNamespaces}
		}
		spec := strings.Replace(testSpec(10, 20, never), "chains: 2", "chains: "+chains, 1)
		_, err := s.Jobs().Submit(auth.With(t.Context(), id), &pb.SubmitRequest{Spec: spec, Namespace: namespace, Priority: priority})
		return s.status(err)
	}
	for _, c := range []struct {
		what      string
		role      state.Role
		namespace string
		all       bool
		priority  int32
		chains    string
		want      codes.Code
	}{
		{"a priority of a submitter", state.Submitter, "lab", false, 1, "2", codes.PermissionDenied},
		{"a priority of a submitter to all", state.Submitter, "lab", true, 1, "2", codes.PermissionDenied},
		{"a priority of a namespace's administrator", state.Admin, "lab", false, 1, "2", codes.PermissionDenied},
		{"a priority of the administrator", state.Admin, "lab", true, 1000, "2", codes.OK},
		{"a low priority", state.Submitter, "lab", false, -5, "2", codes.OK},
		{"too many chains", state.Submitter, "lab", false, 0, "509", codes.ResourceExhausted},
		{"as many as there may be", state.Submitter, "lab", false, 0, "508", codes.OK},
		{"one more", state.Submitter, "lab", false, 0, "1", codes.ResourceExhausted},
		{"within a quota", state.Submitter, "large", false, 0, "900", codes.OK},
		{"beyond it", state.Submitter, "large", false, 0, "200", codes.ResourceExhausted},
		{"many chains of the administrator", state.Admin, "lab", true, 0, "1000", codes.OK},
	} {
		if err := submit(c.role, c.namespace, c.all, c.priority, c.chains); status.Code(err) != c.want {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// stuck is a stream of a client that reads nothing.
type stuck struct {
	grpc.ServerStreamingServer[pb.ResultChunk]
	ctx context.Context
}

func (s stuck) Context() context.Context { return s.ctx }

func (s stuck) Send(*pb.ResultChunk) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// Clients that take nothing of a result hold no more than a few of them, for a while.
func TestResultsThatNobodyReads(t *testing.T) {
	s := serve(t, Config{resultStalls: 500 * time.Millisecond})
	s.lead()
	connect(t, s.workers, hello("w")).work()
	id := s.submit(testSpec(20, 20, never))
	s.awaitState(id, pb.JobState_JOB_STATE_UNCONVERGED)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const clients = mostResults + 2
	ended := make(chan error, clients)
	for range clients {
		go func() { ended <- s.Jobs().Result(&pb.GetJobRequest{Id: id}, stuck{ctx: ctx}) }()
	}
	within(t, "all places to be taken", func() bool { return len(s.results) == mostResults })
	r, err := s.jobs.Result(t.Context(), &pb.GetJobRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.Recv(); err != nil || len(c.Json) < 1000 { // once there is a place
		t.Errorf("%d bytes, %v", len(c.GetJson()), err)
	}
	for range clients {
		wantCode(t, "a client that reads nothing", <-ended, codes.DeadlineExceeded, "nothing of the result")
	}
}

// What is known of jobs that nobody asks for goes also where nobody leads.
func TestUnusedJobsAreForgotten(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1}, &state.Submit{ID: "b", Chains: 1})
	look := func(id string) {
		t.Helper()
		if err := s.Coordinator.jobs.with(id, func(*followed) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	look("a")
	look("b")
	f := s.Coordinator.jobs
	f.mu.Lock()
	f.byID["a"].used, f.swept = time.Now().Add(-followIdle-time.Second), time.Time{}
	f.mu.Unlock()
	look("b")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID["a"] != nil || f.byID["b"] == nil {
		t.Errorf("%v", f.byID)
	}
}
