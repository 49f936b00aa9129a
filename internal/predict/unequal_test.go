package predict

import (
	"math"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// unequalExample is an example with noise that is known of each row, weighted, and of two levels, in
// standard deviations by a factor of a hundred. The points' is known, too.
func unequalExample(n, m, draws int) (c Config, points *kernel.Inputs, noise likelihood.Rows) {
	c, points = exampleOf(kernel.Single(kernel.Matern32, 2, true), n, m, draws)
	rows := func(n int) (r likelihood.Rows) {
		for i := range n {
			sd := []float64{0.005, 0.05, 0.5}[i%3]
			r.Known, r.Weight, r.Level = append(r.Known, sd*sd), append(r.Weight, float64(1+i%4)), append(r.Level, i/3%2)
		}
		return r
	}
	l := likelihood.NewUnequal([]string{"s=a", "s=b"}, true).Of(rows(n))
	model := posterior.NewModel(c.Problem.Covariance, l, func(param.Param) param.Prior { return param.Prior{} })
	c.Problem = posterior.NewProblem(model, c.Problem.Inputs, c.Problem.Y)
	for t, psi := range c.Draws {
		c.Draws[t] = append(psi, -5+0.3*float64(t))
	}
	return c, points, rows(m)
}

// noiseOf returns the noise of a row at a draw, from its definition.
func noiseOf(r likelihood.Rows, i int, psi []float64) float64 {
	return r.Known[i] + math.Exp(psi[len(psi)-2+r.Level[i]])/r.Weight[i]
}

// What is predicted with noise that differs between rows is what dense algebra says: of the latent function
// and of targets, alone and together.
func TestUnequalNoiseAgainstDense(t *testing.T) {
	c, points, noise := unequalExample(160, 7, 3)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Tolerance: 1e-6, Noise: &noise}
	m, stats, err := p.Predict(t.Context(), points, o)
	if err != nil || stats.Unconverged > 0 {
		t.Fatal(stats, err)
	}
	joint, _, err := p.Joint(t.Context(), points, JointOptions{Options: o, Covariance: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range points.Len() {
		var want likelihood.Mixture
		for s, psi := range c.Draws {
			mean, variance := dense(t, c.Problem, psi, points.Select([]int{i}))
			sd := math.Sqrt(variance[0] + noiseOf(noise, i, psi))
			want.Mean, want.SD = append(want.Mean, mean[0]), append(want.SD, sd)
			if math.Abs(m.Mean[s][i]-mean[0]) > 1e-6*sd || math.Abs(m.Var[s][i]-variance[0]) > 3e-6*sd*sd {
				t.Errorf("row %d, draw %d: N(%g, %g), want N(%g, %g)", i, s, m.Mean[s][i], m.Var[s][i], mean[0], variance[0])
			}
		}
		for _, q := range []float64{0.025, 0.5, 0.9} {
			if got := m.Mixture(i, false).Quantile(q); math.Abs(got-want.Quantile(q)) > 1e-5*want.SD[0] {
				t.Errorf("row %d: quantile %g is %g, want %g", i, q, got, want.Quantile(q))
			}
		}
		if _, sd := want.Moments(); math.Abs(math.Sqrt(joint.Covariance[i][i])/sd-1) > 1e-5 {
			t.Errorf("row %d: joint sd %g, want %g", i, math.Sqrt(joint.Covariance[i][i]), sd)
		}
	}
}

// Paths of targets have the noise of their rows: less those of the latent function, with the same seed,
// they are noise of the variance that is known. Of 3,000 paths a variance is within 13 % of it (five
// standard errors), but by chance once in 10⁵ for 6 rows.
func TestPathsHaveTheNoiseOfTheirRows(t *testing.T) {
	c, points, noise := unequalExample(60, 6, 1)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	const paths = 3000
	of := func(latent bool) [][]float64 {
		j, _, err := p.Joint(t.Context(), points, JointOptions{Options: Options{Latent: latent, Noise: &noise}, Paths: paths, Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		return j.Paths
	}
	f, y := of(true), of(false)
	for i := range points.Len() {
		var v float64
		for k := range paths {
			v += (y[k][i] - f[k][i]) * (y[k][i] - f[k][i]) / paths
		}
		if want := noiseOf(noise, i, c.Draws[0]); math.Abs(v/want-1) > 5*math.Sqrt(2./paths) {
			t.Errorf("row %d: noise of variance %g, want %g", i, v, want)
		}
	}
}

// Rows that are left out are as a refit without them says, with their own noise.
func TestLeaveOneOutOfUnequalNoise(t *testing.T) {
	c, _, _ := unequalExample(150, 1, 2)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for i := range 150 {
		all = append(all, i)
	}
	const tol = 1e-6
	scale := dataset.Scale{Mean: 3, SD: 2}
	for way, rows := range map[string][]int{"stored": all, "solved": {0, 17, 101, 149}} {
		d, stats, err := p.LeftOutDraws(t.Context(), &dataset.Info{YScale: scale}, rows, Options{Tolerance: tol})
		if err != nil || stats.Unconverged > 0 || (way == "solved") != (stats.Iterations > 0) {
			t.Fatal(stats, err)
		}
		for k, row := range rows {
			if row%17 != 0 && way == "stored" {
				continue
			}
			for s, psi := range c.Draws {
				mean, variance := dense(t, without(c.Problem, row), psi, c.Problem.Inputs.Select([]int{row}))
				noise := c.Problem.Likelihood.Augmentation().Noise([]float64{math.Exp(psi[3]), math.Exp(psi[4])}, nil)[row]
				want := likelihood.Mixture{Mean: []float64{3 + 2*mean[0]}, SD: []float64{2 * math.Sqrt(variance[0]+noise)}}
				y := scale.Undo(c.Problem.Y[row])
				if math.Abs(d.SD[s][k]/want.SD[0]-1) > 2*tol || math.Abs(d.LogDensity[s][k]-want.LogDensity(y)) > 1e-4*(1+math.Abs(want.LogDensity(y))) {
					t.Errorf("%s, row %d, draw %d: sd %g, log density %g; want %g, %g", way, row, s, d.SD[s][k], d.LogDensity[s][k], want.SD[0], want.LogDensity(y))
				}
			}
		}
	}
}

// Rows are predicted in the units of the table, and targets of whose noise nothing is known are not.
func TestRowsWithNoise(t *testing.T) {
	c, points, noise := unequalExample(60, 4, 2)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	info := &dataset.Info{InputNames: []string{"a", "b"}, XScale: []dataset.Scale{{SD: 1}, {SD: 1}}, YScale: dataset.Scale{Mean: 10, SD: 4},
		Noise: &dataset.Noise{Column: "sd", Weights: "w", By: "s", Levels: []string{"a", "b"}}}
	r := Request{Probs: []float64{0.5}, Targets: []float64{9, 10, 11, 12}}
	for i := range points.Len() {
		r.X = append(r.X, points.Row(i))
		r.Noise = append(r.Noise, dataset.NoiseRow{Known: 4 * math.Sqrt(noise.Known[i]), Weight: noise.Weight[i], Level: info.Noise.Levels[noise.Level[i]]})
	}
	rows, _, err := p.Rows(t.Context(), info, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := p.Predict(t.Context(), points, Options{Noise: &noise})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		want := m.Mixture(i, false).Scaled(10, 4)
		if _, sd := want.Moments(); math.Abs(row.SD/sd-1) > 1e-12 || math.Abs(row.LogDensity-want.LogDensity(r.Targets[i])) > 1e-10 {
			t.Errorf("row %d: sd %g, log density %g; want %g, %g", i, row.SD, row.LogDensity, sd, want.LogDensity(r.Targets[i]))
		}
	}
	r.Noise = nil
	if _, _, err := p.Rows(t.Context(), info, r, Options{Latent: true}); err == nil || !strings.Contains(err.Error(), "give sd and s, or ask for the latent function alone") {
		t.Errorf("targets without noise: %v", err)
	}
	r.Targets = nil
	if _, _, err := p.Rows(t.Context(), info, r, Options{Latent: true}); err != nil {
		t.Error(err)
	}
	if _, _, err := p.Rows(t.Context(), info, r, Options{}); err == nil {
		t.Error("targets without noise are predicted")
	}
	r.Noise = []dataset.NoiseRow{{Weight: 1, Level: "a"}, {Weight: 1, Level: "b"}, {Weight: 1, Level: "c"}, {Weight: 1, Level: "a"}}
	if _, _, err := p.Rows(t.Context(), info, r, Options{}); err == nil || !strings.Contains(err.Error(), `row 3: s is "c", which is not among the rows that were learnt from`) {
		t.Errorf("an unknown level: %v", err)
	}
}
