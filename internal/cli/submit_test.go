package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/client/clienttest"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

const tinySpec = `
name: tiny
data: {synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 5}
solver: {preconditioner: {kind: rpcholesky}}
stop: {rhat: 9, ess: 1, max_draws: 20}
`

// cluster starts one in this process, with workers of these names, and points the
// environment at it.
func cluster(t *testing.T, workers ...string) *clienttest.Cluster {
	t.Helper()
	s := clienttest.New(t)
	t.Setenv(client.EnvConfig, filepath.Join(t.TempDir(), "config.yaml"))
	t.Setenv(client.EnvContext, "")
	t.Setenv(client.EnvToken, "")
	t.Setenv(client.EnvCoordinators, s.Addr())
	for _, w := range workers {
		s.Work(w)
	}
	return s
}

// good runs a command that must succeed and returns what it prints.
func good(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := ulisse(t, "", args...)
	if code != 0 {
		t.Fatalf("ulisse %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// asJSON runs a command that must print JSON.
func asJSON[T any](t *testing.T, args ...string) T {
	t.Helper()
	var v T
	out := good(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("ulisse %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

type object = map[string]any

// gradientsIn returns the solver's iterations at every gradient that a log tells of.
func gradientsIn(t *testing.T, log []byte) map[[2]int]float64 {
	t.Helper()
	out := map[[2]int]float64{}
	for text := range bytes.Lines(log) {
		var line struct {
			Msg         string
			Chain, Iter int
			Iterations  float64 `json:"solver_iterations"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("%v in the log line %q", err, text)
		}
		if line.Msg == "gradient" {
			out[[2]int{line.Chain, line.Iter}] = line.Iterations
		}
	}
	if len(out) < 60 {
		t.Errorf("the log tells of %d gradients", len(out))
	}
	return out
}

// A job submitted to a cluster leaves what a run here does: the same files, and
// the same bits in the draws.
func TestSubmitLeavesWhatRunDoes(t *testing.T) {
	cluster(t, "w")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	good(t, "run", spec, "--out", here, "-q")
	code, stdout, stderr := ulisse(t, "", "submit", spec, "--wait", "--out", there)
	if code != ExitConverged || !strings.Contains(stderr, "submitted tiny as ") || !strings.Contains(stderr, "msg=converged") {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	text, _ := os.ReadFile(filepath.Join(there, "summary.txt"))
	if !strings.HasPrefix(stdout, string(text)) || !strings.HasSuffix(stdout, "results in "+there+"\n") {
		t.Errorf("it printed\n%s", stdout)
	}
	for _, f := range []string{"draws/chain-1.csv", "draws/chain-2.csv", "summary.json", "summary.txt", "spec.yaml", "trace.svg", "density.svg", "rhat.svg", "log.jsonl", "result.json"} {
		a, err1 := os.ReadFile(filepath.Join(here, f))
		b, err2 := os.ReadFile(filepath.Join(there, f))
		if err1 != nil || err2 != nil || len(b) == 0 {
			t.Errorf("%s: %v, %v", f, err1, err2)
		}
		if strings.HasPrefix(f, "draws") { // all but the time that it took
			a, _, _ = bytes.Cut(a, []byte("Elapsed"))
			b, _, _ = bytes.Cut(b, []byte("Elapsed"))
		}
		if !strings.HasPrefix(f, "summary") && f != "log.jsonl" && f != "result.json" && !bytes.Equal(a, b) {
			t.Errorf("%s is not that of ulisse run", f)
		}
		if f == "log.jsonl" && !maps.Equal(gradientsIn(t, a), gradientsIn(t, b)) {
			t.Error("the log tells of other gradients")
		}
	}
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the draws are others")
	}
	extra, _ := os.ReadDir(there)
	for _, e := range extra {
		if _, err := os.Stat(filepath.Join(here, e.Name())); err != nil {
			t.Errorf("%s is not in the folder of ulisse run", e.Name())
		}
	}

	// The same later, by its name; the draws alone; the summary.
	later := filepath.Join(dir, "later")
	good(t, "results", "tiny", "--out", later)
	if summaryHash(t, later) != summaryHash(t, here) {
		t.Error("the draws are others later")
	}
	file, _ := os.ReadFile(filepath.Join(there, "draws", "chain-2.csv"))
	if out := good(t, "draws", "tiny", "--chain", "2"); out != string(file) {
		t.Errorf("got\n%s", out)
	}
	table := filepath.Join(dir, "table.csv")
	good(t, "draws", "tiny", "--out", table)
	lines, _ := os.ReadFile(table)
	if rows := strings.Split(strings.TrimSpace(string(lines)), "\n"); len(rows) != 41 || !strings.HasPrefix(rows[0], "chain__,draw__,sigma,") || !strings.HasPrefix(rows[21], "2,1,") {
		t.Errorf("%d rows:\n%s", len(rows), lines)
	}
	if out := good(t, "summary", "tiny"); !strings.HasPrefix(out, "tiny: converged\n") || !strings.Contains(out, "noise_sd") || strings.Contains(out, "log_lambda") || !strings.Contains(good(t, "summary", "tiny", "--all"), "log_lambda") {
		t.Errorf("got\n%s", out)
	}
	if sum := asJSON[object](t, "summary", "tiny"); sum["draws_sha256"] != summaryHash(t, here) {
		t.Errorf("got %v", sum)
	}
	if sum := asJSON[object](t, "submit", spec, "--wait", "-q", "--seed", "9"); sum["seed"] != 9. || sum["draws_sha256"] == summaryHash(t, here) {
		t.Errorf("got %v", sum)
	}
}

// A table is uploaded once, whatever it is called and wherever it comes from.
func TestSubmitData(t *testing.T) {
	s := cluster(t)
	stop := s.Work("w")
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range 50 {
		fmt.Fprintf(&b, "%d,%d,%g\n", i, i*i%17, float64(i%7)+0.1*float64(i))
	}
	write(t, dir, "table.csv", b.String())
	spec := write(t, dir, "s.yaml", strings.Replace(tinySpec, "data: {synthetic: {n: 40, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}", "data: {path: table.csv, target: y}", 1))
	code, stdout, stderr := ulisse(t, "", "submit", spec, "--wait", "--json")
	var sum object
	if err := json.Unmarshal([]byte(stdout), &sum); code != 0 || err != nil || sum["n"] != 50. || !strings.Contains(stderr, "table.csv: uploaded 572 B, ") {
		t.Fatalf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	code, stdout, stderr = ulisse(t, b.String(), "submit", spec, "--data", "-", "--wait", "--json")
	var piped object
	if err := json.Unmarshal([]byte(stdout), &piped); code != 0 || err != nil || piped["draws_sha256"] != sum["draws_sha256"] || !strings.Contains(stderr, "the cluster has it already") {
		t.Errorf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if n := s.Calls("Upload"); n != 1 {
		t.Errorf("%d uploads", n)
	}
	blobs := asJSON[[]object](t, "data", "list")
	sha := blobs[0]["sha256"].(string)
	if len(blobs) != 1 || blobs[0]["complete"] != true || len(blobs[0]["jobs"].([]any)) != 2 || blobs[0]["size"] != float64(b.Len()) {
		t.Errorf("got %v", blobs)
	}
	if out := good(t, "data", "download", sha); out != b.String() {
		t.Error("the download is not what was uploaded")
	}
	if out := good(t, "data", "upload", filepath.Join(dir, "table.csv")); out != sha+"\n" {
		t.Error(out)
	}
	if out := good(t, "data", "list"); !strings.Contains(out, sha+"  ") || !strings.Contains(out, "complete") {
		t.Error(out)
	}

	// By reference nothing is read here, let alone uploaded.
	stop()
	for _, args := range [][]string{{"--data", "s3://bucket/x.parquet"}, {"--data", "/nowhere/x.csv", "--by-reference"}} {
		id := strings.TrimSpace(good(t, append([]string{"submit", spec}, args...)...))
		if j := s.Job(id); j.Data.GetBlob() != "" || !strings.Contains(j.Spec, "path: "+args[1]) {
			t.Errorf("%v: %v", args, j)
		}
	}
}

// Log lines keep what workers sent and get what is missing.
func TestLogLine(t *testing.T) {
	at := timestamppb.New(time.Unix(0, 0))
	for text, want := range map[string]string{
		"plain":                       `{"chain":2,"level":"INFO","msg":"plain","time":"1970-01-01T00:00:00Z","worker":"w"}`,
		`{"msg":"gradient","x":0.10}`: `{"level":"INFO","msg":"gradient","time":"1970-01-01T00:00:00Z","worker":"w","x":0.10}`,
		`{"time":"t","level":"WARN"}`: `{"level":"WARN","time":"t","worker":"w"}`,
		`{"a":1} and more`:            `{"chain":2,"level":"INFO","msg":"{\"a\":1} and more","time":"1970-01-01T00:00:00Z","worker":"w"}`,
		`null`:                        `{"chain":2,"level":"INFO","msg":"null","time":"1970-01-01T00:00:00Z","worker":"w"}`,
	} {
		if got, err := logLine(&pb.LogLine{Time: at, Chain: 2, Worker: "w", Text: text}); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}
