package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cli/clitest"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dev"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// most is how long anything may take that a test waits for.
const most = 3 * time.Minute

// running is a cluster that runs.
type running struct {
	t     *testing.T
	dir   string
	procs []dev.Process
	stop  context.CancelFunc
	ended chan error
}

// start runs a cluster until the test ends, or end is called.
func start(t *testing.T, c dev.Config) *running {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	r := &running{t: t, dir: c.Dir, stop: stop, ended: make(chan error, 1)}
	ready := make(chan []dev.Process, 1)
	go func() { r.ended <- dev.Run(ctx, c, func(p []dev.Process) { ready <- p }) }()
	t.Cleanup(r.end)
	select {
	case r.procs = <-ready:
	case err := <-r.ended:
		r.ended <- nil
		t.Fatalf("the cluster did not start: %v", err)
	case <-time.After(most):
		t.Fatal("the cluster did not start")
	}
	return r
}

// end stops the cluster: none of its processes is left.
func (r *running) end() {
	r.stop()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("the cluster ended with %v", err)
		}
		r.ended <- nil
	case <-time.After(most):
		r.t.Fatal("the cluster does not end")
	}
	for _, p := range r.processes() {
		if syscall.Kill(p.PID, 0) == nil {
			r.t.Errorf("%s is still there", p.Name)
		}
	}
}

// processes reads processes.json.
func (r *running) processes() (out []dev.Process) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "processes.json"))
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// client returns a client as the file env tells a shell to make one.
func (r *running) client() *client.Client {
	r.t.Helper()
	out, err := exec.Command("sh", "-c", `. "$0"; echo "$ULISSE_COORDINATORS|$ULISSE_TOKEN|$ULISSE_TLS_CA|$ULISSE_TLS_CERT|$ULISSE_TLS_KEY"`, filepath.Join(r.dir, "env")).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	f := strings.Split(strings.TrimSpace(string(out)), "|")
	return r.dial(client.Config{Addresses: strings.Split(f[0], ","), Token: f[1], TLS: tlsconf.Files{CA: f[2], Cert: f[3], Key: f[4]}})
}

func (r *running) dial(cfg client.Config) *client.Client {
	r.t.Helper()
	cfg.Patience = most
	c, err := client.Dial(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// until waits for what the cluster will do.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, most)
		}
	}
}

// connected waits until the workers have connected.
func (r *running) connected(c *client.Client, names ...string) {
	r.t.Helper()
	until(r.t, "workers connect", func() bool {
		workers, err := c.Workers(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		var got []string
		for _, w := range workers {
			if w.Connected {
				got = append(got, w.Id)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, names)
	})
}

// A cluster with tokens: the user's is in env, the workers have one of their own, which does not let
// them submit. A process that is killed comes back at its address. The next cluster in the folder is the same one.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	c := dev.Config{Dir: t.TempDir(), Binary: clitest.Program(t), Coordinators: 1, Workers: 2, Cores: 1, Restart: true, Tokens: true}
	r := start(t, c)
	admin := r.client()
	r.connected(admin, "worker-1", "worker-2")
	for _, f := range []string{"env", "admin-token", "worker-token"} {
		if info, err := os.Stat(filepath.Join(c.Dir, f)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v: others can read a token", f, info.Mode(), err)
		}
	}
	secret, err := client.ReadToken(filepath.Join(c.Dir, "worker-token"))
	if err != nil {
		t.Fatal(err)
	}
	bot := r.dial(client.Config{Addresses: []string{r.procs[0].Addresses.GRPC}, Token: secret})
	if _, err := bot.Submit(t.Context(), &pb.SubmitRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a worker's token submits: %v", err)
	}
	nobody := r.dial(client.Config{Addresses: []string{r.procs[0].Addresses.GRPC}})
	if _, err := nobody.Workers(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}

	killed := r.procs[2]
	if killed.Name != "worker-2" || killed.Role != "worker" {
		t.Fatalf("%+v", killed)
	}
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker is started again", func() bool {
		p := r.processes()[2]
		return p.PID != killed.PID && p.Addresses == killed.Addresses
	})
	r.connected(admin, "worker-1", "worker-2")
	r.end()

	again := start(t, c)
	for i, p := range again.procs {
		if p.Name != r.procs[i].Name || p.Addresses != r.procs[i].Addresses {
			t.Errorf("%+v is now %+v", r.procs[i], p)
		}
	}
	again.connected(admin, "worker-1", "worker-2") // the token of before, at the address of before
	again.end()

	c.Coordinators = 3
	if err := dev.Run(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "1 coordinators, not 3") {
		t.Errorf("another number of coordinators in the folder: %v", err)
	}
}

// A cluster with certificates: env names the user's, and a client without one is refused.
func TestClusterWithCertificates(t *testing.T) {
	r := start(t, dev.Config{Dir: t.TempDir(), Binary: clitest.Program(t), Coordinators: 1, Workers: 1, Cores: 1, TLS: true, Tokens: true})
	r.connected(r.client(), "worker-1")
	if info, err := os.Stat(filepath.Join(r.dir, "tls")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the keys' folder: %v, %v", info.Mode(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := r.dial(client.Config{Addresses: []string{r.procs[0].Addresses.GRPC}}).Workers(ctx); err == nil {
		t.Error("a client in plaintext is answered")
	}
}

// stub is a program that notes its arguments and environment beside itself and ends, or waits for
// the end if it is told to.
func stub(t *testing.T, then string) (binary, notes string) {
	t.Helper()
	dir := t.TempDir()
	binary, notes = filepath.Join(dir, "stub"), filepath.Join(dir, "notes")
	script := fmt.Sprintf("#!/bin/sh\necho \"$* token=[$ULISSE_TOKEN] path=[${PATH:+set}]\" >> '%s'\n%s\n", notes, then)
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return binary, notes
}

// What children are started with: addresses of their own that all agree on, the caller's arguments, and nothing
// of the environment that points at another cluster.
func TestArguments(t *testing.T) {
	t.Setenv("ULISSE_TOKEN", "of another cluster")
	binary, notes := stub(t, "exec sleep 1000")
	c := dev.Config{Dir: t.TempDir(), Binary: binary, Coordinators: 3, Workers: 2, Cores: 7,
		CoordinatorArgs: []string{"--for-coordinators"}, WorkerArgs: []string{"--for-workers"}}
	r := start(t, c)
	var lines []string
	until(t, "all have been started", func() bool {
		text, _ := os.ReadFile(notes)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return len(lines) == 5 && bytes.HasSuffix(text, []byte("\n"))
	})
	seen := map[string]bool{}
	var raft, grpc []string
	for _, p := range r.procs {
		for _, a := range []string{p.Addresses.GRPC, p.Addresses.HTTP, p.Addresses.Raft, p.Addresses.Metrics} {
			if a == "" {
				continue
			}
			if host, _, err := net.SplitHostPort(a); err != nil || host != "127.0.0.1" || seen[a] {
				t.Errorf("%s listens at %s", p.Name, a)
			}
			seen[a] = true
		}
		if p.Role == "coordinator" {
			raft, grpc = append(raft, p.Addresses.Raft), append(grpc, p.Addresses.GRPC)
		}
	}
	if len(seen) != 3*4+2*2 {
		t.Errorf("%d addresses", len(seen))
	}
	for _, line := range lines {
		want := []string{"--for-workers", "--coordinators " + strings.Join(grpc, ","), "--cores 7"}
		if strings.HasPrefix(line, "coordinator ") {
			want = []string{"--for-coordinators", "--peers " + strings.Join(raft, ","), "--bootstrap-expect 3"}
		}
		for _, w := range append(want, "token=[]", "path=[set]") {
			if !strings.Contains(line, w) {
				t.Errorf("%q lacks %q", line, w)
			}
		}
	}
}

// A child that dies is left alone where it is not to be started again; one that cannot be started ends
// the cluster with its name.
func TestChildrenThatEnd(t *testing.T) {
	binary, notes := stub(t, "exit 3")
	r := start(t, dev.Config{Dir: t.TempDir(), Binary: binary, Coordinators: 1, Cores: 1})
	until(t, "it was started", func() bool { _, err := os.Stat(notes); return err == nil })
	time.Sleep(time.Second) // twice the pause before a restart
	if text, _ := os.ReadFile(notes); bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("it was started again:\n%s", text)
	}
	r.end()

	err := dev.Run(t.Context(), dev.Config{Dir: t.TempDir(), Binary: "/nowhere/ulisse", Coordinators: 1, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err == nil || !strings.Contains(err.Error(), "starting coordinator-1") {
		t.Errorf("a program that does not exist: %v", err)
	}
}
