package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched keeps what a driver observes.
type watched struct {
	mu  sync.Mutex
	obs []runlog.Observation
}

func (w *watched) observe(o runlog.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.obs = append(w.obs, o)
}

// of returns the observations of a kind from iterations of a chain.
func (w *watched) of(kind runlog.Kind, chain int) (out []runlog.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.obs {
		if o.Kind == kind && o.Chain == chain {
			out = append(out, o)
		}
	}
	return out
}

// newDriver returns a driver of a run on generated rows, on a number of cores.
func newDriver(t *testing.T, cores int, sampler string) (*Driver, *watched) {
	t.Helper()
	return newDriverOn(t, cores, "{synthetic: {n: 240, d: 2, sigma: 2, tau: [0.5], lambda: 0.1}}", sampler)
}

// classes returns the data of 40 rows of two classes.
func classes(t *testing.T) string {
	t.Helper()
	table := "x,y\n"
	for i := range 40 {
		table += fmt.Sprintf("%d,%d\n", i, i*i%19/10)
	}
	path := filepath.Join(t.TempDir(), "classes.csv")
	if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return "{path: " + path + ", target: y}"
}

func newDriverOn(t *testing.T, cores int, data, sampler string) (*Driver, *watched) {
	t.Helper()
	s, err := job.Parse(strings.NewReader("name: t\nseed: 5\ndata: "+data+"\n"+
		"solver: {preconditioner: {kind: rpcholesky, rank: 20}}\nsampler: "+sampler+"\n"), "t")
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(cores)
	if err := budget.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(budget.Release)
	loaded, err := s.Load(t.Context(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(loaded)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(p.Model.Names(), len(p.Y))
	w := &watched{}
	return New(Config{Spec: s, Problem: p, Plan: &plan, Budget: budget, Observe: w.observe,
		Operator: func(int) Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }}), w
}

func prepare(t *testing.T, d *Driver) *chains.Prepared {
	t.Helper()
	e, err := d.Event(t.Context(), chains.Work{Prepare: &chains.Preparation{}})
	if err != nil {
		t.Fatal(err)
	}
	return e.Prepared
}

// begin returns the run of a driver as it is after a preparation, up to its first window.
func begin(t *testing.T, d *Driver, prep *chains.Prepared) *chains.Run {
	t.Helper()
	r := chains.New(*d.Plan)
	if err := r.Apply(chains.Event{Prepared: prep}); err != nil {
		t.Fatal(err)
	}
	decide(t, r)
	return r
}

// decide has the sampler decide what is due at a barrier.
func decide(t *testing.T, r *chains.Run) {
	t.Helper()
	e, err := sampler.Adapt(r)
	if err == nil {
		err = r.Apply(*e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// advance carries out a task by a chain that is made for it, with the latent vectors that its
// state names.
func advance(t *testing.T, d *Driver, prep *chains.Prepared, task chains.Task, latents ...[]byte) *chains.Checkpoint {
	t.Helper()
	c, err := d.NewChain(t.Context(), prep, task.Chain)
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range latents {
		if blob == nil {
			continue
		}
		if err := c.Give(blob); err != nil {
			t.Fatal(err)
		}
	}
	k, err := c.Advance(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func task(t *testing.T, r *chains.Run, chain int) chains.Task {
	t.Helper()
	task, ok := r.Task(chain)
	if !ok {
		t.Fatal("there is no task")
	}
	return task
}

// distance returns how far x is from y in posterior standard deviations.
func distance(x, y, cov []float64) float64 {
	diff := make([]float64, len(x))
	for i := range x {
		diff[i] = x[i] - y[i]
	}
	var chol mat.Cholesky
	if !chol.Factorize(chains.Symmetric(cov)) {
		return math.Inf(1)
	}
	v, z := mat.NewVecDense(len(diff), diff), mat.NewVecDense(len(diff), nil)
	if chol.SolveVecTo(z, v) != nil {
		return math.Inf(1)
	}
	return math.Sqrt(mat.Dot(v, z))
}

// The mode that the dense oracle finds on all rows has a gradient of zero there, and the
// covariance is the inverse of minus the second differences of the oracle's log density. The
// searches by gradients and on a growing subset come to the same mode.
func TestPrepareFindsTheMode(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: cholesky, chains: 2, subset: 100}")
	prep := prepare(t, d)
	dense := posterior.NewDense(d.Problem, d.Budget)
	g, ok := dense.Gradient(prep.Psi)
	if !ok {
		t.Fatal("K is singular at the mode")
	}
	cov := chains.Symmetric(prep.Cov)
	v := mat.NewVecDense(len(g), g)
	if away := math.Sqrt(mat.Inner(v, cov, v)); away > 0.11 { // climbTol is 0.1
		t.Errorf("the mode is %.3g standard deviations away", away)
	}
	const h = 1e-3
	p := len(prep.Psi)
	info := mat.NewSymDense(p, nil)
	at := func(i, j int, a, b float64) float64 {
		x := slices.Clone(prep.Psi)
		x[i] += a * h
		x[j] += b * h
		return dense.LogDensity(x)
	}
	for i := range p {
		for j := range i + 1 {
			info.SetSym(i, j, -(at(i, j, 1, 1)-at(i, j, 1, -1)-at(i, j, -1, 1)+at(i, j, -1, -1))/(4*h*h))
		}
	}
	var product mat.Dense
	product.Mul(info, cov)
	for i := range p {
		for j := range p {
			want := 0.0
			if i == j {
				want = 1
			}
			if math.Abs(product.At(i, j)-want) > 0.05 {
				t.Errorf("curvature times covariance is\n%.3f", mat.Formatted(&product))
				break
			}
		}
	}

	for _, method := range []string{"fisher", "exact"} {
		e, w := newDriver(t, 2, "{method: "+method+", chains: 2, subset: 60}")
		other := prepare(t, e)
		if away := distance(other.Psi, prep.Psi, prep.Cov); away > 0.5 {
			t.Errorf("%s: its mode is %.2g standard deviations from the oracle's", method, away)
		}
		for i := range p {
			a, b := other.Cov[i*p+i], prep.Cov[i*p+i]
			if math.Abs(math.Log(a/b)) > 0.5 {
				t.Errorf("%s: variance %d is %.3g, the oracle's %.3g", method, i, a, b)
			}
		}
		if len(w.of(runlog.Gradient, 0)) != other.Cost.Gradients {
			t.Errorf("%s: %d gradients observed, %d counted", method, len(w.of(runlog.Gradient, 0)), other.Cost.Gradients)
		}
	}
}

// The gradients that chains step by are those of the posterior: their errors have mean zero beside
// the oracle's at the same points. Hotelling's T² of 3 parameters and 60 gradients exceeds 25 with probability
// 1e-4.
func TestGradientsOfChainsAreUnbiased(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	d, w := newDriver(t, 2, "{method: fisher, chains: 1, warmup: 60, probes: 4}")
	prep := prepare(t, d)
	first := task(t, begin(t, d, prep), 1)
	first.Iterations = 60
	k := advance(t, d, prep, first)
	dense := posterior.NewDense(d.Problem, d.Budget)
	var errs [][]float64
	for _, o := range w.of(runlog.Gradient, 1) {
		g, ok := dense.Gradient(o.Psi)
		if !ok {
			t.Fatalf("K is singular at %v", o.Psi)
		}
		for i := range g {
			g[i] = o.Gradient[i] - g[i]
		}
		errs = append(errs, g)
	}
	if len(errs) != 60 || k.Cost.Gradients != 60 || len(k.Draws) != 60 || k.State.Iter != 60 {
		t.Fatalf("%d gradients observed, %d counted, %d draws", len(errs), k.Cost.Gradients, len(k.Draws))
	}
	p := len(errs[0])
	x := mat.NewDense(len(errs), p, slices.Concat(errs...))
	cov := mat.NewSymDense(p, nil)
	stat.CovarianceMatrix(cov, x, nil)
	mean := make([]float64, p)
	for i := range mean {
		mean[i] = stat.Mean(mat.Col(nil, i, x), nil)
	}
	if t2 := float64(len(errs)) * math.Pow(distance(mean, make([]float64, p), chains.Flat(cov)), 2); t2 > 25 {
		t.Errorf("T² of the gradients' errors is %.3g, their mean %v", t2, mean)
	}
}

// summing is an operator that computes passes of approximations, and counts them.
type summing struct {
	Operator
	passes *int
}

func (s summing) Pays(*sparse.Approximation, sparse.PassKind) bool { return true }

func (s summing) Sum(ctx context.Context, a *sparse.Approximation, p *sparse.Pass, take func(int, []float64)) error {
	*s.passes++
	return a.Alone(ctx, p, take)
}

// The sums over rows of an approximation are those of a chain's group, and the draws what they are without one.
func TestGroupSumsUpRows(t *testing.T) {
	d, _ := newDriver(t, 1, "{method: sgpmc, chains: 1, checkpoint: 5, warmup: 10, subset: 60}\nmodel: {approximation: {kind: sgpmc, inducing: 8}}")
	passes, operator := 0, d.Operator
	group := d.With(func(lane int) Operator { return summing{operator(lane), &passes} }, nil)
	prep := prepare(t, d)
	if again := prepare(t, group); passes == 0 || !slices.Equal(again.Psi, prep.Psi) {
		t.Errorf("after %d passes the mode is %v, without a group %v", passes, again.Psi, prep.Psi)
	}
	passes = 0
	r := begin(t, d, prep)
	alone, shared := advance(t, d, prep, task(t, r, 1)), advance(t, group, prep, task(t, r, 1))
	if passes == 0 || !slices.EqualFunc(alone.Draws, shared.Draws, slices.Equal) {
		t.Errorf("after %d passes the draws are %v, without a group %v", passes, shared.Draws, alone.Draws)
	}
}

// A checkpoint is a function of its task: another chain before it, another driver and other numbers of cores
// give the same bits.
func TestCheckpointIsAFunctionOfItsTask(t *testing.T) {
	for _, method := range sampler.Names() {
		t.Run(method, func(t *testing.T) {
			text := "{method: " + method + ", chains: 2, checkpoint: 20, warmup: 40, subset: 60}"
			of := newDriver
			switch m, _ := sampler.ByName(method); {
			case m.Needs().Estimated, m.Needs().Laplace:
				text += "\nmodel: {likelihood: bernoulli}"
				of = func(t *testing.T, cores int, text string) (*Driver, *watched) {
					return newDriverOn(t, cores, classes(t), text)
				}
			case m.Needs().Augments:
				text += "\nmodel: {likelihood: student-t}"
			case m.Needs().Inducing:
				text += "\nmodel: {approximation: {kind: sgpmc, inducing: 12}}"
			}
			d, _ := of(t, 2, text)
			if d.needs.Staged {
				t.Skip("its chains are drawn by the schedule of its stages")
			}
			prep := prepare(t, d)
			r := begin(t, d, prep)
			c, err := d.NewChain(t.Context(), prep, 1)
			if err != nil {
				t.Fatal(err)
			}
			first, err := c.Advance(t.Context(), task(t, r, 1))
			if err != nil {
				t.Fatal(err)
			}
			kept := c.Latent()
			if err := r.Apply(chains.Event{Checkpoint: first}); err != nil {
				t.Fatal(err)
			}
			if _, ok := r.Task(1); !ok { // a window has ended
				if err := r.Apply(chains.Event{Checkpoint: advance(t, d, prep, task(t, r, 2))}); err != nil {
					t.Fatal(err)
				}
				decide(t, r)
			}
			second, err := c.Advance(t.Context(), task(t, r, 1)) // with all that c has kept
			if err != nil {
				t.Fatal(err)
			}
			other, w := of(t, 1, text)
			next := task(t, r, 1)
			again := advance(t, other, prep, next, kept)
			if !slices.EqualFunc(second.Draws, again.Draws, slices.Equal) || !slices.Equal(second.State.Memory, again.State.Memory) {
				t.Errorf("after a restart the draws are others:\n%v\n%v", second.Draws, again.Draws)
			}
			if n := len(again.Draws); n != next.Iterations || !slices.Equal(again.Draws[n-1], again.State.Psi) || again.FromIter != first.State.Iter || again.State.Iter != again.FromIter+n {
				t.Errorf("%+v", again)
			}
			if n := len(w.of(runlog.Gradient, 1)) + len(w.of(runlog.Step, 1)); n != next.Iterations {
				t.Errorf("%d of %d iterations were observed", n, next.Iterations)
			}
		})
	}
}

// A lane's evaluations are the oracle's: by a stored factor, and yᵀK⁻¹y by solves, whose error keeps
// within the bound that they state.
func TestLaneAgainstOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	d, _ := newDriver(t, 2, "{method: exact, chains: 1}")
	prep := prepare(t, d)
	dense := posterior.NewDense(d.Problem, d.Budget)
	lane := d.NewLane(1)
	lane.prep = prep
	density := func(psi []float64) (float64, *sampler.Evidence) {
		e, err := lane.Factor(t.Context(), psi, true)
		if err != nil {
			t.Fatal(err)
		}
		prior, _ := lane.LogPrior(psi)
		return prior - (e.LogDet+e.Quad)/2, e
	}
	const some = 100
	subset := posterior.NewDense(d.Problem.Subset(mode.Subset(len(d.Problem.Y), some, random.Key{Seed: d.Spec.Seed})), d.Budget)
	g, _ := subset.Gradient(prep.Psi)
	e, err := lane.Subset(t.Context(), prep.Psi, some)
	_, prior := lane.LogPrior(prep.Psi)
	for i := range g {
		if got := prior[i] - (e.LogDetGrad[i]+e.QuadGrad[i])/2; err != nil || math.Abs(got-g[i]) > 1e-6*(1+math.Abs(g[i])) {
			t.Errorf("derivative %d of a subset is %v, the oracle's %v: %v", i, got, g[i], err)
		}
	}
	base, _ := density(prep.Psi)
	for _, shift := range []float64{-0.7, 0.3, 1.1} {
		psi := slices.Clone(prep.Psi)
		for i := range psi {
			psi[i] += shift / float64(i+1)
		}
		got, e := density(psi)
		if want := dense.LogDensity(psi) - dense.LogDensity(prep.Psi); math.Abs(got-base-want) > 1e-7*math.Abs(want)+1e-7 {
			t.Errorf("at %v: the log density is up by %v, the oracle's by %v", psi, got-base, want)
		}
		g, _ := dense.Gradient(psi)
		_, prior := lane.LogPrior(psi)
		for i := range g {
			if got := prior[i] - (e.LogDetGrad[i]+e.QuadGrad[i])/2; math.Abs(got-g[i]) > 1e-6*(1+math.Abs(g[i])) {
				t.Errorf("derivative %d is %v, the oracle's %v", i, got, g[i])
			}
		}
		for _, tolerance := range []float64{1e-2, 1e-6} {
			quad, bound, err := lane.Quadratic(t.Context(), psi, prep.Psi, [][]float64{prep.Psi}, tolerance, math.Inf(1))
			if err != nil {
				t.Fatal(err)
			}
			if off := math.Abs(quad - e.Quad); off > bound+1e-9*e.Quad {
				t.Errorf("yᵀK⁻¹y to %g is %v, the factor's %v: off by %g, more than the bound %g", tolerance, quad, e.Quad, off, bound)
			}
		}
	}
	if c := lane.Cost(); c.Densities != 5 || c.Products == 0 {
		t.Errorf("the cost is %+v", c)
	}
	if c := lane.Cost(); c.Densities != 0 || c.Products != 0 {
		t.Errorf("what was told is told again: %+v", c)
	}
	singular := slices.Repeat([]float64{-50}, len(prep.Psi))
	if e, err := lane.Factor(t.Context(), singular, false); err != nil || e == nil && !math.IsInf(dense.LogDensity(singular), -1) {
		t.Errorf("at %v: %v, %v", singular, e, err)
	}
}

// A provisional answer is weighed by the posterior's own density.
func TestWeigh(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	d, _ := newDriver(t, 2, "{method: fisher, chains: 2}")
	prep := prepare(t, d)
	e, err := d.Event(t.Context(), chains.Work{Weigh: &chains.Weighing{From: prep}})
	if err != nil {
		t.Fatal(err)
	}
	draws, _, err := sampler.Provisional(d.Plan, prep)
	if err != nil {
		t.Fatal(err)
	}
	dense := posterior.NewDense(d.Problem, d.Budget)
	if len(e.Provisional.LogDensities) != len(draws) {
		t.Fatalf("%d densities of %d draws", len(e.Provisional.LogDensities), len(draws))
	}
	for i := 0; i < len(draws); i += 37 {
		if got, want := e.Provisional.LogDensities[i], dense.LogDensity(draws[i]); got != want {
			t.Errorf("draw %d: %v, not %v", i, got, want)
		}
	}
}

// The run that certifies is an exact one from where it is told to begin, and says so in what it
// observes.
func TestCertificate(t *testing.T) {
	d, w := newDriver(t, 2, "{method: fisher, chains: 2}")
	prep := prepare(t, d)
	work := chains.Work{Certificate: true, Prepare: &chains.Preparation{From: prep}}
	e, err := d.Event(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Certificate || !slices.Equal(e.Prepared.Psi, prep.Psi) {
		t.Errorf("%+v", e)
	}
	exact := d.For(work)
	if m := sampler.Of(exact.Plan); !m.Needs().Exact || exact.Plan.Method == d.Plan.Method {
		t.Errorf("it is certified by %s", m.Name())
	}
	r := begin(t, exact, e.Prepared)
	first := task(t, r, 1)
	first.Iterations = 3
	advance(t, exact, e.Prepared, first)
	for _, o := range w.of(runlog.Step, 1) {
		if !o.Certificate {
			t.Error("a step of the certificate is taken for one of the run")
		}
	}
	if n := len(w.of(runlog.Step, 1)); n != 3 {
		t.Errorf("%d steps observed", n)
	}
}

// Whoever is told to stop stops, and nothing is kept of what was not finished.
func TestCancelled(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: fisher, chains: 1, subset: 60}")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Prepare(gone, &chains.Preparation{}); !errors.Is(err, context.Canceled) {
		t.Errorf("preparing: %v", err)
	}
	prep := prepare(t, d)
	fresh, _ := newDriver(t, 2, "{method: fisher, chains: 1, subset: 60}")
	if _, err := fresh.NewChain(gone, prep, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("building the preconditioner: %v", err)
	}
	c, err := fresh.NewChain(t.Context(), prep, 1)
	if err != nil {
		t.Fatalf("after one that was stopped: %v", err)
	}
	first := task(t, begin(t, d, prep), 1)
	if k, err := c.Advance(gone, first); !errors.Is(err, context.Canceled) || k != nil {
		t.Errorf("advancing: %v, %v", k, err)
	}
	k, err := c.Advance(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if want := advance(t, d, prep, first); !slices.EqualFunc(k.Draws, want.Draws, slices.Equal) {
		t.Error("a task that was stopped has left something that changes the draws")
	}
}

// A chain that leaves for infinity ends with a sentence that names the way out.
func TestDiverges(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: fisher, chains: 1}")
	prep := prepare(t, d)
	first := task(t, begin(t, d, prep), 1)
	for i := range first.Settings.C {
		first.Settings.C[i] *= 1e6
		first.Settings.ProbeCov[i] *= 1e-8
	}
	c, err := d.NewChain(t.Context(), prep, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Advance(t.Context(), first); err == nil || !strings.Contains(err.Error(), "log parameters") {
		t.Errorf("%v", err)
	}
}

// What a plan says of memory is what the stored matrices take, and sizes that can be counted are exact.
func TestMemory(t *testing.T) {
	spec := func(sampler string) *job.Spec {
		d, _ := newDriver(t, 2, sampler)
		return d.Spec
	}
	const n, in = 3000, 4
	dense := NewMemory(spec("{method: cholesky, chains: 3}"), n, in, 2)
	if want := int64(8 * n * (in + 1)); dense.Data != want {
		t.Errorf("the data take %d bytes, not %d", dense.Data, want)
	}
	if want := int64(2 * 2 * 8 * n * n); dense.Dense != want || dense.Vectors != 0 || dense.Preconditioner != 0 {
		t.Errorf("K and its factor on two cores: %+v, not %d", dense, want)
	}
	if more := NewMemory(spec("{method: cholesky, chains: 3}"), n, in, 8); more.Dense != dense.Dense/2*3 {
		t.Errorf("3 chains on 8 cores: %d", more.Dense)
	}
	fisher, exact := NewMemory(spec("{method: fisher, chains: 3, probes: 8}"), n, in, 2), NewMemory(spec("{method: exact, chains: 3}"), n, in, 2)
	if fisher.Rank != 20 || fisher.Preconditioner < 8*n*20 {
		t.Errorf("a preconditioner of rank 20: %+v", fisher)
	}
	if least := int64(3 * 8 * n * 9 * 6); fisher.Vectors < least { // six vectors of CG for 9 right-hand sides, 3 chains
		t.Errorf("vectors: %d, less than %d", fisher.Vectors, least)
	}
	if exact.Preconditioner <= fisher.Preconditioner {
		t.Errorf("a preconditioner of each chain takes %d, a shared one %d", exact.Preconditioner, fisher.Preconditioner)
	}
}

// The cache's memory is shared by the operators of a run; where there is nothing to keep it for,
// there is none.
func TestPlanCache(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: fisher, chains: 3}")
	plan, err := PlanCache(t.Context(), d.Spec, d.Problem, d.Budget)
	if err != nil || plan == nil {
		t.Fatal(plan, err)
	}
	if whole := plan.Bytes * int64(d.Spec.Sampler.Chains+1); whole > autoCacheBytes {
		t.Errorf("%d operators take %d bytes", d.Spec.Sampler.Chains+1, whole)
	}
	stored, _ := newDriver(t, 2, "{method: cholesky, chains: 3}")
	if plan, err := PlanCache(t.Context(), stored.Spec, stored.Problem, stored.Budget); plan != nil || err != nil {
		t.Errorf("where K is stored anyway: %v, %v", plan, err)
	}
}

// An estimate adds up, and counts the gradients that the run will take.
func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		sampler   string
		gradients int // without the preparation's
	}{
		{"{method: cholesky, chains: 2}", 0},
		{"{method: fisher, chains: 2, probes: 3}", PrepareGradients + 2*3},
		{"{method: exact, chains: 2}", PrepareGradients + 2*3},
	} {
		d, _ := newDriver(t, 2, c.sampler)
		e, err := NewEstimate(t.Context(), d.Spec, d.Problem, d.Budget)
		if err != nil {
			t.Fatal(err)
		}
		steps := d.Plan.Draws
		for _, w := range d.Plan.Windows {
			steps += w
		}
		if want := 2*steps + c.gradients; e.Gradients != want {
			t.Errorf("%s: %d gradients, not %d", c.sampler, e.Gradients, want)
		}
		if sum := e.DataBytes + e.VectorBytes + e.PrecondBytes + e.DenseBytes + e.CacheBytes; e.MemoryBytes != sum || sum == 0 {
			t.Errorf("%s: %d bytes, the parts %d", c.sampler, e.MemoryBytes, sum)
		}
		if e.PairsPerProduct != 240*240 || !(e.SecondsGradient > 0) || !(e.SecondsEstimated > 0) {
			t.Errorf("%s: %+v", c.sampler, e)
		}
		tr := e.Trial
		if tr == nil || tr.Rows != 240 || len(tr.Windows) != len(d.Plan.Windows) || !(tr.Dense > 0 && tr.Sampling > 0) {
			t.Errorf("%s: the trial is %+v", c.sampler, tr)
		}
		if solves := !d.needs.Dense; tr != nil && (tr.Iterations > 1) != solves {
			t.Errorf("%s: %g iterations", c.sampler, tr.Iterations)
		}
	}
}

// The estimate of a staged run is the sum of its parts, counts what it is expected to evaluate, and is nothing where that fails.
func TestEstimateOfStages(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: auto, chains: 2, draws: 40}")
	e, err := NewEstimate(t.Context(), d.Spec, d.Problem, d.Budget)
	if err != nil || e.Course == nil {
		t.Fatal(e, err)
	}
	c := e.Course
	sum, evaluations, proposals := c.Prepare, 0, 0
	for _, s := range c.Stages {
		sum += s.Fitting + float64(s.Evaluations)*c.Evaluation + float64(s.Proposals)*c.Proposal
		evaluations, proposals = evaluations+s.Evaluations, proposals+s.Proposals
	}
	if math.Abs(sum-c.Seconds()) > 1e-9*sum || e.SecondsEstimated < sum || e.Gradients != evaluations || e.Proposals != proposals || e.Trial != nil {
		t.Errorf("%+v, with the course %+v of %g s", e, c, sum)
	}
	if !c.ByFactor || !c.Exact || c.Rows != 240 || !(c.Evaluation > c.Proposal && c.Proposal > 0) || proposals < 2*40 {
		t.Errorf("the course of few rows is %+v", c)
	}
	large, err := NewCourse(t.Context(), d.Spec, d.Problem, 200*240, d.Budget)
	if err != nil || large.ByFactor || large.Exact || !(large.Seconds() > c.Seconds()) {
		t.Errorf("the course of many rows is %+v, %v", large, err)
	}
	for i := range d.Problem.Y {
		d.Problem.Y[i] = math.NaN()
	}
	if e, err := NewEstimate(t.Context(), d.Spec, d.Problem, d.Budget); err != nil || e.Course != nil || e.SecondsEstimated != 0 {
		t.Errorf("of no data: %+v, %v", e, err)
	}
	d, _ = newDriver(t, 1, "{method: fisher, chains: 2}")
	if _, err := NewCourse(t.Context(), d.Spec, d.Problem, 240, d.Budget); err == nil {
		t.Error("fisher has stages")
	}
}

// What a trial says of a run adds up: what is not the dense search is for all chains, and
// grows with the rows.
func TestTrialAddsUp(t *testing.T) {
	tr := Trial{Rows: 100, Dense: 3, Prepare: 2, Windows: []float64{0.5, 0.25}, Sampling: 0.125}
	p := &chains.Plan{Chains: 4, Windows: []int{2, 8}, Draws: 10}
	const all = 2 + 4*(2*0.5+8*0.25+10*0.125)
	for _, c := range []struct {
		n, power         int
		total, iteration float64
	}{{100, 2, 3 + all, 0.125}, {200, 2, 3 + 4*all, 0.5}, {200, 3, 3 + 8*all, 1}} {
		if total, iteration := tr.seconds(p, c.n, c.power); total != c.total || iteration != c.iteration {
			t.Errorf("%d rows: %g s, %g s, want %g, %g", c.n, total, iteration, c.total, c.iteration)
		}
	}
}

// A trial of some of the rows has the rank that is as low for them as the job's is for all: solves take
// more iterations with it, not fewer.
func TestTrialOfAFixedRank(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: fisher, chains: 2, probes: 3}")
	s := *d.Spec
	s.Solver.Preconditioner.Rank = job.Fixed(100)
	whole := NewTrial(t.Context(), &s, d.Problem, 240, nil, d.Budget)
	some := NewTrial(t.Context(), &s, d.Problem, 240*100, nil, d.Budget) // as of rank 10
	s.Solver.Preconditioner.Rank = job.Fixed(10)
	low := NewTrial(t.Context(), &s, d.Problem, 240, nil, d.Budget)
	if whole == nil || some == nil || low == nil || some.Iterations != low.Iterations || !(some.Iterations > whole.Iterations) {
		t.Errorf("rank 100 of 240 rows: %+v; of 24,000: %+v; rank 10 of 240: %+v", whole, some, low)
	}
}

// A trial that fails leaves an estimate from products.
func TestNoTrial(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: fisher, chains: 2}")
	for i := range d.Problem.Y {
		d.Problem.Y[i] = math.NaN()
	}
	e, err := NewEstimate(t.Context(), d.Spec, d.Problem, d.Budget)
	if err != nil || e.Trial != nil || e.SecondsEstimated != float64(e.Gradients)*e.SecondsGradient || !(e.SecondsEstimated > 0) {
		t.Errorf("%+v, %v", e, err)
	}
}

// What a sampler is given of a trace is the iteration that it is in.
func TestTrace(t *testing.T) {
	d, _ := newDriver(t, 2, "{method: exact, chains: 1}")
	prep := prepare(t, d)
	var began []int
	ended := 0
	traced := d.With(d.Operator, func(ctx context.Context, chain, iter int) (context.Context, func()) {
		if chain == 1 {
			began = append(began, iter)
		}
		return ctx, func() { ended++ }
	})
	first := task(t, begin(t, d, prep), 1)
	first.Iterations = 3
	advance(t, traced, prep, first)
	if !slices.Equal(began, []int{1, 2, 3}) || ended != 3 {
		t.Errorf("iterations %v began, %d ended", began, ended)
	}
	if d.Trace != nil {
		t.Error("the driver that it was made from is traced, too")
	}
}

// Settings that a driver computes from what it is sent are those that the run itself
// gives, in every window.
func TestAdaptElsewhere(t *testing.T) {
	d, _ := newDriver(t, 1, "{method: fisher, chains: 2, warmup: 10, draws: 4, checkpoint: 5}")
	r := chains.New(*d.Plan)
	if err := r.Apply(chains.Event{Prepared: prepare(t, d)}); err != nil {
		t.Fatal(err)
	}
	for r.Phase == chains.Warmup {
		w, ok := r.Adapting()
		if !ok {
			t.Fatal("the run is at no barrier")
		}
		sent, err := chains.WorkOf(w.Wire())
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Event(t.Context(), *sent)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sampler.Adapt(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("window %d: %s", r.NextWindow(), diff)
		}
		if err := r.Apply(*got); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Adapting(); ok {
			t.Error("the run is at a barrier when its window has begun")
		}
		for r.Phase == chains.Warmup && !r.AtBarrier() {
			for c := range r.Chains {
				if task, ok := r.Task(c + 1); ok {
					k := advance(t, d, r.Prepared, task)
					if err := r.Apply(chains.Event{Checkpoint: k}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}
