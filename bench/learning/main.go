// Command learning measures how fast point estimates learn, as Figures 2 and 3 of Cutajar et al. (2016): the error and the
// negative log likelihood of held-out rows against time, of
//
//	pcg   ADAGRAD on gradients by CG with a Nyström preconditioner, as published
//	cg    the same without a preconditioner
//	chol  quasi-Newton steps on the exact marginal likelihood, by a Cholesky factor; of classes on Laplace's approximation
//
// on √n rows that are held out, with a length-scale for each input, from σ = 1, λ = 0.1 and ℓ = 1.
//
//	go run ./bench/learning -data DIR -set concrete -seconds 60 -folds 3 -svg learning.svg
//
// Time is processor time of learning alone, since machines are busy; predictions are made afterwards, along the way.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/random"
)

type settings struct {
	data, set, svg string
	rows, folds    int
	seconds        float64
	budget         *parallel.Budget
}

func main() {
	var s settings
	flag.StringVar(&s.data, "data", os.Getenv("ULISSE_DATA"), "folder of the data sets (default $ULISSE_DATA)")
	flag.StringVar(&s.set, "set", "concrete", "concrete, power or spam")
	flag.IntVar(&s.rows, "rows", 0, "use this number of random rows (0: all)")
	flag.IntVar(&s.folds, "folds", 3, "how many sets of held-out rows")
	flag.Float64Var(&s.seconds, "seconds", 60, "processor time of each method and fold")
	flag.StringVar(&s.svg, "svg", "", "draw the courses of the first fold into this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "learning:", err)
		os.Exit(1)
	}
}

// targets are the columns to predict; models what the specification says of the likelihood.
var (
	targets = map[string]string{"concrete": "strength", "power": "PE", "spam": "class"}
	models  = map[string]string{"spam": ", likelihood: bernoulli, link: probit"}
)

// course is how well held-out rows were predicted on the way.
type course struct {
	seconds    []float64
	steps      []int
	err, nll   []float64
	iterations float64 // of a solve, the mean
	evidence   float64 // log marginal likelihood at the end
}

func (s *settings) run(ctx context.Context) error {
	if s.data == "" {
		return errors.New("no data: give -data DIR or set ULISSE_DATA")
	}
	if targets[s.set] == "" {
		return fmt.Errorf("unknown data set %q", s.set)
	}
	s.budget = parallel.NewBudget(0)
	methods := []string{"pcg", "cg", "chol"}
	if models[s.set] != "" {
		methods = []string{"chol"}
	}
	all := map[string][]*course{}
	for fold := range s.folds {
		spec, d, err := s.load(ctx, fold)
		if err != nil {
			return err
		}
		p, err := spec.Problem(d)
		if err != nil {
			return err
		}
		for _, m := range methods {
			c, err := s.course(ctx, m, spec, d, fit.Likelihood(p), uint64(fold))
			if err != nil {
				return fmt.Errorf("%s: %w", m, err)
			}
			all[m] = append(all[m], c)
			fmt.Printf("%s, fold %d, %d rows, %s, CG iterations a solve %.1f\n  seconds", s.set, fold+1, d.N(), m, c.iterations)
			for i, x := range c.seconds {
				fmt.Printf(" | %.1f s, step %d: %.4f, %.2f", x, c.steps[i], c.err[i], c.nll[i])
			}
			fmt.Println()
		}
	}
	fmt.Printf("\n| method | error | negative log likelihood | log marginal likelihood | steps | CG iterations a solve |\n|---|---:|---:|---:|---:|---:|\n")
	for _, m := range methods {
		var e, l, v, n, it []float64
		for _, c := range all[m] {
			last := len(c.err) - 1
			e, l, v = append(e, c.err[last]), append(l, c.nll[last]), append(v, c.evidence)
			n, it = append(n, float64(c.steps[last])), append(it, c.iterations)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", m, told(e, 4), told(l, 2), told(v, 1), told(n, 0), told(it, 1))
	}
	if s.svg == "" {
		return nil
	}
	return s.draw(methods, all)
}

// told returns the mean with its standard error.
func told(x []float64, digits int) string {
	var mean, v float64
	for _, y := range x {
		mean += y / float64(len(x))
	}
	for _, y := range x {
		v += (y - mean) * (y - mean)
	}
	text := fmt.Sprintf("%.*f", digits, mean)
	if k := float64(len(x)); k > 1 {
		text += fmt.Sprintf(" ± %.*f", digits, math.Sqrt(v/(k-1)/k))
	}
	return text
}

// load reads some rows and holds √n of them out.
func (s *settings) load(ctx context.Context, fold int) (*job.Spec, *dataset.Dataset, error) {
	path := filepath.Join(s.data, s.set+".csv")
	if s.rows > 0 {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		order := random.Key{Seed: 1}.Stream(random.Subset, 0).Perm(len(lines) - 1)
		some := lines[:1:1]
		for _, i := range order[:min(s.rows, len(order))] {
			some = append(some, lines[1+i])
		}
		dir, err := os.MkdirTemp("", "learning-*")
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, s.set+".csv")
		if err := os.WriteFile(path, []byte(strings.Join(some, "\n")+"\n"), 0o600); err != nil {
			return nil, nil, err
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	n := float64(bytes.Count(text, []byte("\n")) - 1)
	spec, err := job.ParseString(fmt.Sprintf("name: %s\ndata: {path: %q, target: %s, holdout: %g, constant: drop}\nmodel: {ard: true%s}\nseed: %d\n", s.set, path, targets[s.set], 1/math.Sqrt(n), models[s.set], fold+1))
	if err != nil {
		return nil, nil, err
	}
	d, err := spec.Load(ctx, nil, s.budget)
	return spec, d, err
}

// errEnough ends a method whose time is up.
var errEnough = errors.New("the time is up")

// visited is a ψ on the way.
type visited struct {
	psi     []float64
	seconds float64
}

// timed is an objective whose evaluations are timed, and ended.
type timed struct {
	fit.Objective
	best    float64
	path    []visited
	spent   float64
	seconds float64
}

func (t *timed) At(ctx context.Context, x []float64) (float64, []float64, error) {
	if t.spent > t.seconds {
		return 0, nil, errEnough
	}
	began := cputime.Seconds()
	v, g, err := t.Objective.At(ctx, x)
	t.spent += cputime.Seconds() - began
	if err == nil && g != nil && v > t.best {
		t.best = v
		t.path = append(t.path, visited{slices.Clone(x), t.spent})
	}
	return v, g, err
}

// course learns by a method and predicts from what was visited.
func (s *settings) course(ctx context.Context, method string, spec *job.Spec, d *dataset.Dataset, p *posterior.Problem, seed uint64) (*course, error) {
	if err := s.budget.Acquire(ctx); err != nil {
		return nil, err
	}
	path, iterations, err := s.learn(ctx, method, p, seed)
	s.budget.Release()
	if err != nil {
		return nil, err
	}
	c := &course{iterations: iterations}
	for _, i := range along(path) {
		e, l, err := s.score(ctx, spec, d, p, path[i].psi)
		if err != nil {
			return nil, err
		}
		c.seconds, c.steps, c.err, c.nll = append(c.seconds, path[i].seconds), append(c.steps, i+1), append(c.err, e), append(c.nll, l)
	}
	v, _, err := s.exact(p)
	if err != nil {
		return nil, err
	}
	c.evidence, _, err = v.At(ctx, path[len(path)-1].psi)
	return c, err
}

// exact returns the log marginal likelihood, of classes Laplace's approximation.
func (s *settings) exact(p *posterior.Problem) (obj fit.Objective, classes bool, err error) {
	if p.Likelihood.Augmentation().Width() > 0 {
		l, err := laplace.New(p, s.budget)
		return l, true, err
	}
	return fit.NewStored(p, s.budget), false, nil
}

// learn returns what a method visits.
func (s *settings) learn(ctx context.Context, method string, p *posterior.Problem, seed uint64) (path []visited, iterations float64, err error) {
	start := make([]float64, p.NumParams())
	for i, q := range p.Params {
		start[i] = math.Log(map[param.Role]float64{param.Variance: 1, param.Noise: 0.1, param.Rate: 0.5}[q.Role])
	}
	if method == "chol" {
		t := &timed{best: math.Inf(-1), seconds: s.seconds}
		if t.Objective, _, err = s.exact(p); err != nil {
			return nil, 0, err
		}
		if _, err := fit.Search(ctx, p.Params, t, [][]float64{start}, fit.Options{}); err != nil && !errors.Is(err, errEnough) {
			return nil, 0, err
		}
		return t.path, 0, nil
	}
	kind := map[string]string{"pcg": "nystrom", "cg": "none"}[method]
	g := fit.NewSolves(p, s.budget, seed, kind)
	began := cputime.Seconds()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_, _, err = fit.Adagrad(ctx, p.Params, g, start, math.MaxInt32, fit.Options{Tell: func(st fit.Step) {
		at := cputime.Seconds() - began
		path = append(path, visited{st.Psi, at})
		if at > s.seconds {
			cancel(errEnough)
		}
	}})
	if err != nil && context.Cause(ctx) != errEnough {
		return nil, 0, err
	}
	for _, n := range g.Cost.Iterations {
		iterations += float64(n) / float64(len(g.Cost.Iterations))
	}
	return path, iterations, nil
}

// most is how many points of a course are scored.
const most = 12

// along returns some places of a path, about equally far apart in the logarithm of time, the last among them.
func along(path []visited) []int {
	var out []int
	last, step := math.Inf(-1), math.Log(path[len(path)-1].seconds/path[0].seconds)/most
	for i, v := range path {
		if at := math.Log(v.seconds); i == len(path)-1 || at-last >= step {
			out, last = append(out, i), at
		}
	}
	return out
}

// score predicts the held-out rows: the root mean square error of standardised targets, or the share of wrong classes, and minus
// the sum of the log densities.
func (s *settings) score(ctx context.Context, spec *job.Spec, d *dataset.Dataset, p *posterior.Problem, psi []float64) (e, nll float64, err error) {
	c := predict.FromSpec(spec, p, [][]float64{psi}, s.budget)
	classes := p.Likelihood.Augmentation().Width() > 0
	if classes {
		l, err := laplace.New(p, s.budget)
		if err != nil {
			return 0, 0, err
		}
		m, err := l.Mode(ctx, psi)
		if err != nil {
			return 0, 0, err
		}
		c.Problem = l.Gaussian(m)
	}
	o, err := predict.New(c)
	if err != nil {
		return 0, 0, err
	}
	m, _, err := o.Predict(ctx, d.HoldoutX, predict.Options{})
	if err != nil {
		return 0, 0, err
	}
	for i := range d.HoldoutY {
		y := d.HoldoutY[i]
		of := m.Mixture(i, false)
		mean, _ := of.Moments()
		nll -= of.LogDensity(y)
		if classes {
			if (mean > 0.5) != (y == 1) {
				e++
			}
		} else {
			e += (y - mean) * (y - mean)
		}
	}
	e /= float64(len(d.HoldoutY))
	if !classes {
		e = math.Sqrt(e)
	}
	return e, nll, nil
}

// draw draws the courses of the first fold.
func (s *settings) draw(methods []string, all map[string][]*course) error {
	panels := []plots.Panel{{X: "log10 of processor seconds", Y: "error"}, {X: "log10 of processor seconds", Y: "negative log likelihood"}}
	for _, m := range methods {
		c := all[m][0]
		x := make([]float64, len(c.seconds))
		for i, v := range c.seconds {
			x[i] = math.Log10(v)
		}
		panels[0].Lines = append(panels[0].Lines, plots.Line{Name: m, X: x, Y: c.err})
		panels[1].Lines = append(panels[1].Lines, plots.Line{Name: m, X: x, Y: c.nll})
	}
	var b bytes.Buffer
	if err := plots.Course(&b, "Learning on "+s.set, "How well held-out rows are predicted while parameters are learnt.", panels); err != nil {
		return err
	}
	return os.WriteFile(s.svg, b.Bytes(), 0o644)
}
