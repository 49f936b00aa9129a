package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Every method says who may call it, and what it says of its request is true:
// who adds one without a rule fails here.
func TestEveryMethodHasARule(t *testing.T) {
	if n := len(Methods()); n < 40 {
		t.Errorf("only %d methods are found", n)
	}
	for _, m := range Methods() {
		r := RuleOf(FullName(m))
		if r == nil || r.Role == pb.Rule_NONE && len(r.Nodes) == 0 {
			t.Errorf("%s has no rule in proto/: nobody may call it", m.FullName())
			continue
		}
		for _, n := range r.Nodes {
			if n == pb.Rule_USER {
				t.Errorf("%s: a node that is none", m.FullName())
			}
		}
		if f := m.Input().Fields().ByName(protoreflect.Name(r.Job)); r.Job != "" && (f == nil || f.Kind() != protoreflect.StringKind || f.IsList()) {
			t.Errorf("%s names a job by %q, which is no text of its request", m.FullName(), r.Job)
		}
		if r.Own && r.Job == "" || r.Whole && r.Role != pb.Rule_ADMIN {
			t.Errorf("%s: a rule that makes no sense: %v", m.FullName(), r)
		}
		if r.Growth != pb.Rule_NOTHING && (!r.Leader || m.IsStreamingClient() || m.IsStreamingServer()) {
			t.Errorf("%s makes the state grow, and is no single call that the leader answers", m.FullName())
		}
		if r.Leader && m.IsStreamingServer() {
			t.Errorf("%s sends a stream, which is not passed on to the leader", m.FullName())
		}
	}
	if RuleOf("/ulisse.v1.Jobs/Invented") != nil {
		t.Error("a method that does not exist has a rule")
	}
}

func TestJob(t *testing.T) {
	for _, c := range []struct {
		method  string
		request proto.Message
		want    string
	}{
		{pb.Jobs_Get_FullMethodName, &pb.GetJobRequest{Id: "j"}, "j"},
		{pb.Jobs_Extend_FullMethodName, &pb.ExtendRequest{Id: "k", Draws: 1}, "k"},
		{pb.Jobs_Submit_FullMethodName, &pb.SubmitRequest{ClientId: "c"}, ""},
		{pb.Jobs_Get_FullMethodName, &pb.ListJobsRequest{}, ""}, // not its request
	} {
		if got := Job(RuleOf(c.method), c.request); got != c.want {
			t.Errorf("%s names job %q, not %q", c.method, got, c.want)
		}
		request, reply, err := NewMessages(c.method)
		if err != nil || request == nil || reply == nil {
			t.Errorf("%s: %v", c.method, err)
		}
	}
	for _, bad := range []string{"", "/", "/ulisse.v1.Jobs/Invented", "/ulisse.v1.Job/id", "ulisse.v1.Jobs"} {
		if _, _, err := NewMessages(bad); err == nil {
			t.Errorf("%q has messages", bad)
		}
	}
}
