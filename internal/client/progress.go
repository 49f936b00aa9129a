package client

import (
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// ETA returns when the draws asked for will be there, if that can be told: a
// job may end later than that, if it has not converged by then.
func ETA(j *pb.Job) (time.Duration, bool) {
	s := j.GetProgress().GetEtaSeconds()
	return time.Duration(s * float64(time.Second)), s > 0
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

// MinWarmup is the number of warm-up iterations that every chain has done.
func MinWarmup(p *pb.Progress) int {
	least := 0
	for i, c := range p.GetChains() {
		if n := int(c.Warmup); i == 0 || n < least {
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
