package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// classesOf is how many classes are compared on.
const classesOf = 3

// classes compares two ways to draw θ and the functions of classes without an order, with one random walk of θ an iteration each:
//
// slices: as sampler.method elliptical has it, five slices of ν and θ with ν held;
//
// poisson: with an exponential variable of each row, u ~ Exp(Σ_c e^(f_c)), the softmax function is a product of Poisson likelihoods, of the counts
// 1{c=y} with rates u·e^(f_c), whose components of mixtures of normals make the functions normal and independent: θ moves given these with the functions
// integrated out, then the functions given both. The iteration is kept or not as that of likelihood.Poisson is.
func (c config) classes() error {
	fmt.Printf("\nθ and functions of %d classes, n = %d, d = %d: %d data sets, %d chains of %d + %d\n\n", classesOf, c.n, c.d, c.sets, c.chains, c.warmup, c.draws)
	fmt.Println("| way | set | ESS of 1,000 draws of log σ | log ℓ | f_1 at a row | mean of f_1 | f_1 − f_2 at a row | mean log σ, log ℓ | kept | R-hat at worst |\n|---|---:|---:|---:|---:|---:|---:|---|---:|---:|")
	for set := range c.sets {
		d := newClasses(c.n, c.d, c.seed+uint64(set))
		for k, name := range []string{"slices", "poisson"} {
			var draws [][][]float64
			kept := 0.0
			for i := range c.chains {
				r := rand.New(rand.NewPCG(c.seed+uint64(set), uint64(20_000+100*k+i)))
				way, err := d.way(name, r)
				if err != nil {
					return err
				}
				draws = append(draws, c.chain(&tally{}, []*tuner{way.walk()}, way.iterate, way.quantities))
				kept += way.kept() / float64(c.chains)
			}
			ess, worst := make([]float64, len(draws[0])), 0.0
			var means []float64
			for q := range draws[0] {
				var of [][]float64
				for _, chain := range draws {
					of = append(of, chain[q])
				}
				ess[q] = diagnostics.ESSMean(of) * 1000 / float64(c.draws*c.chains)
				worst = max(worst, diagnostics.RHat(of))
				means = append(means, floats.Sum(slices.Concat(of...))/float64(c.draws*c.chains))
			}
			fmt.Printf("| %s | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f, %.2f | %.2f | %.3f |\n", name, set+1, ess[0], ess[1], ess[c.d+1], ess[c.d+2], ess[c.d+3], means[0], means[1], kept, worst)
		}
	}
	return nil
}

// newClasses draws points as newData does, functions of variance e and a class for each.
func newClasses(n, d int, seed uint64) *data {
	made := newData(likelihood.Poisson{}, n, d, seed)
	r := rand.New(rand.NewPCG(seed, 77))
	theta := slices.Clone(made.theta)
	theta[0] = 1
	names := []string{"a", "b", "c"}[:classesOf]
	x := make([]float64, 0, n*d)
	for i := range n {
		x = append(x, made.problem.Inputs.Row(i)...)
	}
	p := made.at(theta)
	f := make([][]float64, classesOf)
	for c := range f {
		f[c] = mul(p.lower, normal(r, n))
	}
	y, at := make([]float64, n), make([]float64, classesOf)
	for i := range y {
		for c := range f {
			at[c] = f[c][i]
		}
		y[i] = likelihood.Categorical{Classes: names}.DrawAll(r, nil, at)
	}
	out := onInputs(likelihood.Categorical{Classes: names}, x, d, y)
	out.theta = theta
	for i, q := range out.problem.Params { // White wants one, which density takes away
		prior, err := q.ParsePrior("gamma(1,1)")
		if err != nil {
			panic(err)
		}
		out.problem.Params[i].Prior = prior
	}
	return out
}

// way is a chain of θ and the functions.
type way interface {
	iterate()
	walk() *tuner
	quantities() []float64
	kept() float64 // share of iterations
}

func (d *data) way(name string, r *rand.Rand) (way, error) {
	theta := slices.Clone(d.theta)
	for j := range theta {
		theta[j] += 0.3 * r.NormFloat64()
	}
	n := len(d.problem.Y)
	if name == "slices" {
		w, err := laplace.NewWhite(context.Background(), d.problem, psi(theta))
		return &slicing{d: d, r: r, white: w, theta: theta, nu: make([]float64, classesOf*n), tuner: tuner{step: 0.3, target: 0.25}}, err
	}
	p := &poissons{d: d, r: r, p: d.at(theta), tuner: tuner{step: 0.3, target: 0.25}}
	for c := range classesOf {
		p.f = append(p.f, make([]float64, n))
		p.y = append(p.y, make([]float64, n))
		for i, y := range d.problem.Y {
			if int(y) == c {
				p.y[c][i] = 1
			}
		}
	}
	return p, nil
}

// told returns what is compared.
func told(theta []float64, f ...[]float64) []float64 {
	return append(slices.Clone(theta), f[0][0], floats.Sum(f[0])/float64(len(f[0])), f[0][0]-f[1][0])
}

type slicing struct {
	d     *data
	r     *rand.Rand
	white *laplace.White
	theta []float64
	nu    []float64
	tuner
}

func (s *slicing) walk() *tuner  { return &s.tuner }
func (s *slicing) kept() float64 { return 1 }

func (s *slicing) density(theta []float64) float64 {
	v, _ := s.white.Density(context.Background(), psi(theta), s.nu)
	own, _ := s.d.problem.LogPrior(psi(theta))
	return v - own + logPrior(theta)
}

func (s *slicing) iterate() {
	for range 5 {
		_ = s.white.Slice(context.Background(), psi(s.theta), s.nu, s.r)
	}
	to := stepped(s.theta, s.step, s.r)
	if s.decide(s.r, s.density(to)-s.density(s.theta)) {
		s.theta = to
	}
}

func (s *slicing) quantities() []float64 {
	f, _ := s.white.Function(context.Background(), psi(s.theta), s.nu)
	n := len(s.d.problem.Y)
	return told(s.theta, f[:n], f[n:2*n])
}

func stepped(theta []float64, step float64, r *rand.Rand) []float64 {
	to := slices.Clone(theta)
	for j := range to {
		to[j] += step * r.NormFloat64()
	}
	return to
}

// poissons is the augmentation by Poisson likelihoods.
type poissons struct {
	d          *data
	r          *rand.Rand
	p          *point
	f, y       [][]float64
	seen, took int
	tuner
}

func (p *poissons) walk() *tuner  { return &p.tuner }
func (p *poissons) kept() float64 { return float64(p.took) / float64(p.seen) }

func (p *poissons) quantities() []float64 { return told(p.p.theta, p.f...) }

// free are the first iterations, which are all kept.
const free = 200

func (p *poissons) iterate() {
	n := len(p.d.problem.Y)
	log, sum := make([]float64, n), make([]float64, classesOf) // of u
	for i := range log {
		for c := range sum {
			sum[c] = p.f[c][i]
		}
		log[i] = math.Log(p.r.ExpFloat64()) - floats.LogSumExp(sum)
	}
	l := likelihood.Poisson{}.Augmentation().(likelihood.Approximate)
	excess := func(f [][]float64) (sum float64) {
		for c := range f {
			sum += l.Excess(nil, p.y[c], floats.AddTo(make([]float64, n), f[c], log))
		}
		return sum
	}
	var z, noise [][]float64
	for c := range p.f {
		state := make([]float64, n*l.Width())
		l.Refresh(p.r, state, nil, p.y[c], floats.AddTo(make([]float64, n), p.f[c], log))
		z = append(z, floats.SubTo(make([]float64, n), l.Targets(p.y[c], state), log))
		noise = append(noise, slices.Clone(l.Noise(nil, state)))
	}
	from, before := p.p, excess(p.f)
	if to := p.d.at(stepped(p.p.theta, p.step, p.r)); to != nil {
		if p.decide(p.r, evidence(to, z, noise)+logPrior(to.theta)-evidence(p.p, z, noise)-logPrior(p.p.theta)) {
			p.p = to
		}
	}
	f := make([][]float64, classesOf)
	for c := range f {
		f[c] = matheron(p.p, z[c], noise[c], p.r)
	}
	p.seen++
	if p.seen > free && p.r.Float64() >= math.Exp(excess(f)-before) {
		p.p = from
		return
	}
	p.took++
	p.f = f
}

// noisy returns K+S.
func noisy(p *point, noise []float64) *mat.SymDense {
	a := mat.NewSymDense(len(noise), nil)
	a.CopySym(p.k)
	for i, v := range noise {
		a.SetSym(i, i, a.At(i, i)+v)
	}
	return a
}

// evidence returns Σ_c log N(z_c|0, K+S_c), up to a constant.
func evidence(p *point, z, noise [][]float64) (sum float64) {
	for c := range z {
		lower, logDet := lowerOf(noisy(p, noise[c]))
		sum += logNormal(lower, logDet, z[c])
	}
	return sum
}

// matheron draws a function given its pseudo-targets: f₀ + K(K+S)⁻¹(z − f₀ − e) of a draw f₀ of the prior and one e of the noise.
func matheron(p *point, z, noise []float64, r *rand.Rand) []float64 {
	n := len(z)
	f := mul(p.lower, normal(r, n))
	left := slices.Clone(z)
	floats.Sub(left, f)
	for i, v := range noise {
		left[i] -= math.Sqrt(v) * r.NormFloat64()
	}
	var chol mat.Cholesky
	chol.Factorize(noisy(p, noise))
	x := mat.NewVecDense(n, nil)
	_ = chol.SolveVecTo(x, mat.NewVecDense(n, left))
	floats.Add(f, mul(p.k, x.RawVector().Data))
	return f
}
