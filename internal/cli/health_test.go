package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A job that is stalled is seen as such in every view of it, at once and not
// with the next line that is due; and that it is well again.
func TestHealthIsShown(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	j := &pb.Job{Id: "abc", Name: "n", State: pb.JobState_JOB_STATE_SAMPLING, Progress: &pb.Progress{}}
	ill := &pb.Health{Status: pb.HealthStatus_HEALTH_STATUS_STALLED, Message: "no worker is connected", Since: timestamppb.New(now)}

	var out bytes.Buffer
	tell := newTeller(&out, now)
	for _, h := range []*pb.Health{nil, nil, ill, ill, nil} {
		j.Health = h
		tell.see(proto.Clone(j).(*pb.Job), now)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "stalled") || !strings.Contains(lines[1], "no worker is connected") || strings.Contains(lines[2], "stalled") {
		t.Errorf("the lines of watch: %q", lines)
	}

	j.Health = ill
	if live := strings.Join(jobLines(j, &shares{}), "\n"); !strings.Contains(live, "stalled: no worker is connected") {
		t.Errorf("the live view: %q", live)
	}
	if v := client.NewJobView(j); v.Health == nil || v.Health.Status != "stalled" || v.Health.Message != ill.Message || !v.Health.Since.Equal(now) {
		t.Errorf("JSON: %+v", v.Health)
	}
	j.Health.Status = pb.HealthStatus_HEALTH_STATUS_DIVERGING
	if w := client.HealthWord(j); w != "diverging" {
		t.Errorf("the table: %q", w)
	}
}
