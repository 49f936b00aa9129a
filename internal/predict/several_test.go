package predict

import (
	"context"
	"math"
	"testing"

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

// Rows of classes without an order have the mean of the softmax function over draws of the functions, also with offsets of zero, as requests
// from elsewhere have them; nothing else is told of them.
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
	if _, _, err := p.Predict(t.Context(), kernel.NewInputs(1, 1, []float64{0}), Options{Latent: true}); err == nil {
		t.Error("one latent function is told of three")
	}
	if _, _, err := p.Joint(t.Context(), kernel.NewInputs(1, 1, []float64{0}), JointOptions{Paths: 1}); err == nil {
		t.Error("paths are told of three functions")
	}
}
