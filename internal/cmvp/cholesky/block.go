package cholesky

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
)

// steps are the operations on blocks that factors and solves consist of.
type steps struct {
	grid
	kern *tile.FactorKernels
	inv  []float64 // reciprocals of the diagonal of the factor
}

func newSteps(g grid, isa tile.ISA) steps {
	return steps{grid: g, kern: tile.FactorsFor(isa), inv: make([]float64, pad(g.n))}
}

// update subtracts A·Bᵀ from C, the blocks (i,j), (i,k) and (j,k).
func (f *steps) update(c, a, b []float64, i, j, k int) {
	if i != j {
		f.product(c, a, b, f.strips(i), f.strips(j), f.size(k))
		return
	}
	ld := f.ld()
	for s := range f.strips(j) { // the lower triangle is enough
		f.kern.Update(c[s*ld+s*stripBlock:], a[s*ld:], b[s*ld:], ld, f.strips(i)-s, f.size(k))
	}
}

// product subtracts A·Bᵀ from C, for strips of A and of B with the given number of
// columns.
func (f *steps) product(c, a, b []float64, stripsA, stripsB, cols int) {
	if stripsA == 0 {
		return // no right-hand sides
	}
	ld := f.ld()
	for s := range stripsB {
		f.kern.Update(c[s*stripBlock:], a, b[s*ld:], ld, stripsA, cols)
	}
}

// stripBlock is the number of elements of as many columns of a strip as it has rows.
const stripBlock = tile.Strip * tile.Strip

// diagonal factors block (j,j), all of whose updates are done.
func (f *steps) diagonal(c []float64, j int) error {
	ld, strips := f.ld(), f.strips(j)
	for s := range strips {
		at, inv := s*ld+s*stripBlock, f.inv[j*f.edge+s*tile.Strip:]
		if s > 0 {
			f.kern.Update(c[at:], c[s*ld:], c[s*ld:], ld, strips-s, s*tile.Strip)
		}
		if r := factorSmall(c[at:][:stripBlock], inv); r >= 0 {
			return &NotPositive{j*f.edge + s*tile.Strip + r}
		}
		if s+1 < strips {
			f.kern.Solve(c[at+ld:], c[at:], inv, ld, strips-s-1)
		}
		for above := range s { // what was above the diagonal
			clear(c[above*ld+s*stripBlock:][:stripBlock])
		}
	}
	return nil
}

// factorSmall factors the tile.Strip rows of a diagonal block, and returns the row
// that is not positive, or −1.
func factorSmall(c, inv []float64) int {
	const n = tile.Strip
	for j := range n {
		for k := range j {
			y := c[k*n+j]
			for r := j; r < n; r++ {
				c[j*n+r] -= c[k*n+r] * y
			}
		}
		d := math.Sqrt(c[j*n+j])
		if !(d > 0) || math.IsInf(d, 0) {
			return j
		}
		c[j*n+j], inv[j] = d, 1/d
		for r := j + 1; r < n; r++ {
			c[j*n+r] *= inv[j]
		}
		clear(c[j*n : j*n+j])
	}
	return -1
}

// below multiplies strips of rows by the inverse of the transposed factor l of block
// (j,j).
func (f *steps) below(c, l []float64, strips, j int) {
	f.triangle(c, l, f.inv[j*f.edge:], strips, f.strips(j))
}

// triangle multiplies strips of c by the inverse of a transposed lower triangle l of
// count strips, inv the reciprocals of its diagonal.
func (f *steps) triangle(c, l, inv []float64, strips, count int) {
	if strips == 0 {
		return
	}
	ld := f.ld()
	for s := range count {
		if s > 0 {
			f.kern.Update(c[s*stripBlock:], c, l[s*ld:], ld, strips, s*tile.Strip)
		}
		f.kern.Solve(c[s*stripBlock:], l[s*ld+s*stripBlock:], inv[s*tile.Strip:], ld, strips)
	}
}

// transpose sets dst to the transpose of a block of the given strips of rows and of
// columns.
func (f *steps) transpose(dst, src []float64, rows, cols int) {
	const n = tile.Strip
	ld := f.ld()
	for s := range rows {
		for t := range cols {
			from, to := src[s*ld+t*stripBlock:][:stripBlock], dst[t*ld+s*stripBlock:][:stripBlock]
			for c := range n {
				for r := range n {
					to[r*n+c] = from[c*n+r]
				}
			}
		}
	}
}

// turn sets dst to the lower triangle l with rows and columns in the opposite order,
// transposed, so that it is a lower triangle again.
func (f *steps) turn(dst, l []float64, size int) {
	for j := range size {
		for i := j; i < size; i++ {
			dst[f.at(i, j)] = l[f.at(size-1-j, size-1-i)]
		}
	}
}

// turnColumns reverses the order of the columns of strips.
func (f *steps) turnColumns(c []float64, strips, size int) {
	const n = tile.Strip
	for s := range strips {
		strip := c[s*f.ld():][:size*n]
		for j := range size / 2 {
			a, b := (*[n]float64)(strip[j*n:]), (*[n]float64)(strip[(size-1-j)*n:])
			*a, *b = *b, *a
		}
	}
}
