package loo

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Rank is a model's place in a comparison.
type Rank struct {
	Model  int // its place among those compared
	ELPD   Sum
	Diff   Sum     // its elpd less that of the best
	Weight float64 // by which predictions are averaged to predict best (stacking)
}

// sameTarget is the relative difference up to which targets in units that a table was scaled from
// and back are the same.
const sameTarget = 1e-9

// Compare ranks models by elpd, the best first. Standard errors of differences are those of the
// differences row by row, which are much smaller than those of either. The error says why models
// cannot be compared: not the same rows of the same targets, left out in the same way.
func Compare(models []*Result) ([]Rank, error) {
	for k, m := range models[1:] {
		if err := fits(models[0], m); err != nil {
			return nil, fmt.Errorf("the first model and model %d cannot be compared: %w", k+2, err)
		}
	}
	out := make([]Rank, len(models))
	weights := stack(models)
	for k, m := range models {
		out[k] = Rank{Model: k, ELPD: m.ELPD(), Weight: weights[k]}
	}
	slices.SortStableFunc(out, func(a, b Rank) int {
		switch {
		case a.ELPD.Value > b.ELPD.Value:
			return -1
		case a.ELPD.Value < b.ELPD.Value:
			return 1
		}
		return 0
	})
	best := models[out[0].Model]
	for i := range out[1:] {
		r := &out[1+i]
		d := models[r.Model].values(func(row Row) float64 { return row.ELPD })
		for i := range d {
			d[i] -= best.Rows[i].ELPD
		}
		r.Diff = sum(d, best.Of, best.Units)
	}
	return out, nil
}

// fits returns why two results are not of the same rows.
func fits(a, b *Result) error {
	if a.Of != b.Of || len(a.Rows) != len(b.Rows) {
		return fmt.Errorf("they have learnt from %d and %d rows, of which %d and %d were left out in turn", a.Of, b.Of, len(a.Rows), len(b.Rows))
	}
	var scale float64
	for _, r := range a.Rows {
		scale = max(scale, math.Abs(r.Target))
	}
	for i, r := range a.Rows {
		s := b.Rows[i]
		if r.Number != s.Number {
			return fmt.Errorf("they have not learnt from the same rows: row %d of the one's table is not among the other's", r.Number)
		}
		if math.Abs(r.Target-s.Target) > sameTarget*scale {
			return fmt.Errorf("they have not the same targets: that of row %d is %g and %g; a density of another target, or of the same in other units, is another thing", r.Number, r.Target, s.Target)
		}
		if r.Fold != s.Fold {
			return fmt.Errorf("they were not cut into the same folds: row %d is in fold %d of the one and in fold %d of the other; cut both by the same column, number of folds and seed", r.Number, r.Fold, s.Fold)
		}
	}
	if !slices.Equal(a.Units, b.Units) {
		return errors.New("their folds were not made in the same way: rows that belong together in the one do not in the other")
	}
	return nil
}

// stacking iterates so often, or until no weight moves by as much as stackingPrecision.
const (
	maxStacking       = 20000
	stackingPrecision = 1e-9
)

// stack returns the weights, a point of the simplex, whose mixture of the models'
// distributions of rows left out has the highest log density over the rows (Yao, Vehtari, Simpson and Gelman, Bayesian
// Analysis 2018, eq. 4). The objective is concave; steps are those of EM for the weights of a
// mixture, each of which raises it.
func stack(models []*Result) []float64 {
	w := make([]float64, len(models))
	for k := range w {
		w[k] = 1 / float64(len(w))
	}
	rows := len(models[0].Rows)
	p := make([][]float64, rows) // densities, each row's largest 1
	for i := range p {
		p[i] = make([]float64, len(w))
		top := math.Inf(-1)
		for _, m := range models {
			top = max(top, m.Rows[i].ELPD)
		}
		for k, m := range models {
			p[i][k] = math.Exp(m.Rows[i].ELPD - top)
		}
	}
	for range maxStacking {
		next := make([]float64, len(w))
		for _, row := range p {
			var total float64
			for k, x := range row {
				total += w[k] * x
			}
			for k, x := range row {
				next[k] += w[k] * x / total / float64(rows)
			}
		}
		moved := 0.0
		for k := range w {
			moved = max(moved, math.Abs(next[k]-w[k]))
		}
		if w = next; moved < stackingPrecision {
			break
		}
	}
	return w
}
