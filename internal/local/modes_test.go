package local

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// Thirty rows of a slow wave with a small fast one on top: to a sum of two terms over the same column, given twice, the fast wave is
// noise, or one of the terms with a hundredth of that noise, and hardly anything between. The terms can change places, so that each mode has a mirror image or is its own,
// in the table whether or not a search came to it, and both have the same mass, within four standard errors (a false alarm in ten thousand runs; the seed is fixed). The table has the
// heaviest first, with what separates the others from it; the pairs plot tells them apart; and the labels of its draws are those that log λ, which has few draws between, tells: at most one
// in fifty is labelled otherwise.
func TestModesAreShown(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds")
	}
	var table strings.Builder
	table.WriteString("a,b,y\n")
	for i := range 30 {
		x := float64(i) / 3
		fmt.Fprintf(&table, "%.4f,%.4f,%.4f\n", x, x, 3*math.Sin(0.35*x)+0.44*math.Sin(4.1*x+0.4)+0.03*math.Sin(float64(i*i)))
	}
	path := filepath.Join(t.TempDir(), "waves.csv")
	if err := os.WriteFile(path, []byte(table.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := spec(t, fmt.Sprintf(`
name: modes
seed: 3
data: {path: %q, target: y}
model: {kernel: "u: rbf(a) + v: rbf(b)"}
sampler: {method: auto, chains: 2, draws: 300, auto: {starts: 30}}
stop: {error: 0.2, ess: 50, rhat: 1.1, max_draws: 300}
`, path))
	c := config(t, s, 2, t.TempDir())
	r := run(t, c)
	data, err := s.Load(t.Context(), nil, c.Budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	m := p.Model
	sum := report.Summarize(s, &data.Info, m, r, 0, "")
	for i, m := range sum.Modes {
		t.Logf("mass %.3f ± %.3f, %d searches, at %.2f", m.Mass, m.MassError, m.Found, m.At)
		if i > 0 && (m.Mass > sum.Modes[i-1].Mass || m.Differs == "" || !(m.MassError > 0)) {
			t.Errorf("the table is %+v", sum.Modes)
		}
		image := slices.IndexFunc(sum.Modes, func(o report.Mode) bool {
			return floats.EqualApprox(o.At, []float64{m.At[2], m.At[3], m.At[0], m.At[1], m.At[4]}, 0.3)
		})
		if image < 0 {
			t.Errorf("mode %d has no mirror image", i+1)
		} else if o := sum.Modes[image]; math.Abs(float64(m.Mass-o.Mass)) > 4*math.Hypot(float64(m.MassError), float64(o.MassError)) {
			t.Errorf("mode %d holds %.3f ± %.3f, its image %.3f ± %.3f", i+1, m.Mass, m.MassError, o.Mass, o.MassError)
		}
	}
	d := report.PlotDraws(m.Params, r)
	lambda := len(d.X) - 1
	noises := make([]float64, len(sum.Modes))
	for i, m := range sum.Modes {
		noises[i] = m.At[lambda]
	}
	if len(noises) < 2 || slices.Max(noises)-slices.Min(noises) < 1 {
		t.Fatalf("the modes are %+v", sum.Modes)
	}
	border := (slices.Max(noises) + slices.Min(noises)) / 2
	wrong, total := 0, 0
	for c, labels := range d.Mode {
		for i, k := range labels {
			if (d.X[lambda][c][i] > border) != (sum.Modes[k].At[lambda] > border) {
				wrong++
			}
			total++
		}
	}
	if total != 600 || wrong > total/50 {
		t.Errorf("%d of %d draws are labelled otherwise than log λ tells", wrong, total)
	}
	var b bytes.Buffer
	if err := plots.Pairs(&b, d); err != nil {
		t.Fatal(err)
	}
	for _, want := range d.Modes {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the pairs plot has no %q", want)
		}
	}
	t.Logf("%d of %d labels off", wrong, total)
}
