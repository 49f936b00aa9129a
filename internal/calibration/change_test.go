package calibration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// When a level changed: the posterior of the place is that of a sum over a grid of all parameters with dense algebra,
// under a normal prior and a uniform one, and the change that the data were made with is in it. Mean and sd are within 5
// Monte Carlo standard errors (false alarms: four in a million; the seeds are fixed).
func TestPosteriorOfAChangePoint(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: whole runs")
	}
	const n, at = 30, 6.4
	r := rand.New(rand.NewPCG(1, 2))
	table := &dataset.Table{Target: "y", Inputs: []string{"t"}, X: [][]float64{make([]float64, n)}, Y: make([]float64, n)}
	for i := range n {
		x := 10 * float64(i) / (n - 1)
		table.X[0][i], table.Y[i] = x, 1.2/(1+math.Exp(-(x-at)/0.3))+0.4*r.NormFloat64()
	}
	for prior, ends := range map[string][2]float64{"normal(5,2)": {-3.2, 3.2}, "uniform(1,9)": {-6, 8}} {
		spec, err := job.Parse(strings.NewReader(fmt.Sprintf(`
name: change
data: {path: simulated.csv, target: y}
model: {kernel: "level: sigmoid(t, width=0.3)", priors: {level.place: "%s", sigma: "lognormal(0,0.5)", lambda: "lognormal(-1,0.5)"}}
sampler: {method: cholesky, chains: 2, draws: 500}
stop: {max_draws: 500, ess: 1e9, max_time: 0s}
`, prior)), "")
		if err != nil {
			t.Fatal(err)
		}
		data, err := dataset.New(table, dataset.Options{Standardize: true})
		if err != nil {
			t.Fatal(err)
		}
		p, err := spec.Problem(data)
		if err != nil {
			t.Fatal(err)
		}
		budget := parallel.NewBudget(2)
		done, _, err := run(t.Context(), spec, data, budget)
		if err != nil {
			t.Fatal(err)
		}
		place := make([][]float64, 2)
		for c := range place {
			for _, psi := range done.Chains[c].Draws {
				place[c] = append(place[c], p.Params.Natural(psi)[1])
			}
		}
		mean, sd := overGrid(p, budget, ends)
		got, gotSD := stat.MeanStdDev(append(append([]float64{}, place[0]...), place[1]...), nil)
		ess := diagnostics.ESSBulk(place)
		if math.Abs(got-mean) > 5*sd/math.Sqrt(ess) || math.Abs(gotSD/sd-1) > 5*math.Sqrt(2/ess) {
			t.Errorf("%s: the place is %.3f ± %.3f, on a grid %.3f ± %.3f (ESS %.0f)", prior, got, gotSD, mean, sd, ess)
		}
		if math.Abs(got-at) > 3*gotSD || gotSD > 1 {
			t.Errorf("%s: the place is %.2f ± %.2f, and was %g", prior, got, gotSD, at)
		}
	}
}

// overGrid returns the posterior mean and standard deviation of the place by sums over a grid of ψ.
func overGrid(p *posterior.Problem, budget *parallel.Budget, ends [2]float64) (mean, sd float64) {
	d := posterior.NewDense(p, budget)
	var place, logs []float64
	psi := make([]float64, 3)
	for psi[0] = -2.4; psi[0] <= 2.4; psi[0] += 0.4 {
		for psi[1] = ends[0]; psi[1] <= ends[1]; psi[1] += (ends[1] - ends[0]) / 60 {
			for psi[2] = -3; psi[2] <= 0.6; psi[2] += 0.25 {
				place, logs = append(place, p.Params.Natural(psi)[1]), append(logs, d.LogDensity(psi))
			}
		}
	}
	most := floats.Max(logs)
	for i, l := range logs {
		logs[i] = math.Exp(l - most)
	}
	mean, variance := stat.PopMeanVariance(place, logs)
	return mean, math.Sqrt(variance)
}
