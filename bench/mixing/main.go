// Command mixing measures how well chains under likelihoods with auxiliary variables mix: effective draws of
// each parameter, and of the latent function, for 1,000 products with K, and the processor time of an iteration, on data made by the model itself or on
// random rows of a table. Of several numbers of rows it tells the power of n by which an iteration's time grows.
//
//	go run ./bench/mixing [-n 500,2000] [-only bernoulli] [-draws 300] [-warmup 300] [-chains 4] [-seed 1]
//	go run ./bench/mixing -table spam.csv -target class -model '{likelihood: bernoulli}' -n 500,1000,2000 -draws 20 -warmup 40 -chains 2
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// made is a model that data can be made of.
type made struct {
	text  string
	theta []float64
}

// models are the likelihoods, each with the natural parameters that data are made with: σ, τ and its own.
var models = []made{
	{"{likelihood: student-t}", []float64{1, 0.5, 0.1}},
	{"{likelihood: bernoulli}", []float64{4, 0.5}},
	{"{likelihood: bernoulli, link: probit}", []float64{2, 0.5}},
	{"{likelihood: quantile, level: 0.9}", []float64{1, 0.5, 0.01}},
	{"{likelihood: negative-binomial}", []float64{1, 0.5, 3}},
	{"{likelihood: poisson}", []float64{1, 0.5}},
	{"{likelihood: stochastic-volatility}", []float64{1, 0.5}},
}

func main() {
	sizes := flag.String("n", "500,2000", "rows, a list")
	only := flag.String("only", "", "models whose text contains this")
	c := config{}
	flag.IntVar(&c.draws, "draws", 300, "kept draws of each chain")
	flag.IntVar(&c.warmup, "warmup", 300, "iterations of each chain before them")
	flag.IntVar(&c.chains, "chains", 4, "chains")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of data and draws")
	flag.StringVar(&c.table, "table", "", "a table to take rows of, in place of data that the model makes")
	flag.StringVar(&c.target, "target", "y", "its target")
	flag.StringVar(&c.method, "method", "gibbs", "sampler.method: of others than gibbs the parameters alone are told of")
	model := flag.String("model", "", "in place of the models that there are")
	flag.Parse()
	if *model != "" {
		models = append(models[:0], made{*model, nil})
	}
	if c.table != "" && *model == "" {
		log.Fatal("a table has no model: give -model")
	}
	fmt.Println("| model | n | quantity | R-hat | ESS | ESS for 1,000 products | products for each iteration | acceptance | processor seconds for each iteration | for each effective draw |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	var rows, seconds []float64 // of the last model
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range models {
			if strings.Contains(m.text, *only) {
				c.n, c.model, c.theta = n, m.text, m.theta
				each, err := c.run(context.Background())
				if err != nil {
					log.Fatal(err)
				}
				if len(models) == 1 {
					rows, seconds = append(rows, math.Log(float64(n))), append(seconds, math.Log(each))
				}
			}
		}
	}
	if len(rows) > 1 {
		_, power := stat.LinearRegression(rows, seconds, nil, false)
		fmt.Printf("\nThe processor time of an iteration grows as n to the power of %.2f.\n", power)
	}
}

// config is a model with the data to make.
type config struct {
	n, draws, warmup, chains int
	seed                     uint64
	table, target            string // to take rows of; empty for data that are made
	model, method            string
	theta                    []float64
}

// spec returns the specification of a table at a path.
func (c config) spec(path string) (*job.Spec, error) {
	return job.Parse(strings.NewReader(fmt.Sprintf(`
name: mixing
data: {path: %s, target: %s, standardize: %v}
model: %s
sampler: {method: %s, chains: %d, warmup: %d, draws: %d, checkpoint: 1}
stop: {max_draws: %d, ess: 1e9, max_time: 0s}
seed: %d
`, path, c.target, c.table != "", c.model, c.method, c.chains, c.warmup, c.draws, c.draws, c.seed)), "")
}

// sample takes random rows of the table.
func (c config) sample(ctx context.Context, budget *parallel.Budget) (*job.Spec, *dataset.Dataset, error) {
	s, err := c.spec(c.table)
	if err != nil {
		return nil, nil, err
	}
	d, err := s.Load(ctx, nil, budget)
	if err != nil {
		return nil, nil, err
	}
	t := &dataset.Table{Target: c.target}
	rows := rand.New(rand.NewPCG(c.seed, 0)).Perm(d.N())
	rows = rows[:min(c.n, len(rows))]
	for k := range d.X.Dim() {
		x := make([]float64, len(rows))
		for i, row := range rows {
			x[i] = d.X.Row(row)[k]
		}
		if slices.Min(x) < slices.Max(x) {
			t.X, t.Inputs = append(t.X, x), append(t.Inputs, fmt.Sprintf("x%d", k+1))
		}
	}
	for _, row := range rows {
		t.Y = append(t.Y, d.Y[row])
	}
	d, err = s.Dataset(t)
	return s, d, err
}

// problem makes data of the model.
func (c config) problem(ctx context.Context, budget *parallel.Budget) (*job.Spec, *dataset.Dataset, error) {
	s, err := c.spec("made.csv")
	if err != nil {
		return nil, nil, err
	}
	r := rand.New(rand.NewPCG(c.seed, uint64(c.n)))
	t := &dataset.Table{Target: "y", Inputs: []string{"a", "b"}, X: [][]float64{make([]float64, c.n), make([]float64, c.n)}, Y: make([]float64, c.n)}
	for i := range c.n {
		t.X[0][i], t.X[1][i] = r.NormFloat64(), r.NormFloat64()
	}
	d, err := s.Dataset(t)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.KernelModel(&d.Info)
	if err != nil {
		return nil, nil, err
	}
	of := len(m.Covariance.Params())
	f, k := m.Covariance.At(c.theta[:of]), mat.NewSymDense(c.n, nil)
	for i := range c.n {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(d.X.Row(i), d.X.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)*(1+1e-9))
	}
	var factor mat.Cholesky
	if !factor.Factorize(k) {
		return nil, nil, fmt.Errorf("the covariance matrix is singular")
	}
	z, y := mat.NewVecDense(c.n, nil), mat.NewVecDense(c.n, nil)
	for i := range c.n {
		z.SetVec(i, r.NormFloat64())
	}
	y.MulVec(factor.RawU().T(), z)
	for i := range c.n {
		t.Y[i] = m.Likelihood.Draw(r, c.theta[of:], y.AtVec(i), 0)
	}
	d, err = s.Dataset(t)
	return s, d, err
}

// run prints the rows of the table, and returns the processor seconds of an iteration.
func (c config) run(ctx context.Context) (seconds float64, err error) {
	budget := parallel.NewBudget(2)
	data := c.problem
	if c.table != "" {
		data = c.sample
	}
	s, d, err := data(ctx, budget)
	if err != nil {
		return 0, err
	}
	p, err := s.Problem(d)
	if err != nil {
		return 0, err
	}
	c.n = len(p.Y)
	dir, err := os.MkdirTemp("", "mixing")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	carried := c.n
	if c.method != "gibbs" {
		carried = 0
	}
	plan := s.Plan(p.Names(), len(p.Y))
	watch := &latents{dir: filepath.Join(dir, "journal.latent"), n: carried, mean: make([][]float64, c.chains), size: make([][]float64, c.chains), seen: make([]int, c.chains)}
	r, _, err := local.Run(ctx, local.Config{Plan: plan, Budget: budget, Journal: filepath.Join(dir, "journal"), Watch: watch.look,
		Driver: driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
			Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})})
	if err != nil {
		return 0, err
	}
	if watch.err != nil {
		return 0, watch.err
	}
	seconds = (cputime.Seconds() - watch.began) / float64(watch.iterations(r)-watch.counted)
	products, iterations, accepted := 0, 0, 0
	for i := range r.Chains {
		products += r.Chains[i].Cost.Products - watch.before[i]
		iterations += len(r.Chains[i].Draws)
		accepted += r.Chains[i].Accepted
	}
	show := func(name string, x [][]float64) {
		ess := diagnostics.ESSBulk(x)
		fmt.Printf("| %s | %d | %s | %.3f | %.0f | %.1f | %.0f | %.2f | %.3f | %.2f |\n", c.model, c.n, name, diagnostics.RHat(x), ess, 1000*ess/float64(products),
			float64(products)/float64(iterations), float64(accepted)/float64(iterations), seconds, seconds*float64(iterations)/ess)
	}
	for i, name := range plan.Names {
		show("log "+name, r.Column(i, r.MinDraws()))
	}
	if c.method != "gibbs" {
		return seconds, nil
	}
	show("mean of f", watch.mean)
	show("mean square of f", watch.size)
	return seconds, nil
}

// latents reads the latent function of each kept draw.
type latents struct {
	dir        string
	n          int
	mean, size [][]float64 // of each chain
	seen       []int       // draws of each chain
	before     map[int]int // products of each chain before its first draw
	counted    int         // draws of all chains when all had one, and the time of the processor then
	began      float64
	err        error
}

// iterations returns the draws of all chains.
func (l *latents) iterations(r *chains.Run) int {
	sum := 0
	for i := range r.Chains {
		sum += len(r.Chains[i].Draws)
	}
	return sum
}

func (l *latents) look(v local.View) {
	if l.before == nil {
		l.before = map[int]int{}
	}
	if l.counted == 0 && v.Run.MinDraws() > 0 {
		l.counted, l.began = l.iterations(v.Run), cputime.Seconds()
	}
	for i := range v.Run.Chains {
		c := &v.Run.Chains[i]
		if len(c.Draws) == 0 {
			l.before[i] = c.Cost.Products
		}
		if len(c.Draws) == l.seen[i] || l.err != nil {
			continue
		}
		l.seen[i] = len(c.Draws)
		if l.n == 0 { // f is not what chains carry
			continue
		}
		b, err := os.ReadFile(filepath.Join(l.dir, c.State.Latent.SHA256))
		if err != nil {
			l.err = err
			return
		}
		f, err := latent.Decode(b, 1, l.n)
		if err != nil {
			l.err = err
			return
		}
		mean := floats.Sum(f[0]) / float64(l.n)
		l.mean[i] = append(l.mean[i], mean)
		l.size[i] = append(l.size[i], floats.Dot(f[0], f[0])/float64(l.n))
		if math.IsNaN(mean) {
			l.err = fmt.Errorf("chain %d has a latent function that is no number", i+1)
		}
	}
}
