package worker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// checks returns how many checkpoints were computed again, by what came of it.
func (c *cluster) checks() map[string]float64 {
	c.t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c.coord)
	all, err := r.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range all {
		if f.GetName() == "ulisse_checkpoints_checked_total" {
			for _, m := range f.Metric {
				out[m.Label[0].GetValue()] = m.Counter.GetValue()
			}
		}
	}
	return out
}

// Whoever computes again what a driver has computed comes to the same, in all its bits, whatever the
// sampler: preparations, checkpoints of the warm-up and after it, the certificate's, and of staged runs
// the items, the lists of items and the draws. With ULISSE_FAULTS for more samplers.
func TestCheckpointsAreComputedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds")
	}
	methods := []string{"fisher", "auto", "leimkuhler-matthews", "cholesky", "exact"}
	if os.Getenv("ULISSE_FAULTS") == "" { // others take as long
		methods = methods[:2]
	}
	for _, m := range methods {
		t.Run(m, func(t *testing.T) {
			c := newChecking(t, 1)
			for _, id := range []string{"a", "b", "c", "d", "e"} { // for three chains
				c.worker(id)
			}
			text := strings.Replace(fmt.Sprintf(specText, 30, 30), "method: fisher", "method: "+m, 1)
			switch m {
			case "fisher":
				text = strings.Replace(text, "checkpoint: 10", "checkpoint: 10, certify: true", 1)
			case "auto":
				text = strings.NewReplacer("n: 150", "n: 40", "checkpoint: 10", "checkpoint: 10, auto: {starts: 1}").Replace(text)
			}
			want := undisturbed(t, text)
			for range 4 {
				c.wantDraws(c.submit(text), want)
				if c.checks()["same"] >= 5 {
					break
				}
			}
			n := c.checks()
			if n["same"] < 5 || n["other"] > 0 || n["none"] > 0 {
				t.Errorf("%v", n)
			}
		})
	}
}
