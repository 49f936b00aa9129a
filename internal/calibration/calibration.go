// Package calibration checks the whole pipeline by simulation (Cook, Gelman and
// Rubin 2006; Talts, Betancourt, Simpson, Vehtari and Gelman 2018): parameters
// are drawn from their prior, data from the model with those parameters, and
// draws from the posterior by a run like any other, from its specification to
// its journal. If all is right, the rank of the true parameter among the draws
// is uniform.
package calibration

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Config says what to simulate: Reps data sets of N rows and two inputs, each
// sampled by Method with two chains; Kept draws of both together, Thin
// iterations apart, are ranked.
type Config struct {
	Method     string
	Solver     string // of the specification, in braces
	N          int
	Reps       int
	Kept, Thin int
	Seed       uint64
	Cores      int
}

// priors are normal on the log parameters: mean and sd of each.
var priors = [3][2]float64{{0, 0.5}, {-0.7, 0.4}, {-2.3, 0.5}}

// Ranks returns, for each parameter and repetition, how many of the Kept draws
// are below the truth.
func Ranks(ctx context.Context, c Config) (names []string, ranks [][]int, err error) {
	budget := parallel.NewBudget(c.Cores)
	ranks = make([][]int, len(priors))
	for rep := range c.Reps {
		r := random.Key{Seed: c.Seed, Iter: rep}.Stream(random.Calibration, 0)
		var truth [3]float64
		for i, p := range priors {
			truth[i] = p[0] + p[1]*r.NormFloat64()
		}
		run, err := c.run(ctx, truth, c.Seed*1_000_000+uint64(rep), budget)
		if err != nil {
			return nil, nil, fmt.Errorf("repetition %d, log parameters %.4g: %w", rep, truth, err)
		}
		names = run.Plan.Names
		for i := range priors {
			rank := 0
			for k := range c.Kept {
				draws := run.Chains[k%2].Draws
				if draws[(k/2+1)*c.Thin-1][i] < truth[i] {
					rank++
				}
			}
			ranks[i] = append(ranks[i], rank)
		}
	}
	return names, ranks, nil
}

func (c Config) run(ctx context.Context, truth [3]float64, seed uint64, budget *parallel.Budget) (*chains.Run, error) {
	draws := (c.Kept + 1) / 2 * c.Thin
	text := fmt.Sprintf(`
name: calibration
data: {synthetic: {n: %d, d: 2, sigma: %v, tau: %v, lambda: %v, seed: %d}, standardize: false}
model: {priors: {sigma: "lognormal(%v,%v)", tau: "lognormal(%v,%v)", lambda: "lognormal(%v,%v)"}}
sampler: {method: %s, chains: 2, draws: %d, checkpoint: 60}
solver: %s
stop: {max_draws: %d, ess: 1e9, max_time: 0s}
seed: %d
`, c.N, math.Exp(truth[0]), math.Exp(truth[1]), math.Exp(truth[2]), seed,
		priors[0][0], priors[0][1], priors[1][0], priors[1][1], priors[2][0], priors[2][1], c.Method, draws, c.Solver, draws, seed)
	s, err := job.Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, err
	}
	d, err := s.Load(ctx, nil, budget)
	if err != nil {
		return nil, err
	}
	p, err := s.Problem(d)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "calibration")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	plan := s.Plan(p.Model.Names(), len(p.Y))
	r, _, err := local.Run(ctx, local.Config{Plan: plan, Budget: budget, Journal: filepath.Join(dir, "journal"),
		Driver: driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
			Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})})
	return r, err
}

// Histogram counts ranks from 0 to kept in bins of equal numbers of ranks; bins
// must divide kept+1.
func Histogram(ranks []int, kept, bins int) []int {
	if (kept+1)%bins != 0 {
		panic(fmt.Sprintf("calibration: %d ranks do not fall into %d equal bins", kept+1, bins))
	}
	h := make([]int, bins)
	for _, r := range ranks {
		h[r*bins/(kept+1)]++
	}
	return h
}

// PValue returns the probability that a histogram of uniform ranks is as uneven
// as this one, by the chi-squared test.
func PValue(histogram []int) float64 {
	total := 0
	for _, h := range histogram {
		total += h
	}
	want := float64(total) / float64(len(histogram))
	var x float64
	for _, h := range histogram {
		x += (float64(h) - want) * (float64(h) - want) / want
	}
	return distuv.ChiSquared{K: float64(len(histogram) - 1)}.Survival(x)
}

// Band returns the bounds between which a bin of uniform ranks lies with the
// given probability.
func Band(reps, bins int, prob float64) (lo, hi int) {
	b := distuv.Binomial{N: float64(reps), P: 1 / float64(bins)}
	for b.CDF(float64(lo)) < (1-prob)/2 {
		lo++
	}
	for hi = lo; b.CDF(float64(hi)) < (1+prob)/2; {
		hi++
	}
	return lo, hi
}
