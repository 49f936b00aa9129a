package rpc

import (
	"errors"
	"sync"
)

// Share counts what is under way, by whom it is for, so that one leaves room for
// others. Its methods are safe for concurrent use.
type Share struct {
	Each, All int // at a time: of one, and together

	mu    sync.Mutex
	total int
	by    map[string]int
}

// Why Take takes nothing.
var (
	ErrEach = errors.New("as many as one caller may have at once")
	ErrAll  = errors.New("as many as there may be at once")
)

// Take counts one more, until the function returned is called. The error is
// ErrEach or ErrAll.
func (s *Share) Take(who string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by[who] >= s.Each:
		return nil, ErrEach
	case s.total >= s.All:
		return nil, ErrAll
	}
	if s.by == nil {
		s.by = map[string]int{}
	}
	s.by[who]++
	s.total++
	return sync.OnceFunc(func() { s.give(who) }), nil
}

func (s *Share) give(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total--; s.by[who] > 1 {
		s.by[who]--
	} else {
		delete(s.by, who)
	}
}
