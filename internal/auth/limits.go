package auth

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Limits bounds what each caller may ask for: a user by the token, others by
// their address. Calls of nodes are not counted.
type Limits struct {
	perSecond rate.Limit
	burst     int
	streams   int

	mu      sync.Mutex
	callers map[string]*caller
	swept   time.Time
}

type caller struct {
	rate    *rate.Limiter
	streams int
	used    time.Time
}

// callerIdle is how long a caller without streams is remembered: by then its
// burst is whole again.
const callerIdle = time.Minute

// NewLimits returns limits of perSecond calls a second, twice as many at once, and
// of that many streams at a time. 0 means no limit.
func NewLimits(perSecond float64, streams int) *Limits {
	l := &Limits{perSecond: rate.Limit(perSecond), burst: max(1, int(2*perSecond)), streams: streams, callers: map[string]*caller{}}
	if perSecond == 0 {
		l.perSecond = rate.Inf
	}
	return l
}

// get returns a caller; the lock is held.
func (l *Limits) get(key string, now time.Time) *caller {
	if now.Sub(l.swept) > callerIdle {
		l.swept = now
		for k, c := range l.callers {
			if c.streams == 0 && now.Sub(c.used) > callerIdle {
				delete(l.callers, k)
			}
		}
	}
	c := l.callers[key]
	if c == nil {
		c = &caller{rate: rate.NewLimiter(l.perSecond, l.burst)}
		l.callers[key] = c
	}
	c.used = now
	return c
}

// Call takes a call, or returns an error that says when to come back.
func (l *Limits) Call(key string, now time.Time) error {
	if l == nil || key == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.get(key, now).rate.AllowN(now, 1) {
		return nil
	}
	s := status.Newf(codes.ResourceExhausted, "more than %g calls a second: slow down", float64(l.perSecond))
	wait := time.Duration(float64(time.Second) / float64(l.perSecond))
	if d, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		s = d
	}
	return s.Err()
}

// Stream takes a stream, until the function returned is called.
func (l *Limits) Stream(key string, now time.Time) (end func(), err error) {
	if l == nil || key == "" || l.streams == 0 {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.get(key, now)
	if c.streams >= l.streams {
		return nil, status.Errorf(codes.ResourceExhausted, "%d streams are open, as many as one caller may have: close some", c.streams)
	}
	c.streams++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.streams--
	}, nil
}
