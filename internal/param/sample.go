package param

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// Sample draws ψ from the prior.
func (p Prior) Sample(r *rand.Rand) float64 {
	if p.dist == lkj {
		return logGamma(p.b, r) - logGamma(p.b, r)
	}
	switch {
	case p.root && p.role == Mismatch:
		return math.Log(math.Log1p(math.Exp(-p.logOdds(r))))
	case p.root:
	case p.on.kind == within:
		return p.logOdds(r)
	case p.on.kind == above:
		for {
			if x := p.sample(r, false); x > p.on.a {
				return p.on.Sampled(x)
			}
		}
	case p.on.kind == anywhere:
		return p.on.Sampled(p.a + p.b*r.NormFloat64())
	default:
		return math.Log(p.sample(r, p.dist == "pc"))
	}
	return p.logOfRoot(math.Log(p.rootSample(r)))
}

// logGamma draws the logarithm of a variable that is Gamma(a,1), which may be too small for a number itself: it is one of
// a+1 times the a-th root of a uniform one (Marsaglia and Tsang 2000, section 6).
func logGamma(a float64, r *rand.Rand) float64 {
	return math.Log(distuv.Gamma{Alpha: a + 1, Beta: 1, Src: r}.Rand()) - r.ExpFloat64()/a
}

// logOdds draws the logarithm of v/(1−v), v of a beta distribution.
func (p Prior) logOdds(r *rand.Rand) float64 {
	a, b := p.shares()
	return math.Log(distuv.Gamma{Alpha: a, Beta: 1, Src: r}.Rand()) - math.Log(distuv.Gamma{Alpha: b, Beta: 1, Src: r}.Rand())
}

// sample draws from the distribution, or, if pc is set, θ from that of its root.
func (p Prior) sample(r *rand.Rand, pc bool) float64 {
	switch {
	case pc && p.role == Rate:
		l := p.rootSample(r)
		return 1 / (2 * l * l)
	case pc:
		sd := p.rootSample(r)
		return sd * sd
	case p.dist == "gamma":
		return distuv.Gamma{Alpha: p.a, Beta: p.b, Src: r}.Rand()
	case p.dist == "invgamma":
		return distuv.InverseGamma{Alpha: p.a, Beta: p.b, Src: r}.Rand()
	case p.dist == "lognormal":
		return math.Exp(p.a + p.b*r.NormFloat64())
	case p.dist == "halfnormal":
		return math.Abs(p.a * r.NormFloat64())
	}
	panic("param: the zero Prior has no draws")
}

// rootSample draws the root that the distribution is on: of pc exponential, as a standard deviation,
// or, of a length-scale, as its inverse square root.
func (p Prior) rootSample(r *rand.Rand) float64 {
	switch {
	case p.dist != "pc":
		return p.sample(r, false)
	case p.role == Rate:
		x := r.ExpFloat64() / (-math.Log(p.b) * math.Sqrt(p.a))
		return 1 / (x * x)
	default:
		return r.ExpFloat64() / (-math.Log(p.b) / p.a)
	}
}
