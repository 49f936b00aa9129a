package precond

import (
	"context"
	"errors"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Block is a step of a pivoted Cholesky factorisation: rows of K_f that became pivots together, and the Cholesky
// factor C of what their covariance was then beyond that of the pivots before them.
type Block struct {
	Pivots []int
	Factor []float64 // C row by row: i+1 numbers of row i
}

// row returns row i of C: what is left of the diagonal, and the diagonal element.
func (b *Block) row(i int) (left []float64, diagonal float64) {
	r := b.Factor[i*(i+1)/2:][:i+1]
	return r[:i], r[i]
}

// first returns the block of the first m pivots.
func (b *Block) first(m int) Block { return Block{b.Pivots[:m], b.Factor[:m*(m+1)/2]} }

// Recipe is what any rows of the factor L̃ of a LowRank can be computed from, to the last bit, by whoever has the
// inputs: 64 numbers a pivot in place of n. Row i of L of a pivoted Cholesky factor is a function of the pivots and of
// row i of K alone, block by block:
//
//	L_iT = (K_iT − L_i·L_Tᵀ) C⁻ᵀ
//
// with T the pivots of the block and L the columns before it.
type Recipe struct {
	Theta  []float64 // of the covariance
	Noise  []float64 // B: one number for all rows, or one for each
	Blocks []Block
}

// newRecipe returns the recipe of a factor that was built for K(θ) as it stands.
func newRecipe(k Covariance, blocks []Block) *Recipe {
	r := &Recipe{Theta: slices.Clone(k.Function().Theta()), Noise: slices.Clone(k.Noise()), Blocks: blocks}
	if !slices.ContainsFunc(r.Noise, func(x float64) bool { return x != r.Noise[0] }) {
		r.Noise = r.Noise[:1]
	}
	return r
}

// Rank returns the number of pivots.
func (r *Recipe) Rank() (m int) {
	for _, b := range r.Blocks {
		m += len(b.Pivots)
	}
	return m
}

// part is some rows of the factor L of K_f, in which the columns of the pivots so far are.
type part struct {
	k    Covariance
	of   []int // which rows; nil for all
	l    *dense.Matrix
	done int // columns
}

// newPart returns a part that has room for some columns.
func newPart(k Covariance, of []int, cols int) *part {
	return &part{k: k, of: of, l: dense.New(len(of), max(1, cols))}
}

// grow adds the columns of a block, given L at its pivots: the columns before. take is told of the new columns, rows
// [lo,hi) at a time. The only error is that of ctx, and leaves the part as it was.
func (p *part) grow(ctx context.Context, b Block, at [][]float64, take func(cols [][]float64, lo, hi int)) error {
	points, budget := p.k.Inputs().Select(b.Pivots), p.k.Budget()
	var cols [][]float64
	var err error
	if p.of == nil {
		cols, err = p.k.CrossMatrix(ctx, points)
	} else {
		cols, err = p.k.CrossRows(ctx, points, p.of)
	}
	if err != nil {
		return err
	}
	if p.done > 0 {
		minus := solve.Columns(p.done, len(at))
		for c := range at {
			floats.ScaleTo(minus[c], -1, at[c])
		}
		if err := p.l.First(p.done).MulAdd(ctx, cols, minus, budget); err != nil {
			return err
		}
	}
	budget.Chunks(len(cols[0]), 1024, func(_, lo, hi int) { // times C⁻ᵀ
		if ctx.Err() != nil {
			return
		}
		for i := range cols {
			x := cols[i][lo:hi]
			left, diagonal := b.row(i)
			for j, c := range left {
				floats.AddScaled(x, -c, cols[j][lo:hi])
			}
			floats.Scale(1/diagonal, x)
		}
		if take != nil {
			take(cols, lo, hi)
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	budget.NewLoop(func(_, c int) { p.l.SetCol(p.done+c, cols[c]) }).Run(len(cols))
	p.done += len(cols)
	return nil
}

// row returns row i of the part: the columns so far.
func (p *part) row(i int) []float64 {
	x := make([]float64, p.done)
	if p.done > 0 {
		p.l.First(p.done).Row(x, i)
	}
	return x
}

// Rows computes rows of the factor L̃ of a LowRank by its recipe. It is not safe for concurrent use.
type Rows struct {
	k      Covariance // without its part of low rank
	exact  [][]float64
	root   []float64
	blocks []Block
	at     [][][]float64 // L at the pivots of each block: the columns before
	rank   int
}

// NewRows returns what computes rows of a factor, without pivots. k has the θ and the noise of the recipe.
func NewRows(k Covariance) (*Rows, error) {
	rest, exact := withoutFeatures(k)
	if rest == nil {
		return nil, errors.New("a covariance of low rank, which has no pivots")
	}
	return &Rows{k: rest, exact: exact, root: newDiagonal(k.Noise(), k.Budget()).root}, nil
}

// Exact returns how many columns L̃ has beside those of the pivots, before them.
func (r *Rows) Exact() int { return len(r.exact) }

// Rank returns the number of pivots so far.
func (r *Rows) Rank() int { return r.rank }

// Blocks returns the number of blocks so far.
func (r *Rows) Blocks() int { return len(r.blocks) }

// someBlocks is how many blocks are added together: enough rows for all cores, few enough that they take little memory.
const someBlocks = 16

// Add takes the next blocks. For m pivots in all it takes m²/2 numbers, and, at the least, the time of m³/6 multiplications. The only error is
// that of ctx: not all of the blocks have been taken then.
func (r *Rows) Add(ctx context.Context, blocks ...Block) error {
	for some := range slices.Chunk(blocks, someBlocks) {
		if err := r.addSome(ctx, some); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *Rows) addSome(ctx context.Context, blocks []Block) error {
	var pivots []int
	for _, b := range blocks {
		pivots = append(pivots, b.Pivots...)
	}
	p := newPart(r.k, pivots, r.rank+len(pivots))
	if err := r.bring(ctx, p, nil); err != nil {
		return err
	}
	var at [][][]float64
	first := 0 // row of p
	for i, b := range blocks {
		rows := make([][]float64, len(b.Pivots))
		for c := range rows {
			rows[c] = p.row(first + c)
		}
		at, first = append(at, rows), first+len(rows)
		if i == len(blocks)-1 {
			break
		}
		from := first / dense.TileRows * dense.TileRows // those of earlier pivots have done their part
		later := &part{k: r.k, of: pivots[from:], l: p.l.Part(from, len(pivots)), done: p.done}
		if err := later.grow(ctx, b, rows, nil); err != nil {
			return err
		}
		p.done = later.done
	}
	for i, b := range blocks {
		r.Append(b, at[i])
	}
	return nil
}

// Append takes the next block, given L at its pivots, which it keeps.
func (r *Rows) Append(b Block, at [][]float64) {
	r.blocks, r.at, r.rank = append(r.blocks, b), append(r.at, at), r.rank+len(b.Pivots)
}

// bring adds the columns of all blocks that a part has not. The only error is that of ctx; the part is as far then as it came.
func (r *Rows) bring(ctx context.Context, p *part, take func(cols [][]float64, lo, hi int)) error {
	done := 0
	for i, b := range r.blocks {
		if done >= p.done {
			if err := p.grow(ctx, b, r.at[i], take); err != nil {
				return err
			}
		}
		done += len(b.Pivots)
	}
	return nil
}

// Part is some rows of a factor that is under way.
type Part struct {
	part
	residual []float64
}

// Start returns some rows of a factor, without columns, which has room for as many pivots as there are to be in all.
func (r *Rows) Start(of []int, rank int) *Part {
	return &Part{part: *newPart(r.k, of, rank), residual: variances(r.k, of)}
}

// Bring adds the columns of the pivots that a part has not. The only error is that of ctx; the part has then got as far as it came.
func (r *Rows) Bring(ctx context.Context, p *Part) error {
	return r.bring(ctx, &p.part, func(cols [][]float64, lo, hi int) { lessen(p.residual, cols, lo, hi) })
}

// Residual returns the diagonal of K_f − L·Lᵀ in the rows of a part, to read: no less than 0, and rounding at pivots.
func (p *Part) Residual() []float64 { return p.residual }

// Finish returns the rows of L̃ that a part comes to which has the columns of all pivots: there has to be one. The part is void after it. The only
// error is that of ctx.
func (r *Rows) Finish(ctx context.Context, p *Part) (*dense.Matrix, error) {
	exact, root := solve.Columns(len(p.of), len(r.exact)), make([]float64, len(p.of))
	for q, i := range p.of {
		root[q] = r.root[i]
		for c, a := range r.exact {
			exact[c][q] = a[i]
		}
	}
	return whitened(ctx, p.l.First(r.rank), exact, root, r.k.Budget()), ctx.Err()
}

// At computes some rows of L̃, of the pivots so far: there has to be one. The only error is that of ctx.
func (r *Rows) At(ctx context.Context, of []int) (*dense.Matrix, error) {
	p := r.Start(of, r.rank)
	if err := r.Bring(ctx, p); err != nil {
		return nil, err
	}
	return r.Finish(ctx, p)
}
