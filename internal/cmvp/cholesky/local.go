package cholesky

import (
	"context"
	"fmt"
	"slices"
)

// local is the transport of a group whose members are in one process.
type local struct {
	rank  int
	links [][]chan []float64 // from, to
}

// NewLocal returns the transports of a group of the given size within this process.
func NewLocal(size int) []Transport {
	links := make([][]chan []float64, size)
	for from := range links {
		links[from] = make([]chan []float64, size)
		for to := range links[from] {
			links[from][to] = make(chan []float64, 1)
		}
	}
	out := make([]Transport, size)
	for r := range out {
		out[r] = &local{r, links}
	}
	return out
}

func (l *local) Rank() int { return l.rank }
func (l *local) Size() int { return len(l.links) }

func (l *local) Send(ctx context.Context, to int, data []float64) error {
	select {
	case l.links[l.rank][to] <- slices.Clone(data):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *local) Receive(ctx context.Context, from int, data []float64) error {
	select {
	case got := <-l.links[from][l.rank]:
		if len(got) != len(data) {
			return fmt.Errorf("a message of %d numbers where %d were expected", len(got), len(data))
		}
		copy(data, got)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
