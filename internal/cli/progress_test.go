package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// Without a terminal there is a line every ten seconds in the first minute and every minute
// then, also while the mode is sought and no event comes, of what is known and nothing else.
func TestProgressLines(t *testing.T) {
	var stderr bytes.Buffer
	path := filepath.Join(t.TempDir(), "log.jsonl")
	plan := chains.Plan{Chains: 2, Windows: []int{10, 10}, Draws: 80, MaxDraws: 200}
	p, err := (&App{Stderr: &stderr}).newProgress(false, plan, path)
	if err != nil {
		t.Fatal(err)
	}
	p.stop() // the test is the clock
	start := p.began
	tell := func(after time.Duration, want string) {
		t.Helper()
		stderr.Reset()
		p.tell(start.Add(after))
		got := strings.TrimSpace(stderr.String())
		if _, rest, ok := strings.Cut(got, "level=INFO "); ok {
			got = rest
		}
		if got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	note := func(after time.Duration, run *chains.Run, c chains.Convergence) {
		last := p.lastLine
		p.note(local.View{Run: run, Convergence: c, Elapsed: after})
		p.view.at = start.Add(after)
		if !p.lastLine.Equal(last) {
			p.lastLine = start.Add(after) // it was a new phase
		}
	}
	const s = time.Second
	tell(9*s, "")
	tell(10*s, `msg="finding the mode" elapsed=10s`)
	tell(19*s, "")
	for range 3 {
		p.Observe(runlog.Observation{Kind: runlog.Gradient, Rows: 2048})
	}
	tell(20*s, `msg="finding the mode" gradients=3 rows=2048 elapsed=20s`)

	run := chains.New(plan)
	run.Phase, run.Prepared = chains.Warmup, &chains.Prepared{}
	run.Chains[0].Warmup, run.Chains[1].Warmup = 12, 8 // of 200 iterations 20 in 30 s: 270 s are left
	note(30*s, run, chains.Convergence{})
	tell(40*s, "msg=warmup iterations=8 of=20 elapsed=40s eta=4m20s")
	tell(49*s, "")

	run.Phase = chains.Sampling
	run.Chains[0].Warmup, run.Chains[1].Warmup = 20, 20
	note(55*s, run, chains.Convergence{})
	tell(64*s, "") // from a minute on one in a minute
	tell(115*s, "msg=sampling draws=0 wanted=80 elapsed=1m55s eta=2m40s")
	run.Chains[0].Draws, run.Chains[1].Draws = make([][]float64, 70), make([][]float64, 50)
	note(120*s, run, chains.Convergence{Draws: 50, RHat: 1.01234, ESS: 87.6, Error: 0.06789})
	tell(174*s, "")
	tell(175*s, "msg=sampling draws=50 wanted=80 rhat=1.0123 ess=88 largest_error=0.0679 elapsed=2m55s")

	run.Phase, run.Stopped = chains.Done, &chains.Stop{Reason: "converged"}
	note(180*s, run, chains.Convergence{Draws: 80, RHat: 1, ESS: 200})
	tell(10*time.Minute, "")
	p.Finished()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(path); strings.Count(string(text), `"msg":"finding the mode"`) != 2 {
		t.Errorf("the log has not the lines:\n%s", text)
	}
}
