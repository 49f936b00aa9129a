package report

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Summary is the machine-readable result of a run. Numbers that are not defined
// (an R-hat of too few draws) are null.
type Summary struct {
	Name           string        `json:"name"`
	Seed           uint64        `json:"seed"`
	N              int           `json:"n"`
	D              int           `json:"d"`
	Converged      bool          `json:"converged"`
	StopReason     chains.Reason `json:"stop_reason"`
	Parameters     []Parameter   `json:"parameters"`
	Chains         []Chain       `json:"chains"`
	Preparation    chains.Cost   `json:"preparation"`
	Total          chains.Cost   `json:"total"`
	Settings       *Tuned        `json:"settings,omitempty"`
	Rank           int           `json:"rank,omitempty"` // of the exact sampler's P
	Certificate    *Certificate  `json:"certificate,omitempty"`
	Preconditioner *Precond      `json:"preconditioner,omitempty"`
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
	Mean     Number `json:"mean"`
	SD       Number `json:"sd"`
	Q5       Number `json:"q5"`
	Q50      Number `json:"q50"`
	Q95      Number `json:"q95"`
	MCSEMean Number `json:"mcse_mean"`
	ESSBulk  Number `json:"ess_bulk"`
	ESSTail  Number `json:"ess_tail"`
	RHat     Number `json:"rhat"`
	PSRF     Number `json:"psrf"`
	PSRF975  Number `json:"psrf_97.5"`
	// Truth is the value that generated data were made with.
	Truth *Number `json:"truth,omitempty"`
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
type Number float64

// MarshalJSON writes null for NaN and infinities.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%v", float64(n)), nil
}

// UnmarshalJSON reads null as NaN.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Summarize computes the summary of a finished run.
func Summarize(s *job.Spec, d *dataset.Info, m kernel.Model, r *chains.Run, wall time.Duration, isa string) *Summary {
	sum := &Summary{Name: s.Name, Seed: s.Seed, N: d.N(), D: d.D(), Total: r.Cost(), WallSeconds: wall.Seconds(),
		Version: version.Version, InstructionSet: isa, DrawsSHA256: DrawsSHA256(r), Warnings: []string{}}
	if r.Stopped != nil {
		sum.StopReason = r.Stopped.Reason
		sum.Converged = r.Stopped.Reason == chains.Converged
	}
	var truth []float64
	if d.Truth != nil {
		truth = m.Psi(*d.Truth)
	}
	for _, q := range quantities(m, d) {
		p := summarize(q.name, q.values(r))
		if truth != nil {
			v := Number(q.of(truth))
			p.Truth = &v
		}
		sum.Parameters = append(sum.Parameters, p)
	}
	for _, c := range r.Chains {
		it := 0.0
		if c.Cost.Solves > 0 {
			it = float64(c.Cost.Iterations) / float64(c.Cost.Solves)
		}
		out := Chain{Draws: len(c.Draws), Warmup: c.Warmup, SolverIterationsMean: it, Cost: c.Cost}
		if m := c.State.Metropolis; m != nil && m.Steps > 0 {
			out.Acceptance = float64(m.Accepted) / float64(m.Steps)
		}
		sum.Chains = append(sum.Chains, out)
	}
	if r.Prepared != nil {
		sum.Preparation, sum.Rank = r.Prepared.Cost, r.Prepared.Rank
		sum.Preconditioner = precondOf(r)
	}
	if t := r.Settings; t != nil && t.Probes > 0 {
		sum.Settings = &Tuned{Probes: t.Probes, Step: t.Step, NoiseBudget: t.Budget, EarlyStop: t.Early,
			Tolerance: s.Solver.Tolerance.Or(r.Prepared.Tolerance)}
	}
	sum.warn(s, r)
	return sum
}

func summarize(name string, x [][]float64) Parameter {
	all := slices.Concat(x...)
	nan := Number(math.NaN())
	p := Parameter{Name: name, Mean: nan, SD: nan, MCSEMean: nan}
	if len(all) > 1 {
		mean, sd := moments(x)
		p.Mean, p.SD, p.MCSEMean = Number(mean), Number(sd), Number(diagnostics.MCSEMean(x))
	}
	p.Q5, p.Q50, p.Q95 = Number(diagnostics.Quantile(all, 0.05)), Number(diagnostics.Quantile(all, 0.5)), Number(diagnostics.Quantile(all, 0.95))
	p.ESSBulk, p.ESSTail, p.RHat = Number(diagnostics.ESSBulk(x)), Number(diagnostics.ESSTail(x)), Number(diagnostics.RHat(x))
	psrf, upper := diagnostics.PSRF(x)
	p.PSRF, p.PSRF975 = Number(psrf), Number(upper)
	return p
}

// precondOf returns the preconditioner of a run, nil if it had none: the exact
// sampler makes its own for each ψ.
func precondOf(r *chains.Run) *Precond {
	p := r.Prepared
	if p.Preconditioner == nil || r.Plan.Method == "exact" {
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

// Certify adds a certificate; what it found wrong becomes a warning.
func (sum *Summary) Certify(c *Certificate) {
	sum.Certificate = c
	if !c.Agrees {
		for _, t := range c.Text {
			sum.Warnings = append(sum.Warnings, "certificate: "+t)
		}
	}
}

// warn collects what a reader must know before believing the numbers.
func (sum *Summary) warn(s *job.Spec, r *chains.Run) {
	add := func(format string, args ...any) { sum.Warnings = append(sum.Warnings, fmt.Sprintf(format, args...)) }
	if r.MinDraws() == 0 {
		add("no draws were kept: allow more time or fewer warm-up iterations")
		return
	}
	isParam := map[string]bool{}
	for _, n := range r.Plan.Names {
		isParam[n] = true
	}
	for _, p := range sum.Parameters {
		if !isParam[p.Name] {
			continue
		}
		if !(float64(p.RHat) <= s.Stop.RHat) {
			add("R-hat of %s is %.3f, above %g: run longer", p.Name, float64(p.RHat), s.Stop.RHat)
		}
		if ess := min(float64(p.ESSBulk), float64(p.ESSTail)); !(ess >= s.Stop.ESS) {
			add("the effective sample size of %s is %.0f, below %g: run longer", p.Name, ess, s.Stop.ESS)
		}
	}
	if u := sum.Total.Unconverged; u > 0 {
		add("%d of %d linear systems did not reach the tolerance: raise solver.max_iterations, or the rank of the preconditioner", u, sum.Total.Solves)
	}
	if n := sum.Total.Shortened; 100*n > sum.Total.Gradients {
		add("%d of %d gradients were too steep to be followed: the posterior is far from normal, use method: exact or --certify", n, sum.Total.Gradients)
	}
	if t := r.Settings; t != nil && r.Plan.Matched() && t.Step < r.Plan.Step-1e-9 {
		add("the gradient's noise allows a step of %.2f only, not %.2f: allow more probes", t.Step, r.Plan.Step)
	}
	if p := r.Prepared; p != nil && p.Asymmetry > 0.1 {
		add("the curvature at the mode was measured with noise (asymmetry %.2f): the metric rests on the warm-up draws", p.Asymmetry)
	}
}

// DrawsSHA256 hashes the little-endian float64 values of all kept draws, chain
// by chain, draw by draw, parameter by parameter (σ, τ…, λ on the natural
// scale), and nothing else. Equal hashes mean bit-identical draws.
func DrawsSHA256(r *chains.Run) string {
	h := sha256.New()
	var b [8]byte
	for _, c := range r.Chains {
		for _, psi := range c.Draws {
			for _, x := range psi {
				binary.LittleEndian.PutUint64(b[:], math.Float64bits(math.Exp(x)))
				h.Write(b[:])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// WriteText writes the summary as the table that Stan's users know, followed by
// what it cost and the warnings.
func (sum *Summary) WriteText(w io.Writer) error {
	var b strings.Builder
	kept, warm := 0, 0
	for _, c := range sum.Chains {
		kept, warm = kept+c.Draws, warm+c.Warmup
	}
	state := "converged"
	switch {
	case sum.StopReason == "":
		state = "not ended yet"
	case !sum.Converged:
		state = fmt.Sprintf("NOT converged (ended by %s)", sum.StopReason)
	}
	fmt.Fprintf(&b, "%s: %s\n%d rows, %d inputs; %d chains, %d draws kept, %d warm-up\n\n", sum.Name, state, sum.N, sum.D, len(sum.Chains), kept, warm)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	withTruth := len(sum.Parameters) > 0 && sum.Parameters[0].Truth != nil
	fmt.Fprint(tw, "\tMean\tMCSE\tStdDev\t5%\t50%\t95%\tESS_bulk\tESS_tail\tR_hat\t")
	if withTruth {
		fmt.Fprint(tw, "Truth\t")
	}
	fmt.Fprintln(tw)
	for _, p := range sum.Parameters {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", p.Name, sig(p.Mean), sig(p.MCSEMean), sig(p.SD), sig(p.Q5), sig(p.Q50), sig(p.Q95),
			whole(p.ESSBulk), whole(p.ESSTail), fixed(p.RHat))
		if withTruth {
			fmt.Fprintf(tw, "%s\t", sig(*p.Truth))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	sum.cost(&b)
	if sum.Certificate != nil {
		sum.Certificate.write(&b)
	}
	for _, warning := range sum.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (sum *Summary) cost(b *strings.Builder) {
	t := sum.Total
	fmt.Fprintf(b, "\n%s wall, %s of chain time", seconds(sum.WallSeconds), seconds(t.Seconds))
	if t.Gradients > 0 {
		fmt.Fprintf(b, "; %d gradients of %s each", t.Gradients, seconds(t.Seconds/float64(t.Gradients)))
	}
	if t.Densities > 0 {
		fmt.Fprintf(b, "; %d log densities", t.Densities)
	}
	b.WriteString("\n")
	if t.Products > 0 {
		fmt.Fprintf(b, "%d solves, %.1f iterations each; %d products with K; %.3g pairs evaluated (%s)",
			t.Solves, float64(t.Iterations)/float64(t.Solves), t.Products, t.Pairs-t.PairsRead, sum.InstructionSet)
		if t.PairsRead > 0 {
			fmt.Fprintf(b, ", %.3g read from memory", t.PairsRead)
		}
		b.WriteString("\n")
	}
	if sum.Cache != nil {
		fmt.Fprintf(b, "cache of K %s\n", sum.Cache)
	}
	if a := sum.acceptance(); a > 0 {
		fmt.Fprintf(b, "acceptance %.2f", a)
		if sum.Rank > 0 {
			fmt.Fprintf(b, ", preconditioner of rank %d", sum.Rank)
		}
		b.WriteString("\n")
	}
	if t.Shortened > 0 {
		fmt.Fprintf(b, "%d of %d gradients were shortened, where the posterior is steep\n", t.Shortened, t.Gradients)
	}
	if p := sum.Preconditioner; p != nil {
		fmt.Fprintf(b, "preconditioner %s of rank %d", p.Kind, p.Rank)
		if p.Drift > 0 {
			fmt.Fprintf(b, "; solves take %.1f times the iterations at the mode", float64(p.Drift))
		}
		b.WriteString("\n")
	}
	if s := sum.Settings; s != nil {
		fmt.Fprintf(b, "%d probes", s.Probes)
		if s.Tolerance > 0 {
			fmt.Fprintf(b, ", tolerance %g", s.Tolerance)
		}
		if s.Step > 0 {
			fmt.Fprintf(b, ", step %.2f, noise budget left %.2f", s.Step, s.NoiseBudget)
		}
		if s.EarlyStop {
			b.WriteString(", solves stopped early")
		}
		b.WriteString("\n")
	}
}

// acceptance returns the mean over chains, 0 if there is none.
func (sum *Summary) acceptance() float64 {
	total := 0.0
	for _, c := range sum.Chains {
		total += c.Acceptance
	}
	return total / float64(max(1, len(sum.Chains)))
}

func seconds(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.3g ms", 1000*s)
	case s < 120:
		return fmt.Sprintf("%.3g s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func sig(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.4g", float64(x))
}

func whole(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(x))
}

func fixed(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.4f", float64(x))
}
