package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoopVisitsEveryIndexOnce(t *testing.T) {
	b := NewBudget(4)
	seen := make([]atomic.Int32, 1000)
	l := b.NewLoop(func(w, i int) {
		if w < 0 || w >= b.MaxWorkers() {
			t.Errorf("worker %d of %d", w, b.MaxWorkers())
		}
		seen[i].Add(1)
	})
	for _, n := range []int{0, 1, 3, 1000} {
		for i := range seen {
			seen[i].Store(0)
		}
		l.Run(n)
		for i := range seen {
			want := int32(0)
			if i < n {
				want = 1
			}
			if got := seen[i].Load(); got != want {
				t.Fatalf("n=%d: index %d visited %d times", n, i, got)
			}
		}
	}
}

func TestConcurrentLoopsStayWithinTheBudget(t *testing.T) {
	const cores = 3
	b := NewBudget(cores)
	var running, most atomic.Int32
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := b.Acquire(context.Background()); err != nil {
				t.Error(err)
				return
			}
			defer b.Release()
			b.NewLoop(func(_, _ int) {
				r := running.Add(1)
				for {
					m := most.Load()
					if r <= m || most.CompareAndSwap(m, r) {
						break
					}
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
			}).Run(20)
		}()
	}
	wg.Wait()
	if m := most.Load(); m > cores {
		t.Errorf("%d bodies ran at once on %d cores", m, cores)
	}
	if len(b.tokens) != cores {
		t.Errorf("%d cores free at the end, want %d", len(b.tokens), cores)
	}
}

func TestAcquireStopsWithItsContext(t *testing.T) {
	b := NewBudget(1)
	if err := b.Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Acquire(ctx); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestChunksCoverTheRange(t *testing.T) {
	b := NewBudget(2)
	for _, n := range []int{0, 1, 7, 8, 9, 100} {
		var sum atomic.Int64
		b.Chunks(n, 8, func(c, lo, hi int) {
			if lo != c*8 || hi <= lo || hi > n {
				t.Errorf("n=%d: chunk %d is [%d,%d)", n, c, lo, hi)
			}
			sum.Add(int64(hi - lo))
		})
		if sum.Load() != int64(n) {
			t.Errorf("n=%d: covered %d", n, sum.Load())
		}
	}
}

func TestLoopDoesNotAllocate(t *testing.T) {
	l := NewBudget(2).NewLoop(func(_, _ int) {})
	if a := testing.AllocsPerRun(100, func() { l.Run(10) }); a > 0.5 {
		t.Errorf("%v allocations a run", a)
	}
}

// GOMAXPROCS follows the CPU limit of a container, and budgets follow
// GOMAXPROCS.
func TestBudgetFollowsGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	if got := NewBudget(0).Cores(); got != 3 {
		t.Errorf("%d cores, want 3", got)
	}
	if got := NewBudget(2).Cores(); got != 2 {
		t.Errorf("%d cores, want 2", got)
	}
}
