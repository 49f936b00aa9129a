package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// health returns what is wrong with a job, as the client is told.
func (c *cluster) health(id string) (status, message string) {
	c.t.Helper()
	out, err := c.run("jobs", "--json")
	if err != nil {
		return "unknown", ""
	}
	var all []struct {
		ID     string `json:"id"`
		Health struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"health"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, j := range all {
		if j.ID == id {
			return j.Health.Status, j.Health.Message
		}
	}
	return "unknown", ""
}

// A job whose only worker is stopped is stalled for all to see within a minute,
// and when the worker goes on it is well again and ends with the same draws.
func TestStalledIsSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of waiting")
	}
	t.Parallel() // it mostly waits
	spec := fmt.Sprintf(specText, 100, 100, 3)
	want := undisturbed(t, spec)
	c := start(t, 1, 1)
	id := c.submit(spec)
	c.until("draws", 5*time.Minute, func() bool { j, ok := c.job(id); return ok && j.draws() > 0 })
	worker := c.processes("worker")[0]
	if err := syscall.Kill(worker.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(worker.PID, syscall.SIGCONT)
	var message string
	c.until("the job is stalled", time.Minute, func() bool {
		var status string
		status, message = c.health(id)
		return status == "stalled"
	})
	t.Log(message)
	if !strings.Contains(metrics(t, c.processes("coordinator")[0].Addresses.Metrics), `ulisse_jobs_unhealthy{status="stalled"} 1`) {
		t.Error("the metrics do not say that a job is stalled")
	}
	if err := syscall.Kill(worker.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.until("the job is well", 3*time.Minute, func() bool { status, _ := c.health(id); return status == "" })
	c.ends(id, want, 3*time.Minute)
}
