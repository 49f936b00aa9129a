package shard

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/sparse"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A sparse approximation is sums over rows (sparse.Pass), block by block. A group computes them as it does forms: ranges of blocks are
// units, for which a member is sent what is known of their rows, and, once, the inducing inputs and what all blocks are
// computed from. The driver adds up what blocks come to, in their order, when all are there: M²/2 numbers for each of n/4096
// blocks of a Gram matrix, of the other passes some for each row.

const (
	// passUnits is the number of units of a pass at most: one piece of the vectors each, and one for what is shared.
	passUnits = 63
	// sampled is one in how many blocks is computed again by the driver, about, to be compared.
	sampled = 64
)

// pass is a sparse.Pass as members are told of it.
type pass struct {
	*sparse.Pass
	over     *sparse.Approximation
	inducing int       // inputs
	shared   []float64 // these, then Pass.Shared
}

func newPass(p *sparse.Pass, over *sparse.Approximation) *pass {
	shared := make([]float64, 0, p.Z.Len()*p.Z.Dim())
	for i := range p.Z.Len() {
		shared = append(shared, p.Z.Row(i)...)
	}
	return &pass{p, over, p.Z.Len(), append(shared, slices.Concat(p.Shared...)...)}
}

// groups returns the number of units of n rows that there are at most.
func passGroups(n int) int { return min(passUnits, sparse.Blocks(n)) }

// passUnit returns the blocks of a unit.
func passUnit(n, i int) Unit {
	blocks, groups := sparse.Blocks(n), passGroups(n)
	return Unit{i * blocks / groups, (i + 1) * blocks / groups}
}

// rows returns the rows of some blocks.
func (u Unit) rows(n int) (lo, hi int) {
	lo, _ = sparse.BlockRows(n, u.Lo)
	_, hi = sparse.BlockRows(n, u.Hi-1)
	return lo, hi
}

// size returns how many numbers the blocks of a unit come to.
func (p *pass) size(n int, u Unit) (sum int) {
	if u.Lo == u.Hi {
		return 0
	}
	last := u.Hi - 1
	if u.Lo < last { // all blocks but the last one are of one size
		sum = (last - u.Lo) * p.over.Size(p.Pass, u.Lo)
	}
	return sum + p.over.Size(p.Pass, last)
}

// work returns how many elements of K, once for each inducing input, a unit ranges over.
func (p *pass) work(n int, u Unit) float64 {
	lo, hi := u.rows(n)
	m := float64(p.Z.Len())
	return float64(hi-lo) * m * m
}

// needs returns the pieces that a unit is computed from.
func (p *pass) needs(n int, u Unit) pieces {
	needed := pieces(1) << passGroups(n)
	if len(p.Rows) == 0 {
		return needed
	}
	for i := range passGroups(n) {
		if g := passUnit(n, i); g.Lo < u.Hi && u.Lo < g.Hi {
			needed |= 1 << i
		}
	}
	return needed
}

// regions returns where the numbers of each piece belong.
func (p *pass) regions(n int) (all []region) {
	for i := range passGroups(n) {
		lo, hi := passUnit(n, i).rows(n)
		all = append(all, region{columns: p.Rows, lo: lo, hi: hi, start: lo * len(p.Rows)})
	}
	return append(all, region{columns: [][]float64{p.shared}, hi: len(p.shared), start: n * len(p.Rows)})
}

// compute sets out to what the blocks of a unit come to.
func (p *pass) compute(ctx context.Context, u Unit, out []float64) error {
	for i := u.Lo; i < u.Hi; i++ {
		k := p.over.Size(p.Pass, i)
		if err := p.over.Compute(ctx, p.Pass, i, out[:k]); err != nil {
			return err
		}
		out = out[k:]
	}
	return nil
}

// check returns an error if the answer of a unit cannot be right.
func (p *pass) check(u Unit, out []float64) error {
	for i := u.Lo; i < u.Hi; i++ {
		k := p.over.Size(p.Pass, i)
		if !p.over.CheckPart(p.Pass, i, out[:k]) {
			return fmt.Errorf("block %d is not finite, or not what its rows make of it", i)
		}
		out = out[k:]
	}
	return nil
}

// Pays reports whether a group shares a pass of an approximation.
func (g *Group) Pays(a *sparse.Approximation, k sparse.PassKind) bool {
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	if len(peers) == 0 || g.Len() < g.conf.MinRows || a.Len() != g.Len() {
		return false
	}
	return g.eager || g.passCost(a.Inducing().Len(), a.Inducing().Dim(), k).Members(1+len(peers)) > 1
}

// passCost returns the model of a pass.
func (g *Group) passCost(m, d int, k sparse.PassKind) Sums {
	shared, columns, _ := sparse.PassShape(k, m)
	s := Sums{Rows: g.Len(), Inducing: m, Columns: columns, Shared: m * d, Rate: g.passRates[k], Bandwidth: g.conf.Bandwidth}
	for _, x := range shared {
		s.Shared += x
	}
	if s.Each = g.Len() / sparse.Blocks(g.Len()); k == sparse.Gram {
		s.Each += m * m / 2
	}
	return s
}

// Sum computes a pass over the group, as sparse.Summer.
func (g *Group) Sum(ctx context.Context, a *sparse.Approximation, of *sparse.Pass, take func(block int, part []float64)) error {
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	if theta := a.Function().Theta(); g.passState == nil || !slices.Equal(g.passState.Theta, theta) {
		g.states++
		g.passState = &State{Version: g.states, Theta: slices.Clone(theta), Noise: []float64{0}}
	}
	g.last++
	p := &Product{ID: g.last, Kind: Pass, State: g.passState, N: g.Len(), V: of.Rows, Pass: newPass(of, a)}
	defer p.free()
	g.room(p)
	s := g.sched
	s.rate = g.passRates[of.Kind]
	if !g.eager {
		peers = peers[:min(len(peers), g.passCost(of.Z.Len(), of.Z.Dim(), of.Kind).Members(1+len(peers))-1)]
	}
	shares, err := s.run(ctx, p, peers, func(u Unit, out []float64) { copy(p.place(g.sums, u), out) })
	if err != nil {
		return err
	}
	g.passRates[of.Kind] = s.rate
	if err := g.verifyPass(ctx, p, shares); err != nil {
		return err
	}
	for i := range sparse.Blocks(p.N) {
		take(i, p.place(g.sums, Unit{i, i + 1}))
	}
	return ctx.Err()
}

// verifyPass looks for wrong numbers: where two have computed a unit their bits are compared, and about one block in sampled is computed
// again. Who was wrong once has all of its blocks computed again.
func (g *Group) verifyPass(ctx context.Context, p *Product, shares []share) error {
	var members []share
	for _, s := range shares {
		for _, o := range s.others {
			if !sameBits(p.place(g.sums, s.Unit), o.out) {
				if _, err := g.right(ctx, p, g.sums, s, s.Unit); err != nil {
					return err
				}
				break
			}
		}
		if s.by != nil {
			members = append(members, s)
		}
	}
	if len(members) == 0 || !g.eager && rand.IntN(sampled) >= sparse.Blocks(p.N) {
		return nil
	}
	s := members[rand.IntN(len(members))]
	if right, err := g.right(ctx, p, g.sums, s, piece(s.Unit)); err != nil || right {
		return err
	}
	return g.redo(ctx, p, members)
}

// Sums is the model of what a pass over the rows takes a group of equal members.
type Sums struct {
	Rows, Inducing int
	Columns        int     // that go to whoever computes the rows
	Shared         int     // numbers that go to every member
	Each           int     // numbers that a block comes to
	Rate           float64 // rows times the square of the inducing inputs a second that a member computes
	Bandwidth      float64 // as in Cost
}

// Traffic returns how many bytes the driver sends and receives.
func (s Sums) Traffic(members int) (out, in float64) {
	others := float64(members - 1)
	share := others / float64(members)
	return 8 * (float64(s.Shared)*others + share*float64(s.Rows*s.Columns)), 8 * share * float64(s.Each*sparse.Blocks(s.Rows))
}

// Seconds returns what a pass takes some number of members: what is shared goes out before anything is computed, the rest beside that.
func (s Sums) Seconds(members int) float64 {
	rate := s.Rate
	if rate == 0 {
		rate = startRate
	}
	alone := float64(s.Rows) * float64(s.Inducing) * float64(s.Inducing) / rate
	if members < 2 {
		return alone
	}
	units := float64(passGroups(s.Rows))
	each := math.Ceil(units / float64(members))
	computing := alone * each / units
	out, in := s.Traffic(members)
	before := 8 * float64(s.Shared*(members-1)) / s.Bandwidth
	moving := max(out, in) / s.Bandwidth
	return before + max(computing, moving) + min(computing, moving)/each + 2*oneWay
}

// Members returns how many of some members compute a pass soonest.
func (s Sums) Members(members int) int {
	best := 1
	for k := 2; k <= min(members, passGroups(s.Rows)); k++ {
		if s.Seconds(k) < s.Seconds(best) {
			best = k
		}
	}
	return best
}

// approximation is what a session computes passes with.
type approximation struct {
	*sparse.Approximation
	version uint64 // of θ
}

// beginPass begins a pass on a member.
func (v *serving) beginPass(m *pb.TilesProduct) error {
	p, err := v.passOf(m.Pass)
	if err != nil {
		return err
	}
	if _, want, _ := sparse.PassShape(p.Kind, 1); int(m.Columns) != want {
		return invalid("a pass with %d columns, not %d", m.Columns, want)
	}
	columns := make([][]float64, m.Columns)
	v.quiesce()
	v.product, v.have = nil, 0
	v.kept.begin(nil)
	for c := range columns {
		columns[c] = make([]float64, v.inputs.Len())
	}
	p.Rows = columns
	product := &Product{ID: m.Id, Kind: Pass, State: &v.state, N: v.inputs.Len(), V: columns, Trace: m.Trace, Pass: p}
	v.product = product
	last := passGroups(product.N)
	v.expect(8, product.regions(), func(i int) {
		if i == last {
			v.passInputs(product)
		}
		v.have |= 1 << i
	})
	return nil
}

// passOf returns the pass that a driver tells of, with room for what follows.
func (v *serving) passOf(m *pb.TilesPass) (*pass, error) {
	n, d := v.inputs.Len(), v.inputs.Dim()
	if m == nil || v.l != nil || m.Inducing < 1 || int(m.Inducing) > n {
		return nil, invalid("a pass over %d rows by %d inducing inputs", n, m.GetInducing())
	}
	k := int(m.Inducing)
	shape, columns, ok := sparse.PassShape(sparse.PassKind(m.Kind), k)
	if ok = ok && len(m.Shared) == len(shape) && slices.Contains(sparse.Kinds(), sparse.Kind(m.Of)); !ok {
		return nil, invalid("a pass of kind %d of %q with %d shared vectors", m.Kind, m.Of, len(m.Shared))
	}
	if m.Points && v.covariance.Differentiable() != nil {
		return nil, invalid("a pass with derivatives by inputs of a covariance that has none")
	}
	p := &pass{inducing: k, Pass: &sparse.Pass{Kind: sparse.PassKind(m.Kind), Of: sparse.Kind(m.Of), Points: m.Points, Targets: m.Targets}}
	total := k * d
	for i, size := range m.Shared {
		needed := i == 0 || p.Kind == sparse.Slopes && (i == 1 || p.Of == sparse.FITC)
		if size != int64(shape[i]) && (size != 0 || needed) {
			return nil, invalid("shared vector %d of a pass has %d numbers, not %d", i, size, shape[i])
		}
		total += int(size)
	}
	each := int64(1+sparse.Blocks(n)/passGroups(n)) * int64(k*k+32*k*d+n/sparse.Blocks(n)) // numbers of an answer, about
	if need := sparse.Bytes(n, d, k) + 8*(int64(n*columns+total)+2*each); need > v.conf.MaxBytes {
		return nil, status.Errorf(codes.ResourceExhausted, "a pass takes %d bytes: more than the %d that a session has on this worker", need, v.conf.MaxBytes)
	}
	p.shared = make([]float64, total)
	rest := p.shared[k*d:]
	for _, size := range m.Shared {
		p.Shared, rest = append(p.Shared, rest[:size]), rest[size:]
	}
	return p, nil
}

// passInputs makes the session's approximation that of a pass, whose inducing inputs have come.
func (v *serving) passInputs(p *Product) {
	a, d := &v.approx, v.inputs.Dim()
	p.Pass.Z = kernel.NewInputs(p.Pass.inducing, d, p.Pass.shared[:p.Pass.inducing*d])
	switch {
	case a.Approximation == nil:
		a.Approximation = sparse.New(p.Pass.Of, v.covariance, v.inputs, p.Pass.Z, v.conf.Budget)
		a.version = 0
	case !sameInputs(a.Inducing(), p.Pass.Z):
		a.SetInducing(p.Pass.Z)
		a.version = 0
	}
	if a.version != v.state.Version {
		a.Set(v.covariance.At(v.theta))
		a.version = v.state.Version
	}
	p.Pass.over = a.Approximation
}

func sameInputs(a, b *kernel.Inputs) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !sameBits(a.Row(i), b.Row(i)) {
			return false
		}
	}
	return true
}

var _ sparse.Summer = (*Group)(nil)
