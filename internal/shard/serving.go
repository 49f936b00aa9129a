package shard

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// serving is one chain's session on a server.
type serving struct {
	*Server
	stream messages
	heard  atomic.Int64 // when the driver last sent something, in ns

	// Of the goroutine that receives; the one that computes uses op and what the
	// product holds while a unit is current.
	in         *frame
	inputs     *kernel.Inputs
	op         *cmvp.Operator
	covariance *kernel.Covariance
	state      State
	product    *Product
	have       pieces      // of its vectors
	space      [][]float64 // columns of vectors, kept from product to product
	fill       []filling   // what blocks are to fill
	full       func(i int) // what to do when one is

	out []float64 // of the goroutine that computes

	mu      sync.Mutex
	quiet   sync.Cond // current has become nil
	queue   []*request
	current *request
	changed chan struct{} // holds an element if the queue has grown
}

// request is a unit asked for.
type request struct {
	Unit
	id      uint64
	product *Product
	ctx     context.Context
	cancel  context.CancelFunc
}

func newServing(s *Server, stream messages) *serving {
	v := &serving{Server: s, stream: stream, in: &frame{}, changed: make(chan struct{}, 1)}
	v.quiet.L = &v.mu
	v.heard.Store(time.Now().UnixNano())
	return v
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// receive takes in what the driver sends until the stream ends. Units are computed
// under ctx.
func (v *serving) receive(ctx context.Context) error {
	for {
		m := &pb.TilesRequest{}
		v.in.head = m
		if err := v.stream.RecvMsg(v.in); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		v.heard.Store(time.Now().UnixNano())
		v.conf.Meter.received.Add(v.in.size() + int64(v.in.body.Remaining()))
		if err := v.take(ctx, m); err != nil {
			return err
		}
	}
}

// take takes in one message.
func (v *serving) take(ctx context.Context, m *pb.TilesRequest) error {
	open, isOpen := m.Request.(*pb.TilesRequest_Open)
	if isOpen == (v.op != nil) {
		return invalid("a session begins with one TilesOpen")
	}
	switch x := m.Request.(type) {
	case *pb.TilesRequest_Open:
		return v.open(ctx, open.Open)
	case *pb.TilesRequest_Set:
		return v.setParams(x.Set)
	case *pb.TilesRequest_Product:
		return v.begin(x.Product)
	case *pb.TilesRequest_Block:
		return v.block(x.Block)
	case *pb.TilesRequest_Unit:
		return v.unit(ctx, x.Unit)
	case *pb.TilesRequest_Cancel:
		v.abandon(x.Cancel.Unit)
		return nil
	}
	return invalid("a message of an unknown kind")
}

// setParams changes θ.
func (v *serving) setParams(m *pb.TilesSet) error {
	if want := len(v.covariance.Params()); len(m.Theta) != want {
		return invalid("%d parameters, want %d", len(m.Theta), want)
	}
	for i, p := range v.covariance.Params() {
		if x := m.Theta[i]; !finite(x) || p.Transform == param.Log && x < 0 {
			return invalid("the parameter %s is %g", p.Name(), x)
		}
	}
	if !finite(m.Noise) || m.Noise < 0 {
		return invalid("the noise is %g", m.Noise)
	}
	v.quiesce()
	v.product, v.fill = nil, nil
	v.state = State{Theta: m.Theta}
	set := func(noise []float64) {
		v.op.Set(spoilTheta(m.Theta), noise)
		v.state.Noise, v.state.Version = noise, m.Version
	}
	if !m.NoiseFollows {
		set([]float64{m.Noise})
		return nil
	}
	noise := make([]float64, v.inputs.Len())
	v.expect(8, []region{noiseRegion(noise)}, func(int) { set(noise) })
	return nil
}

// begin begins a product.
func (v *serving) begin(m *pb.TilesProduct) error {
	n, s := int64(v.inputs.Len()), int64(m.Columns)
	if m.Version == 0 || m.Version != v.state.Version {
		return invalid("product %d is for θ %d, not %d", m.Id, m.Version, v.state.Version)
	}
	if s < 1 || s > int64(v.conf.MaxColumns) {
		return invalid("product %d has %d columns: at least 1 and at most %d", m.Id, s, v.conf.MaxColumns)
	}
	p := &Product{ID: m.Id, State: &v.state, N: int(n), Trace: m.Trace}
	g := cmvp.NewGrid(p.N)
	sides, answer := int64(1), int64(0)
	for u := range g.Units() {
		answer = max(answer, s*int64(g.UnitRows(u)))
	}
	switch m.Kind {
	case pb.TilesKind_TILES_KIND_DOUBLE:
		p.Kind = Double
	case pb.TilesKind_TILES_KIND_SINGLE:
		p.Kind = Single
	case pb.TilesKind_TILES_KIND_FORMS:
		p.Kind, p.Groups, sides = Forms, int(m.Groups), 2
		if m.Groups < 1 || int64(m.Groups) > s || int64(len(m.Group)) != s {
			return invalid("product %d has %d groups for %d columns, in %d", m.Id, len(m.Group), s, m.Groups)
		}
		for _, g := range m.Group {
			if g < 0 || g >= m.Groups {
				return invalid("product %d has a column in group %d of %d", m.Id, g, m.Groups)
			}
			p.Group = append(p.Group, int(g))
		}
		p.Sums = v.op.FormSums(p.Groups)
		answer = int64(g.Tasks()) * int64(p.Sums)
	default:
		return invalid("product %d is of an unknown kind", m.Id)
	}
	// The vectors, their copies in the operator, and the answer in two forms.
	if need := 8 * (2*sides*n*s + 2*answer); need > v.conf.MaxBytes {
		return status.Errorf(codes.ResourceExhausted, "product %d takes %d bytes: more than the %d that a session has on this worker", m.Id, need, v.conf.MaxBytes)
	}
	v.quiesce()
	v.product, v.have = nil, 0
	for c := range sides * s {
		if c == int64(len(v.space)) {
			v.space = append(v.space, make([]float64, n))
		}
	}
	p.V, p.U = v.space[:s], v.space[s:sides*s]
	for range s {
		p.Factor = append(p.Factor, 1) // the driver has multiplied them
	}
	v.product = p
	v.expect(p.Kind.width(), p.regions(), func(i int) { v.have |= 1 << i })
	return nil
}

// filling is a region, and how much of it has come.
type filling struct {
	region
	width, filled int
}

// noiseRegion is that of the noise of all rows.
func noiseRegion(noise []float64) region {
	return region{columns: [][]float64{noise}, hi: len(noise)}
}

// expect makes the blocks that follow fill regions with numbers of some width; full is
// called when they have filled one.
func (v *serving) expect(width int, regions []region, full func(i int)) {
	v.fill, v.full = nil, full
	for _, r := range regions {
		v.fill = append(v.fill, filling{region: r, width: width})
	}
}

// block takes in numbers of vectors.
func (v *serving) block(m *pb.TilesBlock) error {
	i := slices.IndexFunc(v.fill, func(f filling) bool { return m.Offset == uint64(f.start+f.filled) && f.filled < f.len() })
	if i < 0 {
		return invalid("a block of numbers from %d on, which nothing asked for", m.Offset)
	}
	f := &v.fill[i]
	k := v.in.numbers(f.width)
	if k == 0 || k > f.len()-f.filled {
		return invalid("a block of numbers [%d,+%d), of which %d are wanted", m.Offset, k, f.len()-f.filled)
	}
	err := v.in.read(f.width, m.Crc32C, func(yield func([]float64) bool) {
		for _, x := range f.parts(f.filled, k) {
			if !yield(x) {
				return
			}
		}
	})
	if err != nil {
		return status.Errorf(codes.DataLoss, "numbers [%d,+%d): %v", m.Offset, k, err)
	}
	if f.filled += k; f.filled == f.len() {
		v.full(i)
	}
	return nil
}

// unit takes in a request.
func (v *serving) unit(ctx context.Context, m *pb.TilesUnit) error {
	p := v.product
	if p == nil || m.Product != p.ID {
		return invalid("a unit of product %d, which is not there", m.Product)
	}
	ok := 0 <= m.Lo && m.Lo < m.Hi && m.Hi <= int64(p.units())
	if p.Kind != Forms {
		ok = ok && m.Hi == m.Lo+1 // so that answers take no more memory than was reckoned with
	}
	if !ok {
		return invalid("unit %d is [%d,%d), which is no part of a product over %d rows", m.Id, m.Lo, m.Hi, p.N)
	}
	if p.needs(Unit{int(m.Lo), int(m.Hi)})&^v.have != 0 {
		return invalid("unit %d needs vectors that have not come", m.Id)
	}
	r := &request{Unit: Unit{int(m.Lo), int(m.Hi)}, id: m.Id, product: p}
	r.ctx, r.cancel = context.WithCancel(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) >= v.conf.MaxUnits {
		r.cancel()
		return status.Errorf(codes.ResourceExhausted, "%d units wait already", len(v.queue))
	}
	v.queue = append(v.queue, r)
	select {
	case v.changed <- struct{}{}:
	default:
	}
	return nil
}

// abandon drops a unit that is not needed any more.
func (v *serving) abandon(id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != nil && v.current.id == id {
		v.current.cancel()
	}
	v.queue = slices.DeleteFunc(v.queue, func(r *request) bool {
		if r.id != id {
			return false
		}
		r.cancel()
		return true
	})
}

// quiesce drops all units and waits until none is computed.
func (v *serving) quiesce() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.queue {
		r.cancel()
	}
	v.queue = nil
	for v.current != nil {
		v.current.cancel()
		v.quiet.Wait()
	}
}
