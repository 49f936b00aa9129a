package sampler

// costs are what evaluations cost, in multiplications: counts decide what a run does, so
// that it is the same on every machine.
type costs struct {
	factor     bool    // evaluate by a stored factor, else by solves
	exact      bool    // compute the determinant at every proposal
	direct     bool    // so cheaply that nothing is learnt
	probes     int     // of an evaluation by solves
	evaluation float64 // an evaluation with gradients
	target     float64 // the target at a proposal
	wanted     int     // evaluations of a first round of learning
	thin       int     // proposals for each draw
}

// factorRows is the largest number of rows of which a staged run stores a factor.
const factorRows = 16_000

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
	// learnProbes are the probes that a determinant takes to be learnt from noisy gradients.
	learnProbes = 1500
	// firstProbes are those of a first round, for each parameter that it depends on.
	firstProbes = 160
)

func newCosts(m Model, p int, o *Auto) costs {
	n, d := float64(m.Rows), float64(m.Inputs)
	q := float64(max(1, p-1)) // parameters that the determinant depends on
	factor, gradient := n*n*n/6, n*n*n/2
	product := func(columns float64) float64 { return n * n / 2 * (perPair + d + perColumn*columns) }
	c := costs{probes: 4, wanted: int(8 + 6*q)}
	solves := solveIterations * product(1+float64(c.probes))
	byFactor := 3 * float64(c.wanted) * gradient
	bySolves := learnProbes / float64(c.probes) * solves
	c.factor = m.Rows <= smallRows || m.Rows <= factorRows && byFactor <= bySolves
	if o.Evidence != autoEvidence {
		c.factor = o.Evidence == factorEvidence
	}
	if !c.factor {
		c.wanted = firstProbes / c.probes * int(q)
	}
	// With two parameters the basis has nearly the solution, and a determinant is learnt to a
	// thousandth; with ten it takes iterations, and is learnt to a tenth.
	c.evaluation, c.target = solves, product(basisPoints)+product(1)
	if q > 2 {
		c.target += farIterations * product(1)
	}
	if c.factor {
		c.evaluation = gradient
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
