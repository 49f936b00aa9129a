package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/server"
)

// background runs f until the function returned is called, or the test ends.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// liveCluster is a coordinator and workers in this process.
type liveCluster struct {
	address, http string
	stop          []func() // of the workers
}

func newLiveCluster(t *testing.T, workers ...string) *liveCluster {
	t.Helper()
	return liveClusterOf(t, "c", workers...)
}

func liveClusterOf(t *testing.T, id string, workers ...string) *liveCluster {
	t.Helper()
	c := &liveCluster{}
	ready := make(chan struct{})
	coord := server.Coordinator{ID: id, Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Grace: time.Minute, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler),
		Ready: func(grpc, _, http string) { c.address, c.http = grpc, http; close(ready) }}
	background(t, coord.Run)
	<-ready
	for _, id := range workers {
		w := server.Worker{ID: id, Dir: t.TempDir(), Coordinators: []string{c.address}, Listen: "127.0.0.1:0", Cores: 1, Logger: slog.New(slog.DiscardHandler)}
		c.stop = append(c.stop, background(t, w.Run))
	}
	return c
}

// A cluster predicts what one machine does from the same draws, to the last bit,
// also when a worker is lost.
func TestPredictOnACluster(t *testing.T) {
	c := newLiveCluster(t, "w1", "w2")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	results := filepath.Join(dir, "results")
	code, _, stderr := ulisse(t, "", "submit", spec, "--holdout", "0.25", "--coordinators", c.address, "--wait", "--out", results, "--quiet")
	if code != ExitConverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	here, there := filepath.Join(dir, "here.csv"), filepath.Join(dir, "there.csv")
	if code, _, stderr = ulisse(t, "", "predict", results, "--holdout", "--out", here); code != 0 {
		t.Fatal(stderr)
	}
	want, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	for round, stop := range append([]func(){func() {}}, c.stop[0]) {
		stop()
		code, stdout, stderr := ulisse(t, "", "predict", "small", "--holdout", "--out", there, "--coordinators", c.address, "--json")
		var v predictView
		if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil {
			t.Fatal(code, stderr, err)
		}
		if got, err := os.ReadFile(there); err != nil || !bytes.Equal(got, want) {
			t.Errorf("with %d workers gone the cluster predicts otherwise: %v\n%.300s\n%.300s", round, err, got, want)
		}
		if v.Rows != 30 || v.Scores == nil {
			t.Errorf("%+v", v)
		}
	}
	joint := func(of string, to ...string) (paths, cov map[string][]float64) {
		t.Helper()
		p, c := filepath.Join(dir, "paths.csv"), filepath.Join(dir, "cov.csv")
		if code, _, stderr := ulisse(t, "", append([]string{"predict", of, "--holdout", "--paths", "4", "--seed", "2", "--out", p, "--covariance", c}, to...)...); code != 0 {
			t.Fatalf("code %d: %s", code, stderr)
		}
		return predictions(t, p), predictions(t, c)
	}
	herePaths, hereCov := joint(results)
	therePaths, thereCov := joint("small", "--coordinators", c.address)
	if !reflect.DeepEqual(herePaths, therePaths) || !reflect.DeepEqual(hereCov, thereCov) {
		t.Errorf("the cluster's sample paths are others:\n%v\n%v", herePaths, therePaths)
	}
	sloped := func(of string, to ...string) []byte {
		t.Helper()
		file := filepath.Join(dir, "sloped.csv")
		if code, _, stderr := ulisse(t, "", append([]string{"predict", of, "--holdout", "--gradient-sd", "--draws", "4", "--out", file}, to...)...); code != 0 {
			t.Fatalf("code %d: %s", code, stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if there := sloped("small", "--coordinators", c.address); !bytes.Equal(there, sloped(results)) {
		t.Errorf("the cluster's gradients are others:\n%s", there)
	}
	many := write(t, dir, "many.csv", "x1,x2\n"+strings.Repeat("0,0\n", predict.MaxRows+1))
	if code, _, stderr = ulisse(t, "", "predict", "small", "--data", many, "--paths", "2", "--coordinators", c.address); code != ExitBadInput || !strings.Contains(stderr, "a cluster predicts 1024 together") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr = ulisse(t, "", "predict", "small", "--holdout", "--threads", "3", "--coordinators", c.address); code != ExitBadInput || !strings.Contains(stderr, "workers compute") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr = ulisse(t, "", "predict", "nobody", "--holdout", "--coordinators", c.address); code != ExitBadInput || !strings.Contains(stderr, `there is no job "nobody"`) {
		t.Errorf("code %d: %s", code, stderr)
	}
	predictRPC(t, c, predictions(t, there))
}

// predictRPC makes calls as a program would that speaks HTTP.
func predictRPC(t *testing.T, c *liveCluster, known map[string][]float64) {
	post := func(job, body string) (int, string) {
		t.Helper()
		r, err := http.Post("http://"+c.http+"/v1/jobs/"+job+":predict", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	_, out, _ := ulisse(t, "", "jobs", "--json", "--coordinators", c.address)
	var jobs []struct{ ID string }
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || len(jobs) != 1 {
		t.Fatal(err, out)
	}
	id := jobs[0].ID
	status, text := post(id, `{"rows": [{"inputs": [0.5, -0.5]}, {"inputs": [0, 0]}], "targets": [0.1, 0.2], "quantiles": [0.9], "latent": true}`)
	var answer struct {
		Result struct {
			Rows []struct {
				Mean, SD, CRPS, PIT *float64
				Quantiles           []float64
			}
			Stats struct{ Draws int }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); status != 200 || err != nil || len(answer.Result.Rows) != 2 || answer.Result.Stats.Draws < 10 {
		t.Fatal(status, text, err)
	}
	for _, r := range answer.Result.Rows {
		if *r.SD <= 0 || *r.SD >= known["sd"][0] || len(r.Quantiles) != 1 || r.Quantiles[0] <= *r.Mean || *r.CRPS <= 0 || *r.PIT <= 0 {
			t.Errorf("%s", text)
		}
	}
	status, text = post(id, `{"rows": [{"inputs": [0.5, -0.5]}, {"inputs": [0, 0]}], "paths": 3, "seed": 7, "covariance": true}`)
	var joint struct {
		Result struct {
			Rows []struct{ Paths, Covariance []float64 }
		}
	}
	if err := json.Unmarshal([]byte(text), &joint); status != 200 || err != nil || len(joint.Result.Rows) != 2 || len(joint.Result.Rows[1].Paths) != 3 || len(joint.Result.Rows[1].Covariance) != 2 {
		t.Fatal(status, text, err)
	}
	if status, text = post(id, `{"rows": [{"inputs": [0.5, -0.5]}], "gradient": true}`); status != 200 || !strings.Contains(text, `"gradient":[`) || strings.Contains(text, `"gradient_sd":[0`) {
		t.Error(status, text)
	}
	for body, want := range map[string]string{
		`{}`:                                 "0 rows",
		`{"rows": [{"inputs": [1]}]}`:        "row 1 has 1 inputs, the job's data have 2",
		`{"rows": [{"inputs": [1, "NaN"]}]}`: "not finite",
		`{"rows": [{"inputs": [1, 2]}], "targets": [1, 2]}`:                                 "2 targets for 1 rows",
		`{"rows": [{"inputs": [1, 2]}], "quantiles": [2]}`:                                  "not a probability",
		`{"rows": [{"inputs": [1, 2]}], "variance": "x"}`:                                   "unknown way",
		`{"rows": [{"inputs": [1, 2]}], "tolerance": 7}`:                                    "a tolerance of 7",
		`{"rows": [{"inputs": [1, 2]}], "draws": 1000000}`:                                  "1000000 draws",
		`{"rows": [{"inputs": [1, 2]}], "paths": -1}`:                                       "-1 paths",
		`{"rows": [{"inputs": [1, 2]}], "paths": 2000000}`:                                  "more numbers than",
		`{"rows": [` + strings.Repeat(`{"inputs": [1, 2]},`, 1024) + `{"inputs": [1, 2]}]}`: "1025 rows",
	} {
		if status, text := post(id, body); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%.60s: %d, %s; want %s", body, status, text, want)
		}
	}
	if status, text := post("nobody", `{"rows": [{"inputs": [1, 2]}]}`); status != 404 {
		t.Error(status, text)
	}
	if code, _, stderr := ulisse(t, "", "submit", write(t, t.TempDir(), "s.yaml", strings.ReplaceAll(smallSpec, "40", "4000")), "--coordinators", c.address); code != 0 {
		t.Fatal(stderr)
	}
	_, out, _ = ulisse(t, "", "jobs", "--json", "--coordinators", c.address)
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || len(jobs) != 2 {
		t.Fatal(err, out)
	}
	await(t, c, jobs[0].ID, 1)
	if status, text := post(jobs[0].ID, `{"rows": [{"inputs": [1, 2]}], "inputs": ["x2", "x1"]}`); status != 400 || !strings.Contains(text, "in this order") {
		t.Error(status, text)
	}
	if status, text := post(jobs[0].ID, `{"rows": [{"inputs": [1, 2]}]}`); status != 200 {
		t.Error(status, text)
	}
}

// await waits until every chain of a job has so many draws.
func await(t *testing.T, c *liveCluster, id string, draws int) {
	t.Helper()
	for range 3000 {
		_, out, _ := ulisse(t, "", "jobs", "--json", "--coordinators", c.address)
		var jobs []client.JobView
		if err := json.Unmarshal([]byte(out), &jobs); err != nil {
			t.Fatal(err, out)
		}
		for _, j := range jobs {
			if j.ID == id && j.Draws >= draws {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("job %s makes no draws", id)
}

// All that tells of draws tells of those of a job that goes on, whose chains are not equally
// far, and says that it does.
func TestLookWhileItRuns(t *testing.T) {
	c := newLiveCluster(t, "w1", "w2")
	dir := t.TempDir()
	endless := strings.NewReplacer("max_draws: 40", "max_draws: 100000", "ess: 10", "ess: 1e9").Replace(smallSpec)
	in := func(args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := ulisse(t, "", append(args, "--coordinators", c.address)...)
		if code != 0 {
			t.Fatalf("ulisse %s: exit %d\n%s", strings.Join(args, " "), code, stderr)
		}
		return stdout, stderr
	}
	id, _ := in("submit", write(t, dir, "s.yaml", endless), "-q")
	id = strings.TrimSpace(id)
	await(t, c, id, 10)
	rows := write(t, dir, "new.csv", "x1,x2\n0,0\n1,-1\n")
	for round, action := range []string{"", "", "pause", "cancel"} {
		if action != "" {
			in(action, id)
		}
		folder := filepath.Join(dir, fmt.Sprint("results", round))
		text, _ := in("results", id, "--out", folder)
		page := string(must(os.ReadFile(filepath.Join(folder, "report.html"))))
		in("report", id, "--out", filepath.Join(dir, "page.html"))
		table, _ := in("draws", id)
		sum, _ := in("summary", id)
		pred, said := in("predict", id, "--data", rows)
		if n := strings.Count(pred, "\n"); n != 3 {
			t.Errorf("%d lines of predictions", n)
		}
		if a, b := strings.Count(table, "\n1,"), strings.Count(table, "\n2,"); a == 0 || a != b {
			t.Errorf("%d and %d draws", a, b)
		}
		marked := []string{text, sum, page, said}
		for i, m := range marked {
			if want := "the first "; action != "cancel" && (!strings.Contains(m, want) || i < 3 && !strings.Contains(m, "not ended, ")) {
				t.Errorf("%q of a job that goes on does not say so:\n%.400s", action, m)
			}
		}
	}
}

// A job that ends in its warm-up, by its time or by its user, has results and predictions of
// what is known by then, marked as that.
func TestJobEndedInWarmup(t *testing.T) {
	c := newLiveCluster(t, "w1")
	dir := t.TempDir()
	at := []string{"--coordinators", c.address}
	spec := write(t, dir, "s.yaml", strings.Replace(smallSpec, "warmup: 20", "warmup: 1000000", 1))
	id := strings.TrimSpace(good(t, append([]string{"submit", spec, "-q"}, at...)...))
	for said, end := "", time.Now().Add(5*time.Minute); !strings.Contains(said, "provisional: "); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing is shown: %s", said)
		}
		_, said, _ = ulisse(t, "", append([]string{"summary", id}, at...)...) // an error, before the mode is known
	}
	good(t, append([]string{"cancel", id}, at...)...)
	out := filepath.Join(dir, "out")
	good(t, append([]string{"results", id, "--out", out}, at...)...)
	page := good(t, "report", out, "-o", "-")
	for _, m := range []string{good(t, "summary", out), page, string(must(os.ReadFile(filepath.Join(out, "provisional.txt")))), good(t, append([]string{"summary", id}, at...)...)} {
		if !strings.Contains(m, "provisional: ") || strings.Contains(m, "NaN") {
			t.Errorf("%.1500s", m)
		}
	}
	rows := write(t, dir, "new.csv", "x1,x2\n0,0\n")
	var here string
	for i, args := range [][]string{{out}, append([]string{id}, at...)} {
		code, pred, errs := ulisse(t, "", append([]string{"predict", "--data", rows}, args...)...)
		if code != 0 || strings.Count(pred, "\n") != 2 || !strings.Contains(errs, "provisional predictions") {
			t.Error(code, pred, errs)
		}
		if i == 1 && pred != here {
			t.Errorf("the cluster predicts %s, the folder %s", pred, here)
		}
		here = pred
	}
}
