package predict

import (
	"bytes"
	"encoding/csv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// exampleRows predicts targets that are draws from their own mixtures.
func exampleRows(n int) []Row {
	r := rand.New(rand.NewPCG(5, 6))
	m := &Moments{Mean: solve.Columns(n, 3), Var: solve.Columns(n, 3), likelihood: likelihood.Gaussian{}, own: [][]float64{{0.1}, {0.2}, {0.3}}}
	req := Request{X: make([][]float64, n), Targets: make([]float64, n), Probs: []float64{0.05, 0.5, 0.95}}
	for i := range n {
		for t := range 3 {
			m.Mean[t][i], m.Var[t][i] = r.NormFloat64(), 0.5+r.Float64()
		}
		req.Targets[i] = 100 + 10*m.Mixture(i, false).Quantile(r.Float64())
	}
	return Summarize(m, &dataset.Info{YScale: dataset.Scale{Mean: 100, SD: 10}}, req, false, parallel.NewBudget(2))
}

func TestScores(t *testing.T) {
	rows := exampleRows(2000)
	s := Score(rows, likelihood.Gaussian{})
	for _, c := range s.Coverage {
		// Binomial with 2,000 trials: false alarms of one in 10⁴ at 3.9 sd.
		if math.Abs(c.Within-c.Level) > 3.9*math.Sqrt(c.Level*(1-c.Level)/2000) {
			t.Errorf("%g %% intervals hold %g %% of targets drawn from them", 100*c.Level, 100*c.Within)
		}
	}
	var square, density, crps float64
	within := 0
	for _, r := range rows {
		square += (r.Mean - r.Target) * (r.Mean - r.Target)
		density += r.LogDensity
		crps += r.CRPS
		if r.Target > r.Quantiles[0] && r.Target < r.Quantiles[2] {
			within++
		}
	}
	if math.Abs(s.RMSE-math.Sqrt(square/2000)) > 1e-9 || math.Abs(s.MLPD-density/2000) > 1e-9 || math.Abs(s.CRPS-crps/2000) > 1e-9 || s.Rows != 2000 {
		t.Errorf("%+v", s)
	}
	if got := s.Coverage[1].Within; got != float64(within)/2000 {
		t.Errorf("coverage %g by PIT, %g by quantiles", got, float64(within)/2000)
	}
	// The mean of a proper score is better for the truth than for an impostor.
	for i := range rows {
		rows[i].Mean += 5
	}
	if Score(rows, likelihood.Gaussian{}).RMSE <= s.RMSE {
		t.Error("wrong means have a better RMSE")
	}
}

// Of classes in order the probabilities are told, in the table and over the wire, the likeliest one, and how far from it rows are.
func TestScoresOfClassesInOrder(t *testing.T) {
	m := &Moments{Mean: [][]float64{{-0.5, 0.4, 3}}, Var: [][]float64{{0.1, 0.2, 0.3}}, likelihood: likelihood.Ordinal{Classes: []string{"low", "mid", "high"}}, own: [][]float64{{1.5}}}
	info := &dataset.Info{YScale: dataset.Scale{SD: 1}, Classes: []string{"low", "mid", "high"}}
	rows := Summarize(m, info, Request{X: make([][]float64, 3), Targets: []float64{0, 2, 0}}, false, parallel.NewBudget(1))
	below := func(b float64, row int) float64 {
		return math.Erfc((m.Mean[0][row]-b)/math.Sqrt(2*(1+m.Var[0][row]))) / 2
	}
	var brier, rps, logs float64
	for i, r := range rows {
		p := []float64{below(0, i), below(1.5, i) - below(0, i), 1 - below(1.5, i)}
		cdf := 0.0
		for c := range p {
			hit := 0.0
			if float64(c) == r.Target {
				hit = 1
				logs += math.Log(p[c]) / 3
			}
			if got := r.Classes[c]; got.Name != info.Classes[c] || math.Abs(got.Probability-p[c]) > 1e-12 {
				t.Errorf("row %d, class %d: %+v, want %g", i, c, got, p[c])
			}
			brier += (p[c] - hit) * (p[c] - hit) / 3
			cdf += p[c]
			reached := 0.0
			if float64(c) >= r.Target {
				reached = 1
			}
			rps += (cdf - reached) * (cdf - reached) / 3
		}
	}
	s := Score(rows, m.likelihood)
	if o := s.Order; o == nil || math.Abs(o.Error-2.0/3) > 1e-12 || math.Abs(o.Off-1) > 1e-12 || math.Abs(o.Brier-brier) > 1e-12 || math.Abs(s.CRPS-rps) > 1e-12 || math.Abs(s.MLPD-logs) > 1e-12 {
		t.Errorf("%+v %+v, want a Brier score of %g, RPS %g, MLPD %g", s, s.Order, brier, rps, logs)
	}
	var b bytes.Buffer
	if err := WriteCSV(&b, rows, nil, nil, nil); err != nil || !strings.HasPrefix(b.String(), "row,class,mean,sd,p[low],p[mid],p[high],target,") {
		t.Errorf("%v: %s", err, b.String())
	}
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{"1,low,", "2,mid,", "3,high,"} {
		if !strings.HasPrefix(lines[i+1], want) {
			t.Errorf("line %q, want %s", lines[i+1], want)
		}
	}
	back, _, err := Answered(Answer(rows, Stats{}, nil), Request{X: make([][]float64, 3)})
	if err != nil || !slices.Equal(back[1].Classes, rows[1].Classes) {
		t.Errorf("%v: %+v came back of %+v", err, back, rows[1])
	}
}

// A central interval of counts holds the target if it lies between the quantiles; of a quantile that is learnt the share
// of targets up to it is told.
func TestScoresOfCountsAndQuantiles(t *testing.T) {
	counts := likelihood.Binomial{}.Of(likelihood.Rows{Weight: []float64{9}})
	p := counts.Predict(make([][]float64, 1), []float64{0.3}, []float64{0.5})
	for y := range 10 {
		row := Row{Target: float64(y), LogDensity: p.LogDensity(float64(y)), PIT: p.CDF(float64(y))}
		for _, c := range Score([]Row{row}, counts).Coverage {
			in := row.Target >= p.Quantile((1-c.Level)/2) && row.Target <= p.Quantile((1+c.Level)/2)
			if (c.Within == 1) != in {
				t.Errorf("%d successes lie within %g %%: %v, by quantiles %v", y, 100*c.Level, c.Within, in)
			}
		}
	}
	rows := []Row{{PIT: 0.2}, {PIT: 0.89}, {PIT: 0.9}, {PIT: 0.97}}
	s := Score(rows, likelihood.Quantile{Level: 0.9})
	if s.Quantile == nil || *s.Quantile != (LevelScore{0.9, 0.75}) || s.Coverage[0].Within != 0 {
		t.Errorf("%+v %+v", s, s.Quantile)
	}
	var b bytes.Buffer
	if err := s.WriteText(&b); err != nil || !strings.Contains(b.String(), "below the 0.9 quantile") || !strings.Contains(b.String(), "75.0 %") {
		t.Error(b.String(), err)
	}
	if s := Score(rows, likelihood.Laplace{}); s.Quantile != nil || s.Classes != nil {
		t.Errorf("%+v", s)
	}
}

func TestCSVIsExact(t *testing.T) {
	rows := exampleRows(3)
	var b bytes.Buffer
	if err := WriteCSV(&b, rows, nil, []float64{0.05, 0.5, 0.95}, []int{4, 9, 11}); err != nil {
		t.Fatal(err)
	}
	recs, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	want := []string{"row", "mean", "sd", "q5", "q50", "q95", "target", "log_density", "crps", "pit"}
	for k, name := range want {
		if recs[0][k] != name {
			t.Errorf("column %d is %q, want %q", k, recs[0][k], name)
		}
	}
	for i, r := range rows {
		for k, v := range []float64{float64([]int{4, 9, 11}[i]), r.Mean, r.SD, r.Quantiles[0], r.Quantiles[1], r.Quantiles[2], r.Target, r.LogDensity, r.CRPS, r.PIT} {
			if got, err := strconv.ParseFloat(recs[i+1][k], 64); err != nil || got != v {
				t.Errorf("row %d: %s reads %s, want %v", i, want[k], recs[i+1][k], v)
			}
		}
	}
}

// Predictions come out in the units that the targets went in with, and the
// target's distribution is that of the latent function with the noise added.
func TestRowsInOriginalUnits(t *testing.T) {
	c, points := example(kernel.RBF, false, 200, 2, 10, 4)
	info := &dataset.Info{Rows: 200, Target: "y", InputNames: []string{"a", "b"},
		XScale: []dataset.Scale{{Mean: 3, SD: 2}, {Mean: -1, SD: 0.5}}, YScale: dataset.Scale{Mean: 50, SD: 4}}
	req := Request{Probs: []float64{0.5}}
	for i := range points.Len() {
		req.X = append(req.X, []float64{info.XScale[0].Undo(points.Row(i)[0]), info.XScale[1].Undo(points.Row(i)[1])})
	}
	m, _ := predict(t, c, Options{}, points)
	answers := map[bool][]Row{}
	for _, latent := range []bool{false, true} {
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		rows, stats, err := p.Rows(t.Context(), info, req, Options{Latent: latent})
		if err != nil || stats.Rows != 10 {
			t.Fatal(stats, err)
		}
		for i, r := range rows {
			mean, sd := m.Mixture(i, latent).Moments()
			if math.Abs(r.Mean-(50+4*mean)) > 1e-6 || math.Abs(r.SD/(4*sd)-1) > 2e-3 {
				t.Errorf("row %d: %g ± %g, want %g ± %g", i, r.Mean, r.SD, 50+4*mean, 4*sd)
			}
			if !math.IsNaN(r.CRPS) || !math.IsNaN(r.Target) {
				t.Error("a score without a target")
			}
		}
		answers[latent] = rows
	}
	var noise float64
	for _, psi := range c.Draws {
		noise += math.Exp(psi[len(psi)-1]) / float64(len(c.Draws))
	}
	for i := range answers[true] {
		got := math.Pow(answers[false][i].SD, 2) - math.Pow(answers[true][i].SD, 2)
		if want := 16 * noise; math.Abs(got/want-1) > 1e-3 {
			t.Errorf("row %d: the noise adds a variance of %g, want %g", i, got, want)
		}
	}
}
