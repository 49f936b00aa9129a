package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
)

// A member may answer numbers that are wrong but plausible: its memory decays, its
// processor computes wrongly, it has a stale θ. K is symmetric, and so is VᵀKV: a
// product whose VᵀY is not was computed wrongly by somebody. One random bilinear form of
// it is looked at, (Va)ᵀ(Yb) − (Vb)ᵀ(Ya), for a price of about 6ns operations beside n²s;
// a product of one column is held against a column of an earlier one with the same θ.
// Bits are the same whoever computes, so who it was shows when the driver computes the
// members' units again. Where two have computed a unit their bits are compared. Forms,
// and single columns that come first, are sampled: of one unit a piece is computed again, and
// of forms by a member that had no part in a product with this θ one of its own.

// wrongBench is how long a member gets no work whose numbers were wrong.
const wrongBench = time.Hour

// ErrUnsteady is returned where the driver itself computes other numbers each time.
var ErrUnsteady = errors.New("this worker computes other numbers each time: look at its memory and its processor")

// wrongAnswer is why an answer cannot be right.
type wrongAnswer struct{ error }

// blame keeps a peer from work for long, and tells of it.
func (s *scheduler) blame(p *peer, why string) {
	p.until = time.Now().Add(wrongBench)
	s.meter.wrong.Add(1)
	s.log.Error("a member of the group computes wrong numbers: it gets no work for long, and they are computed again", "member", p.name, "reason", why)
	if s.wrong != nil {
		s.wrong(p.name, why)
	}
}

// pair is a column that was multiplied, and what came of it.
type pair struct{ v, y []float64 }

// reference is a product of one column that was found right, of some precision and θ.
type reference struct {
	pair
	kind  Kind
	state *State
}

// columns returns what the asymmetry of a product is looked for in: its own columns,
// and, if that is only one, that of the reference.
func (g *Group) columns(p *Product, y [][]float64) (out []pair) {
	for c, v := range p.V {
		out = append(out, pair{v, y[c]})
	}
	if r := &g.reference; len(out) == 1 && r.state == p.State && r.kind == p.Kind {
		out = append(out, r.pair)
	}
	return slices.DeleteFunc(out, func(c pair) bool { return length(c.v) == 0 })
}

// length returns ‖x‖, in half the time that floats.Norm takes to heed overflow.
func length(x []float64) float64 { return math.Sqrt(floats.Dot(x, x)) }

// refer makes the first column of a product that is right the reference, if there is none
// for its θ and precision.
func (g *Group) refer(p *Product, y [][]float64) {
	r := &g.reference
	if p.Kind == Forms || r.state == p.State && r.kind == p.Kind {
		return
	}
	r.v, r.y = append(r.v[:0], p.V[0]...), append(r.y[:0], y[0]...)
	r.kind, r.state = p.Kind, p.State
}

// asymmetry returns |(Va)ᵀ(Yb) − (Vb)ᵀ(Ya)| for random a and b, orthogonal in units of
// the columns' lengths, in units of what rounding makes of it. There are two columns or
// more.
func (p *Product) asymmetry(columns []pair) float64 {
	unit := 0x1p-53
	if p.Kind == Single {
		unit = 0x1p-24
	}
	a, b := orthogonal(len(columns))
	var ya, yb float64 // squares of the lengths of Ya and Yb, were the columns orthogonal
	for c, k := range columns {
		v, y := length(k.v), length(k.y)
		a[c], b[c] = a[c]/v, b[c]/v
		ya, yb = ya+a[c]*a[c]*y*y, yb+b[c]*b[c]*y*y
	}
	const block = 512 // rows that stay in the nearest cache
	var sums [4][block]float64
	d := 0.0
	for lo := 0; lo < p.N; lo += block {
		hi := min(lo+block, p.N)
		va, vb, wa, wb := sums[0][:hi-lo], sums[1][:hi-lo], sums[2][:hi-lo], sums[3][:hi-lo]
		for i := range sums {
			clear(sums[i][:hi-lo])
		}
		for c, k := range columns {
			floats.AddScaled(va, a[c], k.v[lo:hi])
			floats.AddScaled(vb, b[c], k.v[lo:hi])
			floats.AddScaled(wa, a[c], k.y[lo:hi])
			floats.AddScaled(wb, b[c], k.y[lo:hi])
		}
		d += floats.Dot(va, wb) - floats.Dot(vb, wa)
	}
	return math.Abs(d) / (unit * math.Sqrt(float64(p.N*len(columns))) * (math.Sqrt(ya) + math.Sqrt(yb) + p.Bound))
}

// orthogonal returns two random orthogonal vectors of length 1, of two numbers or more.
func orthogonal(n int) (a, b []float64) {
	a, b = make([]float64, n), make([]float64, n)
	for i := range a {
		a[i], b[i] = rand.NormFloat64(), rand.NormFloat64()
	}
	floats.Scale(1/floats.Norm(a, 2), a)
	floats.AddScaled(b, -floats.Dot(a, b), a)
	floats.Scale(1/floats.Norm(b, 2), b)
	return a, b
}

// suspicious is an asymmetry that rounding does not explain: a tenth of it is more than
// was seen of products that are right, in TestAsymmetryOfRightProducts.
const suspicious = 1.0

// verify looks for wrong numbers in a product, puts aside the members that they came
// from, and replaces them.
func (g *Group) verify(ctx context.Context, p *Product, dst [][]float64, shares []share) error {
	var members []share // units of members
	for _, s := range shares {
		if s.by != nil {
			members = append(members, s)
		}
		for _, o := range s.others {
			if !sameBits(p.place(g.sums, s.Unit), o.out) {
				if _, err := g.right(ctx, p, s, s.Unit); err != nil {
					return err
				}
				break
			}
		}
	}
	g.reduce(p, dst)
	if len(members) == 0 {
		return nil
	}
	var columns []pair
	if p.Kind != Forms {
		columns = g.columns(p, dst)
	}
	if len(columns) < 2 {
		for _, s := range p.samples(members) {
			if right, err := g.right(ctx, p, s, p.piece(s.Unit)); err != nil {
				return err
			} else if !right {
				return g.redo(ctx, p, dst, members)
			}
		}
		g.refer(p, dst)
		return nil
	}
	if a := p.asymmetry(columns); !(a > suspicious) {
		for _, s := range members {
			s.by.proved = p.State
		}
		g.refer(p, dst)
		return nil
	}
	if err := g.redo(ctx, p, dst, members); err != nil {
		return err
	}
	return g.doubtSelf(ctx, p, dst, shares)
}

// samples returns the units that pieces are computed again of: of forms one of each member
// whose θ was in no product yet that was found right, else any.
func (p *Product) samples(members []share) (out []share) {
	asked := map[*peer]bool{}
	for _, i := range rand.Perm(len(members)) {
		s := members[i]
		if p.Kind == Forms && s.by.proved != p.State && !asked[s.by] {
			asked[s.by] = true
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		out = append(out, members[rand.IntN(len(members))])
	}
	return out
}

// redo computes units again, and the product that they come to.
func (g *Group) redo(ctx context.Context, p *Product, dst [][]float64, units []share) error {
	for _, s := range units {
		if _, err := g.right(ctx, p, s, s.Unit); err != nil {
			return err
		}
	}
	g.reduce(p, dst)
	return nil
}

// doubtSelf computes the driver's own units once more, where a product is still not
// symmetric though all others were computed again.
func (g *Group) doubtSelf(ctx context.Context, p *Product, dst [][]float64, shares []share) error {
	a := p.asymmetry(g.columns(p, dst))
	if !(a > suspicious) {
		return nil
	}
	g.conf.Log.Warn("a product is less symmetric than rounding explains: the driver's own share is computed again", "asymmetry", a)
	g.reference = reference{} // it may be what is wrong
	own := slices.DeleteFunc(slices.Clone(shares), func(s share) bool { return s.by != nil })
	return g.redo(ctx, p, dst, own)
}

// piece returns a part of a unit that can be computed alone: a unit of the grid, or a task.
func (p *Product) piece(u Unit) Unit {
	lo := u.Lo + rand.IntN(u.Hi-u.Lo)
	return Unit{lo, lo + 1}
}

// right computes a part of a unit again, and reports whether what is in its place has the
// same bits. If not it replaces that, and blames the members whose bits are others: once
// it is sure of its own.
func (g *Group) right(ctx context.Context, p *Product, s share, part Unit) (bool, error) {
	out := make([]float64, p.Size(part))
	if err := g.sched.self.Do(ctx, p, part, out); err != nil {
		return false, err
	}
	place := p.place(g.sums, part)
	right := sameBits(place, out)
	var wrong []*peer
	if !right {
		wrong = append(wrong, s.by)
	}
	for _, o := range s.others {
		if part == s.Unit && !sameBits(o.out, out) {
			wrong = append(wrong, o.by)
		}
	}
	if len(wrong) == 0 {
		return true, nil
	}
	again := make([]float64, len(out))
	if err := g.sched.self.Do(ctx, p, part, again); err != nil {
		return false, err
	}
	if !sameBits(again, out) || slices.Contains(wrong, nil) {
		return false, ErrUnsteady
	}
	copy(place, out)
	for _, m := range wrong {
		g.sched.blame(m, fmt.Sprintf("units or tasks [%d,%d) are not what the driver makes of them", part.Lo, part.Hi))
	}
	return right, nil
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}
