package posterior

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Deep is a Gaussian process by random features, or a deep one (package deep), in place of a problem's: the variance is that of the last layer, of each of its functions,
// the rates are those of the first, the noise is the same.
type Deep struct {
	*deep.Network
	problem *Problem
	budget  *parallel.Budget
	by      deep.Summer // of rows
	at      []int       // in the network's parameters of each element of ψ
}

// maxNetwork bounds the parameters of a network, which a fit writes as text.
const maxNetwork = 1_000_000

// NewDeep returns a network in place of a problem's Gaussian process. Inputs and ARD of the shape are the problem's. The error says what of the
// problem it cannot stand for.
func NewDeep(p *Problem, c deep.Config, b *parallel.Budget) (*Deep, error) {
	c.Inputs = p.Inputs.Dim()
	text := p.Covariance.String()
	c.ARD = text == kernel.Single(kernel.RBF, c.Inputs, true).String()
	if !c.ARD && text != kernel.Single(kernel.RBF, c.Inputs, false).String() {
		return nil, fmt.Errorf("random features are of one term over all inputs, without a mean, not of %s: use kernel: rbf alone", text)
	}
	out, err := newOutput(p)
	if err != nil {
		return nil, err
	}
	d := &Deep{Network: deep.New(c, out), problem: p, budget: b, by: deep.Alone{In: p.Inputs, Budget: b}}
	if d.Size() > maxNetwork {
		return nil, fmt.Errorf("a network of %d numbers, and %d are allowed: give fewer features, hidden functions or layers", d.Size(), maxNetwork)
	}
	d.at = []int{d.Variance()}
	lo, hi := d.Rates()
	for k := lo; k < hi; k++ {
		d.at = append(d.at, k)
	}
	for k := d.Own(); k < d.Size(); k++ {
		d.at = append(d.at, k)
	}
	if len(d.at) != len(p.Params) {
		panic(fmt.Sprintf("posterior: %d parameters, of which a network knows %d", len(p.Params), len(d.at)))
	}
	return d, nil
}

// newOutput returns what the targets are given the last layer.
func newOutput(p *Problem) (deep.Output, error) {
	if o, err := outcomes(p); err == nil {
		return o.Output()
	}
	if p.Own() > 0 || p.Functions() > 1 {
		return nil, fmt.Errorf("random features are for Gaussian noise of one variance, for classes, and for likelihoods of one latent function without parameters, not for %s", p.Likelihood.Name())
	}
	return output{p.Y, p.Offset, p.likelihoods()}, nil
}

// Outcomes are the targets of a network, as a process elsewhere can be told of them.
type Outcomes struct {
	Likelihood string    // the name of Gaussian noise, of classes without an order, or of one of plain
	Classes    int       // of classes without an order
	Y          []float64 // targets: of classes their numbers, from 0
	Offset     []float64 // what is added to the latent function in each row; nil for nothing
}

// plain are the likelihoods of one function that are the same in all rows, without parameters.
var plain = []likelihood.Likelihood{likelihood.Bernoulli{}, likelihood.Probit{}, likelihood.Poisson{}}

// outcomes returns those of a problem. The error says that there is no telling them.
func outcomes(p *Problem) (Outcomes, error) {
	switch l := p.Likelihood.(type) {
	case likelihood.Gaussian:
		y := slices.Clone(p.Y)
		for i, o := range p.Offset {
			y[i] -= o
		}
		return Outcomes{Likelihood: l.Name(), Y: y}, nil
	case likelihood.Categorical:
		return Outcomes{Likelihood: l.Name(), Classes: l.Functions(), Y: p.Y}, nil
	}
	if !slices.Contains(plain, p.Likelihood) {
		return Outcomes{}, fmt.Errorf("networks of %s are learnt by one process", p.Likelihood.Name())
	}
	return Outcomes{Likelihood: p.Likelihood.Name(), Y: p.Y, Offset: p.Offset}, nil
}

// Output returns what the targets are given the last layer. The error says what cannot be.
func (o Outcomes) Output() (deep.Output, error) {
	switch o.Likelihood {
	case likelihood.Gaussian{}.Name():
		return deep.Gaussian{Y: o.Y}, nil
	case likelihood.Categorical{}.Name():
		if err := (likelihood.Categorical{Classes: make([]string, o.Classes)}).Check(o.Y); err != nil {
			return nil, err
		}
		out := deep.Softmax{Class: make([]int, len(o.Y)), Classes: o.Classes}
		for i, y := range o.Y {
			out.Class[i] = int(y)
		}
		return out, nil
	}
	for _, l := range plain {
		if l.Name() == o.Likelihood {
			return output{o.Y, o.Offset, []likelihood.Likelihood{l}}, l.Check(o.Y)
		}
	}
	return nil, fmt.Errorf("there are no networks of %q", o.Likelihood)
}

// output is a likelihood of one function without parameters.
type output struct {
	y, offset []float64
	rows      []likelihood.Likelihood // of each row, or one of all
}

// Functions returns 1.
func (output) Functions() int { return 1 }

// Params returns 0.
func (output) Params() int { return 0 }

// Row is closed, or by quadrature.
func (o output) Row(_ []float64, i int, mean, variance, _ []float64, d deep.Slopes) float64 {
	m := mean[0]
	if o.offset != nil {
		m += o.offset[i]
	}
	value, score, weight := expectation(o.rows[min(i, len(o.rows)-1)], nil, o.y[i], m, variance[0])
	d.Mean[0] += score
	d.Variance[0] -= 0.5 * weight
	return value
}

// StartAt returns the parameters that learning begins at, with those of ψ.
func (d *Deep) StartAt(psi []float64) []float64 {
	x := d.Start()
	for i, at := range d.at {
		x[at] = psi[i]
	}
	d.Settle(x)
	return x
}

// Share has sums over rows computed by a summer, with others.
func (d *Deep) Share(by deep.Summer) { d.by = by }

// Outcomes returns the targets for a process elsewhere. The error says that it cannot be told of them.
func (d *Deep) Outcomes() (Outcomes, error) { return outcomes(d.problem) }

// Inputs returns the inputs of all rows.
func (d *Deep) Inputs() *kernel.Inputs { return d.problem.Inputs }

// Budget returns the cores.
func (d *Deep) Budget() *parallel.Budget { return d.budget }

// Rows returns how many rows there are.
func (d *Deep) Rows() int { return len(d.problem.Y) }

// Psi returns ψ of the parameters x.
func (d *Deep) Psi(x []float64) []float64 {
	psi := make([]float64, len(d.at))
	for i, at := range d.at {
		psi[i] = x[at]
	}
	return psi
}

// LogPrior returns the log prior density of ψ, and adds its gradient to that by the parameters x.
func (d *Deep) LogPrior(x, grad []float64) float64 {
	value, slope := d.problem.LogPrior(d.Psi(x))
	for i, at := range d.at {
		grad[at] += slope[i]
	}
	return value
}

// Learn moves x up the bound with the log prior; o's own prior is not asked. Errors are as of deep.Network.Learn.
func (d *Deep) Learn(ctx context.Context, x []float64, o deep.Options) ([]float64, error) {
	o.Prior = d.LogPrior
	return d.Network.Learn(ctx, x, d.Rows(), o, d.by)
}

// evidenceDraws are those that the bound is estimated by, mixtureDraws those that rows are predicted by.
const (
	evidenceDraws = 20
	mixtureDraws  = 100
)

// Evidence returns the bound at x, with its standard error, which is 0 where nothing in it is random. The errors are those of the summer.
func (d *Deep) Evidence(ctx context.Context, x []float64) (value, se float64, err error) {
	return d.Network.Evidence(ctx, x, d.Rows(), evidenceDraws, d.by)
}

// Learnt is a network with its parameters.
type Learnt struct {
	*Deep
	x []float64
}

// Learnt returns the network at x. The error is that there is not one of these.
func (d *Deep) Learnt(x []float64) (*Learnt, error) {
	if len(x) != d.Size() || !finite(x) || math.IsNaN(d.Divergence(x, make([]float64, len(x)))) {
		return nil, fmt.Errorf("the network has %d finite parameters, and was given %d numbers", d.Size(), len(x))
	}
	return &Learnt{d, x}, nil
}

// At returns the means and variances of the latent functions at points at each of some draws of the hidden layers, draws × functions × points; one draw where
// nothing is random. ψ is not asked. The only error is that of ctx.
func (l *Learnt) At(ctx context.Context, _ []float64, points *kernel.Inputs) (mean, variance [][]float64, err error) {
	draws, q := mixtureDraws, l.problem.Functions()
	if !l.Random() {
		draws = 1
	}
	for i := range draws {
		m, v, err := l.Draw(l.x, i).Latent(ctx, points, l.budget)
		if err != nil {
			return nil, nil, err
		}
		mean, variance = append(mean, byFunction(m, q)), append(variance, byFunction(v, q))
	}
	return mean, variance, nil
}

// byFunction returns numbers of rows × functions as functions × rows.
func byFunction(x []float64, functions int) []float64 {
	rows, out := len(x)/functions, make([]float64, len(x))
	for i := range rows {
		for c := range functions {
			out[c*rows+i] = x[i*functions+c]
		}
	}
	return out
}
