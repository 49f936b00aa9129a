package client

import (
	"fmt"
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

// Ended reports whether a job in this state has ended.
func Ended(s pb.JobState) bool {
	switch s {
	case pb.JobState_JOB_STATE_CONVERGED, pb.JobState_JOB_STATE_UNCONVERGED, pb.JobState_JOB_STATE_CANCELLED, pb.JobState_JOB_STATE_FAILED:
		return true
	}
	return false
}
