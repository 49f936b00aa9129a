package client

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// StateWord is a job's state as users know it.
func StateWord(s pb.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// StateWords are the words of all states, in the order of their numbers.
func StateWords() []string {
	var words []string
	for s := pb.JobState(1); pb.JobState_name[int32(s)] != ""; s++ {
		words = append(words, StateWord(s))
	}
	return words
}

// ParseState reads the word of a state.
func ParseState(word string) (pb.JobState, error) {
	if v, ok := pb.JobState_value["JOB_STATE_"+strings.ToUpper(word)]; ok && v != 0 {
		return pb.JobState(v), nil
	}
	return 0, fmt.Errorf("%q is not a state: the states are %s", word, strings.Join(StateWords(), ", "))
}

// HealthWord is what is wrong with a job, empty if nothing is.
func HealthWord(j *pb.Job) string {
	if j.GetHealth() == nil {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(j.Health.Status.String(), "HEALTH_STATUS_"))
}

// DrawsText tells how many draws every chain of a job has, of how many: 120/340, or, beyond those asked
// for, of how many at most.
func DrawsText(j *pb.Job) string {
	p, n := j.GetProgress(), MinDraws(j.GetProgress())
	switch {
	case p.GetDraws() == 0:
		return ""
	case n < int(p.Draws):
		return fmt.Sprintf("%d/%d", n, p.Draws)
	case !Ended(j.State) && n < int(p.MaxDraws):
		return fmt.Sprintf("%d (max %d)", n, p.MaxDraws)
	}
	return strconv.Itoa(n)
}

// AtWork reports whether workers compute something of a job in this state.
func AtWork(s pb.JobState) bool {
	switch s {
	case pb.JobState_JOB_STATE_PREPARING, pb.JobState_JOB_STATE_WARMUP, pb.JobState_JOB_STATE_SAMPLING, pb.JobState_JOB_STATE_CERTIFYING:
		return true
	}
	return false
}

// Ended reports whether a job in this state has ended.
func Ended(s pb.JobState) bool {
	switch s {
	case pb.JobState_JOB_STATE_CONVERGED, pb.JobState_JOB_STATE_UNCONVERGED, pb.JobState_JOB_STATE_CANCELLED, pb.JobState_JOB_STATE_FAILED:
		return true
	}
	return false
}
