package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Coefficients are mixtures over the draws, in the units of the data, in every table; where there are none it is
// said why.
func TestCoefficients(t *testing.T) {
	rec := testRecord(t, true, 20)
	rec.Spec.Model.Mean = "linear(" + rec.Data.InputNames[1] + ")"
	text, err := rec.Spec.YAML()
	if err != nil {
		t.Fatal(err)
	}
	rec.SpecText = string(text)
	rec.Data.YScale.Mean, rec.Data.YScale.SD = 700, 20
	rec.Data.XScale[1].Mean, rec.Data.XScale[1].SD = 50, 4
	k := &chains.Coefficients{Draws: 20}
	for i := range 90 {
		v := 1 - 2*float64(i%2)
		k.Mean, k.SD = append(k.Mean, []float64{0.1 * v, 2 + 0.3*v}), append(k.SD, []float64{0.1, 0.4})
	}
	rec.Run.Coefficients, rec.Run.Phase = k, chains.Done
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	sum := rec.Summary()
	if c := sum.Coefficients; c == nil || c.Draws != 90 || len(c.Of) != 2 {
		t.Fatalf("coefficients %+v", sum.Coefficients)
	}
	for i, want := range []Coefficient{
		{Name: "constant", Mean: 700, SD: Number(20 * math.Hypot(0.1, 0.1)), Q50: 700},
		{Name: "slope[" + rec.Data.InputNames[1] + "]", Mean: 10, SD: 5 * 0.5, Q50: 10}, // 2·20/4, 20/4·√(0.3²+0.4²)
	} {
		got := sum.Coefficients.Of[i]
		near := func(a, b Number) bool { return math.Abs(float64(a-b)) < 1e-6*float64(want.SD) }
		if got.Name != want.Name || !near(got.Mean, want.Mean) || !near(got.SD, want.SD) || !near(got.Q50, want.Q50) || !(got.Q5 < got.Q50 && got.Q50 < got.Q95) || !(got.MCSEMean > 0) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	var table, page bytes.Buffer
	if err := sum.WriteText(&table); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page, rec, sum, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{table.String(), page.String()} {
		if !strings.Contains(out, "coefficients of the mean, averaged over 90 draws") || !strings.Contains(out, sum.Coefficients.Of[1].Name) {
			t.Errorf("no coefficients in\n%.3000s", out)
		}
	}
	rec.Run.Coefficients = nil
	for _, c := range []struct {
		phase   chains.Phase
		stopped *chains.Stop
		note    string
	}{
		{chains.Sampling, nil, "follow at the end of the run"},
		{chains.Concluding, &chains.Stop{Reason: chains.Converged, Draws: 20}, "are being computed"},
		{chains.Done, &chains.Stop{Reason: chains.Cancelled, Draws: 20}, "were not computed"},
	} {
		rec.Run.Phase, rec.Run.Stopped = c.phase, c.stopped
		if notes := rec.Summary().Notes; len(notes) != 1 || !strings.Contains(notes[0], c.note) {
			t.Errorf("%s: notes %q", c.phase, notes)
		}
	}
	if plain := testRecord(t, true, 20).Summary(); plain.Coefficients != nil || plain.Notes != nil {
		t.Errorf("a model without a mean has %+v and notes %q", plain.Coefficients, plain.Notes)
	}
}
