package sampler

import "github.com/ulisse-gp/ulisse/internal/chains"

// Course is what a staged run is expected to consist of, told before it has begun. How many evaluations a search takes, and how often
// something has to be learnt or proposed anew, only the run can tell: these are what runs took on tables that were tried.
type Course struct {
	Factor bool // values with gradients are by a stored factor of K, else by solves with Probes
	Exact  bool // densities at proposals are, too, else by a basis of solutions at Basis points
	Probes int
	Basis  int
	Stages []Expected
}

// Expected is what a stage is expected to consist of.
type Expected struct {
	Kind        string
	Rows        int  // that are evaluated, by a factor; 0 for all
	Evaluations int  // values with gradients
	Values      bool // without gradients, a third of the work
	Proposals   int  // densities
	Items       int  // that may be computed side by side
	Sampling    bool
	// Fitted is how many numbers the functions are fitted to that are learnt before it; 0 if there are none.
	Fitted int
}

// Constants of what is expected.
const (
	// climbEach is how many evaluations a climb takes for each parameter: 9 of three on Concrete, 29 of ten.
	climbEach = 3
	// scoutedEach are those of a climb from where the last scouts have come to; before, there is one for each parameter beside.
	scoutedEach = 3
	// paramsPerPeak is how many parameters beyond the first three come with another maximum that may matter: there are
	// three on Concrete with ten parameters.
	paramsPerPeak = 4
	// nearPeaks is the share of the climbs' evaluations that is near enough to be learnt from.
	nearPeaks = 0.5
)

// Course returns what a run is expected to consist of.
func (a auto) Course(m Model, o *Options, p *chains.Plan) *Course {
	s := o.Section.(*Auto)
	k := &conductor{opt: s, plan: p, model: m, costs: newCosts(m, p.Params(), or(p.Error, defaultError), s, nil)}
	c := &Course{Factor: k.costs.factor, Exact: k.costs.exact}
	if !c.Factor {
		c.Probes = k.costs.probes
	}
	if !c.Exact {
		c.Basis = k.costs.basis
	}
	params := p.Params()
	climbs, peaks := k.starts()+1, 1+max(0, params-3)/paramsPerPeak
	search := Expected{Kind: climbStage, Evaluations: climbs * climbEach * params, Items: climbs}
	curvature := k.expect(curvatureStage, 2*params*peaks, 0)
	if k.costs.many {
		for i, rows := range ScoutedRows(m.Rows) {
			scout := search
			scout.Kind, scout.Rows, curvature.Rows = scoutStage, rows, rows
			if scout.Evaluations += scout.Items * 2 * params; i == 0 {
				search.Items = min(peaks, mostScouted)
				search.Evaluations = search.Items * (scoutedEach + params)
			}
			c.Stages = append(c.Stages, scout)
		}
		search.Evaluations = search.Items * scoutedEach
	}
	pilots := k.costs.thin * pilotEach * params
	propose := k.expect(proposeStage, 0, p.Chains*k.costs.thin*p.Draws)
	if k.costs.direct {
		c.Stages = []Expected{search, curvature, k.expect(pilotStage, 0, pilots), k.expect(pilotStage, 0, 2*pilots), propose}
		return c
	}
	learn, pilot := k.expect(learnStage, k.costs.wanted, 0), k.expect(pilotStage, 0, pilots)
	learn.Values = k.costs.values
	near := 0
	if curvature.Rows == 0 {
		near += curvature.Evaluations
	}
	if c.Factor {
		near += int(nearPeaks * float64(search.Evaluations))
	}
	near *= params
	if learn.Values {
		near += learn.Evaluations
	} else {
		near += learn.Evaluations * params
	}
	pilot.Fitted = near
	propose.Fitted = pilot.Fitted + pilots
	explore := k.expect(exploreStage, 0, explorers*params)
	explore.Fitted = near
	c.Stages = append(c.Stages, search, curvature, learn, explore, pilot, propose)
	if !c.Exact {
		count, values := k.checks()
		check := k.expect(checkStage, count*3/2, 0)
		check.Values = values
		check.Fitted = propose.Fitted
		c.Stages = append(c.Stages, check)
	}
	return c
}

// expect returns a stage of evaluations or proposals, which come in batches.
func (k *conductor) expect(kind string, evaluations, proposals int) Expected {
	points, flops := evaluations, k.costs.evaluation
	if proposals > 0 {
		points, flops = proposals, k.costs.target
	}
	each := batch(points, flops)
	return Expected{Kind: kind, Evaluations: evaluations, Proposals: proposals, Items: (points + each - 1) / each, Sampling: kind == proposeStage}
}
