package main

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/laplace"
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

// schemes are all there are. Those that move f do so times times before θ moves.
func schemes(d *data, times int) (names []string, of map[string]scheme, err error) {
	of = map[string]scheme{}
	for name, moves := range map[string][]move{"SA": {sufficient}, "AA": {ancillary}, "ASIS": {sufficient, ancillary}, "SURR": {surrogate}} {
		g := &gibbs{f: &hmc{d: d, tuner: tuner{step: 0.3, target: 0.7}}, times: times, moves: moves}
		for range moves {
			g.steps = append(g.steps, &tuner{step: 0.3, target: 0.25})
		}
		of[name] = g
	}
	l, err := laplace.New(d.problem, cores)
	if err != nil {
		return nil, nil, err
	}
	of["KHR"] = &jointly{f: &hmc{d: d, tuner: tuner{step: 0.3, target: 0.7}}, times: times, tuner: tuner{step: 0.3, target: 0.25}, laplace: l}
	names = []string{"SA", "AA", "ASIS", "KHR", "SURR"}
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
	times int
	moves []move
	steps []*tuner
}

func (g *gibbs) tuners() []*tuner { return append([]*tuner{g.f.tune()}, g.steps...) }

func (g *gibbs) iterate(c *chain, r *rand.Rand) {
	for range g.times {
		g.f.move(c.p, c.f, r)
	}
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

// jointly moves f given θ, then proposes a θ with an f of Laplace's approximation there, both together (Knorr-Held and Rue 2002).
type jointly struct {
	f     operator
	times int
	tuner
	laplace *laplace.Approximation

	of *point // whose approximation is here
	q  *normalAt
}

func (j *jointly) tuners() []*tuner { return []*tuner{j.f.tune(), &j.tuner} }

// normalAt is N(Ka, (K⁻¹+W)⁻¹), Laplace's approximation at a point.
type normalAt struct {
	p          *point
	a, w, mean []float64
	b          mat.Cholesky // of I + W^½KW^½
}

// approximate returns the approximation at a point, nil where there is none.
func (j *jointly) approximate(p *point) *normalAt {
	m, err := j.laplace.Mode(context.Background(), psi(p.theta))
	if err != nil {
		return nil
	}
	n := len(m.W)
	q, b := &normalAt{p: p, a: m.A, w: m.W, mean: mul(p.k, m.A)}, mat.NewSymDense(n, nil)
	for i := range n {
		for k := i; k < n; k++ {
			b.SetSym(i, k, math.Sqrt(m.W[i]*m.W[k])*p.k.At(i, k))
		}
		b.SetSym(i, i, 1+b.At(i, i))
	}
	if !q.b.Factorize(b) {
		return nil
	}
	return q
}

// draw returns a draw f = m + f₀ − KW^½B⁻¹(W^½f₀+ε), f₀ ~ N(0,K).
func (q *normalAt) draw(r *rand.Rand) []float64 {
	n := len(q.w)
	f, x := mul(q.p.lower, normal(r, n)), normal(r, n)
	for i, w := range q.w {
		x[i] += math.Sqrt(w) * f[i]
	}
	v := mat.NewVecDense(n, x)
	_ = q.b.SolveVecTo(v, v)
	for i, w := range q.w {
		x[i] *= math.Sqrt(w)
	}
	floats.Sub(f, mul(q.p.k, x))
	floats.Add(f, q.mean)
	return f
}

// logWeight returns log p(y,f|θ)p(θ)/q(f).
func (q *normalAt) logWeight(d *data, f []float64) float64 {
	sum := d.logLik(f) + logPrior(q.p.theta) - q.b.LogDet()/2
	for i, m := range q.mean {
		by := f[i] - m
		sum += q.w[i]*by*by/2 - q.a[i]*(f[i]-m/2)
	}
	return sum
}

func (j *jointly) iterate(c *chain, r *rand.Rand) {
	for range j.times {
		j.f.move(c.p, c.f, r)
	}
	if j.of != c.p {
		j.of, j.q = c.p, j.approximate(c.p)
	}
	var there *normalAt
	if p := c.propose(&j.tuner, r); p != nil {
		there = j.approximate(p)
	}
	ratio, f := math.Inf(-1), []float64(nil)
	if there != nil && j.q != nil {
		f = there.draw(r)
		ratio = there.logWeight(c.d, f) - j.q.logWeight(c.d, c.f)
	}
	if c.decide(&j.tuner, r, ratio) {
		c.p, c.f, j.of, j.q = there.p, f, there.p, there
	}
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
