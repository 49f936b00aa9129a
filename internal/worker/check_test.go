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

// Whoever computes a checkpoint again comes to the same, in all its bits, whatever the sampler: in the
// warm-up, where statistics of gradients count, and after it. With ULISSE_FAULTS for more samplers.
func TestCheckpointsAreComputedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds")
	}
	methods := []string{"fisher", "leimkuhler-matthews", "cholesky", "exact"}
	if os.Getenv("ULISSE_FAULTS") == "" { // others take as long
		methods = methods[:1]
	}
	for _, m := range methods {
		t.Run(m, func(t *testing.T) {
			c := newChecking(t, 1)
			for _, id := range []string{"a", "b", "c", "d", "e"} { // for three chains
				c.worker(id)
			}
			text := strings.Replace(fmt.Sprintf(specText, 30, 30), "method: fisher", "method: "+m, 1)
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
