package driver

import (
	"github.com/ulisse-gp/ulisse/internal/evidence"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Memory is what a run takes, in bytes, if one machine with the given cores drives
// all of its chains.
type Memory struct {
	Data, Vectors, Preconditioner, Dense int64
	Rank                                 int // of the preconditioner, at most
}

// NewMemory returns the memory of a run on n rows of d inputs: a function of the
// specification and of sizes alone, so that it can be told before there are data.
func NewMemory(s *job.Spec, rows, inputs, cores int) Memory {
	n, d := int64(rows), int64(inputs)
	needs, chainCount := s.Needs(), int64(s.Sampler.Chains)
	m := Memory{Data: 8 * n * (d + 1)}
	if sparse := s.Solver.Sparsity; sparse == "on" || sparse == "auto" { // the inputs again, arranged, and their order
		m.Data += 8 * n * (d + 1)
	}
	if needs.Dense {
		matrices := int64(2) // K and its factor
		n *= int64(s.LatentFunctions())
		if needs.Estimated { // those of the approximation, and of the samples
			matrices = 10
		}
		m.Dense = min(chainCount, int64(cores)) * 8 * n * n * matrices
		return m
	}
	if needs.Inducing {
		m.Vectors = chainCount * sparse.Bytes(rows, inputs, s.LatentLength(rows, 1))
		m.Dense = 4 * 8 * min(n, int64(s.Sampler.Subset.Or(needs.Subset))) * min(n, int64(s.Sampler.Subset.Or(needs.Subset)))
		return m
	}
	if needs.Staged { // lanes, one a core at least
		chainCount = max(chainCount, int64(cores))
	}
	// Each chain: its scaled inputs; x, b, v, r, z, p, q, padded copies and
	// the parts of a product for every right-hand side.
	const vectors = 12
	m.Vectors = chainCount * 8 * n * (d + vectors*int64(RightHandSides(s)))
	if pc := s.Solver.Preconditioner; pc.Kind != "none" {
		m.Rank = pc.Rank.Or(precond.MaxRank(rows))
		r := int64(m.Rank)
		if pc.Rank.Set && !needs.Joint && (pc.Kind == "auto" || precond.Pivoted(pc.Kind)) { // in its place
			m.Preconditioner = 8 * (n*r + 2*n*min(r, precond.Proposals) + 5*r*r/2)
		} else {
			m.Preconditioner = 8 * (2*n*r + 4*r*r) // while it is built
		}
		if pc.Kind == "auto" && !pc.Rank.Set { // with what it is compared with
			m.Preconditioner += 8 * 2 * n * r
		}
		if needs.Joint { // two for each chain, and one that is built
			m.Preconditioner += chainCount * 2 * 8 * (n*r + 3*r*r)
		}
	}
	if needs.Joint { // Lanczos keeps its basis
		m.Vectors += chainCount * 8 * n * AssumedIterations
	}
	sub := int64(min(rows, s.Sampler.Subset.Or(needs.Subset)))
	m.Dense = 4 * 8 * sub * sub
	if needs.Staged && sampler.StoresFactor(rows) {
		factors := int64(1)
		if rows <= OwnFactorRows {
			factors = chainCount
		}
		m.Dense = max(m.Dense, factors*evidence.Bytes(rows, true))
	}
	if needs.Staged {
		for _, some := range sampler.ScoutedRows(rows) {
			factors := int64(1)
			if some <= ownSubsetRows {
				factors = chainCount
			}
			m.Dense += factors * evidence.Bytes(some, true)
		}
	}
	return m
}

// LeastMemory returns the bytes that a worker needs at the least, who drives one chain
// of a job and has all of its preconditioner.
func LeastMemory(s *job.Spec, rows, inputs int) int64 {
	m := leastMemory(s, rows, inputs)
	return m.Data + m.Vectors + m.Preconditioner + m.Dense
}

// leastMemory is that of one chain.
func leastMemory(s *job.Spec, rows, inputs int) Memory {
	one := *s
	one.Sampler.Chains = 1
	m := NewMemory(&one, rows, inputs, 1)
	if !s.Solver.Preconditioner.Rank.Set { // then it may be small
		m.Preconditioner = 0
	}
	return m
}

// Spread returns the preconditioner of a job that a group of some members builds and keeps together; false if its driver does that
// alone.
func Spread(s *job.Spec, rows, members int) (shard.Apply, bool) {
	pc := s.Solver.Preconditioner
	a := shard.Apply{Rows: rows, Rank: min(pc.Rank.Or(0), rows), Columns: 1}
	needs := s.Needs()
	return a, pc.Rank.Set && (pc.Kind == "auto" || precond.Pivoted(pc.Kind)) && !needs.Joint && !needs.Dense && !needs.Inducing && a.Spread(members)
}

// GroupMemory returns the bytes that members of a group of some size need at the least, for a chain of a job: the one that drives it, and each of
// the others. With one member, or where the driver builds the preconditioner alone, the former is LeastMemory.
func GroupMemory(s *job.Spec, rows, inputs, members int) (driver, member int64) {
	columns := RightHandSides(s)
	sums := 8 * int64(shard.Cost{Kind: shard.Double, Rows: rows, Columns: columns}.Sums())
	driver, member = LeastMemory(s, rows, inputs), MemberBytes(rows, inputs, columns)+sums/int64(max(2, members))
	if a, ok := Spread(s, rows, members); ok {
		m := leastMemory(s, rows, inputs)
		driver = m.Data + m.Vectors + m.Dense + sums + int64(a.Own(members)+a.BuildingBytes())
		member += int64(a.Held(members) + a.SeedBytes())
	}
	return driver, member
}

// MemberBytes returns what a member of a group that drives no chain has beside sums and rows of a preconditioner: all inputs, as they are and scaled, and
// vectors.
func MemberBytes(rows, inputs, columns int) int64 {
	return 8 * int64(rows) * int64(2*inputs+1+columns)
}
