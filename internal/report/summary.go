package report

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Summary is the machine-readable result of a run. Numbers that are not defined
// (an R-hat of too few draws) are null.
type Summary struct {
	Name       string        `json:"name"`
	Seed       uint64        `json:"seed"`
	Method     string        `json:"method,omitempty"` // that made the draws
	N          int           `json:"n"`
	D          int           `json:"d"`
	Data       []string      `json:"data,omitempty"` // how the table was read, one sentence each
	Converged  bool          `json:"converged"`
	StopReason chains.Reason `json:"stop_reason"`
	// State is how a run that has not ended stands: sampling, interrupted, failed and why.
	State      string      `json:"state,omitempty"`
	Parameters []Parameter `json:"parameters"`
	// Coefficients are those of the mean, of a model that has one, once the run has ended.
	Coefficients *Coefficients `json:"coefficients,omitempty"`
	Notes        []string      `json:"notes,omitempty"` // what else there is to say
	Modes        []Mode        `json:"modes,omitempty"` // if there is more than one, the heaviest first
	Details      bool          `json:"-"`               // people are to be told of all parameters
	// Fit, of a point estimate, is that; it has no chains.
	Fit *Fit `json:"fit,omitempty"`
	// Provisional is what is known without draws, as long as there are none.
	Provisional *Provisional `json:"provisional,omitempty"`
	Chains      []Chain      `json:"chains"`
	Preparation chains.Cost  `json:"preparation"`
	// Restarts are the times that a chain diverged and all began again with a smaller step.
	Restarts       []chains.Restart `json:"restarts,omitempty"`
	Total          chains.Cost      `json:"total"`
	Settings       *Tuned           `json:"settings,omitempty"`
	Rank           int              `json:"rank,omitempty"` // of the exact sampler's P
	Certificate    *Certificate     `json:"certificate,omitempty"`
	Preconditioner *Precond         `json:"preconditioner,omitempty"`
	// Near is the share of the pairs of rows that products evaluate at the mode; 0 for all.
	Near float64 `json:"near,omitempty"`
	// Cache is what the calibration of the cache of K decided; absent if it is
	// off, or the run was not on one machine.
	Cache          *cmvp.CachePlan `json:"cache,omitempty"`
	Warnings       []string        `json:"warnings"`
	WallSeconds    float64         `json:"wall_seconds"`
	Version        string          `json:"version"`
	InstructionSet string          `json:"instruction_set"`
	DrawsSHA256    string          `json:"draws_sha256"`
}

// Parameter summarises one quantity.
type Parameter struct {
	Name     string `json:"name"`
	Detail   bool   `json:"detail,omitempty"` // people are told of it if they ask
	Mean     Number `json:"mean"`
	SD       Number `json:"sd"`
	MAD      Number `json:"mad"` // median absolute deviation, times 1.4826
	Q5       Number `json:"q5"`
	Q50      Number `json:"q50"`
	Q95      Number `json:"q95"`
	MCSEMean Number `json:"mcse_mean"`
	// ErrorMean and ErrorSD are total standard errors (chains.Run.Errors): of the mean, in
	// posterior standard deviations, and of the standard deviation, relative.
	ErrorMean Number `json:"error_mean"`
	ErrorSD   Number `json:"error_sd"`
	ESSBulk   Number `json:"ess_bulk"`
	ESSTail   Number `json:"ess_tail"`
	// ESSPerSecond is the bulk ESS over the time of all chains added up.
	ESSPerSecond Number `json:"ess_bulk_per_second"`
	RHat         Number `json:"rhat"`
	PSRF         Number `json:"psrf"`
	PSRF975      Number `json:"psrf_97.5"`
	// Truth is the value that generated data were made with.
	Truth *Number `json:"truth,omitempty"`
}

// Mode is a part of the posterior around a maximum.
type Mode struct {
	Mass      Number    `json:"mass"` // share of the draws
	MassError Number    `json:"mass_error"`
	Below     Number    `json:"below"`          // the highest, in log density
	Found     int       `json:"found"`          // by how many searches; 0 of the mirror image of another
	At        []float64 `json:"log_parameters"` // the maximum
	// Differs is the parameter that separates it most from the heaviest mode, by Distance:
	// the difference of their means over the root of their variances' sum.
	Differs  string `json:"differs,omitempty"`
	Distance Number `json:"distance,omitempty"`
}

// Chain summarises one chain.
type Chain struct {
	Draws                int     `json:"draws"`
	Warmup               int     `json:"warmup"`
	SolverIterationsMean float64 `json:"solver_iterations_mean"`
	Acceptance           float64 `json:"acceptance,omitempty"` // of Metropolis–Hastings, after warm-up
	chains.Cost
}

// Tuned are the settings that warm-up arrived at.
type Tuned struct {
	Probes      int     `json:"probes,omitempty"`
	Tolerance   float64 `json:"tolerance,omitempty"` // of the solves' relative residuals
	Step        float64 `json:"step,omitempty"`
	NoiseBudget float64 `json:"noise_budget,omitempty"`
	EarlyStop   bool    `json:"early_stopping,omitempty"` // solves stop early (solver.method: ulisse, or auto's choice)
}

// Precond is the preconditioner of a run, kept as it was at the mode.
type Precond struct {
	chains.Preconditioner
	Iterations Number `json:"solver_iterations_at_mode"`
	// Drift is how many times more iterations the solves of the chains took.
	Drift Number `json:"drift"`
}

// Number is a float64 that is null in JSON where it is not finite.
type Number = fit.Number

// UnmarshalJSON reads a parameter. What an earlier version did not write is NaN.
func (p *Parameter) UnmarshalJSON(text []byte) error {
	type plain Parameter
	nan := Number(math.NaN())
	read := plain{MAD: nan, ESSPerSecond: nan, ErrorMean: nan, ErrorSD: nan}
	err := json.Unmarshal(text, &read)
	*p = Parameter(read)
	return err
}

// Summarize computes the summary of a run, at the draws that all chains have.
func Summarize(s *job.Spec, d *dataset.Info, m posterior.Model, r *chains.Run, wall time.Duration, isa string) *Summary {
	r = common(r)
	sum := &Summary{Name: s.Name, Seed: s.Seed, Method: r.Plan.Method, N: d.N(), D: d.D(), Data: d.Notes, Total: r.Cost(), WallSeconds: wall.Seconds(),
		Version: version.Version, InstructionSet: isa, DrawsSHA256: DrawsSHA256(r), Warnings: []string{}}
	if r.Stopped != nil {
		sum.StopReason = r.Stopped.Reason
		sum.Converged = r.Stopped.Reason == chains.Converged
	}
	var truth []float64
	if d.Truth != nil {
		truth = m.Params.Sampled(d.Truth.Of(m.Params))
	}
	for _, q := range Quantities(m, d) {
		x := q.Values(r)
		p := summarize(q.Name, x)
		p.Detail = q.Detail
		e := r.Errors(x)
		p.ErrorMean, p.ErrorSD = Number(e.Mean), Number(e.SD)
		p.ESSPerSecond = p.ESSBulk / Number(chainSeconds(r))
		if truth != nil {
			v := Number(q.Of(truth))
			p.Truth = &v
		}
		sum.Parameters = append(sum.Parameters, p)
	}
	sum.Modes = modesOf(r)
	for _, c := range r.Chains {
		it := 0.0
		if c.Cost.Solves > 0 {
			it = float64(c.Cost.Iterations) / float64(c.Cost.Solves)
		}
		out := Chain{Draws: len(c.Draws), Warmup: c.Warmup, SolverIterationsMean: it, Cost: c.Cost}
		out.Acceptance = c.Acceptance()
		sum.Chains = append(sum.Chains, out)
	}
	if r.Prepared != nil {
		sum.Preparation, sum.Rank, sum.Near = r.Prepared.Cost, r.Prepared.Rank, r.Prepared.Near
		sum.Preconditioner = precondOf(r)
	}
	if t := r.Settings; t != nil && t.Probes > 0 {
		sum.Settings = &Tuned{Probes: t.Probes, Step: t.Step, NoiseBudget: t.Budget, EarlyStop: t.Early,
			Tolerance: s.Solver.Tolerance.Or(r.Prepared.Tolerance)}
	}
	sum.Restarts = r.Restarts
	if r.MinDraws() == 0 {
		sum.Provisional, _ = NewProvisional(m, d, r) // the mode need not have a curvature
	}
	sum.tellCoefficients(m, d, r)
	if sampler.Of(&r.Plan).Needs().Inducing {
		sum.Notes = append(sum.Notes, fmt.Sprintf("an approximation: inducing inputs, %d at most, stand for the rows (model.approximation: %s); noise and length-scales are not those of the exact posterior", s.LatentLength(d.N(), 1), s.Model.Approximation.Kind))
	}
	sum.warn(r)
	sum.certify(m.Params, r)
	return sum
}

// modesOf returns the modes of a staged run that has several.
func modesOf(r *chains.Run) []Mode {
	if r.Drawn == nil {
		return nil
	}
	var out []Mode
	for i, m := range r.Drawn.Modes {
		o := Mode{Mass: Number(m.Mass), MassError: Number(m.MassError), Below: Number(m.Below), Found: m.Found, At: m.Psi}
		if i > 0 && m.Distance != 0 {
			o.Differs, o.Distance = r.Plan.Names[m.Parameter], Number(m.Distance)
		}
		out = append(out, o)
	}
	return out
}

func summarize(name string, x [][]float64) Parameter {
	all := slices.Concat(x...)
	nan := Number(math.NaN())
	p := Parameter{Name: name, Mean: nan, SD: nan, MAD: nan, MCSEMean: nan}
	if len(all) > 1 {
		mean, sd := moments(x)
		p.Mean, p.SD, p.MCSEMean = Number(mean), Number(sd), Number(diagnostics.MCSEMean(x))
		p.MAD = Number(diagnostics.MAD(all))
	}
	p.Q5, p.Q50, p.Q95 = Number(diagnostics.Quantile(all, 0.05)), Number(diagnostics.Quantile(all, 0.5)), Number(diagnostics.Quantile(all, 0.95))
	p.ESSBulk, p.ESSTail, p.RHat = Number(diagnostics.ESSBulk(x)), Number(diagnostics.ESSTail(x)), Number(diagnostics.RHat(x))
	psrf, upper := diagnostics.PSRF(x)
	p.PSRF, p.PSRF975 = Number(psrf), Number(upper)
	return p
}

// chainSeconds returns the time of all chains added up, which Stan's ESS per
// second is of.
func chainSeconds(r *chains.Run) float64 {
	s := 0.0
	for _, c := range r.Chains {
		s += c.Cost.Seconds
	}
	return s
}

// precondOf returns the preconditioner of a run, nil if it had none that was kept:
// that of the joint density is another for each ψ.
func precondOf(r *chains.Run) *Precond {
	p := r.Prepared
	if p.Preconditioner == nil || !sampler.Of(&r.Plan).Needs().Gradients {
		return nil
	}
	nan := Number(math.NaN())
	pre := &Precond{Preconditioner: *p.Preconditioner, Iterations: nan, Drift: nan}
	var solves, iterations int
	for _, c := range r.Chains {
		solves, iterations = solves+c.Cost.Solves, iterations+c.Cost.Iterations
	}
	if p.Iterations > 0 {
		pre.Iterations = Number(p.Iterations)
		if solves > 0 {
			pre.Drift = Number(float64(iterations) / float64(solves) / p.Iterations)
		}
	}
	return pre
}

// moments returns the mean and the sd of the draws of all chains.
func moments(x [][]float64) (mean, sd float64) { return stat.MeanStdDev(slices.Concat(x...), nil) }

// certify adds the certificate; what it found wrong becomes a warning.
func (sum *Summary) certify(params param.List, r *chains.Run) {
	c := NewCertificate(params, r)
	sum.Certificate = c
	switch {
	case c == nil && r.Plan.Certificate != nil && r.MinDraws() < chains.CertifyDraws:
		sum.Warnings = append(sum.Warnings, fmt.Sprintf("there is no certificate: %d draws of each chain are too few, at least %d", r.MinDraws(), chains.CertifyDraws))
	case c == nil && r.Plan.Certificate != nil:
		sum.Warnings = append(sum.Warnings, "there is no certificate: the run that makes it has not come to its end")
	case c != nil && !c.Agrees:
		for _, t := range c.Text {
			sum.Warnings = append(sum.Warnings, "certificate: "+t)
		}
	}
}

// likelyMode is how much lower, in log density, another mode may be and still
// hold some of the posterior's mass.
const likelyMode = 7

// warn collects what a reader must know before believing the numbers.
func (sum *Summary) warn(r *chains.Run) {
	add := func(format string, args ...any) { sum.Warnings = append(sum.Warnings, fmt.Sprintf(format, args...)) }
	for _, s := range r.Restarts {
		add("%s; the posterior is far from normal, so compare with method: exact, or use --certify", s.Text())
	}
	switch draws := r.MinDraws(); {
	case draws == 0 && r.Stopped == nil:
		add("there are no draws yet")
		return
	case draws == 0:
		add("no draws were kept: allow more time (ulisse extend --max-time), or fewer warm-up iterations")
		return
	case r.Stopped == nil:
		add("the run has not ended: this is what the first %d draws of each chain say", draws)
	}
	for _, p := range sum.Parameters[:len(r.Plan.Names)] { // the model's parameters are the first
		if math.IsNaN(float64(p.RHat)) {
			add("R-hat of %s cannot be told from %d draws of each chain: run longer", p.Name, r.MinDraws())
			continue
		}
		if !(float64(p.RHat) <= r.Plan.RHat) {
			add("R-hat of %s is %.3f, above %g: run longer", p.Name, float64(p.RHat), r.Plan.RHat)
		}
		if ess := min(float64(p.ESSBulk), float64(p.ESSTail)); !(ess >= r.Plan.ESS) {
			add("the effective sample size of %s is %.0f, below %g: run longer", p.Name, ess, r.Plan.ESS)
		}
		if worst := max(float64(p.ErrorMean), float64(p.ErrorSD)); r.Plan.Error > 0 && !(worst <= r.Plan.Error) {
			add("the standard error of the mean or the sd of %s is %.2g posterior standard deviations, above %g: run longer", p.Name, worst, r.Plan.Error)
		}
	}
	if d := r.Drawn; d != nil && d.Tail > 0 {
		add("the proposals may have missed a tail that holds up to %.0f %% of the variance of %s: the run does not count as converged; compare with another seed, more auto.starts, or method: exact",
			100*d.Tail, sum.Parameters[d.TailOf].Name)
	}
	if u := sum.Total.Unconverged; u > 0 {
		add("%d of %d linear systems did not reach the tolerance: raise solver.max_iterations, or the rank of the preconditioner", u, sum.Total.Solves)
	}
	if k := r.Coefficients; k != nil && k.Unconverged > 0 {
		add("%d linear systems for the coefficients of the mean did not reach their tolerance: raise solver.max_iterations, or the rank of the preconditioner", k.Unconverged)
	}
	if n := sum.Total.Shortened; 100*n > sum.Total.Gradients {
		add("%d of %d gradients were too steep to be followed: the posterior is far from normal, use method: auto or exact, or --certify", n, sum.Total.Gradients)
	}
	if t := r.Settings; t != nil && t.Step > 0 && t.Step < r.Plan.Step-1e-9 {
		add("the gradient's noise allows a step of %.2f only, not %.2f: allow more probes", t.Step, r.Plan.Step)
	}
	if p := r.Prepared; p != nil {
		for _, o := range p.Others {
			if o.Below < likelyMode {
				add("the posterior may have a second mode: on %d rows there is one at log parameters %.3g, lower by %.1f in log density; compare with a run from other rows (sampler.subset) or with method: exact", p.OthersRows, o.Psi, o.Below)
			}
		}
	}
	if p := r.Prepared; p != nil && p.Asymmetry > 0.1 {
		add("the shape of the posterior at its mode could be measured only roughly, so that the sampler learnt it from the warm-up: R-hat and ESS above "+
			"say whether that was enough (asymmetry of the measured curvature %.2f, above 0.1)", p.Asymmetry)
	}
}

// DrawsSHA256 hashes the little-endian float64 values of all kept draws, chain
// by chain, draw by draw, parameter by parameter, and nothing else: of the log
// parameters, which are what is sampled and kept, so that the hash does not depend
// on who computes an exponential. Equal hashes mean bit-identical draws.
func DrawsSHA256(r *chains.Run) string {
	h := sha256.New()
	var b [8]byte
	for _, c := range r.Chains {
		for _, psi := range c.Draws {
			for _, x := range psi {
				binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
				h.Write(b[:])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
