package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// pages lists all pages, and returns the ids and the number of pages.
func pages(t *testing.T, c *Coordinator, r *pb.ListJobsRequest) (ids []string, n int) {
	t.Helper()
	for {
		p, err := c.Jobs().List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		n++
		for _, j := range p.Jobs {
			ids = append(ids, j.Id)
		}
		if r.PageToken = p.NextPageToken; r.PageToken == "" {
			return ids, n
		}
	}
}

func TestSearch(t *testing.T) {
	c := serve(t, Config{}).Coordinator
	names := []string{"concrete", "power", "concrete-2", "beacon"}
	for i := range 20 {
		id, at := fmt.Sprintf("j%02d", i), epoch.Add(time.Duration(i)*time.Hour)
		keepAt(t, c, at, &state.Submit{ID: id, Name: names[i%4], Chains: 1})
		if i%5 == 0 {
			keepAt(t, c, at, &state.Fail{Job: id, Message: "why"})
			keepAt(t, c, at, &state.Annotate{Job: id, Tag: []string{"paper", "t" + id}})
		}
	}
	failed := []pb.JobState{pb.JobState_JOB_STATE_FAILED}
	for _, q := range []struct {
		what string
		r    *pb.ListJobsRequest
		want []string
	}{
		{"all", &pb.ListJobsRequest{PageSize: 1000}, nil},
		{"failed", &pb.ListJobsRequest{States: failed}, []string{"j15", "j10", "j05", "j00"}},
		{"since", &pb.ListJobsRequest{Since: timestamppb.New(epoch.Add(17 * time.Hour))}, []string{"j19", "j18", "j17"}},
		{"a part of a name", &pb.ListJobsRequest{Name: "con", Since: timestamppb.New(epoch.Add(15 * time.Hour))}, []string{"j19", "j18", "j16", "j15"}},
		{"a pattern", &pb.ListJobsRequest{Name: "con*", Since: timestamppb.New(epoch.Add(15 * time.Hour))}, []string{"j18", "j16"}},
		{"all of it", &pb.ListJobsRequest{Name: "con*", States: failed}, []string{"j10", "j00"}},
		{"a tag", &pb.ListJobsRequest{Tags: []string{"paper"}}, []string{"j15", "j10", "j05", "j00"}},
		{"two tags", &pb.ListJobsRequest{Tags: []string{"tj10", "paper"}}, []string{"j10"}},
		{"a part of a tag", &pb.ListJobsRequest{Tags: []string{"pap"}}, nil},
		{"none", &pb.ListJobsRequest{Name: "x*"}, nil},
	} {
		if q.what == "all" {
			for i := range 20 {
				q.want = append(q.want, fmt.Sprintf("j%02d", 19-i))
			}
		}
		for size, least := range map[int32]int{0: 1, 1: len(q.want), 3: len(q.want) / 3} {
			q.r.PageSize = size
			got, n := pages(t, c, q.r)
			if !slices.Equal(got, q.want) || n < least {
				t.Errorf("%s, %d a page: %v in %d pages, want %v", q.what, size, got, n, q.want)
			}
		}
	}
	if _, err := c.Jobs().List(t.Context(), &pb.ListJobsRequest{PageToken: "!"}); err == nil {
		t.Error("a token that is none is taken")
	}
	if _, err := c.Jobs().List(t.Context(), &pb.ListJobsRequest{Name: "[a"}); err == nil {
		t.Error("a pattern that is none is taken")
	}
}

// A token goes on where the page ended, though the job there is gone meanwhile
// and new ones came.
func TestSearchGoesOn(t *testing.T) {
	c := serve(t, Config{}).Coordinator
	for i := range 6 {
		keepAt(t, c, epoch.Add(time.Duration(i)*time.Hour), &state.Submit{ID: fmt.Sprintf("j%d", i), Chains: 1})
	}
	p, err := c.Jobs().List(t.Context(), &pb.ListJobsRequest{PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, c, &state.Act{Job: "j3", Action: state.Cancel}, &state.Act{Job: "j3", Action: state.Delete})
	keepAt(t, c, epoch.Add(9*time.Hour), &state.Submit{ID: "new", Chains: 1})
	if got, _ := pages(t, c, &pb.ListJobsRequest{PageSize: 2, PageToken: p.NextPageToken}); !slices.Equal(got, []string{"j2", "j1", "j0"}) {
		t.Errorf("%v", got)
	}
}

// BenchmarkList lists a page of 50 jobs among 5,000 whose specifications have
// 4 kB, and for comparison reads all records.
func BenchmarkList(b *testing.B) {
	node := coordinatortest.NewNode(b)
	c, err := New(Config{Node: node, Machine: node.Machine(), Dir: b.TempDir(), Dial: rpc.Dialer(nil)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	spec := strings.Repeat("a", 4096)
	for i := range 5000 {
		keepAt(b, c, epoch.Add(time.Duration(i)*time.Second), &state.Submit{ID: fmt.Sprintf("j%d", i), Spec: spec, Chains: 4})
	}
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Jobs().List(b.Context(), &pb.ListJobsRequest{PageSize: 50}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("records", func(b *testing.B) {
		for b.Loop() {
			if err := c.node.View(func(tx *bbolt.Tx) error { return state.Jobs(tx, func(*state.Job) bool { return true }) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			counts := map[state.Phase]int{}
			if err := c.node.View(func(tx *bbolt.Tx) error { return state.CountPhases(tx, counts) }); err != nil || counts[state.Queued] != 5000 {
				b.Fatal(err, counts)
			}
		}
	})
}
