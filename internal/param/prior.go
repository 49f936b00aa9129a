package param

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Prior is the prior of a parameter θ as a density of ψ, or of what people think of in its place: the
// length-scale of a rate, the standard deviation of a variance, the correlation of a mismatch.
type Prior struct {
	dist string
	a, b float64
	role Role
	// on is the scale of ψ; confined says that it is the prior's, an interval outside of which it has no mass.
	on       Transform
	confined bool
	// root says that the distribution is that of q = e^shift·√θ, of a rate of e^shift/√θ, of a mismatch of e^(−θ).
	root  bool
	shift float64
	flat  bool // its density is left out
}

// Flat returns the prior without its density: typical values, samples and the scale stay, LogDensity is 0.
func (p Prior) Flat() Prior {
	p.flat = true
	return p
}

type priorForm struct {
	dist, args string
	of         []kind
}

// priorForms lists the distributions with the names of their arguments, and what they are for: positive
// parameters, any number, or those in an interval.
var priorForms = []priorForm{
	{"gamma", "shape,rate", []kind{positive}},
	{"invgamma", "shape,scale", []kind{positive}},
	{"lognormal", "mu,sd", []kind{positive}},
	{"halfnormal", "sd", []kind{positive}},
	{"pc", "u,alpha", []kind{positive}},
	{"normal", "mean,sd", []kind{anywhere}},
	{"uniform", "lo,hi", []kind{positive, anywhere, within}},
	{"beta", "a,b", []kind{within}},
	{lkj, "eta", []kind{positive}},
}

const lkj = "lkj"

// cutForms are the distributions of parameters above a number, cut off there; leastMass is what has to be left of them.
var cutForms = []string{"gamma", "invgamma", "lognormal", "halfnormal"}

const leastMass = 1e-3

// ParsePrior is Param.ParsePrior for a positive parameter of the given role.
func ParsePrior(text string, role Role) (Prior, error) { return Param{Role: role}.ParsePrior(text) }

// CheckPrior returns an error if a text is no prior of any parameter.
func CheckPrior(text string) error {
	_, err := parsePrior(text)
	return err
}

// ParsePrior reads a prior of the parameter, such as "gamma(1,1)". If it is positive:
//
//	gamma(shape,rate)    on θ
//	invgamma(shape,scale) on θ
//	lognormal(mu,sd)     normal on log θ
//	halfnormal(sd)       on θ
//	uniform(lo,hi)       on θ, of a period, a shape, a width: sampled as one in an interval
//	pc(u,alpha)          penalised complexity: on a variance, exponential on
//	                     √θ with P(√θ > u) = alpha (Simpson et al. 2017); on a
//	                     τ, through ℓ = 1/√(2τ), P(ℓ < u) = alpha (Fuglstad et
//	                     al. 2019, with d = 1)
//	lkj(eta)             of a correlation matrix, with the density |C|^(eta−1): all partial
//	                     correlations have it, and no other one (Lewandowski et al. 2009)
//
// If it is above a number: gamma, invgamma, lognormal or halfnormal on θ, cut off there, or uniform(lo,hi).
//
// If it may be any number: normal(mean,sd) or uniform(lo,hi). If it is in an interval: beta(a,b) on its share of the
// interval, or uniform(lo,hi).
func (p Param) ParsePrior(text string) (Prior, error) {
	q, err := parsePrior(text)
	if err != nil {
		return Prior{}, err
	}
	q.role, q.on = p.Role, p.Transform
	if msg := q.misfit(); msg != "" {
		return Prior{}, fmt.Errorf("prior %q: %s", text, msg)
	}
	if q.dist == "uniform" {
		q.on, q.confined = Interval(q.a, q.b), true
	}
	return q, nil
}

// misfit returns why the prior is none of a parameter of its role and scale, or nothing.
func (p Prior) misfit() string {
	at := slices.IndexFunc(priorForms, func(f priorForm) bool { return f.dist == p.dist })
	switch {
	case p.on.kind == above && p.dist == "uniform" && p.a < p.on.a:
		return fmt.Sprintf("the parameter is above %g", p.on.a)
	case p.on.kind == above && slices.Contains(cutForms, p.dist):
		if p.beyond(p.on.a) < leastMass {
			return fmt.Sprintf("the parameter is above %g, where this has next to no mass", p.on.a)
		}
	case p.on.kind == above && p.dist != "uniform":
		return fmt.Sprintf("the parameter is above %g: use one of %s, cut off there, or uniform", p.on.a, strings.Join(cutForms, ", "))
	case p.on.kind == above:
	case !slices.Contains(priorForms[at].of, p.on.kind):
		what := map[kind]string{positive: "is positive", anywhere: "may be any number", within: fmt.Sprintf("is between %g and %g", p.on.a, p.on.b)}[p.on.kind]
		var names []string
		for _, f := range priorForms {
			if slices.Contains(f.of, p.on.kind) && f.dist != lkj {
				names = append(names, fmt.Sprintf("%s(%s)", f.dist, f.args))
			}
		}
		return fmt.Sprintf("the parameter %s: use one of %s", what, strings.Join(names, ", "))
	case (p.dist == lkj) != (p.role == Partial):
		return "lkj(eta) is the prior of a correlation matrix, and that has no other"
	case p.dist == "pc" && p.role != Variance && p.role != Rate && p.role != Noise:
		return "pc is for variances and length-scales"
	case p.dist == "uniform" && p.on.kind == positive && slices.Contains([]Role{Variance, Rate, Noise, Mismatch, Size}, p.role):
		return "uniform is for places, widths, periods and shapes: samplers need the logarithm of variances and length-scales"
	case p.dist == "uniform" && p.on.kind == positive && p.a < 0:
		return fmt.Sprintf("lo is %g, but the parameter is positive", p.a)
	case p.dist == "uniform" && p.on.kind == within && (p.a < p.on.a || p.b > p.on.b):
		return fmt.Sprintf("the parameter is between %g and %g", p.on.a, p.on.b)
	}
	return ""
}

// parsePrior reads a distribution.
func parsePrior(text string) (Prior, error) {
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
		p := Prior{dist: name}
		for i, dst := range []*float64{&p.a, &p.b}[:len(args)] {
			x, err := strconv.ParseFloat(args[i], 64)
			if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
				return bad("%s is %q, not a finite number", want[i], args[i])
			}
			if x <= 0 && !slices.Contains([]string{"mu", "mean", "lo", "hi"}, want[i]) {
				return bad("%s is %s, but must be positive", want[i], args[i])
			}
			if want[i] == "alpha" && x >= 1 {
				return bad("alpha is %s, but must be a probability below 1", args[i])
			}
			*dst = x
		}
		if name == "uniform" && p.a >= p.b {
			return bad("lo is %g, but must be below hi", p.a)
		}
		return p.Given(0), nil
	}
	var names, dists []string
	for _, form := range priorForms {
		if form.dist != lkj {
			names, dists = append(names, fmt.Sprintf("%s(%s)", form.dist, form.args)), append(dists, form.dist)
		}
	}
	if near, ok := nearest.Word(name, dists); ok {
		return bad("unknown distribution: did you mean %s?", names[slices.Index(dists, near)])
	}
	return bad("unknown distribution: use one of %s", strings.Join(names, ", "))
}

// ParseRootPrior reads the prior of what a parameter of a role is told as: of a variance the
// standard deviation unit·√θ, of a rate the length-scale unit/√(2τ), of a mismatch the correlation e^(−τ), whose
// prior is beta(a,b). pc(u,alpha) is on it too:
// P(sd > u) = alpha, P(ℓ < u) = alpha. It panics if the role is another.
func ParseRootPrior(text string, role Role, unit float64) (Prior, error) {
	q := Param{Role: role}
	if role == Mismatch {
		q.Transform = Interval(0, 1)
	}
	p, err := q.ParsePrior(text)
	if err == nil && p.confined { // of a mismatch
		err = fmt.Errorf("prior %q: the prior of a correlation is beta(a,b); beta(1,1) is uniform", text)
	}
	p.root, p.shift, p.on = true, math.Log(unit), Log
	switch role {
	case Rate:
		p.shift -= math.Ln2 / 2
	case Variance, Noise, Mismatch:
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

// Typical returns a typical value of θ: near the middle of the prior.
func (p Prior) Typical() float64 {
	if p.on.kind == above {
		whole := p
		whole.on = Log
		return max(whole.Typical(), p.on.a+1)
	}
	switch {
	case p.root && p.role == Mismatch:
		return math.Log1p(p.b / p.a)
	case p.root:
		return math.Exp(p.logOfRoot(math.Log(p.typicalRoot())))
	case p.dist == "pc" && p.role == Rate:
		l := p.typicalRoot()
		return 1 / (2 * l * l)
	case p.dist == "pc":
		sd := p.typicalRoot()
		return sd * sd
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
	case p.dist == "normal":
		return p.a
	case p.on.kind == within:
		a, b := p.shares()
		return p.on.a + (p.on.b-p.on.a)*a/(a+b)
	}
	panic("param: a prior without a typical value")
}

// typicalRoot returns a typical value of the root that the distribution is on; of pc the median.
func (p Prior) typicalRoot() float64 {
	switch {
	case p.dist != "pc":
		p.root = false
		return p.Typical()
	case p.role == Rate:
		x := math.Ln2 / (-math.Log(p.b) * math.Sqrt(p.a))
		return 1 / (x * x)
	default:
		return math.Ln2 / (-math.Log(p.b) / p.a)
	}
}

// logOfRoot returns log θ of the logarithm of its root.
func (p Prior) logOfRoot(logQ float64) float64 {
	if p.role == Rate {
		return -2 * (logQ - p.shift)
	}
	return 2 * (logQ - p.shift)
}

// Quantile returns the θ below which a share of the prior's mass is. It panics for priors of parameters that are
// positive but for uniform ones.
func (p Prior) Quantile(share float64) float64 {
	switch p.on.kind {
	case within:
		a, b := p.shares()
		return p.on.a + (p.on.b-p.on.a)*distuv.Beta{Alpha: a, Beta: b}.Quantile(share)
	case anywhere:
		return distuv.Normal{Mu: p.a, Sigma: p.b}.Quantile(share)
	}
	panic("param: a prior without quantiles")
}

// beyond returns the mass of the distribution above x, of one of cutForms.
func (p Prior) beyond(x float64) float64 {
	switch p.dist {
	case "gamma":
		return distuv.Gamma{Alpha: p.a, Beta: p.b}.Survival(x)
	case "invgamma":
		return distuv.InverseGamma{Alpha: p.a, Beta: p.b}.Survival(x)
	case "lognormal":
		return distuv.LogNormal{Mu: p.a, Sigma: p.b}.Survival(x)
	}
	return 2 * distuv.Normal{Sigma: p.a}.Survival(x)
}

// shares returns the arguments of the beta distribution of the share of the interval.
func (p Prior) shares() (a, b float64) {
	if p.dist == "uniform" {
		return 1, 1
	}
	return p.a, p.b
}

// String returns the prior as ParsePrior reads it.
func (p Prior) String() string {
	a := strconv.FormatFloat(p.a, 'g', -1, 64)
	if p.dist == "halfnormal" || p.dist == lkj {
		return fmt.Sprintf("%s(%s)", p.dist, a)
	}
	return fmt.Sprintf("%s(%s,%s)", p.dist, a, strconv.FormatFloat(p.b, 'g', -1, 64))
}

// LogDensity returns the log density of ψ, Jacobian included, and its
// derivative.
func (p Prior) LogDensity(psi float64) (value, grad float64) {
	switch {
	case p.flat:
		return 0, 0
	case p.root && p.role == Mismatch:
		return p.logDensityOfCorrelation(psi)
	case p.root:
	case p.on.kind == within:
		// The share v has dv/dψ = v·(1−v).
		a, b := p.shares()
		return -a*softplus(-psi) - b*softplus(psi) - logBeta(a, b), a*share(-psi) - b*share(psi)
	case p.on.kind == above: // s is dlog θ/dψ
		theta := p.on.Natural(psi)
		s := math.Exp(psi) / theta
		v, g := p.logDensity(math.Log(theta))
		return v + psi - math.Log(theta) - math.Log(p.beyond(p.on.a)), g*s + 1 - s
	case p.on.kind == anywhere:
		z := (p.on.Natural(psi) - p.a) / p.b
		return -0.5*z*z - math.Log(p.b/p.on.b*math.Sqrt(2*math.Pi)), -z * p.on.b / p.b
	default:
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

// logDensityOfCorrelation is LogDensity of a beta distribution of e^(−τ), τ = e^ψ.
func (p Prior) logDensityOfCorrelation(psi float64) (value, grad float64) {
	tau := math.Exp(psi)
	value = psi - p.a*tau - logBeta(p.a, p.b)
	grad = 1 - p.a*tau
	if p.b != 1 {
		value += (p.b - 1) * math.Log(-math.Expm1(-tau))
		grad += (p.b - 1) * tau / math.Expm1(tau)
	}
	return value, grad
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func logBeta(a, b float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	return la + lb - lab
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

// logDensity is LogDensity of a prior on θ = e^ψ itself.
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
