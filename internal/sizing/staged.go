package sizing

import (
	"context"
	"math"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Staged predicts what a staged run takes: its stages one after the other, each of them a list of items that any workers compute, and
// before each what one worker fits to those before. A stage takes as long as its busiest worker. That workers beyond the number of
// items join groups for the products of others is not in it.
type Staged struct {
	Work   Work
	Worker Worker
	Course *driver.Course
	cores  int // of this machine, which the course is of
	spec   *job.Spec
}

// NewStaged returns the prediction for a staged run, from evaluations on this machine that take some seconds. Of what a Config says it
// takes no notice of iterations and probes.
func NewStaged(ctx context.Context, c Config, budget *parallel.Budget) (*Staged, error) {
	course, err := driver.NewCourse(ctx, c.Spec, c.Problem, c.Rows, budget)
	if err != nil {
		return nil, err
	}
	return newStaged(c, course, budget.Cores()), nil
}

func newStaged(c Config, course *driver.Course, cores int) *Staged {
	s := c.Spec
	w := Work{Rows: c.Rows, Inputs: c.Problem.Inputs.Dim(), Params: c.Problem.NumParams(), Chains: s.Sampler.Chains, Columns: driver.RightHandSides(s),
		Draws: s.Sampler.Draws}
	if pc := s.Solver.Preconditioner; pc.Kind != "none" {
		w.Rank = min(pc.Rank.Or(precond.AutoRank(c.Rows)), c.Rows)
	}
	return &Staged{Work: w, Worker: c.Worker, Course: course, cores: cores, spec: s}
}

// stage returns how long the items of a stage take.
func (m *Staged) stage(st driver.Staging, workers int) float64 {
	processor := st.Seconds * float64(m.cores)
	each, sides, cores := processor/float64(st.Items), workers, m.Worker.Cores
	if m.Course.ByFactor && m.Work.Rows <= driver.OwnFactorRows { // an item is a core's, else it has all that are free
		sides, cores = workers*cores, 1
	}
	rounds := math.Ceil(float64(st.Items) / float64(min(sides, sampler.MaxLanes)))
	return max(rounds*each/float64(cores), processor/float64(workers*m.Worker.Cores))
}

// Row returns what the run takes on some number of workers. Its draws are there at the end.
func (m *Staged) Row(workers int) Row {
	r := m.row(workers)
	r.Efficiency = m.row(1).CoreHours / r.CoreHours
	return r
}

func (m *Staged) row(workers int) Row {
	r := Row{Workers: workers, Members: 1, Used: 1, Run: m.Course.Prepare * float64(m.cores) / float64(m.Worker.Cores)}
	for i, st := range m.Course.Stages {
		r.Run += st.Fitting * float64(m.cores) / float64(m.Worker.Cores)
		took := m.stage(st, workers)
		r.Run += took
		if i == 0 {
			r.Mode = r.Run
		}
		if st.Sampling {
			r.Round, r.Draws = took/float64(m.Work.Draws), float64(m.Work.Chains*m.Work.Draws)/took*3600
		}
	}
	r.First = r.Run
	r.CoreHours = float64(workers*m.Worker.Cores) * r.Run / 3600
	mem := driver.NewMemory(m.spec, m.Work.Rows, m.Work.Inputs, m.Worker.Cores)
	r.DriverBytes = mem.Data + mem.Vectors + mem.Preconditioner + mem.Dense
	r.Fits = m.Worker.Memory == 0 || r.DriverBytes <= m.Worker.Memory
	return r
}

// Recommended returns the number of workers that is worth it, up to some, and Table what the run takes on the usual numbers of workers
// and on some: as of a Model.
func (m *Staged) Recommended(most int) int   { return recommended(m.row, most) }
func (m *Staged) Table(workers ...int) []Row { return table(m.Row, workers) }
