package shard

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
)

const (
	// maxLoads bounds how many members are sent rows of a factor at a time: all come through the driver's card.
	maxLoads = 4
	// A member has as long for a chunk: slowest times what it should take, and a while.
	slowest, aWhile = 20, 10 * time.Second
)

// factor is the factor L of a preconditioner P = B + L·Lᵀ over a group: dense.Products whose bits are
// those of the driver's own matrix.
//
// The driver has all of L, so that it can finish any product alone; each member holds some of the chunks of its
// rows, which it was sent once, or computed by a recipe where there is one and that is sooner. It does so in the background, when as much time has been spent on products of the
// driver alone as it will take: a preconditioner that is not used for long is not sent.
type factor struct {
	g      *Group
	m      *matrix
	l      *dense.Matrix
	state  *State  // its number
	owner  []*peer // who is to hold each chunk; nil for the driver alone
	alone  float64 // seconds that its products took the driver alone
	how    *precond.Recipe
	growth *growth // if members compute it, and nobody has all of it
	loads  bool    // whether members are to hold rows: the recipe of m, or none, stays then
}

// Share returns what multiplies by the factor of a preconditioner over the group. The last factor that was multiplied by is the one that the
// members hold.
func (g *Group) Share(how precond.Factor) dense.Products {
	if f, ok := how.By.(*factor); ok && f.g == g {
		return f
	}
	if how.Matrix == nil { // another group has it
		f := g.newSpread(how.Rank, &recipe{theta: how.Recipe.Theta, noise: how.Recipe.Noise, blocks: how.Recipe.Blocks})
		return f
	}
	rows, cols := how.Matrix.Dims()
	if rows != g.Len() || cols > rows {
		return how.Matrix
	}
	g.versions++
	m := matrixOf(how.Matrix)
	return &factor{g: g, m: m, l: how.Matrix, state: &State{Version: g.versions}, owner: make([]*peer, len(m.chunks)), how: how.Recipe}
}

// MulTrans sets dst[c] = Lᵀ·v[c].
func (f *factor) MulTrans(ctx context.Context, dst, v [][]float64, b *parallel.Budget) error {
	return f.product(ctx, &Product{Kind: Trans, V: v, N: f.m.rows}, dst, b, f.l.MulTrans)
}

// MulAdd adds L·w[c] to dst[c].
func (f *factor) MulAdd(ctx context.Context, dst, w [][]float64, b *parallel.Budget) error {
	return f.product(ctx, &Product{Kind: Low, V: w, N: f.m.cols}, dst, b, f.l.MulAdd)
}

// product computes a product over the group, or alone.
func (f *factor) product(ctx context.Context, p *Product, dst [][]float64, b *parallel.Budget, alone func(context.Context, [][]float64, [][]float64, *parallel.Budget) error) error {
	g, s := f.g, &f.g.factors
	if f.growth != nil {
		return f.overAll(ctx, p, dst, b)
	}
	holders := f.holders()
	whole := Apply{Rows: f.m.rows, Rank: f.m.cols, Columns: len(p.V), Rate: s.rate / 2, Bandwidth: g.conf.Bandwidth}
	if len(holders) == 0 || s.rate == 0 || !g.eager && whole.Members(1+len(holders)) == 1 {
		began := time.Now()
		err := alone(ctx, dst, p.V, b)
		took := time.Since(began).Seconds()
		f.alone += took
		s.rate = f.m.elements(Unit{0, len(f.m.chunks)}) * float64(len(p.V)) / max(took, 1e-9)
		return err
	}
	p.ID, p.State, p.L = g.ids.Add(1), f.state, f.m
	p.prepare()
	defer p.free()
	size := p.Size(Unit{0, p.units()})
	if cap(g.chunks) < size {
		g.chunks = make([]float64, size)
	}
	sums := g.chunks[:size]
	shares, err := s.run(ctx, p, holders, func(u Unit, out []float64) { copy(p.place(sums, u), out) })
	if err == nil {
		err = f.verify(ctx, p, sums, shares)
	}
	if err != nil {
		if ctx.Err() == nil {
			g.failed = err // whoever applies P looks at nothing else
		}
		return err
	}
	f.m.reduce(p, dst, sums, b)
	return nil
}

// verify computes chunks again of which members made something doubtful, or not the same, puts
// aside the members that were wrong, and replaces what they answered.
func (f *factor) verify(ctx context.Context, p *Product, sums []float64, shares []share) error {
	for _, s := range shares {
		again := s.by != nil && p.doubtful[s.Lo].Load()
		for _, o := range s.others {
			again = again || !sameBits(p.place(sums, s.Unit), o.out)
		}
		if again {
			if _, err := f.g.right(ctx, p, sums, s, s.Unit); err != nil {
				return err
			}
		}
	}
	return nil
}

// holders returns the members that hold rows of L, and has what is missing sent.
func (f *factor) holders() []*peer {
	g := f.g
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	if len(peers) == 0 || g.Len() < g.conf.MinRows {
		return nil
	}
	if !f.loads {
		f.loads = f.alone > f.loading(len(peers))
	}
	if !f.loads {
		return nil
	}
	f.m.prepare(g.Budget())
	now := time.Now()
	for _, p := range peers {
		if err := p.rows.failure(); err != nil && !p.until.After(now) {
			p.setAside(now)
			g.conf.Log.Warn("group member gets no work for a while", "member", p.name, "seconds", p.backoff.Seconds(), "reason", err)
		}
	}
	return f.spread(peers, now)
}

// loading returns how long it takes some members to be sent their chunks, or to compute them: whichever is sooner, which it settles.
func (f *factor) loading(members int) (seconds float64) {
	a := Apply{Rows: f.m.rows, Rank: f.m.cols, Rate: f.g.factors.rate, Bandwidth: f.g.conf.Bandwidth}
	seconds, f.m.recipe = a.Sending(), nil
	if f.how == nil || a.Rate == 0 {
		return seconds
	}
	if t := a.Growing(1 + members); t < seconds || f.g.recipes {
		f.m.recipe = &recipe{theta: f.how.Theta, noise: f.how.Noise, blocks: f.how.Blocks, seconds: t}
		return min(t, seconds)
	}
	return seconds
}

// spread says who is to hold what, and has it sent. It returns those that hold something.
func (f *factor) spread(peers []*peer, now time.Time) (holders []*peer) {
	f.assign(peers, now)
	for _, p := range peers {
		if p.until.After(now) {
			continue
		}
		var want pieces
		for i, o := range f.owner {
			if o == p {
				want |= 1 << i
			}
		}
		p.rows.want(f, want)
		if p.rows.ready(f.state) != 0 {
			holders = append(holders, p)
		}
	}
	return holders
}

// longAside is for how long a member must be put aside for others to be sent what it holds.
const longAside = 10 * time.Second

// assign gives the members, and the driver, about equally many chunks, and the driver none where there are members enough: it has matrices of order m
// besides, and vectors to see to. Those that a member has it keeps, as far as that goes.
func (f *factor) assign(peers []*peer, now time.Time) {
	count := map[*peer]int{nil: 0}
	for _, p := range peers {
		if p.until.Sub(now) < longAside && p.rows.most() > 0 {
			count[p] = 0
		}
	}
	for i, o := range f.owner {
		if _, ok := count[o]; !ok {
			f.owner[i] = nil
		}
		count[f.owner[i]]++
	}
	for {
		var from, to *peer // nil is the driver
		for _, p := range peers {
			n, ok := count[p]
			if !ok {
				continue
			}
			if n > count[from] {
				from = p
			}
			if n < p.rows.most() && (to == nil || n < count[to]) {
				to = p
			}
		}
		if idle := from == nil && to != nil && count[from] > 0 && count[to] == 0; to == nil || count[from]-count[to] < 2 && !idle {
			return
		}
		has, move := to.rows.ready(f.state), -1
		for i, o := range f.owner {
			if o == from && (move < 0 || has&(1<<i) != 0) {
				move = i
			}
		}
		f.owner[move] = to
		count[from]--
		count[to]++
	}
}

// holder is a member as it holds rows of a factor: over a session of its own, so that these may
// be on their way while products with K go on.
type holder struct {
	Member
	g       *Group
	name    string
	sending sync.WaitGroup

	mu      sync.Mutex
	version uint64 // of the factor
	held    pieces
	limit   int                // chunks that it has room for; 0 once it is closed
	stop    context.CancelFunc // of what is on its way; nil if nothing is
	err     error              // why that failed
}

// Do computes a unit. A member that fails has lost its session, and all that it held.
func (h *holder) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	err := h.Member.Do(ctx, p, u, out)
	if err != nil && ctx.Err() == nil {
		h.lose(p.State, nil)
		if p.holds != nil {
			h.mu.Lock()
			switch status.Code(err) {
			case codes.ResourceExhausted: // it has room for fewer
				h.limit /= 2
			case codes.InvalidArgument: // it is of a version that builds none
				h.limit = 0
			}
			h.mu.Unlock()
		}
	}
	if err == nil && p.holds != nil {
		h.mu.Lock()
		h.held |= rowsOf(u)
		h.mu.Unlock()
	}
	return err
}

// begin begins a factor that members compute.
func (h *holder) begin(s *State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.version != s.Version {
		if h.stop != nil {
			h.stop()
		}
		h.version, h.held = s.Version, 0
	}
}

func (h *holder) lose(s *State, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.version == s.Version {
		h.held, h.err = 0, err
	}
}

// failure returns why sending failed since it was asked last.
func (h *holder) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.err
	h.err = nil
	return err
}

// most returns how many chunks the member has room for, as far as that is known.
func (h *holder) most() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.limit
}

// ready returns the chunks of a factor that the member holds and can compute with: none while others are
// on their way.
func (h *holder) ready(s *State) pieces {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil || h.version != s.Version {
		return 0
	}
	return h.held
}

// want has chunks sent to the member that it does not hold. What is on its way of another factor ends.
func (h *holder) want(f *factor, chunks pieces) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil {
		if h.version != f.state.Version {
			h.stop()
		}
		return
	}
	if h.version != f.state.Version {
		h.version, h.held = f.state.Version, 0
	}
	if missing := chunks &^ h.held; missing != 0 && h.limit > 0 {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.sending.Go(func() { h.load(ctx, f, missing) })
	}
}

// Close ends what is on its way, and the session.
func (h *holder) Close() error {
	h.mu.Lock()
	h.limit = 0
	if h.stop != nil {
		h.stop()
	}
	h.mu.Unlock()
	h.sending.Wait()
	return h.Member.Close()
}

// load sends chunks.
func (h *holder) load(ctx context.Context, f *factor, chunks pieces) {
	err := h.send(ctx, f, chunks)
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := ctx.Err() != nil
	h.stop()
	h.stop = nil
	if err == nil {
		h.g.conf.Log.Info("group member holds rows of the preconditioner", "member", h.name, "chunks", bits.OnesCount64(uint64(h.held)), "of", len(f.m.chunks))
	}
	if err == nil || ended {
		return
	}
	switch status.Code(err) {
	case codes.ResourceExhausted: // somebody else's chain was faster
		h.limit = bits.OnesCount64(uint64(h.held))
	case codes.InvalidArgument, codes.FailedPrecondition: // it knows nothing of factors
		h.limit = 0
	default:
		h.err = err
	}
	h.held = 0
}

func (h *holder) send(ctx context.Context, f *factor, chunks pieces) error {
	if f.m.recipe == nil {
		select {
		case h.g.sending <- struct{}{}:
			defer func() { <-h.g.sending }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for i := range f.m.chunks {
		if chunks&(1<<i) == 0 {
			continue
		}
		p := &Product{ID: h.g.ids.Add(1), Kind: Hold, State: f.state, N: f.m.rows, L: f.m, Chunk: i}
		var answer [2]float64
		if err := h.sendChunk(ctx, p, answer[:]); err != nil {
			return err
		}
		h.mu.Lock()
		h.held |= 1 << i
		full := answer[1] < float64(f.m.bytes(i))
		if full {
			h.limit = bits.OnesCount64(uint64(h.held))
		}
		h.mu.Unlock()
		if full {
			return nil
		}
	}
	return nil
}

// sendChunk sends one chunk.
func (h *holder) sendChunk(ctx context.Context, p *Product, answer []float64) error {
	expected := maxLoads * float64(p.L.bytes(p.Chunk)) / h.g.conf.Bandwidth
	if p.L.recipe != nil { // the first has the rows of all pivots computed
		expected = p.L.recipe.seconds
	}
	ctx, cancel := context.WithTimeout(ctx, aWhile+time.Duration(slowest*expected*1e9))
	defer cancel()
	if err := h.Member.Do(ctx, p, Unit{0, 1}, answer); err != nil {
		return err
	}
	return p.check(Unit{0, 1}, answer)
}
