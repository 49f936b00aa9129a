package coordinator

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// gather returns the values of all metrics, by "name{label=value,…}".
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[strings.TrimPrefix(f.GetName(), "ulisse_")+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// The leader measures jobs, workers and data; others measure nothing, so that sums
// over all coordinators are right.
func TestMetrics(t *testing.T) {
	leader, follower := pair(t)
	leader.lead()
	idle := hello("idle")
	idle.Capacity.Cores = 5
	connect(t, leader.workers, idle).beat(&pb.Beat{Draining: true})
	w := connect(t, leader.workers, hello("w"))
	within(t, "the draining one to be known as that", func() bool { // before there is a job that it could get
		return gather(t, leader)["workers{state=draining}"] == 1
	})
	id := leader.submit(testSpec(1000, 2000, never))
	if err := w.prepare(t.Context(), w.nextDrive()); err != nil {
		t.Fatal(err)
	}
	keep(t, leader.Coordinator, &state.Submit{ID: "late", Chains: 3}, &state.Submit{ID: "over", Chains: 1}, &state.Act{Job: "over", Action: state.Cancel},
		&state.RecordBlob{Blob: state.Blob{SHA256: "x", Size: 8}}, &state.RecordBlob{Blob: state.Blob{SHA256: "y", Size: 4}})
	leader.awaitState(id, pb.JobState_JOB_STATE_WARMUP)
	for range 2 {
		w.nextDrive()
	}
	within(t, "what is measured", func() bool {
		return gather(t, leader)["workers{state=draining}"] == 1 && gather(t, leader)["workers{state=connected}"] == 1
	})
	got := gather(t, leader)
	job := "{id=" + id + ",name=test}"
	for name, want := range map[string]float64{
		"jobs{state=warmup}": 1, "jobs{state=queued}": 1, "jobs{state=cancelled}": 1, "jobs{state=failed}": 0,
		"chains{state=driven}": 3, "chains{state=waiting}": 1, // with the provisional answer; the preparation of the one that is late
		"workers{state=lost}": 0, "workers_cores{}": 2, "workers_wanted{}": 4, // three for late, one for two chains of 40 rows
		"data_sets{}": 2, "data_sets_size_bytes{}": 12, "jobs_unhealthy{status=stalled}": 0,
		"notices_total{result=failed}": 0, "notices_total{result=sent}": 0,
		"job_draws" + job: 0, "job_draws_wanted" + job: 1000, "job_rhat_limit" + job: 1.2, "job_gradients_total" + job: 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if n := gather(t, follower); len(n) != 0 {
		t.Errorf("a follower measures %v", n)
	}
}

// What a run has done shows in its job's metrics.
func TestJobMetrics(t *testing.T) {
	r := referenceRun(t, testSpec(20, 30, never), 20)
	f := &state.Follower{Run: r, Convergence: r.Diagnose(20), Job: &state.Job{ID: "a", Name: "n", Phase: state.Sampling, Info: &dataset.Info{}, Active: 10 * time.Second,
		Health: &state.Health{Status: state.Diverging}}}
	values := map[string]float64{}
	for _, m := range sampleOf(f, epoch).values {
		one := gather(t, single{m})
		for k, v := range one {
			values[k] = v
		}
	}
	const job = "{id=a,name=n}"
	// Each chain has made 30 iterations: 4 solves of 10 iterations a gradient.
	for name, want := range map[string]float64{"job_draws" + job: 20, "job_active_seconds" + job: 10, "job_gradients_total" + job: 60,
		"job_ess" + job: f.Convergence.ESS, "job_ess_per_second" + job: f.Convergence.ESS / 10, "job_rhat" + job: f.Convergence.RHat, "job_largest_error" + job: f.Convergence.Error,
		"job_unhealthy{id=a,name=n,status=diverging}": 1} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}

// single is a collector of one metric.
type single struct{ m prometheus.Metric }

func (s single) Describe(ch chan<- *prometheus.Desc) { ch <- s.m.Desc() }
func (s single) Collect(ch chan<- prometheus.Metric) { ch <- s.m }

// Whichever coordinator is asked tells how many workers the jobs could use.
func TestServeWanted(t *testing.T) {
	leader, follower := pair(t)
	keep(t, leader.Coordinator, &state.Submit{ID: "a", Chains: 3})
	for name, s := range map[string]*served{"the leader": leader, "a follower": follower} {
		w := httptest.NewRecorder()
		s.ServeWanted(w, httptest.NewRequest("GET", "/workers-wanted", nil))
		var n int
		if err := json.Unmarshal(w.Body.Bytes(), &n); err != nil || n != 3 || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s says %s", name, w.Body)
		}
	}
	leader.node.Lose()
	w := httptest.NewRecorder()
	follower.ServeWanted(w, httptest.NewRequest("GET", "/workers-wanted", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "no leader") {
		t.Errorf("without a leader: %d %s", w.Code, w.Body)
	}
}
