package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Covariance returns the covariance function of data of the given description.
func (s *Spec) Covariance(d *dataset.Info) (*kernel.Covariance, error) {
	if !expression.Is(s.Model.Kernel) {
		f, err := kernel.ParseFamily(s.Model.Kernel)
		if err != nil {
			return nil, err
		}
		return kernel.Single(f, d.D(), s.Model.ARD), nil
	}
	e, err := expression.Parse(s.Model.Kernel)
	if err != nil {
		return nil, &FieldError{Path: "model.kernel", Msg: err.Error()}
	}
	inputs := make([]expression.Input, d.D())
	for k := range inputs {
		inputs[k] = expression.Input{Name: d.InputNames[k], SD: d.XScale[k].SD}
	}
	c, err := e.Covariance(inputs)
	if err != nil {
		return nil, &FieldError{Path: "model.kernel", Msg: err.Error()}
	}
	return c, nil
}

// KernelModel returns what is to be inferred of data of the given description.
func (s *Spec) KernelModel(d *dataset.Info) (posterior.Model, error) {
	c, err := s.Covariance(d)
	if err != nil {
		return posterior.Model{}, err
	}
	priors, err := s.Model.Priors.find(posterior.NewModel(c, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} }).Params, d)
	if err != nil {
		return posterior.Model{}, err
	}
	return posterior.NewModel(c, likelihood.Gaussian{}, func(p param.Param) param.Prior { return priors[p.Name()] }), nil
}

// rootNames are the quantities that people may have a prior of in place of a parameter, by its
// role; signal_sd and noise_sd are in the units of the target, lengthscale in those of the input.
var rootNames = []string{"lengthscale", "lengthscale_std", "signal_sd", "noise_sd"}

// roots returns the quantities in whose place a parameter stands, with their units.
func roots(p param.Param, d *dataset.Info) map[string]float64 {
	switch {
	case p.Role == param.Variance:
		return map[string]float64{"signal_sd": d.YScale.SD}
	case p.Role == param.Noise:
		return map[string]float64{"noise_sd": d.YScale.SD}
	case p.Role == param.Rate && len(p.Inputs) == 1:
		return map[string]float64{"lengthscale": d.XScale[p.Inputs[0]].SD, "lengthscale_std": 1}
	case p.Role == param.Rate:
		return map[string]float64{"lengthscale": 1}
	}
	return nil
}

// find returns the prior of each parameter, by its name. A prior of one element, such as
// weather.lengthscale[hum], goes before that of all of a name, weather.lengthscale, and that
// before the one of all terms, lengthscale, or of the role.
func (p *Priors) find(params param.List, d *dataset.Info) (map[string]param.Prior, error) {
	used, known := map[string]bool{}, map[string]bool{}
	out := map[string]param.Prior{}
	for _, q := range params {
		prior, err := p.of(q, d, used, known)
		if err != nil {
			return nil, err
		}
		out[q.Name()] = prior
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

// of returns the prior of a parameter.
func (p *Priors) of(q param.Param, d *dataset.Info, used, known map[string]bool) (param.Prior, error) {
	type candidate struct {
		symbol string
		unit   float64 // of a root; 0 for the parameter itself
	}
	all := []candidate{{q.Symbol, 0}}
	units := roots(q, d)
	for _, name := range slices.Sorted(maps.Keys(units)) {
		all = append(all, candidate{name, units[name]})
	}
	var general param.Param // of all terms
	bare := q
	bare.Index = ""
	forms := []func(symbol string) string{
		func(symbol string) string { return q.As(symbol, q.Of(d.InputNames)) },
		func(symbol string) string { return bare.As(symbol, "") },
		func(symbol string) string { return general.As(symbol, "") },
	}
	for _, form := range forms {
		found := ""
		var prior param.Prior
		for _, c := range all {
			key := form(c.symbol)
			known[key] = true
			text, ok := p.Of[key]
			if !ok || found == key {
				continue
			}
			if found != "" {
				return prior, &FieldError{Path: "model.priors", Msg: fmt.Sprintf("%s and %s are one parameter: give one of them", found, key)}
			}
			var err error
			if c.unit == 0 {
				prior, err = param.ParsePrior(text, q.Role)
			} else {
				prior, err = param.ParseRootPrior(text, q.Role, c.unit)
			}
			if err != nil {
				return prior, &FieldError{Path: "model.priors." + key, Msg: err.Error()}
			}
			found, used[key] = key, true
		}
		if found != "" {
			return prior, nil
		}
	}
	text, ok := map[param.Role]string{param.Variance: p.Sigma, param.Rate: p.Tau, param.Noise: p.Lambda}[q.Role]
	if !ok {
		return param.Prior{}, &FieldError{Path: "model.priors", Msg: fmt.Sprintf("the period of %s is a parameter without a prior: write %s: \"lognormal(log of the period, 0.1)\" here, or fix it, as in periodic(x, period=1)", q.Term, q.Name())}
	}
	return param.ParsePrior(text, q.Role)
}

// faultOfModel is fault for what can be told without the data.
func (s *Spec) faultOfModel() (path, msg string) {
	known := map[string]bool{"": true} // terms
	if expression.Is(s.Model.Kernel) {
		e, err := expression.Parse(s.Model.Kernel)
		var syntax *expression.Error
		switch {
		case errors.As(err, &syntax):
			return "model.kernel", err.Error()
		case err != nil:
			return "model.kernel", err.Error()
		case s.Model.ARD:
			return "model.ard", "an expression says where each input has a length-scale of its own: write ard among the inputs, as in rbf(x, y, ard)"
		case s.Data.Synthetic != nil:
			return "model.kernel", "synthetic data are made from one family, not from an expression: use one of " + strings.Join(kernel.FamilyNames(), ", ") + ", or data.path"
		}
		for _, t := range e.Terms() {
			known[t] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Model.Priors.Of)) {
		term, _, dotted := strings.Cut(key, ".")
		if dotted && !known[term] {
			return "model.priors." + key, fmt.Sprintf("the covariance has no term %s", term)
		}
		if _, err := param.ParsePrior(s.Model.Priors.Of[key], param.Variance); err != nil {
			return "model.priors." + key, err.Error()
		}
	}
	return "", ""
}
