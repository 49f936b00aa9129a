package shard

import (
	"math/bits"
	"sync"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// layout is how the units of a product K·V are cut into parts whose sums members keep and exchange.
// The first whole units are a part each, with a sum for each of their points. Each of the others is cut into pieces, some
// of its tasks each, whose sums are kept task by task: what a unit sums up is added in the order of its tasks,
// so that those of a piece cannot be added before.
type layout struct {
	grid          cmvp.Grid
	whole, pieces int
	segments      [][]segment // of each part, as its sums lie
	points        []pieces    // of each part
	parts         [][]int     // that have to do with each point, in order
}

// segment is rows of a point, for which sums lie column after column.
type segment struct{ point, lo, hi int }

type layoutKey struct{ n, whole, pieces int }

// layouts are some of those made so far.
var layouts struct {
	sync.Mutex
	made map[layoutKey]*layout
}

// layoutOf returns the layout of n rows.
func layoutOf(n, whole, pieces int) *layout {
	key := layoutKey{n, whole, pieces}
	layouts.Lock()
	defer layouts.Unlock()
	l := layouts.made[key]
	if l == nil {
		if layouts.made == nil || len(layouts.made) > 100 {
			layouts.made = map[layoutKey]*layout{}
		}
		l = newLayout(cmvp.NewGrid(n), whole, pieces)
		layouts.made[key] = l
	}
	return l
}

func newLayout(g cmvp.Grid, whole, cut int) *layout {
	l := &layout{grid: g, whole: whole, pieces: cut, parts: make([][]int, g.Points())}
	for i := range l.len() {
		var segments []segment
		if unit, lo, hi := l.tasks(i); i < whole {
			for _, p := range g.Unit(unit) {
				from, to := g.PointRows(p)
				segments = append(segments, segment{p, from, to})
			}
		} else {
			for t := lo; t < hi; t++ {
				task := g.Task(t)
				for _, b := range [2]int{task.A, task.B} {
					from, to := g.BlockRows(b)
					segments = append(segments, segment{g.PointOf(b), from, to})
				}
			}
		}
		var points pieces
		for _, s := range segments {
			points |= 1 << s.point
		}
		for p := range l.parts {
			if points&(1<<p) != 0 {
				l.parts[p] = append(l.parts[p], i)
			}
		}
		l.segments, l.points = append(l.segments, segments), append(l.points, points)
	}
	return l
}

// perMember is how many pieces there are for each member.
const perMember = 8

// cuts returns the layouts, their whole units and pieces, that may be good for some members: units as they are; or three quarters of them, as many for
// each member, and the others in pieces, so that members finish close together and slow ones have something to do, too.
func cuts(g cmvp.Grid, members int) [][2]int {
	units, most := g.Units(), g.Tasks()
	for i := range units {
		lo, hi := g.UnitTasks(i)
		most = min(most, hi-lo)
	}
	all := [][2]int{{units, 1}}
	whole := units * 3 / 4 / members * members
	if cut := min(most, (perMember*members+units-whole-1)/(units-whole)); cut > 1 {
		all = append(all, [2]int{whole, cut})
	}
	return all
}

// len returns the number of parts.
func (l *layout) len() int { return l.whole + (l.grid.Units()-l.whole)*l.pieces }

// unit returns the unit that a part is of.
func (l *layout) unit(part int) int {
	if part < l.whole {
		return part
	}
	return l.whole + (part-l.whole)/l.pieces
}

// tasks returns the unit that a part is of, and its tasks [lo,hi).
func (l *layout) tasks(part int) (unit, lo, hi int) {
	unit = l.unit(part)
	lo, hi = l.grid.UnitTasks(unit)
	if part >= l.whole {
		i, n := (part-l.whole)%l.pieces, hi-lo
		lo, hi = lo+i*n/l.pieces, lo+(i+1)*n/l.pieces
	}
	return unit, lo, hi
}

// share returns which share of a product's tasks a part has.
func (l *layout) share(part int) float64 {
	_, lo, hi := l.tasks(part)
	return float64(hi-lo) / float64(l.grid.Tasks())
}

// rows returns how many rows the segments of a part have in all, of one point, or of all if that is negative.
func (l *layout) rows(part, point int) (rows int) {
	for _, s := range l.segments[part] {
		if s.point == point || point < 0 {
			rows += s.hi - s.lo
		}
	}
	return rows
}

// numbers returns how many numbers for each column the parts sum up in all.
func (l *layout) numbers() (sum float64) {
	for i := range l.segments {
		sum += float64(l.rows(i, -1))
	}
	return sum
}

// calls returns how many streams the points are added up from.
func (l *layout) calls() (sum float64) {
	for _, p := range l.parts {
		sum += float64(len(p))
	}
	return sum
}

// stream returns a copy of those of a part's sums of s columns that are of a point, one segment after another.
func (l *layout) stream(part, point, s int, sums []float64) []float64 {
	out := make([]float64, 0, s*l.rows(part, point))
	at := 0
	for _, g := range l.segments[part] {
		k := s * (g.hi - g.lo)
		if g.point == point {
			out = append(out, sums[at:at+k]...)
		}
		at += k
	}
	return out
}

// checksums returns those of a part's sums, one for each of its points.
func (l *layout) checksums(part, s int, sums []float64) (all []float64) {
	for p := l.points[part]; p != 0; p &= p - 1 {
		all = append(all, float64(checksum(l.stream(part, bits.TrailingZeros64(uint64(p)), s, sums))))
	}
	return all
}

// of returns which of a part's checksums is that of a point.
func (l *layout) of(part, point int) int {
	return bits.OnesCount64(uint64(l.points[part] & (1<<point - 1)))
}

// open reports whether the first k parts of a point end within a unit.
func (l *layout) open(point, k int) bool {
	of := l.parts[point]
	return k > 0 && k < len(of) && l.unit(of[k-1]) == l.unit(of[k])
}

// adder adds up the sums of a point, part after part, in the order of cmvp.Operator.ReduceUnits.
type adder struct {
	*layout
	point, s int
	lo, rows int
	sum      []float64 // of whole units, column after column
	unit     []float64 // of the unit that is open
	added    int       // parts
}

// newAdder returns an adder that goes on from what another one has made of the first k parts.
func newAdder(l *layout, point, s, k int, answer []float64) *adder {
	lo, hi := l.grid.PointRows(point)
	a := &adder{layout: l, point: point, s: s, lo: lo, rows: hi - lo, added: k}
	n := s * a.rows
	a.sum, a.unit = make([]float64, n), make([]float64, n)
	copy(a.unit, answer[copy(a.sum, answer):])
	return a
}

// add adds the stream of the next part.
func (a *adder) add(stream []float64) {
	part := a.parts[a.point][a.added]
	if !a.open(a.point, a.added) {
		clear(a.unit)
	}
	for _, g := range a.segments[part] {
		if g.point != a.point {
			continue
		}
		k := g.hi - g.lo
		for c := range a.s {
			floats.Add(a.unit[c*a.rows+g.lo-a.lo:][:k], stream[:k])
			stream = stream[k:]
		}
	}
	if a.added++; !a.open(a.point, a.added) {
		floats.Add(a.sum, a.unit)
	}
}

// answer returns what the parts come to so far.
func (a *adder) answer() []float64 {
	if a.open(a.point, a.added) {
		return append(a.sum, a.unit...)
	}
	return a.sum
}
