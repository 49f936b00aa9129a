package sampler

import (
	"context"
	"errors"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// auto is Metropolis–Hastings on the posterior density with log|K| learnt. Of
//
//	log p(ψ|y) = log p(ψ) − ½ yᵀK⁻¹y − ½ log|K|
//
// the quadratic term is computed at every proposal, for about one product with K; the
// determinant, which is very smooth, is learnt once from values and gradients at some tens
// or hundreds of points (package surrogate), or computed at every proposal where that costs
// less; of few rows nothing is learnt (direct.go). Proposals are independent draws of a mixture of Student t distributions that was
// fitted to the posterior (packages mixture and metropolis). What the learnt determinant
// does not know is part of every error that is told.
//
// A run is staged. Its stages, each a list of items that any driver computes:
//
//	scout      of many rows: from each of many starts to a local maximum of a random subset of them
//	climb      from each of many starts, or from where the scouts came to, to a local maximum, on all rows
//	curvature  around each maximum that may matter
//	learn      values and gradients where the posterior is, in rounds
//	explore    the target where a mode might be that no climb came to: if one may be, there are more climbs
//	pilot      the target at proposals, which are fitted anew to it
//	propose    the target at the proposals of the chains
//	check      fresh values and gradients at draws, which hold the errors to account
//	tail       values and gradients where proposals missed a tail, after which they are fitted anew
type auto struct{}

// Auto is what a specification tells it.
type Auto struct {
	Starts   int    `yaml:"starts" json:"starts"`     // of climbs; 0 for as many as the number of parameters asks for
	Density  string `yaml:"density" json:"density"`   // learnt, exact, or auto: the cheaper one
	Evidence string `yaml:"evidence" json:"evidence"` // by factor, by probes, or auto: the cheaper one
}

// How the determinant enters the target.
const (
	learntDensity = "learnt"
	exactDensity  = "exact"
	autoDensity   = "auto"
)

// How values and gradients of the determinant are had.
const (
	factorEvidence = "factor"
	probesEvidence = "probes"
	autoEvidence   = "auto"
)

func (auto) Name() string           { return "auto" }
func (auto) Section() any           { return &Auto{Density: autoDensity, Evidence: autoEvidence} }
func (auto) Windows(*Options) []int { return nil }
func (auto) Statistics() []string   { return nil }

func (auto) Check(o *Options) (field, msg string) {
	s := o.Section.(*Auto)
	switch {
	case s.Starts < 0 || s.Starts > maxStarts:
		return "auto.starts", fmt.Sprintf("%d, but must be from 0 to %d", s.Starts, maxStarts)
	case s.Density != autoDensity && s.Density != learntDensity && s.Density != exactDensity:
		return "auto.density", fmt.Sprintf("%q is not one of auto, learnt, exact", s.Density)
	case s.Evidence != autoEvidence && s.Evidence != factorEvidence && s.Evidence != probesEvidence:
		return "auto.evidence", fmt.Sprintf("%q is not one of auto, factor, probes", s.Evidence)
	}
	return "", ""
}

func (auto) Needs() Needs {
	return Needs{Search: OnSubset, Subset: denseSubset, Staged: true, Probes: "whitened"}
}

func (auto) Adapt(*chains.Run, *chains.Settings, []float64) error {
	return errors.New("a staged run has no settings")
}

func (auto) Start(Env, *Options, *chains.Plan, *chains.Task, *chains.Checkpoint) (Step, error) {
	return nil, errors.New("a staged run moves no chains")
}

func (auto) Conduct(ctx context.Context, env Evaluator, o *Options, p *chains.Plan, c *chains.Conducting) (*chains.Event, error) {
	s := o.Section.(*Auto)
	if n := env.Model().Rows; n > factorRows && (s.Density == exactDensity || s.Evidence == factorEvidence) {
		return nil, fmt.Errorf("a factor of K is stored for %d rows at most, not %d: leave auto.density and auto.evidence at auto", factorRows, n)
	}
	return newConductor(env, s, p, c).next(ctx)
}

func (auto) Evaluate(ctx context.Context, env Evaluator, _ *Options, p *chains.Plan, e *chains.Evaluation) ([]float64, error) {
	switch e.Kind {
	case scoutStage, climbStage:
		return climb(ctx, env, p, e)
	case curvatureStage, learnStage, checkStage, tailStage:
		return evaluate(ctx, env, p, e)
	case exploreStage, pilotStage, proposeStage:
		return target(ctx, env, p, e)
	}
	return nil, fmt.Errorf("a stage of kind %q is not one of this version", e.Kind)
}
