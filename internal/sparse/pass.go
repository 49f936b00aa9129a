package sparse

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// PassKind is what a pass computes of a block of rows.
type PassKind int

const (
	// Marginals are q_ii of each row; with a mean of the whitened inducing variables the row's mean; with the root of a
	// covariance of theirs what the row's variance has of it.
	Marginals PassKind = iota
	// Gram is what rows add to B and b, and q_ii of each.
	Gram
	// Slopes are what rows add to the derivatives.
	Slopes
)

// Pass is a sum over all rows: what is computed of each block, by whoever has the rows and θ, from what the pass carries. It is read
// only while blocks are computed. The parts of blocks are added up in their order.
type Pass struct {
	Kind PassKind
	Of   Kind // the approximation
	// Of Slopes: Points asks for the derivatives by the inducing inputs, too, and Targets says that α is to be computed from y.
	Points, Targets bool
	Z               *kernel.Inputs
	// Shared is what all blocks are computed from, columns of m numbers one after another: of Marginals and Gram L⁻ᵀ; of
	// Marginals then the mean and the root of the covariance, or nothing; of Slopes what K_fu is multiplied by, γ, and K_uu⁻¹, nothing but for FITC.
	Shared [][]float64
	// Rows is what the rows of a block are computed from, columns of n numbers: of Gram Λ^(−½) and Λ^(−½)y, of
	// Slopes α or y, then Λ, and q_ii.
	Rows [][]float64
}

// PassShape returns how many numbers the vectors of Pass.Shared have for m inducing inputs, at most, and how many columns Pass.Rows has. It is
// false if there is no such pass.
func PassShape(k PassKind, m int) (shared []int, rows int, ok bool) {
	switch k {
	case Marginals:
		return []int{m * m, m, m * m}, 0, true
	case Gram:
		return []int{m * m}, 2, true
	case Slopes:
		return []int{m * m, m, m * m}, 3, true
	}
	return nil, 0, false
}

// Summer computes passes in an approximation's place: with others.
type Summer interface {
	// Pays reports whether the passes of an approximation of a kind are computed with others.
	Pays(a *Approximation, k PassKind) bool
	// Sum calls take with what the blocks of a pass come to, in their order. The parts are to be read until take returns.
	Sum(ctx context.Context, a *Approximation, p *Pass, take func(block int, part []float64)) error
}

// Share has passes computed by a summer; nil is for none.
func (a *Approximation) Share(s Summer) { a.summer = s }

// Function returns the covariance function that was set last.
func (a *Approximation) Function() *kernel.Function { return a.f }

// Blocks returns the number of blocks of n rows.
func Blocks(n int) int { return (n + blockRows - 1) / blockRows }

// BlockRows returns the rows [lo,hi) of a block of n.
func BlockRows(n, block int) (lo, hi int) { return block * blockRows, min(n, (block+1)*blockRows) }

// Len returns the number of rows.
func (a *Approximation) Len() int { return a.rows.Len() }

// Alone is Summer.Sum on this process's cores alone.
func (a *Approximation) Alone(ctx context.Context, p *Pass, take func(block int, part []float64)) error {
	out := make([]float64, a.Size(p, 0))
	for i := range Blocks(a.Len()) {
		part := out[:a.Size(p, i)]
		if err := a.Compute(ctx, p, i, part); err != nil {
			return err
		}
		take(i, part)
	}
	return ctx.Err()
}

// sum computes a pass, with others if that pays.
func (a *Approximation) sum(ctx context.Context, p *Pass, take func(block int, part []float64)) error {
	if a.pays(p.Kind) {
		return a.summer.Sum(ctx, a, p, take)
	}
	return a.Alone(ctx, p, take)
}

func (a *Approximation) pays(k PassKind) bool { return a.summer != nil && a.summer.Pays(a, k) }

// Size returns how many numbers a block of a pass comes to.
func (a *Approximation) Size(p *Pass, block int) int {
	lo, hi := BlockRows(a.Len(), block)
	return a.PassSize(p, hi-lo)
}

// PassSize returns how many numbers a block of so many rows comes to.
func (a *Approximation) PassSize(p *Pass, rows int) int {
	m := p.Z.Len()
	switch p.Kind {
	case Marginals:
		n := rows
		for _, x := range p.Shared[1:] {
			if len(x) > 0 {
				n += rows
			}
		}
		return n
	case Gram:
		return m*(m+1)/2 + m + rows
	}
	s := a.layOut(p, rows)
	return s.end
}

// Compute sets out to what a block of a pass comes to, given the function that was set last. The inducing inputs are those of the
// pass. The only error is that of ctx.
func (a *Approximation) Compute(ctx context.Context, p *Pass, block int, out []float64) error {
	lo, hi := BlockRows(a.Len(), block)
	switch p.Kind {
	case Marginals:
		return a.marginals(ctx, p, lo, hi, out)
	case Gram:
		return a.gramBlock(ctx, p, lo, hi, out)
	}
	return a.slopesBlock(ctx, p, lo, hi, out)
}

// whitened returns V of a block of rows, whose columns they are: Vᵀ.
func (a *Approximation) whitened(ctx context.Context, lo, hi int, root [][]float64) (*dense.Matrix, error) {
	v := a.cross(lo, hi)
	return v, v.MulRight(ctx, root, a.budget)
}

// marginals is Compute of Marginals: q_ii, means, and parts of variances, row by row each.
func (a *Approximation) marginals(ctx context.Context, p *Pass, lo, hi int, out []float64) error {
	m, rows := p.Z.Len(), hi-lo
	v, err := a.whitened(ctx, lo, hi, split(p.Shared[0], m))
	if err != nil {
		return err
	}
	clear(out)
	own, out := out[:rows], out[rows:]
	if mean := p.Shared[1]; len(mean) > 0 {
		if err := v.MulAdd(ctx, [][]float64{out[:rows]}, [][]float64{mean}, a.budget); err != nil {
			return err
		}
		out = out[rows:]
	}
	a.squares(own, v)
	if len(out) == 0 {
		return ctx.Err()
	}
	if err := v.MulRight(ctx, split(p.Shared[2], m), a.budget); err != nil {
		return err
	}
	a.squares(out, v)
	return ctx.Err()
}

// squares sets dst to the squared lengths of a matrix's rows.
func (a *Approximation) squares(dst []float64, v *dense.Matrix) {
	a.budget.NewLoop(func(_, t int) {
		data, lo, hi := v.Tile(t)
		rowDots(dst[lo:hi], data, data, a.z.Len())
	}).Run(v.Tiles())
}

// split cuts a vector into columns of m numbers, nil if there are none.
func split(x []float64, m int) (columns [][]float64) {
	for ; len(x) > 0; x = x[m:] {
		columns = append(columns, x[:m])
	}
	return columns
}

// gramBlock is Compute of Gram: the upper half of AAᵀ, row by row, then b, then q_ii.
func (a *Approximation) gramBlock(ctx context.Context, p *Pass, lo, hi int, out []float64) error {
	m := p.Z.Len()
	v, err := a.whitened(ctx, lo, hi, split(p.Shared[0], m))
	if err != nil {
		return err
	}
	own := out[len(out)-(hi-lo):]
	a.budget.NewLoop(func(_, t int) {
		data, from, to := v.Tile(t)
		rowDots(own[from:to], data, data, m)
		scaleColumns(data, p.Rows[0][lo+from:lo+to], m)
	}).Run(v.Tiles())
	gram, b, err := a.gramOf(ctx, v, p.Rows[1][lo:hi])
	if err != nil {
		return err
	}
	for j := range m {
		out = out[copy(out, upper(gram, j)):]
	}
	copy(out, b)
	return nil
}

// gramOf returns AAᵀ and A·x of a block of rows, given Aᵀ.
func (a *Approximation) gramOf(ctx context.Context, v *dense.Matrix, x []float64) (gram *mat.SymDense, b []float64, err error) {
	if gram, err = v.Gram(ctx, a.budget); err != nil {
		return nil, nil, err
	}
	b = make([]float64, a.z.Len())
	return gram, b, v.MulTrans(ctx, [][]float64{b}, [][]float64{x}, a.budget)
}

// upper returns a row of a symmetric matrix from its diagonal on.
func upper(x *mat.SymDense, j int) []float64 {
	raw := x.RawSymmetric()
	return raw.Data[j*raw.Stride+j : j*raw.Stride+raw.N]
}

// sweep is a pass in which rows, given their marginals, are added to B and b.
type sweep struct {
	root, spread [][]float64 // columns of L⁻ᵀ, and of the root of the covariance of whitened inducing variables; nil for none
	mean         []float64   // theirs; nil if the rows' are not needed
	early        bool        // whether rows are weighed without their marginals
	// Of all rows: mean and part of the variance, where they are asked for.
	means, left []float64
	// weigh sets what the rows [lo,hi) are multiplied by, Λ^(−½), and their targets times that. It returns what they add to the sweep's sum.
	weigh func(lo, hi int, factor, scaled []float64) float64
}

// sweep adds the rows to B and b, and returns the sum of what they add beside. It finds q_ii.
func (s *fit) sweep(ctx context.Context, w *sweep, b []float64) (float64, error) {
	if w.mean != nil {
		w.means = make([]float64, s.Len())
	}
	if w.spread != nil {
		w.left = make([]float64, s.Len())
	}
	if s.pays(Gram) {
		return s.sweepTwice(ctx, w, b)
	}
	sum := 0.0
	err := s.blocks(ctx, func(lo, hi int) error {
		part, err := s.sweepBlock(ctx, w, b, lo, hi)
		sum += part
		return err
	})
	return sum, err
}

// sweepBlock is sweep of a block.
func (s *fit) sweepBlock(ctx context.Context, w *sweep, b []float64, lo, hi int) (float64, error) {
	v, err := s.whitened(ctx, lo, hi, w.root)
	if err != nil {
		return 0, err
	}
	if w.mean != nil {
		if err := v.MulAdd(ctx, [][]float64{w.means[lo:hi]}, [][]float64{w.mean}, s.budget); err != nil {
			return 0, err
		}
	}
	if w.spread != nil {
		spread := v.Clone()
		if err := spread.MulRight(ctx, w.spread, s.budget); err != nil {
			return 0, err
		}
		s.squares(w.left[lo:hi], spread)
	}
	parts, factor, scaled := make([]float64, v.Tiles()), make([]float64, hi-lo), make([]float64, hi-lo)
	s.budget.NewLoop(func(_, t int) {
		data, from, to := v.Tile(t)
		rowDots(s.own[lo+from:lo+to], data, data, s.z.Len())
		parts[t] = w.weigh(lo+from, lo+to, factor[from:to], scaled[from:to])
		scaleColumns(data, factor[from:to], s.z.Len())
	}).Run(v.Tiles())
	gram, part, err := s.gramOf(ctx, v, scaled)
	if err != nil {
		return 0, err
	}
	s.gram.AddSym(s.gram, gram)
	floats.Add(b, part)
	return floats.Sum(parts), nil
}

// sweepTwice is sweep in two passes, which others have a part in who do not know how rows are weighed.
func (s *fit) sweepTwice(ctx context.Context, w *sweep, b []float64) (float64, error) {
	n, root := s.Len(), slices.Concat(w.root...)
	if !w.early {
		p := &Pass{Kind: Marginals, Of: s.kind, Z: s.z, Shared: [][]float64{root, w.mean, slices.Concat(w.spread...)}}
		err := s.sum(ctx, p, func(block int, part []float64) {
			lo, hi := BlockRows(n, block)
			for _, to := range [][]float64{s.own, w.means, w.left} {
				if to != nil {
					part = part[copy(to[lo:hi], part):]
				}
			}
		})
		if err != nil {
			return 0, err
		}
	}
	sum, factor, scaled := 0.0, make([]float64, n), make([]float64, n)
	for i := range Blocks(n) {
		lo, hi := BlockRows(n, i)
		parts := make([]float64, (hi-lo+tile.Size-1)/tile.Size)
		s.budget.Chunks(hi-lo, tile.Size, func(t, from, to int) {
			from, to = lo+from, lo+to
			parts[t] = w.weigh(from, to, factor[from:to], scaled[from:to])
		})
		sum += floats.Sum(parts)
	}
	p := &Pass{Kind: Gram, Of: s.kind, Z: s.z, Shared: [][]float64{root}, Rows: [][]float64{factor, scaled}}
	return sum, s.sum(ctx, p, func(block int, part []float64) {
		for j := range s.z.Len() {
			row := upper(s.gram, j)
			floats.Add(row, part[:len(row)])
			part = part[len(row):]
		}
		floats.Add(b, part[:len(b)])
		lo, hi := BlockRows(n, block)
		copy(s.own[lo:hi], part[len(b):])
	})
}

// CheckPart returns whether what a block of a pass is said to come to may be right: numbers that are finite, and of a Gram matrix
// the trace that the rows' q_ii make.
func (a *Approximation) CheckPart(p *Pass, block int, part []float64) bool {
	for _, x := range part {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	if p.Kind != Gram {
		return true
	}
	lo, hi := BlockRows(a.Len(), block)
	trace, at, m := 0.0, 0, p.Z.Len()
	for j := range m {
		trace += part[at]
		at += m - j
	}
	own, sum := part[len(part)-(hi-lo):], 0.0
	for i, q := range own {
		w := p.Rows[0][lo+i]
		sum += w * w * q
	}
	return math.Abs(trace-sum) <= 1e-9*(math.Abs(sum)+math.SmallestNonzeroFloat64)
}
