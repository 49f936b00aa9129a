package job

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Covariance returns the covariance function of data of the given description, the mean's terms after
// those of the kernel, and then those of the second latent function.
func (s *Spec) Covariance(d *dataset.Info) (*kernel.Covariance, error) {
	if !expression.Is(s.Model.Kernel) {
		f, err := kernel.ParseFamily(s.Model.Kernel)
		if err != nil {
			return nil, err
		}
		for k, in := range inputsOf(d) {
			if in.Levels > 0 {
				return nil, &FieldError{Path: "model.kernel", Msg: fmt.Sprintf("%s is over all inputs, and %s is a category, whose levels have no distances: write an expression such as kernel: %q",
					s.Model.Kernel, d.InputNames[k], expression.OfAll(s.Model.Kernel, s.Model.ARD, inputsOf(d)))}
			}
		}
		return s.completed(kernel.Single(f, d.D(), s.Model.ARD), d)
	}
	e, err := expression.Parse(s.Model.Kernel)
	if err != nil {
		return nil, &FieldError{Path: "model.kernel", Msg: err.Error()}
	}
	c, err := e.Covariance(inputsOf(d))
	if err != nil {
		return nil, &FieldError{Path: "model.kernel", Msg: err.Error()}
	}
	return s.completed(c, d)
}

// completed returns a covariance with the terms of the mean and those of the second latent function.
func (s *Spec) completed(c *kernel.Covariance, d *dataset.Info) (*kernel.Covariance, error) {
	c, err := s.withMean(c, d)
	if err != nil {
		return nil, err
	}
	return s.withSecond(c, d)
}

// inputsOf returns the inputs as an expression is over them.
func inputsOf(d *dataset.Info) []expression.Input {
	inputs := make([]expression.Input, d.D())
	for k := range inputs {
		inputs[k] = expression.Input{Name: d.InputNames[k], Mean: d.XScale[k].Mean, SD: d.XScale[k].SD, Levels: len(d.LevelsOf(k)), LevelNames: d.LevelsOf(k)}
	}
	return inputs
}

// KernelModel returns what is to be inferred of data of the given description.
func (s *Spec) KernelModel(d *dataset.Info) (posterior.Model, error) {
	c, err := s.Covariance(d)
	if err != nil {
		return posterior.Model{}, err
	}
	priors, err := s.priors(c, d)
	if err != nil {
		return posterior.Model{}, err
	}
	m := posterior.NewModel(c, s.likelihood(d), func(p param.Param) param.Prior { return priors[p.Name()].prior })
	m.Terms = s.functionTerms(c)
	return m, nil
}

// PriorOf is the prior of a parameter as people gave it.
type PriorOf struct {
	Quantity string // by its name in the results: the parameter, or what it is told as
	Prior    string
	Note     string // what a matrix is over
}

// PriorsOf returns the priors of all parameters of the model, in their order.
func (s *Spec) PriorsOf(d *dataset.Info) ([]PriorOf, error) {
	c, err := s.Covariance(d)
	if err != nil {
		return nil, err
	}
	found, err := s.priors(c, d)
	if err != nil {
		return nil, err
	}
	var out []PriorOf
	for _, p := range slices.Concat(c.Params(), s.likelihood(d).Params()) {
		f := found[p.Name()]
		out = append(out, PriorOf{f.quantity, f.prior.String(), noteOf(c, p)})
	}
	return slices.Compact(out), nil // all partial correlations of a matrix are one
}

// noteOf returns what the correlation matrix is over that a parameter is of, nothing for another parameter.
func noteOf(c *kernel.Covariance, p param.Param) string {
	for _, l := range c.Leaves() {
		m, ok := l.(*kernel.Coregion)
		if !ok || p.Role != param.Partial || m.Prefix != p.Term {
			continue
		}
		what := "the matrix of "
		if m.Rank > 0 {
			what = fmt.Sprintf("each partial correlation with the factors (rank %d) of ", m.Rank)
		}
		return what + strings.Join(m.Levels, ", ")
	}
	return ""
}

// Addend is a term of the covariance: its name, empty of a single family, and the inputs, from 0, that
// it is over.
type Addend struct {
	Name   string
	Inputs []int
}

// Addends returns the terms of the covariance of data of the given description.
func (s *Spec) Addends(d *dataset.Info) ([]Addend, error) {
	if !expression.Is(s.Model.Kernel) {
		all := make([]int, d.D())
		for k := range all {
			all[k] = k
		}
		return []Addend{{Inputs: all}}, nil
	}
	e, err := expression.Parse(s.Model.Kernel)
	if err != nil {
		return nil, &FieldError{Path: "model.kernel", Msg: err.Error()}
	}
	var out []Addend
	for t, name := range e.Terms() {
		a := Addend{Name: name}
		for _, input := range e.TermInputs(t, d.InputNames) {
			a.Inputs = append(a.Inputs, slices.Index(d.InputNames, input))
		}
		out = append(out, a)
	}
	return out, nil
}

// Hints returns what somebody should know of the model before it is fitted, one sentence each.
func (s *Spec) Hints(d *dataset.Info) []string {
	if !expression.Is(s.Model.Kernel) {
		return nil
	}
	e, err := expression.Parse(s.Model.Kernel)
	if err != nil {
		return nil
	}
	var out []string
	unused := e.Unused(d.InputNames)
	if m, err := expression.ParseMean(s.Model.Mean); err == nil {
		if lines, err := m.Inputs(inputsOf(d)); err == nil {
			unused = slices.DeleteFunc(unused, func(name string) bool {
				return slices.ContainsFunc(lines, func(k int) bool { return d.InputNames[k] == name })
			})
		}
	}
	if len(unused) > 0 {
		out = append(out, fmt.Sprintf("no term of the covariance is over %s: what is not in it is not in the model", strings.Join(unused, ", ")))
	}
	out = append(out, e.Hints(inputsOf(d))...)
	for _, name := range e.Coregionalised() {
		if _, ok := s.likelihood(d).(likelihood.Gaussian); ok {
			out = append(out, fmt.Sprintf("the levels of %s have one noise variance: give each its own by model.noise: {by: %s}, unless they are in one unit", name, name))
		}
	}
	if len(e.Terms()) > 1 && s.Sampler.Method == sampler.Stepping {
		out = append(out, "posteriors of sums are often far from normal, where "+sampler.Stepping+" may be unstable: sampler.method: auto is made for these")
	}
	return out
}

// given is the prior of a parameter, with the name of what it was given for.
type given struct {
	prior    param.Prior
	quantity string
}

// priors returns the prior of each parameter of a covariance and of the likelihood, by its name.
func (s *Spec) priors(c *kernel.Covariance, d *dataset.Info) (map[string]given, error) {
	return s.Model.Priors.find(slices.Concat(c.Params(), s.likelihood(d).Params()), d)
}

// The priors of parameters of roles that have no field of their own: of the shape of a rational quadratic,
// 95 % within 0.14 and 7.1, above which it is hardly told from an RBF; the one of which the
// correlation e^(−τ) of a hamming is uniform; one about 1 of what is added to products of standardised inputs; and one
// about no warp, 95 % within 0.38 and 2.7.
const (
	shapePrior    = "lognormal(0,1)"
	mismatchPrior = "gamma(1,1)"
	offsetPrior   = "lognormal(0,1)"
	exponentPrior = "lognormal(0,0.5)"
)

// The priors of a coregion: of its correlation matrix, which is mild against correlations of ±1, and of standard
// deviations relative to that of the first level, 95 % within 0.14 and 7.1.
const (
	matrixPrior = "lkj(2)"
	ratioPrior  = "lognormal(0,1)"
)

// matrixQuantity is what the partial correlations of a matrix are together.
const matrixQuantity = "correlation"

// own returns the prior of a parameter of a role that has no field of its own, empty if there is none. A place is
// about where its input is, and its width about a tenth of the input's standard deviation, 95 % within a 70th and 0.7.
func own(p param.Param, d *dataset.Info) string {
	switch p.Role {
	case param.Shape:
		return shapePrior
	case param.Mismatch:
		return mismatchPrior
	case param.Size:
		return sizePrior
	case param.Gap:
		return gapPrior
	case param.Spread:
		return spreadPrior
	case param.Share:
		return sharePrior
	case param.Offset:
		return offsetPrior
	case param.Exponent:
		return exponentPrior
	case param.Partial:
		return matrixPrior
	case param.Ratio:
		return ratioPrior
	case param.Place:
		s := d.XScale[p.Inputs[0]]
		return fmt.Sprintf("normal(%.6g,%.4g)", s.Mean, s.SD)
	case param.Width:
		return fmt.Sprintf("lognormal(%.3g,1)", math.Log(d.XScale[p.Inputs[0]].SD/10))
	}
	return ""
}

// rootNames are the quantities that people may have a prior of in place of a parameter, by its
// role; signal_sd and noise_sd are in the units of the target, lengthscale in those of the input.
var rootNames = []string{"lengthscale", "lengthscale_std", "signal_sd", "noise_sd", "correlation"}

// ownNames are the parameters of likelihoods whose priors have no field of their own.
var ownNames = []string{"size", "gap", "df", "outlier_scale", "outlier_share", "random_share"}

// isQuantity reports whether a field of priors may be the name of a quantity.
func isQuantity(key string) bool {
	name, _, element := strings.Cut(key, "[")
	return strings.Contains(name, ".") || element || slices.Contains(ownNames, name) || slices.Contains(rootNames, name)
}

// roots returns the quantities in whose place a parameter stands, with their units.
func roots(p param.Param, d *dataset.Info) map[string]float64 {
	switch {
	case p.Role == param.Variance && p.Unitless:
		return map[string]float64{"signal_sd": 1}
	case p.Role == param.Variance:
		return map[string]float64{"signal_sd": d.YScale.SD}
	case p.Role == param.Noise:
		return map[string]float64{"noise_sd": d.YScale.SD}
	case p.Role == param.Rate && len(p.Inputs) == 1:
		return map[string]float64{"lengthscale": d.XScale[p.Inputs[0]].SD, "lengthscale_std": 1}
	case p.Role == param.Rate:
		return map[string]float64{"lengthscale": 1}
	case p.Role == param.Mismatch:
		return map[string]float64{"correlation": 1}
	}
	return nil
}

// find returns the prior of each parameter, by its name. A prior of one element, such as
// weather.lengthscale[hum], goes before that of all of a name, weather.lengthscale, and that
// before the one of all terms, lengthscale, or of the role.
func (p *Priors) find(params param.List, d *dataset.Info) (map[string]given, error) {
	used, known := map[string]bool{}, map[string]bool{}
	out := map[string]given{}
	for _, q := range params {
		g, err := p.of(q, d, used, known)
		if err != nil {
			return nil, err
		}
		out[q.Name()] = g
	}
	for _, key := range slices.Sorted(maps.Keys(p.Of)) {
		if used[key] {
			continue
		}
		names := slices.Sorted(maps.Keys(known))
		msg := "it is given for each parameter that it could be of: leave it out"
		if !known[key] {
			msg = "there is no such quantity: there are " + strings.Join(names, ", ")
			if near, ok := nearest.Word(key, names); ok {
				msg = fmt.Sprintf("there is no such quantity: did you mean %s?", near)
			}
		}
		return nil, &FieldError{Path: "model.priors." + key, Msg: msg}
	}
	return out, nil
}

// of returns the prior of a parameter. It notes which names it knows, and which it used.
func (p *Priors) of(q param.Param, d *dataset.Info, used, known map[string]bool) (given, error) {
	units := roots(q, d)
	symbols := append(slices.Sorted(maps.Keys(units)), q.Symbol)
	if q.Role == param.Partial {
		symbols = []string{matrixQuantity}
	}
	told := func(symbol string) string {
		if q.Role == param.Partial {
			return q.As(matrixQuantity, "")
		}
		if symbol == q.Symbol || len(q.Inputs) != 1 {
			return q.As(symbol, q.Of(d.InputNames))
		}
		return q.As(symbol, d.InputNames[q.Inputs[0]])
	}
	forms := []func(symbol string) string{
		told,
		func(symbol string) string { return q.As(symbol, "") },
		func(symbol string) string {
			if q.Role == param.Partial { // a correlation of all terms is that of categories
				return told(symbol)
			}
			return symbol
		},
	}
	for i, symbol := range symbols {
		known[forms[0](symbol)], known[forms[1](symbol)] = true, true
		if i < len(units) { // of all terms there are sigma, tau and lambda in place of the parameter
			known[forms[2](symbol)] = true
		}
	}
	for _, name := range forms {
		found := ""
		for _, symbol := range symbols {
			key := name(symbol)
			if _, ok := p.Of[key]; !ok {
				continue
			}
			used[key] = true
			if found != "" {
				return given{}, &FieldError{Path: "model.priors", Msg: fmt.Sprintf("%s and %s are one parameter: give one of them", name(found), key)}
			}
			found = symbol
		}
		if found == "" {
			continue
		}
		var prior param.Prior
		var err error
		if unit, ok := units[found]; ok {
			prior, err = param.ParseRootPrior(p.Of[name(found)], q.Role, unit)
		} else {
			prior, err = q.ParsePrior(p.Of[name(found)])
		}
		if err != nil {
			return given{}, &FieldError{Path: "model.priors." + name(found), Msg: err.Error()}
		}
		return given{prior.Given(q.Spare), told(found)}, nil
	}
	text, ok := map[param.Role]string{param.Variance: p.Sigma, param.Rate: p.Tau, param.Noise: p.Lambda}[q.Role]
	if !ok {
		text = own(q, d)
	}
	if text == "" {
		return given{}, &FieldError{Path: "model.priors", Msg: fmt.Sprintf("%s is a parameter without a prior: write %s: \"lognormal(m,0.1)\", m the logarithm of what it is about, or fix it, as in periodic(x, period=1)", q.Name(), q.Name())}
	}
	prior, err := q.ParsePrior(text)
	return given{prior.Given(q.Spare), told(q.Symbol)}, err
}

// faultOfModel is fault for what can be told without the data.
func (s *Spec) faultOfModel() (path, msg string) {
	if _, err := expression.ParseMean(s.Model.Mean); err != nil {
		return "model.mean", err.Error()
	}
	known := map[string]bool{"": true} // terms
	second := s.Model.second()
	names, path, msg := second.names()
	if msg != "" {
		return path, msg
	}
	for _, name := range names {
		known[name] = true
	}
	if expression.Is(s.Model.Kernel) {
		e, err := expression.Parse(s.Model.Kernel)
		switch {
		case err != nil:
			return "model.kernel", err.Error()
		case s.Model.ARD:
			return "model.ard", "an expression says where each input has a length-scale of its own: write ard among the inputs, as in rbf(x, y, ard)"
		case s.Data.Synthetic != nil:
			return "model.kernel", "synthetic data are made from one family, not from an expression: use one of " + strings.Join(kernel.FamilyNames(), ", ") + ", or data.path"
		}
		for _, name := range e.Names() {
			switch {
			case OfMean(name):
				return "model.kernel", fmt.Sprintf("a term has the name %s, as those of the mean have: give it another", name)
			case second.has(name):
				return "model.kernel", fmt.Sprintf("a term has the name %s, as those of %s have: give it another", name, second.what)
			}
			known[name] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Model.Priors.Of)) {
		name, _, _ := strings.Cut(key, "[")
		term, _, dotted := strings.Cut(name, ".")
		if dotted && !known[term] {
			return "model.priors." + key, fmt.Sprintf("the covariance has no term %s", term)
		}
		if err := param.CheckPrior(s.Model.Priors.Of[key]); err != nil {
			return "model.priors." + key, err.Error()
		}
	}
	return "", ""
}
