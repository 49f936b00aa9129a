package coordinator

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// A token is shown once, known by its hash, for as long as it was made for, and
// then revoked.
func TestTokens(t *testing.T) {
	s := serve(t, Config{})
	made, err := s.users.CreateToken(t.Context(), &pb.CreateTokenRequest{Name: "ann", Role: "viewer", Lifetime: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	id, err := auth.ParseToken(made.Secret)
	if err != nil || id != made.Token.Id {
		t.Errorf("%q of token %q: %v", id, made.Token.Id, err)
	}
	k, err := s.Token(id)
	if err != nil || k.Hash != auth.Hash(made.Secret) || k.Role != state.Viewer || !slices.Equal(k.Namespaces, []string{state.DefaultNamespace}) {
		t.Errorf("%+v %v", k, err)
	}
	if left := time.Until(k.Expires); left > time.Hour || left < 59*time.Minute {
		t.Errorf("it lives for %v", left)
	}
	bot, err := s.users.CreateToken(t.Context(), &pb.CreateTokenRequest{Name: "w", Role: "worker", Namespaces: []string{"default"}})
	if err != nil || !slices.Equal(bot.Token.Namespaces, []string{state.AllNamespaces}) {
		t.Errorf("a worker's token is for %v: %v", bot.GetToken().GetNamespaces(), err)
	}
	list, err := s.users.ListTokens(t.Context(), &pb.ListTokensRequest{})
	if err != nil || len(list.Tokens) != 2 || list.Tokens[0].Id != id {
		t.Errorf("%v %v", list, err)
	}
	revoked, err := s.users.RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: id})
	if err != nil || !revoked.Revoked.IsValid() {
		t.Errorf("%v %v", revoked, err)
	}
	if k, _ := s.Token(id); k.Live(time.Now()) {
		t.Error("a revoked token lives")
	}
	_, err = s.users.RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: "nobody"})
	wantCode(t, "an unknown token", err, codes.NotFound)
	for what, bad := range map[string]*pb.CreateTokenRequest{
		"a role":     {Name: "ann", Role: "king"},
		"a name":     {Name: "", Role: "viewer"},
		"a lifetime": {Name: "ann", Role: "viewer", Lifetime: durationpb.New(-time.Second)},
	} {
		_, err := s.users.CreateToken(t.Context(), bad)
		wantCode(t, what, err, codes.InvalidArgument)
	}
	_, err = s.users.CreateToken(t.Context(), &pb.CreateTokenRequest{Name: "ann", Role: "viewer", Namespaces: []string{"nowhere"}})
	wantCode(t, "a namespace", err, codes.NotFound)
}

// An administrator of a namespace gives and takes in it alone, and sees nothing of
// the others.
func TestTokensOfANamespace(t *testing.T) {
	s := serve(t, Config{})
	keep(t, s.Coordinator, &state.SetNamespace{Name: "lab", Fresh: true})
	u := &usersService{c: s.Coordinator}
	as := func(namespaces ...string) context.Context {
		return auth.With(t.Context(), &auth.Identity{User: "ann", Role: state.Admin, Namespaces: namespaces})
	}
	mine, err := u.CreateToken(as("lab"), &pb.CreateTokenRequest{Name: "bob", Role: "submitter"})
	if err != nil || !slices.Equal(mine.Token.Namespaces, []string{"lab"}) || mine.Token.CreatedBy != "ann" {
		t.Fatalf("%v %v", mine, err)
	}
	for _, namespaces := range [][]string{{"default"}, {state.AllNamespaces}, {"lab", "default"}} {
		_, err := u.CreateToken(as("lab"), &pb.CreateTokenRequest{Name: "bob", Role: "viewer", Namespaces: namespaces})
		wantCode(t, namespaces[0], err, codes.PermissionDenied)
	}
	theirs, err := u.CreateToken(as(state.AllNamespaces), &pb.CreateTokenRequest{Name: "eve", Role: "viewer", Namespaces: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := u.ListTokens(as("lab"), nil)
	if err != nil || len(list.Tokens) != 1 || list.Tokens[0].Id != mine.Token.Id {
		t.Errorf("%v %v", list, err)
	}
	_, err = u.RevokeToken(as("lab"), &pb.RevokeTokenRequest{Id: theirs.Token.Id})
	wantCode(t, "another's token", s.status(err), codes.NotFound)
	all, err := u.ListNamespaces(as("lab"), nil)
	if err != nil || len(all.Namespaces) != 1 || all.Namespaces[0].Name != "lab" {
		t.Errorf("%v %v", all, err)
	}
	who, err := u.WhoAmI(as("lab"), nil)
	if err != nil || who.User != "ann" || who.Role != "admin" || !slices.Equal(who.Namespaces, []string{"lab"}) {
		t.Errorf("%v %v", who, err)
	}
}

// A namespace shows what it uses beside its quota, and goes when it is empty.
func TestNamespaces(t *testing.T) {
	s := serve(t, Config{})
	n, err := s.users.SetNamespace(t.Context(), &pb.SetNamespaceRequest{Name: "lab", Fresh: true, Quota: &pb.Quota{Jobs: 1, Draws: 500}})
	if err != nil || n.Quota.Jobs != 1 || n.Used.Jobs != 0 {
		t.Fatalf("%v %v", n, err)
	}
	_, err = s.users.SetNamespace(t.Context(), &pb.SetNamespaceRequest{Name: "lab", Fresh: true})
	wantCode(t, "one that is there", err, codes.FailedPrecondition)
	j, err := s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: testSpec(40, 60, 10), Namespace: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: testSpec(40, 60, 10), Namespace: "lab"})
	wantCode(t, "a job too many", err, codes.ResourceExhausted, "jobs that have not ended")
	list, err := s.users.ListNamespaces(t.Context(), &pb.ListNamespacesRequest{})
	if err != nil || len(list.Namespaces) != 2 || list.Namespaces[1].Used.Jobs != 1 || list.Namespaces[1].Used.Chains != 2 || list.Namespaces[1].Used.Draws != 120 {
		t.Errorf("%v %v", list, err)
	}
	_, err = s.users.DeleteNamespace(t.Context(), &pb.DeleteNamespaceRequest{Name: "lab"})
	wantCode(t, "one with a job", err, codes.FailedPrecondition)
	for _, a := range []func() error{
		func() error { _, err := s.jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); return err },
		func() error { _, err := s.jobs.Delete(t.Context(), &pb.JobActionRequest{Id: j.Id}); return err },
		func() error {
			_, err := s.users.DeleteNamespace(t.Context(), &pb.DeleteNamespaceRequest{Name: "lab"})
			return err
		},
	} {
		if err := a(); err != nil {
			t.Error(err)
		}
	}
	if ns, owner, err := s.Job(t.Context(), j.Id); err == nil {
		t.Errorf("a deleted job is of %q in %q", owner, ns)
	}
}
