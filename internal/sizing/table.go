package sizing

import (
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/precond"
)

// Row is what a run takes on some number of workers. Seconds count from when the chains begin to
// be driven; reading and sending the table are not in them.
type Row struct {
	Workers     int     `json:"workers"`
	Members     int     `json:"members"`       // of each chain's group, at the least
	Used        int     `json:"members_used"`  // of them, by a product
	Iteration   Parts   `json:"iteration"`     // seconds
	Round       float64 `json:"draw_seconds"`  // from one draw of a chain to its next
	Mode        float64 `json:"mode_seconds"`  // until the mode is found
	First       float64 `json:"first_seconds"` // until the first draws
	Run         float64 `json:"run_seconds"`   // until all draws asked for
	Draws       float64 `json:"draws_per_hour"`
	CoreHours   float64 `json:"core_hours"` // of the run
	Efficiency  float64 `json:"efficiency"` // core-hours of one worker over these
	DriverBytes int64   `json:"driver_bytes"`
	MemberBytes int64   `json:"member_bytes"` // of a worker that drives no chain; 0 if there is none
	Fits        bool    `json:"fits"`         // into the memory of a worker, if that is known
}

// Row returns what the run takes on some number of workers.
func (m *Model) Row(workers int) Row {
	r := m.row(workers)
	r.Efficiency = m.row(1).CoreHours / r.CoreHours
	return r
}

func (m *Model) row(workers int) Row {
	w := m.Work
	members, chains := m.group(workers)
	r := Row{Workers: workers, Members: members, Used: used(m.product(m.kind(), w.Rows, w.Columns), members), Iteration: m.Iteration(members),
		Round: m.round(workers), Mode: m.prepare(workers)}
	r.First = r.Mode + float64(w.Warmup)*r.Round
	if workers > 1 && w.Rank > 0 { // each driver builds its own
		r.First += m.Build(w.Rank, members).Seconds
	}
	r.Run = r.First + float64(w.Draws)*r.Round
	r.Draws = float64(w.Chains) / r.Round * 3600
	r.CoreHours = float64(workers*m.Worker.Cores) * r.Run / 3600
	r.DriverBytes = m.driverBytes(m.spec, chains, members)
	if members > 1 || workers > w.Chains {
		r.MemberBytes = m.memberBytes(members)
	}
	r.Fits = m.Worker.Memory == 0 || max(r.DriverBytes, r.MemberBytes) <= m.Worker.Memory
	return r
}

// driverBytes returns the memory of a worker that drives some chains of a specification: what a
// local run of these takes, and what a group adds, the sums of a product. Of a preconditioner that the group builds it has its own rows alone, for each chain.
func (m *Model) driverBytes(s *job.Spec, chains, members int) int64 {
	one := *s
	one.Sampler.Chains = chains
	mem := driver.NewMemory(&one, m.Work.Rows, m.Work.Inputs, m.Worker.Cores)
	bytes := mem.Data + mem.Vectors + mem.Dense
	if members > 1 {
		bytes += 8 * int64(m.product(m.kind(), m.Work.Rows, m.Work.Columns).Sums())
	}
	if a, ok := driver.Spread(s, m.Work.Rows, members); ok {
		return bytes + int64(chains)*int64(a.Own(members)+a.BuildingBytes())
	}
	return bytes + mem.Preconditioner
}

// memberBytes returns the memory of a worker in a group that drives no chain: inputs and vectors, the sums of its units, and its rows of the preconditioner's
// factor.
func (m *Model) memberBytes(members int) int64 {
	c := m.product(m.kind(), m.Work.Rows, m.Work.Columns)
	sums := int64(c.Sums()) / int64(max(2, members))
	if p := planned(c, members); p.Exchange { // and of the points that it adds up
		sums = int64(p.Kept) + int64(m.Work.Rows*m.Work.Columns/8)
	}
	bytes := driver.MemberBytes(m.Work.Rows, m.Work.Inputs, m.Work.Columns) + 8*sums
	if a, ok := driver.Spread(m.spec, m.Work.Rows, members); ok {
		return bytes + int64(a.Held(members)+a.SeedBytes())
	}
	return bytes + int64(m.factor(m.Work.Rows, m.Work.Columns, 1).Held(members))
}

// Alone returns the share of an iteration on one worker that a group does not shorten.
func (m *Model) Alone() float64 {
	p := m.Iteration(1)
	return p.Vectors / p.Seconds()
}

// worthwhile is the efficiency that workers have to keep up to be worth it.
const worthwhile = 0.7

// mostWorkers is up to how many are considered, if not more are asked for.
const mostWorkers = 300

// Recommended returns the number of workers that is worth it, up to some: that with which the run
// ends first, of those that have the memory and an efficiency of worthwhile; of those that end together
// the least. It is 0 if none has the memory.
func (m *Model) Recommended(most int) int { return recommended(m.row, most) }

func recommended(row func(workers int) Row, most int) int {
	best, seconds, hours := 0, math.Inf(1), row(1).CoreHours
	for n := 1; n <= max(most, mostWorkers); n++ {
		r := row(n)
		if r.Fits && (best == 0 || hours >= worthwhile*r.CoreHours) && r.Run < seconds {
			best, seconds = n, r.Run
		}
	}
	return best
}

// Table returns what the run takes on the numbers of workers that are usual, and on some.
func (m *Model) Table(workers ...int) []Row { return table(m.Row, workers) }

func table(row func(workers int) Row, workers []int) []Row {
	all := append([]int{1, 2, 4, 10, 36, 72, 300}, workers...)
	slices.Sort(all)
	var rows []Row
	for _, n := range slices.Compact(all) {
		rows = append(rows, row(n))
	}
	return rows
}

// FittingRank returns the highest rank of the preconditioner, up to the run's, with which a chain's
// driver has the memory; 0 if there is none, or if the memory is not known.
func (m *Model) FittingRank() int {
	if m.Worker.Memory == 0 {
		return 0
	}
	low, high := 0, max(m.Work.Rank, precond.MaxRank(m.Work.Rows))
	for low < high {
		rank := (low + high + 1) / 2
		s := *m.spec
		s.Solver.Preconditioner.Rank = job.Fixed(rank)
		if m.driverBytes(&s, 1, 2) <= m.Worker.Memory {
			low = rank
		} else {
			high = rank - 1
		}
	}
	return low
}
