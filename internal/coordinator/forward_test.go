package coordinator

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// pair is a coordinator that leads and one that follows.
func pair(t *testing.T) (leader, follower *served) {
	t.Helper()
	n := coordinatortest.NewNode(t)
	return serve(t, Config{Node: n}), serve(t, Config{Node: n.Follower("b")})
}

// What only the leader can do a follower passes on, and it says so where it may
// not: of a call that was passed on already.
func TestForward(t *testing.T) {
	leader, follower := pair(t)
	j, err := follower.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: testSpec(40, 60, 10)})
	if err != nil {
		t.Fatal(err)
	}
	if got := leader.get(j.Id); got.Name != "test" {
		t.Errorf("%v", got)
	}
	_, err = follower.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: "name: test\n"})
	wantCode(t, "what the leader refuses", err, codes.InvalidArgument)
	passed := metadata.AppendToOutgoingContext(t.Context(), rpc.Forwarded, "1")
	_, err = follower.jobs.Pause(passed, &pb.JobActionRequest{Id: j.Id})
	wantCode(t, "what was passed on", err, codes.Unavailable)
	if e, ok := status.Convert(err).Details()[0].(*errdetails.ErrorInfo); !ok || e.Reason != "NOT_LEADER" || e.Metadata["address"] != leader.address || e.Metadata["leader"] != "alone" {
		t.Errorf("%v does not name the leader", err)
	}
	var h metadata.MD
	if _, err := follower.jobs.Get(t.Context(), &pb.GetJobRequest{Id: j.Id, Stale: true}, grpc.Header(&h)); err != nil || len(h.Get(rpc.StateAge)) != 1 {
		t.Errorf("a stale read: %v, %v", err, h)
	}
	leader.node.Lose()
	_, err = follower.jobs.Pause(t.Context(), &pb.JobActionRequest{Id: j.Id})
	wantCode(t, "without a leader", err, codes.Unavailable, "no leader")
	_, err = follower.jobs.Get(t.Context(), &pb.GetJobRequest{Id: j.Id})
	wantCode(t, "a consistent read without a leader", err, codes.Unavailable)
	_, err = leader.apply(t.Context(), &state.Act{Job: j.Id, Action: state.Pause})
	wantCode(t, "a command without a leader", leader.status(err), codes.Unavailable)
}

// A consistent read of a follower asks the leader how far it has to be.
func TestFollowersRead(t *testing.T) {
	_, follower := pair(t)
	_, err := follower.jobs.List(t.Context(), &pb.ListJobsRequest{})
	wantCode(t, "a leader that does not answer so", err, codes.Unimplemented) // this test's leader serves no Cluster
	if _, err := follower.jobs.List(t.Context(), &pb.ListJobsRequest{Stale: true}); err != nil {
		t.Error(err)
	}
}
