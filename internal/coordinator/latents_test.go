package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// What one coordinator records of latent vectors all know, among no data sets; the
// leader forgets what none uses, and each learns of it once.
func TestRegistryOfLatents(t *testing.T) {
	leader, follower := pair(t)
	members := func() []blobnet.Peer { return []blobnet.Peer{{ID: "x", Address: "y"}} }
	const superseded = time.Hour
	one, other := leader.Latents(members, superseded), follower.Latents(members, superseded)
	ref := latent.RefOf(latent.Encode([][]float64{{1}}))
	b := blobnet.Blob{Addr: ref.SHA256, Size: ref.Size, Stored: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Holders: []string{"alone"}}
	if _, ok := other.(blobnet.Changes).Changes(); ok {
		t.Error("it knows what has changed since it has never looked")
	}
	if err := other.Record(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, r := range []blobnet.Registry{one, other} {
		got, ok := r.Lookup(b.Addr)
		if all := r.All(); !ok || got.Size != b.Size || !got.Stored.Equal(b.Stored) || !slices.Equal(got.Holders, b.Holders) || len(all) != 1 || len(r.Peers()) != 1 {
			t.Errorf("%+v %v, in all %v", got, ok, all)
		}
	}
	if all := leader.Registry(members).All(); len(all) != 0 {
		t.Errorf("among the data sets: %v", all)
	}
	other.(blobnet.Changes).Changes() // from here on it can tell
	wantCode(t, "no address", one.Record(t.Context(), blobnet.Blob{Addr: "x", Size: 1}), codes.Unknown)
	_, err := (&recordsService{c: leader.Coordinator}).RecordLatent(t.Context(), &pb.Blob{Sha256: "x", Size: 1})
	if !errors.Is(err, state.ErrMalformed) {
		t.Errorf("no address: %v", err)
	}

	const soon = -time.Minute
	for what, tidy := range map[string]func() error{
		"a follower":        func() error { return other.Tidy(t.Context(), soon) },
		"before its time":   func() error { return one.Tidy(t.Context(), time.Minute) },
		"data sets' keeper": func() error { return leader.Registry(members).Tidy(t.Context(), soon) },
	} {
		if err := tidy(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, ok := one.Lookup(b.Addr); !ok {
			t.Fatalf("%s forgets it", what)
		}
	}
	if err := one.Tidy(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Lookup(b.Addr); ok {
		t.Error("it is there after it was forgotten")
	}
	if got, ok := other.(blobnet.Changes).Changes(); !ok || !slices.Equal(got, []string{b.Addr}) {
		t.Errorf("changes %v, %v", got, ok)
	}
	if got, ok := other.(blobnet.Changes).Changes(); !ok || len(got) != 0 {
		t.Errorf("again: %v, %v", got, ok)
	}
}

// A driver whose checkpoint names what is not kept is told to ask anew.
func TestLatentVectorsThatAreNotKept(t *testing.T) {
	leader, _ := pair(t)
	wantCode(t, "a checkpoint", leader.status(fmt.Errorf("chain 1: %w", state.ErrLatent)), codes.FailedPrecondition, "are not kept")
}
