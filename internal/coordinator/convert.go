package coordinator

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

var jobStates = map[state.Phase]pb.JobState{
	state.Queued:      pb.JobState_JOB_STATE_QUEUED,
	state.Preparing:   pb.JobState_JOB_STATE_PREPARING,
	state.Warmup:      pb.JobState_JOB_STATE_WARMUP,
	state.Sampling:    pb.JobState_JOB_STATE_SAMPLING,
	state.Certifying:  pb.JobState_JOB_STATE_CERTIFYING,
	state.Paused:      pb.JobState_JOB_STATE_PAUSED,
	state.Converged:   pb.JobState_JOB_STATE_CONVERGED,
	state.Unconverged: pb.JobState_JOB_STATE_UNCONVERGED,
	state.Cancelled:   pb.JobState_JOB_STATE_CANCELLED,
	state.Failed:      pb.JobState_JOB_STATE_FAILED,
}

var healthStatuses = map[state.Status]pb.HealthStatus{
	state.Stalled:   pb.HealthStatus_HEALTH_STATUS_STALLED,
	state.Diverging: pb.HealthStatus_HEALTH_STATUS_DIVERGING,
}

// pbRecord returns a job without what its run says.
func pbRecord(j *state.Job) *pb.Job {
	out := &pb.Job{Id: j.ID, Name: j.Name, State: jobStates[j.Phase], Message: j.Message, Priority: int32(j.Priority),
		Submitted: pbTime(j.Submitted), Started: pbTime(j.Started), Ended: pbTime(j.Ended), Spec: j.Spec, Data: j.Info.Wire(j.Data),
		StopReason: string(j.Reason), DrawsSha256: j.DrawsSHA256, Owner: j.Owner, Namespace: j.Namespace,
		Note: j.Note, Tags: j.Tags}
	if h := j.Health; h != nil {
		out.Health = &pb.Health{Status: healthStatuses[h.Status], Message: h.Message, Since: pbTime(h.Since)}
	}
	if f := j.Final; f != nil {
		out.Progress = &pb.Progress{Rhat: f.RHat, Ess: f.ESS, LargestError: f.Error, JudgedDraws: int32(f.Draws), ActiveSeconds: j.Active.Seconds()}
		for c := 1; c <= j.Chains; c++ {
			out.Progress.Chains = append(out.Progress.Chains, &pb.ChainProgress{Chain: int32(c), Draws: int32(f.Draws)})
		}
		if j.Plan != nil {
			addPlan(out.Progress, j.Plan)
		}
	}
	return out
}

// pbJob returns a job with the progress of its run.
func pbJob(f *state.Follower) *pb.Job {
	j := pbRecord(f.Job)
	p := &pb.Progress{ActiveSeconds: f.Job.Elapsed(time.Now()).Seconds()}
	j.Progress = p
	for c := 1; c <= f.Job.Chains; c++ {
		at := &f.Job.Placements[c]
		p.Chains = append(p.Chains, &pb.ChainProgress{Chain: int32(c), Worker: at.Worker, Group: at.Group, Attempt: at.Attempt})
	}
	r := f.Run
	if r == nil {
		return j
	}
	addPlan(p, &r.Plan)
	if f.Job.Phase == state.Warmup || f.Job.Phase == state.Sampling {
		left, _ := r.Remaining(f.Job.Elapsed(time.Now()))
		p.EtaSeconds = left.Seconds()
	}
	p.JudgedDraws = int32(f.Convergence.Draws)
	p.Rhat, p.Ess, p.LargestError = finite(f.Convergence.RHat), finite(f.Convergence.ESS), finite(f.Convergence.Error)
	if e := f.Job.Final; e != nil { // which a follower that came later has not computed
		p.JudgedDraws, p.Rhat, p.Ess, p.LargestError = int32(e.Draws), e.RHat, e.ESS, e.Error
	}
	for c := range r.Chains {
		ch, to := &r.Chains[c], p.Chains[c]
		to.Warmup, to.Draws, to.Seconds = int32(ch.Warmup), int32(len(ch.Draws)), ch.Cost.Seconds
		if ch.Cost.Solves > 0 {
			to.SolverIterations = float64(ch.Cost.Iterations) / float64(ch.Cost.Solves)
		}
	}
	if s := r.Settings; s != nil {
		p.Step, p.Probes, p.NoiseBudget = s.Step, int32(s.Probes), s.Budget
	}
	return j
}

// addPlan fills in what a run is asked for.
func addPlan(p *pb.Progress, plan *chains.Plan) {
	p.Draws, p.MaxDraws, p.Warmup = int32(plan.Draws), int32(plan.MaxDraws), int32(plan.Warmup())
	p.RhatWanted, p.EssWanted, p.ErrorWanted, p.Parameters = plan.RHat, plan.ESS, plan.Error, plan.Names
}

// finite returns 0 for what is not known yet.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func pbTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
