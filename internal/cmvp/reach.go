package cmvp

import (
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// A reach says which pairs of tiles are more than nothing.
//
// Inputs that are arranged in space (kernel.Inputs.Arrange) have tiles that lie in small boxes, and if length-scales are
// short most pairs of tiles are so far apart that their elements of K are nothing to rounding. Those are passed over. Which
// these are follows from a bound: of the distance of two boxes, feature by feature, and so of each leaf, and so of
// k = Σ σ_t·Π g_ℓ, in units of the scale Σσ. The bound holds for the derivatives by the logarithms of variances, rates and
// shapes, too, so that gradient forms pass over the pairs that products pass over; but where features depend on
// parameters, such as a period, forms take all.
//
// A pair is passed over where the bound is at most ε/n, ε being the unit roundoff. So what is left out of K has no row with a sum above
// ε·Σσ, hence no norm above that: it changes K by less than rounding its diagonal does.
//
// Within a pair that is left, so are strips of rows.
//
// The bounds are a function of n, the inputs and θ, and so are bits.
type reach struct {
	leaves []leafReach
	terms  []kernel.TermAt
	weight []float64
	grid   Grid
	strips []boxes // of each leaf, by strip of rows
	tiles  []boxes // by tile
	blocks []boxes // by block
	rows   float64 // n
	forms  bool    // whether forms pass over pairs, too
}

// leafReach is what a leaf at θ comes to by distance.
type leafReach struct {
	family kernel.Family
	shape  float64
	d      int // features
}

// boxes are the least and the greatest of each feature, for some sets of points: those of set i from 2·d·i on,
// first the least.
type boxes []float64

// Arrange returns inputs arranged in space by some of them, so that tiles, and strips in them, lie in small boxes.
func Arrange(in *kernel.Inputs, by []int) *kernel.Inputs {
	return in.Arrange(in.SpatialOrder(by, TileRows, tile.Strip))
}

// newReach returns the reach of a covariance over inputs, without θ.
func newReach(n int, c *kernel.Covariance) *reach {
	r := &reach{terms: c.Terms(), weight: make([]float64, len(c.Terms())), grid: NewGrid(n), rows: float64(n), forms: boundedForms(c)}
	for _, l := range c.Leaves() {
		r.leaves = append(r.leaves, leafReach{family: l.Profile(), d: l.NumFeatures()})
		r.strips, r.tiles = append(r.strips, nil), append(r.tiles, nil)
		r.blocks = append(r.blocks, make(boxes, 2*l.NumFeatures()*r.grid.Blocks))
	}
	return r
}

// boundedForms reports whether the bound holds for all derivatives: not where features depend on parameters.
func boundedForms(c *kernel.Covariance) bool {
	return !slices.ContainsFunc(c.Leaves(), func(l kernel.Leaf) bool { return len(warpsOf(l)) > 0 })
}

// set changes θ, given the packed features.
func (r *reach) set(f *kernel.Function, z [][]float64) {
	for t := range r.weight {
		r.weight[t] = f.Weight(t)
	}
	for l := range r.leaves {
		leaf := &r.leaves[l]
		leaf.shape = bounded(f.Leaf(l).Shape())
		r.strips[l] = leaf.boxes(z[l], r.grid.N, tile.Strip)
		r.tiles[l] = leaf.boxes(z[l], r.grid.N, TileRows)
		for b := range r.grid.Blocks {
			lo, hi := r.grid.blockTiles(b)
			box := r.blocks[l].at(b, leaf.d)
			copy(box, r.tiles[l].at(lo, leaf.d))
			for t := lo + 1; t < hi; t++ {
				for k, x := range r.tiles[l].at(t, leaf.d) {
					if k < leaf.d {
						box[k] = min(box[k], x)
					} else {
						box[k] = max(box[k], x)
					}
				}
			}
		}
	}
}

// at returns the box of a set of points.
func (b boxes) at(i, d int) []float64 { return b[2*d*i:][: 2*d : 2*d] }

// boxes returns those of packed features of n points, of so many at a time.
func (l *leafReach) boxes(z []float64, n, size int) boxes {
	b := make(boxes, 2*l.d*((n+size-1)/size))
	for i := 0; i < n; i += size {
		l.box(b.at(i/size, l.d), z, i, min(n, i+size))
	}
	return b
}

// box sets a box to that of points [lo,hi) of packed features.
func (l *leafReach) box(box, z []float64, lo, hi int) {
	for k := range l.d {
		least, most := math.Inf(1), math.Inf(-1)
		for i := lo; i < hi; i++ {
			var x float64
			if l.family == kernel.Dot {
				x = z[k*(len(z)/l.d)+i]
			} else {
				x = z[(i/tile.Panel*l.d+k)*tile.Panel+i%tile.Panel]
			}
			least, most = min(least, x), max(most, x)
		}
		box[k], box[l.d+k] = least, most
	}
}

// unit returns the unit roundoff of a precision.
func (p Precision) unit() float64 {
	if p == Single {
		return 0x1p-24
	}
	return 0x1p-53
}

// reaches reports whether tiles i and j are to be evaluated.
func (r *reach) reaches(i, j int, p Precision) bool {
	return r == nil || r.bound(r.tiles, i, r.tiles, j) > p.unit()/r.rows
}

// reachesStrip reports whether the strip of rows that begins at row is to be evaluated against tile j.
func (r *reach) reachesStrip(row, j int, p Precision) bool {
	return r == nil || r.bound(r.strips, row/tile.Strip, r.tiles, j) > p.unit()/r.rows
}

// reachesBlocks reports whether two tiles of a task may have to be evaluated. Half of what tiles are measured by makes
// sure that the rounding of a bound does not matter.
func (r *reach) reachesBlocks(t Task, p Precision) bool {
	return r == nil || r.bound(r.blocks, t.A, r.blocks, t.B) > p.unit()/r.rows/2
}

// elements returns how many elements of K the pairs of tiles of a task stand for that are evaluated.
func (r *reach) elements(task int, p Precision) (sum int64) {
	t := r.grid.Task(task)
	if !r.reachesBlocks(t, p) {
		return 0
	}
	iLo, iHi := r.grid.blockTiles(t.A)
	jLo, jHi := r.grid.blockTiles(t.B)
	for i := iLo; i < iHi; i++ {
		for j := max(i, jLo); j < jHi; j++ {
			if r.reaches(i, j, p) {
				sum += r.pairElements(i, j, p)
			}
		}
	}
	return sum
}

// pairElements returns how many elements of K the strips of a pair of tiles stand for that are evaluated.
func (r *reach) pairElements(i, j int, p Precision) (sum int64) {
	lo, hi := r.grid.tileRows(i)
	colLo, colHi := r.grid.tileRows(j)
	for row := lo; row < hi; row += tile.Strip {
		if r.reachesStrip(row, j, p) {
			sum += int64(min(tile.Strip, hi-row)) * int64(colHi-colLo)
		}
	}
	if i != j {
		sum *= 2
	}
	return sum
}

// bound returns a bound of |k|/Σσ, and of its derivatives, between a point of box i and one of box j.
func (r *reach) bound(a []boxes, i int, b []boxes, j int) float64 {
	var sum float64
	for t, term := range r.terms {
		k := r.weight[t]
		for _, l := range term.Leaves {
			leaf := &r.leaves[l]
			k *= leaf.bound(a[l].at(i, leaf.d), b[l].at(j, leaf.d))
		}
		sum += k
	}
	return sum
}

// bound returns a bound of |g|, and of its derivatives by the logarithms of rates and shape, between two boxes.
func (l *leafReach) bound(a, b []float64) float64 {
	d := l.d
	var w float64
	switch l.family {
	case kernel.Circular:
		return 1
	case kernel.Levels: // the derivative is that by an element of the table
		most := 1.0
		for k := 1; k < d; k++ {
			most = max(most, math.Abs(b[k]), math.Abs(b[d+k]))
		}
		return most
	case kernel.Dot:
		for k := range d {
			w += max(math.Abs(a[k]), math.Abs(a[d+k])) * max(math.Abs(b[k]), math.Abs(b[d+k]))
		}
		return w
	case kernel.Mismatch:
		for k := range d {
			gap := max(0, a[k]-b[d+k], b[k]-a[d+k])
			w += min(1, gap*gap)
		}
	default:
		for k := range d {
			gap := max(0, a[k]-b[d+k], b[k]-a[d+k])
			w += gap * gap
		}
	}
	return l.tail(w)
}

// some bounds what falls off from 1, with its derivatives, before it does.
const some = 2

// tail returns a bound of |g|, |u·dg/du| and |a·∂g/∂a| where the squared distance of packed features is w or more.
func (l *leafReach) tail(w float64) float64 {
	switch f := l.family; f {
	case kernel.RBF:
		return exponential(unscale(f) * w)
	case kernel.Matern12, kernel.Matern32, kernel.Matern52:
		u := unscale(f) * w
		a := math.Sqrt(f.Rate() * u)
		if a < 2 {
			return some
		}
		return f.Value(u) * (1 + a/2) // u·g' is a/2·g at the most
	case kernel.Rational:
		return exponential(l.shape * math.Log1p(w/l.shape))
	case kernel.Mismatch:
		return exponential(l.shape * w)
	}
	if g, _, _ := l.family.Shaped(w, l.shape); g == 0 {
		return 0
	}
	return some
}

// exponential returns (1+x)·e^(−x), which falls.
func exponential(x float64) float64 { return (1 + x) * math.Exp(-x) }
