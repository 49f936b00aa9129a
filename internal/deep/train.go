package deep

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Adam is the optimiser of Kingma and Ba (ICLR 2015), upwards, with its usual constants.
type Adam struct {
	first, second []float64
	count         int
}

const (
	adamFirst  = 0.9
	adamSecond = 0.999
	adamLeast  = 1e-8
)

// Step moves x along a gradient by steps of a size.
func (a *Adam) Step(x, grad []float64, size float64) {
	if a.first == nil {
		a.first, a.second = make([]float64, len(x)), make([]float64, len(x))
	}
	a.count++
	c1, c2 := 1-math.Pow(adamFirst, float64(a.count)), 1-math.Pow(adamSecond, float64(a.count))
	for i, g := range grad {
		a.first[i] = adamFirst*a.first[i] + (1-adamFirst)*g
		a.second[i] = adamSecond*a.second[i] + (1-adamSecond)*g*g
		x[i] += size * (a.first[i] / c1) / (math.Sqrt(a.second[i]/c2) + adamLeast)
	}
}

// Minibatch returns the rows of a step: of n, drawn without replacement, in ascending order.
func Minibatch(n, size int, seed uint64, step int) []int {
	if size >= n {
		return span(n)
	}
	r, seen, rows := random.Key{Seed: seed, Iter: step}.Stream(random.Minibatch, 0), map[int]bool{}, []int{}
	for j := n - size; j < n; j++ { // Floyd's algorithm
		i := r.IntN(j + 1)
		if seen[i] {
			i = j
		}
		seen[i] = true
		rows = append(rows, i)
	}
	slices.Sort(rows)
	return rows
}

func span(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// Options say how to learn.
type Options struct {
	Steps     int
	Minibatch int     // rows of a step
	Step      float64 // of Adam; over the last half of the steps it falls to zero, linearly
	// Prior, if not nil, adds to grad the gradient of what is added to the bound, a log prior density, and returns its value.
	Prior func(x, grad []float64) float64
	// Held says which numbers stay as they are; nil for none.
	Held []bool
	// Tell, if not nil, is told of each step, before it is made, and of the estimate of the bound there with the prior.
	Tell func(step int, x []float64, value float64, grad []float64)
}

// StepSize returns that of a step, from 1.
func (o *Options) StepSize(step int) float64 {
	return o.Step * min(1, 2*float64(o.Steps-step+1)/float64(o.Steps))
}

// ErrDiverged is the error of a bound that is not a number.
var ErrDiverged = errors.New("the bound is not finite: take smaller steps")

// Learn moves x up the bound and returns the estimates of it at each step, with the prior. Its result is a function of the network, the data, x and the options. The
// errors are ErrDiverged and that of ctx.
func (n *Network) Learn(ctx context.Context, x []float64, in *kernel.Inputs, o Options, b *parallel.Budget) (values []float64, err error) {
	var adam Adam
	for step := 1; step <= o.Steps; step++ {
		value, grad, err := n.Bound(ctx, x, in, Minibatch(in.Len(), o.Minibatch, n.Seed, step), step, b)
		if err != nil {
			return nil, err
		}
		if o.Prior != nil {
			value += o.Prior(x, grad)
		}
		for i, held := range o.Held {
			if held {
				grad[i] = 0
			}
		}
		if math.IsNaN(value) || math.IsInf(value, 0) || floats.HasNaN(grad) {
			return nil, ErrDiverged
		}
		if o.Tell != nil {
			o.Tell(step, x, value, grad)
		}
		values = append(values, value)
		adam.Step(x, grad, o.StepSize(step))
	}
	return values, nil
}

// Evidence returns the bound at x over all rows, averaged over some draws of what is random, with its standard error: 0 where nothing is. The only error is that of
// ctx.
func (n *Network) Evidence(ctx context.Context, x []float64, in *kernel.Inputs, draws int, b *parallel.Budget) (value, se float64, err error) {
	rows, values := span(in.Len()), make([]float64, draws)
	for i := range values {
		if values[i], _, err = n.Bound(ctx, x, in, rows, evidenceSteps+i, b); err != nil {
			return 0, 0, err
		}
	}
	mean, sd := stat.MeanStdDev(values, nil)
	return mean, sd / math.Sqrt(float64(draws)), nil
}

// Where the random numbers of evidence and of predictions begin, behind those of all steps.
const (
	evidenceSteps   = 1 << 30
	predictionSteps = 1 << 31
)

// Draw returns the network at x with the random numbers of draw i of the posterior, from 0, for predictions.
func (n *Network) Draw(x []float64, i int) *Sample { return n.At(x, predictionSteps+i) }

// Moments returns means and variances of the functions in rows, rows × functions, of the mixture of some draws of the hidden layers. The only error is that
// of ctx.
func (n *Network) Moments(ctx context.Context, x []float64, in *kernel.Inputs, draws int, b *parallel.Budget) (mean, variance []float64, err error) {
	if n.Layers == 1 && n.Frequencies != Resampled {
		draws = 1 // nothing is random
	}
	for i := range draws {
		m, v, err := n.Draw(x, i).Latent(ctx, in, b)
		if err != nil {
			return nil, nil, err
		}
		if mean == nil {
			mean, variance = make([]float64, len(m)), make([]float64, len(m))
		}
		for k := range m { // the mean of squares' deviations is updated (Welford)
			d := m[k] - mean[k]
			mean[k] += d / float64(i+1)
			variance[k] += (v[k] + d*(m[k]-mean[k])) / float64(draws)
		}
	}
	return mean, variance, nil
}
