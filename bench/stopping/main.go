// Command stopping tabulates the laws of ULISSE's stopping time: what a solve
// costs and how much variance stopping early adds to a gradient.
//
//	go run ./bench/stopping [-n 400] [-probes 30]
//
// Nothing is averaged over stopping times: the estimate is a function of where
// it stops, all stops are computed in one run of CG, and mean and variance are
// sums over them with their probabilities. Averages are over probes only.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"runtime"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

func main() {
	n := flag.Int("n", 400, "rows")
	probes := flag.Int("probes", 30, "probes to average over")
	flag.Parse()
	if err := run(*n, *probes); err != nil {
		log.Fatal(err)
	}
}

// laws are those compared, each with where its tail begins.
var laws = []struct {
	name string
	law  solve.Law
	q    float64
}{
	{"paper, β=1, q=1", solve.PaperLaw{Beta: 1}, 1},
	{"paper, β=1, q=0.1", solve.PaperLaw{Beta: 1}, 0.1},
	{"paper, β=100, q=1", solve.PaperLaw{Beta: 100}, 1},
	{"paper, β=100, q=0.1", solve.PaperLaw{Beta: 100}, 0.1},
	{"geometric, 0.9, q=1", solve.GeometricLaw{P: 0.9}, 1},
	{"geometric, 0.9, q=0.1", solve.GeometricLaw{P: 0.9}, 0.1},
	{"decay, q=1", solve.DecayLaw{MinProb: 0.3, MaxProb: 0.99}, 1},
	{"decay, q=0.1", solve.DecayLaw{MinProb: 0.3, MaxProb: 0.99}, 0.1},
	{"optimal, q=1", solve.OptimalLaw{MinProb: 0.1}, 1},
	{"optimal, q=0.1", solve.OptimalLaw{MinProb: 0.1}, 0.1},
}

// tolerance is that of the solves that are not stopped early.
const tolerance = 1e-6

// problem is a covariance matrix and the forms of a gradient.
type problem struct {
	op    *cmvp.Operator
	deriv *mat.SymDense // ∂K/∂log τ
	pre   *precond.LowRank
	cond  float64
}

func newProblem(n int, lambda float64) (*problem, error) {
	const d = 4
	x := make([]float64, n*d)
	random.Normal(random.Key{Seed: 1}.Stream(random.Synthetic, 0), x)
	op := cmvp.New(kernel.NewInputs(n, d, x), kernel.Single(kernel.RBF, d, false), parallel.NewBudget(runtime.GOMAXPROCS(0)))
	op.Set([]float64{1, 0.1}, []float64{lambda})
	p := &problem{op: op, deriv: mat.NewSymDense(n, nil)}
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			e := op.Function().Value(x[i*d:(i+1)*d], x[j*d:(j+1)*d])
			k.SetSym(i, j, e)
			p.deriv.SetSym(i, j, e*math.Log(e)) // −u·exp(−u)
		}
		k.SetSym(i, i, 1+lambda)
	}
	var eig mat.EigenSym
	if !eig.Factorize(k, false) {
		return nil, fmt.Errorf("no eigenvalues")
	}
	v := eig.Values(nil)
	p.cond = v[n-1] / v[0]
	var err error
	p.pre, err = precond.Build(context.Background(), "rpcholesky", op, precond.AutoRank(n), random.Key{Seed: 1})
	return p, err
}

// source is a stream of random numbers that continues k times and then stops.
type source struct{ k int }

func (s *source) Uint64() uint64 {
	s.k--
	if s.k >= 0 {
		return 0
	}
	return math.MaxUint64
}

// recorder notes the probabilities that a law gave.
type recorder struct {
	solve.Law
	probs []float64
}

func (r *recorder) Prob(j int, steps []solve.Step) float64 {
	p := r.Law.Prob(j, steps)
	r.probs = append(r.probs, p)
	return p
}

// result is the variance of the form c·x̃ that early stopping makes, and the
// expected number of iterations.
type result struct{ variance, cost float64 }

// early returns the exact moments of c·x̃, x̃ the early-stopped solution of Kx = b.
func (p *problem) early(opt solve.Options, law solve.Law, q float64, b, c []float64, truth float64) (result, error) {
	rec := &recorder{Law: law}
	x := [][]float64{make([]float64, len(b))}
	est, rep, err := solve.New(p.op, opt).Estimate(context.Background(), x, [][]float64{b}, solve.Early{Q: q, Law: rec,
		Streams: func(int) int { return 2 * len(b) },
		Rand:    func(_, s int) *rand.Rand { return rand.New(&source{k: s}) }})
	if err != nil {
		return result{}, err
	}
	r := result{cost: float64(rep.Iterations[0] - len(rec.probs) + 1)}
	survive := 1.0
	for s := range len(rec.probs) + 1 {
		prob := survive
		if s < len(rec.probs) {
			survive *= rec.probs[s]
			prob -= survive
			r.cost += survive
		}
		if prob == 0 {
			continue
		}
		e := floats.Dot(c, est[0][s]) - truth
		r.variance += prob * e * e
	}
	return r, nil
}

func run(n, probes int) error {
	ctx := context.Background()
	fmt.Println("| condition number | solver | law | iterations | variance | work |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, lambda := range []float64{1e-1, 1e-2, 1e-3} {
		p, err := newProblem(n, lambda)
		if err != nil {
			return err
		}
		for _, solver := range []string{"CG", "PCG"} {
			opt := solve.Options{Tolerance: 1e-10}
			if solver == "PCG" {
				opt.Precond = p.pre
			}
			plain := opt
			plain.Tolerance = tolerance

			// The probes of the trace: ½ xᵀ∂K v, x = K⁻¹b.
			w := solve.Columns(n, probes)
			b, v, c, x := solve.Columns(n, probes), solve.Columns(n, probes), solve.Columns(n, probes), solve.Columns(n, probes)
			for j := range w {
				random.Rademacher(random.Key{Seed: 2}.Stream(random.Probe, j), w[j])
			}
			copy(b, w)
			copy(v, w)
			if solver == "PCG" {
				b, v = solve.Columns(n, probes), solve.Columns(n, probes)
				p.pre.MulRoot(b, w)
				p.pre.SolveRootTrans(v, w)
			}
			var values []float64
			for j := range w {
				cj := mat.NewVecDense(n, c[j])
				cj.MulVec(p.deriv, mat.NewVecDense(n, v[j]))
				cj.ScaleVec(0.5, cj)
			}
			if _, err := solve.New(p.op, opt).Solve(ctx, x, b); err != nil {
				return err
			}
			for j := range w {
				values = append(values, floats.Dot(c[j], x[j]))
			}
			base := stat.Variance(values, nil)
			var full float64
			for i, tol := range []float64{tolerance, 1e-4, 1e-2} {
				plain.Tolerance = tol
				for j := range x {
					clear(x[j])
				}
				rep, err := solve.New(p.op, plain).Solve(ctx, x, b)
				if err != nil {
					return err
				}
				var square, mean float64
				for j := range w {
					e := floats.Dot(c[j], x[j]) - values[j]
					square += e * e / float64(probes)
					mean += e / float64(probes)
				}
				cost := rep.MeanIterations()
				if i == 0 {
					full = cost
					fmt.Printf("| %.1e | %s ", p.cond, solver)
				} else {
					fmt.Print("| | ")
				}
				fmt.Printf("| none, residual %.0e | %.1f | %s, bias %+.1g | %s |\n", tol, cost, short(square/base), mean/math.Sqrt(base), short(cost*(1+square/base)/full))
			}
			for _, l := range laws {
				var sum result
				for j := range w {
					r, err := p.early(opt, l.law, l.q, b[j], c[j], values[j])
					if err != nil {
						return err
					}
					sum.variance += r.variance / float64(probes) / base
					sum.cost += r.cost / float64(probes)
				}
				fmt.Printf("| | | %s | %.1f | %s | %s |\n", l.name, sum.cost, short(sum.variance), short(sum.cost*(1+sum.variance)/full))
			}
		}
	}
	fmt.Fprintln(os.Stderr, "variance: what early stopping adds, in units of the variance of one exactly solved probe;\nwork: iterations × (1 + variance), in units of the solve to the tolerance: what the same information costs")
	return nil
}

func short(x float64) string {
	if math.IsNaN(x) || x > 1e9 {
		return "> 10⁹"
	}
	if x >= 1000 {
		return fmt.Sprintf("%.1e", x)
	}
	return fmt.Sprintf("%.2g", x)
}
