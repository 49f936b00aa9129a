package shard

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// A member may answer numbers that are wrong but plausible: its memory decays, its
// processor computes wrongly, it has a stale θ. K is symmetric, and so is VᵀKV: a
// product of two columns or more whose VᵀY is not was computed wrongly by somebody,
// for the price of 2ns² operations beside n²s. Bits are the same whoever computes, so
// who it was shows when the driver computes the members' units again. Products of one
// column, and forms, are sampled: of one unit a piece is computed again.

// wrongBench is how long a member gets no work whose numbers were wrong.
const wrongBench = time.Hour

// asymmetry returns the largest of |v_a·y_b − v_b·y_a| over all pairs of columns, in
// units of what rounding makes of it.
func (p *Product) asymmetry(y [][]float64) float64 {
	unit := 0x1p-53
	if p.Kind == Single {
		unit = 0x1p-24
	}
	size := func(x []float64) float64 { return math.Sqrt(dot(x, x)) }
	worst := 0.0
	for a := range p.V {
		for b := range a {
			va, vb := size(p.V[a]), size(p.V[b])
			scale := unit * math.Sqrt(float64(p.N)) * (va*size(y[b]) + vb*size(y[a]) + p.Bound*va*vb)
			if d := math.Abs(dot(p.V[a], y[b]) - dot(p.V[b], y[a])); d > 0 {
				worst = max(worst, d/scale)
			}
		}
	}
	return worst
}

// suspicious is an asymmetry that rounding does not explain: a tenth is more than was
// seen of products that are right, in TestAsymmetryOfRightProducts.
const suspicious = 0.25

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// verify looks for wrong numbers in a product, puts aside the members that they came
// from, and replaces them.
func (g *Group) verify(ctx context.Context, p *Product, dst [][]float64, shares []share) error {
	members := shares[:0:0]
	for _, s := range shares {
		if s.by != nil {
			members = append(members, s)
		}
	}
	if len(members) == 0 {
		return nil
	}
	if p.Kind == Forms || len(p.V) == 1 {
		s := members[rand.IntN(len(members))]
		right, err := g.same(ctx, p, dst, s, p.piece(s.Unit))
		if err != nil || right {
			return err
		}
	} else if a := p.asymmetry(dst); !(a > suspicious) {
		return nil
	}
	found := false
	for _, s := range members {
		right, err := g.same(ctx, p, dst, s, s.Unit)
		if err != nil {
			return err
		}
		if !right {
			found = true
			s.by.wrong(time.Now())
			g.conf.Meter.wrong.Add(1)
			g.conf.Log.Error("a member of the group computes wrong numbers: it gets no work for long, and they are computed again", "member", s.by.name, "reason", fmt.Sprintf("rows or tasks [%d,%d) are not what the driver makes of them", s.Lo, s.Hi))
		}
	}
	if p.Kind == Forms || len(p.V) == 1 {
		return nil
	}
	if a := p.asymmetry(dst); a > suspicious {
		return g.doubtSelf(ctx, p, dst, shares, found, a)
	}
	return nil
}

// doubtSelf computes the driver's own units once more, where a product is not symmetric
// though the members computed what the driver does.
func (g *Group) doubtSelf(ctx context.Context, p *Product, dst [][]float64, shares []share, found bool, a float64) error {
	for _, s := range shares {
		if s.by != nil {
			continue
		}
		right, err := g.same(ctx, p, dst, s, s.Unit)
		if err != nil {
			return err
		}
		found = found || !right
	}
	if found && p.asymmetry(dst) > suspicious {
		return fmt.Errorf("this worker computes other numbers each time (asymmetry %.3g): look at its memory and its processor", a)
	}
	return nil
}

// piece returns a part of a unit: a tile of rows, or a task.
func (p *Product) piece(u Unit) Unit {
	step := 1
	if p.Kind != Forms {
		step = cmvp.TileRows
	}
	lo := u.Lo + rand.IntN((u.Hi-u.Lo+step-1)/step)*step
	return Unit{lo, min(lo+step, u.Hi)}
}

// same computes a part of a unit again, compares it with what is there bit by bit, and
// leaves there what it has computed.
func (g *Group) same(ctx context.Context, p *Product, dst [][]float64, s share, part Unit) (bool, error) {
	out := make([]float64, p.Size(part))
	if err := g.sched.self.Do(ctx, p, part, out); err != nil {
		return false, err
	}
	if p.equal(dst, g.sums, part, out) {
		return true, nil
	}
	p.commit(dst, g.sums, part, out)
	return false, nil
}

// equal reports whether a unit's answer has the bits of what is in its place.
func (p *Product) equal(dst [][]float64, sums []float64, u Unit, out []float64) bool {
	if p.Kind == Forms {
		return sameBits(sums[u.Lo*p.width():u.Hi*p.width()], out)
	}
	for c, y := range dst {
		if !sameBits(y[u.Lo:u.Hi], out[c*(u.Hi-u.Lo):(c+1)*(u.Hi-u.Lo)]) {
			return false
		}
	}
	return true
}

func sameBits(a, b []float64) bool {
	for i, x := range a {
		if math.Float64bits(x) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}

// wrong keeps a peer from work for long.
func (p *peer) wrong(now time.Time) { p.until = now.Add(wrongBench) }
