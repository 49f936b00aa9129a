package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/driver"
)

// An estimate says that the specification's time is up before, and only then.
func TestPlanAndMaxTime(t *testing.T) {
	for limit, want := range map[time.Duration]bool{0: false, time.Hour: true, 3 * time.Hour: false} {
		var out bytes.Buffer
		a := &App{Stdout: &out}
		if err := a.printEstimate(&driver.Estimate{Gradients: 1, SecondsEstimated: 7200}, limit); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "stop.max_time, "+limit.String()+", would end it before"); got != want {
			t.Errorf("%s: %s", limit, out.String())
		}
		var errs bytes.Buffer
		(&App{Stderr: &errs}).hintTime(&driver.Estimate{Gradients: 1, SecondsEstimated: 7200}, limit)
		if got := strings.Contains(errs.String(), "would take about 2h0m0s, and stop.max_time, "+limit.String()); got != want {
			t.Errorf("%s: %s", limit, errs.String())
		}
	}
}

// Who is told to resume is one for whom that helps.
func TestAdviceAfterFailure(t *testing.T) {
	a := &App{}
	for text, want := range map[string]bool{"chain 4 diverged at iteration 53: use a smaller sampler.step": false, "the disk is full": true} {
		err := a.interrupted(context.Background(), &folder{dir: "out"}, errors.New(text))
		if strings.Contains(err.Error(), "--resume out") != want || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
}
