package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// people is a state with several tokens, and the jobs of lab: j is ann's, k is ben's.
type people struct {
	mu     sync.Mutex
	tokens map[string]*state.Token // by id
	texts  map[string]string       // by the name of the user
	broken error                   // what reading answers
}

func newPeople(users ...state.Token) *people {
	p := &people{tokens: map[string]*state.Token{}, texts: map[string]string{}}
	for _, u := range users {
		text, id := NewToken()
		u.ID, u.Hash = id, Hash(text)
		p.tokens[id], p.texts[u.Name] = &u, text
	}
	return p
}

func (p *people) Token(id string) (*state.Token, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	if k := p.tokens[id]; k != nil {
		copied := *k
		return &copied, nil
	}
	return nil, state.ErrToken
}

func (p *people) Job(_ context.Context, id string) (namespace, owner string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return "", "", p.broken
	}
	switch id {
	case "j":
		return "lab", "ann", nil
	case "k":
		return "lab", "ben", nil
	}
	return "", "", state.ErrUnknownJob
}

func (*people) NodeKey() string { return "node key" }

// change changes a user's token.
func (p *people) change(user string, f func(*state.Token)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.tokens {
		if k.Name == user {
			f(k)
		}
	}
}

func (p *people) as(user string, more ...string) context.Context {
	return incoming(append([]string{rpc.Authorization, "Bearer " + p.texts[user]}, more...)...)
}

func lab() *people {
	all := []string{state.AllNamespaces}
	return newPeople(
		state.Token{Name: "vic", Role: state.Viewer, Namespaces: []string{"lab"}},
		state.Token{Name: "ann", Role: state.Submitter, Namespaces: []string{"lab"}},
		state.Token{Name: "ben", Role: state.Submitter, Namespaces: []string{"lab"}},
		state.Token{Name: "out", Role: state.Submitter, Namespaces: []string{"other"}},
		state.Token{Name: "adm", Role: state.Admin, Namespaces: []string{"lab"}},
		state.Token{Name: "root", Role: state.Admin, Namespaces: all},
		state.Token{Name: "all", Role: state.Submitter, Namespaces: all},
		state.Token{Name: "bot", Role: state.WorkerBot},
		state.Token{Name: "old", Role: state.Admin, Namespaces: all, Expires: time.Unix(1000, 0)},
		state.Token{Name: "gone", Role: state.Admin, Namespaces: all, Revoked: time.Unix(1000, 0)},
	)
}

// What docs/operations.md says that each may do, in a table of its own: not from the rules.
func TestWhoMayDoWhat(t *testing.T) {
	const ok, no, hidden, stranger = codes.OK, codes.PermissionDenied, codes.NotFound, codes.Unauthenticated
	job := func(id string) *pb.JobActionRequest { return &pb.JobActionRequest{Id: id} }
	get := func(id string) *pb.GetJobRequest { return &pb.GetJobRequest{Id: id} }
	for _, c := range []struct {
		method string
		req    any
		want   map[string]codes.Code
	}{
		{pb.Jobs_Get_FullMethodName, get("j"), map[string]codes.Code{"vic": ok, "ann": ok, "ben": ok, "out": hidden, "adm": ok, "root": ok, "all": ok, "bot": ok, "old": stranger, "gone": stranger}},
		{pb.Jobs_Get_FullMethodName, get("nothing"), map[string]codes.Code{"vic": hidden, "out": hidden, "root": ok}}, // the handler says so
		{pb.Jobs_Submit_FullMethodName, &pb.SubmitRequest{}, map[string]codes.Code{"vic": no, "ann": ok, "adm": ok, "root": ok, "bot": no}},
		{pb.Jobs_Cancel_FullMethodName, job("j"), map[string]codes.Code{"vic": no, "ann": ok, "ben": no, "out": hidden, "adm": ok, "root": ok, "all": no, "bot": no}},
		{pb.Jobs_Delete_FullMethodName, job("k"), map[string]codes.Code{"ann": no, "ben": ok, "adm": ok, "all": no}},
		{pb.Workers_Report_FullMethodName, &pb.ReportRequest{Job: "j"}, map[string]codes.Code{"vic": no, "ann": no, "root": no, "bot": ok}},
		{pb.Users_CreateToken_FullMethodName, &pb.CreateTokenRequest{}, map[string]codes.Code{"ann": no, "all": no, "root": ok, "bot": no, "old": stranger}},
		{pb.Cluster_Backup_FullMethodName, &pb.BackupRequest{}, map[string]codes.Code{"adm": no, "all": no, "root": ok, "bot": no}},
	} {
		p := lab()
		g := NewGuard(Config{Required: true, Source: p, Now: func() time.Time { return time.Unix(2000, 0) }})
		for user, want := range c.want {
			called := false
			_, err := g.Unary(p.as(user), c.req, &grpc.UnaryServerInfo{FullMethod: c.method}, func(context.Context, any) (any, error) {
				called = true
				return nil, nil
			})
			if status.Code(err) != want || called != (want == ok) {
				t.Errorf("%s by %s: %v, called: %v", c.method, user, err, called)
			}
		}
	}
}

// A state that cannot be read lets nobody in, and is not taken for a wrong token.
func TestUnreadableState(t *testing.T) {
	p := lab()
	g := NewGuard(Config{Required: true, Source: p})
	call := func() error {
		_, err := g.Unary(p.as("ann"), &pb.GetJobRequest{Id: "j"}, &grpc.UnaryServerInfo{FullMethod: pb.Jobs_Get_FullMethodName},
			func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	p.broken = errors.New("the disk is gone")
	if err := call(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "disk") {
		t.Errorf("%v: a caller is told about the disk, or that the token is wrong", err)
	}
}

// The namespace that a request works in, and what a list shows.
func TestNamespaces(t *testing.T) {
	all := []string{state.AllNamespaces}
	for _, c := range []struct {
		id    Identity
		named string
		want  string
	}{
		{Identity{}, "", state.DefaultNamespace},
		{Identity{Namespaces: all}, "", state.DefaultNamespace},
		{Identity{Namespaces: []string{"lab"}}, "", "lab"},
		{Identity{Namespaces: []string{"a", "b"}}, "", state.DefaultNamespace},
		{Identity{Namespaces: []string{"a", "b"}, Working: "b"}, "", "b"},
		{Identity{Namespaces: []string{"a", "b"}, Working: "b"}, "a", "a"},
	} {
		if got := c.id.Namespace(c.named); got != c.want {
			t.Errorf("%+v, %q: %q, not %q", c.id, c.named, got, c.want)
		}
	}
	for _, c := range []struct {
		id        Identity
		namespace string
		sees      bool
		shows     bool
	}{
		{Identity{Namespaces: all}, "x", true, true},
		{Identity{Namespaces: all, Working: "y"}, "x", true, false},
		{Identity{Namespaces: []string{"x"}}, "x", true, true},
		{Identity{Namespaces: []string{"x"}}, "", false, false},
		{Identity{Namespaces: []string{state.DefaultNamespace}}, "", true, true},
		{Identity{Node: Worker}, "x", true, true},
		{Identity{Node: Coordinator, Role: state.Viewer, Namespaces: []string{"x"}}, "y", false, false}, // a user's call, passed on
	} {
		if got := c.id.Sees(c.namespace); got != c.sees {
			t.Errorf("%+v sees %q: %v", c.id, c.namespace, got)
		}
		if got := c.id.Shows(c.namespace); got != c.shows {
			t.Errorf("%+v is shown %q: %v", c.id, c.namespace, got)
		}
	}
	if who := From(context.Background()); !who.All() || who.IsNode() {
		t.Errorf("a call within the process is %+v", who)
	}
}

// jobs is a service whose streams last as long as they may.
type jobs struct {
	pb.UnimplementedJobsServer
	entered chan struct{}
}

func (s *jobs) Watch(_ *pb.WatchRequest, out grpc.ServerStreamingServer[pb.Job]) error {
	if err := out.Send(&pb.Job{Id: "j"}); err != nil {
		return err
	}
	s.entered <- struct{}{}
	<-out.Context().Done()
	return out.Context().Err()
}

// serve serves jobs behind a guard that runs, and returns a client of it.
func serve(t *testing.T, g *Guard, s *jobs) pb.JobsClient {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(g.Unary), grpc.StreamInterceptor(g.Stream))
	pb.RegisterJobsServer(srv, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(lis) })
	ctx, stop := context.WithCancel(context.Background())
	wg.Go(func() { g.Run(ctx) })
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		stop()
		wg.Wait()
	})
	return pb.NewJobsClient(conn)
}

// A stream ends when its token is revoked or has expired, for that reason; the streams of others
// go on.
func TestStreamsEndWithTheirTokens(t *testing.T) {
	for name, end := range map[string]func(*people){
		"revoked": func(p *people) { p.change("ann", func(k *state.Token) { k.Revoked = time.Now() }) },
		"expired": func(p *people) { p.change("ann", func(k *state.Token) { k.Expires = time.Now().Add(-time.Second) }) },
	} {
		t.Run(name, func(t *testing.T) {
			p := lab()
			s := &jobs{entered: make(chan struct{}, 2)}
			c := serve(t, NewGuard(Config{Required: true, Source: p}), s)
			watch := func(user string) grpc.ServerStreamingClient[pb.Job] {
				ctx := metadata.AppendToOutgoingContext(t.Context(), rpc.Authorization, "Bearer "+p.texts[user])
				w, err := c.Watch(ctx, &pb.WatchRequest{Id: "j"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Recv(); err != nil {
					t.Fatal(err)
				}
				<-s.entered
				return w
			}
			ann, vic := watch("ann"), watch("vic")
			others := make(chan error, 1)
			go func() {
				_, err := vic.Recv()
				others <- err
			}()
			end(p)
			if _, err := ann.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), name) {
				t.Errorf("the stream ended with %v", err)
			}
			select {
			case err := <-others:
				t.Errorf("another's stream ended: %v", err)
			default:
			}
			p.change("vic", func(k *state.Token) { k.Revoked = time.Now() })
			if err := <-others; status.Code(err) != codes.Unauthenticated {
				t.Error(err)
			}
		})
	}
}

// The first message of a stream names the job: one that is not the caller's is refused there.
func TestStreamOfAnothersJob(t *testing.T) {
	p := lab()
	c := serve(t, NewGuard(Config{Required: true, Source: p}), &jobs{entered: make(chan struct{}, 1)})
	ctx := metadata.AppendToOutgoingContext(t.Context(), rpc.Authorization, "Bearer "+p.texts["out"])
	w, err := c.Watch(ctx, &pb.WatchRequest{Id: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("a job of another namespace: %v", err)
	}
}

// A caller's streams are bounded, and the bound is free again when one ends.
func TestStreamsAreBounded(t *testing.T) {
	p := lab()
	s := &jobs{entered: make(chan struct{}, 3)}
	c := serve(t, NewGuard(Config{Required: true, Source: p, Limits: NewLimits(0, 1)}), s)
	watch := func() (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), rpc.Authorization, "Bearer "+p.texts["ann"]))
		w, err := c.Watch(ctx, &pb.WatchRequest{Id: "j"})
		if err == nil {
			_, err = w.Recv()
		}
		return cancel, err
	}
	end, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	over, err := watch()
	over()
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}
	end()
	for deadline := time.Now().Add(3 * time.Minute); ; { // the server sees the end a moment later
		again, err := watch()
		again()
		if err == nil || time.Now().After(deadline) {
			if err != nil {
				t.Errorf("after the first has ended: %v", err)
			}
			return
		}
	}
}

// log keeps what a guard wants kept.
type log struct {
	mu     sync.Mutex
	events []Event
}

func (l *log) keep(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// The audit log has who changed what, what it made, and who was refused; reads only if asked for.
func TestAudit(t *testing.T) {
	for _, reads := range []bool{false, true} {
		p := lab()
		var known, strangers log
		g := NewGuard(Config{Required: true, Source: p, Audit: known.keep, AuditStrangers: strangers.keep, AuditReads: reads})
		call := func(ctx context.Context, method string, req, resp any, err error) {
			_, _ = g.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return resp, err })
		}
		call(p.as("ann"), pb.Jobs_Submit_FullMethodName, &pb.SubmitRequest{Spec: "secret: text", Namespace: "lab", Priority: 3, Data: strings.Repeat("d", 300)}, &pb.Job{Id: "new"}, nil)
		call(p.as("ann"), pb.Jobs_Cancel_FullMethodName, &pb.JobActionRequest{Id: "j"}, nil, status.Error(codes.FailedPrecondition, "it has ended"))
		call(p.as("vic"), pb.Jobs_Get_FullMethodName, &pb.GetJobRequest{Id: "j"}, &pb.Job{}, nil)
		call(p.as("vic"), pb.Jobs_Summary_FullMethodName, &pb.GetJobRequest{Id: "j"}, &pb.SummaryResponse{}, nil)
		call(p.as("vic"), pb.Jobs_Cancel_FullMethodName, &pb.JobActionRequest{Id: "j"}, nil, nil)
		call(p.as("bot"), pb.Workers_Report_FullMethodName, &pb.ReportRequest{Job: "j"}, &pb.ReportResponse{}, nil)
		call(incoming(), pb.Jobs_Get_FullMethodName, &pb.GetJobRequest{Id: "j"}, nil, nil)
		var got []string
		for _, e := range known.events {
			if strings.Contains(e.What, "secret") || e.Token == "" || e.Time.IsZero() {
				t.Errorf("%+v", e)
			}
			got = append(got, fmt.Sprint(e.User, " ", e.Method[strings.LastIndex(e.Method, "/")+1:], " ", e.Outcome))
		}
		want := "ann Submit OK, ann Cancel FailedPrecondition, vic Cancel PermissionDenied"
		if reads {
			want = "ann Submit OK, ann Cancel FailedPrecondition, vic Summary OK, vic Cancel PermissionDenied"
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("reads kept %v:\n%s, not\n%s", reads, s, want)
		}
		if e := known.events[0]; e.Made != "id=new" || !strings.Contains(e.What, "namespace=lab") || !strings.Contains(e.What, "priority=3") || len(e.What) > 400 {
			t.Errorf("the submission is kept as %+v", e)
		}
		if len(strangers.events) != 1 || strangers.events[0].Outcome != "Unauthenticated" {
			t.Errorf("of strangers: %+v", strangers.events)
		}
	}
}

// A caller who is refused again and again writes a line a second, which says how many there were.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	p := lab()
	var kept log
	now := time.Unix(5000, 0)
	g := NewGuard(Config{Required: true, Source: p, Audit: kept.keep, Now: func() time.Time { return now }})
	cancel := func(times int) {
		for range times {
			_, err := g.Unary(p.as("vic"), &pb.JobActionRequest{Id: "j"}, &grpc.UnaryServerInfo{FullMethod: pb.Jobs_Cancel_FullMethodName},
				func(context.Context, any) (any, error) { return nil, nil })
			if status.Code(err) != codes.PermissionDenied {
				t.Fatal(err)
			}
		}
	}
	count := func() (lines, refusals int) {
		for _, e := range kept.events {
			refusals += 1 + e.More
		}
		return len(kept.events), refusals
	}
	cancel(100)
	if lines, _ := count(); lines != 1 {
		t.Errorf("%d lines in one second", lines)
	}
	now = now.Add(2 * time.Second)
	cancel(1)
	cancel(9)
	now = now.Add(2 * time.Second)
	done, stop := context.WithCancel(context.Background())
	stop()
	g.Run(done) // what is left is written at the end
	if lines, refusals := count(); lines != 3 || refusals != 110 {
		t.Errorf("%d lines tell of %d refusals, not 3 of 110", lines, refusals)
	}
	now = now.Add(2 * callerIdle)
	g.refusals.flush(g, now)
	if n := len(g.refusals.by); n != 0 {
		t.Errorf("%d callers are remembered after they were quiet", n)
	}
}

// Who is not known is refused by the headers alone; the first messages of one caller that are
// under way are bounded.
func TestTap(t *testing.T) {
	p := lab()
	var kept log
	g := NewGuard(Config{Required: true, Source: p, Audit: kept.keep})
	if _, _, err := g.Tap(incoming(), pb.Jobs_Submit_FullMethodName); status.Code(err) != codes.Unauthenticated || len(kept.events) != 1 {
		t.Errorf("nobody: %v, %d events", err, len(kept.events))
	}
	ctx, cancel := context.WithCancel(p.as("ann"))
	defer cancel()
	var first context.Context
	for i := range receiveEach {
		c, id, err := g.Tap(ctx, pb.Jobs_Submit_FullMethodName)
		if err != nil || id.User != "ann" {
			t.Fatalf("message %d: %v", i, err)
		}
		if i == 0 {
			first = c
		}
	}
	if _, _, err := g.Tap(ctx, pb.Jobs_Submit_FullMethodName); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one message too many: %v", err)
	}
	if _, _, err := g.Tap(p.as("ben"), pb.Jobs_Submit_FullMethodName); err != nil {
		t.Errorf("another caller: %v", err)
	}
	received(first)
	if _, _, err := g.Tap(ctx, pb.Jobs_Submit_FullMethodName); err != nil {
		t.Errorf("after one has come: %v", err)
	}
	if _, _, err := g.Tap(incoming(rpc.NodeKey, "node key"), pb.Workers_Report_FullMethodName); err != nil {
		t.Errorf("a node: %v", err)
	}
}

// What the process itself asks over the connection within it is a coordinator's; the mark is worth
// nothing elsewhere.
func TestInside(t *testing.T) {
	g := NewGuard(Config{Required: true, Source: lab()})
	md, _ := metadata.FromOutgoingContext(g.Inside(context.Background()))
	if len(md.Get(rpc.Inside)) != 1 {
		t.Fatal("no mark")
	}
	if id, err := g.Knows(metadata.NewIncomingContext(context.Background(), md)); err == nil {
		t.Errorf("the mark from outside is taken for %+v", id)
	}
}
