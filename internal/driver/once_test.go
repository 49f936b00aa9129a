package driver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// What all share is computed once for a key; who waits for it can be cancelled; and
// what failed is computed again.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOnce[int]()
		calls := 0
		hold := make(chan struct{})
		slow := func() (int, error) { calls++; <-hold; return 10 * calls, nil }
		key := []float64{1, 2}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if v, err := o.get(t.Context(), key, slow); v != 10 || err != nil {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		synctest.Wait() // one computes, two wait
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := o.get(ctx, key, slow); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(hold)
		wg.Wait()
		if calls != 1 {
			t.Errorf("computed %d times", calls)
		}
		other := []float64{1, 3}
		fails := errors.New("no")
		if _, err := o.get(t.Context(), other, func() (int, error) { return 0, fails }); err != fails {
			t.Errorf("got %v", err)
		}
		for range 2 {
			if v, err := o.get(t.Context(), other, slow); v != 20 || err != nil {
				t.Errorf("got %v, %v", v, err)
			}
		}
	})
}
