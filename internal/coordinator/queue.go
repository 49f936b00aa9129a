package coordinator

import (
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// holdersNamed is how many of the jobs that others wait for are named.
const holdersNamed = 3

// queueReason says what the queued jobs wait for: the jobs whose chains have workers. Of jobs that
// the caller may not see it says only that there are some. It is empty if no job has a worker.
func (c *Coordinator) queueReason(who *auth.Identity) string {
	var seen []string
	unseen := 0
	err := c.node.View(func(tx *bbolt.Tx) error {
		for _, id := range state.Active(tx) {
			j, err := state.GetJob(tx, id)
			switch {
			case err != nil || !j.Placed(): // of a record that is damaged its own job tells
			case who.Shows(j.Namespace):
				seen = append(seen, id)
			default:
				unseen++
			}
		}
		return nil
	})
	switch n := len(seen); {
	case err != nil || n+unseen == 0:
		return ""
	case n == 0:
		return "waits for cores: jobs of other namespaces have them"
	case n == 1 && unseen == 0:
		return fmt.Sprintf("waits for cores: job %s has them", seen[0])
	case n <= holdersNamed && unseen == 0:
		return fmt.Sprintf("waits for cores: jobs %s and %s have them", strings.Join(seen[:n-1], ", "), seen[n-1])
	default:
		named := seen[:min(n, holdersNamed)]
		return fmt.Sprintf("waits for cores: jobs %s and %d more have them", strings.Join(named, ", "), n+unseen-len(named))
	}
}

// unexplained reports whether a job is queued, and nothing says why.
func unexplained(j *pb.Job) bool {
	return j.State == pb.JobState_JOB_STATE_QUEUED && j.Message == "" && j.Health == nil
}
