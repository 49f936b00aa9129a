package tracing

import (
	"context"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// tree returns the spans as parent/child, by their names.
func tree(t *testing.T, spans tracetest.SpanStubs) map[string]int {
	t.Helper()
	names := map[string]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
		if s.SpanContext.TraceID() != spans[0].SpanContext.TraceID() {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
	out := map[string]int{}
	for _, s := range spans {
		out[names[s.Parent.SpanID().String()]+"/"+s.Name]++
	}
	return out
}

// The spans of a coordinator, a driver and a member, which have told each other
// nothing but the product's span, make the tree that the package comment shows.
func TestTree(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	newTracer := func(role string) *Tracer { return New(sdk.NewSimpleSpanProcessor(kept), role, role) }
	coordinator, driver, member := newTracer("coordinator"), newTracer("worker"), newTracer("worker")
	began := time.Now()
	coordinator.Submit("abc", "concrete", began)
	coordinator.Placement("abc", 2, 7, "w1", began)
	ctx, end := driver.Iteration(t.Context(), "abc", 2, 7, 41)
	for range 3 {
		ctx, end := Within(ctx, "product")
		member.Remote(Carry(ctx), "tile", time.Now())
		end()
	}
	end()
	got := tree(t, kept.GetSpans())
	for edge, n := range map[string]int{"/submit": 1, "submit/placement": 1, "placement/iteration": 1, "iteration/product": 3, "product/tile": 3} {
		if got[edge] != n {
			t.Errorf("%d of %s, want %d: %v", got[edge], edge, n, got)
		}
	}
	if n := len(kept.GetSpans()); n != 9 {
		t.Errorf("%d spans", n)
	}
	for _, x := range []*Tracer{coordinator, driver, member} {
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// However fast iterations are, one a second is followed, and nothing below the
// others.
func TestBounded(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	x := New(sdk.NewSimpleSpanProcessor(kept), "worker", "w")
	for i := range 1000 {
		x.last.Add(-int64(Every / 100)) // time goes by
		ctx, end := x.Iteration(t.Context(), "abc", 1, 1, i)
		_, done := Within(ctx, "product")
		done()
		end()
	}
	if n := len(kept.GetSpans()); n < 2*10 || n > 2*12 {
		t.Errorf("%d spans of 1,000 iterations in 10 s, want two for each second", n)
	}
	x.Remote([]byte("too short"), "tile", time.Now())
	x.Remote(make([]byte, carried), "tile", time.Now())
	if kept.GetSpans()[len(kept.GetSpans())-1].Name == "tile" {
		t.Error("a span of nothing")
	}
}

// Without an endpoint there is no tracer, and what it would do allocates
// nothing.
func TestOff(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	x, err := Open(t.Context(), "", "worker", "w")
	if x != nil || err != nil {
		t.Fatal(x, err)
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() { off(ctx, x) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
	if x.Close(ctx) != nil {
		t.Error("closing none")
	}
	if _, err := Open(ctx, "127.0.0.1:4317", "worker", "w"); err == nil || !strings.Contains(err.Error(), "--otlp") {
		t.Errorf("not a URL: %v", err)
	}
}

// off is what an iteration with a product costs without a tracer.
func off(ctx context.Context, x *Tracer) {
	x.Submit("abc", "n", time.Time{})
	ctx, end := x.Iteration(ctx, "abc", 1, 1, 1)
	within, done := Within(ctx, "product")
	if Carry(within) != nil {
		panic("a span")
	}
	done()
	end()
}

// BenchmarkOff is the cost of an iteration with one product when traces are off,
// to compare with the milliseconds that the least gradient takes.
func BenchmarkOff(b *testing.B) {
	for b.Loop() {
		off(context.Background(), nil)
	}
}
