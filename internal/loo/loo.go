// Package loo tells how well models predict rows that they have not learnt from, by leave-one-out
// cross-validation: the expected log predictive density of a row given all others, with its standard
// error, and the differences between models.
//
// It begins with the densities of each left-out target at each draw θ of the parameters,
// p(y_i | y_−i, θ), which for a Gaussian process are exact (predict.Predictor.LeaveOneOut). The draws
// are of p(θ|y), which has learnt from the row; they are weighted by 1/p(y_i | y_−i, θ), smoothed by
// PSIS, to be of p(θ|y_−i) (Vehtari, Gelman and Gabry, Statistics and Computing 2017, for factors that
// depend on one another Bürkner, Gabry and Vehtari, Computational Statistics 2021):
//
//	elpd_i = log Σ_t w_ti·p(y_i | y_−i, θ_t)
//
// Results of K-fold cross-validation, whose draws have not learnt from the rows, are compared in the
// same way (KFold).
//
// Densities are per unit of the target, natural logarithms.
package loo

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Row is what is known of a target that was left out.
type Row struct {
	Number   int // of the row in its table, from 1
	Target   float64
	Mean, SD float64 // of the distribution predicted
	ELPD     float64 // log density of the target given the other rows
	LPD      float64 // the same if the draws, too, have learnt from the row
	ParetoK  float64 // shape of the weights' tail (diagnostics.PSIS)
	PIT      float64 // probability of less than the target
	Fold     int     // that the row was left out with, from 1; 0: the row was left out alone
}

// Draws are the distributions of left-out targets at each of some draws: T draws × m rows.
type Draws struct {
	LogDensity [][]float64 // of the target
	CDF        [][]float64 // at the target
	Mean, SD   [][]float64
}

// Result is the estimate for one model.
type Result struct {
	Rows  []Row
	Draws int // T
	Of    int // rows of the table that Rows are all of, or a simple random sample of
	// MCSE is the standard error of the sum of ELPD over Rows that comes of the finite number
	// of draws, and of their autocorrelation.
	MCSE float64
	// Units of Rows are what standard errors are between: rows of one may depend on one another.
	// nil: each row is one.
	Units []int
}

// KFold is the result for rows that were left out in folds, of which Number, Target, Mean, SD, ELPD,
// PIT and Fold are known, and the units that they belong to.
func KFold(rows []Row, units []int) *Result {
	r := &Result{Rows: rows, Of: len(rows), MCSE: math.NaN(), Units: units}
	for i := range rows {
		rows[i].LPD, rows[i].ParetoK = math.NaN(), math.NaN()
	}
	return r
}

// New weighs the draws, of which draw t is of chain t mod chains (predict.Thin). Numbers and targets are
// those of the m rows, which are all of the rows or a sample of them.
func New(d Draws, chains int, numbers []int, targets []float64, of int) *Result {
	t := len(d.LogDensity)
	r := &Result{Rows: make([]Row, len(targets)), Draws: t, Of: of}
	influence := make([]float64, t) // of each draw on the sum
	for i := range r.Rows {
		logp, back := make([]float64, t), make([]float64, t)
		for s := range logp {
			logp[s] = d.LogDensity[s][i]
			back[s] = -logp[s]
		}
		w, k := diagnostics.PSIS(back)
		terms := make([]float64, t)
		row := Row{Number: numbers[i], Target: targets[i], ParetoK: k, LPD: floats.LogSumExp(logp) - math.Log(float64(t))}
		for s, ws := range w {
			terms[s] = math.Log(ws) + logp[s]
			row.PIT += ws * d.CDF[s][i]
			row.Mean += ws * d.Mean[s][i]
		}
		row.ELPD = floats.LogSumExp(terms)
		for s, ws := range w {
			influence[s] += math.Exp(terms[s]-row.ELPD) - ws
			row.SD += ws * (d.SD[s][i]*d.SD[s][i] + (d.Mean[s][i]-row.Mean)*(d.Mean[s][i]-row.Mean))
		}
		row.SD, row.PIT = math.Sqrt(row.SD), min(1, row.PIT)
		r.Rows[i] = row
	}
	r.MCSE = errorOf(influence, chains)
	return r
}

// errorOf returns the standard error of a sum over draws in turn of chains: where these are long enough
// with their autocorrelation, else as of independent draws.
func errorOf(x []float64, chains int) float64 {
	by := make([][]float64, chains)
	for t := range len(x) / chains * chains {
		by[t%chains] = append(by[t%chains], x[t]*float64(len(x)))
	}
	if e := diagnostics.MCSEMean(by); !math.IsNaN(e) {
		return e
	}
	return floats.Norm(x, 2)
}

// Sum is the estimate of a sum over all rows.
type Sum struct {
	Value float64
	SE    float64 // how far the sum over other rows of the same kind would be
	// Sampling is the standard error that comes of asking a sample of the rows only, 0 if all
	// were asked.
	Sampling float64
}

// sum estimates Σ x over all rows of which x is a simple random sample. Rows of one unit, if units is
// not nil, may depend on one another: the standard error is that of the units' sums of x less its
// mean, which for units of one row is that of rows.
func sum(x []float64, of int, units []int) Sum {
	m, n := float64(len(x)), float64(of)
	s := Sum{Value: n * stat.Mean(x, nil), SE: math.NaN()}
	if len(x) < 2 {
		return s
	}
	v := stat.Variance(x, nil)
	s.SE = math.Sqrt(n * v)
	if units != nil {
		s.SE = between(x, units)
	}
	if m < n {
		s.Sampling = n * math.Sqrt((1-m/n)*v/m)
	}
	return s
}

// between returns the standard error of the sum of x whose units are independent of one another.
func between(x []float64, units []int) float64 {
	mean, off := stat.Mean(x, nil), map[int]float64{}
	for i, u := range units {
		off[u] += x[i] - mean
	}
	u, square := float64(len(off)), 0.0
	for _, k := range slices.Sorted(maps.Keys(off)) { // always in the same order
		square += off[k] * off[k]
	}
	return math.Sqrt(u / (u - 1) * square)
}

func (r *Result) values(of func(Row) float64) []float64 {
	x := make([]float64, len(r.Rows))
	for i, row := range r.Rows {
		x[i] = of(row)
	}
	return x
}

// ELPD returns the expected log predictive density, elpd_loo or elpd_kfold: the larger the better.
func (r *Result) ELPD() Sum {
	return sum(r.values(func(row Row) float64 { return row.ELPD }), r.Of, r.Units)
}

// P returns the effective number of parameters p_loo: by how much the draws gain from having learnt
// from the rows. The latent function is integrated out at each draw, so that it counts covariance
// parameters only.
func (r *Result) P() Sum {
	return sum(r.values(func(row Row) float64 { return row.LPD - row.ELPD }), r.Of, r.Units)
}

// PIT returns the probabilities of less than each target, uniform if the model is right.
func (r *Result) PIT() []float64 { return r.values(func(row Row) float64 { return row.PIT }) }

// GoodK returns the Pareto k̂ up to which weights of this many draws can be trusted:
// min(1 − 1/log₁₀ T, 0.7) (Vehtari, Simpson, Gelman, Yao and Gabry, JMLR 2024).
func GoodK(draws int) float64 { return min(0.7, 1-1/math.Log10(float64(draws))) }

// Doubtful returns how many rows have weights that cannot be trusted: k̂ above GoodK, or too few
// draws to tell.
func (r *Result) Doubtful() int {
	good, n := GoodK(r.Draws), 0
	for _, row := range r.Rows {
		if !(row.ParetoK <= good) {
			n++
		}
	}
	return n
}
