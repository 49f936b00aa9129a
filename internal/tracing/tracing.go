// Package tracing follows a job through the processes of a cluster with
// OpenTelemetry: off unless an endpoint is given, and then bounded.
//
//	submit                          coordinator; the trace of the job begins
//	└─ placement                    leader: a chain gets a driver
//	   └─ iteration                 driver: one gradient and step
//	      └─ product                driver: K·V or gradient forms
//	         └─ tile                a unit of it, on a member of the group
//
// No identifier travels with a job: that of its trace, and those of its submit
// and placements, are hashes of what names them, so whoever works on the job
// knows its parent. Of a chain's iterations those that begin at least a second
// after the last traced one of the process are followed, with all below them.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ulisse-gp/ulisse/internal/version"
)

// Tracer makes the spans of a process. A nil one makes none, at no cost.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	last     atomic.Int64 // when an iteration was last followed
}

// Every is the least time between two iterations that are followed.
const Every = time.Second

// Open returns a tracer that sends to an OTLP endpoint (gRPC; a URL, whose
// scheme http means plaintext), or to that of the environment's
// OTEL_EXPORTER_OTLP_ENDPOINT. With neither it returns nil.
func Open(ctx context.Context, endpoint, role, id string) (*Tracer, error) {
	if endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	var opts []otlptracegrpc.Option
	if endpoint != "" {
		if !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
			return nil, fmt.Errorf("--otlp %q: give a URL like http://127.0.0.1:4317", endpoint)
		}
		opts = append(opts, otlptracegrpc.WithEndpointURL(endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return New(sdk.NewBatchSpanProcessor(exporter), role, id), nil
}

// New returns a tracer whose spans go to a processor.
func New(p sdk.SpanProcessor, role, id string) *Tracer {
	res := resource.NewSchemaless(attribute.String("service.name", "ulisse-"+role), attribute.String("service.instance.id", id),
		attribute.String("service.version", version.Version))
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(p), sdk.WithResource(res), sdk.WithIDGenerator(ids{}), sdk.WithSampler(sdk.AlwaysSample()))
	return &Tracer{provider: provider, tracer: provider.Tracer("ulisse", trace.WithInstrumentationVersion(version.Version))}
}

// Close sends what is left, for as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Submit notes that a job was accepted: its trace begins.
func (t *Tracer) Submit(job, name string, began time.Time) {
	if t == nil {
		return
	}
	ctx := context.WithValue(context.Background(), forced{}, submitted(job))
	_, s := t.tracer.Start(ctx, "submit", trace.WithTimestamp(began), trace.WithNewRoot(), trace.WithAttributes(attribute.String("ulisse.job", job), attribute.String("ulisse.name", name)))
	s.End()
}

// Placement notes that a chain of a job was given to a worker.
func (t *Tracer) Placement(job string, chain int, attempt int64, worker string, began time.Time) {
	if t == nil {
		return
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), submitted(job))
	ctx = context.WithValue(ctx, forced{}, placed(job, chain, attempt))
	_, s := t.tracer.Start(ctx, "placement", trace.WithTimestamp(began), trace.WithAttributes(attribute.String("ulisse.job", job),
		attribute.Int("ulisse.chain", chain), attribute.Int64("ulisse.attempt", attempt), attribute.String("ulisse.worker", worker)))
	s.End()
}

// Iteration begins to follow an iteration of a chain, if it is time, and returns
// the context of what is done for it and what ends it.
func (t *Tracer) Iteration(ctx context.Context, job string, chain int, attempt int64, iter int) (context.Context, func()) {
	if t == nil {
		return ctx, func() {}
	}
	now, last := time.Now().UnixNano(), t.last.Load()
	if now-last < int64(Every) || !t.last.CompareAndSwap(last, now) {
		return ctx, func() {}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, placed(job, chain, attempt))
	ctx, s := t.tracer.Start(ctx, "iteration", trace.WithAttributes(attribute.Int("ulisse.chain", chain), attribute.Int("ulisse.iteration", iter)))
	return ctx, func() { s.End() }
}

// Within begins a span below the one that ctx is followed by; if it is by none
// it does nothing, and costs a look into ctx.
func Within(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func()) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func() {}
	}
	ctx, s := parent.TracerProvider().Tracer("ulisse").Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func() { s.End() }
}

// Carry returns what tells another process of the span that ctx is followed by:
// empty if there is none.
func Carry(ctx context.Context) []byte {
	s := trace.SpanFromContext(ctx)
	if !s.IsRecording() {
		return nil
	}
	c := s.SpanContext()
	t, id := c.TraceID(), c.SpanID()
	return append(t[:], id[:]...)
}

// carried is the size of what Carry returns.
const carried = 24

// Remote notes a span below one of another process, as Carry told of it.
func (t *Tracer) Remote(from []byte, name string, began time.Time, attributes ...attribute.KeyValue) {
	if t == nil || len(from) != carried {
		return
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(from[:16]), SpanID: trace.SpanID(from[16:]), TraceFlags: trace.FlagsSampled, Remote: true})
	if !parent.IsValid() {
		return
	}
	_, s := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	s.End()
}

// forced is the key of the identifiers that a span is to have.
type forced struct{}

// submitted returns the identifiers of a job's first span.
func submitted(job string) trace.SpanContext { return named(job, "submit") }

// placed returns those of a placement.
func placed(job string, chain int, attempt int64) trace.SpanContext {
	return named(job, fmt.Sprintf("placement %d %d", chain, attempt))
}

func named(job, what string) trace.SpanContext {
	t, s := sha256.Sum256([]byte("ulisse trace "+job)), sha256.Sum256([]byte("ulisse span "+job+" "+what))
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(t[:16]), SpanID: trace.SpanID(s[:8]), TraceFlags: trace.FlagsSampled, Remote: true})
}

// ids makes identifiers: those that are forced, else random ones.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(forced{}).(trace.SpanContext); ok {
		return c.TraceID(), c.SpanID()
	}
	var t trace.TraceID
	binary.BigEndian.PutUint64(t[:8], rand.Uint64())
	binary.BigEndian.PutUint64(t[8:], rand.Uint64()|1)
	return t, ids{}.NewSpanID(context.Background(), t)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	if c, ok := ctx.Value(forced{}).(trace.SpanContext); ok {
		return c.SpanID()
	}
	binary.BigEndian.PutUint64(s[:], rand.Uint64()|1)
	return s
}
