package coordinator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// What one coordinator records all know, whichever is asked to; a data set to
// which a job refers is not forgotten.
func TestRegistryOfBlobs(t *testing.T) {
	leader, follower := pair(t)
	peers := []blobnet.Peer{{ID: "x", Address: "y"}}
	members := func() []blobnet.Peer { return peers }
	one, other := leader.Registry(members), follower.Registry(members)
	addr := strings.Repeat("ab", 32)
	b := blobnet.Blob{Addr: addr, Size: 7, Stored: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Holders: []string{"alone"}, Namespaces: []string{state.DefaultNamespace}}
	if _, ok := one.Lookup(addr); ok {
		t.Error("it is there before it is recorded")
	}
	if err := other.Record(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, r := range []blobnet.Registry{one, other} {
		got, ok := r.Lookup(addr)
		if !ok || got.Size != b.Size || !got.Stored.Equal(b.Stored) || !slices.Equal(got.Holders, b.Holders) || !slices.Equal(got.Namespaces, b.Namespaces) {
			t.Errorf("%+v %v", got, ok)
		}
		if all := r.All(); len(all) != 1 || all[0].Addr != addr || len(r.Peers()) != 1 {
			t.Errorf("%+v", all)
		}
	}
	keep(t, leader.Coordinator, &state.Submit{ID: "a", Chains: 1, Data: addr})
	if jobs := other.Jobs(addr); !slices.Equal(jobs, []string{"a"}) {
		t.Errorf("%v", jobs)
	}
	wantCode(t, "data of a job", other.(*blobRegistry).forget(t.Context(), addr), codes.FailedPrecondition)
	if err := other.Tidy(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, ok := one.Lookup(addr); !ok {
		t.Error("data of a job are forgotten")
	}
	keep(t, leader.Coordinator, &state.Act{Job: "a", Action: state.Cancel}, &state.Act{Job: "a", Action: state.Delete})
	if err := other.Tidy(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, ok := one.Lookup(addr); ok {
		t.Error("it is there after it was forgotten")
	}
	_, err := (&recordsService{c: leader.Coordinator}).Record(t.Context(), &pb.Blob{Sha256: "x"})
	wantCode(t, "no address", err, codes.InvalidArgument)
	_, err = (&recordsService{c: leader.Coordinator}).Record(t.Context(), &pb.Blob{Sha256: addr, Size: -1})
	wantCode(t, "no size", err, codes.InvalidArgument)
}

// Data without a job are kept for as long as this process has watched them, whatever clocks say of when
// they were stored; those that are uploaded again begin anew.
func TestUnusedDataAreKept(t *testing.T) {
	s := serve(t, Config{})
	r := s.Coordinator.Registry(func() []blobnet.Peer { return nil }).(*blobRegistry)
	addr := strings.Repeat("ab", 32)
	store := func(stored time.Time) {
		t.Helper()
		if err := r.Record(t.Context(), blobnet.Blob{Addr: addr, Size: 7, Stored: stored, Namespaces: []string{state.DefaultNamespace}}); err != nil {
			t.Fatal(err)
		}
	}
	tidy := func(what string, kept bool) {
		t.Helper()
		if err := r.Tidy(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Lookup(addr); ok != kept {
			t.Errorf("%s: kept %v", what, ok)
		}
	}
	watched := func(d time.Duration) { r.idle[addr] = idle{r.idle[addr].stored, time.Now().Add(-d)} }
	store(time.Now().Add(-48 * time.Hour)) // or this clock is two days ahead
	tidy("at first", true)
	watched(59 * time.Minute)
	tidy("before its time", true)
	watched(61 * time.Minute)
	store(time.Now())
	tidy("uploaded again", true)
	watched(61 * time.Minute)
	keep(t, s.Coordinator, &state.Submit{ID: "a", Chains: 1, Data: addr})
	tidy("with a job", true)
	keep(t, s.Coordinator, &state.Act{Job: "a", Action: state.Cancel}, &state.Act{Job: "a", Action: state.Delete})
	tidy("without it again", true)
	watched(61 * time.Minute)
	tidy("in its time", false)
}

// Callers know of their namespaces' data, and bring theirs where there is room.
func TestAccessToBlobs(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.SetNamespace{Name: "lab", Quota: state.Quota{Bytes: 10}, Fresh: true},
		&state.RecordBlob{Blob: state.Blob{SHA256: "x", Size: 8, Namespaces: []string{"lab"}}},
		&state.Submit{ID: "a", Chains: 1, Data: "x", Namespace: "lab"}, &state.Submit{ID: "b", Chains: 1, Data: "x"})
	access := s.Access()
	as := func(namespaces ...string) context.Context {
		return auth.With(t.Context(), &auth.Identity{Role: state.Submitter, Namespaces: namespaces})
	}
	both := blobnet.Blob{Addr: "x", Namespaces: []string{"default", "lab"}}
	if got := access.Spaces(as("lab"), both); !slices.Equal(got, []string{"lab"}) {
		t.Errorf("%v", got)
	}
	if got := access.Jobs(as("lab"), "x"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v", got)
	}
	worker := auth.With(t.Context(), &auth.Identity{Node: auth.Worker})
	if got := access.Spaces(worker, both); !slices.Equal(got, both.Namespaces) {
		t.Errorf("a worker, of data that jobs use: %v", got)
	}
	if got := access.Spaces(worker, blobnet.Blob{Addr: "unused", Namespaces: both.Namespaces}); len(got) != 0 {
		t.Errorf("a worker, of data that no job uses: %v", got)
	}
	if ns, err := access.Upload(as("lab"), "y", 2); err != nil || ns != "lab" {
		t.Errorf("%s %v", ns, err)
	}
	_, err := access.Upload(as("lab"), "y", 3)
	wantCode(t, "more than the quota", err, codes.ResourceExhausted)
	if _, err := access.Upload(as("lab"), "x", 8); err != nil { // it is there already
		t.Error(err)
	}
	who := auth.With(t.Context(), &auth.Identity{Role: state.Submitter, Namespaces: []string{"lab"}, Working: "default"})
	_, err = access.Upload(who, "y", 1)
	wantCode(t, "another's namespace", err, codes.NotFound)
}
