package param

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Prior is the prior of a parameter θ > 0 that is sampled as ψ = log θ, or of what people
// think of in its place: the length-scale of a rate, the standard deviation of a variance.
type Prior struct {
	dist string
	a, b float64
	role Role
	// root says that the distribution is that of q = e^shift·√θ, or, of a rate, e^shift/√θ.
	root  bool
	shift float64
}

// priorForms lists the distributions with the names of their arguments.
var priorForms = []struct{ dist, args string }{
	{"gamma", "shape,rate"},
	{"invgamma", "shape,scale"},
	{"lognormal", "mu,sd"},
	{"halfnormal", "sd"},
	{"pc", "u,alpha"},
	{lkj, "eta"},
}

const lkj = "lkj"

// ParsePrior reads a prior such as "gamma(1,1)" for a parameter of the given
// role:
//
//	gamma(shape,rate)    on θ
//	invgamma(shape,scale) on θ
//	lognormal(mu,sd)     normal on log θ
//	halfnormal(sd)       on θ
//	pc(u,alpha)          penalised complexity: on a variance, exponential on
//	                     √θ with P(√θ > u) = alpha (Simpson et al. 2017); on a
//	                     τ, through ℓ = 1/√(2τ), P(ℓ < u) = alpha (Fuglstad et
//	                     al. 2019, with d = 1)
//	lkj(eta)             of a correlation matrix, with the density |C|^(eta−1): all partial
//	                     correlations have it, and no other one (Lewandowski et al. 2009)
func ParsePrior(text string, role Role) (Prior, error) {
	bad := func(format string, args ...any) (Prior, error) {
		return Prior{}, fmt.Errorf("prior %q: %s", text, fmt.Sprintf(format, args...))
	}
	name, rest, ok := strings.Cut(strings.ReplaceAll(text, " ", ""), "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return bad("want a form such as gamma(1,1)")
	}
	for _, form := range priorForms {
		if form.dist != name {
			continue
		}
		want := strings.Split(form.args, ",")
		args := strings.Split(strings.TrimSuffix(rest, ")"), ",")
		if len(args) != len(want) {
			return bad("want %s(%s)", form.dist, form.args)
		}
		if (name == lkj) != (role == Partial) {
			return bad("lkj(eta) is the prior of a correlation matrix, and that has no other")
		}
		if name == "pc" && role != Variance && role != Rate && role != Noise {
			return bad("pc is for variances and length-scales")
		}
		if name == "pc" && role == Size {
			return bad("pc is for variances and length-scales, not for sizes")
		}
		p := Prior{dist: name, role: role}
		for i, dst := range []*float64{&p.a, &p.b}[:len(args)] {
			x, err := strconv.ParseFloat(args[i], 64)
			if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
				return bad("%s is %q, not a finite number", want[i], args[i])
			}
			if x <= 0 && want[i] != "mu" {
				return bad("%s is %s, but must be positive", want[i], args[i])
			}
			if want[i] == "alpha" && x >= 1 {
				return bad("alpha is %s, but must be a probability below 1", args[i])
			}
			*dst = x
		}
		return p.Given(0), nil
	}
	var names, dists []string
	for _, form := range priorForms {
		if (form.dist == lkj) == (role == Partial) {
			names, dists = append(names, fmt.Sprintf("%s(%s)", form.dist, form.args)), append(dists, form.dist)
		}
	}
	if near, ok := nearest.Word(name, dists); ok {
		return bad("unknown distribution: did you mean %s?", names[slices.Index(dists, near)])
	}
	return bad("unknown distribution: use one of %s", strings.Join(names, ", "))
}

// ParseRootPrior reads the prior of what a parameter of a role is told as: of a variance the
// standard deviation unit·√θ, of a rate the length-scale unit/√(2τ). pc(u,alpha) is on it too:
// P(sd > u) = alpha, P(ℓ < u) = alpha. It panics if the role is another.
func ParseRootPrior(text string, role Role, unit float64) (Prior, error) {
	p, err := ParsePrior(text, role)
	p.root, p.shift = true, math.Log(unit)
	switch role {
	case Rate:
		p.shift -= math.Ln2 / 2
	case Variance, Noise:
	default:
		panic(fmt.Sprintf("param: role %d has no root", int(role)))
	}
	return p, err
}

// Given returns the prior lkj of a partial correlation with so many variables that it is neither of nor given: the
// partial correlations of canonical order are independent, and (1+r)/2 is Beta(α,α), α = eta + spare/2 (Lewandowski
// et al. 2009, section 2.4). Other priors are as they are.
func (p Prior) Given(spare int) Prior {
	if p.dist == lkj {
		p.b = p.a + float64(spare)/2
	}
	return p
}

// Typical returns a typical value of θ. It panics for a prior on the root.
func (p Prior) Typical() float64 {
	switch {
	case p.root:
	case p.dist == lkj:
		return 1 // a correlation of 0
	case p.dist == "gamma":
		return p.a / p.b
	case p.dist == "invgamma":
		return p.b / (p.a + 1)
	case p.dist == "lognormal":
		return math.Exp(p.a)
	case p.dist == "halfnormal":
		return p.a * 0.6745 // the median
	}
	panic("param: a prior without a typical value")
}

// String returns the prior as ParsePrior reads it.
func (p Prior) String() string {
	a := strconv.FormatFloat(p.a, 'g', -1, 64)
	if p.dist == "halfnormal" || p.dist == lkj {
		return fmt.Sprintf("%s(%s)", p.dist, a)
	}
	return fmt.Sprintf("%s(%s,%s)", p.dist, a, strconv.FormatFloat(p.b, 'g', -1, 64))
}

// LogDensity returns the log density of ψ = log θ, Jacobian included, and its
// derivative.
func (p Prior) LogDensity(psi float64) (value, grad float64) {
	if !p.root {
		return p.logDensity(psi)
	}
	power := 0.5
	if p.role == Rate {
		power = -0.5
	}
	logQ := p.shift + power*psi
	if p.dist == "pc" {
		value, grad = p.pcOfRoot(logQ)
	} else {
		value, grad = p.logDensity(logQ)
	}
	return value - math.Ln2, power * grad
}

// pcOfRoot is the prior pc as a density of log ℓ, or of the logarithm of a standard deviation.
func (p Prior) pcOfRoot(logQ float64) (value, grad float64) {
	if p.role == Rate {
		r := -math.Log(p.b) * math.Sqrt(p.a)
		e := r * math.Exp(-0.5*logQ)
		return math.Log(r/2) - 0.5*logQ - e, -0.5 + 0.5*e
	}
	r := -math.Log(p.b) / p.a
	e := r * math.Exp(logQ)
	return math.Log(r) + logQ - e, 1 - e
}

// logDensity is LogDensity of a prior on θ itself.
func (p Prior) logDensity(psi float64) (value, grad float64) {
	theta := math.Exp(psi)
	switch p.dist {
	case lkj: // θ = x/(1−x), x ~ Beta(b,b)
		lg, _ := math.Lgamma(p.b)
		lg2, _ := math.Lgamma(2 * p.b)
		size := math.Abs(psi)
		return lg2 - 2*lg - p.b*(size+2*math.Log1p(math.Exp(-size))), -p.b * math.Tanh(psi/2)
	case "gamma":
		lg, _ := math.Lgamma(p.a)
		return p.a*math.Log(p.b) - lg + p.a*psi - p.b*theta, p.a - p.b*theta
	case "invgamma":
		lg, _ := math.Lgamma(p.a)
		return p.a*math.Log(p.b) - lg - p.a*psi - p.b/theta, -p.a + p.b/theta
	case "lognormal":
		z := (psi - p.a) / p.b
		return -0.5*z*z - math.Log(p.b*math.Sqrt(2*math.Pi)), -z / p.b
	case "halfnormal":
		z := theta / p.a
		return math.Log(2/(p.a*math.Sqrt(2*math.Pi))) - 0.5*z*z + psi, 1 - z*z
	case "pc":
		if p.role == Rate {
			logEll := -0.5 * (math.Ln2 + psi)
			r := -math.Log(p.b) * math.Sqrt(p.a)
			e := r * math.Exp(-0.5*logEll)
			return math.Log(r/4) - 0.5*logEll - e, 0.25 - 0.25*e
		}
		r := -math.Log(p.b) / p.a
		s := r * math.Exp(0.5*psi)
		return math.Log(r/2) + 0.5*psi - s, 0.5 - 0.5*s
	}
	panic("param: the zero Prior has no density")
}
