package fit

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Deep fits a network of random features by Adam, from a start of ψ, or from the state of the options. Extra of the result is all of its parameters; there is no curvature. It has converged if
// the bound has stopped rising.
func Deep(ctx context.Context, d *posterior.Deep, start []float64, learn deep.Options, o Options) (*Result, error) {
	o = o.filled()
	x := d.StartAt(start)
	var trace []Step
	learn.Tell = func(step int, x []float64, value float64, grad []float64) {
		s := Step{Search: 1, Evaluation: step, Psi: d.Psi(x), Value: Number(value), Slope: Number(floats.Norm(grad, math.Inf(1))), Seconds: time.Since(o.Began).Seconds()}
		if step == 1 || step%traceEvery(learn.Steps) == 0 {
			trace = append(trace, s)
		}
		o.Tell(s)
	}
	if f := o.From; f != nil {
		trace, learn.From = f.Trace, &deep.State{X: f.X, Adam: deep.Adam{First: f.First, Second: f.Second, Count: f.Count}, Values: f.Values}
	}
	values, err := learnKept(ctx, d, x, learn, o, func() []Step { return trace })
	if err != nil {
		return nil, err
	}
	bound, se, err := d.Evidence(ctx, x)
	if err != nil {
		return nil, err
	}
	prior := d.LogPrior(x, make([]float64, len(x)))
	psi := d.Psi(x)
	r := &Result{Psi: psi, Extra: x, Value: bound + prior, LogLikelihood: bound, ValueError: se, Distance: math.NaN(), Converged: settled(values, d.Rows()), Trace: trace}
	r.Searches = []Ended{{Start: slices.Clone(start), Psi: psi, Value: Number(r.Value), Evaluations: learn.Steps, Converged: r.Converged}}
	return r, nil
}

// learnKept has a network learn, and its states kept, the last one too if the context is done before the end.
func learnKept(ctx context.Context, d *posterior.Deep, x []float64, learn deep.Options, o Options, trace func() []Step) ([]float64, error) {
	if o.Keeper == nil {
		return d.Learn(ctx, x, learn)
	}
	var last *deep.State
	keep := func() error {
		return o.Keeper.Keep(&State{Count: last.Adam.Count, X: last.X, First: last.Adam.First, Second: last.Adam.Second, Values: last.Values, Trace: trace()})
	}
	learn.Keep = func(s *deep.State) error {
		if last = s; o.Keeper.Due() {
			return keep()
		}
		return nil
	}
	values, err := d.Learn(ctx, x, learn)
	if ctx.Err() != nil && last != nil {
		err = errors.Join(err, keep())
	}
	return values, err
}

// tracePoints is how many steps of a network's learning are kept, about.
const tracePoints = 200

func traceEvery(steps int) int { return max(1, steps/tracePoints) }

// stillRising is by how much a row the bound may have risen from the last tenth but one of the steps to the last tenth.
const stillRising = 0.01

// settled reports whether estimates of a bound over n rows rise no more than is allowed, or than two standard errors.
func settled(values []float64, n int) bool {
	k := len(values) / 10
	if k < 2 {
		return false
	}
	last, before := values[len(values)-k:], values[len(values)-2*k:len(values)-k]
	a, sa := stat.MeanStdDev(last, nil)
	b, sb := stat.MeanStdDev(before, nil)
	return a-b <= stillRising*float64(n)+2*math.Sqrt((sa*sa+sb*sb)/float64(k))
}
