package likelihood

import (
	"fmt"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Rows is what is known of the noise in some rows: of each field a number for each row, or nil
// where there is nothing of the kind.
type Rows struct {
	Known  []float64 // variances of noise beside that of the parameters
	Weight []float64 // that the parameters' noise is divided by, or how many trials a row is of; positive
	Level  []int     // which of the parameters is the row's
}

// Select returns what is known of the given rows.
func (r Rows) Select(rows []int) Rows {
	return Rows{selected(r.Known, rows), selected(r.Weight, rows), selected(r.Level, rows)}
}

func selected[T any](x []T, rows []int) []T {
	if x == nil {
		return nil
	}
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = x[r]
	}
	return out
}

// ByRow is a likelihood that differs between rows. Its densities, distributions and random targets
// are those of its first row.
type ByRow interface {
	Likelihood
	// Select returns the likelihood of some of the rows.
	Select(rows []int) Likelihood
	// Of returns the likelihood of other rows.
	Of(rows Rows) ByRow
	// Offset reports whether some of the noise is known, whatever the parameters.
	Offset() bool
}

// At returns the likelihood of row i, which is that of all rows unless it differs between them.
func At(l Likelihood, i int) Likelihood {
	if rows, ok := l.(ByRow); ok {
		return rows.Select([]int{i})
	}
	return l
}

// Unequal is normal noise that is independent, but of another variance in each row:
//
//	noise_i = known_i + λ_level(i)/weight_i
//
// Each λ is a parameter; where there is none all of the noise is known. It is its own Augmentation,
// without state.
type Unequal struct {
	Gaussian
	index []string // of the parameters
	known bool     // whether there is noise that is known
	rows  Rows
	n     int
}

var _ ByRow = (*Unequal)(nil)

// NewUnequal returns the noise of no rows yet. index tells its parameters apart: one that is empty for
// a single λ, one for each level, or none. known says that some of the noise is known.
func NewUnequal(index []string, known bool) *Unequal { return &Unequal{index: index, known: known} }

// Params returns lambda, or one for each level.
func (u *Unequal) Params() param.List {
	out := param.List{}
	for _, index := range u.index {
		out = append(out, param.Param{Symbol: "lambda", Index: index, Role: param.Noise})
	}
	return out
}

// Check returns an error if a target is not finite, or a row has no noise at all.
func (u *Unequal) Check(y []float64) error {
	for i := range u.n {
		if len(u.index) == 0 && u.rows.Known[i] == 0 {
			return fmt.Errorf("the noise of row %d is known to be 0, and there is no other: a posterior needs some in each row; leave the row out, or let there be noise beside what is known", i+1)
		}
	}
	return u.Gaussian.Check(y)
}

// Of returns the noise of the given rows.
func (u *Unequal) Of(rows Rows) ByRow {
	return &Unequal{index: u.index, known: u.known, rows: rows, n: max(len(rows.Known), len(rows.Weight), len(rows.Level))}
}

// Select returns the noise of some of the rows.
func (u *Unequal) Select(rows []int) Likelihood { return u.Of(u.rows.Select(rows)) }

// Offset reports whether some of the noise is known.
func (u *Unequal) Offset() bool { return u.known }

// Augmentation returns the likelihood itself.
func (u *Unequal) Augmentation() Augmentation { return u }

// share returns ∂noise/∂λ of row i, λ being that of the row.
func (u *Unequal) share(i int) float64 {
	if u.rows.Weight == nil {
		return 1
	}
	return 1 / u.rows.Weight[i]
}

// level returns which of the parameters is that of row i.
func (u *Unequal) level(i int) int {
	if u.rows.Level == nil {
		return 0
	}
	return u.rows.Level[i]
}

func (u *Unequal) noise(theta []float64, i int) (v float64) {
	if len(theta) > 0 {
		v = theta[u.level(i)] * u.share(i)
	}
	if u.rows.Known != nil {
		v += u.rows.Known[i]
	}
	return v
}

// Noise returns the variance in each row.
func (u *Unequal) Noise(theta, _ []float64) []float64 {
	out := make([]float64, u.n)
	for i := range out {
		out[i] = u.noise(theta, i)
	}
	return out
}

// NoiseGradient returns ∂noise/∂log λ for each λ.
func (u *Unequal) NoiseGradient(theta, _ []float64) [][]float64 {
	out := make([][]float64, len(theta))
	for l := range out {
		out[l] = make([]float64, u.n)
	}
	if len(out) > 0 {
		for i := range u.n {
			l := u.level(i)
			out[l][i] = theta[l] * u.share(i)
		}
	}
	return out
}

// LogDensity returns log N(y|f,noise) of the first row.
func (u *Unequal) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	return u.Gaussian.LogDensity([]float64{u.noise(theta, 0)}, y, f)
}

// Draw draws a target of the first row.
func (u *Unequal) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	return u.Gaussian.Draw(r, []float64{u.noise(theta, 0)}, mean, variance)
}

// Predict returns the distribution of a target of the first row.
func (u *Unequal) Predict(theta [][]float64, mean, variance []float64) Predictive {
	noise := make([][]float64, len(theta))
	for t, own := range theta {
		noise[t] = []float64{u.noise(own, 0)}
	}
	return u.Gaussian.Predict(noise, mean, variance)
}
