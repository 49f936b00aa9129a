package sampler

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// The kinds of stages.
const (
	scoutStage     = "scout"
	climbStage     = "climb"
	curvatureStage = "curvature"
	learnStage     = "learn"
	exploreStage   = "explore"
	pilotStage     = "pilot"
	proposeStage   = "propose"
	checkStage     = "check"
	tailStage      = "tail"
)

// Constants of the search for maxima.
const (
	maxStarts = 200
	// relevant is how far below the largest the logarithm of a maximum's mass may be, by
	// Laplace's approximation, for it to be looked at further.
	relevant = 10
)

var climbOptions = maxima.Options{Tolerance: 0.05, Evaluations: 80}

// conductor decides what a run does next, from what its stages came to.
type conductor struct {
	env   Evaluator
	opt   *Auto
	plan  *chains.Plan
	in    *chains.Conducting
	model Model
	costs costs

	reduce *surrogate.Reduction // of log|K|

	scouts []*scout          // the last, on a subset of the rows
	rows   int               // of that
	climbs [][]*maxima.Climb // of each search
	learnt []record          // all evaluations with a density, in the order of stages
	before int               // those of them from before the chains' last proposals were chosen
	values []record          // of pilots: log|K| or NaN, and yᵀK⁻¹y, without gradients
	peaks  []*peak
	short  bool           // proposals are as an earlier version chose them, which does not look for tails (reach.go)
	once   bool           // and not as one that searches again (search.go)
	fresh  []record       // those of the last stage that checked: nothing is fitted to them
	count  map[string]int // stages of each kind
	last   *chains.Staging

	found      []*peak // by the last search, if there were several
	unmeasured []*peak // those of them whose curvature is still to be measured
}

// peak is a maximum with what is known of the density around it.
type peak struct {
	*maxima.Maximum
	cov *mat.SymDense
}

func newConductor(env Evaluator, opt *Auto, p *chains.Plan, in *chains.Conducting) *conductor {
	k := &conductor{env: env, opt: opt, plan: p, in: in, model: env.Model(), count: map[string]int{}}
	var begun *chains.Stage
	if len(in.Stages) > 0 {
		begun = &in.Stages[0].Stage
	}
	k.costs = newCosts(k.model, p.Params(), k.wanted(), opt, begun)
	k.reduce, _ = reductions(k.model, 1)
	return k
}

// reductions returns how log|K| and unit·log yᵀK⁻¹y depend on fewer parameters than there are:
// K = λ·(Σ_t (σ_t/λ) K_t + D), if there is one λ and no part of K is known.
func reductions(m Model, unit float64) (logDet, logQuad *surrogate.Reduction) {
	p := len(m.Params)
	var variances, noises []int
	for i, q := range m.Params {
		switch q.Role {
		case param.Variance:
			variances = append(variances, i)
		case param.Noise:
			noises = append(noises, i)
		}
	}
	if !m.Offset && len(noises) == 1 && len(variances) > 0 {
		return surrogate.ScaleFree(p, variances, noises[0], float64(m.Rows)), surrogate.ScaleFree(p, variances, noises[0], -unit)
	}
	identity := mat.NewDense(p, p, nil)
	for i := range p {
		identity.Set(i, i, 1)
	}
	all, err := surrogate.NewReduction(identity, make([]float64, p))
	if err != nil {
		panic(err) // an identity
	}
	return all, all
}

// stream returns streams of random numbers of a purpose for a stage.
func (k *conductor) stream(p random.Purpose, stage int) func(index int) *rand.Rand {
	return func(index int) *rand.Rand {
		return random.Key{Seed: k.plan.Seed, Chain: stage, Iter: index}.Stream(p, 0)
	}
}

// next returns the next event.
func (k *conductor) next(ctx context.Context) (*chains.Event, error) {
	if err := k.read(); err != nil {
		return nil, err
	}
	if k.count[climbStage] == 0 {
		return k.searching(), nil
	}
	if err := k.findPeaks(); err != nil {
		return nil, err
	}
	if k.count[curvatureStage] == 0 {
		return k.curving(k.peaks), nil
	}
	return k.drawing(ctx)
}

// read takes in the stages.
func (k *conductor) read() error {
	p := k.plan.Params()
	var shared [][]float64 // of the proposals so far
	for i := range k.in.Stages {
		s := &k.in.Stages[i]
		k.count[s.Kind]++
		k.last = s
		switch s.Kind {
		case checkStage, tailStage: // what the check before came to is to be learnt from
			k.learnt, k.fresh = append(k.learnt, k.fresh...), nil
		case exploreStage, pilotStage:
			if k.costs.direct {
				continue // proposals are fitted to the values themselves
			}
			if s.Kind == pilotStage {
				k.short = k.short || len(s.Shared) > 0 && len(s.Shared[0]) < 3
				k.once = k.once || k.short || s.Shared[0][2] < searches
			}
			v, err := valuesOf(s, p)
			if err != nil {
				return err
			}
			k.values = append(k.values, v...)
			continue
		case proposeStage:
			if !slices.EqualFunc(s.Shared, shared, slices.Equal) {
				k.before, shared = len(k.learnt), s.Shared
			}
			continue
		}
		if s.Kind == climbStage {
			k.climbs = append(k.climbs, nil)
		}
		if s.Kind == scoutStage {
			k.scouts, k.rows = nil, int(s.Shared[0][1])
		}
		for item, x := range s.Results {
			records, err := decodeRecords(x, p)
			if err != nil {
				return fmt.Errorf("item %d of stage %d (%s): %w", item, s.Number, s.Kind, err)
			}
			if s.Kind == scoutStage || s.Kind == climbStage {
				c, err := newClimb(s.Items[item], p)
				if err != nil {
					return err
				}
				if c = replay(k.env, c, records); s.Kind == scoutStage {
					k.scouts = append(k.scouts, &scout{c, records})
					continue
				}
				search := &k.climbs[len(k.climbs)-1]
				*search = append(*search, c)
				if s.Shared[0][0] == bySolves { // all of a climb's gradients share their probes' error
					continue
				}
			}
			if s.Shared[0][0] == bySubset { // a curvature
				continue
			}
			records = slices.DeleteFunc(records, func(r record) bool { return r.Evidence == nil })
			if s.Kind == checkStage {
				k.fresh = append(k.fresh, records...)
				continue
			}
			k.learnt = append(k.learnt, records...)
		}
	}
	return nil
}

// searching returns the stage that searches the maxima on all rows, from broad starts or from where scouts have come to, or
// the one that scouts.
func (k *conductor) searching() *chains.Event {
	if !k.costs.many {
		return k.stage(climbStage, k.how(), k.broad())
	}
	if e := k.scouting(); e != nil {
		return e
	}
	starts := k.scouted()
	if len(starts) == 0 {
		starts = k.broad()
	}
	return k.stage(climbStage, k.how(), starts)
}

// broad returns broad starts, and where a subset's mode is.
func (k *conductor) broad() [][]float64 {
	return append(maxima.Starts(k.model.Params, k.starts(), k.stream(random.Climb, 0)), k.in.Prepared.Psi)
}

// starts returns how many climbs there are: more where there are more parameters.
func (k *conductor) starts() int {
	if k.opt.Starts > 0 {
		return k.opt.Starts
	}
	return min(40, 4+4*max(0, k.plan.Params()-2))
}

// how returns the shared numbers of stages that evaluate.
func (k *conductor) how() [][]float64 {
	at := k.in.Prepared.Psi
	if starts := k.scouted(); len(starts) > 0 {
		at = starts[0][:k.plan.Params()]
	}
	if len(k.peaks) > 0 {
		at = k.peaks[0].X
	}
	if k.costs.factor {
		return [][]float64{{byFactor, 0}, at}
	}
	return [][]float64{{bySolves, float64(k.costs.probes)}, at}
}

// learntBy returns those of stages that are learnt from.
func (k *conductor) learntBy() [][]float64 {
	how := k.how()
	if k.costs.values {
		how[0] = []float64{byValue, 0}
	}
	return how
}

// stage returns the next stage.
func (k *conductor) stage(kind string, shared, items [][]float64) *chains.Event {
	return &chains.Event{Stage: &chains.Stage{Number: len(k.in.Stages) + 1, Kind: kind, Sampling: kind == proposeStage, Shared: shared, Items: items}}
}

// batched joins points to items that take about a second, or less if there are few.
func (k *conductor) batched(points [][]float64, flops float64) [][]float64 {
	var items [][]float64
	for some := range slices.Chunk(points, batch(len(points), flops)) {
		items = append(items, slices.Concat(some...))
	}
	return items
}

// batch returns how many of some points are an item, at so many multiplications each.
func batch(points int, flops float64) int {
	return int(max(1, min(itemFlops/flops, float64(points/spreadItems))))
}

// findPeaks finds the maxima that may matter, the one of the largest mass first.
func (k *conductor) findPeaks() error {
	all := maxima.Distinct(k.climbs[0], 0)
	if len(all) == 0 {
		return fmt.Errorf("none of %d searches came to a maximum of the posterior: use informative priors", len(k.climbs[0]))
	}
	best := math.Inf(-1)
	for _, m := range all {
		best = max(best, m.LogMass())
	}
	for _, m := range all {
		cov, ok := m.Covariance()
		if ok && m.LogMass() > best-relevant {
			k.peaks = append(k.peaks, &peak{m, cov})
		}
	}
	if k.byMass(); len(k.peaks) == 0 {
		return fmt.Errorf("no maximum of %d has a curvature: use informative priors", len(all))
	}
	var measured []*chains.Staging
	for i := range k.in.Stages {
		if s := &k.in.Stages[i]; s.Kind == curvatureStage {
			measured = append(measured, s)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	if err := k.curve(k.peaks, measured[0]); err != nil {
		return err
	}
	measured = measured[1:]
	for _, climbs := range k.climbs[1:] {
		var s *chains.Staging
		if len(measured) > 0 {
			s = measured[0]
		}
		if err := k.add(climbs, s); err != nil {
			return err
		}
		if len(k.found) > 0 && s != nil {
			measured = measured[1:]
		}
	}
	return nil
}

// byMass sorts the peaks, the one of the largest mass first.
func (k *conductor) byMass() {
	slices.SortStableFunc(k.peaks, func(a, b *peak) int { return byLogMass(a.Maximum, b.Maximum) })
}

func byLogMass(a, b *maxima.Maximum) int {
	switch d := b.LogMass() - a.LogMass(); {
	case d > 0:
		return 1
	case d < 0:
		return -1
	}
	return 0
}

// curving returns the stage that measures the curvature at peaks: where scouts climbed, by their rows, since all that hangs on it is
// where the density is learnt first.
func (k *conductor) curving(peaks []*peak) *chains.Event {
	var points [][]float64
	for _, p := range peaks {
		points = append(points, maxima.Stencil(p.X, p.Info)...)
	}
	if k.costs.many {
		return k.stage(curvatureStage, k.ofSubset(), k.batched(points, gradientFlops(k.rows)))
	}
	return k.stage(curvatureStage, k.how(), k.batched(points, k.costs.evaluation))
}

// curve replaces the climbs' own idea of the curvature by what a stage measured.
func (k *conductor) curve(peaks []*peak, s *chains.Staging) error {
	var grads [][]float64
	for _, x := range s.Results {
		records, err := decodeRecords(x, k.plan.Params())
		if err != nil {
			return err
		}
		if s.Shared[0][0] == bySubset {
			grads = append(grads, k.ofAll(records)...)
			continue
		}
		for _, r := range records {
			_, g := r.density(k.env)
			grads = append(grads, g)
		}
	}
	each := 2 * k.plan.Params()
	if len(grads) != each*len(peaks) {
		return errLength
	}
	for j, p := range peaks {
		mine := grads[j*each : (j+1)*each]
		if slices.ContainsFunc(mine, func(g []float64) bool { return g == nil }) {
			continue
		}
		info, _ := maxima.Hessian(mine, p.Info)
		m := *p.Maximum
		m.Info = info
		if cov, ok := m.Covariance(); ok {
			p.Maximum, p.cov = &m, cov
		}
	}
	return nil
}

// first returns the mixture of t distributions at the peaks, all of one weight: Laplace's
// approximation may be off by a factor of e³.
func (k *conductor) first() (*mixture.Mixture, error) {
	var comps []mixture.Component
	for _, p := range k.peaks {
		var scale mat.SymDense
		scale.ScaleSym((mixture.Heavy-2.0)/mixture.Heavy, p.cov)
		comps = append(comps, mixture.Component{Weight: 1, Mean: p.X, Scale: &scale})
	}
	return mixture.New(comps)
}

// with returns the mixture with a wider one beside, unless that is nil, and the peaks, of the
// given share: a peak is not left out before the density itself has said that it holds nothing.
func (k *conductor) with(m, wide *mixture.Mixture, share float64) (*mixture.Mixture, error) {
	first, err := k.first()
	if err != nil {
		return nil, err
	}
	if wide == nil {
		return mixture.Join([]float64{1 - share, share}, m, first)
	}
	return mixture.Join([]float64{1 - share - wideShare, wideShare, share}, m, wide, first)
}
