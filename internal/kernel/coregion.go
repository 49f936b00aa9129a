package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Coregion is the leaf B_ab = s_a·s_b·C_ab over the levels a, b of a category. C is a correlation matrix of any kind,
// and s are standard deviations relative to that of the first level, s_1 = 1, so that the variance of the term is that
// of the first level. Times a leaf of other inputs it is the intrinsic model of coregionalisation; a sum of such
// products is the linear one (Alvarez, Rosasco and Lawrence 2012, section 4.2).
//
// C is made of rows of unit length, C_ab = c_a·c_b, by canonical partial correlations r (Lewandowski, Kurowicka and Joe
// 2009, section 2.4): c_a = (r_1, r_2·√(1−r_1²), …), what is left of the length at the end. A full matrix has the
// Cholesky factor of C as its rows: row a has a−1 of them. With a rank R below that rows have R factors in
// common, C = WWᵀ + D, row a has min(a,R) partial correlations with these, and D is what is left. The
// a-th of row a, its pivot, is positive: W is then the only one of its C (Geweke and Zhou 1996).
//
// What is sampled is log θ of θ = (1+r)/(1−r), which is 2·artanh r, and of a pivot θ = r/(1−r).
type Coregion struct {
	Input  int      // from 0
	Prefix string   // of the names of the parameters, empty for none
	Levels []string // in order
	Rank   int      // 0 of a full matrix
	Equal  bool     // all s are 1
}

const coregionName = "coregion"

// The symbols of the parameters.
const (
	PartialSymbol = "partial_odds"
	LoadingSymbol = "loading_odds"
	ScaleSymbol   = "scale"
)

// Bounds of a coregion.
const (
	MaxLevels         = 64
	maxCoregionParams = 150
)

// row returns how many partial correlations row a has, the place of the first among the parameters, and the column
// of what is left.
func (c *Coregion) row(a int) (count, first, rest int) {
	if c.Rank == 0 {
		return a, a * (a - 1) / 2, a
	}
	full := min(a, c.Rank)
	return min(a+1, c.Rank), full*(full+1)/2 + (a-full)*c.Rank, c.Rank + a
}

// columns returns the length of a row.
func (c *Coregion) columns() int { return c.Rank + len(c.Levels) }

// partials returns the number of partial correlations.
func (c *Coregion) partials() int {
	count, first, _ := c.row(len(c.Levels) - 1)
	return first + count
}

// pivot reports whether the k-th partial correlation of row a is positive.
func (c *Coregion) pivot(a, k int) bool { return c.Rank > 0 && a == k }

// Params returns θ of the partial correlations, row by row, then s from the second level on.
func (c *Coregion) Params() (out []param.Param) {
	for a, level := range c.Levels {
		count, _, _ := c.row(a)
		for k := range count {
			p := param.Param{Term: c.Prefix, Symbol: PartialSymbol, Index: c.Levels[k] + "," + level, Role: param.Partial, Spare: len(c.Levels) - 2 - k}
			if c.Rank > 0 {
				p.Symbol, p.Index, p.Spare = LoadingSymbol, fmt.Sprintf("%s,%d", level, k+1), 0
			}
			out = append(out, p)
		}
	}
	if c.Equal {
		return out
	}
	for _, level := range c.Levels[1:] {
		out = append(out, param.Param{Term: c.Prefix, Symbol: ScaleSymbol, Index: level, Role: param.Ratio})
	}
	return out
}

// scaleAt returns the place of s of a level among Params, -1 if it is 1.
func (c *Coregion) scaleAt(level int) int {
	if c.Equal || level == 0 {
		return -1
	}
	return c.partials() + level - 1
}

// String returns the leaf in the canonical text, input, rank, scales, the prefix and the levels:
// coregion(3:0:s:f.coregion:A,B), with 1 for s if all are.
func (c *Coregion) String() string {
	scales := "s"
	if c.Equal {
		scales = "1"
	}
	levels := make([]string, len(c.Levels))
	for a, level := range c.Levels {
		levels[a] = quoted(level)
	}
	return fmt.Sprintf("%s(%d:%d:%s:%s:%s)", coregionName, c.Input+1, c.Rank, scales, quoted(c.Prefix), strings.Join(levels, ","))
}

// Profile returns Levels.
func (c *Coregion) Profile() Family { return Levels }

// NumFeatures returns one more than there are levels: the level of a point, and its column of B.
func (c *Coregion) NumFeatures() int { return 1 + len(c.Levels) }

// RateOf returns -1: features have no rates.
func (c *Coregion) RateOf(int) int { return -1 }

// WarpsOf returns none: derivatives are those of Contract.
func (c *Coregion) WarpsOf(int) []int { return nil }

// Shape returns -1.
func (c *Coregion) Shape() int { return -1 }

// Check returns an error, one sentence, if there is no such matrix.
func (c *Coregion) Check() error {
	n := len(c.Levels)
	switch full := n * (n - 1) / 2; {
	case n < 2:
		return errors.New("a coregion needs a category of two levels or more")
	case n > MaxLevels:
		return fmt.Errorf("a coregion is over %d levels at most, not %d", MaxLevels, n)
	case c.Rank < 0:
		return fmt.Errorf("a coregion has the rank %d", c.Rank)
	case c.Rank > 0 && (c.Rank >= n || c.partials() > full):
		return fmt.Errorf("a correlation matrix of %d levels has %d elements, fewer than the parameters of rank %d: leave the rank out", n, full, c.Rank)
	}
	if p := len(c.Params()); p > maxCoregionParams {
		return fmt.Errorf("a coregion over %d levels has %d parameters here, of %d that there may be: choose a lower rank, such as rank=1", n, p, maxCoregionParams)
	}
	return nil
}

func (c *Coregion) check(dim int) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Input < 0 || c.Input >= dim {
		return fmt.Errorf("%v is over input %d of %d", c, c.Input+1, dim)
	}
	seen := map[string]bool{}
	for _, p := range c.Params() {
		if seen[p.Name()] {
			return fmt.Errorf("%v has two parameters of the name %s", c, p.Name())
		}
		seen[p.Name()] = true
	}
	for a, level := range c.Levels {
		if slices.Contains(c.Levels[:a], level) {
			return fmt.Errorf("%v has the level %s twice", c, level)
		}
	}
	return nil
}

func (c *Coregion) at(theta []float64) LeafAt { return c.At(theta) }

// At returns the leaf at the values of its parameters.
func (c *Coregion) At(theta []float64) *CoregionAt {
	n, q := len(c.Levels), c.columns()
	at := &CoregionAt{Coregion: c, theta: theta, rows: make([]float64, n*q), scales: make([]float64, n), table: make([]float64, n*n)}
	for a := range n {
		c.fill(at.row(a), a, theta)
		at.scales[a] = c.Scale(a, theta)
		for b := range a {
			at.table[a*n+b] = at.scales[a] * at.scales[b] * floats.Dot(at.row(a), at.row(b))
			at.table[b*n+a] = at.table[a*n+b]
		}
		at.table[a*n+a] = at.scales[a] * at.scales[a]
	}
	at.slopes = sync.OnceValue(at.derive)
	return at
}

// CoregionAt is a Coregion at given parameters.
type CoregionAt struct {
	*Coregion
	theta  []float64
	rows   []float64 // c_a, row by row
	scales []float64
	table  []float64 // B, row by row
	slopes func() [][]float64
}

// partial returns r of θ, √(1−r²), and the derivatives by log θ of r and of the logarithm of that root.
func partial(theta float64, pivot bool) (r, root, dr, dlog float64) {
	if pivot {
		r, root = theta/(1+theta), math.Sqrt(1+2*theta)/(1+theta)
		return r, root, r / (1 + theta), -r * r / (1 + r)
	}
	r, root = (theta-1)/(theta+1), 2*math.Sqrt(theta)/(theta+1)
	return r, root, root * root / 2, -r / 2
}

func (c *CoregionAt) row(a int) []float64 {
	q := c.columns()
	return c.rows[a*q : (a+1)*q]
}

// fill sets c_a.
func (c *Coregion) fill(row []float64, a int, theta []float64) {
	count, first, rest := c.row(a)
	left := 1.0
	for k := range count {
		r, root, _, _ := partial(theta[first+k], c.pivot(a, k))
		row[k] = r * left
		left *= root
	}
	row[rest] = left
}

// Correlation returns C_ab at the values of the parameters.
func (c *Coregion) Correlation(a, b int, theta []float64) float64 {
	if a == b {
		return 1
	}
	rows := [2][]float64{make([]float64, c.columns()), make([]float64, c.columns())}
	c.fill(rows[0], a, theta)
	c.fill(rows[1], b, theta)
	return floats.Dot(rows[0], rows[1])
}

// Scale returns s_a at the values of the parameters.
func (c *Coregion) Scale(a int, theta []float64) float64 {
	if i := c.scaleAt(a); i >= 0 {
		return theta[i]
	}
	return 1
}

// derive returns the derivatives of B on the sampled scale of each parameter. One of level a is zero but in row
// and column a: it is column a.
func (c *CoregionAt) derive() [][]float64 {
	n, q := len(c.Levels), c.columns()
	out := make([][]float64, len(c.Params()))
	for a := range n {
		count, first, rest := c.Coregion.row(a)
		left := 1.0
		for k := range count {
			_, root, dr, dlog := partial(c.theta[first+k], c.pivot(a, k))
			row := make([]float64, q) // the derivative of c_a
			row[k] = dr * left
			left *= root
			for j := k + 1; j < count; j++ {
				row[j] = dlog * c.row(a)[j]
			}
			row[rest] = dlog * c.row(a)[rest]
			d := make([]float64, n)
			for b := range n {
				if b != a {
					d[b] = c.scales[a] * c.scales[b] * floats.Dot(row, c.row(b))
				}
			}
			out[first+k] = d
		}
		if i := c.scaleAt(a); i >= 0 {
			out[i] = slices.Clone(c.table[a*n : (a+1)*n])
			out[i][a] *= 2
		}
	}
	return out
}

// levelOf returns the level that a parameter is of.
func (c *Coregion) levelOf(i int) int {
	if p := c.partials(); i >= p {
		return i - p + 1
	}
	a := 0
	for _, first, _ := c.row(a + 1); a+1 < len(c.Levels) && first <= i; _, first, _ = c.row(a + 1) {
		a++
	}
	return a
}

// Cells returns the number of unordered pairs of levels, and Cell the place of one among these.
func (c *Coregion) Cells() int { return len(c.Levels) * (len(c.Levels) + 1) / 2 }

// Cell returns the place of a pair of levels, in either order, among Cells.
func (c *Coregion) Cell(a, b int) int { return max(a, b)*(max(a, b)+1)/2 + min(a, b) }

// Contract returns Σ_ab S_ab·∂B_ab for each parameter, on the scale on which it is sampled, given S, the sums over both
// orders of a pair of levels, by Cell.
func (c *CoregionAt) Contract(sums []float64) []float64 {
	slopes := c.slopes()
	out := make([]float64, len(slopes))
	for i, d := range slopes {
		a := c.levelOf(i)
		for b, slope := range d {
			out[i] += slope * sums[c.Cell(a, b)]
		}
	}
	return out
}

func (c *CoregionAt) level(x []float64) int { return int(x[c.Input]) }

// Rate returns 1.
func (c *CoregionAt) Rate(int) float64 { return 1 }

// Shape returns 0.
func (c *CoregionAt) Shape() float64 { return 0 }

// Feature returns the level, then its column of B.
func (c *CoregionAt) Feature(feature int, x []float64, _ *Inputs) float64 {
	if feature == 0 {
		return x[c.Input]
	}
	return c.table[(feature-1)*len(c.Levels)+c.level(x)]
}

// Slope panics: derivatives are those of Contract.
func (c *CoregionAt) Slope(int, int, []float64, *Inputs) float64 {
	panic("kernel: the features of a coregion are contracted")
}

// loading returns the q-th element of s_a·c_a: B_ab is their product.
func (c *CoregionAt) loading(q int, x []float64) float64 {
	a := c.level(x)
	return c.scales[a] * c.row(a)[q]
}

func (c *CoregionAt) value(x, y []float64) float64 {
	return c.table[c.level(x)*len(c.Levels)+c.level(y)]
}

func (c *CoregionAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	sums := make([]float64, c.Cells())
	sums[c.Cell(c.level(x), c.level(y))] = w
	for i, d := range c.Contract(sums) {
		g[at[i]] += d
	}
}

// addRates adds what the levels are apart on average: the rate −log of the mean size of the correlations, between 0.01 and 0.99.
func (c *CoregionAt) addRates(dst []float64, weight float64) {
	var sum float64
	n := len(c.Levels)
	for a := range n {
		for b := range a {
			sum += math.Abs(c.Correlation(a, b, c.theta))
		}
	}
	dst[c.Input] -= weight * math.Log(max(0.01, min(0.99, sum/float64(n*(n-1)/2))))
}

func (c *CoregionAt) spectral() bool { return true }

func (c *CoregionAt) addFrequency(*rand.Rand, []float64) {}

func (c *CoregionAt) differentiable() bool { return true }

func (c *CoregionAt) addSlopes([]float64, float64, []float64, []float64) {}

func (c *CoregionAt) addSlopeVariances([]float64, float64, []float64) {}

// coregion reads the rest of a leaf such as coregion(3:0:s:f.coregion:A,B).
func (p *parser) coregion() (Leaf, error) {
	input, err := p.input()
	if err != nil {
		return nil, err
	}
	c := &Coregion{Input: input - 1}
	if !p.take(":") {
		return nil, errors.New("want a colon")
	}
	rank, err := p.number()
	if err != nil {
		return nil, err
	}
	if c.Rank = int(rank); float64(c.Rank) != rank || c.Rank < 0 || c.Rank > MaxLevels {
		return nil, fmt.Errorf("want a whole rank, 0 to %d", MaxLevels)
	}
	if c.Equal = p.take(":1:"); !c.Equal && !p.take(":s:") {
		return nil, errors.New("want 1 or s between colons")
	}
	if c.Prefix, err = p.word(); err != nil {
		return nil, err
	}
	if !p.take(":") {
		return nil, errors.New("want a colon")
	}
	for {
		level, err := p.word()
		if err != nil {
			return nil, err
		}
		c.Levels = append(c.Levels, level)
		if p.take(")") {
			return c, nil
		}
		if !p.take(",") {
			return nil, errors.New("want , or )")
		}
	}
}
