// Command latent compares ways to draw the latent function and the parameters of a Gaussian process whose likelihood is not Gaussian, dense, as
// Filippone, Zhong and Girolami (2013, tables 2 to 6) and Filippone and Girolami (2014, table 1) do, on generated data or a table of classes: f given θ by random walks,
// elliptical slices, Hamiltonian and Langevin dynamics; length-scales given f, or given the whitened f, by random walks, Hamiltonian and Langevin dynamics; θ and f by
// sufficient and ancillary parameterizations, both interwoven, surrogate data, and jointly around Laplace's approximation; θ alone by pseudo-marginal chains. With
// -only gate, the two functions of the twinned likelihood given θ: by slices, and by indicators.
//
//	go run ./bench/latent -only classes -d 1
//	go run ./bench/latent [-n 100] [-d 2] [-sets 2] [-chains 2] [-draws 4000] [-warmup 1500] [-only function] [-likelihoods logit,poisson]
//	go run ./bench/latent -only conditional
//	go run ./bench/latent -only parameters -table pima.csv -target positive -n 0 -times 5 -schemes AA,KHR
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

var likelihoods = map[string]likelihood.Likelihood{
	"logit": likelihood.Bernoulli{}, "probit": likelihood.Probit{}, "poisson": likelihood.Poisson{}, "volatility": likelihood.Volatility{},
}

// config is what is compared on.
type config struct {
	n, d, sets, chains, draws, warmup, times int
	seed                                     uint64
	table, target                            string
	schemes                                  []string // nil: all
}

func main() {
	c := config{}
	flag.IntVar(&c.n, "n", 100, "rows; of a table, 0 for all")
	flag.IntVar(&c.d, "d", 2, "inputs")
	flag.IntVar(&c.sets, "sets", 2, "data sets")
	flag.IntVar(&c.chains, "chains", 2, "chains on each")
	flag.IntVar(&c.draws, "draws", 4000, "kept draws of each chain")
	flag.IntVar(&c.warmup, "warmup", 1500, "iterations before them, in which steps are tuned")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of data and draws")
	flag.IntVar(&c.times, "times", 1, "updates of f before θ moves")
	flag.StringVar(&c.table, "table", "", "compare the schemes for θ on the classes of this table, standardised inputs, in place of generated data")
	flag.StringVar(&c.target, "target", "", "its target")
	only := flag.String("only", "", "function (f given θ), conditional (length-scales given f), parameters, classes (θ and the functions of three classes) or gate; the first three if empty")
	names := flag.String("likelihoods", "logit,poisson,volatility", "likelihoods of the comparisons but that of θ, a list; that is under the first")
	list := flag.String("schemes", "", "schemes for θ, a list; all if empty")
	flag.Parse()
	if *list != "" {
		c.schemes = strings.Split(*list, ",")
	}
	if err := c.run(*only, strings.Split(*names, ",")); err != nil {
		log.Fatal(err)
	}
}

// data returns the data of a set.
func (c config) data(l likelihood.Likelihood, set int) (*data, error) {
	if c.table != "" {
		return fromTable(l, c.table, c.target, c.n, c.seed+uint64(set))
	}
	return newData(l, c.n, c.d, c.seed+uint64(set)), nil
}

func (c config) run(only string, list []string) error {
	for _, name := range list {
		if likelihoods[name] == nil {
			return fmt.Errorf("there is no likelihood %q here: use logit, probit, poisson or volatility", name)
		}
	}
	if c.table != "" && only != "parameters" {
		return errors.New("a table has no function and length-scales that are known: give -only parameters")
	}
	switch only {
	case "classes":
		return c.classes()
	case "gate":
		c.gates()
		return nil
	}
	if only == "" || only == "function" {
		for _, name := range list {
			c.functions(name)
		}
	}
	if only == "" || only == "conditional" {
		c.conditional("θ given f", list[0], false)
		for _, name := range list {
			c.conditional("θ given ν, "+name, name, true)
		}
	}
	if only == "" || only == "parameters" {
		return c.parameters(list[0])
	}
	return nil
}

// tally is what chains of a way to draw came to.
type tally struct {
	ess     []float64 // of each chain: the least over its quantities
	seconds float64   // of the processor, while drawing
	rhat    []float64 // of each data set: the largest
	share   float64   // of proposals of θ accepted
}

// add adds the chains of a data set: draws of each quantity of each chain.
func (t *tally) add(chains [][][]float64) {
	worst := 0.0
	for q := range chains[0] {
		var of [][]float64
		for _, c := range chains {
			of = append(of, c[q])
		}
		worst = max(worst, diagnostics.RHat(of))
	}
	t.rhat = append(t.rhat, worst)
	for _, c := range chains {
		least := math.Inf(1)
		for _, x := range c {
			if e := diagnostics.ESSMean([][]float64{x}); !math.IsNaN(e) {
				least = min(least, e)
			} else {
				least = 0 // it did not move
			}
		}
		t.ess = append(t.ess, least)
	}
}

// row prints a row of a table. ESS is of 1,000 draws.
func (t *tally) row(name string, c config, best float64, more string) {
	per := 1000 / float64(c.draws)
	mean, sd := stat.MeanStdDev(t.ess, nil)
	fmt.Printf("| %s | %.1f (%.1f) | %.2f | %s%.3f |\n", name, mean*per, sd*per, mean/t.seconds*float64(len(t.ess))/best, more, slices.Max(t.rhat))
}

// rate returns effective draws a second of processor time.
func (t *tally) rate() float64 {
	mean := stat.Mean(t.ess, nil)
	return mean * float64(len(t.ess)) / t.seconds
}

// chain has a chain iterate, and returns the draws of each quantity.
func (c config) chain(t *tally, tuners []*tuner, iterate func(), quantities func() []float64) [][]float64 {
	for _, u := range tuners {
		u.adapt, u.seen = true, 0
	}
	for range c.warmup {
		iterate()
	}
	for _, u := range tuners {
		u.adapt = false
	}
	var out [][]float64
	began := cputime.Seconds()
	for range c.draws {
		iterate()
		for i, x := range quantities() {
			if i == len(out) {
				out = append(out, make([]float64, 0, c.draws))
			}
			out[i] = append(out[i], x)
		}
	}
	t.seconds += cputime.Seconds() - began
	return out
}

// functions compares the operators on f given θ, at the θ that data were made with, from draws of the prior.
func (c config) functions(name string) {
	fmt.Printf("\nf given θ, %s, n = %d, d = %d: %d data sets, %d chains of %d + %d\n\n", name, c.n, c.d, c.sets, c.chains, c.warmup, c.draws)
	fmt.Println("| f given θ | least ESS of 1,000 draws (sd) | per second, best = 1 | R-hat at worst |\n|---|---:|---:|---:|")
	tallies := map[string]*tally{}
	var names []string
	for set := range c.sets {
		d := newData(likelihoods[name], c.n, c.d, c.seed+uint64(set))
		p := d.at(d.theta)
		var of map[string]operator
		names, of = operators(d)
		for k, name := range names {
			op, t := of[name], tallies[name]
			if t == nil {
				t = &tally{}
				tallies[name] = t
			}
			var tuners []*tuner
			if u := op.tune(); u != nil {
				tuners = append(tuners, u)
			}
			var draws [][][]float64
			for chain := range c.chains {
				r := rand.New(rand.NewPCG(c.seed+uint64(set), uint64(100*k+chain)))
				f := mul(p.lower, normal(r, c.n))
				draws = append(draws, c.chain(t, tuners, func() { op.move(p, f, r) }, func() []float64 { return f }))
			}
			t.add(draws)
		}
	}
	c.show(tallies, names, func(string) string { return "" })
}

// show prints the rows of a table, with more between its columns.
func (c config) show(tallies map[string]*tally, names []string, more func(name string) string) {
	best := 0.0
	for _, t := range tallies {
		best = max(best, t.rate())
	}
	for _, name := range names {
		tallies[name].row(name, c, best, more(name))
	}
}

// conditional compares the steppers of the log length-scales, with σ and the function that made the data, or the whitened one, held.
func (c config) conditional(what, name string, whitened bool) {
	fmt.Printf("\n%s, n = %d, d = %d: %d data sets, %d chains of %d + %d\n\n", what, c.n, c.d, c.sets, c.chains, c.warmup, c.draws)
	fmt.Println("| length-scales | least ESS of 1,000 draws (sd) | per second, best = 1 | R-hat at worst |\n|---|---:|---:|---:|")
	tallies := map[string]*tally{}
	names, _ := steppers()
	for set := range c.sets {
		d := newData(likelihoods[name], c.n, c.d, c.seed+uint64(set))
		for k, name := range names {
			t := tallies[name]
			if t == nil {
				t = &tally{}
				tallies[name] = t
			}
			g := &given{d: d, f: d.f, curvature: name == "SMMALA"}
			if whitened {
				g.nu = solveLower(d.at(d.theta).lower, d.f)
			}
			var draws [][][]float64
			for i := range c.chains {
				_, of := steppers()
				op, r := of[name], rand.New(rand.NewPCG(c.seed+uint64(set), uint64(20_000+100*k+i)))
				theta := slices.Clone(d.theta)
				for j := range c.d {
					theta[1+j] = -3 + 2*r.Float64()
				}
				at := g.at(theta)
				draws = append(draws, c.chain(t, []*tuner{op.tune()}, func() { at = op.move(g, at, r) }, func() []float64 { return at.theta[1:] }))
			}
			t.add(draws)
		}
	}
	c.show(tallies, names, func(string) string { return "" })
}

// parameters compares the schemes for θ, from dispersed points about the θ that data were made with.
func (c config) parameters(name string) error {
	on := fmt.Sprintf("n = %d, d = %d", c.n, c.d)
	if c.table != "" {
		on = c.table
	}
	fmt.Printf("\nθ, %s, %s: %d data sets, %d chains of %d + %d\n\n", name, on, c.sets, c.chains, c.warmup, c.draws)
	fmt.Println("| scheme | least ESS of θ of 1,000 draws (sd) | per second, best = 1 | acceptance | mean log σ | R-hat at worst |\n|---|---:|---:|---:|---:|---:|")
	tallies, means := map[string]*tally{}, map[string][]float64{}
	var names []string
	for set := range c.sets {
		d, err := c.data(likelihoods[name], set)
		if err != nil {
			return err
		}
		var of map[string]scheme
		if names, of, err = schemes(d, c.times); err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return c.schemes != nil && !slices.Contains(c.schemes, name) })
		for k, name := range names {
			t := tallies[name]
			if t == nil {
				t = &tally{}
				tallies[name] = t
			}
			var draws [][][]float64
			for i := range c.chains {
				r := rand.New(rand.NewPCG(c.seed+uint64(set), uint64(10_000+100*k+i)))
				theta := slices.Clone(d.theta)
				for j := range theta {
					theta[j] += 0.3 * r.NormFloat64()
				}
				ch := &chain{d: d, p: d.at(theta)}
				ch.f = mul(ch.p.lower, normal(r, len(d.problem.Y)))
				draws = append(draws, c.chain(t, of[name].tuners(), func() { of[name].iterate(ch, r) }, func() []float64 { return ch.p.theta }))
				t.share += float64(ch.kept) / float64(ch.decided) / float64(c.chains*c.sets)
				means[name] = append(means[name], stat.Mean(draws[i][0], nil))
			}
			t.add(draws)
		}
	}
	c.show(tallies, names, func(name string) string {
		return fmt.Sprintf("%.2f | %.2f | ", tallies[name].share, stat.Mean(means[name], nil))
	})
	return nil
}
