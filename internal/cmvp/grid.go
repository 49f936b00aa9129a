package cmvp

import "github.com/ulisse-gp/ulisse/internal/cmvp/tile"

// TileRows is the number of rows and columns of a tile, and the granularity at
// which rows may be split between workers.
const TileRows = tile.Size

// maxBlocks bounds the number of blocks, so that a product is some two
// thousand tasks at most: enough to balance many threads, few enough that
// adding up their results costs nothing.
const maxBlocks = 64

// Grid is how n rows are cut, a function of n alone.
type Grid struct {
	N      int // rows
	Tiles  int // tiles of TileRows rows, the last one maybe shorter
	PerBlk int // tiles in a block
	Blocks int
}

// NewGrid returns the grid of n rows.
func NewGrid(n int) Grid {
	tiles := (n + TileRows - 1) / TileRows
	per := max(1, (tiles+maxBlocks-1)/maxBlocks)
	return Grid{N: n, Tiles: tiles, PerBlk: per, Blocks: (tiles + per - 1) / per}
}

// Tasks returns the number of unordered pairs of blocks.
func (g Grid) Tasks() int { return g.Blocks * (g.Blocks + 1) / 2 }

// Task is the pair of blocks A ≤ B.
type Task struct{ A, B int }

// Task returns task i. Tasks are ordered by B, then A: taken in this order,
// the contributions to each block arrive in increasing order of the other
// block.
func (g Grid) Task(i int) Task {
	b := 0
	for (b+1)*(b+2)/2 <= i {
		b++
	}
	return Task{A: i - b*(b+1)/2, B: b}
}

// pairs returns the number of tile pairs of a task.
func (g Grid) pairs(t Task) int {
	aLo, aHi := g.blockTiles(t.A)
	bLo, bHi := g.blockTiles(t.B)
	a, b := aHi-aLo, bHi-bLo
	if t.A == t.B {
		return a * (a + 1) / 2
	}
	return a * b
}

// elements returns the number of elements of K that a task stands for.
func (g Grid) elements(task int) int64 {
	t := g.Task(task)
	aLo, aHi := g.blockRows(t.A)
	bLo, bHi := g.blockRows(t.B)
	n := int64(aHi-aLo) * int64(bHi-bLo)
	if t.A != t.B {
		n *= 2
	}
	return n
}

// blockRows returns the range of rows of block b.
func (g Grid) blockRows(b int) (lo, hi int) {
	size := g.PerBlk * TileRows
	return b * size, min(g.N, (b+1)*size)
}

// blockTiles returns the range of tiles of block b.
func (g Grid) blockTiles(b int) (lo, hi int) {
	return b * g.PerBlk, min(g.Tiles, (b+1)*g.PerBlk)
}

// tileRows returns the range of rows of tile t.
func (g Grid) tileRows(t int) (lo, hi int) {
	return t * TileRows, min(g.N, (t+1)*TileRows)
}
