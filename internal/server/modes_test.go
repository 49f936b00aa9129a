package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// mode is how a cluster knows who calls.
type mode struct{ tls, tokens bool }

var modes = map[string]mode{"plaintext": {}, "TLS": {tls: true}, "tokens": {tokens: true}, "TLS and tokens": {true, true}}

// startMode runs two coordinators and three workers, and returns a user's
// connections to the coordinators, the first of which leads.
func startMode(t *testing.T, m mode) (conns []*grpc.ClientConn) {
	t.Helper()
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	var ca *certstest.Authority
	files := func(role, name string) (f tlsconf.Files) {
		if m.tls {
			f = ca.FilesFor(role, name, time.Now(), 1, "127.0.0.1")
		}
		return f
	}
	var src *tlsconf.Source // of the user
	if m.tls {
		ca = certstest.New(t)
		if src = ca.Source("client", "ada"); m.tokens {
			src = certstest.Load(t, tlsconf.Files{CA: ca.CA()})
		}
	}
	users, root := Users{Auth: AuthNone}, ""
	if m.tokens {
		root, _ = auth.NewToken()
		users = Users{Auth: AuthTokens, TokenFile: filepath.Join(dir, "root")}
		if err := os.WriteFile(users.TokenFile, []byte(root), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dial := func(address string) *grpc.ClientConn {
		conn, err := rpc.Dialer(src.Credentials(identity.Coordinator), rpc.WithCaller(root, "", m.tls))(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var addresses, peers []string
	for i := range 2 {
		ready := make(chan [2]string, 1)
		id := fmt.Sprint("c", i)
		c := Coordinator{ID: id, Dir: filepath.Join(dir, id), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1 - i, Peers: peers, Grace: time.Minute,
			SplitRows: 1, DiskReserve: 1, Logger: log, Users: users, Security: Security{Files: files("coordinator", id)},
			Ready: func(grpc, raft, _ string) { ready <- [2]string{grpc, raft} }}
		start(t, c.Run)
		at := <-ready
		addresses, peers = append(addresses, at[0]), append(peers, at[1])
		conns = append(conns, dial(at[0]))
		eventually(t, "a coordinator", func() bool {
			_, err := pb.NewUsersClient(conns[i]).WhoAmI(t.Context(), &pb.WhoAmIRequest{})
			if err == nil {
				_, err = pb.NewJobsClient(conns[i]).List(t.Context(), &pb.ListJobsRequest{})
			}
			return err == nil
		})
	}
	for i := range 3 {
		id := fmt.Sprint("w", i)
		w := Worker{ID: id, Dir: filepath.Join(dir, id), Coordinators: addresses, Listen: "127.0.0.1:0", Cores: 1, MinRows: 1, Logger: log,
			Security: Security{Files: files("worker", id)}}
		if m.tokens && !m.tls {
			r, err := pb.NewUsersClient(conns[0]).CreateToken(t.Context(), &pb.CreateTokenRequest{Name: id, Role: "worker"})
			if err != nil {
				t.Fatal(err)
			}
			w.Token = r.Secret
		}
		start(t, w.Run)
	}
	eventually(t, "three workers", func() bool {
		l, err := pb.NewWorkersClient(conns[1]).List(t.Context(), &pb.ListWorkersRequest{})
		return err == nil && len(l.Workers) == 3
	})
	return conns
}

// Workers share rows and predict however the cluster knows who calls: members of
// a group count the rows that they have computed.
func TestRowsAreShared(t *testing.T) {
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && m != (mode{true, true}) {
				t.Skip("the one with all")
			}
			t.Parallel() // it mostly waits
			conns := startMode(t, m)
			jobs := pb.NewJobsClient(conns[1])
			j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: sharedSpec})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "draws, and rows computed for other workers", func() bool {
				l, err := pb.NewWorkersClient(conns[0]).List(t.Context(), &pb.ListWorkersRequest{})
				tiles := int64(0)
				for _, w := range l.GetWorkers() {
					tiles += w.Load.GetTiles()
				}
				if err != nil || tiles == 0 {
					return false
				}
				j, err := jobs.Get(t.Context(), &pb.GetJobRequest{Id: j.Id})
				return err == nil && len(j.GetProgress().GetChains()) > 0 && j.Progress.Chains[0].Draws > 0
			})
			if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end", func() bool {
				j, err = jobs.Get(t.Context(), &pb.GetJobRequest{Id: j.Id})
				return err == nil && j.State == pb.JobState_JOB_STATE_CANCELLED
			})
			for i, conn := range conns {
				s, err := pb.NewPredictionsClient(conn).Predict(t.Context(), &pb.PredictRequest{Id: j.Id, Rows: []*pb.Point{{Inputs: []float64{0.1, 0.2}}}})
				if err == nil {
					_, err = s.Recv()
				}
				if err != nil {
					t.Errorf("a prediction by coordinator %d: %v", i, err)
				}
			}
		})
	}
}

const sharedSpec = `
name: shared
data: {synthetic: {n: 2000, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 1, warmup: 2, draws: 1000000, checkpoint: 5}
solver: {tolerance: 1e-2, cache: off, preconditioner: {kind: rpcholesky, rank: 50}}
stop: {rhat: 1.05, ess: 1e9, max_draws: 1000000, max_time: 10m}
`
