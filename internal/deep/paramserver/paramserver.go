// Package paramserver has workers learn one vector of parameters from minibatches: a server holds it, with a version that each step raises; a worker
// pulls it, computes the gradient of a minibatch there, and pushes that. Between pull and push others have stepped: by so many versions the gradient is stale.
//
// There are four policies. Asynchronous servers step along each gradient as it comes (Dean et al., NIPS 2012), as the published deep Gaussian processes were learnt.
// Staleness-aware ones divide the step by one plus the staleness (Zhang, Gupta, Lian and Liu, IJCAI 2016, whose staleness is ours plus one). Synchronous servers step along the mean of
// a gradient of each worker, all at the same version; with backup workers along that of the first ones, and what comes late is dropped (Chen et al., 2016).
//
// Simulate runs workers on a simulated clock: which gradients are how stale is a function of the seed. Run runs them side by side on this machine's cores, where it is not.
package paramserver

import (
	"fmt"
	"slices"
	"sync"

	"gonum.org/v1/gonum/floats"
)

// Policy says what becomes of a gradient.
type Policy string

// The policies.
const (
	Asynchronous   Policy = "asynchronous"
	StalenessAware Policy = "staleness-aware"
	Synchronous    Policy = "synchronous" // with backup workers if there are more workers than gradients of a step
)

// Optimiser moves x along a gradient; deep.Adam is one.
type Optimiser interface {
	Step(x, grad []float64, size float64)
}

// Config says how a server steps.
type Config struct {
	Policy   Policy
	Gather   int                    // gradients of a step, if synchronous
	StepSize func(step int) float64 // of a step, from 1
	Optimiser
}

// Server holds parameters. It is safe for concurrent use.
type Server struct {
	Config

	mu      sync.Mutex
	changed *sync.Cond
	x       []float64
	version int
	mean    []float64 // of the gradients of this version that have come
	come    int
	stale   []int // how many gradients of each staleness were used
	dropped int
	closed  bool
}

// New returns a server at x, which becomes its own. It panics if a synchronous one gathers nothing.
func New(x []float64, c Config) *Server {
	if c.Policy == Synchronous && c.Gather < 1 {
		panic(fmt.Sprintf("paramserver: steps of %d gradients", c.Gather))
	}
	s := &Server{Config: c, x: x, mean: make([]float64, len(x))}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Pull copies the parameters to dst and returns their version, from 0.
func (s *Server) Pull(dst []float64) (version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(dst, s.x)
	return s.version
}

// Push gives the server a gradient at a version.
func (s *Server) Push(version int, grad []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	staleness := s.version - version
	switch s.Policy {
	case Asynchronous:
		s.step(grad, 1, staleness)
	case StalenessAware:
		s.step(grad, 1/float64(1+staleness), staleness)
	case Synchronous:
		if staleness > 0 {
			s.dropped++
			return
		}
		floats.AddScaled(s.mean, 1/float64(s.Gather), grad)
		if s.come++; s.come == s.Gather {
			s.step(s.mean, 1, 0)
			s.come = 0
			clear(s.mean)
		}
	}
}

// step moves the parameters.
func (s *Server) step(grad []float64, share float64, staleness int) {
	s.version++
	s.Step(s.x, grad, share*s.StepSize(s.version))
	for len(s.stale) <= staleness {
		s.stale = append(s.stale, 0)
	}
	s.stale[staleness]++
	s.changed.Broadcast()
}

// Waits reports whether a worker that has pushed a gradient of a version has nothing to do until the next.
func (s *Server) Waits(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits(version)
}

func (s *Server) waits(version int) bool { return s.Policy == Synchronous && s.version == version }

// wait returns when a worker has something to do again.
func (s *Server) wait(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waits(version) && !s.closed {
		s.changed.Wait()
	}
}

// close lets all who wait go.
func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}

// Report is what a server has done.
type Report struct {
	Steps   int
	Stale   []int // gradients used, by staleness
	Dropped int   // gradients that came late
}

// Report returns what the server has done.
func (s *Server) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Report{s.version, slices.Clone(s.stale), s.dropped}
}

// Staleness returns the mean of the gradients used.
func (r *Report) Staleness() float64 {
	var sum, count float64
	for k, n := range r.Stale {
		sum, count = sum+float64(k*n), count+float64(n)
	}
	return sum / max(1, count)
}
