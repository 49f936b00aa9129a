package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// jobView is a job as --json prints it.
type jobView struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	State       string        `json:"state"`
	Message     string        `json:"message,omitempty"`
	Health      *healthView   `json:"health,omitempty"` // what is wrong with it, if anything
	Priority    int32         `json:"priority"`
	Submitted   *time.Time    `json:"submitted"`
	Started     *time.Time    `json:"started"`
	Ended       *time.Time    `json:"ended"`
	N           int64         `json:"n"`
	D           int32         `json:"d"`
	Target      string        `json:"target,omitempty"`
	Data        string        `json:"data,omitempty"` // content address
	Draws       int           `json:"draws"`          // that every chain has
	DrawsWanted int32         `json:"draws_wanted"`
	MaxDraws    int32         `json:"max_draws"`
	RHat        report.Number `json:"rhat"` // null before there is one
	ESS         report.Number `json:"ess"`
	ESSPerHour  report.Number `json:"ess_per_hour"`
	Seconds     float64       `json:"active_seconds"`
	ETASeconds  *float64      `json:"eta_seconds"`
	Step        float64       `json:"step,omitempty"`
	Probes      int32         `json:"probes,omitempty"`
	NoiseBudget float64       `json:"noise_budget,omitempty"`
	Chains      []chainView   `json:"chains"`
	StopReason  string        `json:"stop_reason,omitempty"`
	DrawsSHA256 string        `json:"draws_sha256,omitempty"`
	Owner       string        `json:"owner,omitempty"`
	Namespace   string        `json:"namespace,omitempty"`
}

type healthView struct {
	Status  string     `json:"status"` // stalled or diverging
	Message string     `json:"message"`
	Since   *time.Time `json:"since"`
}

type chainView struct {
	Chain            int32    `json:"chain"`
	Warmup           int32    `json:"warmup"`
	Draws            int32    `json:"draws"`
	SolverIterations float64  `json:"solver_iterations"`
	Worker           string   `json:"worker"`
	Group            []string `json:"group"`
	Attempt          int64    `json:"attempt"`
	Seconds          float64  `json:"seconds"`
}

func newJobView(j *pb.Job) jobView {
	p, d := j.GetProgress(), j.GetData()
	v := jobView{ID: j.Id, Name: j.Name, State: stateWord(j.State), Message: j.Message, Priority: j.Priority,
		Submitted: moment(j.Submitted), Started: moment(j.Started), Ended: moment(j.Ended),
		N: d.GetN(), D: d.GetD(), Target: d.GetTarget(), Data: d.GetBlob(),
		Draws: client.MinDraws(p), DrawsWanted: p.GetDraws(), MaxDraws: p.GetMaxDraws(), RHat: known(p.GetRhat()), ESS: known(p.GetEss()),
		ESSPerHour: known(client.ESSPerHour(p)), Seconds: p.GetActiveSeconds(), Step: p.GetStep(), Probes: p.GetProbes(), NoiseBudget: p.GetNoiseBudget(),
		Chains: []chainView{}, StopReason: j.StopReason, DrawsSHA256: j.DrawsSha256, Owner: j.Owner, Namespace: j.Namespace}
	if h := j.GetHealth(); h != nil {
		v.Health = &healthView{healthWord(j), h.Message, moment(h.Since)}
	}
	if left, ok := client.ETA(j); ok {
		s := left.Seconds()
		v.ETASeconds = &s
	}
	for _, c := range p.GetChains() {
		v.Chains = append(v.Chains, chainView{c.Chain, c.Warmup, c.Draws, c.SolverIterations, c.Worker, some(c.Group), c.Attempt, c.Seconds})
	}
	return v
}

// some returns a list that is [] in JSON where it is empty, not null.
func some(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// known is a diagnostic; 0 stands for none yet.
func known(x float64) report.Number {
	if x == 0 {
		return report.Number(math.NaN())
	}
	return report.Number(x)
}

func moment(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	u := t.AsTime()
	return &u
}

// stateWord is a job's state as users know it.
func stateWord(s pb.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// healthWord is what is wrong with a job, empty if nothing is.
func healthWord(j *pb.Job) string {
	if j.GetHealth() == nil {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(j.Health.Status.String(), "HEALTH_STATUS_"))
}

// stateOf reads a state.
func stateOf(word string) (pb.JobState, error) {
	if v, ok := pb.JobState_value["JOB_STATE_"+strings.ToUpper(word)]; ok && v != 0 {
		return pb.JobState(v), nil
	}
	return 0, badInput(fmt.Errorf("--state %q: the states are %s", word, strings.Join(stateWords(), ", ")))
}

func stateWords() []string {
	var words []string
	for s := pb.JobState(1); pb.JobState_name[int32(s)] != ""; s++ {
		words = append(words, stateWord(s))
	}
	return words
}

// age tells how long ago a moment was, in its largest unit.
func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	switch d := now.Sub(t.AsTime()); {
	case d < 0:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", math.Floor(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", math.Floor(d.Hours()))
	default:
		return fmt.Sprintf("%.0fd", math.Floor(d.Hours()/24))
	}
}

// number formats a diagnostic, or nothing if there is none.
func number(format string, x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf(format, x)
}
