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
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Config says what to simulate: Reps data sets of N rows, each sampled by Method
// with two chains; Kept draws of both together, Thin iterations apart, are ranked.
type Config struct {
	Method string
	// Model is the model of the specification, in braces, over the inputs t, evenly
	// spaced from 0 to 10, and x, standard normal. If it is empty it is one family over two
	// inputs, with normal priors of the log parameters.
	Model string
	// Levels is how many a third input has, the category c, which rows have in turn; 0 for no such input.
	Levels     int
	Classes    int    // of the target, in order; 0 for a target without
	Solver     string // of the specification, in braces
	N          int
	Reps       int
	Kept, Thin int
	Warmup     int // iterations of each chain; 0 for the sampler's own number
	Seed       uint64
	Cores      int
}

// priors are normal on the log parameters: mean and sd of each.
var priors = [3][2]float64{{0, 0.5}, {-0.7, 0.4}, {-2.3, 0.5}}

// Ranks returns, for each parameter and repetition, how many of the Kept draws
// are below the truth.
func Ranks(ctx context.Context, c Config) (names []string, ranks [][]int, err error) {
	budget := parallel.NewBudget(c.Cores)
	for rep := range c.Reps {
		r := random.Key{Seed: c.Seed, Iter: rep}.Stream(random.Calibration, 0)
		simulate := c.family
		if c.Model != "" {
			simulate = c.expression
		}
		spec, data, truth, err := simulate(ctx, r, c.Seed*1_000_000+uint64(rep), budget)
		if err != nil {
			return nil, nil, fmt.Errorf("repetition %d: %w", rep, err)
		}
		run, err := run(ctx, spec, data, budget)
		if err != nil {
			return nil, nil, fmt.Errorf("repetition %d, log parameters %.4g: %w", rep, truth, err)
		}
		names = run.Plan.Names
		if ranks == nil {
			ranks = make([][]int, len(names))
		}
		for i := range names {
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

// family simulates data of one family.
func (c Config) family(ctx context.Context, r *rand.Rand, seed uint64, budget *parallel.Budget) (*job.Spec, *dataset.Dataset, []float64, error) {
	var truth [3]float64
	for i, p := range priors {
		truth[i] = p[0] + p[1]*r.NormFloat64()
	}
	s, err := c.spec(seed,
		fmt.Sprintf("{synthetic: {n: %d, d: 2, sigma: %v, tau: %v, lambda: %v, seed: %d}, standardize: false}", c.N, math.Exp(truth[0]), math.Exp(truth[1]), math.Exp(truth[2]), seed),
		fmt.Sprintf(`{priors: {sigma: "lognormal(%v,%v)", tau: "lognormal(%v,%v)", lambda: "lognormal(%v,%v)"}}`, priors[0][0], priors[0][1], priors[1][0], priors[1][1], priors[2][0], priors[2][1]))
	if err != nil {
		return nil, nil, nil, err
	}
	d, err := s.Load(ctx, nil, budget)
	return s, d, truth[:], err
}

// latentNoise is the variance that is added to a latent function, so that its covariance matrix has a factor.
const latentNoise = 1e-8

// expression simulates data of a model, whose parameters are drawn from their priors.
func (c Config) expression(_ context.Context, r *rand.Rand, seed uint64, _ *parallel.Budget) (*job.Spec, *dataset.Dataset, []float64, error) {
	s, err := c.spec(seed, "{path: simulated.csv, target: y, standardize: false}", c.Model)
	if err != nil {
		return nil, nil, nil, err
	}
	t := &dataset.Table{Target: "y", Inputs: []string{"t", "x"}, X: [][]float64{make([]float64, c.N), make([]float64, c.N)}, Y: make([]float64, c.N)}
	for i := range c.N {
		t.X[0][i], t.X[1][i] = 10*float64(i)/float64(c.N-1), r.NormFloat64()
	}
	if c.Levels > 0 {
		t.Inputs, t.X, t.Levels = append(t.Inputs, "c"), append(t.X, make([]float64, c.N)), make([][]string, 3)
		for level := range c.Levels {
			t.Levels[2] = append(t.Levels[2], string(rune('A'+level)))
		}
		for i := range c.N {
			t.X[2][i] = float64(i % c.Levels)
		}
	}
	for class := range c.Classes {
		t.Classes = append(t.Classes, strconv.Itoa(class+1))
	}
	d, err := dataset.New(t, dataset.Options{})
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := s.KernelModel(&d.Info)
	if err != nil {
		return nil, nil, nil, err
	}
	var truth []float64
	for _, p := range m.Params {
		truth = append(truth, p.Prior.Sample(r))
	}
	theta := m.Params.Natural(truth)
	of := len(m.Covariance.Params())
	f, k := m.Covariance.At(theta[:of]), mat.NewSymDense(c.N, nil)
	gaussian := m.Likelihood.Augmentation().Width() == 0
	noise := latentNoise
	if gaussian {
		noise = theta[of]
	}
	for i := range c.N {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(d.X.Row(i), d.X.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)+noise)
	}
	var factor mat.Cholesky
	if !factor.Factorize(k) {
		return nil, nil, nil, fmt.Errorf("at log parameters %.4g the covariance matrix is singular", truth)
	}
	z, y := mat.NewVecDense(c.N, nil), mat.NewVecDense(c.N, t.Y)
	for i := range c.N {
		z.SetVec(i, r.NormFloat64())
	}
	y.MulVec(factor.RawU().T(), z)
	if !gaussian { // what was drawn is the latent function
		for i, f := range t.Y {
			t.Y[i] = m.Likelihood.Draw(r, theta[of:], f, 0)
		}
	}
	d, err = dataset.New(t, dataset.Options{})
	return s, d, truth, err
}

// spec returns the specification of a repetition.
func (c Config) spec(seed uint64, data, model string) (*job.Spec, error) {
	draws, warmup := (c.Kept+1)/2*c.Thin, "auto"
	if c.Warmup > 0 {
		warmup = strconv.Itoa(c.Warmup)
	}
	return job.Parse(strings.NewReader(fmt.Sprintf(`
name: calibration
data: %s
model: %s
sampler: {method: %s, chains: 2, warmup: %s, draws: %d, checkpoint: 60}
solver: %s
stop: {max_draws: %d, ess: 1e9, max_time: 0s}
seed: %d
`, data, model, c.Method, warmup, draws, c.Solver, draws, seed)), "")
}

func run(ctx context.Context, s *job.Spec, d *dataset.Dataset, budget *parallel.Budget) (*chains.Run, error) {
	p, err := s.Problem(d)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "calibration")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	plan := s.PlanOf(p.Model.Names(), len(p.Y), p.Functions())
	plan.Mean = false // nobody asks for its coefficients
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
