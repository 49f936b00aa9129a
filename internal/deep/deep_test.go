package deep

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table returns n rows of d normal inputs, and targets that are a smooth function of them with noise of variance 0.04.
func table(n, d int, seed uint64) (*kernel.Inputs, []float64) {
	r := random.Key{Seed: seed}.Stream(random.Synthetic, 0)
	x, y := make([]float64, n*d), make([]float64, n)
	random.Normal(r, x)
	for i := range y {
		y[i] = math.Sin(2*x[i*d]) + 0.2*r.NormFloat64()
		for k := range d {
			y[i] += 0.3 * x[i*d+k]
		}
	}
	return kernel.NewInputs(n, d, x), y
}

// scattered moves each number of a start by a normal one.
func scattered(n *Network, sd float64) []float64 {
	x := n.Start()
	r := rand.New(rand.NewPCG(9, 9))
	for i := range x {
		x[i] += sd * r.NormFloat64()
	}
	return x
}

func outputs(y []float64) map[string]Output {
	class := make([]int, len(y))
	for i, v := range y {
		class[i] = int(math.Abs(10*v)) % 3
	}
	return map[string]Output{"gaussian": Gaussian{Y: y}, "softmax": Softmax{Class: class, Classes: 3}}
}

// The gradient of the bound is that of central differences at the same random numbers, for all treatments of frequencies, both covariances, both outputs, one to three layers.
func TestGradientAgainstDifferences(t *testing.T) {
	in, y := table(70, 2, 1) // two chunks
	rows := []int{0, 3, 4, 9, 17, 33}
	for i := 5; i < 70; i++ {
		rows = append(rows, i)
	}
	slices.Sort(rows)
	rows, b := slices.Compact(rows), parallel.NewBudget(2)
	for _, cov := range Covariances {
		for _, freq := range Treatments {
			for name, out := range outputs(y) {
				for layers := 1; layers <= 3; layers++ {
					n := New(Config{Inputs: 2, Layers: layers, Features: 5, Hidden: 2, Covariance: cov, Frequencies: freq, ARD: layers != 2, Seed: 4}, out)
					differ(t, fmt.Sprint(cov, freq, name, layers), n, scattered(n, 0.3), in, rows, b)
				}
			}
		}
	}
}

// differ compares the gradient along random directions and along a few coordinates of each kind with differences.
func differ(t *testing.T, what string, n *Network, x []float64, in *kernel.Inputs, rows []int, b *parallel.Budget) {
	t.Helper()
	_, grad, err := n.Bound(t.Context(), x, in.Len(), rows, 7, Alone{in, b})
	if err != nil {
		t.Fatal(err)
	}
	at := func(x []float64) float64 {
		v, _, err := n.Bound(context.Background(), x, in.Len(), rows, 7, Alone{in, b})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const h = 1e-6
	r := rand.New(rand.NewPCG(1, 2))
	for range 25 {
		i := r.IntN(len(x))
		up, down := slices.Clone(x), slices.Clone(x)
		up[i] += h
		down[i] -= h
		if want := (at(up) - at(down)) / (2 * h); math.Abs(grad[i]-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("%s: derivative %d of %d is %g, by differences %g", what, i, len(x), grad[i], want)
		}
	}
	for l, y := range n.layers { // those of which there are few
		for _, i := range []int{y.sigma, y.tau, len(x) - 1} {
			up, down := slices.Clone(x), slices.Clone(x)
			up[i] += h
			down[i] -= h
			if want := (at(up) - at(down)) / (2 * h); math.Abs(grad[i]-want) > 1e-4*(1+math.Abs(want)) {
				t.Errorf("%s: layer %d, derivative %d is %g, by differences %g", what, l, i, grad[i], want)
			}
		}
	}
}

// φ(x)·φ(z) is the mean of N independent terms in [−σ, σ] of expectation k(x,z), of arc-cosine of a variance below (k(x,x)k(z,z))·5: |error| < 5 standard errors for
// 8000 features in each of 21 pairs; false alarms about 1 in 10⁵ for another seed.
func TestFeaturesHaveTheirCovariance(t *testing.T) {
	const features = 8000
	in, _ := table(6, 3, 2)
	for _, cov := range Covariances {
		n := New(Config{Inputs: 3, Layers: 1, Features: features, Hidden: 1, Covariance: cov, Frequencies: PriorFixed, ARD: true, Seed: 3}, Gaussian{})
		x := n.Start()
		x[0], x[1], x[2], x[3] = math.Log(1.7), math.Log(0.4), math.Log(0.9), math.Log(0.1)
		phi := n.At(x, 1).layers[0].features(gather(in, span(6)))
		for i := range 6 {
			for j := range i + 1 {
				got := floats.Dot(phi.Data[i*phi.Cols:(i+1)*phi.Cols], phi.Data[j*phi.Cols:(j+1)*phi.Cols])
				want, sd := covariance(cov, x, in.Row(i), in.Row(j))
				if math.Abs(got-want) > 5*sd/math.Sqrt(features) {
					t.Errorf("%s: features of rows %d and %d have the product %g, the covariance is %g ± %g", cov, i, j, got, want, sd/math.Sqrt(features))
				}
			}
		}
	}
}

// covariance returns the closed form at x, and a bound on the standard deviation of a feature's product.
func covariance(c Covariance, x, a, b []float64) (k, sd float64) {
	sigma := math.Exp(x[0])
	var u, aa, bb, ab float64
	for i := range a {
		tau := math.Exp(x[1+i])
		u += tau * (a[i] - b[i]) * (a[i] - b[i])
		aa, bb, ab = aa+2*tau*a[i]*a[i], bb+2*tau*b[i]*b[i], ab+2*tau*a[i]*b[i]
	}
	if c == RBF {
		return sigma * math.Exp(-u), sigma
	}
	norm := math.Sqrt(aa * bb)
	angle := math.Acos(min(1, ab/norm))
	return sigma / math.Pi * norm * (math.Sin(angle) + (math.Pi-angle)*math.Cos(angle)), sigma * norm * math.Sqrt(6)
}

// linear is Bayesian linear regression on the features, by Cholesky's factor: w ~ N(0,I), y ~ N(Φw, λI).
type linear struct {
	precision mat.SymDense // of w given y
	mean      mat.VecDense
	evidence  float64
}

func newLinear(t *testing.T, phi matrix, y []float64, lambda float64) *linear {
	t.Helper()
	l, f, target := &linear{}, mat.NewDense(phi.Rows, phi.Cols, phi.Data), mat.NewVecDense(len(y), y)
	l.precision.SymOuterK(1/lambda, f.T())
	for i := range phi.Cols {
		l.precision.SetSym(i, i, l.precision.At(i, i)+1)
	}
	var shift mat.VecDense
	shift.MulVec(f.T(), target)
	shift.ScaleVec(1/lambda, &shift)
	var chol mat.Cholesky
	if !chol.Factorize(&l.precision) || chol.SolveVecTo(&l.mean, &shift) != nil {
		t.Fatal("no factor")
	}
	var k mat.SymDense
	k.SymOuterK(1, f)
	for i := range phi.Rows {
		k.SetSym(i, i, k.At(i, i)+lambda)
	}
	var c mat.Cholesky
	var a mat.VecDense
	if !c.Factorize(&k) || c.SolveVecTo(&a, target) != nil {
		t.Fatal("no factor")
	}
	l.evidence = -0.5 * (mat.Dot(target, &a) + c.LogDet() + float64(len(y))*math.Log(2*math.Pi))
	return l
}

// With one layer, fixed features and normal noise the model is Bayesian linear regression. The best factorised posterior has its mean, and as variances the
// inverse diagonal of its precision (Bishop 2006, section 10.1.2); there the gradient by weights vanishes, and the bound is below the evidence by
// ½(Σ log P_ii − log|P|).
func TestOneLayerIsLinearRegression(t *testing.T) {
	in, y := table(60, 2, 5)
	b := parallel.NewBudget(1)
	for _, cov := range Covariances {
		n := New(Config{Inputs: 2, Layers: 1, Features: 7, Hidden: 1, Covariance: cov, Frequencies: PriorFixed, ARD: true, Seed: 8}, Gaussian{Y: y})
		x := n.Start()
		x[n.Own()] = math.Log(0.3)
		l := newLinear(t, n.At(x, 1).layers[0].features(gather(in, span(60))), y, 0.3)
		first := n.layers[0]
		want := slices.Clone(x)
		gap := 0.0
		for k := range first.width {
			want[first.m+k], want[first.s+k] = l.mean.AtVec(k), -math.Log(l.precision.At(k, k))
			gap += 0.5 * math.Log(l.precision.At(k, k))
		}
		var chol mat.Cholesky
		chol.Factorize(&l.precision)
		gap -= 0.5 * chol.LogDet()
		value, grad, err := n.Bound(t.Context(), want, in.Len(), span(60), 1, Alone{in, b})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(value-(l.evidence-gap)) > 1e-8 || gap <= 0 {
			t.Errorf("%s: bound %.10g at the best posterior, the evidence is %.10g and the gap %.3g", cov, value, l.evidence, gap)
		}
		for k := first.m; k < n.Own(); k++ {
			if math.Abs(grad[k]) > 1e-8 {
				t.Errorf("%s: derivative %d is %g at the best posterior", cov, k, grad[k])
			}
		}
		held := make([]bool, n.Size())
		for k := range first.m {
			held[k] = true
		}
		held[n.Own()] = true
		values, err := n.Learn(t.Context(), x, in.Len(), Options{Steps: 6000, Minibatch: 60, Step: 0.05, Held: held}, Alone{in, b})
		if err != nil {
			t.Fatal(err)
		}
		if d := floats.Distance(x, want, math.Inf(1)); d > 1e-3 || values[len(values)-1] > value+1e-9 {
			t.Errorf("%s: learning ends %g from the best posterior, at the bound %.10g, the best is %.10g", cov, d, values[len(values)-1], value)
		}
		mean, variance, err := n.Draw(want, 3).Latent(t.Context(), in, b)
		if err != nil {
			t.Fatal(err)
		}
		phi := n.At(want, 1).layers[0].features(gather(in, span(60)))
		for i := range y {
			row := phi.Data[i*phi.Cols : (i+1)*phi.Cols]
			v := 0.0
			for k, f := range row {
				v += f * f / l.precision.At(k, k)
			}
			if math.Abs(mean[i]-floats.Dot(row, l.mean.RawVector().Data)) > 1e-9 || math.Abs(variance[i]-v) > 1e-9 {
				t.Fatalf("%s: row %d is predicted as %g, variance %g", cov, i, mean[i], variance[i])
			}
		}
	}
}

// The Kullback-Leibler divergence is the expectation of log q − log p: by 4·10⁵ draws of each weight and frequency, within five standard errors (false alarms about 1 in 10⁶).
func TestDivergence(t *testing.T) {
	n := New(Config{Inputs: 2, Layers: 1, Features: 1, Hidden: 1, Covariance: ArcCosine, Frequencies: VariationalFixed, ARD: true, Seed: 1}, Gaussian{})
	x := scattered(n, 0.7)
	got, y := n.Divergence(x, make([]float64, n.Size())), n.layers[0]
	normals := []struct{ m, lv, prior float64 }{{x[y.m], x[y.s], 0}, {x[y.mu], x[y.beta], math.Ln2 + x[y.tau]}, {x[y.mu+1], x[y.beta+1], math.Ln2 + x[y.tau+1]}}
	const draws = 400_000
	r := rand.New(rand.NewPCG(5, 6))
	var sum, squares float64
	for range draws {
		d := 0.0
		for _, q := range normals {
			e := r.NormFloat64()
			w := q.m + math.Exp(q.lv/2)*e
			d += 0.5*(w*w*math.Exp(-q.prior)+q.prior) - 0.5*(e*e+q.lv)
		}
		sum, squares = sum+d/draws, squares+d*d/draws
	}
	if se := math.Sqrt((squares - sum*sum) / draws); math.Abs(got-sum) > 5*se {
		t.Errorf("divergence %g, by draws %g ± %g", got, sum, se)
	}
}

// Minibatches and random numbers leave the bound unbiased: the mean over 400 steps is within five standard errors of that over all rows (false alarms about 1 in 10⁶).
// Bits do not depend on threads.
func TestBoundIsUnbiased(t *testing.T) {
	in, y := table(200, 2, 6)
	for name, out := range outputs(y) {
		n := New(Config{Inputs: 2, Layers: 2, Features: 6, Hidden: 2, Covariance: RBF, Frequencies: Resampled, ARD: true, Seed: 2}, out)
		x := scattered(n, 0.2)
		want, se, err := n.Evidence(t.Context(), x, in.Len(), 200, Alone{in, parallel.NewBudget(2)})
		if err != nil {
			t.Fatal(err)
		}
		const steps = 400
		var sum, squares float64
		for step := 1; step <= steps; step++ {
			v, g, err := n.Bound(t.Context(), x, in.Len(), Minibatch(200, 80, 1, step), step, Alone{in, parallel.NewBudget(1)})
			if err != nil {
				t.Fatal(err)
			}
			sum, squares = sum+v/steps, squares+v*v/steps
			if step > 3 {
				continue
			}
			again, h, _ := n.Bound(t.Context(), x, in.Len(), Minibatch(200, 80, 1, step), step, Alone{in, parallel.NewBudget(3)})
			if v != again || !slices.Equal(g, h) {
				t.Errorf("%s: step %d has other bits with more threads", name, step)
			}
		}
		if all := math.Sqrt((squares-sum*sum)/steps + se*se); math.Abs(sum-want) > 5*all {
			t.Errorf("%s: bound %g by minibatches, %g by all rows, ± %g", name, sum, want, all)
		}
	}
}

// The bound of a deep network is below its evidence, which by Jensen's inequality is at least the log of the mean of the likelihood over draws of the prior, here of few rows, so that draws tell it.
func TestBoundIsBelowTheEvidence(t *testing.T) {
	in, y := table(4, 1, 7)
	n := New(Config{Inputs: 1, Layers: 2, Features: 20, Hidden: 1, Covariance: RBF, Frequencies: PriorFixed, ARD: true, Seed: 3}, Gaussian{Y: y})
	x := n.Start()
	x[n.Own()] = math.Log(0.5)
	held := make([]bool, n.Size())
	for _, l := range n.layers {
		for k := l.sigma; k < l.m; k++ {
			held[k] = true
		}
	}
	held[n.Own()] = true
	if _, err := n.Learn(t.Context(), x, in.Len(), Options{Steps: 2000, Minibatch: 4, Step: 0.02, Held: held}, Alone{in, parallel.NewBudget(1)}); err != nil {
		t.Fatal(err)
	}
	bound, se, err := n.Evidence(t.Context(), x, in.Len(), 500, Alone{in, parallel.NewBudget(1)})
	if err != nil {
		t.Fatal(err)
	}
	evidence, error := logEvidence(n, x, in, y, 0.5, 20_000)
	if bound-3*se > evidence+3*error || bound < evidence-3 {
		t.Errorf("bound %g ± %g, evidence %g ± %g", bound, se, evidence, error)
	}
}

// logEvidence draws the weights of the first layer from the prior, and averages the closed density of the targets given these. The error is
// of the delta method.
func logEvidence(n *Network, x []float64, in *kernel.Inputs, y []float64, lambda float64, draws int) (value, se float64) {
	s := n.At(x, 1)
	rows := gather(in, span(in.Len()))
	phi := s.layers[0].features(rows)
	r := rand.New(rand.NewPCG(3, 4))
	logs := make([]float64, draws)
	for t := range logs {
		z := newMatrix(in.Len(), 2)
		w := make([]float64, phi.Cols)
		random.Normal(r, w)
		for i := range y {
			z.Data[2*i], z.Data[2*i+1] = floats.Dot(phi.Data[i*phi.Cols:(i+1)*phi.Cols], w), rows.Data[i]
		}
		f := s.layers[1].features(z)
		var k mat.SymDense
		k.SymOuterK(1, mat.NewDense(f.Rows, f.Cols, f.Data))
		for i := range y {
			k.SetSym(i, i, k.At(i, i)+lambda)
		}
		var c mat.Cholesky
		var a mat.VecDense
		c.Factorize(&k)
		_ = c.SolveVecTo(&a, mat.NewVecDense(len(y), y))
		logs[t] = -0.5 * (mat.Dot(mat.NewVecDense(len(y), y), &a) + c.LogDet() + float64(len(y))*math.Log(2*math.Pi))
	}
	value = floats.LogSumExp(logs) - math.Log(float64(draws))
	for _, v := range logs {
		d := math.Exp(v-value) - 1
		se += d * d
	}
	return value, math.Sqrt(se) / float64(draws)
}

// Learning is a function of the seed, to the last bit, and two layers learn a function with a jump better than the start.
func TestLearnIsRepeatable(t *testing.T) {
	in, y := table(150, 2, 8)
	learn := func(cores int, seed uint64) ([]float64, []float64) {
		n := New(Config{Inputs: 2, Layers: 2, Features: 10, Hidden: 2, Covariance: RBF, Frequencies: VariationalFixed, ARD: true, Seed: seed}, Gaussian{Y: y})
		x := n.Start()
		values, err := n.Learn(t.Context(), x, in.Len(), Options{Steps: 60, Minibatch: 130, Step: 0.03}, Alone{in, parallel.NewBudget(cores)})
		if err != nil {
			t.Fatal(err)
		}
		return x, values
	}
	x, values := learn(1, 1)
	again, _ := learn(3, 1)
	other, _ := learn(1, 2)
	if !slices.Equal(x, again) || slices.Equal(x, other) {
		t.Error("learning is not a function of the seed")
	}
	if values[59] < values[0]+50 {
		t.Errorf("the bound goes from %g to %g", values[0], values[59])
	}
}

// What a draw says of a row is of that row alone, and another draw says something else where something is random.
func TestDrawsOfARow(t *testing.T) {
	in, y := table(90, 2, 8)
	for _, freq := range Treatments {
		for layers := 1; layers <= 2; layers++ {
			n := New(Config{Inputs: 2, Layers: layers, Features: 10, Hidden: 2, Covariance: RBF, Frequencies: freq, Seed: 1}, Gaussian{Y: y})
			x, b := scattered(n, 0.3), parallel.NewBudget(2)
			var means []float64
			for i := range 2 {
				mean, variance, err := n.Draw(x, i).Latent(t.Context(), in, b)
				if err != nil {
					t.Fatal(err)
				}
				one, of, err := n.Draw(x, i).Latent(t.Context(), in.Select([]int{77}), b)
				if err != nil || one[0] != mean[77] || of[0] != variance[77] {
					t.Errorf("row 77 alone: %g, %g, beside others %g, %g (%v)", one, of, mean[77], variance[77], err)
				}
				means = append(means, mean[77])
			}
			if (means[0] != means[1]) != n.Random() {
				t.Errorf("%s, %d layers: two draws are %g, and random is %v", freq, layers, means, n.Random())
			}
		}
	}
}

// tensor returns the nodes of a Gauss-Hermite rule for independent standard normal variables, points × variables, with their weights.
func tensor(variables, nodes int) (points [][]float64, weights []float64) {
	z, w := make([]float64, nodes), make([]float64, nodes)
	quad.Hermite{}.FixedLocations(z, w, math.Inf(-1), math.Inf(1))
	points, weights = [][]float64{nil}, []float64{1}
	for range variables {
		var p [][]float64
		var v []float64
		for i, before := range points {
			for k := range z {
				p = append(p, append(slices.Clone(before), math.Sqrt2*z[k]))
				v = append(v, weights[i]*w[k]/math.Sqrt(math.Pi))
			}
		}
		points, weights = p, v
	}
	return points, weights
}

// With one layer of fixed frequencies the functions of the classes in a row are independent normals, and the bound is Σ_i E log p(y_i|f_i) − Σ ½(v + m² − 1 − log v), here by
// quadrature over all three functions (14 nodes each; with 20 the sum is the same to 1e-5). The estimate of the bound, and of its derivatives by means and log variances of weights, which are those of
// differences of the quadrature, is the mean of 2,000 draws: within five standard errors, for 20 derivatives (false alarms about 1 in 10⁵ for another seed).
func TestClassesBoundAgainstQuadrature(t *testing.T) {
	in, y := table(15, 2, 11)
	out := outputs(y)["softmax"].(Softmax)
	n := New(Config{Inputs: 2, Layers: 1, Features: 3, Hidden: 1, Covariance: RBF, Frequencies: PriorFixed, ARD: true, Seed: 5}, out)
	x, first, rows := scattered(n, 0.6), n.layers[0], span(15)
	for k := range first.width * first.out {
		x[first.s+k] = -0.5 + 0.1*float64(k%7)
	}
	phi := n.At(x, 1).layers[0].features(gather(in, rows))
	nodes, weights := tensor(3, 14)
	bound := func(x []float64) float64 {
		sum := 0.0
		for i := range rows {
			var mean, sd [3]float64
			for c := range 3 {
				v := 0.0
				for k := range first.width {
					f := phi.Data[i*phi.Cols+k]
					mean[c] += f * x[first.m+k*3+c]
					v += f * f * math.Exp(x[first.s+k*3+c])
				}
				sd[c] = math.Sqrt(v)
			}
			for q, z := range nodes {
				total := 0.0
				for c := range 3 {
					total += math.Exp(mean[c] + sd[c]*z[c])
				}
				of := out.Class[i]
				sum += weights[q] * (mean[of] + sd[of]*z[of] - math.Log(total))
			}
		}
		for k := range first.width * 3 {
			m, lv := x[first.m+k], x[first.s+k]
			sum -= 0.5 * (math.Exp(lv) + m*m - 1 - lv)
		}
		return sum
	}
	const draws = 2000
	at := []int{}
	for k := range 10 {
		at = append(at, first.m+k, first.s+k)
	}
	sums, squares := make([]float64, len(at)+1), make([]float64, len(at)+1)
	for step := range draws {
		value, grad, err := n.Bound(t.Context(), x, in.Len(), rows, 1+step, Alone{in, parallel.NewBudget(1)})
		if err != nil {
			t.Fatal(err)
		}
		for k := range sums {
			v := value
			if k < len(at) {
				v = grad[at[k]]
			}
			sums[k] += v / draws
			squares[k] += v * v / draws
		}
	}
	const h = 1e-4
	for k, got := range sums {
		want := bound(x)
		if k < len(at) {
			up, down := slices.Clone(x), slices.Clone(x)
			up[at[k]] += h
			down[at[k]] -= h
			want = (bound(up) - bound(down)) / (2 * h)
		}
		if se := math.Sqrt((squares[k] - got*got) / draws); math.Abs(got-want) > 5*se+1e-5 {
			t.Errorf("estimate %d (the last is the bound) is %.5g ± %.2g, by quadrature %.5g", k, got, se, want)
		}
	}
}
