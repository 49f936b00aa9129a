package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// session is a stream to a worker, and what the worker has been told on it.
type session struct {
	cancel context.CancelFunc
	data   Data
	meter  *Meter
	ready  chan struct{} // closed when stream is there, or the session is over
	stream messages

	// Of who sends: the last θ that the worker has all of, and the last product and what it
	// has of that one's vectors.
	opened           bool
	version, product uint64
	sent             pieces

	mu    sync.Mutex
	err   error // why the session is over
	last  uint64
	calls map[uint64]*call
}

// call is a unit that an answer is awaited for.
type call struct {
	id      uint64
	product *Product
	out     []float64
	got     int
	done    chan struct{}
	err     error
}

func (s *session) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil
}

// fail ends the session and all calls on it.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	for id, c := range s.calls {
		delete(s.calls, id)
		c.err = err
		close(c.done)
	}
	s.cancel()
}

// expect notes a call.
func (s *session) expect(p *Product, out []float64) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	c := &call{id: s.last, product: p, out: out, done: make(chan struct{})}
	if s.err != nil {
		c.err = s.err
		close(c.done)
		return c
	}
	s.calls[c.id] = c
	return c
}

// forget drops a call, so that nothing is written to its answer any more. It
// returns false if the call is over, or about to be.
func (s *session) forget(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.calls[c.id]
	delete(s.calls, c.id)
	return ok
}

// frames returns what has to be sent for a unit, with a reference to all data.
func (s *session) frames(p *Product, u Unit, id uint64) []*frame {
	var fs []*frame
	add := func(m *pb.TilesRequest) { fs = append(fs, &frame{head: m}) }
	blocks := func(cs chunks) {
		for _, c := range cs {
			b := &pb.TilesBlock{Offset: c.offset, Crc32C: c.crc}
			fs = append(fs, &frame{head: &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: b}}, data: c.data})
		}
	}
	if !s.opened {
		add(&pb.TilesRequest{Request: &pb.TilesRequest_Open{Open: &pb.TilesOpen{
			Address: s.data.Address, Covariance: s.data.Covariance.String(), InstructionSet: s.data.ISA}}})
	}
	if st := p.State; s.version != st.Version {
		m := &pb.TilesSet{Version: st.Version, Theta: st.Theta, NoiseFollows: len(st.Noise) > 1}
		if !m.NoiseFollows {
			m.Noise = st.Noise[0]
		}
		add(&pb.TilesRequest{Request: &pb.TilesRequest_Set{Set: m}})
		if m.NoiseFollows {
			blocks(noiseRegion(st.Noise).encode(8, nil))
		}
		s.product = 0
	}
	if s.product != p.ID {
		m := &pb.TilesProduct{Id: p.ID, Version: p.State.Version, Kind: kinds[p.Kind], Columns: int32(len(p.V)), Groups: int32(p.Groups), Trace: p.Trace}
		for _, g := range p.Group {
			m.Group = append(m.Group, int32(g))
		}
		add(&pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}})
		s.sent = 0
	}
	needs := p.needs(u)
	for i, cs := range p.encoded() {
		if piece := pieces(1) << i; piece&needs&^s.sent != 0 {
			cs.ref()
			blocks(cs)
		}
	}
	s.opened, s.version, s.product, s.sent = true, p.State.Version, p.ID, s.sent|needs
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: &pb.TilesUnit{
		Id: id, Product: p.ID, Lo: int64(u.Lo), Hi: int64(u.Hi)}}})
	return fs
}

// send sends frames until ctx is done, and lets their data go. If it could not
// send all, the worker has to be told anew.
func (s *session) send(ctx context.Context, fs []*frame) {
	<-s.ready
	for i, f := range fs {
		if ctx.Err() == nil && s.alive() {
			s.transmit(f)
		} else if i < len(fs)-1 {
			s.version, s.product = 0, 0
			_, open := f.head.(*pb.TilesRequest).Request.(*pb.TilesRequest_Open)
			s.opened = s.opened && !open
		}
		if f.data != nil {
			f.data.Free()
		}
	}
}

// transmit sends one frame. The error of a broken stream is the receiver's to
// find.
func (s *session) transmit(f *frame) {
	<-s.ready
	if !s.alive() {
		return
	}
	if err := s.stream.SendMsg(f); err != nil && err != io.EOF {
		s.fail(err)
	}
	s.meter.sent.Add(f.size())
}

// receive takes in answers until the stream ends, and returns why.
func (s *session) receive() error {
	f := &frame{}
	defer f.close()
	for opened := false; ; {
		m := &pb.TilesResponse{}
		f.head = m
		if err := s.stream.RecvMsg(f); err != nil {
			return err
		}
		s.meter.received.Add(f.size() + int64(f.body.Remaining()))
		switch x := m.Response.(type) {
		case *pb.TilesResponse_Opened:
			if x.Opened.Rows != int64(s.data.Rows) || x.Opened.Inputs != int64(s.data.Covariance.Dim()) {
				return fmt.Errorf("the worker has %d×%d inputs under the address of %d×%d: its cache is damaged", x.Opened.Rows, x.Opened.Inputs, s.data.Rows, s.data.Covariance.Dim())
			}
			opened = true
		case *pb.TilesResponse_Answer:
			if !opened {
				return errors.New("the worker answered before it had opened the session")
			}
			if err := s.answer(x.Answer, f); err != nil {
				return err
			}
		default:
			return errors.New("the worker sent a message of an unknown kind")
		}
	}
}

// answer takes in a piece of an answer. Those to units that are not awaited any
// more are dropped. An error means that the worker is not to be trusted.
func (s *session) answer(a *pb.TilesAnswer, f *frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[a.Unit]
	if c == nil {
		if a.Unit == 0 || a.Unit > s.last {
			return fmt.Errorf("the worker answered unit %d, which it was not asked for", a.Unit)
		}
		return nil
	}
	p, k := c.product, f.numbers(8)
	if a.Product != p.ID || a.Version != p.State.Version {
		return fmt.Errorf("the worker answered unit %d for product %d and θ %d, not %d and %d", a.Unit, a.Product, a.Version, p.ID, p.State.Version)
	}
	if a.Total != uint64(len(c.out)) || a.Offset != uint64(c.got) || k == 0 || k > len(c.out)-c.got {
		return fmt.Errorf("the worker answered unit %d with numbers [%d,+%d) of %d, not [%d,…) of %d", a.Unit, a.Offset, k, a.Total, c.got, len(c.out))
	}
	if err := f.read(8, a.Crc32C, one(c.out[c.got:c.got+k])); err != nil {
		return fmt.Errorf("the answer to unit %d: %w", a.Unit, err)
	}
	if c.got += k; c.got == len(c.out) {
		delete(s.calls, a.Unit)
		close(c.done)
	}
	return nil
}
