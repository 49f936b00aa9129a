package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/precond"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// recipe is what the chunks of a factor are computed from where they are needed (precond.Recipe), as far as it has come.
type recipe struct {
	theta, noise []float64

	mu     sync.Mutex
	blocks []precond.Block
}

// known returns the blocks so far, to read.
func (r *recipe) known() []precond.Block {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blocks[:len(r.blocks):len(r.blocks)]
}

// add adds a block.
func (r *recipe) add(b precond.Block) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocks = append(r.blocks, b)
}

// grower computes chunks of a factor by its recipe, one at a time.
type grower struct {
	*recipe
	op  *cmvp.Operator // with the θ and the noise of the recipe, once it is set
	set bool

	mu    sync.Mutex
	rows  *precond.Rows
	taken int // blocks
}

// take has the rows know all blocks.
func (g *grower) take(ctx context.Context) (err error) {
	if g.rows == nil {
		if g.rows, err = precond.NewRows(g.op); err != nil {
			return err
		}
	}
	blocks := g.known()
	if err := g.rows.Add(ctx, blocks[g.taken:]...); err != nil {
		return err
	}
	g.taken = len(blocks)
	return nil
}

// chunk computes the rows [lo,hi) of a factor of so many columns.
func (g *grower) chunk(ctx context.Context, lo, hi, cols int) (*dense.Matrix, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.take(ctx); err != nil {
		return nil, err
	}
	if got := g.rows.Exact() + g.rows.Rank(); got != cols {
		return nil, fmt.Errorf("a recipe of %d columns for a factor of %d", got, cols)
	}
	return g.rows.Range(ctx, lo, hi)
}

// pivotsFrame returns the message of a block of pivots.
func pivotsFrame(i int, b precond.Block) *frame {
	m := &pb.TilesPivots{Block: int64(i)}
	for _, p := range b.Pivots {
		m.Rows = append(m.Rows, int64(p))
	}
	data, crc := encode(b.Factor)
	m.Crc32C = crc
	return &frame{data: data, head: &pb.TilesRequest{Request: &pb.TilesRequest_Pivots{Pivots: m}}}
}

// pivots takes in a block of pivots.
func (v *serving) pivots(m *pb.TilesPivots) error {
	if v.l == nil || v.l.grower == nil {
		return invalid("pivots of a factor that is not computed here")
	}
	g, k := v.l.grower, len(m.Rows)
	known := len(g.known())
	switch {
	case m.Block < int64(known):
		return nil
	case m.Block > int64(known) || k < 1 || k > maxPivots || v.in.numbers(8) != k*(k+1)/2 || v.pivoted+k > v.l.cols:
		return invalid("block %d of %d pivots and %d numbers after %d blocks, for a factor of %d columns", m.Block, k, v.in.numbers(8), known, v.l.cols)
	}
	b := precond.Block{Factor: make([]float64, k*(k+1)/2)}
	for _, row := range m.Rows {
		if row < 0 || row >= int64(v.l.rows) {
			return invalid("pivot %d of %d rows", row, v.l.rows)
		}
		b.Pivots = append(b.Pivots, int(row))
	}
	if err := v.in.read(8, m.Crc32C, one(b.Factor)); err != nil {
		return err
	}
	v.pivoted += k
	g.add(b)
	return nil
}

// maxPivots bounds the pivots of a block: its factor fits a frame.
const maxPivots = 256

// byRecipe begins a factor that is computed here.
func (v *serving) byRecipe(m *pb.TilesFactor) error {
	if err := v.checkParams(m.Theta, m.Noise); err != nil {
		return err
	}
	r := &recipe{theta: m.Theta, noise: []float64{m.Noise}}
	v.pivoted = 0
	g := &grower{recipe: r, op: v.op}
	v.l.grower = g
	set := func(int) {
		v.op.Set(spoilTheta(m.Theta), r.noise)
		g.set = true
	}
	if !m.NoiseFollows {
		set(0)
		return nil
	}
	r.noise = make([]float64, v.inputs.Len())
	v.expect(8, []region{noiseRegion(r.noise)}, set)
	return nil
}
