package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/server"
)

// guardedCluster runs a coordinator that asks for tokens, and returns its
// address and the file with the administrator's token.
func guardedCluster(t *testing.T) (address, tokenFile string) {
	t.Helper()
	dir := t.TempDir()
	ready := make(chan string, 1)
	c := server.Coordinator{ID: "c", Dir: dir, Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, DiskReserve: 1,
		Logger: slog.New(slog.DiscardHandler), Users: server.Users{Auth: server.AuthTokens}, Ready: func(grpc, _, _ string) { ready <- grpc }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address, tokenFile = <-ready, filepath.Join(dir, "admin-token")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if code, _, stderr := ulisse(t, "", "whoami", "--coordinators", address, "--token-file", tokenFile); code == 0 {
			return address, tokenFile
		} else if time.Now().After(end) {
			t.Fatalf("the first token does not work: %s", stderr)
		}
	}
}

func TestUsersCommands(t *testing.T) {
	t.Setenv(client.EnvConfig, filepath.Join(t.TempDir(), "config.yaml"))
	address, root := guardedCluster(t)
	if st, err := os.Stat(root); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the first token: %v, %v", st.Mode(), err)
	}
	t.Setenv(client.EnvCoordinators, address)
	code, _, stderr := ulisse(t, "", "jobs")
	if code != ExitFailure || !strings.Contains(stderr, "no token was sent: give one with --token-file") {
		t.Error(code, stderr)
	}
	admin := func(args ...string) string { t.Helper(); return good(t, append(args, "--token-file", root)...) }
	if out := admin("whoami"); out != "admin, admin of *\n" {
		t.Error(out)
	}
	admin("namespaces", "create", "lab", "--max-jobs", "1", "--max-bytes", "1000")
	admin("namespaces", "set", "lab", "--max-draws", "500")
	if out := admin("namespaces", "list"); !strings.Contains(out, "lab      0/1   0       0/500  0 B/1000 B") {
		t.Errorf("got\n%s", out)
	}
	secret := strings.TrimSpace(admin("tokens", "create", "ann", "--role", "submitter", "--for", "lab", "--lifetime", "1h"))
	file := write(t, t.TempDir(), "token", secret+"\n")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := ulisse(t, "", "whoami", "--token-file", file); code != ExitBadInput || !strings.Contains(stderr, "everybody on this machine can read the token in "+file) {
		t.Error(code, stderr)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(client.EnvCoordinators, "")
	good(t, "context", "add", "lab", address, "--token-file", file, "--namespace", "lab")
	if out := good(t, "whoami"); out != "ann, submitter of lab\n" {
		t.Error(out)
	}
	spec := write(t, t.TempDir(), "s.yaml", tinySpec)
	id := strings.TrimSpace(good(t, "submit", spec))
	jobs := asJSON[[]object](t, "jobs")
	if len(jobs) != 1 || jobs[0]["id"] != id || jobs[0]["owner"] != "ann" || jobs[0]["namespace"] != "lab" {
		t.Error(jobs)
	}
	if code, _, stderr := ulisse(t, "", "submit", spec); code != ExitFailure || !strings.Contains(stderr, "may have 1 jobs that have not ended") {
		t.Error(code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "tokens", "list"); code != ExitFailure || !strings.Contains(stderr, "ListTokens takes the role admin, and this token has the role submitter") {
		t.Error(code, stderr)
	}
	tokens := asJSON[[]object](t, "tokens", "list", "--token-file", root)
	if len(tokens) != 2 || tokens[1]["name"] != "ann" || tokens[1]["state"] != "valid" || tokens[1]["created_by"] != "admin" || tokens[0]["expires"] != nil {
		t.Error(tokens)
	}
	if out := admin("tokens", "revoke", tokens[1]["id"].(string)); !strings.Contains(out, "of ann, is revoked") {
		t.Error(out)
	}
	if code, _, stderr := ulisse(t, "", "jobs"); code != ExitFailure || !strings.Contains(stderr, "was revoked at") {
		t.Error(code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "namespaces", "delete", "lab", "--token-file", root); code != ExitFailure || !strings.Contains(stderr, "has jobs or data") {
		t.Error(code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "jobs", "--token", "x", "--coordinators", "10.0.0.1:7000"); code != ExitBadInput || !strings.Contains(stderr, "a token goes over TLS or to this machine only") {
		t.Error(code, stderr)
	}
}

// A token can go into a file that only its owner can read; addresses that cannot be are refused.
func TestTokensAndContextsByFile(t *testing.T) {
	t.Setenv(client.EnvConfig, filepath.Join(t.TempDir(), "config.yaml"))
	address, root := guardedCluster(t)
	t.Setenv(client.EnvCoordinators, address)
	admin := func(args ...string) string { t.Helper(); return good(t, append(args, "--token-file", root)...) }
	kept := filepath.Join(t.TempDir(), "w1.token")
	if out := admin("tokens", "create", "w1", "--role", "worker", "--out", kept); out != "" {
		t.Errorf("the secret was printed too: %s", out)
	}
	if st, err := os.Stat(kept); err != nil || st.Mode().Perm() != 0o600 || st.Size() < 20 {
		t.Errorf("the token's file: %v, %v", st, err)
	}
	if code, _, stderr := ulisse(t, "", "whoami", "--token-file", kept); strings.Contains(stderr, "everybody on this machine can read") {
		t.Error(code, stderr)
	}
	for _, address := range []string{"localhost:99999", "localhost:port", "localhost:0"} {
		if code, _, stderr := ulisse(t, "", "context", "add", "bad", address); code != ExitBadInput || !strings.Contains(stderr, "its port is not a number from 1 to 65535") {
			t.Errorf("%s: %d %s", address, code, stderr)
		}
	}
}
