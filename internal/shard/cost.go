package shard

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/precond"
)

const (
	// startRate is the rate assumed before one is measured.
	startRate = 1e10
	// smallGroup is the number of members that are always used.
	smallGroup = 4
	// transport is what a byte costs in processor seconds, both ends together: encoding,
	// checksum, check, TLS and the kernel (docs/benchmarks.md, Cost of distribution).
	transport = 3e-9
	// perFetch is what it costs to fetch something, beside its bytes, in processor seconds of both ends.
	perFetch = 3e-4
	// worthExchange is how much sooner sums have to be exchanged than gathered, to be.
	worthExchange = 0.97
	// oneWay is what a message takes beside its bytes, in seconds.
	oneWay = 1e-4
)

// Cost is the model of what a product takes a group of equal members: the driver chooses by it
// how many to use, and plans tell by it what groups are worth.
type Cost struct {
	Kind      Kind
	Rows      int
	Columns   int     // of V
	Rate      float64 // elements of K a second that a member computes
	Bandwidth float64 // bytes a second that the driver sends, and as many that it receives
	Cores     int     // of a member, for what transport takes of them; 0 leaves that out
}

// units returns the number of units, or tasks, that the product is split into at most.
func (c Cost) units() int {
	if c.Kind == Forms {
		return cmvp.NewGrid(c.Rows).Tasks()
	}
	return cmvp.NewGrid(c.Rows).Units()
}

// Traffic returns how many bytes the driver sends and receives with some number of
// members that share the work evenly. Members whose units are drawn at random need
// 1−(1−1/q)^(units of each) of V, q being the points of a unit on each side.
func (c Cost) Traffic(members int) (out, in float64) {
	columns := float64(c.Rows) * float64(c.Columns)
	others := float64(members - 1)
	if c.Kind == Forms {
		return 16 * columns * others, 0
	}
	g := cmvp.NewGrid(c.Rows)
	q := float64(len(g.Unit(0)))
	share := 1 - math.Pow(1-1/q, float64(g.Units())/float64(members))
	return float64(c.Kind.width()) * columns * others * share, 8 * (q + 1) * columns * others / float64(members)
}

// Members returns how many of the members are of use. k of them compute for work/(k·rate);
// what the driver sends and receives takes the time of the larger of both. The sum is least
// for some k.
func (c Cost) Members(members int) int {
	rate := c.Rate
	if rate == 0 {
		rate = startRate
	}
	best, least := min(members, smallGroup), math.Inf(1)
	units := c.units()
	for k := best; k <= min(members, units); k++ {
		out, in := c.Traffic(k)
		t := c.work()/(float64(k)*rate) + max(out, in)/c.Bandwidth
		if t < least {
			best, least = k, t
		}
	}
	return best
}

// Plan is how a group computes a product.
type Plan struct {
	Members   int
	Exchange  bool    // of sums among the members
	Seconds   float64 // that it takes
	Processor float64 // seconds, of all members together
	Kept      int     // numbers that a member keeps, for an exchange

	whole, pieces int // parts of an exchange
}

// Plan returns how some members compute a product soonest: the driver alone gathers the sums of units, or the members exchange them.
func (c Cost) Plan(members int) Plan {
	k := c.Members(members)
	p := Plan{Members: k, Seconds: c.Seconds(k), Processor: c.Processor(k)}
	if x, ok := c.exchanged(members); ok {
		return x
	}
	return p
}

// exchanged returns how some members compute a product soonest if they exchange sums, and whether that is worth it.
func (c Cost) exchanged(members int) (best Plan, better bool) {
	if c.Rate == 0 {
		c.Rate = startRate
	}
	best.Seconds = math.Inf(1)
	if c.Kind == Forms || members < 2 {
		return best, false
	}
	grid := cmvp.NewGrid(c.Rows)
	for k := members; k >= 2; k = k * 4 / 5 {
		for _, cut := range cuts(grid, k) {
			if p := c.exchange(layoutOf(c.Rows, cut[0], cut[1]), k); p.Seconds < best.Seconds {
				best = p
			}
		}
	}
	return best, best.Seconds < worthExchange*c.Seconds(c.Members(members))
}

// exchange returns what an exchange takes: the vectors go out, from the driver and then from those who have them; parts are
// computed; members fetch what they add up, and the driver gets the rows.
func (c Cost) exchange(l *layout, members int) Plan {
	k, numbers := float64(members), float64(c.Rows)*float64(c.Columns)
	alone, width := c.work()/c.Rate, float64(c.Kind.width())
	units := float64(l.grid.Units())
	computing := alone * math.Ceil(units/k) / units
	if l.pieces > 1 {
		computing = alone * (1/k + 0.5/(units*float64(l.pieces)))
	}
	q := float64(len(l.grid.Unit(0)))
	each := min(units, float64(l.len())/k)
	need := 1 - math.Pow(1-1/q, each) // share of the vectors
	kept := l.numbers() * float64(c.Columns) / k
	vectors, sums, rows := width*numbers, 8*kept, 8*numbers
	t := computing + (vectors*(1+need)+sums+rows)/c.Bandwidth + 8*oneWay
	bytes := vectors*(1+need*k) + sums*k + rows
	calls := l.calls() / k
	if c.Cores > 0 {
		t += (transport*(vectors*need+sums) + perFetch*calls) / float64(c.Cores)
	}
	return Plan{Members: members, Exchange: true, Seconds: t, Processor: alone*float64(max(1, c.Cores)) + transport*bytes + perFetch*calls*k, Kept: int(kept), whole: l.whole, pieces: l.pieces}
}

// Seconds returns what a product takes some number of members, all of which are used, if the driver gathers all sums: as long as
// the member with the most units computes or the driver's card and cores move bytes, whichever is
// longer. Both go on side by side, but for the first unit of a member, which waits for its vectors, and
// the last, whose sums nobody waits beside.
func (c Cost) Seconds(members int) float64 {
	alone := c.work() / c.Rate
	if members < 2 {
		return alone
	}
	units := float64(c.units())
	each := math.Ceil(units / float64(members))
	computing := alone * each / units
	out, in := c.Traffic(members)
	moving := max(out, in) / c.Bandwidth
	if c.Cores > 0 {
		moving = max(moving, transport/2*(out+in)/float64(c.Cores))
	}
	return max(computing, moving) + min(computing, moving)/each + 2*oneWay
}

// Processor returns the processor seconds of all members together, each of whose cores computes
// Rate/Cores elements a second.
func (c Cost) Processor(members int) float64 {
	out, in := c.Traffic(members)
	return c.work()/c.Rate*float64(max(1, c.Cores)) + transport*(out+in)
}

// Sums returns how many numbers the driver adds up when all units are there.
func (c Cost) Sums() int {
	return cmvp.UnitSums(c.Rows, c.Columns, 0, cmvp.NewGrid(c.Rows).Units())
}

// work returns the elements of K that the product ranges over.
func (c Cost) work() float64 { return float64(c.Rows) * float64(c.Rows) }

// Apply is the model of what applying a preconditioner takes a group of equal members, two
// products with its factor, n×m: the driver decides by it whether to share them, and plans tell by it.
type Apply struct {
	Rows, Rank int
	Columns    int     // that it is applied to
	Rate       float64 // elements of the factor, once for each column, a second that a member applies
	Bandwidth  float64 // as in Cost
	Cores      int     // as in Cost
}

// sharers returns how many of some members have a part.
func (a Apply) sharers(members int) int { return min(members, dense.Chunks(a.Rows)) }

// Traffic returns how many bytes the driver sends and receives: rows of the vectors to those who hold the
// rows of the factor, and sums of them back; then as many of these to everyone, and rows back.
func (a Apply) Traffic(members int) (out, in float64) {
	k, chunks := float64(a.sharers(members)), float64(dense.Chunks(a.Rows))
	n, m, s := float64(a.Rows), float64(a.Rank), float64(a.Columns)
	return 8 * s * (n*(k-1)/k + m*(k-1)), 8 * s * (n + m*chunks) * (k - 1) / k
}

// Members returns how many of some members apply it together soonest: all that may have a part, or the driver
// alone.
func (a Apply) Members(members int) int {
	if k := a.sharers(members); a.Seconds(k) < a.Seconds(1) {
		return k
	}
	return 1
}

// Seconds returns what an application takes some number of members. The vectors go out beside one half of it and
// come in beside the other; the first chunk of a member waits for its rows, and nobody waits beside the last.
func (a Apply) Seconds(members int) float64 {
	alone := float64(a.Rows) * float64(a.Rank) * float64(a.Columns) / a.Rate
	k := a.sharers(members)
	if k < 2 {
		return alone
	}
	chunks := float64(dense.Chunks(a.Rows))
	each := math.Ceil(chunks / float64(k))
	computing := alone * each / chunks
	out, in := a.Traffic(k)
	moving := (out + in) / a.Bandwidth
	if a.Cores > 0 {
		moving = max(moving, transport/2*(out+in)/float64(a.Cores))
	}
	return max(computing, moving) + min(computing, moving)/each + 4*oneWay
}

// Processor returns the processor seconds of all members together.
func (a Apply) Processor(members int) float64 {
	alone := float64(a.Rows) * float64(a.Rank) * float64(a.Columns) / a.Rate * float64(max(1, a.Cores))
	if a.sharers(members) < 2 {
		return alone
	}
	out, in := a.Traffic(members)
	return alone + transport*(out+in)
}

// Sending returns how long it takes the driver to send the rows of the factor.
func (a Apply) Sending() float64 { return 8 * float64(a.Rows) * float64(a.Rank) / a.Bandwidth }

// Growing returns how long it takes some members to compute the rows that each holds by the recipe of the factor, beside those of the
// pivots, which all do. An element is half as many multiplications as there are columns, at the rate of an application, which is
// less than what larger products reach.
func (a Apply) Growing(members int) float64 {
	k, chunks, m := a.sharers(members), float64(dense.Chunks(a.Rows)), float64(a.Rank)
	rows := float64(a.Rows) * math.Ceil(chunks/float64(k)) / chunks
	return (rows + m/3) * m * m / 2 / a.Rate
}

// Spread reports whether some members build the factor of a pivoted Cholesky factorisation of K together, and keep it, so that nobody has all of it.
func (a Apply) Spread(members int) bool {
	return a.sharers(members) > 1 && a.Rows >= DefaultMinRows && 8*float64(a.Rows)*float64(a.Rank) >= float64(spreadFrom())
}

// Building returns what it takes some members, at so many processor seconds for each of n·m² that the driver alone takes, half of which are
// LᵀL. All compute the rows of the pivots. A block of LᵀL goes from chunk to chunk through the driver, so that the first and the last steps are not full; so do
// the diagonals that pivots are chosen by.
func (a Apply) Building(members int, rate float64) (seconds, processor float64) {
	n, m, k := float64(a.Rows), float64(a.Rank), float64(a.sharers(members))
	chunks, blocks, cores := float64(dense.Chunks(a.Rows)), math.Ceil(m/128), float64(max(1, a.Cores))
	half := rate * n * m * m / 2
	mine := half * math.Ceil(chunks/k) / chunks / cores
	pivots := rate * m * m * m / 6
	bytes := 8 * (blocks*n + m*m/2*chunks) * (k - 1) / k // each way
	seconds = mine + pivots/cores + mine*(blocks+chunks-1)/blocks + bytes/a.Bandwidth + 4*oneWay*(2*blocks+chunks)
	return seconds, 2*half + pivots*k + transport*2*bytes
}

// BuildingBytes returns what the driver holds of a preconditioner that the group builds beside its rows, when that is most: the factor at its pivots, and LᵀL with what of
// it is on its way, four times (as it went out, encoded, as it comes in and as it is kept), or with its Cholesky factor and its inverse.
func (a Apply) BuildingBytes() float64 {
	m, under := float64(a.Rank), 0
	for p := range min(dense.Chunks(a.Rows), dense.GramBlocks(a.Rank)) {
		under += dense.GramSize(a.Rank, p)
	}
	return 8 * (m*m/2 + max(m*m+4*float64(under), factorised*m*m) + growing*a.perChunk())
}

// SeedBytes returns what another member holds of it beside its rows: the factor at its pivots, and the columns that are added.
func (a Apply) SeedBytes() float64 {
	m := float64(a.Rank)
	return 8 * (m*m/2 + growing*a.perChunk())
}

const (
	// factorised is how many numbers a matrix of order m takes while it is factorised and inverted, over m² (precond.newLowRank): as it is, packed, and inverted.
	factorised = 2.5
	// growing is how many numbers a row of a chunk takes, beside it, while columns are added.
	growing = 2 * precond.Proposals
)

func (a Apply) perChunk() float64 { return float64(a.Rows) / float64(dense.Chunks(a.Rows)) }

// Held returns how many bytes of the factor a member holds.
func (a Apply) Held(members int) float64 {
	k, chunks := a.sharers(members), float64(dense.Chunks(a.Rows))
	if k < 2 {
		return 0
	}
	return 8 * float64(a.Rows) * float64(a.Rank) * math.Ceil(chunks/float64(k)) / chunks
}

// Own returns how many bytes of a factor that the group builds its driver holds: as many as others, or none where there are members enough without it.
func (a Apply) Own(members int) float64 {
	if members > dense.Chunks(a.Rows) {
		return 0
	}
	return a.Held(members)
}
