package blobnet

import (
	"context"
	"sync"
)

// flights runs one function at a time for each key; callers that come meanwhile
// wait for its result. Unlike the usual single flight the function belongs to
// no caller: it is cancelled when the last of them has left.
type flights struct {
	mu sync.Mutex
	m  map[string]*flight
	wg sync.WaitGroup
}

type flight struct {
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
	callers int // 0: all have left, and it is ending
}

func (f *flights) do(ctx context.Context, key string, fn func(context.Context) error) error {
	for {
		fl := f.join(ctx, key, fn)
		ours := fl.callers > 0
		f.mu.Unlock()
		select {
		case <-fl.done:
			if ours {
				return fl.err
			}
		case <-ctx.Done():
			if ours {
				f.leave(fl)
			}
			return ctx.Err()
		}
	}
}

// join returns the flight of a key, one caller more, with f.mu held. One that
// is ending is not joined: the caller is to wait for it and to come again.
func (f *flights) join(ctx context.Context, key string, fn func(context.Context) error) *flight {
	f.mu.Lock()
	if fl := f.m[key]; fl != nil {
		if fl.callers > 0 {
			fl.callers++
		}
		return fl
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{cancel: cancel, done: make(chan struct{}), callers: 1}
	if f.m == nil {
		f.m = map[string]*flight{}
	}
	f.m[key] = fl
	f.wg.Go(func() {
		defer cancel()
		fl.err = fn(own)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.m, key)
		close(fl.done)
	})
	return fl
}

func (f *flights) leave(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.callers--; fl.callers == 0 {
		fl.cancel()
	}
}

// wait returns when no function runs any more.
func (f *flights) wait() { f.wg.Wait() }
