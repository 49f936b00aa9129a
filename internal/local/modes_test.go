package local

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// Thirty rows of a slow wave with a small fast one on top: to a sum of two terms over the same column, given twice, the fast wave is
// noise, or one of the terms with a hundredth of that noise, and hardly anything between. The table has these two modes, the heavier first, with
// what separates them; the pairs plot tells them apart; and the labels of its draws are those that log λ, which has few draws between, tells: at most one
// in fifty is labelled otherwise. (Which of the two terms is the fast one the data cannot tell: the test asks nothing of it.)
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
	if len(sum.Modes) != 2 {
		t.Fatalf("%d modes, want 2", len(sum.Modes))
	}
	first, second := sum.Modes[0], sum.Modes[1]
	if first.Mass < second.Mass || second.Differs == "" || !(second.MassError > 0) || math.Abs(float64(first.Mass+second.Mass)-1) > 1e-9 {
		t.Errorf("the table is %+v", sum.Modes)
	}
	d := report.PlotDraws(m.Params, r)
	lambda := len(d.X) - 1
	border := (first.At[lambda] + second.At[lambda]) / 2
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
	t.Logf("masses %.3f ± %.3f and %.3f ± %.3f, %d of %d labels off, %s", first.Mass, first.MassError, second.Mass, second.MassError, wrong, total, second.Differs)
}
