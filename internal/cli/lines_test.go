package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Who watches a job without a terminal hears of it every ten seconds in the first minute and
// every minute then, in every state, also while the cluster has nothing new to say.
func TestLinesOfAJob(t *testing.T) {
	var out bytes.Buffer
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lines := newTeller(&out, start)
	const s = time.Second
	expect := func(after time.Duration, want string) {
		t.Helper()
		got := strings.TrimSpace(out.String())
		out.Reset()
		if _, rest, ok := strings.Cut(got, "level=INFO msg="); ok {
			got = rest
		}
		if got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	tell := func(after time.Duration, want string) {
		t.Helper()
		lines.tell(start.Add(after))
		expect(after, want)
	}
	see := func(after time.Duration, j *pb.Job, want string) {
		t.Helper()
		j.Id, j.Name = "x", "n"
		lines.see(j, start.Add(after))
		expect(after, want)
	}
	chains := func(warmup, draws int32) []*pb.ChainProgress {
		return []*pb.ChainProgress{{Chain: 1, Warmup: warmup, Draws: draws}, {Chain: 2, Warmup: warmup + 2, Draws: draws + 1}}
	}
	tell(0, "") // nothing is known
	see(0, &pb.Job{State: pb.JobState_JOB_STATE_QUEUED, Message: "no worker"}, "queued job=x name=n message=\"no worker\" waited=0s")
	tell(9*s, "")
	tell(10*s, "queued job=x name=n message=\"no worker\" waited=10s")
	see(12*s, &pb.Job{State: pb.JobState_JOB_STATE_PREPARING, Progress: &pb.Progress{ActiveSeconds: 1}}, "preparing job=x name=n elapsed=1s")
	tell(21*s, "")
	tell(22*s, "preparing job=x name=n elapsed=11s")
	tell(32*s, "preparing job=x name=n elapsed=21s")
	p := &pb.Progress{ActiveSeconds: 22, Warmup: 50, Draws: 80, EtaSeconds: 100, Chains: chains(0, 0)}
	see(33*s, &pb.Job{State: pb.JobState_JOB_STATE_WARMUP, Progress: p}, "warmup job=x name=n iterations=0 of=50 elapsed=22s eta=1m40s")
	p = &pb.Progress{ActiveSeconds: 40, Warmup: 50, Draws: 80, EtaSeconds: 90, Chains: chains(20, 0)}
	see(51*s, &pb.Job{State: pb.JobState_JOB_STATE_WARMUP, Progress: p}, "") // it is in the next line
	tell(53*s, "warmup job=x name=n iterations=20 of=50 elapsed=42s eta=1m28s")
	tell(64*s, "") // from a minute on one in a minute
	tell(112*s, "")
	tell(113*s, "warmup job=x name=n iterations=20 of=50 elapsed=1m42s eta=28s")
	tell(173*s, "warmup job=x name=n iterations=20 of=50 elapsed=2m42s") // it should have come by now
	p = &pb.Progress{ActiveSeconds: 170, Warmup: 50, Draws: 80, Rhat: 1.02, Ess: 50, Chains: chains(50, 20)}
	see(181*s, &pb.Job{State: pb.JobState_JOB_STATE_SAMPLING, Progress: p}, "sampling job=x name=n draws=20 wanted=80 rhat=1.02 ess=50 ess_per_hour=1059 elapsed=2m50s")
	tell(200*s, "")
	tell(241*s, "sampling job=x name=n draws=20 wanted=80 rhat=1.02 ess=50 ess_per_hour=1059 elapsed=3m50s")
	see(250*s, &pb.Job{State: pb.JobState_JOB_STATE_CONVERGED, StopReason: "converged", Progress: &pb.Progress{ActiveSeconds: 239, Draws: 80, Chains: chains(50, 80)}},
		"converged job=x name=n draws=80 wanted=80 elapsed=3m59s reason=converged")
	tell(999*s, "")
}
