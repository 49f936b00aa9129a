// Package sizing predicts what a run takes on some number of workers: time, memory and cost.
//
// A Model has what the parts of a gradient take one core (Rates), how often a run needs each, and
// what a group of workers does with them as it stands. Products and gradient forms are split over
// the group (shard.Cost), and so is applying the preconditioner (shard.Apply), for which the driver sends the
// members the rows of its factor while the chain is under way; a large one, if its rank is given, they build, and keep, together. Everything else is the chain's driver's alone: building
// other preconditioners, the vectors of CG, adding up the sums of a product. So a chain gains from a group
// no more than Amdahl (1967) allows.
//
// Workers are equal, with nothing else to do. They compute chains first: fewer workers than chains
// drive several each, more of them are spread over the chains' groups, as package schedule does it.
// A run is as fast as its smallest group, since chains wait for each other at the end of each
// window of the warm-up, and convergence is judged at equal numbers of draws.
package sizing

import (
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// Worker is what each worker has.
type Worker struct {
	Cores     int     `json:"cores"`
	Bandwidth float64 `json:"bytes_per_second"` // of its network card, in each direction
	Memory    int64   `json:"memory_bytes"`     // 0 if it is not known
}

// Work is what a run consists of.
type Work struct {
	Rows       int     `json:"rows"`
	Inputs     int     `json:"inputs"`
	Params     int     `json:"parameters"`
	Chains     int     `json:"chains"`
	Columns    int     `json:"right_hand_sides"`
	Single     bool    `json:"single_precision"`    // of the products of a solve
	Near       float64 `json:"near,omitempty"`      // share of the pairs of rows that products evaluate; 0 for all
	Rank       int     `json:"preconditioner_rank"` // 0 for none
	Iterations float64 `json:"iterations"`          // of a solve
	Warmup     int     `json:"warmup"`              // gradients of each chain
	Draws      int     `json:"draws"`               // of each chain
}

// Model predicts what a run takes.
type Model struct {
	Work   Work
	Worker Worker
	Rates  *Rates
	spec   *job.Spec
}

// Config says what a Model is of.
type Config struct {
	Spec       *job.Spec
	Problem    *posterior.Problem // the job's, or one like it of other rows
	Rows       int                // of the job
	Iterations float64            // of a solve; 0 for what plans assume
	Near       float64            // as in Work
	Probes     int                // 0 for those of the specification, or what plans assume
	Worker     Worker
}

// Check returns an error if neither a Model nor, of a staged run, a Staged knows runs of the specification.
func Check(s *job.Spec) error {
	needs, kind := s.Needs(), s.Solver.Preconditioner.Kind
	switch {
	case needs.Staged: // NewStaged does
		return nil
	case needs.Dense:
		return fmt.Errorf("sampler.method %s stores K, so that workers share no products: use one for each of the %d chains at most", s.Sampler.Method, s.Sampler.Chains)
	case needs.Inducing:
		return fmt.Errorf("sampler.method %s has no products with K to share: use a worker for each of the %d chains at most", s.Sampler.Method, s.Sampler.Chains)
	case kind != "none" && !precond.HasFactor(kind):
		return fmt.Errorf("solver.preconditioner.kind %s solves by iterating, which the plan of a group does not know: plan with one that has a factor, such as rpcholesky", kind)
	}
	return nil
}

// New returns the model of a run that Check has nothing against, without its rates.
func New(c Config) *Model {
	s := *c.Spec
	if c.Probes > 0 {
		s.Sampler.Probes = job.Fixed(c.Probes)
	}
	w := Work{Rows: c.Rows, Inputs: c.Problem.Inputs.Dim(), Params: c.Problem.NumParams(), Chains: s.Sampler.Chains, Columns: driver.RightHandSides(&s),
		Single: s.Solver.Mixed(s.Solver.Method == "ulisse"), Near: c.Near, Iterations: c.Iterations, Draws: s.Sampler.Draws}
	if w.Iterations == 0 {
		w.Iterations = driver.AssumedIterations
	}
	if pc := s.Solver.Preconditioner; pc.Kind != "none" {
		w.Rank = min(pc.Rank.Or(precond.AutoRank(c.Rows)), c.Rows)
	}
	for _, iterations := range s.Plan(c.Problem.Model.Names(), c.Rows).Windows {
		w.Warmup += iterations
	}
	return &Model{Work: w, Worker: c.Worker, spec: &s}
}

// Parts are what an iteration of CG takes a chain, in seconds.
type Parts struct {
	Product      float64 `json:"product"`
	Precondition float64 `json:"preconditioner"`
	Vectors      float64 `json:"vectors"` // the driver alone: CG's own, and the sums of a product
}

// Seconds returns the time of all of it.
func (p Parts) Seconds() float64 { return p.Product + p.Precondition + p.Vectors }

// Time is what something takes a chain.
type Time struct {
	Seconds   float64 // from beginning to end
	Processor float64 // of all members together
}

// plus returns what t takes, then u some times.
func (t Time) plus(u Time, times float64) Time {
	return Time{t.Seconds + times*u.Seconds, t.Processor + times*u.Processor}
}

// product returns what products, or gradient forms, are to a group. Pairs of rows that are passed over take no time; that some units of a product
// have more of them than others is not in it.
func (m *Model) product(kind shard.Kind, rows, columns int) shard.Cost {
	rates := m.Rates.Double
	switch kind {
	case shard.Single:
		rates = m.Rates.Single
	case shard.Forms:
		rates = m.Rates.Forms
	}
	each := m.Rates.at(rates, columns)
	if m.Work.Near > 0 {
		each *= m.Work.Near
	}
	return shard.Cost{Kind: kind, Rows: rows, Columns: columns, Rate: float64(m.Worker.Cores) / each,
		Bandwidth: m.Worker.Bandwidth, Cores: m.Worker.Cores}
}

// split returns what a product takes a group, of which it uses as many as are of use.
func split(c shard.Cost, members int) Time {
	p := planned(c, members)
	return Time{p.Seconds, p.Processor}
}

// gathered is split where the driver gathers the sums, as it does of the first product with each θ.
func gathered(c shard.Cost, members int) Time {
	if c.Rows < shard.DefaultMinRows {
		members = 1
	}
	members = c.Members(members)
	return Time{c.Seconds(members), c.Processor(members)}
}

// planned returns how a group computes a product.
func planned(c shard.Cost, members int) shard.Plan {
	if c.Rows < shard.DefaultMinRows {
		members = 1
	}
	return c.Plan(members)
}

// used returns how many members of a group a product uses.
func used(c shard.Cost, members int) int { return planned(c, members).Members }

// local returns what work of the driver alone takes, on some of its cores at most.
func (m *Model) local(processor float64, cores int) Time {
	return Time{processor / float64(min(cores, m.Worker.Cores)), processor}
}

// apply returns what applying the preconditioner takes a group, at so many processor seconds of an element of
// its factor and a column.
func (m *Model) apply(rate float64, rows, columns, members int) Time {
	rank := min(m.Work.Rank, rows)
	if rate == 0 || rank == 0 || columns == 0 {
		return Time{}
	}
	a := m.factor(rows, columns, float64(m.Worker.Cores)/rate)
	if rows < shard.DefaultMinRows {
		members = 1
	}
	members = a.Members(members)
	return Time{a.Seconds(members), a.Processor(members)}
}

// factor returns what the preconditioner is to a group.
func (m *Model) factor(rows, columns int, rate float64) shard.Apply {
	return shard.Apply{Rows: rows, Rank: min(m.Work.Rank, rows), Columns: columns, Rate: rate, Bandwidth: m.Worker.Bandwidth, Cores: m.Worker.Cores}
}

// kind returns which products a solve's iterations need.
func (m *Model) kind() shard.Kind {
	if m.Work.Single {
		return shard.Single
	}
	return shard.Double
}

// step returns the parts of an iteration on some rows, each of which a group of members takes so long for.
func (m *Model) step(rows, columns, members int) (product, precondition, vectors Time) {
	c := m.product(m.kind(), rows, columns)
	numbers := float64(rows) * float64(columns)
	vectors = m.local(m.Rates.Vector*numbers, columns)
	switch p := planned(c, members); {
	case p.Exchange: // what the driver computed itself, and points that are done
		vectors = vectors.plus(m.local(m.Rates.Reduce*(float64(p.Kept)+numbers), columns), 1)
	case p.Members > 1:
		vectors = vectors.plus(m.local(m.Rates.Reduce*float64(c.Sums()), columns), 1)
	}
	return split(c, members), m.apply(m.Rates.Apply, rows, columns, members), vectors
}

// Iteration returns what an iteration takes a chain with a group of some members, the driver among
// them.
func (m *Model) Iteration(members int) Parts {
	p, a, v := m.step(m.Work.Rows, m.Work.Columns, members)
	return Parts{p.Seconds, a.Seconds, v.Seconds}
}

// Gradient returns what a gradient takes a chain with a group of some members.
func (m *Model) Gradient(members int) Time {
	return m.gradient(m.Work.Rows, m.Work.Columns, members)
}

// gradient is of any number of rows and columns: probes are made of the preconditioner, which is applied twice; a solve
// begins and ends with a product in double precision, and applies the preconditioner once before
// its iterations; forms follow. Of the first products with each θ the driver gathers the sums, and they are computed twice
// for one column, to find wrong numbers.
func (m *Model) gradient(rows, columns, members int) Time {
	t := Time{}.plus(m.apply(m.Rates.Probe/2, rows, columns-1, members), 2)
	product, precondition, vectors := m.step(rows, columns, members)
	for _, part := range []Time{product, precondition, vectors} {
		t = t.plus(part, m.Work.Iterations)
	}
	t = t.plus(precondition, 1)
	double := m.product(shard.Double, rows, columns)
	t = t.plus(split(double, members), 2)
	t = t.plus(split(m.product(shard.Forms, rows, columns), members), 1)
	if used(double, members) > 1 {
		t = t.plus(gathered(double, members), 1).plus(split(double, members), -1)
		t = t.plus(split(m.product(shard.Double, rows, 1), members), 1)
		if m.Work.Single {
			single := m.product(shard.Single, rows, columns)
			t = t.plus(gathered(single, members), 1).plus(split(single, members), -1)
			t = t.plus(split(m.product(shard.Single, rows, 1), members), 1)
		}
	}
	if m.spec.Needs().Joint { // x by Lanczos, then a solve
		t = t.plus(t, 1)
	}
	return t
}

// Build returns what building the preconditioner of some rank takes a chain with a group of some
// members.
func (m *Model) Build(rank, members int) Time {
	n := float64(m.Work.Rows)
	if _, ok := driver.Spread(m.spec, m.Work.Rows, members); ok {
		a := m.factor(m.Work.Rows, 1, 1)
		a.Rank = rank
		seconds, processor := a.Building(members, m.Rates.Build)
		return Time{seconds, processor}
	}
	t := m.local(m.Rates.Build*n*float64(rank)*float64(rank), m.Worker.Cores)
	if kind := m.spec.Solver.Preconditioner.Kind; kind == "svd" || kind == "auto" {
		const columns = 32 // of a product with the sketch
		t = t.plus(split(m.product(shard.Double, m.Work.Rows, columns), members), 2*math.Ceil(float64(rank)/columns))
	}
	return t
}

// group returns how many members each chain has at the least on some number of workers, and how
// many chains a worker has at the most.
func (m *Model) group(workers int) (members, chains int) {
	if workers < m.Work.Chains {
		return 1, (m.Work.Chains + workers - 1) / workers
	}
	if m.Work.Rows < shard.DefaultSplitRows {
		return 1, 1
	}
	return workers / m.Work.Chains, 1
}

// round returns how long it takes until each chain has made one gradient. Chains of one worker fill
// each other's gaps.
func (m *Model) round(workers int) float64 {
	members, chains := m.group(workers)
	g := m.Gradient(members)
	if chains == 1 {
		return g.Seconds
	}
	return max(g.Seconds, float64(chains)*g.Processor/float64(m.Worker.Cores))
}

// prepare returns how long it takes to find the mode: on growing subsets, which its driver climbs
// alone, then on all rows, with all workers in its group.
func (m *Model) prepare(workers int) float64 {
	members, rows, t := workers, m.Work.Rows, 0.0
	if rows < shard.DefaultSplitRows {
		members = 1
	}
	needs := m.spec.Needs()
	size := min(rows, m.spec.Sampler.Subset.Or(needs.Subset))
	if needs.Search == sampler.ByGradients && size < rows {
		for size = driver.NextSubset(size, rows); size < rows; size = driver.NextSubset(size, rows) {
			t += driver.PrepareGradients * m.gradient(size, 1+driver.PrepareProbes, 1).Seconds
		}
		t += float64(driver.PrepareGradients+2*m.Work.Params) * m.gradient(rows, 1+driver.PrepareProbes, members).Seconds
	}
	if m.Work.Rank == 0 {
		return t
	}
	t += m.Build(m.Work.Rank, members).Seconds
	if !m.spec.Solver.Preconditioner.Rank.Set { // the highest of those that are compared
		t += m.Build(precond.MaxRank(rows), members).Seconds
	}
	return t
}
