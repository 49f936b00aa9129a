package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// guarded is a cluster that asks who calls.
type guarded struct {
	t     *testing.T
	dir   string
	grpc  []string
	http  []string
	admin *grpc.ClientConn
	root  string          // the administrator's token
	src   *tlsconf.Source // what users trust; nil: plaintext
}

// startGuarded runs n coordinators that ask for tokens.
func startGuarded(t *testing.T, n int, more func(*Coordinator)) *guarded {
	t.Helper()
	return startGuardedOver(t, nil, n, more)
}

func startGuardedOver(t *testing.T, src *tlsconf.Source, n int, more func(*Coordinator)) *guarded {
	t.Helper()
	g := &guarded{t: t, dir: t.TempDir(), src: src}
	g.root, _ = auth.NewToken()
	file := filepath.Join(g.dir, "root")
	if err := os.WriteFile(file, []byte(g.root+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var peers []string
	for i := range n {
		ready := make(chan [3]string, 1)
		c := Coordinator{ID: fmt.Sprint("c", i), Dir: filepath.Join(g.dir, fmt.Sprint("c", i)), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0",
			BootstrapExpect: 1, Peers: peers, Grace: time.Minute, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler),
			Users: Users{Auth: AuthTokens, TokenFile: file, Audit: filepath.Join(g.dir, fmt.Sprintf("audit%d.jsonl", i))},
			Ready: func(grpc, raft, http string) { ready <- [3]string{grpc, raft, http} }}
		if i > 0 {
			c.BootstrapExpect = 0
		}
		if more != nil {
			more(&c)
		}
		start(t, c.Run)
		at := <-ready
		g.grpc, g.http, peers = append(g.grpc, at[0]), append(g.http, "http://"+at[2]), append(peers, at[1])
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for i := range n {
		conn := g.as(i, g.root)
		eventually(t, "an administrator", func() bool {
			_, err := pb.NewUsersClient(conn).ListTokens(t.Context(), &pb.ListTokensRequest{})
			return err == nil
		})
		if i == 0 {
			g.admin = conn
		}
	}
	return g
}

// as connects with a token.
func (g *guarded) as(i int, token string) *grpc.ClientConn {
	g.t.Helper()
	conn, err := rpc.Dialer(g.src.Credentials(identity.Coordinator), rpc.WithCaller(token, "", g.src != nil))(g.grpc[i])
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

// token makes a token.
func (g *guarded) token(name, role string, namespaces ...string) *pb.CreateTokenResponse {
	g.t.Helper()
	r, err := pb.NewUsersClient(g.admin).CreateToken(g.t.Context(), &pb.CreateTokenRequest{Name: name, Role: role, Namespaces: namespaces})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range g.grpc { // followers hear of it a moment later
		conn := g.as(i, r.Secret)
		eventually(g.t, "a coordinator to know the token", func() bool {
			_, err := pb.NewUsersClient(conn).WhoAmI(g.t.Context(), &pb.WhoAmIRequest{})
			return err == nil || !strings.Contains(err.Error(), "not one of this cluster's")
		})
	}
	return r
}

func (g *guarded) namespace(name string, q *pb.Quota) {
	g.t.Helper()
	if _, err := pb.NewUsersClient(g.admin).SetNamespace(g.t.Context(), &pb.SetNamespaceRequest{Name: name, Quota: q, Fresh: true}); err != nil {
		g.t.Fatal(err)
	}
}

// web makes a request over HTTP.
func (g *guarded) web(i int, method, path, token string, body io.Reader, headers ...string) (int, string) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.http[i]+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for j := 0; j < len(headers); j += 2 {
		r.Header.Set(headers[j], headers[j+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// invoke makes a call with an empty request and returns its error.
func invoke(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // streams that go on end with it
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, rpc.FullName(m))
	if err != nil {
		return err
	}
	_ = s.SendMsg(dynamicpb.NewMessage(m.Input())) // its error comes with the answer
	_ = s.CloseSend()
	for {
		if err := s.RecvMsg(dynamicpb.NewMessage(m.Output())); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// workers are the RPCs that only workers serve.
var workers = map[string]bool{pb.Tiles_Session_FullMethodName: true, pb.Tiles_Fetch_FullMethodName: true, pb.Gradients_Session_FullMethodName: true, pb.Posteriors_Compute_FullMethodName: true}

// Who may not make a call is told why, on every RPC; who may gets past the guard.
func TestWhoMayCall(t *testing.T) {
	g := startGuarded(t, 1, nil)
	g.namespace("lab", nil)
	users := pb.NewUsersClient(g.admin)
	expired, err := users.CreateToken(t.Context(), &pb.CreateTokenRequest{Name: "old", Role: "admin", Namespaces: []string{"*"}, Lifetime: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	revoked := g.token("gone", "admin", "*")
	if _, err := users.RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: revoked.Token.Id}); err != nil {
		t.Fatal(err)
	}
	unknown, _ := auth.NewToken()
	forged := expired.Secret[:len(expired.Secret)-5] + "AAAAA"
	time.Sleep(2 * time.Millisecond)

	for name, c := range map[string]struct{ token, message string }{
		"no token":      {"", "no token was sent"},
		"not a token":   {"sesame", "not a token of ulisse"},
		"unknown token": {unknown, "not one of this cluster's"},
		"forged token":  {forged, "not one of this cluster's"},
		"expired token": {expired.Secret, "the token " + expired.Token.Id + " expired at "},
		"revoked token": {revoked.Secret, "the token " + revoked.Token.Id + " was revoked at "},
	} {
		conn := g.as(0, c.token)
		for _, m := range rpc.Methods() {
			if workers[rpc.FullName(m)] {
				continue // workers'
			}
			err := invoke(t.Context(), conn, m)
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%s: %s: %v", name, m.FullName(), err)
			}
		}
		if code, text := g.web(0, "GET", "/v1/jobs", c.token, nil); code != http.StatusUnauthorized || !strings.Contains(text, c.message) {
			t.Errorf("%s: JSON: %d %s", name, code, text)
		}
		if code, text := g.web(0, "PUT", "/v1/data", c.token, strings.NewReader("x")); code != http.StatusUnauthorized || !strings.Contains(text, c.message) {
			t.Errorf("%s: an upload over HTTP: %d %s", name, code, text)
		}
	}

	for _, c := range []struct{ role, namespace string }{{"viewer", "lab"}, {"submitter", "lab"}, {"admin", "lab"}, {"viewer", "*"}, {"admin", "*"}, {"worker", "*"}, {"backup", "*"}} {
		conn := g.as(0, g.token("u-"+c.role, c.role, c.namespace).Secret)
		for _, m := range rpc.Methods() {
			if workers[rpc.FullName(m)] {
				continue
			}
			who := c.role
			if c.namespace == "*" && c.role != "worker" && c.role != "backup" {
				who += " of all"
			}
			may := slices.Contains(strings.Split(whoMay[strings.TrimPrefix(rpc.FullName(m), "/ulisse.v1.")], ", "), who)
			err := invoke(t.Context(), conn, m)
			if denied := status.Code(err) == codes.PermissionDenied; denied == may || status.Code(err) == codes.Unauthenticated {
				t.Errorf("%s: %s, may %v: %v", who, m.FullName(), may, err)
			}
		}
	}
}

// Sets of callers.
const (
	look    = "viewer, viewer of all, submitter, admin, admin of all"
	submits = "submitter, admin, admin of all"
	manages = "admin, admin of all"
	root    = "admin of all"
)

// whoMay says who may call what, in other words than proto/ does.
var whoMay = map[string]string{
	"Jobs/Submit": submits, "Jobs/Validate": submits, "Jobs/Get": look + ", worker", "Jobs/List": look, "Jobs/Pause": submits, "Jobs/Resume": submits, "Jobs/Cancel": submits,
	"Jobs/Extend": submits, "Jobs/Annotate": submits, "Jobs/Delete": submits, "Jobs/Summary": look, "Jobs/Result": look, "Jobs/Watch": look, "Jobs/Draws": look, "Jobs/Logs": look,
	"History/Run": look, "History/Workers": look, "Predictions/Predict": look,
	"Latents/Stat": root + ", worker", "Latents/Upload": root + ", worker", "Latents/Download": root + ", worker, backup", "Latents/List": root + ", backup",
	"Data/Stat": look + ", worker", "Data/Upload": submits, "Data/Download": look + ", worker, backup", "Data/List": look + ", backup",
	"Workers/Connect": "worker", "Workers/Report": "worker", "Workers/Await": "worker", "Workers/Log": "worker", "Workers/List": look + ", worker", "Workers/Drain": root,
	"Cluster/Members": look, "Cluster/Join": root, "Cluster/Remove": root, "Cluster/Promote": root, "Cluster/Demote": root, "Cluster/Transfer": root,
	"Cluster/Backup": root + ", backup", "Cluster/Restore": root,
	"Users/WhoAmI": look, "Users/CreateToken": manages, "Users/ListTokens": manages, "Users/RevokeToken": manages,
	"Users/SetNamespace": root, "Users/ListNamespaces": look, "Users/DeleteNamespace": root,
}

const tinySpec = `
name: tiny
data: {synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {chains: 2, warmup: 40, draws: 50}
stop: {max_draws: 50}
`

func upload(ctx context.Context, conn *grpc.ClientConn, data []byte) (string, error) {
	h := sha256.Sum256(data)
	addr := hex.EncodeToString(h[:])
	_, err := blobnet.Send(ctx, pb.NewDataClient(conn), addr, int64(len(data)), bytes.NewReader(data), nil)
	return addr, err
}

func wantCode(t *testing.T, what string, err error, code codes.Code, contains string) {
	t.Helper()
	if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), contains) {
		t.Errorf("%s: %v, not %v with %q", what, err, code, contains)
	}
}

// What is in another namespace is not there: jobs, data, draws, logs. Quotas
// hold, on whichever coordinator one asks.
func TestNamespaces(t *testing.T) {
	g := startGuarded(t, 3, nil)
	ctx := t.Context()
	g.namespace("lab", &pb.Quota{Jobs: 2, Bytes: 100})
	g.namespace("other", nil)
	ann := g.token("ann", "submitter", "lab")
	lab, boss, bob := g.as(1, ann.Secret), g.as(2, g.token("boss", "admin", "lab").Secret), g.as(2, g.token("bob", "submitter", "other").Secret)
	jobs := pb.NewJobsClient(lab)
	j, err := jobs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec, ClientId: "c"})
	if err != nil || j.Owner != "ann" || j.Namespace != "lab" {
		t.Fatalf("%+v, %v", j, err)
	}
	addr, err := upload(ctx, lab, []byte("x,y\n1,2\n"))
	if err != nil {
		t.Fatal(err)
	}

	theirs := pb.NewJobsClient(bob)
	for what, err := range map[string]error{
		"Get":     func() error { _, err := theirs.Get(ctx, &pb.GetJobRequest{Id: j.Id}); return err }(),
		"Get st.": func() error { _, err := theirs.Get(ctx, &pb.GetJobRequest{Id: j.Id, Stale: true}); return err }(),
		"Cancel":  func() error { _, err := theirs.Cancel(ctx, &pb.JobActionRequest{Id: j.Id}); return err }(),
		"Summary": func() error { _, err := theirs.Summary(ctx, &pb.GetJobRequest{Id: j.Id}); return err }(),
		"Draws": func() error {
			s, err := theirs.Draws(ctx, &pb.DrawsRequest{Id: j.Id})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}(),
		"Logs": func() error {
			s, err := theirs.Logs(ctx, &pb.LogsRequest{Id: j.Id})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}(),
		"Watch": func() error {
			s, err := theirs.Watch(ctx, &pb.WatchRequest{Id: j.Id})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}(),
	} {
		wantCode(t, what+" of another namespace's job", err, codes.NotFound, "there is no such job")
	}
	if l, err := theirs.List(ctx, &pb.ListJobsRequest{}); err != nil || len(l.Jobs) != 0 {
		t.Errorf("jobs that another namespace sees: %v, %v", l, err)
	}
	_, err = theirs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec, Namespace: "lab"})
	wantCode(t, "submitting to another namespace", err, codes.NotFound, "there is no such namespace")
	_, err = theirs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec, Namespace: "nowhere"})
	wantCode(t, "submitting to a namespace that does not exist", err, codes.NotFound, "there is no such namespace")
	if k, err := theirs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec, ClientId: "c"}); err != nil || k.Id == j.Id {
		t.Errorf("a client id that another namespace has used: %v, %v", k, err)
	}

	_, err = pb.NewDataClient(bob).Stat(ctx, &pb.StatRequest{Sha256: addr})
	wantCode(t, "Stat of another namespace's data", err, codes.NotFound, "no coordinator has blob")
	d, err := pb.NewDataClient(bob).Download(ctx, &pb.DownloadRequest{Sha256: addr})
	if err == nil {
		_, err = d.Recv()
	}
	wantCode(t, "Download of another namespace's data", err, codes.NotFound, "no coordinator has blob")
	if l, err := pb.NewDataClient(bob).List(ctx, &pb.ListBlobsRequest{}); err != nil || len(l.Blobs) != 0 {
		t.Errorf("data that another namespace sees: %v, %v", l, err)
	}
	table := strings.Replace(tinySpec, "{synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}", "{path: t.csv, target: y}", 1)
	_, err = theirs.Submit(ctx, &pb.SubmitRequest{Spec: table, Data: addr})
	wantCode(t, "a job on another namespace's data", err, codes.InvalidArgument, "upload it first")
	// Who knows the address alone does not get the data; who has them, does.
	s, err := pb.NewDataClient(bob).Upload(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.UploadChunk{Sha256: addr, Size: 8, Offset: 0, Data: []byte("12345678")})
	_, err = s.CloseAndRecv()
	if code := status.Code(err); code != codes.InvalidArgument && code != codes.DataLoss { // as the coordinator has the data or not
		t.Errorf("claiming data that one does not have: %v", err)
	}
	if s, err = pb.NewDataClient(bob).Upload(ctx); err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.UploadChunk{Sha256: addr, Size: 8, Offset: 8})
	_, err = s.CloseAndRecv()
	wantCode(t, "claiming data by their end", err, codes.OutOfRange, "")
	if _, err := upload(ctx, bob, []byte("x,y\n1,2\n")); err != nil {
		t.Errorf("uploading what another namespace has: %v", err)
	}
	if b, err := pb.NewDataClient(bob).Stat(ctx, &pb.StatRequest{Sha256: addr}); err != nil || len(b.Namespaces) != 1 || b.Namespaces[0] != "other" {
		t.Errorf("%v, %v", b, err)
	}

	if _, err := jobs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec}); err != nil {
		t.Fatal(err)
	}
	_, err = jobs.Submit(ctx, &pb.SubmitRequest{Spec: tinySpec})
	wantCode(t, "a job too many", err, codes.ResourceExhausted, `"lab" may have 2 jobs that have not ended, has 2, and this needs 1`)
	if code, text := g.web(0, "POST", "/v1/jobs", ann.Secret, strings.NewReader(fmt.Sprintf(`{"spec": %q}`, tinySpec))); code != http.StatusTooManyRequests || !strings.Contains(text, "may have 2 jobs") {
		t.Errorf("a job too many over HTTP: %d %s", code, text)
	}
	_, err = upload(ctx, lab, make([]byte, 93))
	wantCode(t, "data too many", err, codes.ResourceExhausted, `"lab" may have 100 bytes of data, has 8, and this needs 93`)
	if code, text := g.web(0, "PUT", "/v1/data", ann.Secret, bytes.NewReader(make([]byte, 93))); code != http.StatusTooManyRequests || !strings.Contains(text, "may have 100 bytes") {
		t.Errorf("data too many over HTTP: %d %s", code, text)
	}

	// The admin of a namespace looks after all its jobs, a user after their own.
	carl := g.as(0, g.token("carl", "submitter", "lab").Secret)
	_, err = pb.NewJobsClient(carl).Cancel(ctx, &pb.JobActionRequest{Id: j.Id})
	wantCode(t, "cancelling a colleague's job", err, codes.PermissionDenied, "the job is ann's")
	if _, err := pb.NewJobsClient(boss).Cancel(ctx, &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Errorf("the admin of the namespace: %v", err)
	}
	_, err = pb.NewUsersClient(boss).CreateToken(ctx, &pb.CreateTokenRequest{Name: "x", Role: "viewer", Namespaces: []string{"other"}})
	wantCode(t, "a token for another's namespace", err, codes.PermissionDenied, "not for other")
	_, err = pb.NewUsersClient(boss).CreateToken(ctx, &pb.CreateTokenRequest{Name: "x", Role: "admin", Namespaces: []string{"*"}})
	wantCode(t, "a token for more than one has", err, codes.PermissionDenied, "not for *")
	_, err = pb.NewUsersClient(boss).CreateToken(ctx, &pb.CreateTokenRequest{Name: "x", Role: "worker"})
	wantCode(t, "a worker's token", err, codes.PermissionDenied, "not for *")
	if l, err := pb.NewUsersClient(boss).ListTokens(ctx, &pb.ListTokensRequest{}); err != nil || len(l.Tokens) != 3 {
		t.Errorf("the tokens of the namespace: %v, %v", l, err)
	}
	_, err = pb.NewUsersClient(boss).RevokeToken(ctx, &pb.RevokeTokenRequest{Id: strings.Split(g.root, "_")[1]})
	wantCode(t, "revoking the administrator's token", err, codes.NotFound, "no such token")
}

// A token that is revoked is refused everywhere within a second, and ends the
// streams that were opened with it.
func TestRevocation(t *testing.T) {
	g := startGuarded(t, 3, nil)
	k := g.token("ann", "submitter", "default")
	j, err := pb.NewJobsClient(g.as(0, k.Secret)).Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var streams []grpc.ServerStreamingClient[pb.Job]
	for i := range 3 {
		s, err := pb.NewJobsClient(g.as(i, k.Secret)).Watch(ctx, &pb.WatchRequest{Id: j.Id})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if _, err := pb.NewUsersClient(g.admin).RevokeToken(ctx, &pb.RevokeTokenRequest{Id: k.Token.Id}); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		for err = nil; err == nil; {
			_, err = s.Recv()
		}
		wantCode(t, fmt.Sprint("a stream at ", i), err, codes.Unauthenticated, "was revoked")
		_, err = pb.NewJobsClient(g.as(i, k.Secret)).Get(ctx, &pb.GetJobRequest{Id: j.Id, Stale: true})
		wantCode(t, fmt.Sprint("a call at ", i), err, codes.Unauthenticated, "was revoked")
	}
}

// A backup does not bring a token back to life that was revoked since.
func TestRestoreKeepsRevocations(t *testing.T) {
	g := startGuarded(t, 1, nil)
	ann, eve := g.token("ann", "viewer", "default"), g.token("eve", "viewer", "default")
	b, err := pb.NewClusterClient(g.admin).Backup(t.Context(), &pb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var chunks []*pb.BackupChunk
	for {
		c, err := b.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
	}
	late := g.token("late", "viewer", "default")
	for _, k := range []*pb.CreateTokenResponse{eve, late} {
		if _, err := pb.NewUsersClient(g.admin).RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: k.Token.Id}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := pb.NewClusterClient(g.admin).Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if err := r.Send(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	call := func(k *pb.CreateTokenResponse) error {
		_, err := pb.NewJobsClient(g.as(0, k.Secret)).List(t.Context(), &pb.ListJobsRequest{})
		return err
	}
	if err := call(ann); err != nil {
		t.Error("a token that was not revoked:", err)
	}
	wantCode(t, "a token that was revoked after the backup", call(eve), codes.Unauthenticated, "revoked")
	wantCode(t, "a token that the backup does not know", call(late), codes.Unauthenticated, "")
}

// No metadata makes a user a node, or another user.
func TestMaliciousMetadata(t *testing.T) {
	g := startGuarded(t, 2, nil)
	g.namespace("lab", nil)
	g.namespace("other", nil)
	ctx := t.Context()
	addr, err := upload(ctx, g.as(0, g.token("ann", "submitter", "lab").Secret), []byte("x,y\n1,2\n"))
	if err != nil {
		t.Fatal(err)
	}
	eve := g.token("eve", "viewer", "other").Secret
	lies := [][]string{
		{rpc.Forwarded, "1"}, {rpc.NodeOnly, "1"}, {rpc.NodeOnly, "1", rpc.Forwarded, "1", rpc.NodeKey, ""},
		{rpc.NodeKey, strings.Repeat("A", 52)}, {rpc.NodeKey, "A", rpc.NodeKey, "B"}, {"ulisse-user", "admin"},
		{rpc.ForwardedFor, "127.0.0.1"}, {rpc.Namespace, "lab"}, {rpc.OnBehalf, "coordinator/c0"},
	}
	for i := range 2 {
		conn := g.as(i, eve)
		nobody := g.as(i, "")
		for _, lie := range lies {
			ctx := metadata.AppendToOutgoingContext(ctx, lie...)
			d, err := pb.NewDataClient(conn).Download(ctx, &pb.DownloadRequest{Sha256: addr})
			if err == nil {
				_, err = d.Recv()
			}
			wantCode(t, fmt.Sprint("data, with ", lie), err, codes.NotFound, "")
			_, err = pb.NewDataClient(conn).Stat(ctx, &pb.StatRequest{Sha256: addr})
			wantCode(t, fmt.Sprint("Stat, with ", lie), err, codes.NotFound, "")
			_, err = pb.NewRecordsClient(conn).Record(ctx, &pb.Blob{Sha256: addr, Namespaces: []string{"other"}})
			wantCode(t, fmt.Sprint("Record, with ", lie), err, codes.PermissionDenied, "own nodes")
			_, err = pb.NewUsersClient(conn).CreateToken(ctx, &pb.CreateTokenRequest{Name: "eve", Role: "admin", Namespaces: []string{"other"}})
			wantCode(t, fmt.Sprint("CreateToken, with ", lie), err, codes.PermissionDenied, "takes the role admin")
			_, err = pb.NewClusterClient(nobody).ReadIndex(ctx, &pb.ReadIndexRequest{})
			wantCode(t, fmt.Sprint("ReadIndex without a token, with ", lie), err, codes.Unauthenticated, "no token was sent")
		}
		two := metadata.AppendToOutgoingContext(ctx, rpc.Authorization, "Bearer "+g.root)
		_, err = pb.NewUsersClient(conn).WhoAmI(two, &pb.WhoAmIRequest{})
		wantCode(t, "two tokens", err, codes.Unauthenticated, "more than one token")
		for _, h := range [][]string{{"Grpc-Metadata-Ulisse-Node-Only", "1"}, {"Grpc-Metadata-Ulisse-Forwarded", "1"}, {"Ulisse-Node-Only", "1"},
			{"Grpc-Metadata-Authorization", "Bearer " + g.root}, {"Ulisse-Namespace", "lab"}} {
			if code, text := g.web(i, "GET", "/v1/data/"+addr, eve, nil, h...); code != http.StatusNotFound {
				t.Errorf("JSON with %v: %d %s", h, code, text)
			}
			if code, text := g.web(i, "GET", "/v1/jobs", "", nil, h...); code != http.StatusUnauthorized {
				t.Errorf("JSON without a token, with %v: %d %s", h, code, text)
			}
		}
	}
}

// events returns what an audit log holds.
func events(t *testing.T, path string) (out []auth.Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e auth.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

// What changes something, and what is refused, is in the audit log, with who and
// from where and what came of it, and never a token. Reads are if that is asked
// for.
func TestAudit(t *testing.T) {
	g := startGuarded(t, 1, func(c *Coordinator) { c.AuditReads = true })
	ann := g.token("ann", "submitter", "default")
	conn := g.as(0, ann.Secret)
	j, err := pb.NewJobsClient(conn).Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec, ClientId: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := upload(t.Context(), conn, []byte("x,y\n1,2\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := pb.NewDataClient(conn).Download(t.Context(), &pb.DownloadRequest{Sha256: addr})
	if err == nil {
		_, err = d.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	g.namespace("lab", &pb.Quota{Jobs: 3})
	g.web(0, "POST", "/v1/jobs/"+j.Id+":pause", ann.Secret, nil, "X-Forwarded-For", "1.2.3.4")
	g.web(0, "POST", "/v1/tokens", ann.Secret, strings.NewReader(`{"name": "eve", "role": "admin"}`))
	for range 50 {
		g.web(0, "GET", "/v1/jobs", "sesame", nil)
	}
	path := filepath.Join(g.dir, "audit0.jsonl")
	count := func(all []auth.Event, line string) (n int) {
		for _, e := range all {
			if strings.TrimSpace(fmt.Sprintf("%s %s %s > %s %s", e.User, strings.TrimPrefix(e.Method, "/ulisse.v1."), e.What, e.Made, e.Outcome)) == line {
				n++
			}
		}
		return n
	}
	strangers := "GET /v1/jobs  >  Unauthenticated"
	eventually(t, "all refusals", func() bool {
		n, all := 0, events(t, path+strangersSuffix)
		for _, e := range all {
			n += 1 + e.More
		}
		return n >= 50 && len(all) < 20
	})
	all := events(t, path)
	for _, want := range []string{
		"admin Users/CreateToken name=ann role=submitter namespaces=default > token=(id=" + ann.Token.Id + ") OK",
		"admin Users/SetNamespace name=lab quota=(jobs=3) >  OK",
		"ann Jobs/Submit client_id=mine > id=" + j.Id + " OK",
		"ann Data/Upload sha256=" + addr + " > sha256=" + addr + " OK",
		"ann Data/Download sha256=" + addr + " >  OK",
		"ann Jobs/Pause id=" + j.Id + " > id=" + j.Id + " OK",
		"ann Users/CreateToken name=eve role=admin >  PermissionDenied",
	} {
		if count(all, want) != 1 {
			t.Errorf("%q is not there: %+v", want, all)
		}
	}
	if count(all, strangers) > 0 {
		t.Error("strangers are in the log of those who are known")
	}
	for _, name := range []string{path, path + strangersSuffix} {
		st, err := os.Stat(name)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{ann.Secret, g.root, "sesame", auth.Hash(ann.Secret)} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("a secret is in the audit log:\n%s", text)
			}
		}
		for _, e := range events(t, name) {
			if e.From != "127.0.0.1" {
				t.Errorf("from %q: %+v", e.From, e)
			}
		}
	}
}

// Where certificates say who calls, the log and jobs have their names.
func TestAuditOfCertificates(t *testing.T) {
	ca := certstest.New(t)
	ready := make(chan string, 1)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	start(t, Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, Grace: time.Minute, DiskReserve: 1,
		Logger: slog.New(slog.DiscardHandler), Users: Users{Audit: path}, Security: Security{Files: ca.Files("coordinator", "alone")},
		Ready: func(grpc, _, _ string) { ready <- grpc }}.Run)
	jobs := pb.NewJobsClient(dialAs(t, ca.Source("client", "ada"), <-ready, identity.Coordinator))
	var j *pb.Job
	eventually(t, "a leader", func() (ok bool) {
		var err error
		j, err = jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec, ClientId: "x"})
		return err == nil
	})
	if j.Owner != "cert:ada" {
		t.Errorf("the job is %q's", j.Owner)
	}
	all := events(t, path)
	if last := all[len(all)-1]; last.User != "cert:ada" || last.Made != "id="+j.Id {
		t.Errorf("%+v", last)
	}
}

// A caller that asks too often is told to slow down; others are not.
func TestRates(t *testing.T) {
	g := startGuarded(t, 1, func(c *Coordinator) { c.Rate, c.Streams = 20, 2 })
	ann, bob := g.as(0, g.token("ann", "submitter", "default").Secret), g.as(0, g.token("bob", "viewer", "default").Secret)
	j, err := pb.NewJobsClient(ann).Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := pb.NewJobsClient(ann).Watch(t.Context(), &pb.WatchRequest{Id: j.Id})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := pb.NewJobsClient(ann).Watch(t.Context(), &pb.WatchRequest{Id: j.Id})
	if err == nil {
		_, err = s.Recv()
	}
	wantCode(t, "a third stream", err, codes.ResourceExhausted, "2 streams are open")
	for err = nil; err == nil; {
		_, err = pb.NewUsersClient(ann).WhoAmI(t.Context(), &pb.WhoAmIRequest{})
	}
	wantCode(t, "too many calls", err, codes.ResourceExhausted, "more than 20 calls a second")
	if _, err := pb.NewUsersClient(bob).WhoAmI(t.Context(), &pb.WhoAmIRequest{}); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// Settings that would not be safe are refused.
func TestUnsafeSettings(t *testing.T) {
	for _, c := range []Coordinator{
		{Listen: "127.0.0.1:0", Users: Users{Auth: "some"}},
		{Listen: "0.0.0.0:0", Security: Security{Insecure: true}, Users: Users{Auth: AuthTokens}},
	} {
		c.ID, c.Dir, c.Raft, c.Logger = "c", t.TempDir(), "127.0.0.1:0", slog.New(slog.DiscardHandler)
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--auth") {
			t.Errorf("%+v: %v", c.Users, err)
		}
	}
}

// With TLS a token takes the place of a client's certificate, but not of a
// node's; nor does a certificate take the place of a token.
func TestTokensOverTLS(t *testing.T) {
	ca := certstest.New(t)
	g := startGuardedOver(t, certstest.Load(t, tlsconf.Files{CA: ca.CA()}), 2, func(c *Coordinator) {
		c.Files = ca.FilesFor("coordinator", c.ID, time.Now(), 1, "127.0.0.1")
	})
	w := Worker{ID: "w", Dir: t.TempDir(), Coordinators: g.grpc, Listen: "127.0.0.1:0", Cores: 1, Logger: slog.New(slog.DiscardHandler),
		Security: Security{Files: ca.FilesFor("worker", "w", time.Now(), 1, "127.0.0.1")}}
	start(t, w.Run)
	ctx := t.Context()
	ann := g.token("ann", "submitter", "default").Secret
	for i := range 2 { // of which one passes the call on
		conn := g.as(i, ann)
		if _, err := upload(ctx, conn, fmt.Appendf(nil, "x,y\n1,%d\n", i)); err != nil {
			t.Errorf("an upload to %d: %v", i, err)
		}
		j, err := pb.NewJobsClient(conn).Submit(ctx, &pb.SubmitRequest{Spec: tinySpec})
		if err != nil || j.Owner != "ann" {
			t.Fatalf("%v, %v", j, err)
		}
		if i == 0 {
			eventually(t, "a worker's result", func() bool {
				j, err := pb.NewJobsClient(conn).Get(ctx, &pb.GetJobRequest{Id: j.Id})
				return err == nil && j.State >= pb.JobState_JOB_STATE_CONVERGED
			})
		}
		_, err = pb.NewRecordsClient(conn).Record(ctx, &pb.Blob{})
		wantCode(t, "a user's call as a node", err, codes.Unauthenticated, "no certificate was shown")
		marked := metadata.AppendToOutgoingContext(ctx, rpc.NodeOnly, "1")
		_, err = pb.NewDataClient(conn).List(marked, &pb.ListBlobsRequest{})
		wantCode(t, "a user's call with a node's mark", err, codes.PermissionDenied, "comes from")
		_, err = pb.NewJobsClient(g.as(i, "")).List(ctx, &pb.ListJobsRequest{})
		wantCode(t, "neither token nor certificate", err, codes.Unauthenticated, "no token was sent")

		client := dialAs(t, ca.Source("client", "ada"), g.grpc[i], identity.Coordinator)
		_, err = pb.NewJobsClient(client).List(ctx, &pb.ListJobsRequest{})
		wantCode(t, "a client's certificate without a token", err, codes.Unauthenticated, "no token was sent")
		worker := dialAs(t, ca.Source("worker", "x"), g.grpc[i], identity.Coordinator)
		_, err = pb.NewUsersClient(worker).CreateToken(ctx, &pb.CreateTokenRequest{Name: "x", Role: "admin"})
		wantCode(t, "a worker's certificate", err, codes.PermissionDenied, "that of worker x")
		// Even a coordinator is not believed that a user is somebody.
		other := dialAs(t, ca.Source("coordinator", "x"), g.grpc[i], identity.Coordinator)
		lie := metadata.AppendToOutgoingContext(ctx, rpc.Forwarded, "1", rpc.OnBehalf, "client/admin")
		_, err = pb.NewUsersClient(other).CreateToken(lie, &pb.CreateTokenRequest{Name: "x", Role: "admin", Namespaces: []string{"*"}})
		if status.Code(err) == codes.OK {
			t.Error("a coordinator made a token for a user without one")
		}
	}
}
