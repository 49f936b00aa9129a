package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dev"
)

// script runs commands against a cluster of real processes, and keeps which.
type script struct {
	t     *testing.T
	dir   string
	to    []string // flags by which a client reaches the cluster
	token string
	mu    sync.Mutex
	ran   map[string]bool // guarded by mu: some commands run in the background
	procs []dev.Process
}

// contexts is held while the file of contexts is changed.
var contexts sync.Mutex

// execute runs a command line and returns what it printed.
func (s *script) execute(ctx context.Context, args ...string) (string, error) {
	var out, errs bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now}
	if c, _, err := a.root().Find(args); err == nil {
		s.mu.Lock()
		s.ran[c.CommandPath()] = true
		s.mu.Unlock()
	}
	if code := a.Execute(ctx, args); code != ExitConverged && code != ExitUnconverged {
		return out.String(), fmt.Errorf("exit %d: %s", code, errs.String())
	}
	return out.String(), nil
}

// local runs a command that needs no cluster.
func (s *script) local(args ...string) string {
	s.t.Helper()
	out, err := s.execute(s.t.Context(), args...)
	if err != nil {
		s.t.Fatalf("ulisse %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// on runs a command on the cluster.
func (s *script) on(args ...string) string {
	s.t.Helper()
	return s.local(append(args, s.to...)...)
}

// until runs a command on the cluster until what it prints will do.
func (s *script) until(what string, ok func(out string) bool, args ...string) {
	s.t.Helper()
	last := ""
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err := s.execute(s.t.Context(), append(args, s.to...)...)
		if err == nil && ok(out) {
			return
		}
		last = fmt.Sprint(out, err)
	}
	s.t.Fatalf("%s: not within five minutes; the last answer: %s", what, last)
}

// background runs a command until the function returned is called.
func (s *script) background(args ...string) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := s.execute(ctx, args...)
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "interrupted") {
			s.t.Errorf("ulisse %s: %v", args[0], err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *script) file(name, text string) string {
	s.t.Helper()
	return write(s.t, s.dir, name, text)
}

// parse reads what a command prints with --json.
func parse[T any](t *testing.T, out string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

const modesSpec = `
name: mine
data: {path: table.csv, target: y}
sampler: {method: fisher, chains: 1, warmup: 20, draws: 20, checkpoint: 5}
solver: {tolerance: 1e-3, preconditioner: {kind: rpcholesky, rank: 20}}
stop: {rhat: 1.01, ess: 1e9, max_draws: 20, max_time: 10m}
`

// sharedSpec is a job whose products are worth sharing, until it is cancelled.
const sharedSpec = `
name: other
data: {synthetic: {n: 2000, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 1, warmup: 2, draws: 100000, checkpoint: 5}
solver: {tolerance: 1e-2, cache: off, preconditioner: {kind: rpcholesky, rank: 50}}
stop: {rhat: 1.01, ess: 1e9, max_draws: 100000, max_time: 1h}
`

// Every command works however the cluster knows who calls, and the workers share
// the rows. A new command has to be run here too.
func TestEveryCommandInEveryMode(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: a minute")
	}
	t.Setenv(runMain, "1") // of the children of 'ulisse dev'
	t.Setenv(client.EnvConfig, filepath.Join(t.TempDir(), "config.yaml"))
	home := &script{t: t, dir: t.TempDir(), ran: map[string]bool{}}
	home.here()
	for name, mode := range map[string][2]string{"plaintext": {"false", "none"}, "TLS": {"true", "none"}, "tokens": {"false", "tokens"}, "TLS and tokens": {"true", "tokens"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := &script{t: t, dir: t.TempDir(), ran: maps.Clone(home.ran)}
			if err := os.CopyFS(s.dir, os.DirFS(home.dir)); err != nil {
				t.Fatal(err)
			}
			s.start(mode[0], mode[1])
			s.contexts(name)
			s.users()
			s.data()
			s.jobs()
			s.group(mode[0] == "true", mode[1] == "tokens")
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range everyCommand() {
				if !s.ran[c] {
					t.Errorf("'%s' was not run", c)
				}
			}
		})
	}
}

// everyCommand returns the paths of all commands that do something.
func everyCommand() (out []string) {
	queue := []*cobra.Command{(&App{}).root()}
	for ; len(queue) > 0; queue = queue[1:] {
		c := queue[0]
		queue = append(queue, c.Commands()...)
		if !c.HasSubCommands() {
			out = append(out, c.CommandPath())
		}
	}
	return out
}

// start runs a cluster of three coordinators and three workers.
func (s *script) start(tls, auth string) {
	s.t.Helper()
	s.background("dev", "--dir", filepath.Join(s.dir, "dev"), "--coordinators", "3", "--workers", "3", "--cores", "1", "--grace", "2s",
		"--split-rows", "1", "--min-rows", "1", "--tls="+tls, "--auth", auth)
	env := map[string]string{}
	for end := time.Now().Add(time.Minute); len(env) == 0 || len(s.procs) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("the cluster does not start")
		}
		if text, err := os.ReadFile(filepath.Join(s.dir, "dev", "processes.json")); err == nil {
			s.procs = parse[[]dev.Process](s.t, string(text))
		}
		text, _ := os.ReadFile(filepath.Join(s.dir, "dev", "env"))
		for line := range strings.Lines(string(text)) {
			k, v, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
			env[k] = v
		}
	}
	s.token = env[client.EnvToken]
	for flag, name := range map[string]string{"coordinators": client.EnvCoordinators, "token": client.EnvToken,
		"tls-ca": client.EnvTLSCA, "tls-cert": client.EnvTLSCert, "tls-key": client.EnvTLSKey} {
		if v := env[name]; v != "" {
			s.to = append(s.to, "--"+flag, v)
		}
	}
	s.until("three workers", func(out string) bool { return strings.Count(out, `"state": "ready"`) == 3 }, "workers", "--json")
}

// here runs what needs no cluster.
// here runs the commands that need no cluster, on files that the others use, too.
func (s *script) here() {
	s.t.Helper()
	var table, rows strings.Builder
	table.WriteString("a,b,y\n")
	rows.WriteString("a,b\n")
	for i := range 100 {
		a, b := float64(i%10)/3, float64(i/10)/5
		fmt.Fprintf(&table, "%g,%g,%g\n", a, b, a*a-2*b+float64(i*i%7)/10)
	}
	for i := range 5 {
		fmt.Fprintf(&rows, "%d,%d\n", i, 2*i)
	}
	s.file("table.csv", table.String())
	s.file("rows.csv", rows.String())
	spec := s.file("spec.yaml", modesSpec)
	s.local("version")
	s.local("describe", filepath.Join(s.dir, "table.csv"))
	s.local("init", filepath.Join(s.dir, "table.csv"), "--out", filepath.Join(s.dir, "begun.yaml"))
	s.local("validate", spec)
	s.local("prior", spec)
	s.local("plan", spec)
	s.local("run", spec, "--quiet", "--out", filepath.Join(s.dir, "run"))
	s.local("fit", spec, "--quiet", "--out", filepath.Join(s.dir, "fit"))
	s.local("cv", spec, "--quiet", "--folds", "2", "--out", filepath.Join(s.dir, "cv"))
	ca := filepath.Join(s.dir, "ca")
	s.local("certs", "init", "--dir", ca)
	s.local("certs", "issue", "--dir", ca, "--role", "client", "--name", "ada")
	s.local("certs", "p12", "--dir", ca, "--name", "ada")
	s.local("certs", "show", filepath.Join(ca, "ada.crt"))
	s.local("certs", "revoke", "--dir", ca, filepath.Join(ca, "ada.crt"))
	s.local("completion", "bash")
	s.local("completion", "zsh")
	s.local("completion", "fish")
	s.local("completion", "powershell")
	s.local("help", "jobs")
}

func (s *script) contexts(name string) {
	s.t.Helper()
	contexts.Lock()
	defer contexts.Unlock()
	name = strings.ReplaceAll(name, " ", "-")
	args := []string{"context", "add", name, s.to[slices.Index(s.to, "--coordinators")+1]}
	for i := 0; i < len(s.to); i += 2 {
		switch s.to[i] {
		case "--coordinators":
		case "--token":
			args = append(args, "--token-file", filepath.Join(s.dir, "dev", "admin-token"))
		default:
			args = append(args, s.to[i], s.to[i+1])
		}
	}
	s.local(args...)
	s.local("context", "use", name)
	s.local("context", "list")
	if out := s.local("context", "show", name); !strings.Contains(out, strings.Split(args[3], ",")[0]) {
		s.t.Errorf("context show prints %s", out)
	}
	s.local("whoami", "--context", name)
	s.local("context", "remove", name)
}

func (s *script) users() {
	s.t.Helper()
	s.on("namespaces", "create", "lab", "--max-jobs", "3")
	s.on("namespaces", "set", "lab", "--max-jobs", "4")
	if out := s.on("namespaces", "list"); !strings.Contains(out, "lab") {
		s.t.Errorf("the namespaces: %s", out)
	}
	s.on("namespaces", "delete", "lab")
	k := parse[tokenView](s.t, s.on("tokens", "create", "ann", "--role", "viewer", "--for", "default", "--json"))
	if out := s.on("tokens", "list"); !strings.Contains(out, k.ID) {
		s.t.Errorf("the tokens: %s", out)
	}
	s.on("tokens", "revoke", k.ID)
	s.on("whoami")
}

func (s *script) data() {
	s.t.Helper()
	table, back := filepath.Join(s.dir, "table.csv"), filepath.Join(s.dir, "back.csv")
	b := parse[struct {
		SHA256 string `json:"sha256"`
	}](s.t, s.on("data", "upload", table, "--json"))
	if out := s.on("data", "list"); !strings.Contains(out, b.SHA256[:8]) {
		s.t.Errorf("the data: %s", out)
	}
	s.on("data", "download", b.SHA256, "--out", back)
	was, _ := os.ReadFile(table)
	if is, err := os.ReadFile(back); err != nil || !bytes.Equal(was, is) {
		s.t.Errorf("the table comes back as %d bytes (%v)", len(is), err)
	}
}

// tiles returns how many rows' products workers have computed for each other.
func (s *script) tiles() (n int64) {
	s.t.Helper()
	for _, w := range parse[[]workerView](s.t, s.on("workers", "--json")) {
		n += w.Load.Tiles
	}
	return n
}

func (s *script) jobs() {
	s.t.Helper()
	if n := s.tiles(); n != 0 {
		s.t.Errorf("%d tiles before there was a job", n)
	}
	s.on("submit", filepath.Join(s.dir, "spec.yaml"), "--wait", "--out", filepath.Join(s.dir, "waited"))
	j := parse[[]client.JobView](s.t, s.on("jobs", "--json"))[0]
	s.on("watch", j.ID)
	s.on("logs", j.ID)
	s.on("draws", j.ID)
	s.on("summary", j.ID)
	s.on("report", j.ID, "--out", filepath.Join(s.dir, "report.html"))
	s.on("report", j.ID, "--check", "--effects", "--out", filepath.Join(s.dir, "checked.html"))
	s.on("results", j.ID, "--out", filepath.Join(s.dir, "results"))
	s.on("predict", j.ID, "--data", filepath.Join(s.dir, "rows.csv"), "--out", filepath.Join(s.dir, "predicted.csv"))
	if text, err := os.ReadFile(filepath.Join(s.dir, "predicted.csv")); err != nil || strings.Count(string(text), "\n") != 6 {
		s.t.Errorf("the predictions: %s, %v", text, err)
	}
	s.on("note", j.ID, "as it should be")
	s.on("tag", j.ID, "mine")
	if out := s.on("jobs", "--tag", "mine", "--json"); !strings.Contains(out, "as it should be") {
		s.t.Errorf("a job by its tag: %s", out)
	}
	s.on("effects", j.ID, "a", "--grid", "3", "--draws", "5")
	s.on("loo", j.ID, "--draws", "5")
	s.on("compare", j.ID, filepath.Join(s.dir, "run"), "--draws", "5", "--train", filepath.Join(s.dir, "table.csv"))
	s.on("extend", j.ID, "--draws", "10")
	s.on("watch", j.ID)

	outside := s.file("outside.yaml", strings.Replace(modesSpec, "{path: table.csv, target: y}", "{path: "+filepath.Join(s.dir, "table.csv")+", target: y}", 1))
	s.on("submit", outside, "--by-reference", "--client-id", "outside") // not under --data-roots of 'ulisse dev'
	s.until("a refusal to read what nobody has permitted", func(out string) bool {
		return strings.Contains(out, `"failed"`) && strings.Contains(out, "outside the directories of data")
	}, "jobs", "--state", "failed", "--json")

	other := strings.TrimSpace(s.on("submit", s.file("other.yaml", sharedSpec)))
	s.until("rows that are computed for others", func(string) bool { return s.tiles() > 0 }, "workers", "--json")
	s.on("pause", other)
	s.on("resume", other)
	s.on("cancel", other)
	s.until("the end of a job that was cancelled", func(out string) bool { return strings.Contains(out, "cancelled") }, "jobs", "--name", "other")
	s.on("delete", other)
}

// group changes who belongs to the cluster.
func (s *script) group(tls, tokens bool) {
	s.t.Helper()
	keys := func(role string) (out []string) {
		if tls {
			f := filepath.Join(s.dir, "dev", "tls", role)
			out = []string{"--tls-ca", filepath.Join(s.dir, "dev", "tls", "ca.crt"), "--tls-cert", f + ".crt", "--tls-key", f + ".key"}
		}
		if tokens && !tls && role == "worker" {
			out = append(out, "--token-file", filepath.Join(s.dir, "dev", "worker-token"))
		}
		if tokens && role == "coordinator" {
			out = append(out, "--auth", "tokens", "--bootstrap-token-file", filepath.Join(s.dir, "dev", "admin-token"))
		}
		return out
	}
	stop := s.background(append([]string{"worker", "--id", "more", "--dir", filepath.Join(s.dir, "more"), "--listen", "127.0.0.1:0", "--metrics", "",
		"--cores", "1", "--coordinators", s.procs[0].Addresses.GRPC}, keys("worker")...)...)
	s.until("one more worker", func(out string) bool { return strings.Contains(out, "more") }, "workers")
	s.on("drain", "more")
	stop()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	raft, folder := l.Addr().String(), filepath.Join(s.dir, "c4")
	l.Close()
	stop = s.background(append([]string{"coordinator", "--id", "c4", "--dir", folder, "--listen", "127.0.0.1:0", "--raft", raft, "--http", "", "--metrics", "",
		"--bootstrap-expect", "0", "--peers", s.procs[0].Addresses.Raft + "," + s.procs[1].Addresses.Raft}, keys("coordinator")...)...)
	role := func(want string) func(string) bool {
		return func(out string) bool {
			for _, m := range parse[membersView](s.t, out).Members {
				if m.ID == "c4" {
					return m.Role == want
				}
			}
			return want == ""
		}
	}
	s.until("one more coordinator", role("voter"), "cluster", "members", "--json")
	s.on("cluster", "demote", "c4")
	s.until("its vote to be taken", role("non-voter"), "cluster", "--json")
	s.on("cluster", "promote", "c4")
	s.until("a vote", role("voter"), "cluster", "members", "--json")
	s.on("cluster", "transfer", "c4")
	s.until("a leader of that name", role("leader"), "cluster", "members", "--json")
	s.until("another leader", func(string) bool { return true }, "cluster", "transfer", "coordinator-1")
	s.until("its removal", role(""), "cluster", "remove", "c4", "--json")
	stop()
	backup := filepath.Join(s.dir, "backup")
	s.on("cluster", "backup", backup)
	s.on("cluster", "restore", backup, "--yes")
	s.local("cluster", "recover", "--dir", folder, "--id", "c4", "--servers", "c4="+raft)
	s.until("the job, restored", func(out string) bool { return strings.Contains(out, "mine") }, "jobs")
}
