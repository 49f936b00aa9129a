package coordinator

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// The history of a run tells of its windows, and by iterations what its gradients
// took.
func TestRunHistory(t *testing.T) {
	s := serve(t, Config{})
	id := s.ended()
	h, err := s.history.Run(t.Context(), &pb.RunHistoryRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	spec := referenceRun(t, testSpec(40, 60, 10), 40)
	if len(h.Windows) != len(spec.Tuned) || h.Windows[0].Iteration != 0 || h.Windows[len(h.Windows)-1].Iteration != 10 {
		t.Errorf("windows %v", h.Windows)
	}
	for _, c := range h.Chains {
		if n := len(c.Iteration); n == 0 || c.Iteration[n-1] < 50 || !slices.IsSorted(c.Iteration) {
			t.Errorf("chain %d: iterations %v", c.Chain, c.Iteration)
		}
		for i := range c.Iteration {
			if c.SolverIterations[i] != 10 || c.Residual[i] != 0 || c.NoiseRatio[i] != 0 { // each solve took 10; nothing else was measured
				t.Errorf("chain %d: %v", c.Chain, c)
				break
			}
		}
	}
	var kinds []string
	for _, n := range h.Notes {
		kinds = append(kinds, n.Kind)
	}
	if kinds[0] != "submitted" || kinds[len(kinds)-1] != "state" || !slices.Contains(kinds, "tuned") || !slices.Contains(kinds, "placed") {
		t.Errorf("%v", kinds)
	}
	_, err = s.history.Run(t.Context(), &pb.RunHistoryRequest{Id: "unknown"})
	wantCode(t, "an unknown job", err, codes.NotFound)
	id = s.submit("name: test\ndata: {path: /t.csv, target: y}\nsolver: {tolerance: 1e-3}\n")
	if h, err := s.history.Run(t.Context(), &pb.RunHistoryRequest{Id: id}); err != nil || h.Tolerance != 1e-3 || len(h.Chains) != 0 {
		t.Errorf("before the run: %v %v", h, err)
	}
}

// The history of workers tells who came and went, and what they did.
func TestWorkersHistory(t *testing.T) {
	s := serve(t, Config{})
	r := s.Coordinator.workers
	now := time.Now()
	ses := newSession("")
	r.connect(hello("w"), ses, now)
	for i := range 4 {
		r.beat("w", &pb.Beat{Load: &pb.Load{Pairs: 1000 * float64(i), BusySeconds: 10 * float64(i)}}, now.Add(time.Duration(i)*10*time.Second))
	}
	r.disconnect("w", ses, now.Add(time.Minute))
	r.connect(hello("a"), newSession(""), now)
	h, err := s.history.Workers(t.Context(), &pb.WorkersHistoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Events) != 3 || h.Events[0].Kind != "joined" || h.Events[1].Kind != "lost" || h.Events[2].Worker != "a" {
		t.Errorf("%v", h.Events)
	}
	if len(h.Workers) != 2 || h.Workers[0].Worker != "a" || !slices.Equal(h.Workers[1].PairsPerSecond, []float64{100, 100, 100}) || !slices.Equal(h.Workers[1].Busy, []float64{1, 1, 1}) {
		t.Errorf("%v", h.Workers)
	}
	r.forget(now.Add(time.Hour), time.Minute, time.Second, nil)
	if n := len(r.list()); n != 1 {
		t.Errorf("%d workers are known after one is gone for long", n)
	}
}
