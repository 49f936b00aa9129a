package export

import (
	"context"
	"errors"
	"fmt"

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
	turns := rec.Run.MinDraws()
	if each = min(each, turns); each < 1 {
		return nil, predict.Stats{}, errors.New("there are no draws to predict from")
	}
	problem, err := rec.Spec.Problem(d)
	if err != nil {
		return nil, predict.Stats{}, err
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
	if err != nil {
		return nil, predict.Stats{}, err
	}
	m, stats, err := p.Predict(ctx, d.X, predict.Options{Progress: progress})
	if err != nil {
		return nil, stats, err
	}
	n, chains := d.N(), len(rec.Run.Chains)
	y := make([]float64, 0, chains*each*n)
	for k := range draws {
		r := random.Key{Seed: rec.Spec.Seed, Chain: 1 + k/each, Iter: int(at[k%each])}.Stream(random.Predictive, 0)
		for i := range n {
			y = append(y, m.Target(r, k, i))
		}
	}
	return &Group{
		Coords: []Array{count(dimChain, chains), {Name: dimDraw, Dims: []string{dimDraw}, Shape: []int{each}, Data: at}, rows(src)},
		Vars: []Array{{Name: "y", Dims: []string{dimChain, dimDraw, dimObs}, Shape: []int{chains, each, n}, Data: y,
			Attrs: []Attr{{"long_name", d.Target}, {"comment", fmt.Sprintf("standardised as observed_data; rows are independent given a draw; %d of %d draws", each, turns)}}}},
	}, stats, nil
}
