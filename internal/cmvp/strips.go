package cmvp

import (
	"math"
	"unsafe"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// leaf is a leaf of a covariance as strips are evaluated from it: how many features it
// has, and its profile.
type leaf[T tile.Real] struct {
	family   kernel.Family
	shape    T
	features int
	eval     func(k, zi, zj []T, d, panels int, shape T)
	// addScaled is what a dot product is evaluated by, in place of eval.
	addScaled func(y, x []T, c T, n int)
}

func newLeaf[T tile.Real](l kernel.Leaf, kern *tile.Kernels[T]) leaf[T] {
	switch l.Profile() {
	case kernel.Dot:
		return leaf[T]{family: kernel.Dot, features: l.NumFeatures(), addScaled: kern.AddScaled}
	case kernel.Levels:
		return leaf[T]{family: kernel.Levels, features: l.NumFeatures(), eval: table[T]}
	}
	return leaf[T]{family: l.Profile(), features: l.NumFeatures(), eval: kern.Eval[l.Profile()]}
}

// table evaluates a strip of a table over levels. Packed features of a point are its level, then the column of the table
// for that level, so that a row of the strip is a copy of one of the features of the columns' points.
func table[T tile.Real](k, zi, zj []T, d, panels int, _ T) {
	for r := range tile.Strip {
		row, level := k[r*TileRows:], int(zi[r])
		for p := range panels {
			copy(row[p*tile.Panel:][:tile.Panel], zj[(p*d+1+level)*tile.Panel:][:tile.Panel])
		}
	}
}

const log2e = math.Log2E

// scale returns the factor s_k of input k in z = (x−centre)·s_k (see the
// package comment).
func scale(f kernel.Family, tau float64) float64 {
	switch {
	case f == kernel.Dot, f == kernel.Levels:
		return 1
	case f == kernel.RBF:
		return math.Sqrt(tau * log2e)
	case f >= kernel.NumFamilies:
		return math.Sqrt(tau)
	}
	return math.Sqrt(f.Rate()*tau) * log2e
}

// unscale returns q with u = q·w.
func unscale(f kernel.Family) float64 {
	switch {
	case f == kernel.RBF:
		return math.Ln2
	case f >= kernel.NumFamilies:
		return 1
	}
	return math.Ln2 * math.Ln2 / f.Rate()
}

// limit is the size at which scaled inputs saturate, so that no power of a
// distance that a kernel takes overflows.
func limit[T tile.Real]() float64 {
	if unsafe.Sizeof(T(0)) == 4 {
		return 1e17
	}
	return 1e100
}

// bounded returns a shape, or the nearest with which no kernel overflows in single precision.
func bounded(shape float64) float64 {
	const most = 1e30
	if shape == 0 {
		return 0
	}
	return max(1/most, min(most, shape))
}

// pack writes the scaled features of n points into panels: panel p holds, for
// each feature k, its values at tile.Panel points side by side, from
// dst[(p·d+k)·tile.Panel] on. Points beyond n are zero; their weights are zero
// too. The centre is that of other points. Those of a dot product are packed feature by feature.
func (l *leaf[T]) pack(dst []T, in, centre *kernel.Inputs, at kernel.LeafAt) {
	clear(dst)
	for k := range l.features {
		s := scale(l.family, at.Rate(k))
		for i := range in.Len() {
			z := at.Feature(k, in.Row(i), centre) * s
			if l.family == kernel.Dot {
				put(dst[k*(len(dst)/l.features):], 1, 0, i, z)
				continue
			}
			put(dst, l.features, k, i, z)
		}
	}
}

// put sets feature k of d of point i among packed ones.
func put[T tile.Real](dst []T, d, k, i int, z float64) {
	most := limit[T]()
	dst[(i/tile.Panel*d+k)*tile.Panel+i%tile.Panel] = T(max(-most, min(most, z)))
}

// strip sets the strip k of g to rows from row on against panels from column col on.
func (l *leaf[T]) strip(k, zi []T, row int, zj []T, col, panels int) {
	if l.family == kernel.Dot {
		l.dots(k, zi, row, zj, col, panels)
		return
	}
	l.eval(k, rowPack(zi, row, l.features), zj[col*l.features:], l.features, panels, l.shape)
}

// dots is strip for dot products: a feature after the other.
func (l *leaf[T]) dots(k, zi []T, row int, zj []T, col, panels int) {
	ni, nj, n := len(zi)/l.features, len(zj)/l.features, panels*tile.Panel
	for r := range tile.Strip {
		to := k[r*TileRows:][:n]
		clear(to)
		for q := range l.features {
			l.addScaled(to, zj[q*nj+col:], zi[q*ni+row+r], n)
		}
	}
}

// deriv sets the strips k and h to g and a derivative of it, by one of tile.FormKernels.
func (l *leaf[T]) deriv(by func(k, h, zi, zj []T, d, panels int, shape T), k, h, z []T, row, col, panels int) {
	by(k, h, rowPack(z, row, l.features), z[col*l.features:], l.features, panels, l.shape)
}

// rowPack returns the packed features of the strip that begins at row r.
func rowPack[T tile.Real](z []T, r, d int) []T {
	return z[r/tile.Panel*tile.Panel*d+r%tile.Panel:]
}

// stripSize is the number of elements of a strip.
const stripSize = tile.Strip * TileRows

// strips evaluates strips of K_f, in units of its scale, in one precision.
type strips[T tile.Real] struct {
	kern   *tile.Kernels[T]
	leaves []leaf[T]
	terms  []kernel.TermAt
	weight []T // of each term: its share of the scale

	one *leaf[T] // K_f, if it is one leaf; else nil
}

func newStrips[T tile.Real](c *kernel.Covariance, kern *tile.Kernels[T]) strips[T] {
	s := strips[T]{kern: kern, terms: c.Terms(), weight: make([]T, len(c.Terms()))}
	for _, l := range c.Leaves() {
		s.leaves = append(s.leaves, newLeaf(l, kern))
	}
	if len(s.terms) == 1 && len(s.terms[0].Leaves) == 1 {
		s.one = &s.leaves[0]
	}
	return s
}

// set changes θ.
func (s *strips[T]) set(f *kernel.Function) {
	for t := range s.weight {
		s.weight[t] = T(f.Weight(t))
	}
	for l := range s.leaves {
		s.leaves[l].shape = T(bounded(f.Leaf(l).Shape()))
	}
}

// packed returns the packed features of points, leaf by leaf.
func (s *strips[T]) packed(n int) [][]T {
	z := make([][]T, len(s.leaves))
	for l := range z {
		z[l] = make([]T, tile.Pad(n)*s.leaves[l].features)
	}
	return z
}

// pack fills in packed features.
func (s *strips[T]) pack(z [][]T, in, centre *kernel.Inputs, f *kernel.Function) {
	for l := range s.leaves {
		s.leaves[l].pack(z[l], in, centre, f.Leaf(l))
	}
}

// scratch returns the workspace that eval needs, reusing buf: a strip for each
// leaf and one more, none for a single leaf.
func (s *strips[T]) scratch(buf []T) []T {
	if s.single() {
		return nil
	}
	return sized(buf, (len(s.leaves)+1)*stripSize)
}

// single reports whether K_f is one leaf, whose strips are those of K_f.
func (s *strips[T]) single() bool { return s.one != nil }

// strip returns strip i of a workspace.
func strip[T tile.Real](ws []T, i int) []T { return ws[i*stripSize:][:stripSize:stripSize] }

// eval sets the strip k to rows from row on of the points zi against panels of the
// points zj from column col on.
func (s *strips[T]) eval(k, ws []T, zi [][]T, row int, zj [][]T, col, panels int) {
	if s.one != nil {
		s.one.strip(k, zi[0], row, zj[0], col, panels)
		return
	}
	s.combine(k, ws, zi, row, zj, col, panels)
}

// combine is eval for a K_f of several leaves.
func (s *strips[T]) combine(k, ws []T, zi [][]T, row int, zj [][]T, col, panels int) {
	for i := range s.leaves {
		s.leaves[i].strip(strip(ws, i), zi[i], row, zj[i], col, panels)
	}
	if len(s.terms) == 1 {
		s.product(k, ws, s.terms[0])
		return
	}
	clear(k)
	p := strip(ws, len(s.leaves))
	for t, term := range s.terms {
		s.kern.AddScaled(k, s.product(p, ws, term), s.weight[t], stripSize)
	}
}

// product returns the product of a term's leaves, whose strips are in ws: in dst,
// or where it is if there is only one.
func (s *strips[T]) product(dst, ws []T, t kernel.TermAt) []T {
	p := strip(ws, t.Leaves[0])
	for _, l := range t.Leaves[1:] {
		s.kern.Multiply(dst, p, strip(ws, l), stripSize)
		p = dst
	}
	return p
}
