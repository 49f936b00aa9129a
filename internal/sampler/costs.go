package sampler

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// costs are what evaluations cost, in multiplications: counts decide what a run does, so
// that it is the same on every machine.
type costs struct {
	many       bool    // so many rows that some of them are scouted (scout.go)
	factor     bool    // evaluate by a stored factor, else by solves
	values     bool    // learn from values by a factor, without gradients
	exact      bool    // compute the determinant at every proposal
	direct     bool    // so cheaply that nothing is learnt
	probes     int     // of an evaluation by solves
	evaluation float64 // an evaluation with gradients
	learnt     float64 // one that is learnt from
	target     float64 // the target at a proposal
	basis      int     // points of which solutions serve for its quadratic term
	wanted     int     // evaluations of a first round of learning
	thin       int     // proposals for each draw
}

// factorRows is the largest number of rows of which a staged run stores a factor: 2.4 GB.
const factorRows = 24_000

// StoresFactor reports whether a staged run on so many rows may store a factor of K.
func StoresFactor(rows int) bool { return rows <= factorRows }

// Constants of the costs.
const (
	itemFlops = 4e10 // of an item of a stage: about a second of a core
	// spreadItems is how many items a stage has at least, if it has as many points.
	spreadItems = 32
	// exactRows is where a factor costs so little that nothing needs to be learnt.
	exactRows = 500
	// Chains keep one of several proposals, mostThin at most, as long as these cost no more
	// than thinFlops together; perDensity is what a density costs beside its factor.
	mostThin, thinFlops, perDensity = 5, 4e6, 1e5
	// smallRows is where a factor is always the better way: it has no noise.
	smallRows = 4000
	// perPair is what an element of K costs to compute beside its distance, and
	// perColumn to multiply with a column.
	perPair, perColumn = 10, 1
	solveIterations    = 15
	farIterations      = 20 // of a quadratic term far from the basis
	// gradientValues is how many times the work of a value by a factor one with gradients is.
	gradientValues = 3
	// factorSpeed is how many times as fast as the multiplications of a product those of a factor are.
	factorSpeed = 3
	// learnProbes are the probes that a determinant takes to be learnt from noisy gradients to the usual error, of which half are its
	// own (1,000 to twice that error on House 8L).
	learnProbes = 4000
	// learnRounds is how many times the evaluations of a first round a determinant takes to be learnt by a factor.
	learnRounds = 1.5
	// firstProbes are those of a first round, for each parameter that it depends on.
	firstProbes = 160
)

// gradientFlops are the multiplications of a value with its gradient by a factor.
func gradientFlops(rows int) float64 { return math.Pow(float64(rows), 3) / 2 }

// newCosts returns the costs of a run on p parameters that aims at an error. begun is its first stage, nil if there is none: one that an
// earlier version began goes on as that would.
func newCosts(m Model, p int, wanted float64, o *Auto, begun *chains.Stage) costs {
	n, d := float64(m.Rows), float64(m.Inputs)
	q := float64(max(1, p-1)) // parameters that the determinant depends on
	factor := n * n * n / 6
	gradient := gradientValues * factor
	product := func(columns float64) float64 { return n * n / 2 * (perPair + d + perColumn*columns) }
	c := costs{probes: 4, wanted: int(8 + 6*q), many: m.Rows > scoutFrom}
	solves := solveIterations * product(1+float64(c.probes))
	// A gradient is as much as q+1 values say, for the price of three.
	learnt, values := gradient, false
	if c.many && q+1 <= gradientValues {
		learnt, values = factor, true
		c.wanted = int(6 + 3*q)
	}
	byFactor := (learnRounds*float64(c.wanted)*learnt + scoutedEach*gradient) / factorSpeed
	bySolves := learnProbes / float64(c.probes) * solves * (defaultError / wanted) * (defaultError / wanted)
	c.factor = m.Rows <= smallRows || m.Rows <= factorRows && byFactor <= bySolves
	if o.Evidence != autoEvidence {
		c.factor = o.Evidence == factorEvidence
	}
	if begun != nil && begun.Kind == climbStage && c.many {
		c.many, values, c.factor, c.wanted = false, false, begun.Shared[0][0] == byFactor, int(8+6*q)
	}
	if c.values = values && c.factor; !c.factor {
		c.wanted = firstProbes / c.probes * int(q)
	}
	// With two parameters the basis has nearly the solution, and a determinant is learnt to a
	// thousandth; with ten it takes iterations, and is learnt to a tenth.
	if c.basis = basisPoints; c.many && q <= 2 {
		c.basis = basisPoints / 2
	}
	c.evaluation, c.target = solves, product(float64(c.basis))+product(1)
	if q > 2 {
		c.target += farIterations * product(1)
	}
	if c.factor {
		c.evaluation = gradient
	}
	if c.learnt = c.evaluation; c.values {
		c.learnt = factor
	}
	const proposals = 4000
	c.exact = m.Rows <= exactRows || m.Rows <= factorRows && q > 2 && proposals*factor <= 2*(10*q*c.evaluation+proposals*c.target)
	switch o.Density {
	case exactDensity:
		c.exact = true
	case learntDensity:
		c.exact = false
	}
	if c.exact {
		c.target = factor
	}
	c.direct = c.exact && m.Rows <= exactRows
	c.thin = 1
	if c.direct {
		c.thin = int(max(1, min(mostThin, thinFlops/(c.target+perDensity))))
	}
	return c
}
