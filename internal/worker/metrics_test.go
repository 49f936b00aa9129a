package worker

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// What drivers observe adds up.
func TestMetrics(t *testing.T) {
	w, err := New(Config{ID: "w", Coordinators: []string{"nobody:1"}, Budget: parallel.NewBudget(3), Dial: dial, Cached: func() (int64, int64) { return 5, 2 }})
	if err != nil {
		t.Fatal(err)
	}
	defer w.jobs.close()
	for _, o := range []runlog.Observation{
		{Kind: runlog.Trials, Solves: 1000},
		{Kind: runlog.Gradient, Solves: 9, Unconverged: 1, Products: 12, Singles: 4, PairsRead: 100, Iterations: 11, Residual: 0.02, Seconds: 0.5},
		{Kind: runlog.Gradient, Solves: 9, Products: 10, PairsRead: 50, Iterations: 30, Residual: 0.005, Seconds: 2},
		{Kind: runlog.Step, Products: 2},
	} {
		w.observe("job", o)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(w); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP ulisse_data_cache_hits_total Tables that were in the cache when a job asked for them.
# TYPE ulisse_data_cache_hits_total counter
ulisse_data_cache_hits_total 5
# HELP ulisse_gradients_total Gradients of the log posterior, also those of the search for the mode.
# TYPE ulisse_gradients_total counter
ulisse_gradients_total 2
# HELP ulisse_pairs_reused_total Elements of K that were kept from an earlier product.
# TYPE ulisse_pairs_reused_total counter
ulisse_pairs_reused_total 150
# HELP ulisse_products_total Products of K with a block of vectors, by precision.
# TYPE ulisse_products_total counter
ulisse_products_total{precision="double"} 20
ulisse_products_total{precision="single"} 4
# HELP ulisse_solver_residual_ratio Largest true relative residual of a gradient's solves.
# TYPE ulisse_solver_residual_ratio histogram
ulisse_solver_residual_ratio_bucket{le="1e-10"} 0
ulisse_solver_residual_ratio_bucket{le="1e-09"} 0
ulisse_solver_residual_ratio_bucket{le="1e-08"} 0
ulisse_solver_residual_ratio_bucket{le="1e-07"} 0
ulisse_solver_residual_ratio_bucket{le="1e-06"} 0
ulisse_solver_residual_ratio_bucket{le="1e-05"} 0
ulisse_solver_residual_ratio_bucket{le="0.0001"} 0
ulisse_solver_residual_ratio_bucket{le="0.001"} 0
ulisse_solver_residual_ratio_bucket{le="0.01"} 1
ulisse_solver_residual_ratio_bucket{le="0.1"} 2
ulisse_solver_residual_ratio_bucket{le="1"} 2
ulisse_solver_residual_ratio_bucket{le="+Inf"} 2
ulisse_solver_residual_ratio_sum 0.025
ulisse_solver_residual_ratio_count 2
# HELP ulisse_solves_total Right-hand sides solved for.
# TYPE ulisse_solves_total counter
ulisse_solves_total 18
# HELP ulisse_solves_unconverged_total Right-hand sides whose solve stopped before its tolerance.
# TYPE ulisse_solves_unconverged_total counter
ulisse_solves_unconverged_total 1
# HELP ulisse_worker_connected 1 while the worker has a session with the leading coordinator, else 0.
# TYPE ulisse_worker_connected gauge
ulisse_worker_connected 0
# HELP ulisse_worker_cores Cores that the worker computes on.
# TYPE ulisse_worker_cores gauge
ulisse_worker_cores 3
`
	var names []string
	for line := range strings.Lines(want) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "TYPE" {
			names = append(names, f[2])
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
