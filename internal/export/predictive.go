package export

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Predictive draws values of the target for the rows that the posterior has
// learnt from: one for each row and each of a number of draws of each chain, evenly
// spaced, which are the coordinate draw. Given a draw of the parameters, rows are
// drawn each by itself. The seed decides; progress, if not nil, is told.
func Predictive(ctx context.Context, src *Source, each int, budget *parallel.Budget, progress func(predict.Progress)) (*Group, predict.Stats, error) {
	rec, d := src.Record, src.Data
	p, at, err := predictor(src, each, budget)
	if err != nil {
		return nil, predict.Stats{}, err
	}
	o := predict.Options{Noise: &d.RowNoise, Progress: progress}
	if !d.Shifted { // else observed_data are less by it
		o.Offset = d.RowOffset
	}
	m, stats, err := p.Predict(ctx, d.X, o)
	if err != nil {
		return nil, stats, err
	}
	n, each := d.N(), len(at)
	y := make([]float64, 0, len(p.Draws)*n)
	for k := range p.Draws {
		r := random.Key{Seed: rec.Spec.Seed, Chain: 1 + k/each, Iter: int(at[k%each])}.Stream(random.Predictive, 0)
		for i := range n {
			y = append(y, m.Target(r, k, i))
		}
	}
	return ofRows(src, at, y, "standardised as observed_data; rows are independent given a draw"), stats, nil
}

// LogLikelihood returns the log density of each row's target given those of all other rows, for each of a
// number of draws of each chain, evenly spaced: what ArviZ's loo takes for a model whose rows depend on
// one another. It is in the target's units, so that models of differently scaled data compare.
func LogLikelihood(ctx context.Context, src *Source, each int, budget *parallel.Budget, progress func(predict.Progress)) (*Group, predict.Stats, error) {
	p, at, err := predictor(src, each, budget)
	if err != nil {
		return nil, predict.Stats{}, err
	}
	rows := predict.LeftOut(src.Data.N(), src.Data.N())
	d, stats, err := p.LeftOutDraws(ctx, &src.Data.Info, rows, predict.Options{Offset: src.Data.OffsetOf(rows), Progress: progress})
	if err != nil {
		return nil, stats, err
	}
	return ofRows(src, at, slices.Concat(d.LogDensity...), "log density of the target, in its units, given all other rows"), stats, nil
}

// predictor returns one from a number of draws of each chain, evenly spaced, and their numbers in the
// chains.
func predictor(src *Source, each int, budget *parallel.Budget) (*predict.Predictor, []int64, error) {
	rec, turns := src.Record, src.Record.Run.MinDraws()
	if each = min(each, turns); each < 1 {
		return nil, nil, errors.New("there are no draws to predict from")
	}
	problem, err := rec.Spec.Problem(src.Data)
	if err != nil {
		return nil, nil, err
	}
	at := make([]int64, each)
	for r := range at {
		at[r] = int64((2*r + 1) * turns / (2 * each))
	}
	var draws [][]float64
	for _, ch := range rec.Run.Chains {
		for _, t := range at {
			draws = append(draws, ch.Draws[t])
		}
	}
	p, err := predict.New(predict.FromSpec(rec.Spec, problem, draws, budget))
	return p, at, err
}

// ofRows returns a group of one number for each row and each of the draws.
func ofRows(src *Source, at []int64, y []float64, comment string) *Group {
	n, chains, each := src.Data.N(), len(src.Record.Run.Chains), len(at)
	return &Group{
		Coords: []Array{count(dimChain, chains), {Name: dimDraw, Dims: []string{dimDraw}, Shape: []int{each}, Data: at}, rows(src)},
		Vars: []Array{{Name: "y", Dims: []string{dimChain, dimDraw, dimObs}, Shape: []int{chains, each, n}, Data: y,
			Attrs: []Attr{{"long_name", src.Data.Target}, {"comment", fmt.Sprintf("%s; %d of %d draws", comment, each, src.Record.Run.MinDraws())}}}},
	}
}
