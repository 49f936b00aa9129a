package precond

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// countdown is a context that is cancelled when it is looked at for a certain
// time, and counts how often it is.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	at     int // 0 for never

	mu    sync.Mutex
	looks int
}

func newCountdown(at int) *countdown {
	ctx, cancel := context.WithCancel(context.Background())
	return &countdown{Context: ctx, cancel: cancel, at: at}
}

func (c *countdown) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks++; c.looks == c.at {
		c.cancel()
	}
}

func (c *countdown) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Wherever the context is cancelled, the build ends with its error; and it is looked
// at often (BenchmarkCancel measures how soon builds end).
func TestBuildStopsWithItsContext(t *testing.T) {
	const n, rank, cores = 1500, 200, 2
	for _, kind := range Kinds() {
		op := operator(n, 2, cores, kernel.RBF, 0.5, 0.05)
		build := func(at int) (*countdown, error) {
			ctx := newCountdown(at)
			defer ctx.cancel()
			_, err := Build(ctx, kind, op, rank, random.Key{Seed: 1})
			return ctx, err
		}
		whole, err := build(0)
		if err != nil {
			t.Fatal(err)
		}
		// A block of 128 pivots, a block of 32 columns of a product, a cluster: work
		// between two looks is some of these at most.
		if least := map[string]int{"fourier": rank / 2, "blockjacobi": n / rank, "svd": 100, "cholesky": rank}[kind]; whole.looks < max(20, least) {
			t.Errorf("%s: looks at its context %d times", kind, whole.looks)
		}
		for step := range 10 {
			at := 1 + step*(whole.looks-1)/10
			if _, err := build(at); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at look %d of %d: %v", kind, at, whole.looks, err)
			}
		}
	}
}

// A factorisation that cannot be interrupted does not hold up who waits for it.
func TestWithin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	began := make(chan struct{})
	go func() { <-began; cancel() }()
	if _, err := within(ctx, func() (int, error) { close(began); <-hold; return 1, nil }); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	close(hold)
	if got, err := within(t.Context(), func() (int, error) { return 2, nil }); got != 2 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// BenchmarkCancel reports the longest that builds took to end after they had been
// cancelled, at 10 times spread over them.
func BenchmarkCancel(b *testing.B) {
	for _, kind := range []string{"rpcholesky", "svd", "pitc", "cholesky"} {
		b.Run(kind, func(b *testing.B) {
			op := operator(8000, 8, 2, kernel.RBF, 2, 0.05)
			build := func(ctx context.Context) time.Duration {
				began := time.Now()
				_, _ = Build(ctx, kind, op, 400, random.Key{Seed: 1})
				return time.Since(began)
			}
			whole := build(context.Background())
			var worst time.Duration
			for range b.N {
				for i := range 10 {
					after := whole * time.Duration(2*i+1) / 20
					ctx, cancel := context.WithTimeout(context.Background(), after)
					worst = max(worst, build(ctx)-after)
					cancel()
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(whole.Seconds(), "s/build")
			b.ReportMetric(1e3*worst.Seconds(), "ms-to-end")
		})
	}
}
