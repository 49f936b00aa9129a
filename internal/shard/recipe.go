package shard

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/precond"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// recipe is what the chunks of a factor are computed from where they are needed (precond.Recipe), as far as it has come.
type recipe struct {
	theta, noise []float64
	seconds      float64 // about what the chunks of a member take it, if others have them, too

	mu     sync.Mutex
	blocks []precond.Block
	open   bool // whether more may come
}

// known returns the blocks so far, to read, and whether more may come.
func (r *recipe) known() (blocks []precond.Block, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blocks[:len(r.blocks):len(r.blocks)], r.open
}

// close says that no more come.
func (r *recipe) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
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
	parts map[int]*precond.Part // chunks under way
}

// begin makes what rows are computed by, once the operator is set.
func (g *grower) begin() (err error) {
	if g.rows == nil {
		g.rows, err = precond.NewRows(g.op)
		g.parts = map[int]*precond.Part{}
	}
	return err
}

// take adds a block to the recipe, given L at its pivots.
func (g *grower) take(b precond.Block, at [][]float64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.begin(); err != nil {
		return err
	}
	g.add(b)
	g.rows.Append(b, at)
	return nil
}

// catchUp takes the blocks that have come since.
func (g *grower) catchUp(ctx context.Context) error {
	if err := g.begin(); err != nil {
		return err
	}
	blocks, _ := g.known()
	return g.rows.Add(ctx, blocks[g.rows.Blocks():]...)
}

// part returns a chunk with the columns of all pivots so far, of a factor of so many columns at most.
func (g *grower) part(ctx context.Context, i, lo, hi, cols int) (p *precond.Part, err error) {
	if err := g.catchUp(ctx); err != nil {
		return nil, err
	}
	if p = g.parts[i]; p == nil {
		of := make([]int, hi-lo)
		for q := range of {
			of[q] = lo + q
		}
		p = g.rows.Start(of, cols-g.rows.Exact())
		g.parts[i] = p
	}
	return p, g.rows.Bring(ctx, p)
}

// residual sets out to what is left of the diagonal of K_f in the rows [lo,hi) of chunk i.
func (g *grower) residual(ctx context.Context, out []float64, i, lo, hi, cols int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, err := g.part(ctx, i, lo, hi, cols)
	if err == nil {
		copy(out, p.Residual())
	}
	return err
}

// chunk computes chunk i, the rows [lo,hi) of a factor of so many columns.
func (g *grower) chunk(ctx context.Context, i, lo, hi, cols int) (*dense.Matrix, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, err := g.part(ctx, i, lo, hi, cols)
	if err != nil {
		return nil, err
	}
	if got := g.rows.Exact() + g.rows.Rank(); got != cols {
		return nil, fmt.Errorf("a recipe of %d columns for a factor of %d", got, cols)
	}
	delete(g.parts, i)
	return g.rows.Finish(ctx, p)
}

// at computes some rows of a factor.
func (g *grower) at(ctx context.Context, of []int) (*dense.Matrix, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.catchUp(ctx); err != nil {
		return nil, err
	}
	return g.rows.At(ctx, of)
}

// drop forgets a chunk that is under way.
func (g *grower) drop(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.parts, i)
}

// has returns the chunks that are under way.
func (g *grower) has() (all pieces) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.parts {
		all |= 1 << i
	}
	return all
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
	blocks, open := g.known()
	known := len(blocks)
	if m.Last {
		if !open {
			return nil
		}
		v.quiesce()
		g.close()
		v.l.cols = v.covariance.Rank() + v.pivoted
		return nil
	}
	switch {
	case m.Block < int64(known):
		return nil
	case !open || m.Block > int64(known) || k < 1 || k > maxPivots || v.in.numbers(8) != k*(k+1)/2 || v.pivoted+k > v.l.cols:
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
	r := &recipe{theta: m.Theta, noise: []float64{m.Noise}, open: true}
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

// grown begins a step of the building of a factor that is computed here.
func (v *serving) grown(m *pb.TilesProduct) error {
	if v.l == nil || v.l.grower == nil || !v.l.grower.set {
		return invalid("product %d is with a factor that is computed here, and the session is not", m.Id)
	}
	p := &Product{ID: m.Id, Kind: Grow, State: &v.state, N: v.l.rows, L: v.l, Chunk: int(m.Chunk)}
	if m.Kind == pb.TilesKind_TILES_KIND_GRAM {
		if _, open := v.l.grower.known(); open || m.Chunk < 0 || int(m.Chunk) >= len(v.l.chunks)+dense.GramBlocks(v.l.cols) {
			return invalid("step %d of LᵀL, for a factor of %d columns", m.Chunk, v.l.cols)
		}
		p.Kind, p.V = Gram, make([][]float64, len(v.l.chunks))
		if need := 16 * int64(v.l.size(p, Unit{0, len(v.l.chunks)})); need > v.conf.MaxBytes {
			return status.Errorf(codes.ResourceExhausted, "product %d takes %d bytes: more than the %d that a session has on this worker", m.Id, need, v.conf.MaxBytes)
		}
	}
	v.quiesce()
	v.kept.begin(nil)
	v.product, v.have = p, 0
	if p.Kind == Grow {
		v.have, v.fill = 1, nil
		return nil
	}
	v.expect(8, p.regions(), func(i int) { v.have |= 1 << i })
	return nil
}
