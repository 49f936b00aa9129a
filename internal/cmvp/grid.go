package cmvp

import (
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
)

// TileRows is the number of rows and columns of a tile.
const TileRows = tile.Size

// maxBlocks bounds the number of blocks, so that a product is some two
// thousand tasks at most: enough to balance many threads, few enough that
// adding up their results costs nothing.
const maxBlocks = 64

// Grid is how n rows are cut, and in which order what is computed from pairs of
// them is added up. It is a function of n alone.
type Grid struct {
	N      int // rows
	Tiles  int // tiles of TileRows rows, the last one maybe shorter
	Blocks int
	*plan
}

// NewGrid returns the grid of n rows.
func NewGrid(n int) Grid {
	tiles := (n + TileRows - 1) / TileRows
	blocks := max(1, min(tiles, maxBlocks))
	return Grid{N: n, Tiles: tiles, Blocks: blocks, plan: planOf(blocks, planeOrder(n, blocks))}
}

// widePlane is the number of rows from which the plane has order 8. With order 4 a unit is a
// twentieth of a product, and five ninths of the sums travel, which is worth more below.
const widePlane = 1 << 16

// planeOrder returns the order of the affine plane that is laid over the blocks.
func planeOrder(n, blocks int) int {
	switch {
	case n >= widePlane:
		return 8
	case blocks >= 16:
		return 4
	case blocks >= 4:
		return 2
	}
	return 1
}

// elements returns the number of elements of K that a task stands for.
func (g Grid) elements(task int) int64 {
	t := g.Task(task)
	aLo, aHi := g.BlockRows(t.A)
	bLo, bHi := g.BlockRows(t.B)
	n := int64(aHi-aLo) * int64(bHi-bLo)
	if t.A != t.B {
		n *= 2
	}
	return n
}

// pairElements returns how many elements of K a pair of tiles stands for.
func (g Grid) pairElements(i, j int) int64 {
	iLo, iHi := g.tileRows(i)
	jLo, jHi := g.tileRows(j)
	n := int64(iHi-iLo) * int64(jHi-jLo)
	if i != j {
		n *= 2
	}
	return n
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

// Points returns the number of points of the plane.
func (g Grid) Points() int { return len(g.points) - 1 }

// PointRows returns the range of rows of a point.
func (g Grid) PointRows(p int) (lo, hi int) {
	tLo, tHi := g.pointTiles(p)
	return tLo * TileRows, min(g.N, tHi*TileRows)
}

// PointOf returns the point that a block is of.
func (g Grid) PointOf(block int) int {
	p, ok := slices.BinarySearch(g.points, block)
	if !ok {
		p--
	}
	return p
}

// UnitRows returns how many rows the points of a unit have.
func (g Grid) UnitRows(unit int) int {
	rows := 0
	for _, p := range g.Unit(unit) {
		lo, hi := g.PointRows(p)
		rows += hi - lo
	}
	return rows
}

// pointTiles returns the range of tiles of a point.
func (g Grid) pointTiles(p int) (lo, hi int) {
	lo, _ = g.blockTiles(g.points[p])
	_, hi = g.blockTiles(g.points[p+1] - 1)
	return lo, hi
}

// BlockRows returns the range of rows of block b.
func (g Grid) BlockRows(b int) (lo, hi int) {
	lo, hi = g.blockTiles(b)
	return lo * TileRows, min(g.N, hi*TileRows)
}

// blockTiles returns the range of tiles of block b.
func (g Grid) blockTiles(b int) (lo, hi int) {
	return b * g.Tiles / g.Blocks, (b + 1) * g.Tiles / g.Blocks
}

// tileRows returns the range of rows of tile t.
func (g Grid) tileRows(t int) (lo, hi int) {
	return t * TileRows, min(g.N, (t+1)*TileRows)
}
