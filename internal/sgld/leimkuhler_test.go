package sgld

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// The stationary covariance on a Gaussian posterior is C at every step, with
// noise in the gradient and without: that of (ψ−μ, z) is carried through the
// recursion until it stands.
func TestLeimkuhlerLeavesTheGaussianInvariant(t *testing.T) {
	for name, s := range map[string]*mat.SymDense{"noise": testS, "no noise": sym(3, make([]float64, 9)...)} {
		for _, eps := range []float64{0.1, 0.5, 1, 1.5} {
			k, err := NewLeimkuhler(testC, s, eps)
			if err != nil {
				t.Fatal(err)
			}
			// ψ' = (1−ε/2)ψ + old·z + fresh·z' + (ε/2)C·n
			cov, cross := mat.NewDense(3, 3, nil), mat.NewDense(3, 3, nil) // Cov(ψ), Cov(ψ,z)
			for range 2000 {
				var next, oo, ff, csc, co mat.Dense
				next.Scale((1-eps/2)*(1-eps/2), cov)
				oo.Mul(k.old, k.old.T())
				ff.Mul(k.fresh, k.fresh.T())
				csc.Product(testC, s, testC)
				csc.Scale(eps*eps/4, &csc)
				co.Mul(cross, k.old.T())
				co.Scale(1-eps/2, &co)
				for _, m := range []mat.Matrix{&oo, &ff, &csc, &co, co.T()} {
					next.Add(&next, m)
				}
				cov.Copy(&next)
				cross.Copy(k.fresh)
			}
			if !mat.EqualApprox(cov, testC, 1e-12) {
				t.Errorf("%s, ε=%v: stationary covariance\n%v", name, eps, mat.Formatted(cov))
			}
			if k.Budget <= 0 {
				t.Errorf("%s, ε=%v: noise budget %v", name, eps, k.Budget)
			}
		}
	}
	if _, err := NewLeimkuhler(testC, sym(3, 90, 0, 0, 0, 90, 0, 0, 0, 90), 1); err == nil {
		t.Error("more noise than the step allows was accepted")
	}
}

// A chain with noisy gradients on a Gaussian target: each mean and variance
// within 4.5 Monte Carlo errors (batch means, 200 batches), six tests: false
// alarms below 1 in 10⁴.
func TestLeimkuhlerOnAGaussian(t *testing.T) {
	const eps, steps, batch = 1.0, 100_000, 500
	mu := []float64{1, -2, 0.5}
	var chol mat.Cholesky
	chol.Factorize(testC)
	var noise mat.Cholesky
	noise.Factorize(testS)
	var l mat.TriDense
	noise.LTo(&l)
	k, err := NewLeimkuhler(testC, testS, eps)
	if err != nil {
		t.Fatal(err)
	}
	psi := append([]float64(nil), mu...)
	means, squares := make([][]float64, 3), make([][]float64, 3)
	for i := range means {
		means[i], squares[i] = make([]float64, steps/batch), make([]float64, steps/batch)
	}
	for it := range steps + 100 {
		key := random.Key{Seed: 4, Iter: it}
		d := mat.NewVecDense(3, nil)
		for i := range mu {
			d.SetVec(i, mu[i]-psi[i])
		}
		var g, n mat.VecDense
		_ = chol.SolveVecTo(&g, d)
		z := make([]float64, 3)
		random.Normal(key.Stream(random.Probe, 0), z)
		n.MulVec(&l, mat.NewVecDense(3, z))
		g.AddVec(&g, &n)
		k.Advance(psi, g.RawVector().Data, random.Key{Seed: 4, Iter: it - 1}.Stream(random.Noise, 0), key.Stream(random.Noise, 0))
		if it >= 100 {
			b := (it - 100) / batch
			for i := range mu {
				means[i][b] += (psi[i] - mu[i]) / batch
				squares[i][b] += (psi[i] - mu[i]) * (psi[i] - mu[i]) / batch
			}
		}
	}
	for i := range mu {
		m, sd := stat.MeanStdDev(means[i], nil)
		if e := sd / math.Sqrt(steps/batch); math.Abs(m) > 4.5*e {
			t.Errorf("mean %d is off by %v ± %v", i, m, e)
		}
		m, sd = stat.MeanStdDev(squares[i], nil)
		if e := sd / math.Sqrt(steps/batch); math.Abs(m-testC.At(i, i)) > 4.5*e {
			t.Errorf("variance %d is %v ± %v, want %v", i, m, e, testC.At(i, i))
		}
	}
}

func TestTuneLeimkuhler(t *testing.T) {
	noisy := sym(3, 90, 0, 0, 0, 90, 0, 0, 0, 90)
	j, eps, err := Tune(testC, noisy, nil, AllowsLeimkuhler, 1, 2, 1000)
	if err != nil || eps != 1 || j <= 2 || j >= 1000 {
		t.Fatal(j, eps, err)
	}
	if _, eps, err = Tune(testC, noisy, nil, AllowsLeimkuhler, 1, 4, 4); err != nil || !(eps < 1) {
		t.Fatal(eps, err)
	}
	s := mat.NewSymDense(3, nil)
	s.ScaleSym(0.25, noisy)
	if k, err := NewLeimkuhler(testC, s, eps); err != nil || k.Budget <= 0 {
		t.Errorf("four probes do not afford the step %v that they are said to: %v", eps, err)
	}
}
