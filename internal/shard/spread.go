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
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// A large factor of pivots is built, and kept, by the group: the members, the driver among them, have chunks of its rows, and nobody all.
// What travels is its recipe, of which any chunk can be computed anew; what is left of the diagonal of K, of which the driver chooses the
// next pivots; and LᵀL, summed up from chunk to chunk in the order of the driver alone. A chunk that is lost is computed by
// whoever is free.

// largeFactor is the size of a factor, in bytes, from which a group builds it. Smaller ones are quickly built, and take no room.
const largeFactor = 256 << 20

// growth is what is known of a factor that members compute.
type growth struct {
	by     []*peer // who had each chunk last
	bound  float64 // of the diagonal of K_f
	sealed bool    // whether there are checksums
	banned []*peer // who made something wrong of it, and may have kept that
}

// Spread begins a factor of so many pivots at most, which the members compute and keep. It returns nil if there is no other member, or the factor is small.
func (g *Group) Spread(rank int) precond.Spread {
	n, exact := g.Len(), g.Function().Covariance().Rank()
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	now := time.Now()
	usable := slices.ContainsFunc(peers, func(p *peer) bool { return !p.until.After(now) && p.rows.most() > 0 })
	if !usable || n < g.conf.MinRows || exact+rank > n || !g.eager && 8*n*rank < spreadFrom() {
		return nil
	}
	g.conf.Log.Info("the group builds a preconditioner", "rank", rank, "members", 1+len(peers))
	return g.newSpread(exact+rank, &recipe{theta: g.state.Theta, noise: g.state.Noise, open: true})
}

// newSpread returns a factor of so many columns, at most if its recipe is open.
func (g *Group) newSpread(cols int, r *recipe) *factor {
	g.versions++
	op := cmvp.New(g.local.Inputs(), g.Function().Covariance(), g.Budget())
	op.Set(r.theta, r.noise)
	m := newMatrix(g.Len(), cols)
	m.recipe, m.grower = r, &grower{recipe: r, op: op, set: true}
	return &factor{g: g, m: m, state: &State{Version: g.versions}, owner: make([]*peer, len(m.chunks)),
		growth: &growth{by: make([]*peer, len(m.chunks)), bound: largest(op)}}
}

// run computes a product with a factor that members compute.
func (f *factor) run(ctx context.Context, p *Product, commit func(u Unit, out []float64)) ([]share, error) {
	g := f.g
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	for _, m := range peers {
		if time.Until(m.until) > longestPause && !slices.Contains(f.growth.banned, m) {
			f.growth.banned = append(f.growth.banned, m)
		}
	}
	peers = slices.DeleteFunc(slices.Clone(peers), func(p *peer) bool { return slices.Contains(f.growth.banned, p) })
	for _, m := range peers {
		m.rows.begin(f.state)
	}
	f.assign(peers, time.Now())
	p.ID, p.State, p.L, p.holds = g.ids.Add(1), f.state, f.m, f.keepers(peers)
	p.prepare()
	defer p.free()
	shares, err := g.factors.run(ctx, p, peers, commit)
	if err == nil {
		for _, s := range shares {
			f.growth.by[s.Lo], f.owner[s.Lo] = s.by, s.by
			if s.by != nil { // what was computed here because that one was late
				f.m.drop(s.Lo)
			}
		}
	}
	return shares, err
}

// keepers returns what tells who has which chunks, or is to have those that nobody has. A member that has none is to have those that it is given.
func (f *factor) keepers(peers []*peer) func(*peer) pieces {
	here := f.m.grower.has()
	for i, c := range f.m.chunks {
		if c != nil {
			here |= 1 << i
		}
	}
	has := map[*peer]pieces{nil: here}
	all := here
	for _, p := range peers {
		has[p] = p.rows.ready(f.state)
		all |= has[p]
	}
	for i, p := range f.owner {
		if all&(1<<i) == 0 || p != nil && p.rows.ready(f.state) == 0 {
			has[p] |= 1 << i
		}
	}
	return func(p *peer) pieces { return has[p] }
}

// Grow adds the columns of a block of pivots. The driver's own chunks go by L there as it was given.
func (f *factor) Grow(ctx context.Context, b precond.Block, at [][]float64, residual []float64) error {
	if err := f.m.grower.take(b, at); err != nil {
		return err
	}
	_, err := f.run(ctx, &Product{Kind: Grow, N: f.m.rows, Bound: f.growth.bound}, func(u Unit, out []float64) {
		lo, _ := f.m.rowRange(u)
		copy(residual[lo:], out)
	})
	return err
}

// Doubt says that what a member made of a row is wrong.
func (f *factor) Doubt(row int) error {
	for i, by := range f.growth.by {
		if lo, hi := dense.ChunkRows(f.m.rows, i); lo <= row && row < hi {
			if by == nil {
				return ErrUnsteady
			}
			why := fmt.Sprintf("row %d of a preconditioner is not what the driver makes of it", row)
			f.g.factors.blame(by, why)
			return &precond.ErrDoubt{Why: why}
		}
	}
	panic("shard: no such row")
}

// Gram ends the building, and returns LᵀL.
func (f *factor) Gram(ctx context.Context) (*mat.SymDense, error) {
	f.m.recipe.close()
	blocks, _ := f.m.recipe.known()
	f.m.cols = f.g.Function().Covariance().Rank()
	for _, b := range blocks {
		f.m.cols += len(b.Pivots)
	}
	gram := mat.NewSymDense(f.m.cols, nil)
	if err := f.gram(ctx, gram); err != nil {
		return nil, err
	}
	return gram, f.seal(ctx, gram)
}

// gram sums LᵀL up. A block of its rows goes from chunk to chunk, one after the other, so that in each step each chunk has one.
func (f *factor) gram(ctx context.Context, gram *mat.SymDense) error {
	chunks, blocks := len(f.m.chunks), dense.GramBlocks(f.m.cols)
	sums := make([][]float64, chunks) // where the next step finds them
	for step := range chunks + blocks - 1 {
		p := &Product{Kind: Gram, N: f.m.rows, Chunk: step, V: make([][]float64, chunks), again: []share{}}
		made := make([][]float64, chunks)
		for i := range chunks {
			k := f.m.gram(step, i)
			if k == 0 {
				continue
			}
			if p.V[i] = make([]float64, k); i > 0 {
				p.V[i] = sums[i-1]
			}
			p.again = append(p.again, share{Unit: Unit{i, i + 1}})
		}
		if _, err := f.run(ctx, p, func(u Unit, out []float64) { made[u.Lo] = slices.Clone(out) }); err != nil {
			return err
		}
		if last := made[chunks-1]; last != nil {
			dense.SetGram(gram, step-chunks+1, last)
		}
		sums = made
	}
	return nil
}

// agrees is how far, relative to its length, a vector may be from itself when it is computed in two ways.
const agrees = 1e-9

// seal makes the checksums that answers are held against, and holds a row of each chunk, and LᵀL if there is one, against what
// they must be.
func (f *factor) seal(ctx context.Context, gram *mat.SymDense) error {
	m, s := f.m, &f.m.sums
	s.rows, s.cols = signs(m.rows), signs(m.cols)
	lh := make([]float64, m.rows)
	if _, err := f.run(ctx, &Product{Kind: Low, V: [][]float64{s.cols}, N: m.cols, raw: true}, func(u Unit, out []float64) {
		lo, _ := m.rowRange(u)
		copy(lh[lo:], out)
	}); err != nil {
		return err
	}
	if err := f.sample(ctx, lh); err != nil {
		return err
	}
	gl, llh := make([][]float64, len(m.chunks)), make([][]float64, len(m.chunks))
	if _, err := f.run(ctx, &Product{Kind: Trans, V: [][]float64{s.rows, lh}, N: m.rows, raw: true}, func(u Unit, out []float64) {
		gl[u.Lo], llh[u.Lo] = slices.Clone(out[:m.cols]), slices.Clone(out[m.cols:])
	}); err != nil {
		return err
	}
	s.gl, s.lh, s.norm = gl, nil, nil
	for i := range m.chunks {
		lo, hi := dense.ChunkRows(m.rows, i)
		s.lh, s.norm = append(s.lh, lh[lo:hi]), append(s.norm, m.largestNorm(lo, hi))
	}
	s.once.Do(func() {})
	f.growth.sealed = true
	if gram == nil {
		return nil
	}
	return f.holdAgainst(gram, llh)
}

// sample computes a row of each chunk here, and compares what it makes of a vector.
func (f *factor) sample(ctx context.Context, lh []float64) error {
	rows := make([]int, len(f.m.chunks))
	for i := range rows {
		lo, hi := dense.ChunkRows(f.m.rows, i)
		rows[i] = lo + rand.IntN(hi-lo)
	}
	l, err := f.m.grower.at(ctx, rows)
	if err != nil {
		return err
	}
	own := make([]float64, len(rows))
	if err := l.Mul(ctx, own, [][]float64{f.m.sums.cols}, f.g.Budget()); err != nil {
		return err
	}
	for i, row := range rows {
		if math.Float64bits(own[i]) != math.Float64bits(lh[row]) {
			return f.Doubt(row)
		}
	}
	return nil
}

// holdAgainst compares LᵀL·h with Lᵀ·(L·h).
func (f *factor) holdAgainst(gram *mat.SymDense, llh [][]float64) error {
	left, sum := mat.NewVecDense(f.m.cols, nil), make([]float64, f.m.cols)
	left.MulVec(gram, mat.NewVecDense(f.m.cols, f.m.sums.cols))
	for _, x := range llh {
		floats.Add(sum, x)
	}
	if d := floats.Distance(sum, left.RawVector().Data, 2); !(d <= agrees*length(sum)) {
		return &precond.ErrDoubt{Why: fmt.Sprintf("what the group made of a preconditioner's Gram matrix is off by %.2g", d/length(sum))}
	}
	return nil
}

// largestNorm returns a bound of the norm of some rows of L̃, whose squares add up to no more than the diagonal of K_f over the noise.
func (m *matrix) largestNorm(lo, hi int) float64 {
	var sum float64
	op := m.grower.op
	for i := lo; i < hi; i++ {
		sum += op.Function().Variance(op.Inputs().Row(i)) / op.Noise()[i]
	}
	return math.Sqrt(sum)
}

// overAll computes a product with a factor that members compute.
func (f *factor) overAll(ctx context.Context, p *Product, dst [][]float64, b *parallel.Budget) error {
	err := func() error {
		if !f.growth.sealed {
			if err := f.seal(ctx, nil); err != nil {
				return err
			}
		}
		p.L = f.m
		sums := solve.Columns(p.Size(Unit{0, p.units()}), 1)[0]
		shares, err := f.run(ctx, p, func(u Unit, out []float64) { copy(p.place(sums, u), out) })
		if err == nil {
			err = f.verify(ctx, p, sums, shares)
		}
		if err == nil {
			f.m.reduce(p, dst, sums, b)
		}
		return err
	}()
	var doubt *precond.ErrDoubt
	if errors.As(err, &doubt) { // who was wrong is put aside
		return f.overAll(ctx, p, dst, b)
	}
	if err != nil && ctx.Err() == nil {
		f.g.failed = err
	}
	return err
}
