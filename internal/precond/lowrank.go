package precond

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// LowRank is P = B + L·Lᵀ with B diagonal or block diagonal of order n and L
// n×m; m may be 0. Its methods take s columns of n numbers, may alias dst and
// v, and cost O(n·m·s), and O(n·b·s) for blocks of b rows. It is safe for
// concurrent use.
type LowRank struct {
	kind   string
	exact  int            // columns of L, the first ones, that no rank cuts off
	base   base           // B = G·Gᵀ
	rank   int            // m
	l      *dense.Matrix  // L̃ = G⁻¹L; nil if m = 0, or if a group has it
	by     dense.Products // what multiplies by L̃
	c      lower          // C
	inv    *dense.Matrix  // (CCᵀ)⁻¹, applied at every iteration
	logDet float64
	recipe *Recipe // of L̃; nil if there is none
	budget *parallel.Budget
}

// parts are what a LowRank is made of. L is given by its columns, or as a matrix with the blocks that it came of; B is the noise then.
type parts struct {
	base   base
	cols   [][]float64
	l      *dense.Matrix
	blocks []Block
	spread Spread // in place of l, if a group has it
}

// someCols is the number of columns of L that are worked on between two looks at a
// context.
const someCols = 16

// newLowRank overwrites L, of which exact are the first columns.
func newLowRank(ctx context.Context, kind string, pt parts, exact [][]float64, k Covariance) (*LowRank, error) {
	p := &LowRank{kind: kind, exact: len(exact), base: pt.base, logDet: pt.base.logDet(), budget: k.Budget()}
	gram, err := p.setL(ctx, pt, exact, k)
	if gram == nil || err != nil {
		return p, err
	}
	m := p.rank
	for i := range m {
		gram.SetSym(i, i, 1+gram.At(i, i))
	}
	return within(ctx, func() (*LowRank, error) {
		u, ok := lapack64.Potrf(gram.RawSymmetric()) // in its place: of large rank a copy is gigabytes
		if !ok {
			return nil, errors.New("the preconditioner is numerically singular")
		}
		p.setFactor(lowerOf(u), u)
		return p, nil
	})
}

// setL takes L̃, and returns its Gram matrix; nil if m = 0.
func (p *LowRank) setL(ctx context.Context, pt parts, exact [][]float64, k Covariance) (*mat.SymDense, error) {
	if len(pt.blocks) > 0 {
		p.recipe = newRecipe(k, pt.blocks)
	}
	switch d, _ := pt.base.(*diagonal); {
	case pt.spread != nil && p.recipe != nil:
		p.by, p.rank = pt.spread, len(exact)+p.recipe.Rank()
		return pt.spread.Gram(ctx)
	case pt.l != nil:
		p.l = whitened(ctx, pt.l, exact, d.root, k.Budget())
	default:
		cols := slices.Concat(exact, pt.cols)
		if len(cols) == 0 {
			return nil, nil
		}
		for some := range slices.Chunk(cols, someCols) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.base.solve(some, some)
		}
		p.l = toMatrix(cols, k.Budget())
	}
	_, p.rank = p.l.Dims()
	p.by = p.l
	return p.l.Gram(ctx, k.Budget())
}

// within returns what f returns, or, once ctx is done, its error. f is a
// factorisation of an m×m matrix by gonum, which cannot be interrupted: it then goes
// on to its end by itself, and what it returns is dropped.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// setFactor takes C, and adds to log |P| what is C's. It overwrites u, which is Cᵀ.
func (p *LowRank) setFactor(c lower, u blas64.Triangular) {
	p.c = c
	for i := range u.N {
		p.logDet += 2 * math.Log(c.row(i)[i])
	}
	inv, _ := lapack64.Potri(u) // no element of the diagonal is below 1
	p.inv = dense.New(inv.N, inv.N)
	col := make([]float64, inv.N)
	for j := range col {
		for i := range col {
			col[i] = inv.Data[min(i, j)*inv.Stride+max(i, j)]
		}
		p.inv.SetCol(j, col)
	}
}

// Own returns how many columns of L are the kind's own: all but those of a part of K_f that is of low
// rank itself.
func (p *LowRank) Own() int { return p.Rank() - p.exact }

// First returns the preconditioner with the first m of its own columns of L alone. Of a
// pivoted Cholesky factor, and of Nyström's, it is the one of rank m. It shares
// the memory of p. It panics unless B does not depend on L and 0 < m ≤ Own, and if a group has L.
func (p *LowRank) First(m int) *LowRank {
	if !Nested(p.kind) || m < 1 || m > p.Own() || p.l == nil {
		panic(fmt.Sprintf("precond: the first %d columns of %s of rank %d", m, p.kind, p.Own()))
	}
	m += p.exact
	q := &LowRank{kind: p.kind, exact: p.exact, base: p.base, budget: p.budget, rank: m, l: p.l.First(m), logDet: p.base.logDet()}
	q.by = q.l
	c := p.c.first(m)
	q.setFactor(c, c.trans())
	return q
}

// Factor is the factor L̃ of a LowRank.
type Factor struct {
	By     dense.Products // what multiplies by it
	Matrix *dense.Matrix  // nil if a group has it
	Recipe *Recipe        // how its rows can be computed; nil if they have to be told
	Rank   int            // its columns
}

// Shared returns the same preconditioner with another way to multiply by its factor, which must give the same bits.
func (p *LowRank) Shared(share func(f Factor) dense.Products) *LowRank {
	if p.rank == 0 {
		return p
	}
	q := *p
	q.by = share(Factor{p.by, p.l, p.recipe, p.rank})
	return &q
}

// Kind returns the kind of preconditioner.
func (p *LowRank) Kind() string { return p.kind }

// Rank returns m.
func (p *LowRank) Rank() int { return p.rank }

// LogDet returns log |P|.
func (p *LowRank) LogDet() float64 { return p.logDet }

// Solve sets dst = P⁻¹·v.
func (p *LowRank) Solve(dst, v [][]float64) {
	p.base.solve(dst, v)
	p.update(dst, -1, func(w [][]float64) [][]float64 {
		t := solve.Columns(p.Rank(), len(v))
		_ = p.inv.MulTrans(context.Background(), t, w, p.budget) // symmetric
		return t
	})
	p.base.solveTrans(dst, dst)
}

// MulRoot sets dst = F·v.
func (p *LowRank) MulRoot(dst, v [][]float64) {
	copyColumns(dst, v)
	p.update(dst, 1, func(w [][]float64) [][]float64 {
		p.solveTri(1, blas.NoTrans, w)
		return w
	})
	p.base.mul(dst, dst)
}

// SolveRoot sets dst = F⁻¹·v.
func (p *LowRank) SolveRoot(dst, v [][]float64) {
	p.base.solve(dst, v)
	p.update(dst, -1, func(w [][]float64) [][]float64 {
		p.solveTri(0, blas.NoTrans, w)
		p.solveTri(1, blas.Trans, w)
		return w
	})
}

// SolveRootTrans sets dst = F⁻ᵀ·v.
func (p *LowRank) SolveRootTrans(dst, v [][]float64) {
	copyColumns(dst, v)
	p.update(dst, -1, func(w [][]float64) [][]float64 {
		p.solveTri(1, blas.NoTrans, w)
		p.solveTri(0, blas.Trans, w)
		return w
	})
	p.base.solveTrans(dst, dst)
}

// update adds sign·L̃·f(L̃ᵀ·x) to x.
func (p *LowRank) update(x [][]float64, sign float64, f func(w [][]float64) [][]float64) {
	if p.rank == 0 {
		return
	}
	w := solve.Columns(p.Rank(), len(x))
	_ = p.by.MulTrans(context.Background(), w, x, p.budget) // whoever applies P looks at his own context
	w = f(w)
	if sign < 0 {
		for _, c := range w {
			for i := range c {
				c[i] = -c[i]
			}
		}
	}
	_ = p.by.MulAdd(context.Background(), x, w, p.budget)
}

// solveTri solves with δ·I + C, or its transpose, in place.
func (p *LowRank) solveTri(delta float64, trans blas.Transpose, w [][]float64) {
	p.budget.NewLoop(func(_, c int) {
		if trans == blas.Trans {
			p.c.solveTrans(w[c], delta)
		} else {
			p.c.solve(w[c], delta)
		}
	}).Run(len(w))
}

// whitened returns G⁻¹·(A L) of some rows, with A the columns that are exact and root the diagonal of G there. It overwrites both, and
// keeps the memory of L if A has no columns. What it returns is undefined once ctx is done.
func whitened(ctx context.Context, l *dense.Matrix, exact [][]float64, root []float64, budget *parallel.Budget) *dense.Matrix {
	n, m := l.Dims()
	budget.NewLoop(func(_, t int) {
		data, lo, hi := l.Tile(t)
		for j := range m {
			if ctx.Err() != nil {
				return
			}
			col := data[j*dense.TileRows:][:hi-lo]
			for i, r := range root[lo:hi] {
				col[i] /= r
			}
		}
	}).Run(l.Tiles())
	if len(exact) == 0 {
		return l
	}
	all := dense.New(n, len(exact)+m)
	for q, a := range exact {
		for i, r := range root {
			a[i] /= r
		}
		all.SetCol(q, a)
	}
	budget.NewLoop(func(_, t int) {
		from, _, _ := l.Tile(t)
		to, _, _ := all.Tile(t)
		copy(to[len(exact)*dense.TileRows:], from[:m*dense.TileRows])
	}).Run(l.Tiles())
	return all
}

// toMatrix returns the matrix of the given columns.
func toMatrix(cols [][]float64, budget *parallel.Budget) *dense.Matrix {
	m := dense.New(len(cols[0]), len(cols))
	budget.NewLoop(func(_, j int) { m.SetCol(j, cols[j]) }).Run(len(cols))
	return m
}

func copyColumns(dst, v [][]float64) {
	for c := range v {
		if &dst[c][0] != &v[c][0] {
			copy(dst[c], v[c])
		}
	}
}
