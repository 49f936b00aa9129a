package client

import (
	"time"

	"github.com/ulisse-gp/ulisse/internal/job"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// ETA returns when the draws asked for will be there, if that can be told: a
// job may end later than that, if it has not converged by then.
func ETA(j *pb.Job) (time.Duration, bool) {
	p := j.GetProgress()
	if j.State != pb.JobState_JOB_STATE_WARMUP && j.State != pb.JobState_JOB_STATE_SAMPLING {
		return 0, false
	}
	warm := Warmup(j)
	done, all := 0, len(p.GetChains())*(warm+int(p.GetDraws()))
	for _, c := range p.GetChains() {
		done += min(int(c.Warmup), warm) + min(int(c.Draws), int(p.Draws))
	}
	if done == 0 || done >= all {
		return 0, false
	}
	left := p.GetActiveSeconds() * float64(all-done) / float64(done)
	return time.Duration(left * float64(time.Second)), true
}

// Warmup returns the iterations of a job's warm-up, as far as they are known
// beforehand.
func Warmup(j *pb.Job) int {
	s, err := job.ParseString(j.Spec)
	if err != nil {
		return 0
	}
	n := 0
	for _, w := range s.Plan(nil, 0).Windows {
		n += w
	}
	return n
}

// MinDraws is the number of draws that every chain has.
func MinDraws(p *pb.Progress) int {
	least := 0
	for i, c := range p.GetChains() {
		if n := int(c.Draws); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// ESSPerHour is the effective sample size for each hour at work, 0 if there is
// none yet.
func ESSPerHour(p *pb.Progress) float64 {
	if p.GetActiveSeconds() <= 0 {
		return 0
	}
	return p.GetEss() / (p.GetActiveSeconds() / 3600)
}
