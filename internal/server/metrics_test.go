package server

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// unwired is a monitor that answers by ServeHTTP alone.
func unwired(t *testing.T) *monitor.Server {
	t.Helper()
	m, err := monitor.Serve(monitor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func probe(m *monitor.Server, path string) (int, string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// gather returns the metrics of a process by name.
func gather(t *testing.T, m *monitor.Server) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// value returns a metric's value; of several, of the one with the label.
func value(f *dto.MetricFamily, label string) float64 {
	for _, m := range f.GetMetric() {
		if label == "" || slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// A coordinator and a worker at work on a job export what the page of metrics
// says, by the conventions, and numbers that agree with each other. When the job
// has ended its own metrics are gone.
func TestMetrics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	cm, wm := unwired(t), unwired(t)
	if code, _ := probe(cm, "/startupz"); code != http.StatusServiceUnavailable {
		t.Errorf("a coordinator that has not begun: %d", code)
	}
	ready, ca := make(chan string, 1), certstest.New(t)
	start(t, Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, Monitor: cm,
		DiskReserve: 1, Logger: log, Security: Security{Files: ca.Files("coordinator", "c")}, Ready: func(grpc, _, _ string) { ready <- grpc }}.Run)
	address := <-ready
	r := running{address, dialAs(t, ca.Source("client", "ada"), address, identity.Coordinator)}
	start(t, Worker{ID: "w1", Dir: t.TempDir(), Coordinators: []string{address}, Listen: "127.0.0.1:0", Cores: 2, Monitor: wm, Logger: log,
		Security: Security{Files: ca.Files("worker", "w1")}}.Run)
	for name, m := range map[string]*monitor.Server{"coordinator": cm, "worker": wm} {
		eventually(t, name+" ready", func() bool { code, _ := probe(m, "/readyz"); return code == http.StatusOK })
		if _, text := probe(m, "/readyz"); !strings.Contains(text, "security: tls") {
			t.Errorf("%s: /readyz does not say that it is safe: %q", name, text)
		}
		if code, _ := probe(m, "/startupz"); code != http.StatusOK {
			t.Errorf("%s: not started, but ready", name)
		}
	}
	jobs := pb.NewJobsClient(r.conn)
	j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: fmt.Sprintf(leakSpec, 100_000, 100_000)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an R-hat", func() bool { return value(gather(t, cm)["ulisse_job_rhat"], j.Id) > 0.9 })
	c, w := gather(t, cm), gather(t, wm)
	for name, want := range map[string]float64{"ulisse_jobs/sampling": 1, "ulisse_jobs/failed": 0, "ulisse_workers/connected": 1, "ulisse_workers_cores": 2,
		"ulisse_jobs_unhealthy/stalled": 0, "ulisse_chains/driven": 2, "ulisse_chains/waiting": 0, "ulisse_raft_leader": 1, "ulisse_raft_voters_healthy": 1, "ulisse_workers_wanted": 1} {
		metric, label, _ := strings.Cut(name, "/")
		if got := value(c[metric], label); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if code, n := probe(cm, "/workers-wanted"); code != 200 || n != "1" {
		t.Errorf("/workers-wanted: %d %q", code, n)
	}
	for name, f := range map[string]*dto.MetricFamily{"coordinator": c["ulisse_certificate_expiry_timestamp_seconds"], "worker": w["ulisse_certificate_expiry_timestamp_seconds"]} {
		for _, kind := range []string{"certificate", "authority"} {
			if at := int64(value(f, kind)); at < time.Now().Unix() || at > time.Now().AddDate(0, 0, 101).Unix() {
				t.Errorf("%s: the %s ends at %d", name, kind, at)
			}
		}
	}
	for _, m := range []string{"ulisse_raft_apply_duration_seconds", "ulisse_raft_commit_duration_seconds", "ulisse_raft_term", "ulisse_disk_free_bytes", "ulisse_state_size_bytes"} {
		if !(value(c[m], "") > 0) {
			t.Errorf("%s is %g", m, value(c[m], ""))
		}
	}
	gradients := value(c["ulisse_job_gradients_total"], j.Id)
	for _, m := range []string{"ulisse_gradients_total", "ulisse_gradient_duration_seconds", "ulisse_solver_iterations", "ulisse_solver_residual_ratio", "ulisse_solves_total"} {
		if got := value(w[m], ""); got < gradients {
			t.Errorf("the worker's %s is %g, less than the %g gradients of the checkpoints", m, got, gradients)
		}
	}
	if got, least := value(w["ulisse_pairs_computed_total"], ""), value(c["ulisse_job_pairs_total"], j.Id); !(got >= least/2) || least == 0 {
		t.Errorf("the worker has computed %g elements, its chains say %g", got, least)
	}
	page := page(t, c, w)
	if *update {
		if err := os.WriteFile("../../docs/metrics.md", page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(kept), string(page)); diff != "" {
		t.Errorf("docs/metrics.md: go test ./internal/server -run TestMetrics -update\n%s", diff)
	}
	if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job's metrics to go", func() bool { return gather(t, cm)["ulisse_job_draws"] == nil })
}

var descForm = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// page returns docs/metrics.md: what is described, with the types of what was
// gathered.
func page(t *testing.T, gathered ...map[string]*dto.MetricFamily) []byte {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	coord, err := coordinator.New(coordinator.Config{Node: coordinatortest.NewNode(t), Dir: t.TempDir(), Dial: rpc.Dialer(nil), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer coord.Close()
	work, err := worker.New(worker.Config{ID: "w", Coordinators: []string{"127.0.0.1:1"}, Dial: rpc.Dialer(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString(`# Metrics

What coordinators and workers export at ` + "`/metrics`" + ` of their private port (` + "`--metrics`" + `), beside the metrics of the Go
runtime and of the process (` + "`go_…`, `process_…`" + `). A test keeps this page true. How to use them:
[operations.md](operations.md), Monitoring.

`)
	lint := func(names []string) {
		var families []*dto.MetricFamily
		for _, g := range gathered {
			for _, n := range names {
				if g[n] != nil {
					families = append(families, g[n])
				}
			}
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, part := range []struct {
		title string
		of    prometheus.Collector
	}{
		{"The cluster, exported by the leading coordinator", coord},
		{"A coordinator", newNodeMetrics(&replica{}, "", 0)},
		{"A worker", work},
		{"Both, with TLS", certMetrics{}},
	} {
		fmt.Fprintf(&b, "## %s\n\n| metric | type | labels | what |\n|---|---|---|---|\n", part.title)
		ch := make(chan *prometheus.Desc, 100)
		part.of.Describe(ch)
		close(ch)
		var rows, names []string
		for d := range ch {
			m := descForm.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read %s", d)
			}
			name, help, labels := m[1], m[2], strings.ReplaceAll(m[3], ",", ", ")
			kind := "gauge"
			if strings.HasSuffix(name, "_total") {
				kind = "counter"
			}
			for _, g := range gathered {
				if f := g[name]; f != nil && f.GetType() == dto.MetricType_HISTOGRAM {
					kind = "histogram"
				} else if f != nil && strings.ToLower(f.GetType().String()) != kind {
					t.Errorf("%s is a %s by its name and a %s", name, kind, f.GetType())
				}
			}
			if !strings.HasPrefix(name, "ulisse_") {
				t.Errorf("%s is not in our name space", name)
			}
			names = append(names, name)
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, labels, help))
		}
		lint(names)
		slices.Sort(rows)
		b.WriteString(strings.Join(rows, "") + "\n")
	}
	b.WriteString("All processes export `ulisse_build_info`, a 1 with the labels version, go_version and architecture, and\n`ulisse_clock_timestamp_seconds`, what their clock shows: its distance from the time of the scrape is its error.\n")
	return b.Bytes()
}

// A coordinator that is told to stop is not ready any more, and alive to the end.
func TestNotReadyWhileStopping(t *testing.T) {
	m := unwired(t)
	ready := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, Monitor: m,
			Logger: slog.New(slog.DiscardHandler), Ready: func(grpc, _, _ string) { ready <- grpc }}.Run(ctx)
	}()
	<-ready
	eventually(t, "readiness", func() bool { code, _ := probe(m, "/readyz"); return code == http.StatusOK })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if code, why := probe(m, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "stopping") {
		t.Errorf("%d %q", code, why)
	}
	if code, _ := probe(m, "/livez"); code != http.StatusOK {
		t.Errorf("not alive: %d", code)
	}
}
