package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Binomial is the likelihood of how many of a row's trials succeed, each with the probability 1/(1+e^−f). It has no
// parameters of its own; it differs between rows by their trials, which are their weights (Rows.Weight), or 1.
//
// As Bernoulli's it is Gaussian given a Pólya–Gamma variable ω ~ PG(m,f), m being the trials: the pseudo-target
// is (y−m/2)/ω with noise 1/ω.
type Binomial struct{ trials []float64 }

var (
	_ ByRow        = Binomial{}
	_ Augmentation = Binomial{}
)

// Name returns binomial.
func (Binomial) Name() string { return "binomial" }

// Params returns nothing.
func (Binomial) Params() param.List { return nil }

// maxTrials bounds trials: the auxiliary variable of a row takes time in proportion to them.
const maxTrials = 100_000

// Check returns an error if a row's trials are no whole number, or its successes are not among them.
func (b Binomial) Check(y []float64) error {
	for i, v := range y {
		switch m := b.of(i); {
		case !(m >= 1 && m <= maxTrials && m == math.Round(m)):
			return fmt.Errorf("row %d has %g trials: model.likelihood: binomial needs whole numbers of them from 1 to %d, in the column that data.trials names", i+1, m, maxTrials)
		case !(v >= 0 && v <= m && v == math.Round(v)):
			return fmt.Errorf("the target of row %d is %g of %g trials: model.likelihood: binomial needs successes, whole numbers from 0 to the number of trials", i+1, v, m)
		}
	}
	return nil
}

// of returns the trials of row i.
func (b Binomial) of(i int) float64 {
	if b.trials == nil {
		return 1
	}
	return b.trials[i]
}

// Of returns the likelihood of rows with these weights as trials.
func (Binomial) Of(rows Rows) ByRow { return Binomial{rows.Weight} }

// Select returns the likelihood of some of the rows.
func (b Binomial) Select(rows []int) Likelihood { return Binomial{selected(b.trials, rows)} }

// Offset returns false: no noise is known.
func (Binomial) Offset() bool { return false }

// Standardized returns false.
func (Binomial) Standardized() bool { return false }

// LogDensity returns log p(y|f) of the first row, and its derivatives in f.
func (b Binomial) LogDensity(_ []float64, y, f float64) (value, score, curvature float64) {
	m, p := b.of(0), logistic(f)
	return logChoose(m, y) + y*f - m*softplus(f), y - m*p, m * p * (1 - p)
}

// logChoose returns the logarithm of the number of ways to choose k of m.
func logChoose(m, k float64) float64 {
	a, _ := math.Lgamma(m + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(m - k + 1)
	return a - b - c
}

// Augmentation returns the likelihood itself.
func (b Binomial) Augmentation() Augmentation { return b }

// Width returns 1.
func (Binomial) Width() int { return 1 }

// Held returns 0: there are no parameters.
func (Binomial) Held() int { return 0 }

// Start sets each ω to its mean at f = 0.
func (b Binomial) Start(state, y []float64) { b.Expect(state, nil, y, make([]float64, len(y))) }

// Expect sets each ω to its mean given f.
func (b Binomial) Expect(state, _, _, f []float64) {
	for i := range state {
		state[i] = polyaGammaMean(b.of(i), f[i])
	}
}

// Refresh draws each ω given f.
func (b Binomial) Refresh(r *rand.Rand, state, _, _, f []float64) {
	for i := range state {
		state[i] = polyaGamma(r, int(b.of(i)), f[i])
	}
}

// Targets returns (y−m/2)/ω.
func (b Binomial) Targets(y, state []float64) []float64 {
	z := make([]float64, len(y))
	for i, w := range state {
		z[i] = (y[i] - b.of(i)/2) / w
	}
	return z
}

// Noise returns 1/ω.
func (Binomial) Noise(theta, state []float64) []float64 { return Bernoulli{}.Noise(theta, state) }

// NoiseGradient returns nothing: there are no parameters.
func (Binomial) NoiseGradient(_, _ []float64) [][]float64 { return nil }

// Draw draws a number of successes of the first row.
func (b Binomial) Draw(r *rand.Rand, _ []float64, mean, variance float64) float64 {
	p := logistic(mean + math.Sqrt(variance)*r.NormFloat64())
	return distuv.Binomial{N: b.of(0), P: p, Src: r}.Rand()
}

// Predict returns the mixture over the draws, and over a quadrature of f at each, of binomial distributions of
// the first row's trials.
func (b Binomial) Predict(_ [][]float64, mean, variance []float64) Predictive {
	const reach = 6.0
	s := &successes{trials: b.of(0)}
	for t, m := range mean {
		sd := math.Sqrt(variance[t])
		step := 0.5 / max(1, sd/2)
		var nodes, weights []float64
		for z := -reach; z <= reach; z += step {
			nodes, weights = append(nodes, m+sd*z), append(weights, math.Exp(-z*z/2))
		}
		total := floats.Sum(weights) * float64(len(mean))
		for q, f := range nodes {
			s.parts = append(s.parts, successPart{weights[q] / total, f})
		}
	}
	s.tabulate()
	return s
}

// successes is the distribution of a number of successes: a mixture of binomial ones.
type successes struct {
	trials float64
	parts  []successPart
	cdf    []float64 // of 0, 1, …, trials
}

type successPart struct{ weight, f float64 } // f is the log odds

// tabulate computes the CDF by the recurrence p(k+1) = p(k)·(m−k)/(k+1)·e^f of each part, which begins where p is
// not too small to be a number.
func (s *successes) tabulate() {
	s.cdf = make([]float64, int(s.trials)+1)
	for _, part := range s.parts {
		odds, p := math.Exp(part.f), 0.0
		for k := range s.cdf {
			at := float64(k)
			switch {
			case p > 1e-290:
				p *= (s.trials - at + 1) / at * odds
			case at <= s.trials*logistic(part.f)+1: // on its way up
				p = math.Exp(logChoose(s.trials, at) + at*part.f - s.trials*softplus(part.f))
			default:
				p = 0
			}
			s.cdf[k] += part.weight * p
		}
	}
	floats.CumSum(s.cdf, s.cdf)
	for k, p := range s.cdf {
		s.cdf[k] = min(p, 1)
	}
	s.cdf[len(s.cdf)-1] = 1
}

// Moments returns m·E p and the root of m·E[p(1−p)] + m²·Var p.
func (s *successes) Moments() (mean, sd float64) {
	var within, square float64
	for _, part := range s.parts {
		p := logistic(part.f)
		mean += part.weight * p
		square += part.weight * p * p
		within += part.weight * p * (1 - p)
	}
	m := s.trials
	return m * mean, math.Sqrt(max(0, m*within+m*m*(square-mean*mean)))
}

// CDF returns the probability of numbers up to y.
func (s *successes) CDF(y float64) float64 {
	switch k := math.Floor(y); {
	case k < 0:
		return 0
	case k < s.trials:
		return s.cdf[int(k)]
	}
	return 1
}

// Quantile returns the least number whose CDF is p or more.
func (s *successes) Quantile(p float64) float64 { return float64(sort.SearchFloat64s(s.cdf, p)) }

// LogDensity returns the log probability of y, −∞ where it is no number of successes.
func (s *successes) LogDensity(y float64) float64 {
	if !(y >= 0 && y <= s.trials && y == math.Round(y)) {
		return math.Inf(-1)
	}
	l := make([]float64, len(s.parts))
	for i, part := range s.parts {
		l[i] = math.Log(part.weight) + y*part.f - s.trials*softplus(part.f)
	}
	return logChoose(s.trials, y) + floats.LogSumExp(l)
}

// CRPS returns the sum over all numbers of (CDF − 1{y ≤ k})².
func (s *successes) CRPS(y float64) float64 {
	var sum float64
	for k, f := range s.cdf {
		if float64(k) >= y {
			f--
		}
		sum += f * f
	}
	return sum + max(0, y-float64(len(s.cdf)))
}

// Scaled returns the distribution itself: counts have no units.
func (s *successes) Scaled(_, _ float64) Predictive { return s }
