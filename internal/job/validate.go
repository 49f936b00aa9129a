package job

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// The words that a specification may use.
var (
	ProbeKinds        = []string{"auto", "whitened", "rademacher", "pathwise"}
	SolverMethods     = []string{"cg", "pcg", "ulisse", "auto"}
	Precisions        = []string{"auto", "float64", "mixed"}
	Sparsities        = []string{"off", "auto", "on"}
	Laws              = []string{"paper", "geometric", "decay", "optimal"}
	NoticeKinds       = []string{"converged", "unconverged", "cancelled", "failed", "stalled", "diverging", "recovered"}
	PreconditionerSet = slices.Concat([]string{"auto", "none"}, precond.Kinds(), precond.InnerKinds())
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// maxDense is the largest n that the dense oracle takes: 800 MB for K.
const maxDense = 10_000

// What may become of values that are missing, and of inputs that are constant.
var (
	MissingWays  = []string{"error", string(dataset.MissingDrop), string(dataset.MissingImpute)}
	ConstantWays = []string{"error", "drop"}
)

// Bounds of whom a job wants told.
const (
	maxWebhooks = 10
	maxURL      = 2000
)

// fault returns the path of the first field that makes no sense and why, or
// empty strings.
func (s *Spec) fault() (path, msg string) {
	type check struct {
		bad  bool
		path string
		msg  string
	}
	oneOf := func(path, word string, words []string) check {
		for _, w := range words {
			if w == word {
				return check{}
			}
		}
		msg := fmt.Sprintf("%q is not one of %s", word, strings.Join(words, ", "))
		if near, ok := nearest.Word(word, words); ok {
			msg += fmt.Sprintf(": did you mean %q?", near)
		}
		return check{true, path, msg}
	}
	prior := func(path, text string, role param.Role) check {
		_, err := param.ParsePrior(text, role)
		if err != nil {
			return check{true, path, err.Error()}
		}
		return check{}
	}
	positive := func(path string, x float64) check {
		return check{!(x > 0), path, fmt.Sprintf("%g, but must be positive", x)}
	}
	atLeast := func(path string, x, least int) check {
		return check{x < least, path, fmt.Sprintf("%d, but must be at least %d", x, least)}
	}
	d, sm, so, st := &s.Data, &s.Sampler, &s.Solver, &s.Stop
	checks := []check{
		{!nameForm.MatchString(s.Name), "name", "a job needs a name of letters, digits, '.', '_' and '-', 100 at most"},
		{d.Path == "" && d.Synthetic == nil, "data", "no data: give path: or synthetic:"},
		{d.Path != "" && d.Synthetic != nil, "data", "path: and synthetic: exclude each other"},
		{d.Path != "" && d.Target == "" && len(d.Points) == 0, "data.target", "no target: name the column to predict"},
		{d.Synthetic != nil && (d.Target != "" || len(d.Inputs)+len(d.Exclude) > 0), "data", "target:, inputs: and exclude: choose columns of a table; synthetic: has none"},
		atLeast("data.rows", d.Rows, 0),
		{!(d.Holdout >= 0 && d.Holdout < 1), "data.holdout", fmt.Sprintf("%g, but must be a fraction from 0 to below 1", d.Holdout)},
		{s.Model.Kernel == "", "model.kernel", "no covariance: use one of " + strings.Join(kernel.FamilyNames(), ", ") + ", or an expression such as rbf(x) + matern32(y)"},
		prior("model.priors.sigma", s.Model.Priors.Sigma, param.Variance),
		prior("model.priors.tau", s.Model.Priors.Tau, param.Rate),
		prior("model.priors.lambda", s.Model.Priors.Lambda, param.Noise),
		oneOf("sampler.method", sm.Method, sampler.Names()),
		atLeast("sampler.chains", sm.Chains, 1),
		{sm.Chains > 1000, "sampler.chains", fmt.Sprintf("%d, but must be at most 1000", sm.Chains)},
		atLeast("sampler.warmup", sm.Warmup.Or(1), 1),
		atLeast("sampler.draws", sm.Draws, 4),
		atLeast("sampler.probes", sm.Probes.Or(2), 2),
		oneOf("sampler.probe_kind", sm.ProbeKind, ProbeKinds),
		atLeast("sampler.subset", sm.Subset.Or(2), 2),
		{sm.Subset.Set && sm.Subset.Value > maxDense, "sampler.subset", fmt.Sprintf("%d, but its K is stored: at most %d", sm.Subset.Value, maxDense)},
		atLeast("sampler.checkpoint", sm.Checkpoint, 1),
		oneOf("solver.method", so.Method, SolverMethods),
		{!(so.Tolerance.Or(0.5) > 0 && so.Tolerance.Or(0.5) < 1), "solver.tolerance", fmt.Sprintf("%g, but must be between 0 and 1", so.Tolerance.Value)},
		atLeast("solver.max_iterations", so.MaxIterations.Or(1), 1),
		oneOf("solver.precision", so.Precision, Precisions),
		{(so.Method == "ulisse" || so.Method == "auto") && so.Precision == "mixed", "solver.precision", "stopping early (ulisse, auto) needs float64: its solutions are not verified"},
		oneOf("solver.preconditioner.kind", so.Preconditioner.Kind, PreconditionerSet),
		atLeast("solver.preconditioner.rank", so.Preconditioner.Rank.Or(1), 1),
		{so.Method == "pcg" && so.Preconditioner.Kind == "none", "solver.preconditioner.kind", "pcg needs a preconditioner: use cg"},
		positive("solver.q", so.Q),
		oneOf("solver.law", so.Law, Laws),
		positive("solver.beta", so.Beta),
		{so.Law == "geometric" && so.Beta >= 1, "solver.beta", fmt.Sprintf("%g, but the geometric law takes a probability below 1", so.Beta)},
		{!(st.RHat > 1), "stop.rhat", fmt.Sprintf("%g, but R-hat is never below 1", st.RHat)},
		positive("stop.ess", st.ESS),
		{!(st.Error >= 0 && st.Error < 1), "stop.error", fmt.Sprintf("%g, but must be from 0, for any error, to less than 1", st.Error)},
		{st.MaxDraws < sm.Draws, "stop.max_draws", fmt.Sprintf("%d, but must be at least sampler.draws, %d", st.MaxDraws, sm.Draws)},
		{st.MaxTime < 0, "stop.max_time", "negative: use 0s for no limit"},
	}
	if so.Sparsity != "" {
		checks = append(checks, oneOf("solver.sparsity", so.Sparsity, Sparsities),
			check{so.Sparsity == "on" && so.Cache.Set && so.Cache.Bytes > 0, "solver.cache", "products that pass over pairs of rows (sparsity: on) keep no elements: leave cache out"})
	}
	path, msg = d.faultOfColumns()
	checks = append(checks, check{msg != "", path, msg})
	if d.Missing != "" {
		checks = append(checks, oneOf("data.missing", d.Missing, MissingWays))
	}
	if d.Constant != "" {
		checks = append(checks, oneOf("data.constant", d.Constant, ConstantWays))
	}
	if g := d.Synthetic; g != nil {
		checks = append(checks,
			atLeast("data.synthetic.n", g.N, 2),
			atLeast("data.synthetic.d", g.D, 1),
			check{g.N > 1_000_000, "data.synthetic.n", fmt.Sprintf("%d, but must be at most 1000000", g.N)},
			check{g.D > 1000, "data.synthetic.d", fmt.Sprintf("%d, but must be at most 1000", g.D)},
			positive("data.synthetic.sigma", g.Sigma),
			positive("data.synthetic.lambda", g.Lambda),
			check{len(g.Tau) != 1 && len(g.Tau) != g.D, "data.synthetic.tau", fmt.Sprintf("%d values for d = %d: give one, or one for each input", len(g.Tau), g.D)},
		)
		for _, t := range g.Tau {
			checks = append(checks, positive("data.synthetic.tau", t))
		}
	}
	if n := s.Notify; n != nil {
		checks = append(checks, check{len(n.Webhooks) == 0, "notify.webhooks", "no URL to tell: give one, or leave notify out"},
			check{len(n.Webhooks) > maxWebhooks, "notify.webhooks", fmt.Sprintf("%d URLs, but at most %d", len(n.Webhooks), maxWebhooks)})
		for _, u := range n.Webhooks {
			web := strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://")
			checks = append(checks, check{!web || len(u) > maxURL, "notify.webhooks", fmt.Sprintf("%.100q is not a URL that begins with https:// or http://, of at most %d characters", u, maxURL)})
		}
		for _, k := range n.On {
			checks = append(checks, oneOf("notify.on", k, NoticeKinds))
		}
	}
	for _, c := range checks {
		if c.bad {
			return c.path, c.msg
		}
	}
	if path, msg := s.faultOfPoints(); msg != "" {
		return path, msg
	}
	if path, msg := s.faultOfModel(); msg != "" {
		return path, msg
	}
	if path, msg := s.faultOfLikelihood(); msg != "" {
		return path, msg
	}
	if path, msg := s.faultOfApproximation(); msg != "" {
		return path, msg
	}
	if path, msg := s.faultOfTransform(); msg != "" {
		return path, msg
	}
	if path, msg := s.faultOfNoise(); msg != "" {
		return path, msg
	}
	if msg := s.faultOfOffset(); msg != "" {
		return "data.offset", msg
	}
	return s.faultOfSampler()
}

// faultOfSampler is fault for what the method, and its probes, make sense with.
func (s *Spec) faultOfSampler() (path, msg string) {
	sm := &s.Sampler
	m, err := sampler.ByName(sm.Method)
	if err != nil {
		return "sampler.method", err.Error()
	}
	needs := s.Needs()
	switch step := sm.Step.Or(needs.MaxStep / 2); {
	case sm.Step.Set && needs.MaxStep == 0:
		return "sampler.step", fmt.Sprintf("%s has no step: leave it out", sm.Method)
	case sm.Step.Set && !(step > 0 && step <= needs.MaxStep):
		return "sampler.step", fmt.Sprintf("%g, but must be above 0 and at most %g", step, needs.MaxStep)
	case sm.Certify && needs.Exact:
		return "sampler.certify", fmt.Sprintf("%s is exact already: there is nothing to certify", sm.Method)
	}
	if field, msg := m.Check(s.SamplerOptions()); msg != "" {
		return "sampler." + field, msg
	}
	kind := s.Solver.Preconditioner.Kind
	switch {
	case needs.Dense || s.ProbeKind() != "whitened":
	case kind == "none":
		return "sampler.probe_kind", "whitened probes are made from the preconditioner: choose another kind of probes, or a preconditioner"
	case slices.Contains(precond.InnerKinds(), kind):
		return "sampler.probe_kind", fmt.Sprintf("whitened probes are made from a factor of the preconditioner, and %s has none: choose rademacher or pathwise probes, or another preconditioner", kind)
	}
	return "", ""
}

// unheeded returns a sentence on what is set of the sampler that its method has no use for, none if nothing is.
func (s *Spec) unheeded() []string {
	sm := &s.Sampler
	var fields []string
	for _, f := range []struct {
		set  bool
		name string
	}{{sm.Warmup.Set, "warmup"}, {sm.Probes.Set, "probes"}, {sm.ProbeKind != "auto", "probe_kind"}} {
		if f.set && s.Needs().Staged {
			fields = append(fields, f.name)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the sampler %s goes by no %s: leave that out of sampler, or choose another method", sm.Method, strings.Join(fields, ", no "))}
}

// SamplerOptions returns what the method is told.
func (s *Spec) SamplerOptions() *sampler.Options {
	sm := &s.Sampler
	return &sampler.Options{Chains: sm.Chains, Draws: sm.Draws, Checkpoint: sm.Checkpoint, Warmup: sm.Warmup.Or(0), Step: sm.Step.Or(0),
		Section: sm.Sections[sm.Method]}
}

// Needs says what a run of the specification's method needs. It panics if there is
// no such method.
func (s *Spec) Needs() sampler.Needs {
	m, err := sampler.ByName(s.Sampler.Method)
	if err != nil {
		panic(err)
	}
	return m.Needs()
}

// Validate checks a specification that was made or changed by a program.
func (s *Spec) Validate() error {
	if path, msg := s.fault(); msg != "" {
		return &FieldError{Path: path, Msg: msg}
	}
	return nil
}

// ProbeKind returns the kind of probes with auto resolved: the method's own, or
// those that need no factor where the preconditioner has none.
func (s *Spec) ProbeKind() string {
	switch {
	case s.Sampler.ProbeKind != "auto":
		return s.Sampler.ProbeKind
	case slices.Contains(precond.InnerKinds(), s.Solver.Preconditioner.Kind):
		return "rademacher"
	}
	return s.Needs().Probes
}

// faultOfColumns is fault for what says how columns become inputs.
func (d *Data) faultOfColumns() (path, msg string) {
	if d.Synthetic != nil && (len(d.Categories)+len(d.Levels)+len(d.Dates) > 0 || d.Missing+d.Constant != "") {
		return "data", "categories:, levels:, dates:, missing: and constant: are of a table; synthetic: has none"
	}
	input := func(name string) string {
		switch {
		case name == d.Target:
			return fmt.Sprintf("%q is the target, which is a number", name)
		case slices.Contains(d.Exclude, name):
			return fmt.Sprintf("%q is excluded: take it out of one of the two", name)
		case len(d.Inputs) > 0 && !slices.Contains(d.Inputs, name):
			return fmt.Sprintf("%q is not among the inputs: add it to inputs:", name)
		}
		return ""
	}
	for i, name := range d.Categories {
		if msg := input(name); msg != "" {
			return "data.categories", msg
		}
		if slices.Contains(d.Categories[:i], name) {
			return "data.categories", fmt.Sprintf("%q is named twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Levels)) {
		if name != d.Target && !slices.Contains(d.Categories, name) {
			return "data.levels." + name, "it is no category: name it under categories: too"
		}
		if err := dataset.CheckLevels(d.Levels[name]); err != nil {
			return "data.levels." + name, err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Dates)) {
		if msg := input(name); msg != "" {
			return "data.dates." + name, msg
		}
		if slices.Contains(d.Categories, name) {
			return "data.dates." + name, "it is among the categories, too: take it out of one of the two"
		}
		if _, err := dataset.ParseDate(d.Dates[name]); err != nil {
			return "data.dates." + name, err.Error()
		}
	}
	return "", ""
}
