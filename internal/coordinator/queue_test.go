package coordinator

import (
	"context"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// A queued job says which jobs have the cores that it waits for; of those that the caller may not
// see it says only that there are some. Watching tells it when these change.
func TestQueuedJobsSayWhy(t *testing.T) {
	s := serve(t, Config{}) // nobody schedules
	lab := auth.With(t.Context(), &auth.Identity{Role: state.Viewer, Namespaces: []string{"lab"}})
	all := auth.With(t.Context(), &auth.Identity{Role: state.Viewer, Namespaces: []string{state.AllNamespaces}})
	at := func(id, worker string) state.Command {
		return &state.Place{Job: id, Places: []state.Move{{Chain: 0, Worker: worker}}}
	}
	check := func(what string, ctx context.Context, want string) {
		t.Helper()
		j, err := s.Jobs().Get(ctx, &pb.GetJobRequest{Id: "z"})
		if err != nil || j.Message != want {
			t.Errorf("%s: %v, %q, want %q", what, err, j.GetMessage(), want)
		}
		list, err := s.Jobs().List(ctx, &pb.ListJobsRequest{})
		if err != nil || len(list.Jobs) == 0 || list.Jobs[0].Id != "z" || list.Jobs[0].Message != want {
			t.Errorf("%s: %v, the list has %v, want %q", what, err, list.GetJobs(), want)
		}
		for _, j := range list.GetJobs()[1:] {
			if j.State != pb.JobState_JOB_STATE_QUEUED && j.Message != "" {
				t.Errorf("%s: a job that is %v waits: %q", what, j.State, j.Message)
			}
		}
	}
	keep(t, s.Coordinator, &state.SetNamespace{Name: "lab", Fresh: true})
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		keep(t, s.Coordinator, &state.Submit{ID: id, Chains: 2})
	}
	keepAt(t, s.Coordinator, epoch.Add(time.Hour), &state.Submit{ID: "z", Chains: 2, Namespace: "lab"})
	check("nobody has a worker", all, "")
	keep(t, s.Coordinator, at("a", "w"))
	check("one has", all, "waits for cores: job a has them")
	check("one has that is not to be seen", lab, "waits for cores: jobs of other namespaces have them")

	ctx, cancel := context.WithTimeout(all, time.Minute)
	defer cancel()
	watch, err := s.jobs.Watch(ctx, &pb.WatchRequest{Id: "z"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		if j, err := watch.Recv(); err != nil || j.Message != want {
			t.Errorf("watching: %v, %v, want %q", err, j, want)
		}
	}
	next("waits for cores: job a has them")
	keep(t, s.Coordinator, at("b", "w"), at("c", "v"))
	next("waits for cores: jobs a, b and c have them")

	check("three have", all, "waits for cores: jobs a, b and c have them")
	keep(t, s.Coordinator, at("d", "w"), at("e", "w"))
	check("five have", all, "waits for cores: jobs a, b, c and 2 more have them")
	keepAt(t, s.Coordinator, epoch.Add(-time.Hour), &state.Submit{ID: "y", Chains: 2, Namespace: "lab"}, at("y", "w"))
	check("one of six is to be seen", lab, "waits for cores: jobs y and 5 more have them")
	keep(t, s.Coordinator, &state.Diagnose{Job: "z", Health: &state.Health{Status: state.Stalled, Cause: "no worker", Message: "there is none"}})
	check("something is wrong with it", all, "")
}
