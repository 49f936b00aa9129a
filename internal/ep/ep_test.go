package ep

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// likelihoods are those that it is for, with targets of n rows.
func likelihoods(n int) map[string]struct {
	l likelihood.Likelihood
	y []float64
} {
	type c = struct {
		l likelihood.Likelihood
		y []float64
	}
	r := rand.New(rand.NewPCG(3, 1))
	some := func(of func(i int) float64) []float64 {
		y := make([]float64, n)
		for i := range y {
			y[i] = of(i)
		}
		return y
	}
	trials := some(func(i int) float64 { return float64(1 + 40*(i%3)) })
	return map[string]c{
		"gaussian": {likelihood.Gaussian{}, some(func(int) float64 { return r.NormFloat64() })},
		"logit":    {likelihood.Bernoulli{}, some(func(i int) float64 { return float64(i/2%2 ^ i%2) })},
		"probit":   {likelihood.Probit{}, some(func(i int) float64 { return float64(i % 2) })},
		"binomial": {likelihood.Binomial{}.Of(likelihood.Rows{Weight: trials}), some(func(i int) float64 { return float64(r.IntN(int(trials[i]) + 1)) })},
		"ordinal":  {likelihood.Ordinal{Classes: []string{"a", "b", "c", "d"}}, some(func(int) float64 { return float64(r.IntN(4)) })},
		"negative": {likelihood.NegativeBinomial{}, some(func(int) float64 { return float64(r.IntN(9)) })},
		"poisson":  {likelihood.Poisson{}, some(func(int) float64 { return float64(r.IntN(9)) })},
	}
}

// problem returns a problem of n rows.
func problem(t *testing.T, l likelihood.Likelihood, y []float64) *posterior.Problem {
	t.Helper()
	r, n := rand.New(rand.NewPCG(5, 1)), len(y)
	x := make([]float64, 2*n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	if err := l.Check(y); err != nil {
		t.Fatal(err)
	}
	prior := func(p param.Param) param.Prior {
		q, err := p.ParsePrior("gamma(2,1)")
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	return posterior.NewProblem(posterior.NewModel(kernel.Single(kernel.RBF, 2, true), l, prior), kernel.NewInputs(n, 2, x), y)
}

func approximation(t *testing.T, p *posterior.Problem) *Approximation {
	t.Helper()
	e, err := New(p, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func point(p *posterior.Problem) []float64 {
	psi := make([]float64, p.NumParams())
	for i := range psi {
		psi[i] = 0.3 * math.Sin(float64(3*i+1))
	}
	return psi
}

// simpson integrates exp(g) by Simpson's rule over many intervals.
func simpson(g func(f float64) float64, lo, hi float64) float64 {
	const intervals = 4000
	h, sum := (hi-lo)/intervals, 0.0
	for i := range intervals + 1 {
		w := 2.0 + 2*float64(i%2)
		if i == 0 || i == intervals {
			w = 1
		}
		sum += w * math.Exp(g(lo+float64(i)*h))
	}
	return sum * h / 3
}

// The integral of a likelihood with a normal density, and its derivatives, are those of Simpson's rule and of differences of it, for cavities
// that are narrow, wide, and far from what the target says.
func TestMoments(t *testing.T) {
	for name, c := range likelihoods(4) {
		if testing.Short() && name != "logit" {
			continue // slow under the race detector
		}
		own := []float64{1.3, 0.7}[:len(c.l.Params())]
		for _, v := range []float64{1e-4, 0.3, 30} {
			for _, mu := range []float64{-4, 0.2, 3} {
				for i, y := range c.y {
					l := likelihood.At(c.l, i)
					exact := func(mu float64) float64 {
						// where the tilted density is: within 13 standard deviations of the cavity's
						sd := math.Sqrt(v)
						top, at := math.Inf(-1), mu
						g := func(f float64) float64 {
							value, _, _ := l.LogDensity(own, y, f)
							return value - (f-mu)*(f-mu)/(2*v)
						}
						for s := -13.0; s <= 13; s += 0.01 {
							if h := g(mu + s*sd); h > top {
								top, at = h, mu+s*sd
							}
						}
						lo, hi := at, at
						for lo > mu-13*sd && g(lo) > top-38 {
							lo -= 0.02 * sd
						}
						for hi < mu+13*sd && g(hi) > top-38 {
							hi += 0.02 * sd
						}
						return top + math.Log(simpson(func(f float64) float64 { return g(f) - top }, lo, hi)/math.Sqrt(2*math.Pi*v))
					}
					z, alpha, beta := moments(l, own, y, mu, v)
					want := exact(mu)
					h := 0.02 * math.Sqrt(v)
					up, down := exact(mu+h), exact(mu-h)
					slope := (up - down) / (2 * h)
					bend := -(up + down - 2*want) / (h * h)
					scale := 1 / math.Sqrt(v) // of a derivative in units of the cavity's standard deviation
					if math.Abs(z-want) > 1e-8*(1+math.Abs(want)) || math.Abs(alpha-slope) > 1e-3*(math.Abs(slope)+1e-3*scale) || math.Abs(beta-bend) > 1e-2*math.Abs(bend)+2e-5/v {
						t.Errorf("%s, y %v, cavity %v, %v: %v, %v, %v; by Simpson's rule %v, %v, %v", name, y, mu, v, z, alpha, beta, want, slope, bend)
					}
				}
			}
		}
	}
}

// sequential is expectation propagation one site after the other, as printed (Rasmussen and Williams, algorithm 3.5), with the posterior from
// inverses: it returns the covariance, the mean and the sites.
func sequential(e *Approximation, k *mat.SymDense, own []float64) (sigma, mean mat.Matrix, tau, nu []float64) {
	n := len(e.rows)
	tau, nu = make([]float64, n), make([]float64, n)
	s, m := mat.NewDense(n, n, nil), mat.NewVecDense(n, nil)
	s.Copy(k)
	for range 200 {
		for i, l := range e.rows {
			precision := 1/s.At(i, i) - tau[i]
			v := 1 / precision
			mu := v * (m.AtVec(i)/s.At(i, i) - nu[i])
			_, alpha, beta := moments(l, own, e.problem.Y[i], mu, v)
			mean, variance := mu+v*alpha, v-v*v*beta
			tau[i], nu[i] = 1/variance-precision, mean/variance-mu/v
			p := mat.NewDense(n, n, nil) // K⁻¹ + diag(τ)
			_ = p.Inverse(k)
			for j := range n {
				p.Set(j, j, p.At(j, j)+tau[j])
			}
			_ = s.Inverse(p)
			m.MulVec(s, mat.NewVecDense(n, nu))
		}
	}
	return s, m, tau, nu
}

// logPartition is the log partition function of N(h,A).
func logPartition(h mat.Vector, a mat.Matrix) float64 {
	var lu mat.LU
	lu.Factorize(a)
	det, sign := lu.LogDet()
	x := mat.NewVecDense(h.Len(), nil)
	_ = lu.SolveVecTo(x, false, h)
	return mat.Dot(h, x)/2 + sign*det/2 + float64(h.Len())/2*math.Log(2*math.Pi)
}

// One site after the other and all in parallel have one fixed point; and the evidence there is that of partition functions, posterior over prior
// and tilted over marginal (Naish-Guzman 2007, equation 1.16).
func TestSequential(t *testing.T) {
	const n = 8
	for name, c := range likelihoods(n) {
		p := problem(t, c.l, c.y)
		psi, e := point(p), approximation(t, p)
		q, err := e.Posterior(t.Context(), psi)
		if err != nil || !q.Converged {
			t.Fatalf("%s: %v after %d steps", name, err, q.Steps)
		}
		_, own := p.Natural(psi)
		k := mat.NewSymDense(n, nil)
		p.Matrix(k, psi, e.budget)
		sigma, mean, tau, nu := sequential(e, k, own)
		one := func(m, v float64) float64 {
			return logPartition(mat.NewVecDense(1, []float64{m}), mat.NewDense(1, 1, []float64{v}))
		}
		want := logPartition(mean.(mat.Vector), sigma) - logPartition(mat.NewVecDense(n, nil), k)
		for i, l := range e.rows {
			m, v := mean.At(i, 0), sigma.At(i, i)
			if math.Abs(q.Mean[i]-m) > 1e-6 || math.Abs(q.Variance[i]-v) > 1e-6 || math.Abs(q.Tau[i]-tau[i]) > 1e-6*(1+tau[i]) || math.Abs(q.nu[i]-nu[i]) > 1e-6*(1+math.Abs(nu[i])) {
				t.Errorf("%s, row %d: mean %v, variance %v, site %v, %v; one after the other %v, %v, %v, %v", name, i+1, q.Mean[i], q.Variance[i], q.Tau[i], q.nu[i], m, v, tau[i], nu[i])
			}
			cavity := 1 / (1/v - tau[i])
			mu := cavity * (m/v - nu[i])
			z, _, _ := moments(l, own, p.Y[i], mu, cavity)
			want += z - one(m, v) + one(mu, cavity)
		}
		if math.Abs(q.Evidence-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("%s: the evidence is %v, by partition functions %v", name, q.Evidence, want)
		}
	}
}

// The gradient is that of the evidence, by differences, also with an offset.
func TestGradient(t *testing.T) {
	for name, c := range likelihoods(20) {
		p := problem(t, c.l, c.y)
		p.Offset = make([]float64, len(p.Y))
		for i := range p.Offset {
			p.Offset[i] = 0.5 * math.Cos(float64(i))
		}
		e, psi := approximation(t, p), point(p)
		_, got, err := e.At(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		want := fd.Gradient(nil, func(x []float64) float64 {
			q, err := e.Posterior(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return q.Evidence
		}, psi, &fd.Settings{Formula: fd.Central, Step: 1e-4})
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-5*(1+math.Abs(want[i])) {
				t.Errorf("%s: derivative %d is %v, by differences %v", name, i, got[i], want[i])
			}
		}
	}
}

// Of one row the evidence is exact, and so are mean and variance; of Gaussian noise it is exact of any number of rows; of two rows it is
// near the quadrature over both.
func TestExact(t *testing.T) {
	for name, c := range likelihoods(2) {
		p := problem(t, c.l, c.y)
		psi := point(p)
		_, own := p.Natural(psi)
		one := p.Subset([]int{0})
		q, err := approximation(t, one).Posterior(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		v := one.Function(psi).Variance(one.Inputs.Row(0))
		row := likelihood.At(one.Likelihood, 0)
		density := func(f float64) float64 {
			value, _, _ := row.LogDensity(own, one.Y[0], f)
			return value - f*f/(2*v) - math.Log(2*math.Pi*v)/2
		}
		z := simpson(density, -12, 12)
		mean := simpson(func(f float64) float64 { return density(f) + math.Log(f+13) }, -12, 12)/z - 13
		if math.Abs(q.Evidence-math.Log(z)) > 1e-8 || math.Abs(q.Mean[0]-mean) > 1e-6 {
			t.Errorf("%s: evidence and mean of one row are %v, %v; by quadrature %v, %v", name, q.Evidence, q.Mean[0], math.Log(z), mean)
		}

		if q, err = approximation(t, p).Posterior(t.Context(), psi); err != nil {
			t.Fatal(err)
		}
		k := mat.NewSymDense(2, nil)
		p.Matrix(k, psi, parallel.NewBudget(1))
		// f_1, then f_2 given f_1
		slope, rest := k.At(0, 1)/k.At(0, 0), k.At(1, 1)-k.At(0, 1)*k.At(0, 1)/k.At(0, 0)
		second := likelihood.At(p.Likelihood, 1)
		both, bound := 0.0, 1e-2
		const h = 0.05
		for f := -9.0; f < 9; f += h {
			inner, _, _ := moments(second, own, p.Y[1], slope*f, rest)
			value, _, _ := row.LogDensity(own, p.Y[0], f)
			both += h * math.Exp(value-f*f/(2*v)+inner) / math.Sqrt(2*math.Pi*v)
		}
		if name == "gaussian" {
			bound = 1e-8
		}
		if math.Abs(q.Evidence-math.Log(both)) > bound {
			t.Errorf("%s: the evidence of two rows is %v, by quadrature %v", name, q.Evidence, math.Log(both))
		}
	}
}

// What is not log-concave has no approximation here.
func TestNone(t *testing.T) {
	l := likelihood.StudentT{DF: 4}
	if _, err := New(problem(t, l, []float64{1, 2}), parallel.NewBudget(1)); err == nil {
		t.Error("Student's t is approximated")
	}
}
