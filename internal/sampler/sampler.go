// Package sampler holds the ways to draw from the posterior. Each is one value,
// a Method, in a file of its own: what it is called and told, what it needs to be
// given, how its warm-up is cut and adapts, and how it moves a chain. The rest of
// the program asks the method that a run names (ByName), and compares no names.
//
// A method decides and steps; what it steps with, gradients and densities, a
// driver computes (Env). So the coordinators, which adapt warm-ups, need no
// n-vector, and the schedule (package chains) needs to know no sampler.
package sampler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// methods are all there are, in the order in which they are listed to people.
var methods = []Method{auto{}, fisher{}, leimkuhler{}, exact{}, gibbs{}, elliptical{}, sgldMethod{}, cholesky{}, sgpmc{}, pseudoMarginal{}}

// Default is the method of a specification that names none, Certifier the one that
// others are certified by.
var (
	Default   = auto{}.Name()
	Certifier = exact{}.Name()
	// Stepping is the method of one that names none, but sets what only methods have that step by gradients.
	Stepping = fisher{}.Name()
	// Augmenting is the method of likelihoods that are Gaussian given auxiliary variables.
	Augmenting = gibbs{}.Name()
	// Slicing is the method of likelihoods of several latent functions.
	Slicing = elliptical{}.Name()
	// Approximating is the method of approximations that have inducing variables to draw.
	Approximating = sgpmc{}.Name()
)

// Remedy is what errors of chains that have diverged advise first: programs that offer it look for it.
const Remedy = "use a smaller sampler.step"

// Method is a way to draw from the posterior.
type Method interface {
	// Name is its name in specifications, plans and results.
	Name() string
	// Section returns a pointer to a struct, with its defaults, of what only this
	// method is told: fields with yaml tags, in the section sampler.<name> of a
	// specification. Nil means that there is nothing.
	Section() any
	// Check returns the field that makes no sense, from sampler on, and why; or
	// empty strings. What is common to all methods has been checked.
	Check(o *Options) (field, msg string)
	// Needs says what runs of the method need.
	Needs() Needs
	// Windows returns the iterations of each warm-up window.
	Windows(o *Options) []int
	// Adapt completes the settings of the next window of a run at a barrier. They
	// have a window, a metric and whether solves stop early; mean is that of the
	// draws of all windows but the first, nil if there are none.
	Adapt(r *chains.Run, s *chains.Settings, mean []float64) error
	// Start returns the function that moves the chain of a task by an iteration: it
	// changes k.State, and adds to k what there is to say of it.
	Start(env Env, o *Options, p *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error)
	// Statistics names what is known of each iteration, in the order of exports.
	Statistics() []string
}

// Keeper is a Method that keeps its probes for some iterations.
type Keeper interface {
	Redraw(o *Options) int
}

// Settler is a Method with more to settle once the mode is known.
type Settler interface {
	Settle(ctx context.Context, env SettleEnv, p *chains.Plan, prep *chains.Prepared) error
}

// MaxLanes is on how many drivers a stage is spread at most.
const MaxLanes = 64

// Options is what a specification tells a method: zero means that the method is to
// choose.
type Options struct {
	Chains, Draws, Checkpoint int
	Warmup                    int // iterations of each chain
	Step                      float64
	Section                   any // what its Section returned, filled in
}

// Search is on what rows, and how, a method wants the mode found.
type Search int

// The searches.
const (
	ByGradients Search = iota // on all rows, by solves alone
	ByDensity                 // on all rows, with a stored K
	OnSubset                  // on a random subset only, as published for SGLD
	ByBound                   // on all rows, of the bound that an approximation has
)

// Needs is what runs of a method need.
type Needs struct {
	Search Search
	Subset int // rows of the first, dense search for the mode
	// Gradients says that it steps by estimates of the gradient, and so has probes
	// and a preconditioner that is kept; Redraw for how many iterations probes are.
	Gradients bool
	Redraw    int
	Probes    string // kind of probes if none is asked for
	// Noise says that its step is matched to the noise of the gradient, which then
	// is measured at the mode and throughout warm-up.
	Noise bool
	// Joint says that it steps by the joint density of ψ and an n-vector, with a
	// preconditioner that is a function of ψ.
	Joint bool
	// Latent is how many vectors of length n, or of the number of inducing inputs, the state of a chain holds beside ψ. Env
	// has them.
	Latent int
	// Inducing says that it draws the inducing variables of an approximation: it is for models that have some, and no other
	// method is.
	Inducing bool
	// Augments says that it is for likelihoods that have auxiliary variables, as those have that are not
	// Gaussian, and no other method is. The mode is that of their Gaussian stand-in. Laplace says that it moves ψ and the latent function around Laplace's approximation
	// in place of drawing the variables: it is for likelihoods that are log-concave.
	Augments, Laplace bool
	// Several says that it is for several latent functions, too.
	Several bool
	// Estimated says that it steps by estimates of the density (Env.Estimate): it is for likelihoods that are
	// log-concave.
	Estimated bool
	// Dense says that it stores K.
	Dense bool
	// Staged says that its runs are staged: it is a Stager.
	Staged bool
	// MaxStep is the largest step at which the method is stable and its successive
	// draws are not anticorrelated; 0 if it has no step. Step is its own choice.
	MaxStep, Step float64
	// Exact says that its draws are the posterior's, up to the tolerance of solves:
	// there is nothing to certify.
	Exact bool
}

// Env is what a chain computes with.
type Env interface {
	// Gradient estimates the gradient of the log posterior. What it costs is added
	// to the checkpoint.
	Gradient(ctx context.Context, r Request) (*Gradient, error)
	// Density returns the log posterior density at ψ, up to a constant, from a
	// stored K: −∞ where that is numerically singular. Of methods that need Dense.
	Density(ctx context.Context, psi []float64) (float64, error)
	// Estimate returns the logarithm of an unbiased estimate of the posterior density of ψ, up to a constant factor, whose
	// random numbers are r's: −∞ where the covariance is numerically singular. Of methods that need Estimated.
	Estimate(ctx context.Context, psi []float64, r *rand.Rand) (float64, error)
	// Joint returns the joint density. Of methods that need Joint.
	Joint() Joint
	// Inducing returns the joint density with inducing variables, the same for all steps of a chain. Of methods that need
	// Inducing.
	Inducing() Inducing
	// White returns the density around Laplace's approximation. Of methods that need Laplace.
	White() White
	// Latent returns the chain's latent vectors, which steps change in place: zeros at
	// the chain's first iteration, then what the step before left, whoever drives. Of
	// methods that need Latent.
	Latent() [][]float64
}

// Joint is the joint log density of ψ and an auxiliary n-vector x, up to a
// constant; −∞ where K is numerically singular.
type Joint interface {
	// Refresh draws x given ψ and returns the log density there.
	Refresh(ctx context.Context, psi []float64, key random.Key) (float64, error)
	// Density returns the log density of ψ and the last x.
	Density(ctx context.Context, psi []float64) (float64, error)
	// Own returns how many parameters, the last ones of ψ, are the likelihood's own; Held how many of
	// these are not to move while the auxiliary variables are what they are; and Given the log density
	// of the own ones given the latent function f, without auxiliary variables, up to a constant. Scales returns
	// the places of the variances that f's scale can be moved with, nil if it is not to be.
	Own() int
	Scales() []int
	Held() int
	Given(psi, f []float64) float64
	// Excess returns by how much the log density of the targets given ψ and f is more than the auxiliary variables
	// make of it: 0 where these are exact.
	Excess(psi, f []float64) float64
	// Renew draws the auxiliary variables of the likelihood given ψ and the latent function f.
	Renew(psi, f []float64, key random.Key)
	// Draw sets f to a draw of the latent function given ψ and the auxiliary variables of the
	// likelihood.
	Draw(ctx context.Context, psi, f []float64, key random.Key) error
}

// White is the joint log density of ψ and coordinates ν of the latent function that are nearly standard normal, whatever ψ is.
type White interface {
	// Density returns it less that of N(ν|0,I), up to a constant; −∞ where there is none.
	Density(ctx context.Context, psi, nu []float64) (float64, error)
	// Slice moves ν given ψ.
	Slice(ctx context.Context, psi, nu []float64, r *rand.Rand) error
}

// SettleEnv is what a method settles with.
type SettleEnv interface {
	// Rows returns n.
	Rows() int
	// Rank returns the rank that the specification asks of the preconditioner, and
	// false if it leaves it open, with the one to begin with.
	Rank() (rank int, fixed bool)
	// Joint returns the joint density with a preconditioner of the given rank, made
	// at ψ.
	Joint(ctx context.Context, psi []float64, rank int) (Joint, error)
	// Stepped tells of a step that was tried: its cost is that of the preparation.
	Stepped(key random.Key, psi []float64, acceptance float64)
}

// Request asks for a gradient.
type Request struct {
	Psi    []float64
	Key    random.Key
	Probes int
	Spread bool          // measure its noise
	Metric *mat.SymDense // to compare the noise with; nil for none
	Budget float64       // what the step leaves of the noise that it could take
}

// Gradient is an unbiased estimate of the gradient of the log posterior, with the
// covariances of one probe's share in it and of the solver's, nil where they were
// not measured.
type Gradient struct {
	Value     []float64
	ProbeCov  *mat.SymDense
	SolverCov *mat.SymDense
	Products  int // with K, that it took
}

// Step moves a chain by one iteration, which the key names.
type Step func(ctx context.Context, key random.Key) (Outcome, error)

// Outcome is what became of an iteration.
type Outcome struct {
	Acceptance float64 // probability with which the proposal was accepted
	Accepted   bool
	Correction float64 // probability with which the whole iteration was kept, under auxiliary variables that are nearly exact
}

// Register adds a method to those that there are, for tests that need one of their
// own. It is called before any specification is read.
func Register(m Method) {
	if _, err := ByName(m.Name()); err == nil {
		panic("sampler: there are two methods of the name " + m.Name())
	}
	methods = append(methods, m)
}

// ByName returns the method of a name.
func ByName(name string) (Method, error) {
	for _, m := range methods {
		if m.Name() == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("unknown sampler %q: use one of %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all methods.
func Names() []string {
	var names []string
	for _, m := range methods {
		names = append(names, m.Name())
	}
	return names
}

// Of returns the method of a plan. It panics if there is none of its name: plans
// are made of specifications that were checked.
func Of(p *chains.Plan) Method {
	m, err := ByName(p.Method)
	if err != nil {
		panic(err)
	}
	return m
}

// Sections returns the sections of all methods that have one, by name, with their
// defaults.
func Sections() map[string]any {
	out := map[string]any{}
	for _, m := range methods {
		if s := m.Section(); s != nil {
			out[m.Name()] = s
		}
	}
	return out
}

// windows cuts a warm-up into three windows, the first short: it begins at
// dispersed points and only serves to leave them.
func windows(total int) []int {
	if total < 10 {
		return []int{total}
	}
	first, second := total/10, 3*total/10
	return []int{first, second, total - first - second}
}

// or returns the first number that is not 0.
func or[T int | float64](x, y T) T {
	if x != 0 {
		return x
	}
	return y
}

// Statistics of an iteration. AcceptanceRate is the probability with which its
// proposal was accepted, under the name that other programs know.
const AcceptanceRate = "acceptance_rate"

// CorrectionRate is the probability with which an iteration was kept (Outcome.Correction).
const CorrectionRate = "correction_rate"

var gradientStatistics = []string{"probes", "solver_iterations", "residual", "unconverged", "products", "seconds"}
