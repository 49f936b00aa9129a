package driver

import (
	"context"
	"slices"
)

// once is what all chains share and the first that needs it computes, while the
// others wait, each as long as its own context lets it. A computation that failed
// is done again by the next that needs it.
type once[T any] struct {
	turn  chan struct{} // full while somebody computes
	key   []float64     // what value was computed for; nil if it was not
	value T
}

func newOnce[T any]() once[T] { return once[T]{turn: make(chan struct{}, 1)} }

// get returns the value for a key, computed by f if it is not the last one.
func (o *once[T]) get(ctx context.Context, key []float64, f func() (T, error)) (value T, err error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return value, ctx.Err()
	}
	if o.key != nil && slices.Equal(o.key, key) {
		return o.value, nil
	}
	if value, err = f(); err == nil {
		o.key, o.value = slices.Clone(key), value
	}
	return value, err
}
