package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats/scalar"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// coregions are a full matrix, one of correlations alone, and low ranks.
func coregions() []*Coregion {
	levels := strings.Split("A,B,C D,e=1,F", ",")
	return []*Coregion{
		{Prefix: "f", Levels: levels[:2]},
		{Prefix: "f.coregion", Levels: levels},
		{Levels: levels[:4], Equal: true},
		{Prefix: "f", Levels: levels[:3], Rank: 1},
		{Prefix: "f", Levels: levels, Rank: 2, Equal: true},
	}
}

// thetaOf returns random parameters, of partial correlations that are seldom near ±1.
func thetaOf(params []param.Param, r *rand.Rand) []float64 {
	theta := make([]float64, len(params))
	for i := range theta {
		theta[i] = math.Exp(r.NormFloat64())
	}
	return theta
}

// partials returns the canonical partial correlations of a correlation matrix by the recursion of Lewandowski, Kurowicka and
// Joe (2009, eq. 2): element (k,a), k < a, is that of k and a given the variables before k.
func partials(c mat.Symmetric) *mat.Dense {
	n := c.SymmetricDim()
	left := mat.NewDense(n, n, nil)
	left.Copy(c)
	out := mat.NewDense(n, n, nil)
	for k := range n {
		for a := k + 1; a < n; a++ {
			out.Set(k, a, left.At(k, a)/math.Sqrt(left.At(k, k)*left.At(a, a)))
		}
		next := mat.NewDense(n, n, nil) // the covariance given k, too
		for a := k + 1; a < n; a++ {
			for b := k + 1; b < n; b++ {
				next.Set(a, b, left.At(a, b)-left.At(a, k)*left.At(k, b)/left.At(k, k))
			}
		}
		left = next
	}
	return out
}

func (c *CoregionAt) matrix(correlation bool) *mat.SymDense {
	n := len(c.Levels)
	m := mat.NewSymDense(n, nil)
	for a := range n {
		for b := range a + 1 {
			x := c.value([]float64{float64(a)}, []float64{float64(b)})
			if correlation {
				x = c.Correlation(a, b, c.theta)
			}
			m.SetSym(a, b, x)
		}
	}
	return m
}

// A full matrix has the partial correlations that its parameters say; one of low rank is WWᵀ and a diagonal, with
// a W that is lower trapezoidal and has a positive diagonal; and the scales are those of the levels.
func TestCoregionIsItsMatrix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range coregions() {
		params := c.Params()
		theta := thetaOf(params, r)
		at, n := c.At(theta), len(c.Levels)
		table, corr := at.matrix(false), at.matrix(true)
		for a := range n {
			s := 1.0
			if !c.Equal && a > 0 {
				s = theta[len(theta)-n+a]
			}
			for b := range n {
				sb := 1.0
				if !c.Equal && b > 0 {
					sb = theta[len(theta)-n+b]
				}
				if got, want := table.At(a, b), s*sb*corr.At(a, b); !scalar.EqualWithinAbsOrRel(got, want, 1e-15, 1e-14) {
					t.Errorf("%v: B[%d,%d] = %v, want %v", c, a, b, got, want)
				}
			}
		}
		var chol mat.Cholesky
		if !chol.Factorize(corr) {
			t.Errorf("%v: the correlation matrix is not positive definite", c)
		}
		if c.Rank == 0 {
			z := partials(corr)
			for i, a := 0, 1; a < n; a++ {
				for k := range a {
					if want := (theta[i] - 1) / (theta[i] + 1); math.Abs(z.At(k, a)-want) > 1e-12 {
						t.Errorf("%v: %s is %v, of the matrix %v", c, params[i].Name(), want, z.At(k, a))
					}
					i++
				}
			}
			continue
		}
		w := mat.NewDense(n, c.Rank, nil)
		for a := range n {
			for k := range c.Rank {
				w.Set(a, k, at.row(a)[k])
				if k > a && w.At(a, k) != 0 || k == a && !(w.At(a, k) > 0) {
					t.Errorf("%v: W[%d,%d] = %v", c, a, k, w.At(a, k))
				}
			}
		}
		var low mat.Dense
		low.Mul(w, w.T())
		for a := range n {
			for b := range n {
				if a == b && low.At(a, a) >= 1 || a != b && math.Abs(low.At(a, b)-corr.At(a, b)) > 1e-14 {
					t.Errorf("%v: WWᵀ[%d,%d] = %v beside %v", c, a, b, low.At(a, b), corr.At(a, b))
				}
			}
		}
	}
}

// Derivatives of every element are differences.
func TestCoregionAgainstFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range coregions() {
		theta := thetaOf(c.Params(), r)
		psi := make([]float64, len(theta))
		for i, x := range theta {
			psi[i] = math.Log(x)
		}
		for a := range c.Levels {
			for b := range a + 1 {
				x, y := []float64{float64(a)}, []float64{float64(b)}
				value := func(psi []float64) float64 {
					theta := make([]float64, len(psi))
					for i, x := range psi {
						theta[i] = math.Exp(x)
					}
					return c.At(theta).value(x, y)
				}
				want := fd.Gradient(nil, value, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
				got, at := make([]float64, len(psi)), make([]int, len(psi))
				for i := range at {
					at[i] = i
				}
				c.At(theta).addGradient(got, at, 1, x, y)
				for i := range want {
					if math.Abs(got[i]-want[i]) > 1e-8*(1+math.Abs(value(psi))) {
						t.Errorf("%v: derivative of (%d,%d) by %s is %v, differences %v", c, a, b, c.Params()[i].Name(), got[i], want[i])
					}
				}
			}
		}
	}
}

// What is left of a row loses no digits where a correlation is all but one.
func TestCoregionNearOne(t *testing.T) {
	c := &Coregion{Levels: []string{"A", "B"}, Equal: true}
	const theta = 1e18 // r = 1 − 2e-18
	if got, want := c.At([]float64{theta}).row(1)[1], 2e-9; math.Abs(got/want-1) > 1e-12 {
		t.Errorf("√(1−r²) = %v, want %v", got, want)
	}
}

func TestCoregionText(t *testing.T) {
	for _, c := range coregions() {
		c.Input = 1
		cov, err := New(2, Term{Variance: param.Param{Symbol: "a", Role: param.Variance}, Leaves: []Leaf{c}})
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(cov.String(), 2)
		if err != nil || back.String() != cov.String() || fmt.Sprint(back.Params().Names()) != fmt.Sprint(cov.Params().Names()) {
			t.Errorf("%v came back as %v: %v", cov, back, err)
		}
	}
	c := &Coregion{Input: 2, Prefix: "f.coregion", Levels: []string{"A", "B", "-1"}, Rank: 0}
	if got, want := c.String(), `coregion(3:0:s:f.coregion:A,B,"-1")`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var names []string
	for _, p := range c.Params() {
		names = append(names, p.Name())
	}
	if got, want := strings.Join(names, " "), "f.coregion.partial_odds[A,B] f.coregion.partial_odds[A,-1] f.coregion.partial_odds[B,-1] f.coregion.scale[B] f.coregion.scale[-1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"a*coregion(1:0:s:f:A)":                                 "two levels or more",
		"a*coregion(1:1:s:f:A,B)":                               "leave the rank out",
		"a*coregion(1:2:s:f:A,B,C,D)":                           "has 6 elements",
		"a*coregion(1:1.5:s:f:A,B)":                             "want a whole rank",
		"a*coregion(1:-1:s:f:A,B)":                              "want a whole rank",
		"a*coregion(3:0:s:f:A,B)":                               "want the number of an input",
		"a*coregion(1:0:t:f:A,B)":                               "want 1 or s between colons",
		"a*coregion(1:0:s:f:A,B":                                "want , or )",
		"a*coregion(1:0:s:f:A,A)":                               "has the level A twice",
		"a*coregion(1:0:s:f:A,1)":                               "want the name",
		`a*coregion(1:0:1:f:A,"B,C","A,B",C)`:                   "two parameters of the name f.partial_odds[A,B,C]",
		"a*coregion(1:0:s:f:" + strings.Repeat("A,", 64) + "A)": "over 64 levels at most",
		"a*coregion(1:0:s:f:" + strings.Repeat("A,", 16) + "A)": "choose a lower rank",
		`a*coregion(1:0:s:f:A,B)*rbf(1:"f.partial_odds[A,B]")`:  "two roles",
		"a*coregion(1:0:s:\"f:A,B)":                             "no closing quote",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The mean of the random features over 10⁵ draws is the covariance within 5 standard errors (a false alarm in 10⁶; the
// seed is fixed).
func TestFrequenciesBesideCoregion(t *testing.T) {
	f := parse(t, "a*coregion(1:0:s:f:A,B,C)*rbf(2:u)", 2)
	r := rand.New(rand.NewPCG(5, 6))
	at := f.At(thetaOf(f.Params(), r))
	if at.Spectral() != nil || f.Stationary() || f.Differentiable() != nil {
		t.Error("a coregion has draws, is not stationary, and nothing to differentiate")
	}
	x, y := []float64{1, 0.3}, []float64{2, -0.1}
	var sum, sq float64
	const n = 100_000
	w := make([]float64, 2)
	for range n {
		b := at.Amplitude(r, at.Frequency(r, w))
		v := b(x) * b(y) * math.Cos(w[0]*(x[0]-y[0])+w[1]*(x[1]-y[1]))
		sum += v
		sq += v * v
	}
	mean := sum / n
	if se := math.Sqrt((sq/n - mean*mean) / n); math.Abs(mean-at.Correlation(x, y)) > 5*se {
		t.Errorf("%v ± %v, want %v", mean, se, at.Correlation(x, y))
	}
}

// Slopes beside a coregion are those of the other leaf, times its element.
func TestSlopesBesideCoregion(t *testing.T) {
	f := parse(t, "=2*coregion(1:0:s:f:A,B)*rbf(2:u)", 2).At([]float64{3, 1.5, 0.5}) // r = 1/2, s = 1.5
	dst := make([]float64, 2)
	f.AddSlopes(dst, []float64{0, 0.3}, []float64{1, -0.2})
	if want := -2 * 0.75 * 2 * 0.5 * 0.5 * math.Exp(-0.5*0.25); dst[0] != 0 || math.Abs(dst[1]-want) > 1e-15 {
		t.Errorf("slopes %v, want %v", dst, want)
	}
	clear(dst)
	f.AddSlopeVariances(dst, []float64{1, 0.3})
	if want := 2 * 2.25 * 2 * 0.5; dst[0] != 0 || math.Abs(dst[1]-want) > 1e-15 {
		t.Errorf("variances of slopes %v, want %v", dst, want)
	}
}

// The priors of the partial correlations together are the prior lkj of the matrix: against its density with the constant of
// Lewandowski et al. (2009, eq. 16), by the derivatives of the elements; and every correlation of the draws has its
// marginal distribution, (r+1)/2 ~ Beta(η−1+L/2, same), the share below some points being within 5 standard errors (a
// false alarm in 10⁵ runs; the seed is fixed).
func TestPartialCorrelationsAreLKJ(t *testing.T) {
	const eta, n, draws = 1.7, 4, 20_000
	c := &Coregion{Levels: []string{"A", "B", "C", "D"}, Equal: true}
	prior, err := param.ParsePrior("lkj(1.7)", param.Partial)
	if err != nil {
		t.Fatal(err)
	}
	params := param.List(c.Params())
	for i := range params {
		params[i].Prior = prior.Given(params[i].Spare)
	}
	logBeta := func(a float64) float64 { l, _ := math.Lgamma(a); m, _ := math.Lgamma(2 * a); return 2*l - m }
	var constant float64
	for k := 1; k < n; k++ {
		left := float64(n - k)
		constant += (2*eta-2+left)*left*math.Ln2 + left*logBeta(eta+(left-1)/2)
	}
	elements := func(dst, psi []float64) {
		theta, i := params.Natural(psi), 0
		for a := range n {
			for b := range a {
				dst[i] = c.Correlation(a, b, theta)
				i++
			}
		}
	}
	r := rand.New(rand.NewPCG(9, 10))
	psi := make([]float64, len(params))
	draw := func() {
		for i := range psi {
			psi[i] = params[i].Prior.Sample(r)
		}
	}
	for range 5 {
		draw()
		jacobian := mat.NewDense(len(psi), len(psi), nil)
		fd.Jacobian(jacobian, elements, psi, &fd.JacobianSettings{Formula: fd.Central})
		logJ, _ := mat.LogDet(jacobian)
		logDet, _ := mat.LogDet(c.At(params.Natural(psi)).matrix(true))
		if got, _ := params.LogPrior(psi); math.Abs(got-((eta-1)*logDet-constant+logJ)) > 1e-6 {
			t.Errorf("log density %v, that of the matrix %v", got, (eta-1)*logDet-constant+logJ)
		}
	}
	x := make([][]float64, len(psi))
	corr := make([]float64, len(psi))
	for range draws {
		draw()
		elements(corr, psi)
		for i, rho := range corr {
			x[i] = append(x[i], (rho+1)/2)
		}
	}
	marginal := distuv.Beta{Alpha: eta - 1 + n/2.0, Beta: eta - 1 + n/2.0}
	for i := range x {
		slices.Sort(x[i])
		for _, share := range []float64{0.05, 0.3, 0.5, 0.9} {
			below := marginal.CDF(x[i][int(share*draws)])
			if se := math.Sqrt(share * (1 - share) / draws); math.Abs(below-share) > 5*se {
				t.Errorf("correlation %d: %v below the quantile %v", i, below, share)
			}
		}
	}
}
