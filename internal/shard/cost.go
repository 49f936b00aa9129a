package shard

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

const (
	// startRate is the rate assumed before one is measured.
	startRate = 1e10
	// smallGroup is the number of members that are always used.
	smallGroup = 4
	// transport is what a byte costs in processor seconds, both ends together: encoding,
	// checksum, check, TLS and the kernel (docs/benchmarks.md, Cost of distribution).
	transport = 3e-9
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

// Seconds returns what a product takes some number of members, all of which are used: as long as
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
