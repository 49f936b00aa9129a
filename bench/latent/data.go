package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// data are targets under a likelihood. θ = (log σ, log ℓ_1, …), with the length-scales ℓ.
type data struct {
	problem *posterior.Problem
	like    likelihood.Likelihood
	theta   []float64 // that they were made with
	f       []float64
}

// newData draws n points in the unit hypercube of d dimensions, length-scales from e⁻³ to e⁻¹, a latent function of variance e², and targets.
func newData(l likelihood.Likelihood, n, d int, seed uint64) *data {
	r := rand.New(rand.NewPCG(seed, uint64(n*1000+d)))
	x, theta := make([]float64, n*d), []float64{2}
	for i := range x {
		x[i] = r.Float64()
	}
	for range d {
		theta = append(theta, -3+2*r.Float64())
	}
	made := onInputs(l, x, d, make([]float64, n))
	made.theta = theta
	z := mat.NewVecDense(n, nil)
	for i := range n {
		z.SetVec(i, r.NormFloat64())
	}
	f := mat.NewVecDense(n, nil)
	f.MulVec(made.at(theta).lower, z)
	made.f = f.RawVector().Data
	for i, f := range made.f {
		made.problem.Y[i] = l.Draw(r, nil, f, 0)
	}
	return made
}

func onInputs(l likelihood.Likelihood, x []float64, d int, y []float64) *data {
	flat := func(param.Param) param.Prior { return param.Prior{} } // priors are logPrior's
	m := posterior.NewModel(kernel.Single(kernel.RBF, d, true), l, flat)
	return &data{like: l, problem: posterior.NewProblem(m, kernel.NewInputs(len(y), d, x), y)}
}

// fromTable reads classes and standardised inputs from a table: some of its rows, at random, or all if rows is 0. θ, from which chains are
// dispersed, is σ = 1 and length-scales of √d.
func fromTable(l likelihood.Likelihood, path, target string, rows int, seed uint64) (*data, error) {
	t, err := dataset.ReadFile(path, nil, dataset.Select{Target: target, DropConstant: true}, dataset.DefaultLimits)
	if err != nil {
		return nil, err
	}
	of := rand.New(rand.NewPCG(seed, 0)).Perm(len(t.Y))
	if rows > 0 && rows < len(of) {
		of = of[:rows]
	}
	var columns [][]float64
	for _, all := range t.X {
		x := make([]float64, len(of))
		for i, row := range of {
			x[i] = all[row]
		}
		mean, sd := stat.PopMeanStdDev(x, nil)
		if sd == 0 {
			continue
		}
		for i := range x {
			x[i] = (x[i] - mean) / sd
		}
		columns = append(columns, x)
	}
	d := len(columns)
	x, y, theta := make([]float64, len(of)*d), make([]float64, len(of)), []float64{0}
	for i, row := range of {
		y[i] = t.Y[row]
		for k := range columns {
			x[i*d+k] = columns[k][i]
		}
	}
	for range d {
		theta = append(theta, math.Log(float64(d))/2)
	}
	out := onInputs(l, x, d, y)
	out.theta = theta
	return out, nil
}

// psi returns θ as the program has it, with rates τ = 1/(2ℓ²).
func psi(theta []float64) []float64 {
	out := []float64{theta[0]}
	for _, l := range theta[1:] {
		out = append(out, -math.Ln2-2*l)
	}
	return out
}

// logPrior is that of the paper: σ inverse gamma and ℓ gamma, of shape and scale 1, with the Jacobians of their logarithms.
func logPrior(theta []float64) float64 {
	sum := -theta[0] - math.Exp(-theta[0])
	for _, l := range theta[1:] {
		sum += l - math.Exp(l)
	}
	return sum
}

// terms returns log p(y|f), with its derivatives and Fisher's information in each row.
func (d *data) terms(f []float64) (sum float64, score, fisher []float64) {
	score, fisher = make([]float64, len(f)), make([]float64, len(f))
	for i, y := range d.problem.Y {
		var v float64
		v, score[i], fisher[i] = d.like.LogDensity(nil, y, f[i])
		sum += v
		if _, ok := d.like.(likelihood.Volatility); ok {
			fisher[i] = 2
		}
	}
	return sum, score, fisher
}

func (d *data) logLik(f []float64) float64 {
	sum := 0.0
	for i, y := range d.problem.Y {
		v, _, _ := d.like.LogDensity(nil, y, f[i])
		sum += v
	}
	return sum
}

// point is the prior of f at a θ.
type point struct {
	theta []float64
	k     *mat.SymDense
	chol  mat.Cholesky
	lower *mat.TriDense
}

// jitter multiplies K's diagonal, for K to have a factor.
const jitter = 1e-8

// at returns the prior at θ, nil where K is numerically singular.
func (d *data) at(theta []float64) *point {
	n := len(d.problem.Y)
	p := &point{theta: theta, k: mat.NewSymDense(n, nil), lower: new(mat.TriDense)}
	d.problem.Matrix(p.k, psi(theta), cores)
	for i := range n {
		p.k.SetSym(i, i, p.k.At(i, i)*(1+jitter))
	}
	if !p.chol.Factorize(p.k) {
		return nil
	}
	p.chol.LTo(p.lower)
	return p
}

var cores = parallel.NewBudget(1)

// lowerOf returns the lower factor of a symmetric matrix, nil if there is none, and its log determinant.
func lowerOf(a *mat.SymDense) (*mat.TriDense, float64) {
	var chol mat.Cholesky
	if !chol.Factorize(a) {
		return nil, 0
	}
	l := new(mat.TriDense)
	chol.LTo(l)
	return l, chol.LogDet()
}

// mul returns l·v.
func mul(l mat.Matrix, v []float64) []float64 {
	out := mat.NewVecDense(len(v), nil)
	out.MulVec(l, mat.NewVecDense(len(v), v))
	return out.RawVector().Data
}

// solveLower returns l⁻¹v.
func solveLower(l *mat.TriDense, v []float64) []float64 {
	out := slices.Clone(v)
	blas64.Trsv(blas.NoTrans, l.RawTriangular(), blas64.Vector{N: len(out), Data: out, Inc: 1})
	return out
}

// solve returns K⁻¹v.
func (p *point) solve(v []float64) []float64 {
	out := mat.NewVecDense(len(v), nil)
	_ = p.chol.SolveVecTo(out, mat.NewVecDense(len(v), v))
	return out.RawVector().Data
}

func normal(r *rand.Rand, n int) []float64 {
	z := make([]float64, n)
	for i := range z {
		z[i] = r.NormFloat64()
	}
	return z
}

func square(v []float64) float64 { return floats.Dot(v, v) }

// logNormal is log N(v|0,A) of A's lower factor, up to a constant.
func logNormal(lower *mat.TriDense, logDet float64, v []float64) float64 {
	return -logDet/2 - square(solveLower(lower, v))/2
}

// tuner adapts the step of an operator to an acceptance, as long as it is told to.
type tuner struct {
	step, target float64
	adapt        bool
	seen         int
}

// decide accepts a proposal with the log ratio given, or does not, and learns from it.
func (t *tuner) decide(r *rand.Rand, logRatio float64) bool {
	p := math.Exp(min(0, logRatio))
	if math.IsNaN(p) {
		p = 0
	}
	if t.adapt {
		t.seen++
		t.step *= math.Exp((p - t.target) / math.Pow(float64(t.seen), 0.6))
	}
	return r.Float64() < p
}
