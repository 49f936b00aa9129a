package cmvp

import (
	"unsafe"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
)

// tilePairSize is the number of elements of a tile pair.
const tilePairSize = TileRows * TileRows

// cache keeps evaluated tile pairs for the current θ: those of the first tasks
// that fit. Each is filled by the first product that needs it.
type cache[T tile.Real] struct {
	places int   // tile pairs that there is memory for
	first  []int // pair that each task begins with, in the order of tasks
	data   []T
	filled []bool // by pair
}

// setCache gives the cache as many bytes as it can use of those given.
func (e *multiplier[T]) setCache(bytes int64) {
	e.cache = cache[T]{places: int(bytes / (tilePairSize * int64(unsafe.Sizeof(T(0)))))}
}

// reserve gives out the places.
func (c *cache[T]) reserve(g Grid) {
	if c.places <= 0 || c.first != nil {
		return
	}
	c.first = make([]int, g.Tasks())
	n := 0
	for i := range c.first {
		c.first[i] = n
		n += g.pairs(g.Task(i))
	}
	n = min(n, c.places)
	c.data, c.filled = make([]T, n*tilePairSize), make([]bool, n)
}

// pair returns the storage of the q-th tile pair of a task, whether it holds
// the pair already, and notes that it will. It returns nil for a pair that has
// no place.
func (c *cache[T]) pair(task, q int) (k []T, filled bool) {
	if c.first == nil || c.first[task]+q >= len(c.filled) {
		return nil, false
	}
	p := c.first[task] + q
	filled, c.filled[p] = c.filled[p], true
	return c.data[p*tilePairSize:][:tilePairSize], filled
}

// invalidate forgets what the cache holds.
func (c *cache[T]) invalidate() { clear(c.filled) }

// SetCache lets products keep evaluated elements of K until θ changes, and use
// them again: up to double bytes for Mul, and single bytes for MulSingle. The
// bits of the results are the same. CacheBytes is what a whole K takes; of a
// larger one the first part is kept. Zero, the initial state, keeps nothing.
// The memory is taken by the first product.
func (o *Operator) SetCache(double, single int64) { o.engine.Keep(double, single) }

// CacheBytes returns the memory that all elements of K take that a product
// over n rows evaluates, in double or in single precision.
func CacheBytes(n int, single bool) int64 {
	tiles := int64(NewGrid(n).Tiles)
	size := int64(8)
	if single {
		size = 4
	}
	return tiles * (tiles + 1) / 2 * tilePairSize * size
}
