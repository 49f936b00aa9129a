package local

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/runlog"
)

func TestAutoScratch(t *testing.T) {
	file := os.Getenv("SPEC")
	if file == "" {
		t.Skip("scratch")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, spec(t, string(text)), 2, t.TempDir())
	c.Driver.Observe = func(o runlog.Observation) {
		if o.StageKind == "climb" || o.Iter == 0 {
			fmt.Printf("  stage %d %s item %d: %.3f s, %d products, %d solves\n", o.Stage, o.StageKind, o.Iter, o.Seconds, o.Products, o.Solves)
		}
	}
	began := time.Now()
	last := -1
	c.Watch = func(v View) {
		if n := len(v.Run.Stages); n != last {
			last = n
			s := v.Run.Stages
			if n > 0 {
				fmt.Printf("%7.2f s: stage %d %s, %d items; %s\n", time.Since(began).Seconds(), n, s[n-1].Kind, len(s[n-1].Items), v.Run.Phase)
			}
		}
		if v.Run.Drawn != nil && v.Run.Drawn.Stages == len(v.Run.Stages) {
			fmt.Printf("%7.2f s: drawn %d, inflation %.2f, conv %+v, modes %+v\n", time.Since(began).Seconds(), v.Run.MinDraws(), v.Run.Drawn.Inflation, v.Convergence, v.Run.Drawn.Modes)
		}
	}
	r, wall, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(r.Stopped, wall)
	for i, name := range r.Plan.Names {
		x := r.Column(i, r.MinDraws())
		m, s := moments(x)
		e := r.Errors(x)
		fmt.Printf("%s %.4f %.4f  errors %.3f %.3f acceptance %.2f\n", name, m, s, e.Mean, e.SD, r.Chains[0].Acceptance())
	}
	fmt.Println(r.Diagnose(r.MinDraws()))
}
