package client

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// JobView is a job as users see it: its JSON is what --json prints. What is not
// known is nil, or empty.
type JobView struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	State       string      `json:"state"`
	Message     string      `json:"message,omitempty"`
	Health      *HealthView `json:"health,omitempty"` // what is wrong with it, if anything
	Priority    int32       `json:"priority"`
	Submitted   *time.Time  `json:"submitted"`
	Started     *time.Time  `json:"started"`
	Ended       *time.Time  `json:"ended"`
	N           int64       `json:"n"`
	D           int32       `json:"d"`
	Target      string      `json:"target,omitempty"`
	Data        string      `json:"data,omitempty"` // content address
	Draws       int         `json:"draws"`          // that every chain has
	DrawsWanted int32       `json:"draws_wanted"`
	MaxDraws    int32       `json:"max_draws"`
	RHat        *float64    `json:"rhat"`
	ESS         *float64    `json:"ess"`
	Error       *float64    `json:"largest_error"` // largest standard error of a mean, in posterior sds, or of an sd, relative
	ESSPerHour  *float64    `json:"ess_per_hour"`
	Seconds     float64     `json:"active_seconds"`
	ETASeconds  *float64    `json:"eta_seconds"`
	Step        float64     `json:"step,omitempty"`
	Probes      int32       `json:"probes,omitempty"`
	NoiseBudget float64     `json:"noise_budget,omitempty"`
	Chains      []ChainView `json:"chains"`
	StopReason  string      `json:"stop_reason,omitempty"`
	DrawsSHA256 string      `json:"draws_sha256,omitempty"`
	Owner       string      `json:"owner,omitempty"`
	Namespace   string      `json:"namespace,omitempty"`
	Note        string      `json:"note,omitempty"`
	Tags        []string    `json:"tags,omitempty"`
}

// HealthView is what is wrong with a job.
type HealthView struct {
	Status  string     `json:"status"` // stalled or diverging
	Message string     `json:"message"`
	Since   *time.Time `json:"since"`
}

// ChainView is a chain of a job.
type ChainView struct {
	Chain            int32    `json:"chain"`
	Warmup           int32    `json:"warmup"`
	Draws            int32    `json:"draws"`
	SolverIterations float64  `json:"solver_iterations"`
	Worker           string   `json:"worker"`
	Group            []string `json:"group"`
	Attempt          int64    `json:"attempt"`
	Seconds          float64  `json:"seconds"`
}

// NewJobView returns a job as users see it.
func NewJobView(j *pb.Job) JobView {
	p, d := j.GetProgress(), j.GetData()
	v := JobView{ID: j.Id, Name: j.Name, State: StateWord(j.State), Message: j.Message, Priority: j.Priority,
		Submitted: Moment(j.Submitted), Started: Moment(j.Started), Ended: Moment(j.Ended),
		N: d.GetN(), D: d.GetD(), Target: d.GetTarget(), Data: d.GetBlob(),
		Draws: MinDraws(p), DrawsWanted: p.GetDraws(), MaxDraws: p.GetMaxDraws(), RHat: known(p.GetRhat()), ESS: known(p.GetEss()), Error: known(p.GetLargestError()),
		ESSPerHour: known(ESSPerHour(p)), Seconds: p.GetActiveSeconds(), ETASeconds: known(p.GetEtaSeconds()),
		Step: p.GetStep(), Probes: p.GetProbes(), NoiseBudget: p.GetNoiseBudget(),
		Chains: []ChainView{}, StopReason: j.StopReason, DrawsSHA256: j.DrawsSha256, Owner: j.Owner, Namespace: j.Namespace, Note: j.Note, Tags: j.Tags}
	if h := j.GetHealth(); h != nil {
		v.Health = &HealthView{HealthWord(j), h.Message, Moment(h.Since)}
	}
	for _, c := range p.GetChains() {
		group := c.Group
		if group == nil {
			group = []string{} // [] in JSON, not null
		}
		v.Chains = append(v.Chains, ChainView{c.Chain, c.Warmup, c.Draws, c.SolverIterations, c.Worker, group, c.Attempt, c.Seconds})
	}
	return v
}

// known is a number of which 0 stands for none yet.
func known(x float64) *float64 {
	if x == 0 {
		return nil
	}
	return &x
}

// Moment is a time, nil for none.
func Moment(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	u := t.AsTime()
	return &u
}
