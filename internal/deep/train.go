package deep

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Adam is the optimiser of Kingma and Ba (ICLR 2015), upwards, with its usual constants.
type Adam struct {
	First, Second []float64 // decaying means of the gradient's elements and of their squares; nil before the first step
	Count         int       // of steps
}

const (
	adamFirst  = 0.9
	adamSecond = 0.999
	adamLeast  = 1e-8
)

// Step moves x along a gradient by steps of a size.
func (a *Adam) Step(x, grad []float64, size float64) {
	if a.First == nil {
		a.First, a.Second = make([]float64, len(x)), make([]float64, len(x))
	}
	a.Count++
	c1, c2 := 1-math.Pow(adamFirst, float64(a.Count)), 1-math.Pow(adamSecond, float64(a.Count))
	for i, g := range grad {
		a.First[i] = adamFirst*a.First[i] + (1-adamFirst)*g
		a.Second[i] = adamSecond*a.Second[i] + (1-adamSecond)*g*g
		x[i] += size * (a.First[i] / c1) / (math.Sqrt(a.Second[i]/c2) + adamLeast)
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

// State is how far learning is: all that later steps depend on, and the estimates of the bound so far, one a step.
type State struct {
	X      []float64
	Adam   Adam
	Values []float64
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
	// From, if not nil, is the state that learning goes on from. It is changed.
	From *State
	// Keep, if not nil, is given the state after each step, which stays as it is until the next one. Its error ends learning.
	Keep func(*State) error
}

// StepSize returns that of a step, from 1.
func (o *Options) StepSize(step int) float64 {
	return o.Step * min(1, 2*float64(o.Steps-step+1)/float64(o.Steps))
}

// ErrDiverged is the error of a bound that is not a number.
var ErrDiverged = errors.New("the bound is not finite: take smaller steps")

// Learn moves x up the bound and returns the estimates of it at each step, with the prior. Its result is a function of the network, the data, x and the options, to the same bits where it
// goes on from a state of its own, or another summer computes. rows is how many there are. The errors are ErrDiverged, those of the summer and that of Keep.
func (n *Network) Learn(ctx context.Context, x []float64, rows int, o Options, by Summer) (values []float64, err error) {
	s := &State{X: x}
	if o.From != nil {
		copy(x, o.From.X)
		s.Adam, s.Values = o.From.Adam, o.From.Values
	}
	for step := len(s.Values) + 1; step <= o.Steps; step++ {
		value, grad, err := n.Bound(ctx, x, rows, Minibatch(rows, o.Minibatch, n.Seed, step), step, by)
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
		s.Values = append(s.Values, value)
		s.Adam.Step(x, grad, o.StepSize(step))
		if o.Keep != nil {
			if err := o.Keep(s); err != nil {
				return nil, err
			}
		}
	}
	return s.Values, nil
}

// Evidence returns the bound at x over all rows, averaged over some draws of what is random, with its standard error: 0 where nothing is. The errors are those of the
// summer.
func (n *Network) Evidence(ctx context.Context, x []float64, rows, draws int, by Summer) (value, se float64, err error) {
	all, values, kl := span(rows), make([]float64, draws), n.Divergence(x, make([]float64, n.size))
	for i := range values {
		expected, err := n.At(x, evidenceSteps+i).Expected(ctx, all, 1, nil, by)
		if err != nil {
			return 0, 0, err
		}
		values[i] = expected - kl
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

// Random reports whether predictions are a mixture over draws: one layer of frequencies that were drawn once has none.
func (n *Network) Random() bool { return n.Layers > 1 || n.Frequencies == Resampled }
