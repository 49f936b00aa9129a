package local

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distmv"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// pairs are rows of two outputs of correlation 0.8 over one input, of standard deviations 1 and 3 and noise of 0.2 and 0.6;
// every third row lacks the second output.
type pairs struct {
	x, y   []float64
	output []int
}

const trueCorrelation = 0.8

func newPairs(points int) *pairs {
	r := rand.New(rand.NewPCG(21, 22))
	p := &pairs{}
	for i := range points {
		for o := range 2 {
			if o == 0 || i%3 != 0 {
				p.x, p.output = append(p.x, 10*float64(i)/float64(points-1)), append(p.output, o)
			}
		}
	}
	theta := [6]float64{1, trueCorrelation, 3, 1, 0.04, 0.36}
	var chol mat.Cholesky
	if !chol.Factorize(p.covariance(theta)) {
		panic("singular")
	}
	z, y := mat.NewVecDense(len(p.x), nil), mat.NewVecDense(len(p.x), nil)
	for i := range p.x {
		z.SetVec(i, r.NormFloat64())
	}
	y.MulVec(chol.RawU().T(), z)
	p.y = y.RawVector().Data
	return p
}

// covariance returns that of the targets at the variance, the correlation, the scale of the second output, the rate and
// the noise variances, by its formula.
func (p *pairs) covariance(theta [6]float64) *mat.SymDense {
	k := mat.NewSymDense(len(p.x), nil)
	sd := [2]float64{1, theta[2]}
	for i := range p.x {
		for j := range i + 1 {
			a, b := p.output[i], p.output[j]
			d := p.x[i] - p.x[j]
			v := theta[0] * sd[a] * sd[b] * math.Exp(-theta[3]*d*d)
			if a != b {
				v *= theta[1]
			}
			if i == j {
				v += theta[4+a]
			}
			k.SetSym(i, j, v)
		}
	}
	return k
}

// logDensity returns the log posterior density, up to a constant, of the parameters as they are sampled, by the
// priors' formulas: lkj(2) is ∝ 1−r² of the correlation.
func (p *pairs) logDensity(psi []float64) float64 {
	r := math.Tanh(psi[1] / 2)
	theta := [6]float64{math.Exp(psi[0]), r, math.Exp(psi[2]), math.Exp(psi[3]), math.Exp(psi[4]), math.Exp(psi[5])}
	var chol mat.Cholesky
	if !chol.Factorize(p.covariance(theta)) {
		return math.Inf(-1)
	}
	y, a := mat.NewVecDense(len(p.y), p.y), mat.NewVecDense(len(p.y), nil)
	if err := chol.SolveVecTo(a, y); err != nil {
		return math.Inf(-1)
	}
	sum := -0.5*chol.LogDet() - 0.5*mat.Dot(y, a)
	normal := func(psi, mu, sd float64) float64 { return distuv.Normal{Mu: mu, Sigma: sd}.LogProb(psi) }
	sum += distuv.Gamma{Alpha: 2, Beta: 2}.LogProb(theta[0]) + psi[0]
	sum += math.Log(1-r*r) + math.Log((1-r*r)/2) // and dr/dψ
	return sum + normal(psi[2], 0, 1) + normal(psi[3], 0, 1) + normal(psi[4], -2, 1) + normal(psi[5], -2, 1)
}

func (p *pairs) write(t *testing.T) string {
	var text strings.Builder
	text.WriteString("x,output,y\n")
	for i := range p.x {
		fmt.Fprintf(&text, "%v,%c,%v\n", p.x[i], 'A'+rune(p.output[i]), p.y[i])
	}
	path := filepath.Join(t.TempDir(), "pairs.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// weighted returns draws from a t distribution of the moments of some draws, with weights that make them draws of the
// posterior.
func (p *pairs) weighted(t *testing.T, psi [][]float64, draws int) (x [][]float64, w []float64, se float64) {
	t.Helper()
	d := len(psi[0])
	all, mean := mat.NewDense(len(psi), d, nil), make([]float64, d)
	for i, row := range psi {
		all.SetRow(i, row)
		floats.AddScaled(mean, 1/float64(len(psi)), row)
	}
	var cov mat.SymDense
	stat.CovarianceMatrix(&cov, all, nil)
	cov.ScaleSym(1.2, &cov)
	proposal, ok := distmv.NewStudentsT(mean, &cov, 6, rand.NewPCG(23, 24))
	if !ok {
		t.Fatal("no proposal")
	}
	x, w = make([][]float64, draws), make([]float64, draws)
	for i := range x {
		x[i] = proposal.Rand(nil)
		w[i] = p.logDensity(x[i]) - proposal.LogProb(x[i])
	}
	most := slices.Max(w)
	for i := range w {
		w[i] = math.Exp(w[i] - most)
	}
	se = floats.Norm(w, 2) / floats.Sum(w) // of the mean of a variable of variance one
	if se*se*float64(draws) > 4 {
		t.Fatalf("importance sampling has %.0f effective draws of %d", 1/(se*se), draws)
	}
	return x, w, se
}

// The draws of two outputs, some of the second missing, have the moments of the posterior by importance sampling of a
// density that is written out here: means within 5 standard errors of both (a false alarm in 10⁴ runs; seeds are fixed),
// sds within 15 %; and the correlation that the data were made with is among them.
func TestTwoOutputs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: two seconds of one core")
	}
	p := newPairs(24)
	methods := []string{"cholesky"}
	if os.Getenv("ULISSE_CALIBRATION") != "" {
		methods = append(methods, "exact", "auto")
	}
	path := p.write(t)
	for _, method := range methods {
		r := run(t, config(t, spec(t, fmt.Sprintf(`
name: outputs
data: {path: %s, target: y, categories: [output], standardize: false}
model:
  kernel: "f: coregion(output) * rbf(x)"
  noise: {by: output}
  priors: {sigma: "gamma(2,2)", f.coregion.correlation: "lkj(2)", tau: "lognormal(0,1)", lambda: "lognormal(-2,1)"}
sampler: {method: %s, chains: 2, draws: 600}
stop: {max_draws: 600}
`, path, method)), 2, t.TempDir()))
		n := r.MinDraws()
		x, w, own := p.weighted(t, slices.Concat(r.Chains[0].Draws[:n], r.Chains[1].Draws[:n]), 2500)
		for i, name := range r.Plan.Names {
			column := make([]float64, len(x))
			for j := range x {
				column[j] = x[j][i]
			}
			want, sd := stat.MeanStdDev(column, w)
			got, s := moments(r.Column(i, n))
			t.Logf("%s of %s: %.3f ± %.3f, reference %.3f ± %.3f", name, method, got, s, want, sd)
			if se := math.Hypot(diagnostics.MCSEMean(r.Column(i, n)), sd*own); math.Abs(got-want) > 5*se {
				t.Errorf("%s of %s: mean %v, want %v (standard error %v)", name, method, got, want, se)
			}
			if math.Abs(s/sd-1) > 0.15 {
				t.Errorf("%s of %s: sd %v, want %v", name, method, s, sd)
			}
		}
		odds := slices.Concat(r.Column(1, n)...)
		slices.Sort(odds)
		if psi := 2 * math.Atanh(trueCorrelation); odds[len(odds)/50] > psi || odds[len(odds)*49/50] < psi {
			t.Errorf("the correlation %g is outside of 96 %% of the draws: %.2f to %.2f", trueCorrelation, math.Tanh(odds[len(odds)/50]/2), math.Tanh(odds[len(odds)*49/50]/2))
		}
	}
}
