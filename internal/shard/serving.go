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
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
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
	theta      []float64 // as op is to have it
	unset      bool      // op has it not yet: it is for products alone
	approx     approximation
	l          *matrix // in place of θ; nil if the session is of K(θ)
	pivoted    int     // pivots of it that have come
	product    *Product
	have       pieces      // of its vectors
	space      [][]float64 // columns of vectors, kept from product to product
	fill       []filling   // what blocks are to fill
	full       func(i int) // what to do when one is

	// Of a product that is kept.
	key       string
	kept      keeping
	fetched   map[int]*arrival // vectors that are, or were, on their way from other members
	fetchCtx  context.Context  // of those of the product
	stopFetch context.CancelFunc
	fetching  sync.WaitGroup

	// Of the goroutine that computes.
	out    []float64
	broken error // why it cannot go on

	mu       sync.Mutex
	bytes    int64     // that the rows of the factor take
	whole    pieces    // the chunks of it that are here
	reserved pieces    // those that room was made for before they are computed
	ended    bool      // the session
	quiet    sync.Cond // current has become nil
	queue    []*request
	current  *request
	changed  chan struct{} // holds an element if the queue has grown
}

// request is a unit asked for.
type request struct {
	Unit
	id      uint64
	product *Product
	ctx     context.Context
	cancel  context.CancelFunc
	waits   []*arrival // for what
	add     bool       // the first of them is the answer
}

func newServing(s *Server, stream messages) *serving {
	v := &serving{Server: s, stream: stream, in: &frame{}, changed: make(chan struct{}, 1), stopFetch: func() {}}
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
	case *pb.TilesRequest_Factor:
		return v.setFactor(x.Factor)
	case *pb.TilesRequest_Pivots:
		return v.pivots(x.Pivots)
	case *pb.TilesRequest_Product:
		return v.begin(ctx, x.Product)
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
	if err := v.checkParams(m.Theta, m.Noise); err != nil {
		return err
	}
	v.quiesce()
	v.kept.begin(nil)
	v.product, v.fill = nil, nil
	v.drop()
	v.state = State{Theta: m.Theta}
	set := func(noise []float64) {
		v.theta, v.unset = spoilTheta(m.Theta), true
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

// checkParams returns an error if θ or the noise cannot be right.
func (v *serving) checkParams(theta []float64, noise float64) error {
	if want := len(v.covariance.Params()); len(theta) != want {
		return invalid("%d parameters, want %d", len(theta), want)
	}
	for i, p := range v.covariance.Params() {
		if x := theta[i]; !finite(x) || p.Transform == param.Log && x < 0 {
			return invalid("the parameter %s is %g", p.Name(), x)
		}
	}
	if !finite(noise) || noise < 0 {
		return invalid("the noise is %g", noise)
	}
	return nil
}

// setFactor begins a factor.
func (v *serving) setFactor(m *pb.TilesFactor) error {
	if n := int64(v.inputs.Len()); m.Rows != n || m.Columns < 1 || m.Columns > n {
		return invalid("a factor of %d rows and %d columns over %d rows", m.Rows, m.Columns, n)
	}
	v.quiesce()
	v.product, v.fill = nil, nil
	v.drop()
	v.l, v.state = newMatrix(int(m.Rows), int(m.Columns)), State{Version: m.Version}
	if len(m.Theta) > 0 {
		return v.byRecipe(m)
	}
	return nil
}

// drop frees the rows of a factor.
func (v *serving) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held.Add(-v.bytes)
	v.l, v.whole, v.reserved, v.bytes = nil, 0, 0, 0
}

// end frees them for good: who receives may be at work still.
func (v *serving) end() {
	v.kept.end()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unregister(v.key, v)
	v.held.Add(-v.bytes)
	v.bytes, v.ended = 0, true
}

// reserve makes room for a chunk.
func (v *serving) reserve(bytes int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return status.Error(codes.Canceled, "the session is over")
	}
	if v.held.Add(bytes) > v.conf.Room() {
		v.held.Add(-bytes)
		return status.Errorf(codes.ResourceExhausted, "a chunk of %d bytes: this worker has room for %d", bytes, v.room())
	}
	v.bytes += bytes
	return nil
}

// reserveGrown makes room for a chunk that is to be computed, and with the first for what they are computed from.
func (v *serving) reserveGrown(chunk int) error {
	v.mu.Lock()
	has, bytes := v.reserved, v.l.bytes(chunk)
	v.mu.Unlock()
	if has&(1<<chunk) != 0 {
		return nil
	}
	if has == 0 {
		bytes += v.l.seed()
	}
	if err := v.reserve(bytes); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reserved |= 1 << chunk
	return nil
}

// room returns how many bytes of rows more the worker can hold.
func (v *serving) room() int64 { return max(0, v.conf.Room()-v.held.Load()) }

// hold begins a chunk that is to be held.
func (v *serving) hold(m *pb.TilesProduct) error {
	if v.l == nil || m.Chunk < 0 || int(m.Chunk) >= len(v.l.chunks) || v.l.chunks[m.Chunk] != nil {
		return invalid("chunk %d of a factor, which is there, or none", m.Chunk)
	}
	p := &Product{ID: m.Id, Kind: Hold, State: &v.state, N: v.l.rows, L: v.l, Chunk: int(m.Chunk)}
	v.quiesce()
	if g := v.l.grower; g != nil {
		if !g.set {
			return invalid("chunk %d of a factor before its noise", m.Chunk)
		}
		if err := v.reserveGrown(p.Chunk); err != nil {
			return err
		}
		v.product, v.have, v.fill = p, 1, nil
		return nil
	}
	if err := v.reserve(v.l.bytes(p.Chunk)); err != nil {
		return err
	}
	v.l.chunks[p.Chunk] = dense.New(int(v.l.elements(Unit{p.Chunk, p.Chunk + 1}))/v.l.cols, v.l.cols)
	v.product, v.have = p, 0
	v.expect(8, p.regions(), func(int) {
		v.have = 1
		v.nowWhole(p.Chunk)
	})
	return nil
}

// nowWhole notes that a chunk is here.
func (v *serving) nowWhole(chunk int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.whole |= 1 << chunk
}

// begin begins a product.
func (v *serving) begin(ctx context.Context, m *pb.TilesProduct) error {
	if m.Version == 0 || m.Version != v.state.Version {
		return invalid("product %d is for θ %d, not %d", m.Id, m.Version, v.state.Version)
	}
	switch m.Kind {
	case pb.TilesKind_TILES_KIND_HOLD:
		return v.hold(m)
	case pb.TilesKind_TILES_KIND_PASS:
		return v.beginPass(m)
	case pb.TilesKind_TILES_KIND_GROW, pb.TilesKind_TILES_KIND_GRAM:
		return v.grown(m)
	}
	p, answer, err := v.describe(m)
	if err != nil {
		return err
	}
	if len(m.Key) > 0 {
		if err := v.layOut(p, m); err != nil {
			return err
		}
	}
	n, s, sides := int64(v.inputs.Len()), int64(m.Columns), int64(1)
	if p.Kind == Forms {
		sides = 2
	}
	// The vectors, their copies in the operator, and the answer in two forms.
	if need := 8 * (2*sides*n*s + 2*answer); need > v.conf.MaxBytes {
		return status.Errorf(codes.ResourceExhausted, "product %d takes %d bytes: more than the %d that a session has on this worker", m.Id, need, v.conf.MaxBytes)
	}
	v.quiesce()
	if v.unset && p.L == nil {
		v.op.Set(v.theta, v.state.Noise)
		v.unset = false
	}
	if v.product != nil && v.product.ID == p.ID { // others may be reading it
		v.space = nil
	}
	v.product, v.have = nil, 0
	v.lend(p, s, sides)
	v.product = p
	regions, full := p.regions(), func(i int) { v.have |= 1 << i }
	if p.Exchange != nil {
		v.exchange(ctx, p)
		full = func(i int) {
			v.have |= 1 << i
			v.kept.arrived(i, regions[i])
		}
	} else {
		v.kept.begin(nil)
	}
	v.expect(p.Kind.width(), regions, full)
	return nil
}

// describe returns a product with K or a factor, without its vectors, and of how many numbers an answer to it is at the most.
func (v *serving) describe(m *pb.TilesProduct) (p *Product, answer int64, err error) {
	n, s := int64(v.inputs.Len()), int64(m.Columns)
	if s < 1 || s > int64(v.conf.MaxColumns) {
		return nil, 0, invalid("product %d has %d columns: at least 1 and at most %d", m.Id, s, v.conf.MaxColumns)
	}
	p = &Product{ID: m.Id, State: &v.state, N: int(n), L: v.l, Trace: m.Trace}
	if of := m.Kind == pb.TilesKind_TILES_KIND_TRANS || m.Kind == pb.TilesKind_TILES_KIND_LOW; of != (v.l != nil) {
		return nil, 0, invalid("product %d is with K or with a factor, and the session is not", m.Id)
	}
	g := cmvp.NewGrid(p.N)
	for u := range g.Units() {
		answer = max(answer, s*int64(g.UnitRows(u)))
	}
	switch m.Kind {
	case pb.TilesKind_TILES_KIND_DOUBLE:
		p.Kind = Double
	case pb.TilesKind_TILES_KIND_SINGLE:
		p.Kind = Single
	case pb.TilesKind_TILES_KIND_FORMS:
		p.Kind, p.Groups = Forms, int(m.Groups)
		if m.Groups < 1 || int64(m.Groups) > s || int64(len(m.Group)) != s {
			return nil, 0, invalid("product %d has %d groups for %d columns, in %d", m.Id, len(m.Group), s, m.Groups)
		}
		for _, g := range m.Group {
			if g < 0 || g >= m.Groups {
				return nil, 0, invalid("product %d has a column in group %d of %d", m.Id, g, m.Groups)
			}
			p.Group = append(p.Group, int(g))
		}
		p.Sums = v.op.FormSums(p.Groups)
		answer = int64(g.Tasks()) * int64(p.Sums)
	case pb.TilesKind_TILES_KIND_TRANS:
		p.Kind, answer = Trans, s*int64(v.l.cols)
	case pb.TilesKind_TILES_KIND_LOW:
		p.Kind, p.N, answer = Low, v.l.cols, s*(n/int64(len(v.l.chunks))+tile.Size)
	default:
		return nil, 0, invalid("product %d is of an unknown kind", m.Id)
	}
	return p, answer, nil
}

// lend gives a product its vectors, of which there are s on each side: those of the product before it, unless others may be reading them.
func (v *serving) lend(p *Product, s, sides int64) {
	for c := range sides * s {
		if c == int64(len(v.space)) {
			v.space = append(v.space, make([]float64, v.inputs.Len()))
		}
	}
	for c := range sides * s {
		if x := v.space[c][:p.N]; c < s {
			p.V = append(p.V, x)
		} else {
			p.U = append(p.U, x)
		}
	}
	for range s {
		p.Factor = append(p.Factor, 1) // the driver has multiplied them
	}
}

// layOut lays out a product that is to be kept.
func (v *serving) layOut(p *Product, m *pb.TilesProduct) error {
	g := cmvp.NewGrid(p.N)
	units, least := g.Units(), g.Tasks()
	for i := range units {
		lo, hi := g.UnitTasks(i)
		least = min(least, hi-lo)
	}
	if p.Kind != Double && p.Kind != Single || len(m.Key) != keyLen || m.Whole < 0 || int(m.Whole) > units || m.Pieces < 1 || int(m.Pieces) > max(1, least) || m.Pieces == 1 && int(m.Whole) != units {
		return invalid("product %d of %d whole units and %d pieces of others, of %d units, under a key of %d bytes", m.Id, m.Whole, m.Pieces, units, len(m.Key))
	}
	p.Exchange = &exchange{layout: layoutOf(p.N, int(m.Whole), int(m.Pieces)), key: m.Key}
	return nil
}

// exchange begins a product that is kept.
func (v *serving) exchange(ctx context.Context, p *Product) {
	v.fetched = map[int]*arrival{}
	v.fetchCtx, v.stopFetch = context.WithCancel(ctx)
	v.kept.begin(p)
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := string(p.Exchange.key); key != v.key && !v.ended {
		v.unregister(v.key, v)
		v.key = key
		v.register(key, v)
	}
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
	if i < 0 && v.product != nil && v.product.Exchange != nil && m.Offset < uint64(len(v.product.V)*v.product.N) {
		return nil // it has come from another member, or twice because that was late
	}
	if i < 0 {
		return invalid("a block of numbers from %d on, which nothing asked for", m.Offset)
	}
	f := &v.fill[i]
	if len(f.columns) == 1 && f.columns[0] == nil { // of LᵀL: what is not computed here does not come
		f.columns[0] = make([]float64, f.hi)
	}
	k := v.in.numbers(f.width)
	if k == 0 || k > f.len()-f.filled {
		return invalid("a block of numbers [%d,+%d), of which %d are wanted", m.Offset, k, f.len()-f.filled)
	}
	if err := v.in.read(f.width, m.Crc32C, f.slices(f.filled, k)); err != nil {
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
	most := p.units()
	if m.Add && p.Exchange != nil {
		most = p.Exchange.grid.Points()
	}
	ok := 0 <= m.Lo && m.Lo < m.Hi && m.Hi <= int64(most) && (!m.Add || p.Exchange != nil)
	switch p.Kind {
	case Forms:
	case Pass:
		ok = ok && slices.Contains(p.split(0, 0), Unit{int(m.Lo), int(m.Hi)})
	default:
		ok = ok && m.Hi == m.Lo+1 && p.Size(Unit{int(m.Lo), int(m.Hi)}) > 0 // so that answers take no more memory than was reckoned with
	}
	if !ok {
		return invalid("unit %d is [%d,%d), which is no part of a product over %d rows", m.Id, m.Lo, m.Hi, p.N)
	}
	if p.L != nil && p.Kind != Hold {
		if err := v.mayHave(p, int(m.Lo)); err != nil {
			return err
		}
	}
	r := &request{Unit: Unit{int(m.Lo), int(m.Hi)}, id: m.Id, product: p, add: m.Add}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if p.Exchange != nil {
		if err := v.await(r, m.Sources); err != nil {
			r.cancel()
			return err
		}
	} else if p.needs(r.Unit)&^v.have != 0 {
		r.cancel()
		return invalid("unit %d needs vectors that have not come", m.Id)
	}
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

// mayHave returns an error if a chunk is not here, and cannot be computed.
func (v *serving) mayHave(p *Product, chunk int) error {
	if g := v.l.grower; g != nil {
		if _, open := g.known(); open != (p.Kind == Grow) {
			return invalid("product %d of a factor whose pivots are not all here, or are", p.ID)
		}
		return v.reserveGrown(chunk)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.whole&(1<<chunk) == 0 {
		return invalid("product %d needs chunk %d, which is not held", p.ID, chunk)
	}
	return nil
}

// await notes what a unit of a product that is kept waits for, and has it fetched.
func (v *serving) await(r *request, sources []*pb.TilesSource) error {
	p, x := r.product, r.product.Exchange
	if r.add {
		if k := len(sources); k == 0 || k > len(x.parts[r.Lo]) {
			return invalid("unit %d: %d parts of point %d", r.id, k, r.Lo)
		}
		r.waits = []*arrival{v.addUp(r.ctx, p, r.Lo, sources)}
		return nil
	}
	if err := v.kept.reserve(len(p.V)*x.rows(r.Lo, -1), v.conf.MaxBytes); err != nil {
		return err
	}
	for _, s := range sources {
		if s.Point < 0 || int(s.Point) >= x.grid.Points() || s.Address == "" {
			return invalid("unit %d: point %d from %q", r.id, s.Point, s.Address)
		}
		if point := int(s.Point); v.have&(1<<point) == 0 && !v.coming(point) {
			v.fetched[point] = v.fetch(p, point, s.Address)
		}
	}
	for i := range x.grid.Points() {
		if x.points[r.Lo]&^v.have&(1<<i) == 0 {
			continue
		}
		a := v.fetched[i]
		if a == nil {
			return invalid("unit %d needs vectors that have not come", r.id)
		}
		r.waits = append(r.waits, a)
	}
	return nil
}

// coming reports whether the vectors of a point are on their way from another member, or have come.
func (v *serving) coming(point int) bool {
	a := v.fetched[point]
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return a.err == nil
	default:
		return true
	}
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

// quiesce drops all units and waits until none is computed and nothing fetched.
func (v *serving) quiesce() {
	v.stopFetch()
	defer v.fetching.Wait()
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
