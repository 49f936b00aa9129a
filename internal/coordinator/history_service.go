package coordinator

import (
	"context"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// historyService is the History service.
type historyService struct {
	pb.UnimplementedHistoryServer
	c *Coordinator
}

// Run returns how a job's computation went.
func (s *historyService) Run(ctx context.Context, r *pb.RunHistoryRequest) (*pb.RunHistory, error) {
	if err := s.c.fresh(ctx, r.Stale); err != nil {
		return nil, err
	}
	out := &pb.RunHistory{}
	err := s.c.jobs.with(r.Id, func(j *followed) error {
		if spec, err := j.Spec(); err == nil {
			out.Tolerance = spec.Solver.Tolerance.Or(0)
		}
		if j.Run != nil {
			addCourse(out, j.Run)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.c.node.View(func(tx *bbolt.Tx) error {
		notes, err := state.Notes(tx, r.Id)
		for _, n := range notes {
			out.Notes = append(out.Notes, &pb.JobNote{Time: pbTime(n.Time), Kind: string(n.Kind), Text: n.Text})
		}
		return err
	})
	return out, err
}

// addCourse fills in what a run tells.
func addCourse(out *pb.RunHistory, r *chains.Run) {
	if r.Prepared != nil && r.Prepared.Tolerance != 0 {
		out.Tolerance = r.Prepared.Tolerance
	}
	for _, t := range r.Tuned {
		out.Windows = append(out.Windows, &pb.TunedWindow{Window: int32(t.Window), Iteration: int32(t.Iter), Step: t.Step, Probes: int32(t.Probes),
			NoiseBudget: t.Budget, Early: t.Early})
	}
	for c := range r.Chains {
		k := &pb.ChainCourse{Chain: int32(c + 1)}
		for _, m := range r.Chains[c].Course {
			k.Iteration = append(k.Iteration, int32(m.Iter))
			k.SolverIterations = append(k.SolverIterations, ratio(float64(m.Iterations), m.Solves))
			k.Residual = append(k.Residual, m.Residual)
			k.NoiseRatio = append(k.NoiseRatio, ratio(m.Noise, m.Measured))
			k.Seconds = append(k.Seconds, ratio(m.Seconds, m.Gradients))
			k.Unconverged = append(k.Unconverged, int32(m.Unconverged))
		}
		out.Chains = append(out.Chains, k)
	}
}

func ratio(sum float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// Workers returns which workers came and went, and what they did.
func (s *historyService) Workers(context.Context, *pb.WorkersHistoryRequest) (*pb.WorkersHistory, error) {
	return s.c.workers.history(), nil
}
