package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Events of rate 2 before time 5 and 12 after are learnt from by their numbers in cells: where the offset is 0 predictions are
// the intensity, within a factor that five standard deviations of the counts allow. An event outside of the window is an error.
func TestEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("t\n")
	for i := range 10 {
		fmt.Fprintln(&table, float64(i)/2+0.1)
	}
	for i := range 60 {
		fmt.Fprintln(&table, 5+float64(i)/12)
	}
	write(t, dir, "t.csv", table.String())
	spec := `
name: events
data: {path: t.csv, points: [t], window: {t: [0, 10]}, grid: 20}
model: {likelihood: poisson}
sampler: {chains: 1, warmup: 30, draws: 20, checkpoint: 10}
stop: {rhat: 9, ess: 1, max_draws: 20}
`
	run, _ := ran(t, dir, "a", spec)
	new := write(t, dir, "new.csv", "t,log_cell\n2,0\n8,0\n")
	m := predictions(t, predicted(t, run, new))["mean"]
	if math.Abs(math.Log(m[0]/2)) > 1.2 || math.Abs(math.Log(m[1]/12)) > 0.6 {
		t.Errorf("intensities %v, want 2 and 12", m)
	}
	bare := predictions(t, predicted(t, run, write(t, dir, "bare.csv", "t\n2\n8\n")))["mean"]
	if !slices.Equal(bare, m) {
		t.Errorf("without the offset %v, with 0 in it %v", bare, m)
	}
	narrow := write(t, dir, "narrow.yaml", strings.Replace(spec, "[0, 10]", "[0, 9]", 1))
	if code, _, stderr := ulisse(t, "", "run", narrow, "--out", filepath.Join(dir, "b"), "-q"); code != ExitBadInput || !strings.Contains(stderr, "t is 9, outside of the window") && !strings.Contains(stderr, "outside of the window from 0 to 9") {
		t.Errorf("%d: %s", code, stderr)
	}
}
