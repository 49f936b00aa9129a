package sparse

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Place says where inducing inputs are put.
type Place string

// The places.
const (
	KMeans Place = "kmeans" // the centres of clusters of rows
	Rows   Place = "rows"   // rows drawn at random
)

// Places returns all places.
func Places() []Place { return []Place{KMeans, Rows} }

// What clusters are made from: so many times as many rows as there are centres, but at least leastRows, drawn
// at random; and how often rows are assigned to the nearest centre at most.
const (
	rowsPerCentre = 20
	leastRows     = 10_000
	mostRounds    = 30
)

// Induce returns m inducing inputs, or as many as there are rows that differ. levels says of each input
// whether it is a category: between its levels there is nothing, so that a centre has the one of the row
// nearest to it. They are a function of the rows, m, place and the key alone.
func Induce(place Place, rows *kernel.Inputs, m int, levels []bool, key random.Key, b *parallel.Budget) *kernel.Inputs {
	r := key.Stream(random.Inducing, 0)
	most := m
	if place == KMeans {
		most = max(leastRows, rowsPerCentre*m)
	}
	order := distinct(rows, r.Perm(rows.Len()), most)
	if len(order) <= m || place == Rows {
		order = order[:min(m, len(order))]
		slices.Sort(order)
		return rows.Select(order)
	}
	c := newClusters(rows.Select(order), levels, b)
	c.begin(m, r.Float64)
	for range mostRounds {
		if !c.round() {
			break
		}
	}
	return c.inputs()
}

// distinct returns the rows of order that differ, the first of each, most at most.
func distinct(rows *kernel.Inputs, order []int, most int) []int {
	seen := map[string]bool{}
	var out []int
	var key []byte
	for _, i := range order {
		key = key[:0]
		for _, x := range rows.Row(i) {
			bits := math.Float64bits(x)
			for s := 0; s < 64; s += 8 {
				key = append(key, byte(bits>>s))
			}
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		if out = append(out, i); len(out) == most {
			break
		}
	}
	return out
}

// clusters are rows by the nearest of some centres, in units of the inputs' standard deviations.
type clusters struct {
	rows    *kernel.Inputs
	levels  []bool
	budget  *parallel.Budget
	unit    []float64
	centres [][]float64
	of      []int     // the centre of each row
	away    []float64 // the squared distance from it
}

func newClusters(rows *kernel.Inputs, levels []bool, b *parallel.Budget) *clusters {
	n, d := rows.Len(), rows.Dim()
	c := &clusters{rows: rows, levels: levels, budget: b, unit: make([]float64, d), of: make([]int, n), away: make([]float64, n)}
	col := make([]float64, n)
	for k := range c.unit {
		for i := range col {
			col[i] = rows.Row(i)[k]
		}
		if c.unit[k] = stat.StdDev(col, nil); !(c.unit[k] > 0) {
			c.unit[k] = 1
		}
	}
	return c
}

// distance returns a squared distance. Levels that differ are as far apart as two values by √2 standard deviations, which is
// what two random values are.
func (c *clusters) distance(x, y []float64) (sum float64) {
	for k := range x {
		if c.levels[k] {
			if x[k] != y[k] {
				sum += 2
			}
			continue
		}
		u := (x[k] - y[k]) / c.unit[k]
		sum += u * u
	}
	return sum
}

// begin chooses m rows as centres: each with a probability proportional to its squared distance from those that are
// (Arthur and Vassilvitskii 2007).
func (c *clusters) begin(m int, uniform func() float64) {
	for i := range c.away {
		c.away[i] = math.Inf(1)
	}
	next := int(uniform() * float64(c.rows.Len()))
	for {
		c.centres = append(c.centres, slices.Clone(c.rows.Row(next)))
		if len(c.centres) == m {
			return
		}
		last := c.centres[len(c.centres)-1]
		c.each(func(i int) { c.away[i] = min(c.away[i], c.distance(c.rows.Row(i), last)) })
		u := uniform() * floats.Sum(c.away)
		for i, w := range c.away {
			if w > 0 {
				next = i
			}
			if u -= w; u < 0 {
				break
			}
		}
	}
}

// each runs f on the rows, on several cores.
func (c *clusters) each(f func(i int)) {
	c.budget.Chunks(c.rows.Len(), 256, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i)
		}
	})
}

// assign finds the nearest centre of each row, the first of several.
func (c *clusters) assign() {
	c.each(func(i int) {
		c.away[i] = math.Inf(1)
		for j, centre := range c.centres {
			if d := c.distance(c.rows.Row(i), centre); d < c.away[i] {
				c.of[i], c.away[i] = j, d
			}
		}
	})
}

// round moves each centre to the mean of its rows (Lloyd 1982), and reports whether one moved. A centre without rows
// stays.
func (c *clusters) round() (moved bool) {
	c.assign()
	m, d := len(c.centres), c.rows.Dim()
	sums, counts := make([]float64, m*d), make([]float64, m)
	nearest := make([]int, m) // row
	for j := range nearest {
		nearest[j] = -1
	}
	for i, j := range c.of {
		floats.Add(sums[j*d:][:d], c.rows.Row(i))
		counts[j]++
		if nearest[j] < 0 || c.away[i] < c.away[nearest[j]] {
			nearest[j] = i
		}
	}
	for j, centre := range c.centres {
		if counts[j] == 0 {
			continue
		}
		for k := range centre {
			to := sums[j*d+k] / counts[j]
			if c.levels[k] {
				to = c.rows.Row(nearest[j])[k]
			}
			moved = moved || to != centre[k]
			centre[k] = to
		}
	}
	return moved
}

func (c *clusters) inputs() *kernel.Inputs {
	return kernel.NewInputs(len(c.centres), c.rows.Dim(), slices.Concat(c.centres...))
}
