package gradients

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/version"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// member is a worker of the group.
type member struct {
	*Group
	address string
	targets posterior.Outcomes
	session atomic.Pointer[session] // nil while there is none
	done    atomic.Int64            // chunks whose answers were used
}

// How long a worker is left alone that has failed.
const (
	firstPause = time.Second
	longPause  = time.Minute
	openTime   = 5 * time.Minute  // that sending the rows may take
	lastWord   = 20 * time.Second // that an answer may take which the driver has done without
)

// stay opens a session, and another when one has failed, until ctx is done or the worker says that there can be none.
func (m *member) stay(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longPause) {
		began := time.Now()
		err := m.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if code := status.Code(err); code == codes.FailedPrecondition || code == codes.InvalidArgument || code == codes.PermissionDenied || code == codes.Unimplemented {
			m.conf.Log.Warn("a worker takes no part", "address", m.address, "reason", err)
			return
		}
		m.conf.Log.Warn("a worker is left alone for a while", "address", m.address, "pause", pause, "reason", err)
		if time.Since(began) > longPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// serve has a session until it ends, and returns why it did.
func (m *member) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// One whose other end does not answer is lost after half a minute.
	alive := grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second})
	conn, err := grpc.NewClient(m.address, append([]grpc.DialOption{alive}, m.conf.Options...)...)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := pb.NewGradientsClient(conn).Session(ctx)
	if err != nil {
		return err
	}
	s := &session{member: m, stream: stream, fail: cancel, calls: map[uint64]*call{}}
	late := time.AfterFunc(openTime, func() { cancel(errors.New("the rows could not be sent in time")) })
	err = s.open()
	late.Stop()
	if err == nil {
		m.session.Store(s)
		m.conf.Log.Info("a worker takes part", "address", m.address)
		err = s.receive()
		m.session.Store(nil)
	}
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	s.end(err)
	return err
}

// session is a stream to a worker that has all rows.
type session struct {
	*member
	stream pb.Gradients_SessionClient
	fail   context.CancelCauseFunc
	parts  int // that the worker computes at a time, and one more on its way

	send sync.Mutex // of who sends
	sent *params    // what the worker has

	mu    sync.Mutex
	last  uint64
	calls map[uint64]*call
	err   error // why it is over
	// Of a worker that was late: until when it is left alone, and how long the next time.
	late, until time.Time
	pause       time.Duration
}

// ready reports whether the worker can be given chunks: it has answered all, and is not left alone.
func (s *session) ready(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) > 0 && now.Sub(s.late) > lastWord {
		s.fail(fmt.Errorf("no answer within %s", lastWord))
		return false
	}
	return len(s.calls) == 0 && !now.Before(s.until)
}

// wasLate leaves the worker alone for a while.
func (s *session) wasLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.until) { // with another chunk of the same sum
		return
	}
	if now.Sub(s.until) > longPause {
		s.pause = 0
	}
	s.pause = min(max(firstPause, 2*s.pause), longPause)
	s.late, s.until = now, now.Add(s.pause)
	s.conf.Log.Warn("a worker is late, and left alone for a while", "address", s.address, "pause", s.pause)
}

// call is a chunk that an answer is awaited for.
type call struct {
	out  []float64
	got  int
	done chan struct{}
	err  error
}

// blockLen is how many numbers a message has at most.
const blockLen = 1 << 16

// open tells the worker of the network and sends the rows.
func (s *session) open() error {
	c, in := s.Config, s.Inputs()
	open := &pb.GradientsOpen{Rounding: version.Rounding(), Rows: int64(in.Len()), Inputs: int32(c.Inputs), Layers: int32(c.Layers), Features: int32(c.Features), Hidden: int32(c.Hidden),
		Covariance: string(c.Covariance), Frequencies: string(c.Frequencies), Ard: c.ARD, Seed: c.Seed, Likelihood: s.targets.Likelihood, Classes: int32(s.targets.Classes), Offset: s.targets.Offset != nil}
	if err := s.say(&pb.GradientsRequest{Request: &pb.GradientsRequest_Open{Open: open}}); err != nil {
		return err
	}
	var values []float64
	for i := range in.Len() {
		values = append(append(values, in.Row(i)...), s.targets.Y[i])
		if s.targets.Offset != nil {
			values = append(values, s.targets.Offset[i])
		}
		if len(values)+c.Inputs+2 > blockLen || i == in.Len()-1 {
			if err := s.say(&pb.GradientsRequest{Request: &pb.GradientsRequest_Rows{Rows: &pb.GradientsRows{Values: values}}}); err != nil {
				return err
			}
			values = nil
		}
	}
	m, err := s.stream.Recv()
	if err != nil {
		return err
	}
	opened := m.GetOpened()
	if opened == nil || opened.Size != int64(s.Size()) || opened.Parts < 1 {
		return status.Errorf(codes.FailedPrecondition, "the worker has a network of %d numbers in place of one of %d", opened.GetSize(), s.Size())
	}
	s.parts = min(int(opened.Parts), maxParts) + 1
	return nil
}

// say sends a message. The error of a stream that is broken is the receiver's to find.
func (s *session) say(m *pb.GradientsRequest) error {
	if err := s.stream.Send(m); err != nil {
		_, err = s.stream.Recv()
		return err
	}
	return nil
}

// work computes chunks until none is left.
func (s *session) work(ctx context.Context, q *queue, at *params, t *deep.Terms) {
	for {
		c, ok := q.next(s.member)
		if !ok {
			return
		}
		out, err := s.compute(ctx, at, t, c)
		if err == nil {
			a := answer{value: out[0], by: s.member}
			if t.Slopes {
				a.grad = out[1:]
			}
			q.put(c, a)
			continue
		}
		if ctx.Err() == nil {
			q.back(c)
		} else if q.isDone(c) { // the driver has done it in the meantime
			s.wasLate()
		}
		return
	}
}

// compute has the worker compute a chunk.
func (s *session) compute(ctx context.Context, at *params, t *deep.Terms, c int) ([]float64, error) {
	size := 1
	if t.Slopes {
		size += s.Size()
	}
	id, k, err := s.expect(size)
	if err != nil {
		return nil, err
	}
	part := &pb.GradientsPart{Id: id, Chunk: int64(c), Factor: t.Factor, Slopes: t.Slopes}
	for _, row := range t.Chunk(c) {
		part.Rows = append(part.Rows, int64(row))
	}
	s.running.Go(func() { s.ask(at, part) }) // the stream may be blocked for longer than ctx
	select {
	case <-k.done:
		return k.out, k.err
	case <-ctx.Done(): // the answer is still awaited, as a sign of life
		return nil, ctx.Err()
	}
}

// ask sends a part, with the parameters before it unless the worker has them.
func (s *session) ask(at *params, part *pb.GradientsPart) {
	s.send.Lock()
	defer s.send.Unlock()
	if s.sent != at {
		s.sent = at
		if s.stream.Send(&pb.GradientsRequest{Request: &pb.GradientsRequest_At{At: &pb.GradientsAt{Step: int64(at.step)}}}) != nil {
			return // and the receiver learns why
		}
		for lo := 0; lo < len(at.x); lo += blockLen {
			some := at.x[lo:min(len(at.x), lo+blockLen)]
			if s.stream.Send(&pb.GradientsRequest{Request: &pb.GradientsRequest_Numbers{Numbers: &pb.GradientsNumbers{Values: some}}}) != nil {
				return
			}
		}
	}
	_ = s.stream.Send(&pb.GradientsRequest{Request: &pb.GradientsRequest_Part{Part: part}})
}

// expect notes a call.
func (s *session) expect(size int) (id uint64, k *call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, nil, s.err
	}
	s.last++
	k = &call{out: make([]float64, size), done: make(chan struct{})}
	s.calls[s.last] = k
	return s.last, k, nil
}

// end ends all calls.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for id, k := range s.calls {
		delete(s.calls, id)
		k.err = err
		close(k.done)
	}
}

// receive takes in answers until the stream ends, and returns why it does.
func (s *session) receive() error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		a := m.GetAnswer()
		if a == nil {
			return errors.New("the worker sent a message of an unknown kind")
		}
		if err := s.answer(a); err != nil {
			return err
		}
	}
}

// answer takes in a piece of an answer. Those that nobody awaits any more are dropped. An error means that the worker is not to be trusted.
func (s *session) answer(a *pb.GradientsAnswer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.calls[a.Id]
	if k == nil {
		if a.Id == 0 || a.Id > s.last {
			return fmt.Errorf("the worker answered part %d, which it was not asked for", a.Id)
		}
		return nil
	}
	if a.Offset != int64(k.got) || len(a.Values) == 0 || len(a.Values) > len(k.out)-k.got {
		return fmt.Errorf("the worker answered part %d with numbers [%d,+%d), not [%d,…) of %d", a.Id, a.Offset, len(a.Values), k.got, len(k.out))
	}
	if slices.ContainsFunc(a.Values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		// The driver may find the same, and says so.
		return fmt.Errorf("the worker answered part %d with numbers that are not finite", a.Id)
	}
	copy(k.out[k.got:], a.Values)
	if k.got += len(a.Values); k.got == len(k.out) {
		delete(s.calls, a.Id)
		close(k.done)
	}
	return nil
}
