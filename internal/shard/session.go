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
	cancel  context.CancelFunc
	address string
	data    Data
	meter   *Meter
	ready   chan struct{} // closed when stream is there, or the session is over
	stream  messages

	// Of who sends: the last θ that the worker has all of, or the last factor, and the last product
	// and what it has of that one's vectors.
	opened           bool
	version, product uint64
	sent             pieces
	pivots           int // blocks of a factor that is computed there

	mu    sync.Mutex
	err   error // why the session is over
	last  uint64
	calls map[uint64]*call
	gone  pieces // vectors that the worker could not fetch
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
	var f outgoing
	if !s.opened {
		f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Open{Open: &pb.TilesOpen{
			Address: s.data.Address, Covariance: s.data.Covariance.String(), InstructionSet: s.data.ISA}}})
	}
	if s.version != p.State.Version {
		f.state(p)
		s.product, s.pivots = 0, 0
	}
	if p.L != nil && p.L.recipe != nil {
		s.pivots = f.recipe(p.L.recipe, s.pivots)
	}
	if s.product != p.ID {
		f.product(p)
		s.sent = 0
	}
	needs, unit := p.needs(u), &pb.TilesUnit{Id: id, Product: p.ID, Lo: int64(u.Lo), Hi: int64(u.Hi), Add: p.Add}
	s.sent &^= s.forgone()
	lacks := s.sources(p, u, unit, needs&^s.sent)
	if p.Kind == Hold && p.L.recipe == nil {
		f = append(f, chunkFrames(p.regions()[0])...)
	} else if lacks != 0 {
		for i, cs := range p.encoded() {
			if lacks&(1<<i) != 0 {
				cs.ref()
				f.blocks(cs)
			}
		}
	}
	s.opened, s.version, s.product, s.sent = true, p.State.Version, p.ID, s.sent|needs
	f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: unit}})
	return f
}

// sources names, in a unit of an exchange, the workers that have what it needs, and returns what is lacking still.
func (s *session) sources(p *Product, u Unit, unit *pb.TilesUnit, lacks pieces) pieces {
	switch {
	case p.Add:
		unit.Sources = p.Exchange.sources(u.Lo, s.address)
	case p.Exchange != nil:
		for i := range p.Exchange.grid.Points() {
			if lacks&(1<<i) == 0 {
				continue
			}
			if from := p.Exchange.source(i, s.address); from != "" {
				unit.Sources = append(unit.Sources, &pb.TilesSource{Address: from, Point: int32(i)})
				lacks &^= 1 << i
			}
		}
	}
	return lacks
}

// outgoing is what is sent, in order.
type outgoing []*frame

func (f *outgoing) add(m *pb.TilesRequest) { *f = append(*f, &frame{head: m}) }

func (f *outgoing) blocks(cs chunks) {
	for _, c := range cs {
		b := &pb.TilesBlock{Offset: c.offset, Crc32C: c.crc}
		*f = append(*f, &frame{head: &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: b}}, data: c.data})
	}
}

// state begins a factor, or θ.
func (f *outgoing) state(p *Product) {
	st := p.State
	if p.L != nil {
		m := &pb.TilesFactor{Version: st.Version, Rows: int64(p.L.rows), Columns: int64(p.L.cols)}
		f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Factor{Factor: m}})
		if r := p.L.recipe; r != nil {
			if m.Theta, m.Noise, m.NoiseFollows = r.theta, r.noise[0], len(r.noise) > 1; m.NoiseFollows {
				f.blocks(noiseRegion(r.noise).encode(8, nil))
			}
		}
		return
	}
	m := &pb.TilesSet{Version: st.Version, Theta: st.Theta, NoiseFollows: len(st.Noise) > 1}
	if !m.NoiseFollows {
		m.Noise = st.Noise[0]
	}
	f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Set{Set: m}})
	if m.NoiseFollows {
		f.blocks(noiseRegion(st.Noise).encode(8, nil))
	}
}

// recipe sends the blocks of pivots from one on, and returns the next: one after the last when all are sent, and their end.
func (f *outgoing) recipe(r *recipe, next int) int {
	blocks, open := r.known()
	for ; next < len(blocks); next++ {
		*f = append(*f, pivotsFrame(next, blocks[next]))
	}
	if !open && next == len(blocks) {
		f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Pivots{Pivots: &pb.TilesPivots{Block: int64(next), Last: true}}})
		next++
	}
	return next
}

// product begins a product.
func (f *outgoing) product(p *Product) {
	m := &pb.TilesProduct{Id: p.ID, Version: p.State.Version, Kind: kinds[p.Kind], Columns: int32(len(p.V)), Groups: int32(p.Groups), Trace: p.Trace, Chunk: int32(p.Chunk)}
	for _, g := range p.Group {
		m.Group = append(m.Group, int32(g))
	}
	if x := p.Pass; x != nil {
		m.Pass = &pb.TilesPass{Kind: int32(x.Kind), Of: string(x.Of), Inducing: int32(x.Z.Len()), Points: x.Points, Targets: x.Targets}
		for _, v := range x.Shared {
			m.Pass.Shared = append(m.Pass.Shared, int64(len(v)))
		}
	}
	if x := p.Exchange; x != nil {
		m.Key, m.Whole, m.Pieces = x.key, int32(x.whole), int32(x.pieces)
	}
	f.add(&pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}})
}

// forgone returns the vectors that the worker could not fetch since it was asked last.
func (s *session) forgone() pieces {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.gone
	s.gone = 0
	return gone
}

// chunkFrames returns the frames of a chunk that is to be held. They are encoded as they are sent: all together
// would take as much memory as it does.
func chunkFrames(r region) (fs []*frame) {
	for at := 0; at < r.len(); at += blockLen {
		f := &frame{}
		f.fill = func() {
			c := r.chunk(at, 8, nil)
			f.data, f.head = c.data, &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: &pb.TilesBlock{Offset: c.offset, Crc32C: c.crc}}}
		}
		fs = append(fs, f)
	}
	return fs
}

// send sends frames until ctx is done, and lets their data go. If it could not
// send all, the worker has to be told anew: of θ, the blocks of whose noise may be missing, too; of a
// factor only if it was not told of it, since it would drop what it holds. What is exchanged it sends in any
// case: others are told to fetch it.
func (s *session) send(ctx context.Context, p *Product, fs []*frame) {
	<-s.ready
	for i, f := range fs {
		if (ctx.Err() == nil || p.Exchange != nil) && s.alive() {
			if f.fill != nil {
				f.fill()
			}
			s.transmit(f)
		} else if i < len(fs)-1 {
			s.product = 0
			m, _ := f.head.(*pb.TilesRequest)
			_, open := m.GetRequest().(*pb.TilesRequest_Open)
			s.opened = s.opened && !open
			pivots := m.GetPivots()
			if pivots != nil {
				s.pivots = min(s.pivots, int(pivots.Block))
			}
			if m.GetFactor() != nil || p.L == nil || pivots != nil && pivots.Block == 0 { // before which the noise goes
				s.version = 0
			}
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
		case *pb.TilesResponse_Missing:
			s.missing(x.Missing)
		default:
			return errors.New("the worker sent a message of an unknown kind")
		}
	}
}

// missing takes in what a worker says of a unit for which it lacks something.
func (s *session) missing(m *pb.TilesMissing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[m.Unit]
	if c == nil || c.product.ID != m.Product {
		return
	}
	for _, i := range m.Points {
		if i >= 0 && i < 64 {
			s.gone |= 1 << i
		}
	}
	delete(s.calls, m.Unit)
	c.err = missing{m.Address, m.Reason}
	close(c.done)
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
