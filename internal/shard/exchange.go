package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// In a large group all that a product needs and makes, 9 times n·s numbers each way, would come through the driver's
// card. So members exchange it: the driver sends the rows of each point of the plane to one member, of which others
// fetch them; members keep the sums of the parts that they compute, and tell their checksums; then each
// point is given to a member, which fetches its sums from those who have them and adds them up in the order of the
// units. The driver, which nobody fetches from, computes the last parts, so that its own are added to what
// members made of those before.
//
// Who does not give what it has is left out, and its parts are computed again. Where an exchange does not come to an
// end the driver gathers the sums of all units itself.

// maxRounds bounds how often what lost members kept is computed again.
const maxRounds = 10

var (
	// errExchange is why the driver gathers sums itself.
	errExchange = errors.New("the members of the group do not exchange their sums")
	errLost     = errors.New("a member does not give what it has")
)

// exchange is a product whose sums members keep, as its driver sees it.
type exchange struct {
	*layout
	key     []byte
	members int           // that are to have a part, the driver among them
	stall   time.Duration // after which nothing is expected to come any more
	own     [][]float64   // sums of each part that the driver has computed
	floor   int           // from which part on they are the driver's
	by      []*peer       // who has each part
	adders  []*peer       // who added up each point

	mu    sync.Mutex
	crcs  [][]float64       // of each part
	first []string          // of each point, who was sent its vectors
	lost  map[string]string // who does not give what it has, and what another one says of it
}

func newExchange(l *layout, key []byte, members int, stall time.Duration) *exchange {
	return &exchange{layout: l, key: key, members: members, stall: stall, own: make([][]float64, l.len()), floor: l.len(),
		by: make([]*peer, l.len()), adders: make([]*peer, l.grid.Points()), crcs: make([][]float64, l.len()), first: make([]string, l.grid.Points()), lost: map[string]string{}}
}

// size returns how many numbers a member answers.
func (x *exchange) size(p *Product, u Unit) int {
	if p.Add {
		return x.answerSize(u.Lo, x.have(u.Lo), len(p.V))
	}
	n := 0
	for i := u.Lo; i < u.Hi; i++ {
		n += bits.OnesCount64(uint64(x.points[i]))
	}
	return n
}

// answerSize returns how many numbers the first k parts of a point come to.
func (l *layout) answerSize(point, k, s int) int {
	lo, hi := l.grid.PointRows(point)
	n := s * (hi - lo)
	if l.open(point, k) {
		n *= 2
	}
	return n
}

// have returns how many of the parts of a point members have: the first.
func (x *exchange) have(point int) int {
	k, _ := slices.BinarySearch(x.parts[point], x.floor)
	return k
}

// check returns an error if an answer cannot be right.
func (x *exchange) check(p *Product, u Unit, out []float64) error {
	if !p.Add {
		for _, c := range out {
			if !(c >= 0 && c <= math.MaxUint32 && c == math.Trunc(c)) {
				return fmt.Errorf("a checksum of part %d is %g", u.Lo, c)
			}
		}
		return nil
	}
	lo, hi := x.grid.PointRows(u.Lo)
	for i := 0; len(out) > 0; i++ {
		if err := p.checkRows(i%len(p.V), lo, out[:hi-lo]); err != nil {
			return fmt.Errorf("point %d: %w", u.Lo, err)
		}
		out = out[hi-lo:]
	}
	return nil
}

// source returns who is to give a member the vectors of a point; empty for the driver.
func (x *exchange) source(point int, to string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from := x.first[point]; from != "" && from != to && x.lost[from] == "" {
		return from
	}
	x.first[point] = to
	return ""
}

// sources returns who has the parts of a point that a member is to add up.
func (x *exchange) sources(point int, to string) (all []*pb.TilesSource) {
	for _, part := range x.parts[point][:x.have(point)] {
		s := &pb.TilesSource{Address: x.by[part].name, Crc32C: uint32(x.crcs[part][x.of(part, point)])}
		if s.Address == to {
			s.Address = ""
		}
		all = append(all, s)
	}
	return all
}

// lose notes that a member does not give what it has.
func (x *exchange) lose(m missing) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lost[m.address] = m.Error()
}

// missing is why a member cannot compute: another one does not give it what it has.
type missing struct{ address, reason string }

func (m missing) Error() string {
	return fmt.Sprintf("it does not give another member what it has: %s", m.reason)
}

// step returns a step of a product that members exchange: the computing of parts, or the adding up of points; all parts if
// units is nil.
func (p *Product) step(add bool, units []share) *Product {
	p.prepare()
	q := &Product{ID: p.ID, Kind: p.Kind, State: p.State, N: p.N, V: p.V, Factor: p.Factor, Exchange: p.Exchange, Add: add,
		Bound: p.Bound, Scale: p.Scale, Trace: p.Trace, again: units, norms: p.norms}
	q.once.Do(func() {})
	return q
}

// exchange computes a product, and returns what members made of each point: nil for those of which they had no part.
func (s *scheduler) exchange(ctx context.Context, p *Product, peers []*peer) ([][]float64, error) {
	x, sums := p.Exchange, make([][]float64, p.Exchange.grid.Points())
	defer s.blameLost(x, peers)
	var again []share
	for range maxRounds {
		q := p.step(false, again)
		shares, err := s.run(ctx, q, peers, func(u Unit, out []float64) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.crcs[u.Lo] = slices.Clone(out)
		})
		q.free()
		if err != nil {
			return nil, err
		}
		if !x.note(shares) {
			return nil, errExchange
		}
		var points []share
		for i := range sums {
			if sums[i] == nil && x.have(i) > 0 {
				points = append(points, share{Unit: Unit{i, i + 1}})
			}
		}
		if len(points) == 0 {
			return sums, nil
		}
		shares, err = s.run(ctx, p.step(true, points), peers, func(u Unit, out []float64) { sums[u.Lo] = slices.Clone(out) })
		for _, s := range shares {
			if s.by != nil {
				x.adders[s.Lo] = s.by
			}
		}
		if !errors.Is(err, errLost) {
			return sums, err
		}
		again = []share{}
		for i, m := range x.by {
			if m != nil && x.lost[m.name] != "" {
				again = append(again, share{Unit: Unit{i, i + 1}, by: m})
			}
		}
		if len(again) == 0 {
			break
		}
		s.blameLost(x, peers)
	}
	return nil, errExchange
}

// note says who has the parts that were computed. It returns false if the driver's are not the last.
func (x *exchange) note(shares []share) bool {
	for _, s := range shares {
		x.by[s.Lo] = s.by
	}
	x.floor = len(x.by)
	for x.floor > 0 && x.by[x.floor-1] == nil {
		x.floor--
	}
	return !slices.Contains(x.by[:x.floor], nil)
}

// blameLost puts aside the members that did not give what they had.
func (s *scheduler) blameLost(x *exchange, peers []*peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range peers {
		if now := time.Now(); x.lost[p.name] != "" && !p.until.After(now) {
			p.setAside(now)
			s.log.Warn("group member gets no work for a while", "member", p.name, "seconds", p.backoff.Seconds(), "reason", x.lost[p.name])
		}
	}
}

// Of the driver's products with exchanges that failed.
const firstTruce, longestTruce = 10 * time.Second, 10 * time.Minute

// exchange returns how the sums of a product are to be exchanged; nil if the driver is to gather them. They are found wrong by the
// reference alone, so the first product with each θ is gathered.
func (g *Group) exchange(p *Product, peers []*peer) *exchange {
	now := time.Now()
	r := &g.references[p.Kind]
	if r.state != p.State || len(g.columns(p, p.V)) < 2 || g.truce.After(now) {
		return nil
	}
	members := 1
	for _, m := range peers {
		if !m.until.After(now) {
			members++
		}
	}
	best, ok := Cost{Kind: p.Kind, Rows: p.N, Columns: len(p.V), Rate: g.sched.rate, Bandwidth: g.conf.Bandwidth, Cores: g.Budget().Cores()}.exchanged(members)
	if g.forced != nil {
		best, ok = *g.forced, members > 1
	}
	if !ok {
		return nil
	}
	bytes := 8 * float64(p.N) * float64(len(p.V))
	return newExchange(layoutOf(p.N, best.whole, best.pieces), g.key, best.Members, g.stall+time.Duration(slowest*bytes/g.conf.Bandwidth*1e9))
}

// exchanged computes a product whose sums members exchange. It returns false if it has to be gathered.
func (g *Group) exchanged(ctx context.Context, p *Product, dst [][]float64, peers []*peer, x *exchange) (bool, error) {
	g.last++
	q := &Product{ID: g.last, Kind: p.Kind, State: p.State, N: p.N, V: p.V, Factor: p.Factor, Exchange: x, Bound: p.Bound, Scale: p.Scale, Trace: p.Trace}
	sums, err := g.sched.exchange(ctx, q, peers)
	if errors.Is(err, errExchange) {
		g.pause = min(max(firstTruce, 2*g.pause), longestTruce)
		g.truce = time.Now().Add(g.pause)
		g.conf.Log.Warn("the driver gathers the sums of the group's products for a while", "seconds", g.pause.Seconds(), "reason", err)
		return false, nil
	} else if err != nil {
		return false, err
	}
	g.pause = 0
	g.local.Budget().NewLoop(func(_, i int) {
		k := x.have(i)
		a := newAdder(x.layout, i, len(dst), k, sums[i])
		for _, part := range x.parts[i][k:] {
			a.add(x.stream(part, i, a.s, x.own[part]))
		}
		for c, y := range dst {
			copy(y[a.lo:], a.sum[c*a.rows:][:a.rows])
		}
	}).Run(len(sums))
	g.local.Finish(dst, p.V, p.Factor)
	if columns := g.columns(p, dst); p.asymmetry(columns) > suspicious {
		return true, g.settle(ctx, q, sums, dst)
	}
	for _, m := range x.by {
		if m != nil {
			m.proved = p.State
		}
	}
	return true, nil
}

// settle computes a product again of which an exchange made something wrong, on the driver alone, and blames whose numbers
// were.
func (g *Group) settle(ctx context.Context, p *Product, sums, dst [][]float64) error {
	x := p.Exchange
	adders := make([]*adder, len(sums))
	for i := range adders {
		adders[i] = newAdder(x.layout, i, len(dst), 0, nil)
	}
	wrong := make([]bool, len(sums)) // points of which a part was
	blamed := map[*peer]bool{}
	for part, m := range x.by {
		right, err := g.partAgain(ctx, p, part)
		if err != nil {
			return err
		}
		crcs := x.checksums(part, len(dst), right)
		for points := x.points[part]; points != 0; points &= points - 1 {
			i := bits.TrailingZeros64(uint64(points))
			at := x.of(part, i)
			if crcs[at] != x.crcs[part][at] {
				if m == nil {
					return ErrUnsteady
				}
				wrong[i], blamed[m] = true, true
			}
			adders[i].add(x.stream(part, i, len(dst), right))
			if k := x.have(i); adders[i].added == k && !wrong[i] && !sameBits(adders[i].answer(), sums[i]) {
				blamed[x.adders[i]] = true
			}
		}
	}
	for m := range blamed {
		g.sched.blame(m, "sums that the group exchanged are not what the driver makes of them")
	}
	for i, a := range adders {
		for c, y := range dst {
			copy(y[a.lo:], adders[i].sum[c*a.rows:][:a.rows])
		}
	}
	g.local.Finish(dst, p.V, p.Factor)
	if len(blamed) == 0 {
		g.conf.Log.Warn("a product is less symmetric than rounding explains, and the same if the driver computes it alone")
		g.references[p.Kind] = reference{} // it may be what is wrong
	}
	return nil
}

// partAgain computes a part twice, and returns its sums if they are the same.
func (g *Group) partAgain(ctx context.Context, p *Product, part int) ([]float64, error) {
	a, err := p.part(ctx, g.local, part, nil)
	if err != nil {
		return nil, err
	}
	b, err := p.part(ctx, g.local, part, nil)
	if err == nil && !sameBits(a, b) {
		err = ErrUnsteady
	}
	return a, err
}
