package mixture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"gonum.org/v1/gonum/floats"
)

// Distribution is what proposals are drawn from.
type Distribution interface {
	Dim() int
	LogDensity(x []float64) float64 // normalised
	Draw(r *rand.Rand, dst []float64)
}

// blend is a mixture of two distributions.
type blend struct {
	Distribution
	other Distribution
	share float64 // of other
}

// Blend returns d with the given share of the other distribution: for instance the prior,
// which bounds the importance weights of a posterior by the likelihood.
func Blend(d, other Distribution, share float64) Distribution {
	if d.Dim() != other.Dim() {
		panic(fmt.Sprintf("mixture: distributions of %d and %d dimensions", d.Dim(), other.Dim()))
	}
	return &blend{d, other, share}
}

func (b *blend) LogDensity(x []float64) float64 {
	return floats.LogSumExp([]float64{
		math.Log1p(-b.share) + b.Distribution.LogDensity(x),
		math.Log(b.share) + b.other.LogDensity(x),
	})
}

func (b *blend) Draw(r *rand.Rand, dst []float64) {
	if r.Float64() < b.share {
		b.other.Draw(r, dst)
		return
	}
	b.Distribution.Draw(r, dst)
}

// Independent is a distribution of independent coordinates, each with a density that is
// constant on the cells of a grid, and so known exactly wherever it came from.
type Independent struct {
	from, cell float64
	log        [][]float64 // log density by coordinate and cell
	cumulative [][]float64 // probability up to the end of a cell
}

// NewIndependent tabulates the log densities of the coordinates, which need not be
// normalised, on so many cells between from and to, outside of which there is nothing.
func NewIndependent(from, to float64, cells int, logDensities []func(x float64) float64) (*Independent, error) {
	d := &Independent{from: from, cell: (to - from) / float64(cells)}
	for i, f := range logDensities {
		logs, sums := make([]float64, cells), make([]float64, cells)
		for c := range logs {
			logs[c] = f(from + (float64(c)+0.5)*d.cell)
			if math.IsNaN(logs[c]) {
				logs[c] = math.Inf(-1)
			}
		}
		total := floats.LogSumExp(logs)
		if math.IsInf(total, 0) {
			return nil, fmt.Errorf("mixture: coordinate %d has no density between %g and %g", i+1, from, to)
		}
		var sum float64
		for c := range logs {
			sum += math.Exp(logs[c] - total)
			sums[c] = sum
			logs[c] -= total + math.Log(d.cell)
		}
		d.log, d.cumulative = append(d.log, logs), append(d.cumulative, sums)
	}
	return d, nil
}

// Dim returns the dimension.
func (d *Independent) Dim() int { return len(d.log) }

// LogDensity returns the log density at x.
func (d *Independent) LogDensity(x []float64) float64 {
	var sum float64
	for i, v := range x {
		c := math.Floor((v - d.from) / d.cell)
		if !(c >= 0 && c < float64(len(d.log[i]))) {
			return math.Inf(-1)
		}
		sum += d.log[i][int(c)]
	}
	return sum
}

// Draw sets dst to a draw.
func (d *Independent) Draw(r *rand.Rand, dst []float64) {
	for i, sums := range d.cumulative {
		u := r.Float64() * sums[len(sums)-1]
		c := min(sort.Search(len(sums), func(c int) bool { return sums[c] > u }), len(sums)-1)
		dst[i] = d.from + (float64(c)+r.Float64())*d.cell
	}
}
