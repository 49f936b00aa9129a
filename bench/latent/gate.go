package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// What the functions of the twinned likelihood are drawn given: standard deviations and length-scales, the opening m and the noise.
const (
	signalSD, signalLength = 0.3, 2
	gateSD, gateLength     = 4, 2
	gateOpening            = 1
	ordinarySD, outlierSD  = 0.05, 1
	outlierShare           = 0.15865525393145707 // Φ(−gateOpening)
)

// gated are rows of sin(x)/x with outliers in two places: half of the rows left of −8, and all next to 0.
type gated struct {
	problem *posterior.Problem
	psi     []float64
	x, y    []float64
}

func newGated(n int, seed uint64) *gated {
	r := rand.New(rand.NewPCG(seed, 3))
	g := &gated{}
	for i := range n {
		x := -12 + 24*(float64(i)+r.Float64())/float64(n)
		y := math.Sin(x)/x + ordinarySD*r.NormFloat64()
		switch {
		case x < -8 && r.Float64() < 0.5:
			y += outlierSD * r.NormFloat64()
		case math.Abs(x) < 0.6:
			y = -0.5 + 0.1*r.NormFloat64()
		}
		g.x, g.y = append(g.x, x), append(g.y, y)
	}
	own := kernel.Single(kernel.RBF, 1, false)
	c, err := own.Plus(kernel.Term{Variance: param.Param{Term: "gate", Symbol: "variance", Role: param.Variance},
		Leaves: []kernel.Leaf{&kernel.Stationary{Family: kernel.RBF, Inputs: []int{0}, Rates: []param.Param{{Term: "gate", Symbol: "tau", Role: param.Rate}}}}})
	if err != nil {
		panic(err)
	}
	m := posterior.NewModel(c, likelihood.Twinned{}, func(p param.Param) param.Prior {
		text := "gamma(1,1)" // which changes nothing where the parameters are known
		if p.Role == param.Share {
			text = "beta(1,1)"
		}
		prior, err := p.ParsePrior(text)
		if err != nil {
			panic(err)
		}
		return prior
	})
	m.Terms = [][]int{{0}, {1}}
	g.problem = posterior.NewProblem(m, kernel.NewInputs(n, 1, g.x), g.y)
	rate := func(l float64) float64 { return 1 / (2 * l * l) }
	g.psi = g.problem.Params.Sampled([]float64{signalSD * signalSD, rate(signalLength), gateSD * gateSD, rate(gateLength), ordinarySD * ordinarySD, outlierSD / ordinarySD, outlierShare})
	return g
}

// cov returns the lower factor of a covariance of the rows with a diagonal added.
func (g *gated) cov(sd, length float64, diagonal func(i int) float64) *mat.TriDense {
	n := len(g.x)
	a := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			d := (g.x[i] - g.x[j]) / length
			a.SetSym(i, j, sd*sd*math.Exp(-d*d/2))
		}
		a.SetSym(i, i, a.At(i, i)*(1+jitter)+diagonal(i))
	}
	lower, _ := lowerOf(a)
	return lower
}

func none(int) float64 { return 0 }

// matheron draws a function whose prior has the factor l given pseudo-targets z with noise: f₀ + K(K+S)⁻¹(z − f₀ − S^½e).
func (g *gated) matheron(r *rand.Rand, l *mat.TriDense, sd, length float64, z []float64, noise func(i int) float64) []float64 {
	f := mul(l, normal(r, len(z)))
	rest := mat.NewVecDense(len(z), nil)
	for i := range z {
		rest.SetVec(i, z[i]-f[i]-math.Sqrt(noise(i))*r.NormFloat64())
	}
	b := g.cov(sd, length, noise)
	_ = rest.SolveVec(b, rest)
	_ = rest.SolveVec(b.T(), rest)
	half := mat.NewVecDense(len(z), nil)
	half.MulVec(l.T(), rest)
	for i, v := range mul(l, half.RawVector().Data) {
		f[i] += v
	}
	return f
}

// ways are the ways to move (f,g), which begin at 0: elliptical slices of a prior's draw, those of the program, and indicators of the kind of
// each row with probit variables for the gate, given which each function is drawn by one solve with K+S.
func (g *gated) ways() map[string]func(seed uint64) (move func(), state func() []float64) {
	n := len(g.x)
	theta := g.problem.Params.Natural(g.psi)[4:]
	lf, lu := g.cov(signalSD, signalLength, none), g.cov(gateSD, gateLength, none)
	value := func(f []float64) (sum float64) {
		for i, y := range g.y {
			sum += likelihood.Twinned{}.Terms(theta, y, []float64{f[i], f[n+i]}, nil, nil)
		}
		return sum
	}
	return map[string]func(seed uint64) (func(), func() []float64){
		"slices about the prior": func(seed uint64) (func(), func() []float64) {
			r, f := rand.New(rand.NewPCG(seed, 1)), make([]float64, 2*n)
			return func() {
				for range 5 {
					f = ellipticalSlice(r, f, append(mul(lf, normal(r, n)), mul(lu, normal(r, n))...), value)
				}
			}, func() []float64 { return f }
		},
		"slices about the mode": func(seed uint64) (func(), func() []float64) {
			r, nu := rand.New(rand.NewPCG(seed, 2)), make([]float64, 2*n)
			w, err := laplace.NewWhite(context.Background(), g.problem, g.psi)
			if err != nil {
				panic(err)
			}
			return func() {
					for range 5 {
						_ = w.Slice(context.Background(), g.psi, nu, r)
					}
				}, func() []float64 {
					f, _ := w.Function(context.Background(), g.psi, nu)
					return f
				}
		},
		"indicators": func(seed uint64) (func(), func() []float64) {
			r, f := rand.New(rand.NewPCG(seed, 3)), make([]float64, 2*n)
			return func() { f = g.indicators(r, lf, lu, f) }, func() []float64 { return f }
		},
	}
}

func ellipticalSlice(r *rand.Rand, f, to []float64, value func(f []float64) float64) []float64 {
	level, angle := value(f)-r.ExpFloat64(), 2*math.Pi*r.Float64()
	for lo, hi := angle-2*math.Pi, angle; ; angle = lo + (hi-lo)*r.Float64() {
		s, c := math.Sincos(angle)
		at := make([]float64, len(f))
		for i := range at {
			at[i] = c*f[i] + s*to[i]
		}
		if value(at) > level {
			return at
		}
		if angle < 0 {
			lo = angle
		} else {
			hi = angle
		}
	}
}

// indicators is an iteration of Gibbs sampling.
func (g *gated) indicators(r *rand.Rand, lf, lu *mat.TriDense, f []float64) []float64 {
	n := len(g.y)
	noise, z := make([]float64, n), make([]float64, n)
	for i, y := range g.y {
		a := gateOpening + f[n+i]
		in := distuv.UnitNormal.CDF(a) * distuv.Normal{Mu: f[i], Sigma: ordinarySD}.Prob(y)
		out := distuv.UnitNormal.CDF(-a) * distuv.Normal{Mu: f[i], Sigma: outlierSD}.Prob(y)
		p := distuv.UnitNormal.CDF(-a) // below 0
		if r.Float64()*(in+out) < in {
			noise[i] = ordinarySD * ordinarySD
			z[i] = a - distuv.UnitNormal.Quantile((1-p)*r.Float64()) - gateOpening
		} else {
			noise[i] = outlierSD * outlierSD
			z[i] = a + distuv.UnitNormal.Quantile(p*r.Float64()) - gateOpening
		}
	}
	return append(g.matheron(r, lf, signalSD, signalLength, g.y, func(i int) float64 { return noise[i] }),
		g.matheron(r, lu, gateSD, gateLength, z, func(int) float64 { return 1 })...)
}

// gates compares ways to draw the two functions of the twinned likelihood at known parameters.
func (c config) gates() {
	fmt.Printf("\nf and g given θ, twinned, n = %d: %d data sets, %d chains of %d + %d\n\n", c.n, c.sets, c.chains, c.warmup, c.draws)
	fmt.Println("| f and g given θ | least ESS of 1,000 draws (sd) | per second, best = 1 | mean f, mean g at the ends and the middle | R-hat at worst |\n|---|---:|---:|---:|---:|")
	tallies, means := map[string]*tally{}, map[string][]float64{}
	names := []string{"slices about the prior", "slices about the mode", "indicators"}
	for set := range c.sets {
		g := newGated(c.n, c.seed+uint64(set))
		ways := g.ways()
		for _, name := range names {
			t := tallies[name]
			if t == nil {
				t = &tally{}
				tallies[name] = t
			}
			var draws [][][]float64
			for i := range c.chains {
				move, state := ways[name](c.seed + uint64(100*set+i))
				draws = append(draws, c.chain(t, nil, move, state))
			}
			t.add(draws)
			if set == 0 {
				for _, q := range []int{0, c.n / 2, c.n, c.n + c.n/2, 2*c.n - 1} {
					var all []float64
					for _, chain := range draws {
						all = append(all, chain[q]...)
					}
					means[name] = append(means[name], stat.Mean(all, nil))
				}
			}
		}
	}
	best := 0.0
	for _, t := range tallies {
		best = max(best, t.rate())
	}
	for _, name := range names {
		tallies[name].row(name, c, best, fmt.Sprintf("%.2f | ", means[name]))
	}
}
