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

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// A member may answer numbers that are wrong but plausible: its memory decays, its
// processor computes wrongly, it has a stale θ. Three things find them in products K·V:
//
//   - K is symmetric, and so is VᵀKV: a product whose VᵀY is not was computed wrongly by
//     somebody. One random bilinear form of it is looked at, (Va)ᵀ(Yb) − (Vb)ᵀ(Ya), for a
//     price of about 6ns operations beside n²s.
//   - Units are symmetric themselves: what is wrong with the elements of one does not show
//     in VᵀY. It does where a column of another product with the same θ is among V, the
//     reference, in which that is not wrong.
//   - So that the reference is right, the first product with each θ is computed twice for one
//     column: each member's units by another one. Bits are the same whoever computes. This
//     takes as long as a product of one column.
//
// Who it was shows when the driver computes the members' units again. Where two have
// computed a unit their bits are compared. Forms are sampled: of one unit a task is computed
// again, and by a member that had no part in a product with this θ one of its own.

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

// reference is a column of a product with some θ that was found right.
type reference struct {
	pair
	state *State
}

// columns returns what the asymmetry of a product is looked for in: its own columns, and
// the reference, if there is one.
func (g *Group) columns(p *Product, y [][]float64) (out []pair) {
	for c, v := range p.V {
		out = append(out, pair{v, y[c]})
	}
	if r := &g.references[p.Kind]; r.state == p.State {
		out = append(out, r.pair)
	}
	return slices.DeleteFunc(out, func(c pair) bool { return length(c.v) == 0 })
}

// length returns ‖x‖, in half the time that floats.Norm takes to heed overflow.
func length(x []float64) float64 { return math.Sqrt(floats.Dot(x, x)) }

// refer makes a column of a product that is right the reference of its θ and precision.
func (g *Group) refer(p *Product, y [][]float64, c int) {
	r := &g.references[p.Kind]
	r.v, r.y = append(r.v[:0], p.V[c]...), append(r.y[:0], y[c]...)
	r.state = p.State
}

// twice has the units of a product that members computed computed again by others, for column
// c, and compares.
func (g *Group) twice(ctx context.Context, p *Product, peers []*peer, members []share, c int) error {
	g.last++
	again := &Product{ID: g.last, Kind: p.Kind, State: p.State, N: p.N, V: p.V[c : c+1], Factor: p.Factor[c : c+1],
		Bound: p.Bound, Scale: p.Scale, Trace: p.Trace, again: members}
	defer again.free()
	sums := make([]float64, again.Size(Unit{0, again.units()}))
	shares, err := g.sched.run(ctx, again, peers, func(u Unit, out []float64) { copy(again.place(sums, u), out) })
	if err != nil {
		return err
	}
	for i, s := range members {
		if sameBits(p.column(p.place(g.sums, s.Unit), s.Unit, c), again.place(sums, s.Unit)) {
			continue
		}
		if _, err := g.right(ctx, p, g.sums, s, s.Unit); err != nil {
			return err
		}
		if _, err := g.right(ctx, again, sums, shares[i], s.Unit); err != nil {
			return err
		}
	}
	return nil
}

// column returns what of a unit's sums is column c.
func (p *Product) column(sums []float64, u Unit, c int) (out []float64) {
	g := cmvp.NewGrid(p.N)
	for i := u.Lo; i < u.Hi; i++ {
		for _, point := range g.Unit(i) {
			lo, hi := g.PointRows(point)
			out = append(out, sums[c*(hi-lo):][:hi-lo]...)
			sums = sums[len(p.V)*(hi-lo):]
		}
	}
	return out
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
// from, and replaces them. The sums of its units are added up.
func (g *Group) verify(ctx context.Context, p *Product, dst [][]float64, peers []*peer, shares []share) error {
	var members []share // units of members
	for _, s := range shares {
		if s.by != nil {
			members = append(members, s)
		}
		for _, o := range s.others {
			if !sameBits(p.place(g.sums, s.Unit), o.out) {
				if _, err := g.right(ctx, p, g.sums, s, s.Unit); err != nil {
					return err
				}
				break
			}
		}
	}
	if p.Kind == Forms {
		return g.verifyForms(ctx, p, members)
	}
	p.prepare()
	c := slices.IndexFunc(p.norms, func(x float64) bool { return x > 0 }) // zeros tell nothing
	first := g.references[p.Kind].state != p.State && c >= 0
	if first && len(members) > 0 {
		if err := g.twice(ctx, p, peers, members, c); err != nil {
			return err
		}
	}
	g.local.ReduceUnits(dst, g.sums, p.V, p.Factor)
	if columns := g.columns(p, dst); len(members) > 0 && len(columns) > 1 && p.asymmetry(columns) > suspicious {
		if err := g.redo(ctx, p, members); err != nil {
			return err
		}
		g.local.ReduceUnits(dst, g.sums, p.V, p.Factor)
		if err := g.doubtSelf(ctx, p, dst, shares); err != nil {
			return err
		}
	}
	for _, s := range members {
		s.by.proved = p.State
	}
	if first {
		g.refer(p, dst, c)
	}
	return nil
}

// verifyForms looks for wrong numbers in forms.
func (g *Group) verifyForms(ctx context.Context, p *Product, members []share) error {
	if len(members) == 0 {
		return nil
	}
	for _, s := range samples(p, members) {
		if right, err := g.right(ctx, p, g.sums, s, piece(s.Unit)); err != nil {
			return err
		} else if !right {
			return g.redo(ctx, p, members)
		}
	}
	return nil
}

// samples returns the units of forms that a task is computed again of: one of each member
// whose θ was in no product yet that was found right, else any.
func samples(p *Product, members []share) (out []share) {
	asked := map[*peer]bool{}
	for _, i := range rand.Perm(len(members)) {
		s := members[i]
		if s.by.proved != p.State && !asked[s.by] {
			asked[s.by] = true
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		out = append(out, members[rand.IntN(len(members))])
	}
	return out
}

// redo computes units again.
func (g *Group) redo(ctx context.Context, p *Product, units []share) error {
	for _, s := range units {
		if _, err := g.right(ctx, p, g.sums, s, s.Unit); err != nil {
			return err
		}
	}
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
	g.references[p.Kind] = reference{} // it may be what is wrong
	own := slices.DeleteFunc(slices.Clone(shares), func(s share) bool { return s.by != nil })
	return g.redo(ctx, p, own)
}

// piece returns a task of a unit of forms.
func piece(u Unit) Unit {
	lo := u.Lo + rand.IntN(u.Hi-u.Lo)
	return Unit{lo, lo + 1}
}

// right computes a part of a unit again, and reports whether what is in its place has the
// same bits. If not it replaces that, and blames the members whose bits are others: once
// it is sure of its own.
func (g *Group) right(ctx context.Context, p *Product, sums []float64, s share, part Unit) (bool, error) {
	out := make([]float64, p.Size(part))
	if err := g.sched.self.Do(ctx, p, part, out); err != nil {
		return false, err
	}
	place := p.place(sums, part)
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
