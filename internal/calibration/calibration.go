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
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
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
	Levels  int
	Classes int // of the target, in order or without one; 0 for a target without
	// Functions ranks the latent functions, too, drawn given the draws of the parameters as predictions have them (laplace.Functions): of each
	// its mean over the rows and its value at the last row. The model is one of a likelihood that is not Gaussian.
	Functions  bool
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

// simulation is a data set with what it was made of.
type simulation struct {
	spec      *job.Spec
	data      *dataset.Dataset
	truth     []float64   // log parameters
	functions [][]float64 // the latent functions at the rows; nil where the noise is added in one with the function
}

// Ranks returns, for each parameter and repetition, how many of the Kept draws
// are below the truth; then those of the latent functions, if they are asked for.
func Ranks(ctx context.Context, c Config) (names []string, ranks [][]int, err error) {
	budget := parallel.NewBudget(c.Cores)
	for rep := range c.Reps {
		r := random.Key{Seed: c.Seed, Iter: rep}.Stream(random.Calibration, 0)
		simulate := c.family
		if c.Model != "" {
			simulate = c.expression
		}
		sim, err := simulate(ctx, r, c.Seed*1_000_000+uint64(rep), budget)
		if err != nil {
			return nil, nil, fmt.Errorf("repetition %d: %w", rep, err)
		}
		run, problem, err := run(ctx, sim.spec, sim.data, budget)
		if err != nil {
			return nil, nil, fmt.Errorf("repetition %d, log parameters %.4g: %w", rep, sim.truth, err)
		}
		truth, draws := sim.truth, make([][]float64, c.Kept)
		for k := range draws {
			draws[k] = run.Chains[k%2].Draws[(k/2+1)*c.Thin-1]
		}
		names = run.Plan.Names
		if c.Functions {
			own, of := summaries(sim.functions)
			names, truth = append(slices.Clone(names), own...), append(slices.Clone(truth), of...)
			if draws, err = withFunctions(ctx, problem, draws, sim.spec.Seed); err != nil {
				return nil, nil, fmt.Errorf("repetition %d, log parameters %.4g: %w", rep, sim.truth, err)
			}
		}
		if ranks == nil {
			ranks = make([][]int, len(names))
		}
		for i := range names {
			rank := 0
			for _, draw := range draws {
				if draw[i] < truth[i] {
					rank++
				}
			}
			ranks[i] = append(ranks[i], rank)
		}
	}
	return names, ranks, nil
}

// summaries returns what is ranked of latent functions at the rows: the mean of each and its value at the last row.
func summaries(functions [][]float64) (names []string, of []float64) {
	for c, f := range functions {
		names = append(names, fmt.Sprintf("f%d, mean", c+1), fmt.Sprintf("f%d, last row", c+1))
		of = append(of, floats.Sum(f)/float64(len(f)), f[len(f)-1])
	}
	return names, of
}

// withFunctions returns draws of ψ with the summaries of the latent functions, drawn at each.
func withFunctions(ctx context.Context, p *posterior.Problem, draws [][]float64, seed uint64) (out [][]float64, err error) {
	centre := make([]float64, p.NumParams())
	for _, psi := range draws {
		floats.AddScaled(centre, 1/float64(len(draws)), psi)
	}
	drawn, n := laplace.NewFunctions(p, centre, seed), len(p.Y)
	for k, psi := range draws {
		mean, variance, err := drawn.At(ctx, psi, p.Inputs)
		if err != nil {
			return nil, err
		}
		f, r := mean[k%len(mean)], random.Key{Seed: seed, Iter: k}.Stream(random.Calibration, 1) // not the same where ψ is
		for i, v := range variance[k%len(mean)] {
			f[i] += math.Sqrt(v) * r.NormFloat64()
		}
		_, of := summaries(slices.Collect(slices.Chunk(f, n)))
		out = append(out, append(slices.Clone(psi), of...))
	}
	return out, nil
}

// family simulates data of one family.
func (c Config) family(ctx context.Context, r *rand.Rand, seed uint64, budget *parallel.Budget) (*simulation, error) {
	var truth [3]float64
	for i, p := range priors {
		truth[i] = p[0] + p[1]*r.NormFloat64()
	}
	s, err := c.spec(seed,
		fmt.Sprintf("{synthetic: {n: %d, d: 2, sigma: %v, tau: %v, lambda: %v, seed: %d}, standardize: false}", c.N, math.Exp(truth[0]), math.Exp(truth[1]), math.Exp(truth[2]), seed),
		fmt.Sprintf(`{priors: {sigma: "lognormal(%v,%v)", tau: "lognormal(%v,%v)", lambda: "lognormal(%v,%v)"}}`, priors[0][0], priors[0][1], priors[1][0], priors[1][1], priors[2][0], priors[2][1]))
	if err != nil {
		return nil, err
	}
	d, err := s.Load(ctx, nil, budget)
	return &simulation{spec: s, data: d, truth: truth[:]}, err
}

// latentNoise is the variance that is added to a latent function, so that its covariance matrix has a factor.
const latentNoise = 1e-8

// most is how often data are drawn that the likelihood does not take.
const most = 100

// expression simulates data of a model, whose parameters are drawn from their priors. Data that the likelihood does not take, such as
// those of one class, are drawn anew with their parameters: nobody asks for their posterior, and that of others, and so their ranks, are what
// they are without it.
func (c Config) expression(_ context.Context, r *rand.Rand, seed uint64, _ *parallel.Budget) (*simulation, error) {
	s, err := c.spec(seed, "{path: simulated.csv, target: y, standardize: false}", c.Model)
	if err != nil {
		return nil, err
	}
	t := c.table(r)
	d, err := s.Dataset(t)
	if err != nil {
		return nil, err
	}
	m, err := s.KernelModel(&d.Info)
	if err != nil {
		return nil, err
	}
	out := &simulation{spec: s}
	for range most {
		out.truth = nil
		for _, p := range m.Params {
			out.truth = append(out.truth, p.Prior.Sample(r))
		}
		if out.functions, err = targets(r, &m, d.X, out.truth, t.Y); err != nil {
			return nil, err
		}
		if err = m.Likelihood.Check(t.Y); err == nil {
			out.data, err = s.Dataset(t)
			return out, err
		}
	}
	return nil, err
}

// table returns a table without targets.
func (c Config) table(r *rand.Rand) *dataset.Table {
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
	return t
}

// targets sets targets that a model makes at ψ, and returns the latent functions that they were made of; nil under Gaussian noise.
func targets(r *rand.Rand, m *posterior.Model, x *kernel.Inputs, psi, y []float64) (functions [][]float64, err error) {
	theta, own := m.Natural(psi)
	if a := m.Likelihood.Augmentation(); a != nil && a.Width() == 0 {
		f, err := normal(r, m.Covariance.At(theta), x, own[0])
		copy(y, f)
		return nil, err
	}
	for c := range m.Functions() {
		f, err := normal(r, m.Part(c).Function(theta), x, latentNoise)
		if err != nil {
			return nil, err
		}
		functions = append(functions, f)
	}
	of, several := m.Likelihood.(likelihood.Several)
	at := make([]float64, len(functions))
	for i := range y {
		for c, f := range functions {
			at[c] = f[i]
		}
		if several {
			y[i] = of.DrawAll(r, own, at)
		} else {
			y[i] = m.Likelihood.Draw(r, own, at[0], 0)
		}
	}
	return functions, nil
}

// normal draws from N(0, K+noise·I) at points.
func normal(r *rand.Rand, f *kernel.Function, x *kernel.Inputs, noise float64) ([]float64, error) {
	n := x.Len()
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(x.Row(i), x.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)+noise)
	}
	var factor mat.Cholesky
	if !factor.Factorize(k) {
		return nil, fmt.Errorf("at parameters %.4g the covariance matrix is singular", f.Theta())
	}
	z, out := mat.NewVecDense(n, nil), make([]float64, n)
	for i := range n {
		z.SetVec(i, r.NormFloat64())
	}
	mat.NewVecDense(n, out).MulVec(factor.RawU().T(), z)
	return out, nil
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

func run(ctx context.Context, s *job.Spec, d *dataset.Dataset, budget *parallel.Budget) (*chains.Run, *posterior.Problem, error) {
	p, err := s.Problem(d)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "calibration")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	plan := s.PlanOf(p.Model.Names(), len(p.Y), p.Functions())
	plan.Mean = false // nobody asks for its coefficients
	r, _, err := local.Run(ctx, local.Config{Plan: plan, Budget: budget, Journal: filepath.Join(dir, "journal"),
		Driver: driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
			Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})})
	return r, p, err
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
