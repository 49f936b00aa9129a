package sgld

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func sym(p int, v ...float64) *mat.SymDense { return mat.NewSymDense(p, v) }

var (
	testC = sym(3, 0.5, 0.2, -0.1, 0.2, 0.4, 0.05, -0.1, 0.05, 0.3)
	testS = sym(3, 0.9, 0.1, 0, 0.1, 1.2, -0.2, 0, -0.2, 0.7)
)

// On a Gaussian posterior with metric C the stationary covariance is C at every
// step: (1−h)²C + h²CSC + Q = C.
func TestFisherLeavesTheGaussianInvariant(t *testing.T) {
	for _, h := range []float64{0.1, 0.5, 0.8, 1} {
		f, err := NewFisher(testC, testS, h)
		if err != nil {
			t.Fatal(err)
		}
		var q, csc, total mat.Dense
		q.Mul(f.root, f.root.T())
		csc.Product(testC, testS, testC)
		total.Scale((1-h)*(1-h), testC)
		csc.Scale(h*h, &csc)
		total.Add(&total, &csc)
		total.Add(&total, &q)
		if !mat.EqualApprox(&total, testC, 1e-14) {
			t.Errorf("h=%v: stationary covariance\n%v", h, mat.Formatted(&total))
		}
		if f.Budget <= 0 || f.Budget > 1 {
			t.Errorf("h=%v: noise budget %v", h, f.Budget)
		}
	}
}

// One step from a point has the mean and the covariance that it should: 40,000
// steps, each moment within 5 standard errors (false alarms 5 in 10⁶).
func TestFisherStepMoments(t *testing.T) {
	const reps, h = 40000, 0.7
	f, err := NewFisher(testC, testS, h)
	if err != nil {
		t.Fatal(err)
	}
	g := []float64{1, -2, 0.5}
	var drift mat.VecDense
	drift.MulVec(testC, mat.NewVecDense(3, g))
	var q mat.Dense
	q.Mul(f.root, f.root.T())
	x := make([][]float64, 3)
	for i := range reps {
		psi := []float64{1, 2, 3}
		f.Advance(psi, g, random.Key{Seed: 1, Iter: i}.Stream(random.Noise, 0))
		for k := range psi {
			x[k] = append(x[k], psi[k])
		}
	}
	for k := range x {
		m, v := stat.MeanVariance(x[k], nil)
		want := float64(k+1) + h*drift.AtVec(k)
		if se := math.Sqrt(v / reps); math.Abs(m-want) > 5*se {
			t.Errorf("mean %d: %v, want %v", k, m, want)
		}
		if w := q.At(k, k); math.Abs(v/w-1) > 5*math.Sqrt(2.0/reps) {
			t.Errorf("variance %d: %v, want %v", k, v, w)
		}
	}
}

func TestFisherRefusesTooMuchNoise(t *testing.T) {
	noisy := sym(3, 90, 0, 0, 0, 90, 0, 0, 0, 90)
	if _, err := NewFisher(testC, noisy, 1); err == nil {
		t.Error("a Q that is not positive semi-definite was accepted")
	}
	j, h, err := Tune(testC, noisy, nil, AllowsFisher, 1, 2, 1000)
	if err != nil || h != 1 {
		t.Fatal(j, h, err)
	}
	check := func(j int, h float64) bool {
		s := mat.NewSymDense(3, nil)
		s.ScaleSym(1/float64(j), noisy)
		f, err := NewFisher(testC, s, h)
		return err == nil && f.Budget > 0
	}
	if !check(j, 1) || check(j/2, 1) {
		t.Errorf("%d probes are not the number that h = 1 needs", j)
	}
	j, h, err = Tune(testC, noisy, nil, AllowsFisher, 1, 2, 8)
	if err != nil || j != 8 || h >= 1 || !check(8, h) {
		t.Errorf("with 8 probes at most: %d probes, h = %v, %v", j, h, err)
	}
	if j, h, _ := Tune(testC, testS, testS, AllowsFisher, 0.8, 5, 8); j != 5 || h != 0.8 {
		t.Errorf("little noise: %d probes, h = %v", j, h)
	}
}

func TestSGLDScheduleAndFreeze(t *testing.T) {
	s, err := NewSGLD(20, 10, 1, 0.1, 20, testC)
	if err != nil {
		t.Fatal(err)
	}
	var st SGLDState
	psi := make([]float64, 3)
	r := random.Key{Seed: 2}
	frozenAt := 0
	for it := 1; it <= 2000 && frozenAt == 0; it++ {
		g := make([]float64, 3)
		random.Normal(r.Stream(random.Calibration, it), g)
		s.Advance(psi, g, it, &st, random.Key{Seed: 3, Iter: it}.Stream(random.Noise, 0))
		if st.Frozen > 0 {
			frozenAt = it
		}
	}
	if frozenAt == 0 || frozenAt%20 != 0 {
		t.Fatalf("frozen at iteration %d", frozenAt)
	}
	if want := 20 / (10 + float64(frozenAt)); math.Abs(st.Frozen-want) > 1e-15 {
		t.Errorf("frozen at ε = %v, want %v", st.Frozen, want)
	}
	// ε/4·λmax(C)·1 ≈ 0.1 with V ≈ 1: the eigenvalues of testC reach 0.66.
	if eps := st.Frozen; eps < 0.2 || eps > 0.9 {
		t.Errorf("ε = %v", eps)
	}
	before := st.Frozen
	s.Advance(psi, make([]float64, 3), frozenAt+1, &st, r.Stream(random.Noise, 0))
	if st.Frozen != before {
		t.Error("ε changed after it was frozen")
	}
}

// One SGLD step has mean ψ + ε/2·M·g and covariance ε·M (5 standard errors).
func TestSGLDStepMoments(t *testing.T) {
	const reps = 40000
	s, _ := NewSGLD(0.5, 0, 0, 1e-9, 10, testC)
	g := []float64{1, -2, 0.5}
	var drift mat.VecDense
	drift.MulVec(testC, mat.NewVecDense(3, g))
	x := make([][]float64, 3)
	for i := range reps {
		psi := []float64{0, 0, 0}
		s.Advance(psi, g, 1, &SGLDState{}, random.Key{Seed: 1, Iter: i}.Stream(random.Noise, 0))
		for k := range psi {
			x[k] = append(x[k], psi[k])
		}
	}
	for k := range x {
		m, v := stat.MeanVariance(x[k], nil)
		if math.Abs(m-0.25*drift.AtVec(k)) > 5*math.Sqrt(v/reps) {
			t.Errorf("mean %d: %v, want %v", k, m, 0.25*drift.AtVec(k))
		}
		if w := 0.5 * testC.At(k, k); math.Abs(v/w-1) > 5*math.Sqrt(2.0/reps) {
			t.Errorf("variance %d: %v, want %v", k, v, w)
		}
	}
}

// Metropolis draws from a skewed density whose moments are known: logs of two
// independent gamma variables. Means and sds within 5 Monte Carlo errors.
func TestMetropolis(t *testing.T) {
	logDensity := func(_ context.Context, x []float64) (float64, error) { // log of Gamma(3,1) and Gamma(8,2)
		return 3*x[0] - math.Exp(x[0]) + 8*x[1] - 2*math.Exp(x[1]), nil
	}
	guess := sym(2, 0.2, 0, 0, 0.2)
	for name, mean := range map[string][]float64{"walk": nil, "mixed": {0.9, 1.3}} {
		var chains [2][][]float64
		for c := range 2 {
			psi := []float64{0, 0}
			m, err := NewMetropolis(logDensity, guess, mean, true)
			if err != nil {
				t.Fatal(err)
			}
			st, err := m.Start(t.Context(), psi)
			if err != nil {
				t.Fatal(err)
			}
			accepted := 0
			for it := range 12000 {
				if it == 2000 {
					m.Adapt = false
				}
				_, moved, err := m.Advance(t.Context(), psi, &st, random.Key{Seed: 5, Chain: c + 1, Iter: it}.Stream(random.Accept, 0))
				if err != nil {
					t.Fatal(err)
				}
				if moved {
					accepted++
				}
				if it >= 2000 {
					chains[c] = append(chains[c], append([]float64(nil), psi...))
				}
			}
			if rate := float64(accepted) / 12000; rate < 0.2 || rate > 0.95 {
				t.Errorf("%s: acceptance %v", name, rate)
			}
		}
		// ψ(k) − log rate, ψ'(k): digamma and trigamma.
		wantMean := []float64{0.9227843350984671, 2.01564147795561 - math.Ln2}
		wantVar := []float64{0.3949340668482264, 0.133137014694031}
		for k := range 2 {
			x := [][]float64{{}, {}}
			for c := range chains {
				for _, d := range chains[c] {
					x[c] = append(x[c], d[k])
				}
			}
			m, sd := stat.MeanStdDev(append(append([]float64(nil), x[0]...), x[1]...), nil)
			if e := diagnostics.MCSEMean(x); math.Abs(m-wantMean[k]) > 5*e {
				t.Errorf("%s: mean %d is %v ± %v, want %v", name, k, m, e, wantMean[k])
			}
			if e := diagnostics.MCSESD(x); math.Abs(sd-math.Sqrt(wantVar[k])) > 5*e {
				t.Errorf("%s: sd %d is %v ± %v, want %v", name, k, sd, e, math.Sqrt(wantVar[k]))
			}
		}
	}
}

// What a chain remembers comes back as it was; memories of other sizes are refused.
func TestMemories(t *testing.T) {
	m := &MetropolisState{LogP: -3.5, LogScale: 0.25, Walks: 7}
	if got, err := ReadMetropolisState(m.Memory()); err != nil || *got != *m {
		t.Errorf("%+v, %v", got, err)
	}
	s := &SGLDState{Frozen: 0.5, Count: 3, Mean: []float64{1, 2}, M2: []float64{1, 2, 3, 4}}
	for _, s := range []*SGLDState{s, {Frozen: 0.1}} {
		got, err := ReadSGLDState(s.Memory(), 2)
		if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	for _, bad := range [][]float64{{1}, {1, 2}, {1, 2, -1}, {1, 2, 3, 4}} {
		if _, err := ReadMetropolisState(bad); err == nil {
			t.Errorf("Metropolis–Hastings took %v", bad)
		}
	}
	for _, bad := range [][]float64{{1}, {1, -2}, {1, 2, 3}, make([]float64, 9)} {
		if _, err := ReadSGLDState(bad, 2); err == nil {
			t.Errorf("SGLD took %v", bad)
		}
	}
}
