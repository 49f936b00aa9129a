//go:build faults

package shard

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// spoils says how this worker computes wrongly for others: ULISSE_SPOIL is bit/N, which flips a bit
// of every N-th unit of a product K·V, or theta/N, which keeps the θ before at every N-th change.
// With yield/N a driver waits with its own units of a product until a member has answered one, N ms at most.
var spoils = newSpoils(os.Getenv("ULISSE_SPOIL"))

type spoiling struct {
	kind  string
	every int

	mu    sync.Mutex
	count int
	theta []float64 // that was asked for last
}

func newSpoils(text string) *spoiling {
	kind, every, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(every)
	if text != "" && (kind != "bit" && kind != "theta" && kind != "yield" || err != nil || n < 1) {
		panic("ULISSE_SPOIL is " + text + ", not bit/N, theta/N or yield/N")
	}
	return &spoiling{kind: kind, every: n}
}

// due counts what may be spoilt, and reports whether it is to be.
func (s *spoiling) due(kind string) bool {
	if s.kind != kind {
		return false
	}
	s.count++
	return s.count%s.every == 0
}

func spoilTheta(theta []float64) []float64 {
	spoils.mu.Lock()
	defer spoils.mu.Unlock()
	before := spoils.theta
	spoils.theta = theta
	if spoils.due("theta") && len(before) == len(theta) {
		return before
	}
	return theta
}

// spreadFrom is largeFactor, or ULISSE_SPREAD: so small factors are built by groups, too.
var spreadFrom = sync.OnceValue(func() int {
	text := os.Getenv("ULISSE_SPREAD")
	if text == "" {
		return largeFactor
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		panic("ULISSE_SPREAD is " + text + ", not a number of bytes")
	}
	return n
})

func spoilAnswer(p *Product, out []float64) {
	spoils.mu.Lock()
	defer spoils.mu.Unlock()
	if p.Kind != Forms && p.Kind != Hold && spoils.due("bit") {
		out[len(out)/2] = math.Float64frombits(math.Float64bits(out[len(out)/2]) ^ 1<<51)
	}
}

func (r *run) yield(ctx context.Context) {
	if spoils.kind != "yield" || r.members == 0 || r.p.again != nil { // what is computed again may be for the driver alone
		return
	}
	answered := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range r.units {
			if r.units[i].by != nil {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Duration(spoils.every) * time.Millisecond); !answered() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}
