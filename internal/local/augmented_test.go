package local

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// everyLikelihood is the environment variable that has all cases compared, not only those that are not marked as long.
const everyLikelihood = "ULISSE_LIKELIHOODS"

// oracleFile holds what longOracle found. To make it anew:
//
//	ULISSE_ORACLE=NAME go test ./internal/local -run TestAugmentedAgainstOracle -timeout 1h
//
// for the likelihood of each name.
const oracleFile = "testdata/augmented.json"

// found is a posterior: of log parameters and of the latent function at the rows, each with its
// standard error.
type found struct {
	Mean, SD, MeanError, SDError   []float64
	Latent, LatentSD, LatentErrors []float64
}

// augmentedCase is a likelihood with the way to make targets of it and, written down once more, its density.
type augmentedCase struct {
	name, model string
	own         int // parameters, all of prior gamma(1,1)
	target      func(r *rand.Rand, f float64) float64
	density     func(own []float64, y, f float64) float64
	trials      func(row int) float64 // nil where there are none; target and density are then of one of them
	long        bool                  // compared only where everyLikelihood is set: its steps are much like another's
}

// trialsOf returns the number of a row's trials in the cases that have any.
func trialsOf(row int) float64 { return float64(1 + row%7) }

var augmentedCases = []augmentedCase{
	{"student-t", "{likelihood: student-t, df: 3}", 1,
		func(r *rand.Rand, f float64) float64 {
			w := (sq(r.NormFloat64()) + sq(r.NormFloat64()) + sq(r.NormFloat64())) / 3
			return f + 0.3*r.NormFloat64()/math.Sqrt(w)
		},
		func(own []float64, y, f float64) float64 {
			return -0.5*math.Log(own[0]) - 2*math.Log(1+sq(y-f)/(3*own[0]))
		}, nil, false},
	// A prior gamma(1,1) that is cut off at 2 is one of the excess.
	{"student-t, df", `{likelihood: student-t, priors: {df: "gamma(1,1)"}}`, 2,
		func(r *rand.Rand, f float64) float64 {
			w := (sq(r.NormFloat64()) + sq(r.NormFloat64()) + sq(r.NormFloat64())) / 3
			return f + 0.3*r.NormFloat64()/math.Sqrt(w)
		},
		func(own []float64, y, f float64) float64 {
			df := 2 + own[1]
			a, _ := math.Lgamma((df + 1) / 2)
			b, _ := math.Lgamma(df / 2)
			return a - b - 0.5*math.Log(df*own[0]) - (df+1)/2*math.Log(1+sq(y-f)/(df*own[0]))
		}, nil, true},
	{"bernoulli", "{likelihood: bernoulli}", 0,
		func(r *rand.Rand, f float64) float64 {
			if r.Float64() < 1/(1+math.Exp(-3*f)) {
				return 1
			}
			return 0
		},
		func(_ []float64, y, f float64) float64 { return -math.Log(1 + math.Exp(f-2*y*f)) }, nil, false},
	{"probit", "{likelihood: bernoulli, link: probit}", 0,
		func(r *rand.Rand, f float64) float64 {
			if 2*f+r.NormFloat64() > 0 {
				return 1
			}
			return 0
		},
		func(_ []float64, y, f float64) float64 { return math.Log(math.Erfc((1 - 2*y) * f / math.Sqrt2)) }, nil, true},
	{"laplace", "{likelihood: laplace}", 1,
		func(r *rand.Rand, f float64) float64 { return f + 0.4*(r.ExpFloat64()-r.ExpFloat64()) },
		func(own []float64, y, f float64) float64 {
			return -0.5*math.Log(own[0]) - math.Abs(y-f)/math.Sqrt(own[0])
		}, nil, true},
	{"quantile", "{likelihood: quantile, level: 0.8}", 1,
		func(r *rand.Rand, f float64) float64 { return f - 1 + 0.8*r.ExpFloat64() },
		func(own []float64, y, f float64) float64 {
			return -0.5*math.Log(own[0]) - max(0.8*(y-f), -0.2*(y-f))/math.Sqrt(own[0])
		}, nil, false},
	{"negative-binomial", `{likelihood: negative-binomial, priors: {size: "gamma(1,1)"}}`, 1,
		func(r *rand.Rand, f float64) float64 {
			rate := (r.ExpFloat64() + r.ExpFloat64() + r.ExpFloat64()) / 3 * math.Exp(0.5+f)
			count := 0.0
			for at := r.ExpFloat64(); at < rate; at += r.ExpFloat64() {
				count++
			}
			return count
		},
		func(own []float64, y, f float64) float64 {
			size, mean := own[0], math.Exp(f)
			a, _ := math.Lgamma(y + size)
			b, _ := math.Lgamma(size)
			return a - b + size*math.Log(size/(size+mean)) + y*math.Log(mean/(size+mean))
		}, nil, false},
	{"ordinal", `{likelihood: ordinal, mean: none, priors: {gap: "gamma(1,1)"}}`, 1,
		func(r *rand.Rand, f float64) float64 {
			switch u := f + r.NormFloat64(); {
			case u <= 0:
				return 0
			case u <= 0.9:
				return 1
			}
			return 2
		},
		func(own []float64, y, f float64) float64 {
			below := func(b float64) float64 { return math.Erfc((f-b)/math.Sqrt2) / 2 }
			return math.Log([]float64{below(0), below(own[0]) - below(0), 1 - below(own[0])}[int(y)])
		}, nil, false},
	{"binomial", "{likelihood: binomial}", 0,
		func(r *rand.Rand, f float64) float64 {
			if r.Float64() < 1/(1+math.Exp(-f)) {
				return 1
			}
			return 0
		},
		func(_ []float64, y, f float64) float64 { return -math.Log(1 + math.Exp(f-2*y*f)) }, trialsOf, true},
	{"poisson", "{likelihood: poisson}", 0,
		func(r *rand.Rand, f float64) float64 {
			count := 0.0
			for at := r.ExpFloat64(); at < math.Exp(0.5+f); at += r.ExpFloat64() {
				count++
			}
			return count
		},
		func(_ []float64, y, f float64) float64 { return y*f - math.Exp(f) }, nil, false},
	{"stochastic-volatility", "{likelihood: stochastic-volatility}", 0,
		func(r *rand.Rand, f float64) float64 { return r.NormFloat64() * math.Exp(f) },
		func(_ []float64, y, f float64) float64 { return -f - 0.5*sq(y*math.Exp(-f)) }, nil, true},
}

func sq(x float64) float64 { return x * x }

// table returns the rows of a case, standardised as the program will.
func (c *augmentedCase) table(t *testing.T) (path string) {
	const n = 40
	r := rand.New(rand.NewPCG(8, 15))
	var b strings.Builder
	b.WriteString("x,y,m\n")
	for i := range n {
		x := 6*(float64(i)+0.5)/n - 3
		m, y := 1.0, 0.0
		if c.trials != nil {
			m = c.trials(i)
		}
		for range int(m) {
			y += c.target(r, 1.3*math.Sin(1.5*x))
		}
		fmt.Fprintf(&b, "%g,%g,%g\n", x, y, m)
	}
	path = filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Under each likelihood the sampler has the posterior of a long run of other samplers, with stored
// factors and without auxiliary variables: each mean within 0.1 sd and each sd within 10 %, and the latent
// function's moments at the rows, which predictions give, within 0.15 sd, each plus 4 Monte Carlo errors of
// both. It fails by chance less than once in 1,000 seeds.
func TestAugmentedAgainstOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of all cores")
	}
	oracles := readOracles(t, oracleFile)
	for _, c := range augmentedCases {
		if only := os.Getenv("ULISSE_ORACLE"); only != "" && only != c.name || only == "" && c.long && os.Getenv(everyLikelihood) == "" {
			continue
		}
		trials := ""
		if c.trials != nil {
			trials = ", trials: m"
		}
		s := spec(t, fmt.Sprintf(`
name: test
data: {path: %s, target: y, inputs: [x]%s}
model: %s
sampler: {chains: 4, draws: 200, warmup: 150}
stop: {max_draws: 200}
`, c.table(t), trials, c.model))
		cfg := config(t, s, 2, t.TempDir())
		p := cfg.Driver.Problem
		if os.Getenv("ULISSE_ORACLE") == c.name {
			x := make([]float64, len(p.Y))
			for i := range x {
				x[i] = p.Inputs.Row(i)[0]
			}
			oracles[c.name] = c.longOracle(x, p.Y)
			text, err := json.Marshal(oracles)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(oracleFile, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := oracles[c.name]
		if want == nil {
			t.Fatalf("%s has no %s", oracleFile, c.name)
		}
		r := run(t, cfg)
		for i, name := range r.Plan.Names {
			x := r.Column(i, r.MinDraws())
			m, sd := moments(x)
			t.Logf("%s: log %s is %.3f ± %.3f (ESS %.0f), oracle %.3f ± %.3f (errors %.3f, %.3f)", c.name, name, m, sd, diagnostics.ESSBulk(x), want.Mean[i], want.SD[i], want.MeanError[i], want.SDError[i])
			if e := 4 * math.Hypot(diagnostics.MCSEMean(x), want.MeanError[i]); math.Abs(m-want.Mean[i]) > 0.1*want.SD[i]+e {
				t.Errorf("%s: mean of log %s %v, oracle %v", c.name, name, m, want.Mean[i])
			}
			if e := 4 * math.Hypot(diagnostics.MCSESD(x), want.SDError[i]); math.Abs(sd-want.SD[i]) > 0.1*want.SD[i]+e {
				t.Errorf("%s: sd of log %s %v, oracle %v", c.name, name, sd, want.SD[i])
			}
		}
		c.checkLatent(t, cfg, r, want)
	}
}

// checkLatent compares predictions of the latent function at the rows.
func (c *augmentedCase) checkLatent(t *testing.T, cfg Config, r *chains.Run, want *found) {
	t.Helper()
	var points [][][]float64
	for _, ch := range r.Chains {
		points = append(points, ch.Draws)
	}
	const draws = 100
	thinned := predict.Thin(points, draws)
	p, err := predict.New(predict.FromSpec(cfg.Driver.Spec, cfg.Driver.Problem, thinned, parallel.NewBudget(2)))
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := p.Predict(t.Context(), cfg.Driver.Problem.Inputs, predict.Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i := range want.Latent {
		mean, sd := m.Mixture(i, true).Moments()
		// Draws are thinned to nearly independent ones: the error of a mean is sd/√draws, were each
		// given nothing but its own value; twice as much for what is left of dependence.
		e := 2 * sd / math.Sqrt(float64(len(thinned)))
		worst = max(worst, math.Abs(mean-want.Latent[i])/sd)
		if math.Abs(mean-want.Latent[i]) > 0.15*want.LatentSD[i]+4*math.Hypot(e, want.LatentErrors[i]) || math.Abs(sd/want.LatentSD[i]-1) > 0.2 {
			t.Errorf("%s: f at row %d is %v ± %v, oracle %v ± %v", c.name, i+1, mean, sd, want.Latent[i], want.LatentSD[i])
		}
	}
	t.Logf("%s: means of f are off by %.3f sd at most", c.name, worst)
}

// Of the long run.
const (
	oracleIterations = 100_000
	oracleBatches    = 60
)

// longOracle samples ψ and f by elliptical slices (Murray, Adams and MacKay 2010), and by random walks of ψ
// with f held fixed and with the whitened f held fixed.
func (c *augmentedCase) longOracle(x, y []float64) *found {
	n, p := len(x), 2+c.own
	o := &oracle{c: c, x: x, y: y, r: rand.New(rand.NewPCG(1, 1)), psi: make([]float64, p), f: make([]float64, n)}
	o.psi[p-1] = math.Log(0.3)
	o.l = o.factor(o.psi)
	var draws, latent [][]float64
	for iter := range oracleIterations {
		for range 3 {
			o.ellipse()
		}
		o.walk(0.5, true)
		o.walk(0.2, false)
		o.walk(0.1, true)
		if iter > oracleIterations/20 {
			draws, latent = append(draws, slices.Clone(o.psi)), append(latent, slices.Clone(o.f))
		}
	}
	out := &found{}
	for i := range p {
		m, sd, me, se := batched(draws, i)
		out.Mean, out.SD, out.MeanError, out.SDError = append(out.Mean, m), append(out.SD, sd), append(out.MeanError, me), append(out.SDError, se)
	}
	for i := range n {
		m, sd, me, _ := batched(latent, i)
		out.Latent, out.LatentSD, out.LatentErrors = append(out.Latent, m), append(out.LatentSD, sd), append(out.LatentErrors, me)
	}
	return out
}

// batched returns moments of a column with errors by batch means.
func batched(rows [][]float64, column int) (mean, sd, meanError, sdError float64) {
	x := make([]float64, len(rows))
	for t := range rows {
		x[t] = rows[t][column]
	}
	mean, sd = stat.MeanStdDev(x, nil)
	var means, variances []float64
	for b := range oracleBatches {
		part := x[b*len(x)/oracleBatches : (b+1)*len(x)/oracleBatches]
		m, v := 0.0, 0.0
		for _, s := range part {
			m, v = m+s/float64(len(part)), v+sq(s-mean)/float64(len(part))
		}
		means, variances = append(means, m), append(variances, v)
	}
	return mean, sd, stat.StdDev(means, nil) / math.Sqrt(oracleBatches), stat.StdDev(variances, nil) / math.Sqrt(oracleBatches) / (2 * sd)
}

// oracle is the state of the long run.
type oracle struct {
	c      *augmentedCase
	x, y   []float64
	r      *rand.Rand
	psi, f []float64
	l      *mat.TriDense // K = L·Lᵀ at ψ
}

func (o *oracle) factor(psi []float64) *mat.TriDense {
	n := len(o.x)
	k := mat.NewSymDense(n, nil)
	sigma, tau := math.Exp(psi[0]), math.Exp(psi[1])
	for i := range n {
		for j := range i + 1 {
			k.SetSym(i, j, sigma*math.Exp(-tau*sq(o.x[i]-o.x[j])))
		}
		k.SetSym(i, i, sigma*(1+1e-9))
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return nil
	}
	l := mat.NewTriDense(n, mat.Lower, nil)
	chol.LTo(l)
	return l
}

// likelihood returns log p(y|f).
func (o *oracle) likelihood(psi, f []float64) float64 {
	own := make([]float64, o.c.own)
	for i := range own {
		own[i] = math.Exp(psi[2+i])
	}
	var sum float64
	for i, y := range o.y {
		if o.c.trials == nil {
			sum += o.c.density(own, y, f[i])
			continue
		}
		m := o.c.trials(i)
		sum += y*o.c.density(own, 1, f[i]) + (m-y)*o.c.density(own, 0, f[i])
	}
	return sum
}

// prior returns the log density of gamma(1,1) in the logarithms.
func prior(psi []float64) float64 {
	var sum float64
	for _, p := range psi {
		sum += p - math.Exp(p)
	}
	return sum
}

func (o *oracle) multiply(l *mat.TriDense, v []float64) []float64 {
	out := mat.NewVecDense(len(v), nil)
	out.MulVec(l, mat.NewVecDense(len(v), v))
	return out.RawVector().Data
}

func (o *oracle) ellipse() {
	z := make([]float64, len(o.f))
	for i := range z {
		z[i] = o.r.NormFloat64()
	}
	z = o.multiply(o.l, z)
	level := o.likelihood(o.psi, o.f) - o.r.ExpFloat64()
	angle := 2 * math.Pi * o.r.Float64()
	lo, hi := angle-2*math.Pi, angle
	for {
		f := slices.Clone(o.f)
		floats.Scale(math.Cos(angle), f)
		floats.AddScaled(f, math.Sin(angle), z)
		if o.likelihood(o.psi, f) > level {
			o.f = f
			return
		}
		if angle < 0 {
			lo = angle
		} else {
			hi = angle
		}
		angle = lo + (hi-lo)*o.r.Float64()
	}
}

// walk is a step of a random walk of ψ with f, or the whitened f, held fixed.
func (o *oracle) walk(step float64, whitened bool) {
	next := slices.Clone(o.psi)
	for i := range next {
		next[i] += step * o.r.NormFloat64()
	}
	l := o.factor(next)
	if l == nil {
		return
	}
	white := func(l *mat.TriDense) []float64 {
		v := mat.NewVecDense(len(o.f), nil)
		_ = v.SolveVec(l, mat.NewVecDense(len(o.f), o.f))
		return v.RawVector().Data
	}
	v := white(o.l)
	f := o.f
	ratio := prior(next) - prior(o.psi)
	if whitened {
		f = o.multiply(l, v)
	} else {
		density := func(l *mat.TriDense, v []float64) float64 {
			sum := -floats.Dot(v, v) / 2
			for i := range v {
				sum -= math.Log(l.At(i, i))
			}
			return sum
		}
		ratio += density(l, white(l)) - density(o.l, v)
	}
	if math.Log(o.r.Float64()) < ratio+o.likelihood(next, f)-o.likelihood(o.psi, o.f) {
		o.psi, o.f, o.l = next, f, l
	}
}

// readOracles returns the oracles of cases by their names; there are none before they were made.
func readOracles(t *testing.T, file string) map[string]*found {
	t.Helper()
	oracles := map[string]*found{}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &oracles); err != nil {
			t.Fatal(err)
		}
	}
	return oracles
}
