package server

import (
	"log/slog"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/tracing"
)

const tracedSpec = `
name: traced
data: {synthetic: {n: 1500, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 1, warmup: 5, draws: 5000, checkpoint: 5}
solver: {tolerance: 1e-3, preconditioner: {kind: rpcholesky, rank: 30}}
stop: {rhat: 1.05, ess: 1e9, max_draws: 5000, max_time: 10m}
`

// A job on a cluster is followed from its submission to the tiles that another
// worker computes, each span below the one that caused it.
func TestTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("a job of 1,500 rows")
	}
	kept := tracetest.NewInMemoryExporter()
	newTracer := func(role string) *tracing.Tracer {
		return tracing.New(sdk.NewSimpleSpanProcessor(kept), role, role)
	}
	log := slog.New(slog.DiscardHandler)
	ready := make(chan string, 1)
	start(t, Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, SplitRows: 1, DiskReserve: 1,
		Tracer: newTracer("coordinator"), Logger: log, Ready: func(grpc, _, _ string) { ready <- grpc }}.Run)
	r := connect(t, <-ready)
	for _, id := range []string{"w1", "w2"} {
		start(t, Worker{ID: id, Dir: t.TempDir(), Coordinators: []string{r.address}, Listen: "127.0.0.1:0", Cores: 1, MinRows: 1, Tracer: newTracer("worker"), Logger: log}.Run)
	}
	jobs := pb.NewJobsClient(r.conn)
	eventually(t, "a leader and two workers", func() bool {
		l, err := pb.NewWorkersClient(r.conn).List(t.Context(), &pb.ListWorkersRequest{})
		return err == nil && len(l.Workers) == 2
	})
	before := time.Now()
	j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tracedSpec})
	if err != nil {
		t.Fatal(err)
	}
	edges := func() map[string]int {
		spans, names, out := kept.GetSpans(), map[string]string{}, map[string]int{}
		for _, s := range spans {
			names[s.SpanContext.SpanID().String()] = s.Name
		}
		for _, s := range spans {
			out[names[s.Parent.SpanID().String()]+"/"+s.Name]++
		}
		return out
	}
	eventually(t, "a tile", func() bool { return edges()["product/tile"] > 0 && edges()["iteration/product"] > 0 })
	if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Fatal(err)
	}
	got := edges()
	if got["/submit"] != 1 || got["submit/placement"] < 2 || got["placement/iteration"] == 0 {
		t.Errorf("%v", got)
	}
	if most := 2 * (2 + int(time.Since(before)/tracing.Every)); got["placement/iteration"] > most {
		t.Errorf("%d iterations are followed, of two workers one a second each: %d at most", got["placement/iteration"], most)
	}
	for _, s := range kept.GetSpans() {
		if s.SpanContext.TraceID() != kept.GetSpans()[0].SpanContext.TraceID() {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
}
