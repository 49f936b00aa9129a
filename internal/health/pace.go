package health

import (
	"slices"
	"time"
)

// pace is how often something is heard of a chain.
type pace struct {
	last      time.Time
	pauses    [16]time.Duration // the last ones, in a ring
	next      int               // place in the ring
	iteration int               // at the last look
	busy      bool
}

// hear notes that the chain has told of progress.
func (p *pace) hear(now time.Time) {
	if p.busy {
		p.pauses[p.next%len(p.pauses)] = now.Sub(p.last)
		p.next++
	}
	p.last, p.busy = now, true
}

// look notes the chain's iteration, and whether it has something to do. It
// returns for how long nothing was heard of it, and the longest of its last
// pauses (0 if none is known).
func (p *pace) look(iteration int, busy bool, now time.Time) (silent, usual time.Duration) {
	switch {
	case !busy:
		p.last, p.busy, p.iteration = now, false, iteration
	case p.iteration != iteration:
		p.iteration = iteration
		p.hear(now)
	case !p.busy:
		p.last, p.busy = now, true
	}
	return now.Sub(p.last), slices.Max(p.pauses[:])
}
