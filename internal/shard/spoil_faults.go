//go:build faults

package shard

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// spoils says how this worker computes wrongly for others: ULISSE_SPOIL is bit/N, which flips a bit
// of every N-th unit of a product K·V, or theta/N, which keeps the θ before at every N-th change.
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
	if text != "" && (kind != "bit" && kind != "theta" || err != nil || n < 1) {
		panic("ULISSE_SPOIL is " + text + ", not bit/N or theta/N")
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

func spoilAnswer(p *Product, out []float64) {
	spoils.mu.Lock()
	defer spoils.mu.Unlock()
	if p.Kind != Forms && spoils.due("bit") {
		out[len(out)/2] = math.Float64frombits(math.Float64bits(out[len(out)/2]) ^ 1<<51)
	}
}
