package main

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/pseudomarginal"
)

// chain is the state of a chain of f and θ, or of θ alone.
type chain struct {
	d       *data
	p       *point // at θ
	f       []float64
	value   float64 // of the last estimate, of pseudo-marginal schemes
	decided int     // proposals of θ
	kept    int     // accepted ones
}

// scheme moves θ, and f where it has one, by an iteration.
type scheme interface {
	iterate(c *chain, r *rand.Rand)
	tuners() []*tuner
}

// schemes are all there are.
func schemes(d *data) (names []string, of map[string]scheme, err error) {
	of = map[string]scheme{}
	for name, moves := range map[string][]move{"SA": {sufficient}, "AA": {ancillary}, "ASIS": {sufficient, ancillary}, "SURR": {surrogate}} {
		g := &gibbs{f: &hmc{d: d, tuner: tuner{step: 0.3, target: 0.7}}, moves: moves}
		for range moves {
			g.steps = append(g.steps, &tuner{step: 0.3, target: 0.25})
		}
		of[name] = g
	}
	names = []string{"SA", "AA", "ASIS", "SURR"}
	for _, a := range []struct {
		name string
		q    func() (pseudomarginal.Approximation, error)
	}{
		{"PM LA", func() (pseudomarginal.Approximation, error) { return pseudomarginal.Laplace(d.problem, cores) }},
		{"PM EP", func() (pseudomarginal.Approximation, error) { return pseudomarginal.EP(d.problem, cores) }},
	} {
		q, err := a.q()
		if err != nil {
			return nil, nil, err
		}
		for samples, text := range map[int]string{1: "(1)", 16: "(16)", 64: "(64)"} {
			of[a.name+" "+text] = &pseudo{tuner: tuner{step: 0.3, target: 0.25}, estimator: pseudomarginal.New(d.problem, q, samples, cores)}
		}
		names = append(names, a.name+" (1)", a.name+" (16)", a.name+" (64)")
	}
	return names, of, nil
}

// propose returns the point of a random walk from θ, nil where there is none.
func (c *chain) propose(t *tuner, r *rand.Rand) *point {
	theta := make([]float64, len(c.p.theta))
	floats.AddScaledTo(theta, c.p.theta, t.step, normal(r, len(theta)))
	if math.Abs(floats.Norm(theta, math.Inf(1))) > 20 {
		return nil
	}
	return c.d.at(theta)
}

func (c *chain) decide(t *tuner, r *rand.Rand, ratio float64) bool {
	ok := t.decide(r, ratio)
	if c.decided++; ok {
		c.kept++
	}
	return ok
}

// move moves θ given f in some parameterization of f.
type move func(c *chain, t *tuner, r *rand.Rand)

// gibbs moves f given θ, then θ by each of some moves.
type gibbs struct {
	f     operator
	moves []move
	steps []*tuner
}

func (g *gibbs) tuners() []*tuner { return append([]*tuner{g.f.tune()}, g.steps...) }

func (g *gibbs) iterate(c *chain, r *rand.Rand) {
	g.f.move(c.p, c.f, r)
	for i, m := range g.moves {
		m(c, g.steps[i], r)
	}
}

// sufficient moves θ given f (equation 4).
func sufficient(c *chain, t *tuner, r *rand.Rand) {
	ratio := math.Inf(-1)
	p := c.propose(t, r)
	if p != nil {
		ratio = logPrior(p.theta) - logPrior(c.p.theta) + logNormal(p.lower, p.chol.LogDet(), c.f) - logNormal(c.p.lower, c.p.chol.LogDet(), c.f)
	}
	if c.decide(t, r, ratio) {
		c.p = p
	}
}

// ancillary moves θ given ν, f = Lν (equation 5).
func ancillary(c *chain, t *tuner, r *rand.Rand) {
	ratio := math.Inf(-1)
	p := c.propose(t, r)
	var f []float64
	if p != nil {
		f = mul(p.lower, solveLower(c.p.lower, c.f))
		ratio = logPrior(p.theta) - logPrior(c.p.theta) + c.d.logLik(f) - c.d.logLik(c.f)
	}
	if c.decide(t, r, ratio) {
		c.p, c.f = p, f
	}
}

// surrogate moves θ given η, where f = Dη + m is drawn from its posterior under surrogate data g ~ N(f,S) (Murray and Adams 2010). S is the
// inverse of Fisher's information at f = 0.
func surrogate(c *chain, t *tuner, r *rand.Rand) {
	_, _, fisher := c.d.terms(make([]float64, len(c.f)))
	g := normal(r, len(c.f))
	for i := range g {
		g[i] = c.f[i] + g[i]/math.Sqrt(fisher[i])
	}
	here, there := underSurrogate(c.p, g, fisher), (*surrogateData)(nil)
	ratio := math.Inf(-1)
	p := c.propose(t, r)
	if p != nil {
		there = underSurrogate(p, g, fisher)
	}
	var f []float64
	if here != nil && there != nil {
		eta := solveLower(here.lower, floats.SubTo(make([]float64, len(g)), c.f, here.mean))
		f = mul(there.lower, eta)
		floats.Add(f, there.mean)
		ratio = logPrior(p.theta) - logPrior(c.p.theta) + c.d.logLik(f) - c.d.logLik(c.f) + there.logG - here.logG
	}
	if c.decide(t, r, ratio) {
		c.p, c.f = p, f
	}
}

// surrogateData is the posterior of f under surrogate data.
type surrogateData struct {
	mean  []float64
	lower *mat.TriDense // D
	logG  float64       // log N(g|0,K+S)
}

func underSurrogate(p *point, g, fisher []float64) *surrogateData {
	a := mat.NewSymDense(len(g), nil)
	a.CopySym(p.k)
	for i, w := range fisher {
		a.SetSym(i, i, a.At(i, i)+1/w)
	}
	whole, det := lowerOf(a)
	cov := sharpened(p.k, fisher)
	lower, _ := lowerOf(cov)
	if whole == nil || lower == nil {
		return nil
	}
	scaled := floats.MulTo(make([]float64, len(g)), g, fisher) // S⁻¹g
	return &surrogateData{mean: mul(cov, scaled), lower: lower, logG: logNormal(whole, det, g)}
}

// pseudo is pseudo-marginal Metropolis–Hastings on θ alone.
type pseudo struct {
	tuner
	estimator *pseudomarginal.Estimator
}

func (s *pseudo) tuners() []*tuner { return []*tuner{&s.tuner} }

// estimate returns that of log p(y,θ).
func (s *pseudo) estimate(theta []float64, r *rand.Rand) float64 {
	v, _ := s.estimator.LogLikelihood(context.Background(), psi(theta), r) // the only error is that of the context
	return v + logPrior(theta)
}

func (s *pseudo) iterate(c *chain, r *rand.Rand) {
	if c.decided == 0 {
		c.value = s.estimate(c.p.theta, r)
	}
	theta := make([]float64, len(c.p.theta))
	floats.AddScaledTo(theta, c.p.theta, s.step, normal(r, len(theta)))
	value := s.estimate(theta, r)
	if c.decide(&s.tuner, r, value-c.value) {
		c.p, c.value = &point{theta: theta}, value
	}
}
