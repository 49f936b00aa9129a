package solve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dense is a stored matrix as an operator.
type dense struct {
	*mat.SymDense
	products int
	cancel   func() // called at the third product, if set
}

func (d *dense) Len() int { return d.SymmetricDim() }

func (d *dense) Mul(ctx context.Context, dst, v [][]float64) error {
	d.products++
	if d.cancel != nil && d.products == 3 {
		d.cancel()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for c := range v {
		y := mat.NewVecDense(d.Len(), dst[c])
		y.MulVec(d.SymDense, mat.NewVecDense(d.Len(), v[c]))
	}
	return nil
}

// MulSingle rounds the matrix, the vector and the result to float32, with an
// error like that of a single-precision product.
func (d *dense) MulSingle(ctx context.Context, dst, v [][]float64) error {
	for c := range v {
		for i := range d.Len() {
			var sum float32
			for j := range d.Len() {
				sum += float32(d.At(i, j)) * float32(v[c][j])
			}
			dst[c][i] = float64(sum)
		}
	}
	return ctx.Err()
}

// spd returns an n×n matrix with the spectrum of a covariance plus noise:
// eigenvalues that fall geometrically from cond to a floor of 1.
func spd(n int, cond float64) *dense {
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	g := mat.NewDense(n, n, nil)
	for i := range n {
		for j := range n {
			g.Set(i, j, rnd.NormFloat64())
		}
	}
	var qr mat.QR
	qr.Factorize(g)
	var q, m mat.Dense
	qr.QTo(&q)
	eig := mat.NewDiagDense(n, nil)
	for i := range n {
		eig.SetDiag(i, 1+(cond-1)*math.Pow(0.6, float64(i)))
	}
	m.Product(&q, eig, q.T())
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			s.SetSym(i, j, (m.At(i, j)+m.At(j, i))/2)
		}
	}
	return &dense{SymDense: s}
}

func columns(n, s int, seed uint64) [][]float64 {
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = make([]float64, n)
		random.Normal(random.Key{Seed: seed}.Stream(random.Calibration, c), cols[c])
	}
	return cols
}

func zeros(n, s int) [][]float64 {
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = make([]float64, n)
	}
	return cols
}

// exact solves by Cholesky.
func exact(t *testing.T, k *dense, b []float64) []float64 {
	t.Helper()
	var chol mat.Cholesky
	if !chol.Factorize(k.SymDense) {
		t.Fatal("not positive definite")
	}
	x := make([]float64, len(b))
	if err := chol.SolveVecTo(mat.NewVecDense(len(b), x), mat.NewVecDense(len(b), b)); err != nil {
		var c mat.Condition
		if !errors.As(err, &c) {
			t.Fatal(err)
		}
	}
	return x
}

// jacobi is the diagonal preconditioner.
type jacobi []float64

func (j jacobi) Solve(dst, r [][]float64) {
	for c := range r {
		floats.DivTo(dst[c], r[c], j)
	}
}

func diagonal(k *dense) jacobi {
	d := make(jacobi, k.Len())
	for i := range d {
		d[i] = k.At(i, i)
	}
	return d
}

func TestSolveAgainstCholesky(t *testing.T) {
	const n, s = 120, 3
	for _, cond := range []float64{1e3, 1e5, 1e7} {
		tol := 1e-15 * cond // some times what rounding in K·x allows
		for _, mixed := range []bool{false, true} {
			for _, pre := range []bool{false, true} {
				t.Run(fmt.Sprintf("cond=%g/mixed=%v/precond=%v", cond, mixed, pre), func(t *testing.T) {
					k := spd(n, cond)
					opt := Options{Tolerance: tol, MaxIter: 5000, Mixed: mixed, Budget: parallel.NewBudget(2)}
					if pre {
						opt.Precond = diagonal(k)
					}
					b, x := columns(n, s, 1), zeros(n, s)
					rep, err := New(k, opt).Solve(context.Background(), x, b)
					if err != nil {
						t.Fatal(err)
					}
					if rep.Unconverged != 0 {
						t.Errorf("%d columns did not converge: %+v", rep.Unconverged, rep)
					}
					for c := range b {
						want := exact(t, k, b[c])
						// ‖x−x*‖ ≤ cond·tol·‖x*‖
						if e := floats.Distance(x[c], want, 2) / floats.Norm(want, 2); e > cond*tol {
							t.Errorf("column %d: relative error %g", c, e)
						}
						r := append([]float64(nil), b[c]...)
						kx := zeros(n, 1)
						k.Mul(context.Background(), kx, x[c:c+1])
						floats.Sub(r, kx[0])
						if res := floats.Norm(r, 2) / floats.Norm(b[c], 2); res > tol || math.Abs(res-rep.Residuals[c]) > 1e-14 {
							t.Errorf("column %d: true residual %g, reported %g, wanted %g", c, res, rep.Residuals[c], tol)
						}
					}
				})
			}
		}
	}
}

// In mixed precision the recurrence alone would lie.
// inner is a preconditioner that solves with another solver, roughly.
type inner struct{ *Solver }

func (p inner) Solve(dst, r [][]float64) {
	for c := range dst {
		clear(dst[c])
	}
	p.Solver.Solve(context.Background(), dst, r)
}

// A preconditioner that is an inexact solve with K itself is not a fixed
// matrix: flexible CG needs few iterations, plain CG many times more. With a
// fixed one they take the same steps.
func TestFlexible(t *testing.T) {
	const n = 150
	k := spd(n, 1e4)
	b := columns(n, 2, 3)
	iterations := func(p Preconditioner, flexible bool) float64 {
		rep, err := New(k, Options{Tolerance: 1e-8, MaxIter: 2000, Precond: p, Flexible: flexible}).Solve(context.Background(), zeros(n, 2), b)
		if err != nil {
			t.Fatal(err)
		}
		if flexible && rep.Unconverged > 0 {
			t.Errorf("%d columns did not converge", rep.Unconverged)
		}
		return rep.MeanIterations()
	}
	plain, same := iterations(diagonal(k), false), iterations(diagonal(k), true)
	if math.Abs(plain-same) > 0.05*plain {
		t.Errorf("a fixed preconditioner: %v iterations, flexible %v", plain, same)
	}
	p := inner{New(k, Options{Tolerance: 0.3})}
	if flexible, rigid := iterations(p, true), iterations(p, false); flexible > 40 || flexible > rigid/4 {
		t.Errorf("an inexact preconditioner: %v iterations, %v if plain", flexible, rigid)
	}
}

// Each column with its own preconditioner converges as it would alone.
func TestPerColumn(t *testing.T) {
	const n = 100
	k := spd(n, 1e4)
	b := columns(n, 1, 4)
	pre := []Preconditioner{nil, diagonal(k)}
	both, err := New(k, Options{Tolerance: 1e-8, PerColumn: pre}).Solve(context.Background(), zeros(n, 2), [][]float64{b[0], b[0]})
	if err != nil || both.Unconverged > 0 {
		t.Fatal(both, err)
	}
	for c, p := range pre {
		one, err := New(k, Options{Tolerance: 1e-8, Precond: p}).Solve(context.Background(), zeros(n, 1), b)
		if err != nil {
			t.Fatal(err)
		}
		if one.Iterations[0] != both.Iterations[c] {
			t.Errorf("column %d: %d iterations, %d alone", c, both.Iterations[c], one.Iterations[0])
		}
	}
}

func TestMixedReplacesItsResiduals(t *testing.T) {
	k := spd(100, 1e3)
	b, x := columns(100, 2, 3), zeros(100, 2)
	rep, err := New(k, Options{Tolerance: 1e-10, Mixed: true}).Solve(context.Background(), x, b)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Replacements == 0 || rep.Singles == 0 || rep.Singles >= rep.Products {
		t.Errorf("%+v", rep)
	}
}

// A column that single precision cannot resolve goes on in double precision;
// the one beside it does not notice.
func TestMixedGoesOnInDouble(t *testing.T) {
	ctx := context.Background()
	k := spd(120, 1e8)
	b := columns(120, 2, 9)
	k.Mul(ctx, b[1:], columns(120, 1, 10)) // in the range of the large eigenvalues: easier
	opt := Options{Tolerance: 1e-7, MaxIter: 5000, Mixed: true}
	x, alone := zeros(120, 2), zeros(120, 2)
	rep, err := New(k, opt).Solve(ctx, x, b)
	if err != nil || rep.Unconverged != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if doubles := rep.Products - rep.Singles; doubles < 20 || rep.Singles < 20 {
		t.Errorf("%d products in single precision, %d in double", rep.Singles, doubles)
	}
	s := New(k, opt)
	for c := range b {
		if _, err := s.Solve(ctx, alone[c:c+1], b[c:c+1]); err != nil {
			t.Fatal(err)
		}
		if !floats.Equal(alone[c], x[c]) {
			t.Errorf("column %d alone differs from column %d among others", c, c)
		}
	}
}

func TestSolveSaysWhenItCannot(t *testing.T) {
	k := spd(80, 1e6)
	b, x := columns(80, 2, 4), zeros(80, 2)
	rep, err := New(k, Options{Tolerance: 1e-10, MaxIter: 5}).Solve(context.Background(), x, b)
	if err != nil || rep.Unconverged != 2 || rep.MaxResidual() < 1e-10 {
		t.Errorf("out of iterations: %+v, %v", rep, err)
	}
	// Beyond what float64 can reach.
	k = spd(80, 1e12)
	x = zeros(80, 2)
	rep, err = New(k, Options{Tolerance: 1e-17}).Solve(context.Background(), x, b)
	if err != nil || rep.Unconverged == 0 {
		t.Errorf("out of precision: %+v, %v", rep, err)
	}
}

func TestSolveEdgeCases(t *testing.T) {
	k := spd(50, 100)
	b := columns(50, 3, 5)
	clear(b[1])
	x := zeros(50, 3)
	copy(x[2], exact(t, k, b[2])) // a perfect warm start
	rep, err := New(k, Options{Tolerance: 1e-9}).Solve(context.Background(), x, b)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Iterations[1] != 0 || rep.Iterations[2] != 0 || rep.Iterations[0] == 0 {
		t.Errorf("iterations %v", rep.Iterations)
	}
	if floats.Norm(x[1], 2) != 0 {
		t.Error("K·x = 0 has a solution other than 0")
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.products, k.cancel = 0, cancel
	if _, err := New(k, Options{Tolerance: 1e-9}).Solve(ctx, zeros(50, 3), b); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// A column's iterates must not depend on the columns beside it.
func TestColumnsAreIndependent(t *testing.T) {
	k := spd(60, 1e4)
	b, x := columns(60, 4, 6), zeros(60, 4)
	s := New(k, Options{Tolerance: 1e-8, Budget: parallel.NewBudget(3)})
	if _, err := s.Solve(context.Background(), x, b); err != nil {
		t.Fatal(err)
	}
	alone := zeros(60, 1)
	if _, err := s.Solve(context.Background(), alone, b[2:3]); err != nil {
		t.Fatal(err)
	}
	if !floats.Equal(alone[0], x[2]) {
		t.Error("column 2 alone differs from column 2 among others")
	}
}

// forced is a source whose Float64 is 0 for the first k numbers and then as
// close to 1 as it can be: it makes a tail stop after k steps.
type forced struct{ k int }

func (f *forced) Uint64() uint64 {
	f.k--
	if f.k >= 0 {
		return 0
	}
	return math.MaxUint64
}

// recorder notes the probabilities that a law gave.
type recorder struct {
	Law
	probs []float64
}

func (r *recorder) Prob(j int, steps []Step) float64 {
	p := r.Law.Prob(j, steps)
	r.probs = append(r.probs, p)
	return p
}

// E[x̃] is computed exactly, by running every stopping time and weighing the
// results with their probabilities: averaging draws would need 10⁷ of them to
// see the fifth step of the paper's law.
func TestEstimateIsUnbiased(t *testing.T) {
	const n = 60
	ctx := context.Background()
	for _, cond := range []float64{1e1, 1e3} {
		for _, law := range []Law{PaperLaw{1}, PaperLaw{100}, GeometricLaw{0.8}, DecayLaw{0.3, 0.98}, OptimalLaw{0.3}} {
			for _, q := range []float64{0.1, 1, 10} { // at 10 the tail begins at once
				for _, pre := range []bool{false, true} {
					if law == (PaperLaw{1}) && q == 10 {
						continue // the weights exp(j²/2) of such a long tail overflow
					}
					k := spd(n, cond)
					opt := Options{Tolerance: 1e-12}
					if pre {
						opt.Precond = diagonal(k)
					}
					b := columns(n, 1, 7)
					x0 := columns(n, 1, 8)
					want := make([]float64, n)
					survive := 1.0
					for stop := 0; ; stop++ {
						rec := &recorder{Law: law}
						x := [][]float64{append([]float64(nil), x0[0]...)}
						est, rep, err := New(k, opt).Estimate(ctx, x, b, Early{Q: q, Law: rec, Streams: func(int) int { return 1 },
							Rand: func(int, int) *rand.Rand { return rand.New(&forced{k: stop}) }})
						if err != nil || rep.Unconverged != 0 {
							t.Fatal(rep, err)
						}
						// The tail ended by itself if the last probability was accepted.
						ended := len(rec.probs) <= stop
						p := survive
						if !ended {
							next := rec.probs[len(rec.probs)-1]
							p *= 1 - next
							survive *= next
						}
						floats.AddScaled(want, p, est[0][0])
						if ended {
							break
						}
						if stop > 10*n {
							t.Fatal("the tail does not end")
						}
					}
					x := exact(t, k, b[0])
					// Weights up to 1/P amplify rounding: compare at 1e-6.
					if e := floats.Distance(want, x, 2) / floats.Norm(x, 2); e > 1e-6 {
						t.Errorf("cond=%g law=%+v q=%g precond=%v: expectation off by %g", cond, law, q, pre, e)
					}
				}
			}
		}
	}
}

// Two streams over one CG run have the same expectation and different
// stopping times, and stopping early saves iterations.
func TestEstimateStreams(t *testing.T) {
	const n = 100
	k := spd(n, 1e3)
	b := columns(n, 2, 9)
	opt := Options{Tolerance: 1e-10}
	full, err := New(k, opt).Solve(context.Background(), zeros(n, 2), b)
	if err != nil {
		t.Fatal(err)
	}
	early := Early{Q: 1, Law: GeometricLaw{0.7}, Streams: func(int) int { return 2 }, Rand: func(c, s int) *rand.Rand {
		return random.Key{Seed: 3}.Stream(random.Stopping, 2*c+s)
	}}
	est, rep, err := New(k, opt).Estimate(context.Background(), zeros(n, 2), b, early)
	if err != nil {
		t.Fatal(err)
	}
	if floats.Equal(est[0][0], est[0][1]) {
		t.Error("the two streams stopped together")
	}
	if rep.MeanIterations() >= full.MeanIterations() {
		t.Errorf("%v iterations, %v without early stopping", rep.MeanIterations(), full.MeanIterations())
	}
}

func TestLawsFollowTheDecay(t *testing.T) {
	steps := []Step{{1, 1}}
	for range 20 {
		last := steps[len(steps)-1]
		steps = append(steps, Step{last.Norm * 0.8, last.Energy * 0.7})
	}
	d, o := DecayLaw{0.1, 0.99}, OptimalLaw{0.1}
	if p := d.Prob(3, steps); math.Abs(p-0.8) > 1e-12 {
		t.Errorf("decay: probability %v for a decay of 0.8", p)
	}
	for j := 1; j < 21; j++ { // S_j = 0.7^j, wherever the tail begins
		if p := o.Prob(j, steps); math.Abs(p-0.7) > 1e-12 && j < 20 {
			t.Errorf("optimal: probability %v of step %d for a decay of 0.7", p, j)
		}
	}
	if p := d.Prob(1, steps[:1]); p != 0.99 {
		t.Errorf("decay: probability %v after one step", p)
	}
	if p := o.Prob(1, steps[:1]); math.Abs(p-maxProb) > 1e-12 {
		t.Errorf("optimal: probability %v after one step", p)
	}
	flat := []Step{{1, 1}, {1, 1e-30}}
	if p := o.Prob(1, flat); math.Abs(p-0.1) > 1e-12 {
		t.Errorf("optimal: probability %v below its bound", p)
	}
}

// moments returns the exact mean square error of Estimate in the K-norm and its
// expected number of steps: stream k of one run is made to stop after k steps of
// the tail.
func moments(t *testing.T, k *dense, opt Options, law Law, q float64, b []float64) (variance, cost float64) {
	t.Helper()
	n := k.Len()
	rec := &recorder{Law: law}
	streams := 10 * n
	est, rep, err := New(k, opt).Estimate(context.Background(), zeros(n, 1), [][]float64{b}, Early{Q: q, Law: rec,
		Streams: func(int) int { return streams },
		Rand:    func(_, s int) *rand.Rand { return rand.New(&forced{k: s}) }})
	if err != nil || rep.Unconverged != 0 {
		t.Fatal(rep, err)
	}
	x := exact(t, k, b)
	cost = float64(rep.Iterations[0] - len(rec.probs) + 1)
	survive := 1.0
	for s := range len(rec.probs) + 1 {
		p := survive
		if s < len(rec.probs) {
			survive *= rec.probs[s]
			p -= survive
			cost += survive
		}
		e := mat.NewVecDense(n, nil)
		e.SubVec(mat.NewVecDense(n, est[0][s]), mat.NewVecDense(n, x))
		variance += p * mat.Inner(e, k, e)
	}
	return variance, cost
}

// The optimal law has, for what it costs, nearly the least variance that any law
// can have, CG preconditioned or not: within 4 times of it (it must foresee the
// steps, and CG's are erratic on these matrices), where the paper's is beyond by
// orders of magnitude. The least variance is that of
// S_j = min(1, s·‖δ_j‖_K) for the lengths that the steps turn out to have, made
// to fall, s set for the same cost.
func TestOptimalLawIsNearlyOptimal(t *testing.T) {
	const n = 80
	for _, cond := range []float64{1e2, 1e4} {
		for _, pre := range []bool{false, true} {
			k := spd(n, cond)
			opt := Options{Tolerance: 1e-10}
			if pre {
				opt.Precond = diagonal(k)
			}
			b := columns(n, 1, 7)[0]
			spy := &recorder{Law: GeometricLaw{1}}
			energies := &lengths{Law: spy}
			if _, full := moments(t, k, opt, energies, 1, b); full == 0 {
				t.Fatal("no cost")
			}
			least := func(cost float64) float64 {
				first := len(energies.steps) - len(energies.tail) - 1
				lo, hi := -100.0, 100.0
				pooled := decreasing(energies.tail)
				at := func(s float64) (v, c float64) {
					c = float64(first) + 1
					for j, e := range energies.tail {
						p := min(1, math.Exp(s)*pooled[j])
						v += e * e * (1/p - 1)
						c += p
					}
					return v, c
				}
				for range 100 {
					if _, c := at((lo + hi) / 2); c < cost {
						lo = (lo + hi) / 2
					} else {
						hi = (lo + hi) / 2
					}
				}
				v, _ := at(lo)
				return v
			}
			v, c := moments(t, k, opt, OptimalLaw{0.1}, 1, b)
			vp, cp := moments(t, k, opt, PaperLaw{30}, 1, b)
			t.Logf("cond=%g precond=%v: optimal %.3g at %.1f steps, %.2f times the least; paper's β=30 %.3g at %.1f, %.3g times", cond, pre, v, c, v/least(c), vp, cp, vp/least(cp))
			if !(v < 4*least(c)) || vp < v && cp < c {
				t.Errorf("cond=%g precond=%v: variance %v, %v times the least for %v steps", cond, pre, v, v/least(c), c)
			}
		}
	}
}

// decreasing returns the best decreasing approximation of x in the root mean
// square: neighbours that rise are pooled.
func decreasing(x []float64) []float64 {
	type pool struct{ square, n float64 }
	var pools []pool
	for _, v := range x {
		pools = append(pools, pool{v * v, 1})
		for k := len(pools) - 1; k > 0 && pools[k].square/pools[k].n > pools[k-1].square/pools[k-1].n; k-- {
			pools[k-1] = pool{pools[k-1].square + pools[k].square, pools[k-1].n + pools[k].n}
			pools = pools[:k]
		}
	}
	var out []float64
	for _, p := range pools {
		for range int(p.n) {
			out = append(out, math.Sqrt(p.square/p.n))
		}
	}
	return out
}

// lengths notes the energies of the tail's steps from the second on.
type lengths struct {
	Law
	steps []Step
	tail  []float64
}

func (l *lengths) Prob(j int, steps []Step) float64 {
	if j > 1 {
		l.tail = append(l.tail, steps[len(steps)-1].Energy)
	}
	l.steps = append(l.steps[:0], steps...)
	return l.Law.Prob(j, steps)
}

// cholRoot is the Cholesky factor of a matrix as a Root.
type cholRoot struct{ l *mat.TriDense }

func newCholRoot(k *dense) cholRoot {
	var chol mat.Cholesky
	chol.Factorize(k.SymDense)
	l := mat.NewTriDense(k.Len(), mat.Lower, nil)
	chol.LTo(l)
	return cholRoot{l}
}

func (r cholRoot) solve(dst, v [][]float64, trans bool) {
	for c := range v {
		var x mat.VecDense
		if trans {
			x.SolveVec(r.l.T(), mat.NewVecDense(len(v[c]), v[c]))
		} else {
			x.SolveVec(r.l, mat.NewVecDense(len(v[c]), v[c]))
		}
		copy(dst[c], x.RawVector().Data)
	}
}

func (r cholRoot) SolveRoot(dst, v [][]float64)      { r.solve(dst, v, false) }
func (r cholRoot) SolveRootTrans(dst, v [][]float64) { r.solve(dst, v, true) }

// A·Aᵀ = K⁻¹, column by column: A is applied to the identity.
func TestInvSqrt(t *testing.T) {
	const n = 40
	k := spd(n, 1e4)
	near := spd(n, 1e4)
	for i := range n {
		near.SetSym(i, i, near.At(i, i)*1.3)
	}
	for name, root := range map[string]Root{"none": nil, "exact": newCholRoot(k), "near": newCholRoot(near)} {
		eye, a := zeros(n, n), zeros(n, n)
		for i := range eye {
			eye[i][i] = 1
		}
		s := New(k, Options{Tolerance: 1e-9, Budget: parallel.NewBudget(2)})
		rep, err := s.InvSqrt(context.Background(), a, eye, root)
		if err != nil || rep.Unconverged != 0 {
			t.Fatal(rep, err)
		}
		// A's columns are a[c]: K·A·Aᵀ must be the identity.
		m := mat.NewDense(n, n, nil)
		for c := range a {
			m.SetCol(c, a[c])
		}
		var aat, id mat.Dense
		aat.Mul(m, m.T())
		id.Mul(k, &aat)
		for i := range n {
			id.Set(i, i, id.At(i, i)-1)
		}
		if e := mat.Norm(&id, math.Inf(1)); e > 1e-4 {
			t.Errorf("%s: ‖K·A·Aᵀ − I‖ = %g", name, e)
		}
		if name == "exact" && rep.MeanIterations() > 6 { // two tests of convergence
			t.Errorf("%v iterations with an exact factor", rep.MeanIterations())
		}
	}
	// Few iterations are said to be few.
	u := zeros(n, 1)
	rep, err := New(k, Options{Tolerance: 1e-9, MaxIter: 3}).InvSqrt(context.Background(), u, columns(n, 1, 1), nil)
	if err != nil || rep.Unconverged != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// With a target K^½w is right to about that norm, in fewer iterations than a relative tolerance far below it takes.
func TestSqrtWithTarget(t *testing.T) {
	const n, target = 60, 0.05
	k, w := spd(n, 1e4), columns(n, 1, 1)
	root := zeros(n, 1)
	var eig mat.EigenSym
	if !eig.Factorize(k, true) {
		t.Fatal("no eigenvalues")
	}
	var q mat.Dense
	eig.VectorsTo(&q)
	var x mat.VecDense
	x.MulVec(q.T(), mat.NewVecDense(n, w[0]))
	for i, v := range eig.Values(nil) {
		x.SetVec(i, x.AtVec(i)*math.Sqrt(v))
	}
	mat.NewVecDense(n, root[0]).MulVec(&q, &x)
	s := New(k, Options{Tolerance: 1e-10})
	var its []float64
	for _, targets := range [][]float64{nil, {target}} {
		s.SetTargets(targets)
		u := zeros(n, 1)
		rep, err := s.Sqrt(t.Context(), u, w)
		if err != nil || rep.Unconverged > 0 {
			t.Fatal(rep, err)
		}
		its = append(its, rep.MeanIterations())
		if off := floats.Distance(u[0], root[0], 2); off > 3*target || targets == nil && off > 1e-6 {
			t.Errorf("with targets %v the root is off by %v", targets, off)
		}
	}
	if its[1] >= its[0] {
		t.Errorf("%v iterations with a target, %v without", its[1], its[0])
	}
}
