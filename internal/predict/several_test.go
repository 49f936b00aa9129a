package predict

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// known are three functions of known moments, of which there are two draws at each ψ.
type known struct{}

func (known) At(_ context.Context, _ []float64, points *kernel.Inputs) (mean, variance [][]float64, err error) {
	for _, shift := range []float64{-1, 1} {
		var m, v []float64
		for c := range 3 {
			for i := range points.Len() {
				m, v = append(m, shift*float64(c)+float64(i)), append(v, 1e-12)
			}
		}
		mean, variance = append(mean, m), append(variance, v)
	}
	return mean, variance, nil
}

func (known) Joint(context.Context, []float64, []*kernel.Inputs, func(int, [][]float64, []*mat.SymDense) error) error {
	panic("not asked for")
}

// Rows of classes without an order have the mean of the softmax function over draws of the functions, also with offsets of zero, as requests
// from elsewhere have them; with the latent functions, their moments too. What is of one function is refused.
func TestSeveralRows(t *testing.T) {
	prior, err := param.ParsePrior("gamma(1,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	m := posterior.NewModel(kernel.Single(kernel.Matern32, 1, false), likelihood.Categorical{Classes: names}, func(param.Param) param.Prior { return prior })
	p, err := New(Config{Problem: posterior.NewProblem(m, kernel.NewInputs(3, 1, []float64{0, 1, 2}), []float64{0, 1, 2}), Draws: [][]float64{{0, 0}, {0.1, 0}},
		Budget: parallel.NewBudget(1), Functions: known{}})
	if err != nil {
		t.Fatal(err)
	}
	info := &dataset.Info{Rows: 3, Target: "y", InputNames: []string{"x"}, Classes: names, XScale: []dataset.Scale{{SD: 1}}, YScale: dataset.Scale{SD: 1}}
	r := Request{X: [][]float64{{0}, {1}}, Targets: []float64{2, math.NaN()}, Offset: []float64{0, 0}, Probs: []float64{0.5}}
	rows, _, err := p.Rows(t.Context(), info, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := 1 + math.E + math.E*math.E
	want := []float64{(1 + math.E*math.E) / sum / 2, math.E / sum, (1 + math.E*math.E) / sum / 2}
	for i, row := range rows {
		if !row.Unordered() {
			t.Errorf("row %d has a mean, %v", i, row.Mean)
		}
		for c, class := range row.Classes {
			if class.Name != names[c] || math.Abs(class.Probability-want[c]) > 1e-5 {
				t.Errorf("row %d: %v, want %v", i, class, want[c])
			}
		}
	}
	s := Score(rows, m.Likelihood)
	if s.Unordered == nil || s.Rows != 1 || math.Abs(s.MLPD-math.Log(want[2])) > 1e-5 || s.Unordered.Brier != rows[0].CRPS {
		t.Errorf("scores %+v", s)
	}
	told, _, err := p.Rows(t.Context(), info, Request{X: r.X, Probs: r.Probs}, Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range told {
		for c, f := range row.Functions { // one of two values at each ψ
			if f.Name != names[c] || math.Abs(f.Mean-float64(i)) > 1e-9 || math.Abs(f.SD-float64(c)) > 1e-5 {
				t.Errorf("row %d: function %d is %+v, want %d ± %d", i, c, f, i, c)
			}
		}
		if !row.Unordered() || len(row.Functions) != 3 || row.Classes[1].Probability != rows[i].Classes[1].Probability {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	for _, r := range []Request{{X: r.X, Covariance: true}, {X: r.X, Gradient: true}} {
		if _, _, err := p.Rows(t.Context(), info, r, Options{}); !errors.Is(err, errSeveral) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// drawn is known with covariances: each function varies at two points with the correlation 0.6 and the variance (c+1)².
type drawn struct{ known }

func (k drawn) Joint(ctx context.Context, psi []float64, sets []*kernel.Inputs, do func(int, [][]float64, []*mat.SymDense) error) error {
	for s, points := range sets {
		mean, _, err := k.At(ctx, psi, points)
		if err != nil {
			return err
		}
		var covariance []*mat.SymDense
		for c := range len(mean[0]) / points.Len() {
			own := mat.NewSymDense(points.Len(), nil)
			for i := range points.Len() {
				for j := range i + 1 {
					own.SetSym(i, j, float64((c+1)*(c+1))*map[bool]float64{true: 1, false: 0.6}[i == j])
				}
			}
			covariance = append(covariance, own)
		}
		if err := do(s, mean, covariance); err != nil {
			return err
		}
	}
	return nil
}

// severalPredictor returns one of three classes, with a description of its data.
func severalPredictor(t *testing.T, l likelihood.Likelihood) (*Predictor, *dataset.Info) {
	t.Helper()
	prior, err := param.ParsePrior("gamma(1,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(kernel.Single(kernel.Matern32, 1, false), l, func(param.Param) param.Prior { return prior })
	draws := [][]float64{{0, 0}, {0.1, 0}}
	for i := range draws {
		draws[i] = append(draws[i], make([]float64, len(l.Params()))...)
	}
	p, err := New(Config{Problem: posterior.NewProblem(m, kernel.NewInputs(3, 1, []float64{0, 1, 2}), []float64{0, 1, 2}), Draws: draws,
		Budget: parallel.NewBudget(1), Functions: drawn{}})
	if err != nil {
		t.Fatal(err)
	}
	return p, &dataset.Info{Rows: 3, Target: "y", InputNames: []string{"x"}, XScale: []dataset.Scale{{SD: 1}}, YScale: dataset.Scale{Mean: 10, SD: 2}}
}

// Paths of several functions have the means and covariances of these at all rows, equal rows equal values; those of classes have the shares that
// Predict gives them; they depend neither on the order of rows nor on the number of paths. Mean and covariance are within 5 standard errors of
// 4,000 paths (false alarms: one in 40,000; the seed is fixed).
func TestSeveralPaths(t *testing.T) {
	p, info := severalPredictor(t, likelihood.Categorical{Classes: []string{"a", "b", "c"}})
	info.YScale = dataset.Scale{SD: 1}
	r := Request{X: [][]float64{{0}, {1}, {0}}, Paths: 4000, Seed: 5}
	rows, _, err := p.Rows(t.Context(), info, r, Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	for c := range 3 {
		var mean [2]float64
		var product float64
		for k := range r.Paths {
			a, b := rows[0].Paths[3*k+c], rows[1].Paths[3*k+c]
			if rows[2].Paths[3*k+c] != a {
				t.Fatal("equal rows have different values")
			}
			mean[0] += a / float64(r.Paths)
			mean[1] += b / float64(r.Paths)
			product += a * (b - 1) / float64(r.Paths) // the mean of b is 1
		}
		sd := math.Hypot(float64(c), float64(c+1)) // of the draws at the rows, and given them
		error := 5 * sd / math.Sqrt(float64(r.Paths))
		if want := float64(c*c) + 0.6*float64((c+1)*(c+1)); math.Abs(mean[0]) > error || math.Abs(mean[1]-1) > error || math.Abs(product-want) > 5*1.5*sd*sd/math.Sqrt(float64(r.Paths)) {
			t.Errorf("function %d: means %v, covariance %v, want 0, 1 and %v", c, mean, product, want)
		}
		if rows[0].Functions[c].Name != p.telling().Latents()[c].Name {
			t.Errorf("function %d is called %s", c, rows[0].Functions[c].Name)
		}
	}
	few, _, err := p.Rows(t.Context(), info, Request{X: [][]float64{{1}, {0}}, Paths: 3, Seed: 5}, Options{Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(few[0].Paths, rows[1].Paths[:9]) || !slices.Equal(few[1].Paths, rows[0].Paths[:9]) {
		t.Error("paths depend on their number, or on the order of rows")
	}
	targets, _, err := p.Rows(t.Context(), info, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want, got float64
	for k := range r.Paths {
		e := math.Exp(rows[0].Paths[3*k+2])
		want += e / (e + math.Exp(rows[0].Paths[3*k]) + math.Exp(rows[0].Paths[3*k+1])) / float64(r.Paths)
		if targets[0].Paths[k] == 2 {
			got += 1 / float64(r.Paths)
		}
	}
	if math.Abs(got-want) > 5*0.7/math.Sqrt(float64(r.Paths)) {
		t.Errorf("class c has the share %v of paths, want %v", got, want)
	}
}

// Effects of heteroscedastic noise: that on the mean, which is linear in its function, has mean and sd in closed form, in the units of the target; the
// noise has those of a lognormal variable. They are within 5 standard errors of the draws that they are made of, at least 1,000.
func TestSeveralEffects(t *testing.T) {
	p, info := severalPredictor(t, likelihood.Heteroscedastic{})
	p.Functions = two{}
	r := EffectsRequest{Inputs: []int{0}, Grid: [][]float64{{0}, {1}}, Rows: []int{0, 1, 2}, Probs: []float64{0.5}}
	effects, stats, err := p.Effects(t.Context(), info, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(effects) != 4 || stats.Rows != 3 {
		t.Fatalf("%+v, %+v", effects, stats)
	}
	n := math.Sqrt(effectSamples)
	for i, e := range effects {
		want, sd := 10.0, 2.0 // of the mean: 10 + 2·N(0,1)
		if e.Of == "noise_sd" {
			want = 2 * math.Exp(0.5) // E e^(g/2), g ~ N(0,4)
			sd = want * math.Sqrt(math.Exp(1)-1)
		}
		if math.Abs(e.Mean-want) > 5*sd/n || math.Abs(e.SD/sd-1) > 0.3 || e.At[0] != float64(i%2) {
			t.Errorf("%+v, want %v ± %v", e, want, sd)
		}
	}
	var b strings.Builder
	if err := WriteEffects(&b, info, r.Inputs, effects, r.Probs); err != nil || !strings.HasPrefix(b.String(), "x,of,mean,sd,q50\n0,mean,") || !strings.Contains(b.String(), "\n1,noise_sd,") {
		t.Errorf("%s: %v", b.String(), err)
	}
	r.Term = 1
	if _, _, err := p.Effects(t.Context(), info, r, Options{}); !errors.Is(err, errTerms) {
		t.Error(err)
	}
}

// two are two functions of mean 0 and the variances 1 and 4.
type two struct{ drawn }

func (two) At(_ context.Context, _ []float64, points *kernel.Inputs) (mean, variance [][]float64, err error) {
	return [][]float64{make([]float64, 2*points.Len())}, nil, nil
}

func (k two) Joint(ctx context.Context, psi []float64, sets []*kernel.Inputs, do func(int, [][]float64, []*mat.SymDense) error) error {
	return k.drawn.Joint(ctx, psi, sets, func(s int, _ [][]float64, covariance []*mat.SymDense) error {
		mean, _, _ := k.At(ctx, psi, sets[s])
		return do(s, mean, covariance[:2])
	})
}
