package client

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// The JSON of a job is what scripts read: its fields stay what they are.
func TestJobViewJSON(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for want, j := range map[string]*pb.Job{
		`{"id":"a","name":"n","state":"queued","priority":0,"submitted":"2026-01-02T03:04:05Z","started":null,"ended":null,"n":0,"d":0,"draws":0,"draws_wanted":0,"max_draws":0,` +
			`"rhat":null,"ess":null,"largest_error":null,"ess_per_hour":null,"active_seconds":0,"eta_seconds":null,"chains":[]}`: {Id: "a", Name: "n", State: pb.JobState_JOB_STATE_QUEUED, Submitted: at},
		`{"id":"b","name":"m","state":"sampling","message":"slow","health":{"status":"stalled","message":"why","since":"2026-01-02T03:04:05Z"},"priority":-2,` +
			`"submitted":"2026-01-02T03:04:05Z","started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:04:05Z","n":100,"d":3,"target":"y","data":"abc","draws":20,"draws_wanted":50,"max_draws":80,` +
			`"rhat":1.25,"ess":30,"largest_error":0.125,"ess_per_hour":60,"active_seconds":1800,"eta_seconds":90,"step":0.5,"probes":4,"noise_budget":0.25,` +
			`"chains":[{"chain":1,"warmup":10,"draws":20,"solver_iterations":9.5,"worker":"w","group":["v"],"attempt":2,"seconds":7},{"chain":2,"warmup":10,"draws":25,"solver_iterations":0,"worker":"","group":[],"attempt":0,"seconds":0}],` +
			`"stop_reason":"max_draws","draws_sha256":"h","owner":"ann","namespace":"lab"}`: {Id: "b", Name: "m", State: pb.JobState_JOB_STATE_SAMPLING, Message: "slow", Priority: -2, Submitted: at, Started: at, Ended: at,
			Health: &pb.Health{Status: pb.HealthStatus_HEALTH_STATUS_STALLED, Message: "why", Since: at}, Data: &pb.DataInfo{N: 100, D: 3, Target: "y", Blob: "abc"},
			Progress: &pb.Progress{Rhat: 1.25, Ess: 30, LargestError: 0.125, Draws: 50, MaxDraws: 80, ActiveSeconds: 1800, EtaSeconds: 90, Step: 0.5, Probes: 4, NoiseBudget: 0.25, Chains: []*pb.ChainProgress{
				{Chain: 1, Warmup: 10, Draws: 20, SolverIterations: 9.5, Worker: "w", Group: []string{"v"}, Attempt: 2, Seconds: 7}, {Chain: 2, Warmup: 10, Draws: 25}}},
			StopReason: "max_draws", DrawsSha256: "h", Owner: "ann", Namespace: "lab"},
	} {
		got, err := json.Marshal(NewJobView(j))
		if err != nil || string(got) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	}
}

func TestStateWords(t *testing.T) {
	ended := map[string]bool{"converged": true, "unconverged": true, "cancelled": true, "failed": true}
	words := StateWords()
	if len(words) != len(pb.JobState_name)-1 || words[0] != "queued" || words[8] != "failed" || words[9] != "certifying" {
		t.Errorf("%v", words)
	}
	for i, w := range words {
		s, err := ParseState(w)
		if err != nil || s != pb.JobState(i+1) || StateWord(s) != w || Ended(s) != ended[w] {
			t.Errorf("%s: %v %v, ended %v", w, s, err, Ended(s))
		}
	}
	for _, bad := range []string{"", "unspecified", "done"} {
		if _, err := ParseState(bad); err == nil {
			t.Errorf("%q is a state", bad)
		}
	}
	if w := HealthWord(&pb.Job{}); w != "" {
		t.Errorf("a job that is well is %q", w)
	}
}

func TestETA(t *testing.T) {
	if left, ok := ETA(&pb.Job{Progress: &pb.Progress{EtaSeconds: 1.5}}); !ok || left != 1500*time.Millisecond {
		t.Errorf("%v %v", left, ok)
	}
	if _, ok := ETA(&pb.Job{}); ok {
		t.Error("of a job without progress")
	}
}
