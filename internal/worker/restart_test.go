package worker

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// divergent is a posterior on which a chain diverges at the default step.
const divergent = `
name: test
data: {synthetic: {n: 60, d: 8, sigma: 1, tau: 0.05, lambda: 0.1, seed: 1}}
model: {ard: true, priors: {tau: "gamma(0.2,0.2)"}}
sampler: {method: fisher, draws: 20%s}
stop: {ess: 1e9, max_draws: 20}
seed: 1
`

// On a cluster a job that diverges begins again, too: its draws are those of the smaller step, whoever is killed on
// the way, and its events say what happened.
func TestDivergenceOnAnyWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	want := undisturbed(t, fmt.Sprintf(divergent, ", step: 0.2"))
	c := newCluster(t)
	_, kill := c.worker("a")
	id := c.submit(fmt.Sprintf(divergent, ""))
	began := func() string {
		h, err := pb.NewHistoryClient(c.conn).Run(t.Context(), &pb.RunHistoryRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range h.Notes {
			if n.Kind == "diverged" {
				return n.Text
			}
		}
		return ""
	}
	c.wait("a new beginning", func() bool { return began() != "" })
	kill()
	c.worker("b")
	c.worker("c")
	j := c.end(id)
	if j.DrawsSha256 != want {
		t.Errorf("draws %s, want %s", j.DrawsSha256, want)
	}
	if text := began(); !strings.HasSuffix(text, "with a step of 0.8: all chains began again with a step of 0.2") {
		t.Errorf("%q", text)
	}
}

// At the end of a job its workers are free at once, in the middle of a checkpoint.
func TestWorkersAreFreeAtTheEnd(t *testing.T) {
	c := newCluster(t)
	w, _ := c.worker("a")
	// A checkpoint of a million iterations takes an hour.
	id := c.submit(strings.NewReplacer("warmup: 20", "warmup: 1000000", "checkpoint: 10", "checkpoint: 1000000").Replace(fmt.Sprintf(specText, 20, 20)))
	c.wait("the warm-up", func() bool { return c.get(id).State == pb.JobState_JOB_STATE_WARMUP && w.Driving() > 0 })
	if _, err := c.jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	c.wait("the worker free", func() bool { return w.Driving() == 0 })
	other := c.submit(fmt.Sprintf(specText, 20, 20))
	c.end(other)
}
