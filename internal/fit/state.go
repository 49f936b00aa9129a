package fit

import (
	"context"
	"slices"
)

// State is how far a fit from minibatches is: all that its later steps depend on, and what it has told so far.
type State struct {
	Count         int       // of steps
	X             []float64 // (ψ, extra), or the parameters of a network
	First, Second []float64 // of Adam: decaying means of the gradient's elements and of their squares; of ADAGRAD the sum of these is Second
	Noisy         []float64 // what the gradients have become, if that changes: of SVGP the distribution of the inducing variables
	Values        []float64 // of a network, the estimates of the bound at each step
	Trace         []Step
}

// Keeper keeps states of a fit, so that after an interruption it can go on with the same bits (Options.From).
type Keeper interface {
	// Due reports whether one is to be kept now.
	Due() bool
	// Keep keeps a state. It may not hold on to it.
	Keep(*State) error
}

// changing is a Noisy whose gradients depend on those before them.
type changing interface {
	State() []float64
	SetState([]float64)
}

// state returns where following noisy gradients begins: at a start, or at the state that it goes on from, which noisy is brought to.
func (o *Options) state(start []float64, noisy Noisy) *State {
	if o.From == nil {
		x := slices.Concat(start, noisy.Extra())
		return &State{X: x, First: make([]float64, len(x)), Second: make([]float64, len(x))}
	}
	if c, ok := noisy.(changing); ok {
		c.SetState(o.From.Noisy)
	}
	return o.From
}

// keep has a state kept.
func (o *Options) keep(s *State, noisy Noisy) error {
	if c, ok := noisy.(changing); ok {
		s.Noisy = c.State()
	}
	return o.Keeper.Keep(s)
}

// interrupted has the last state of a fit kept that ends because its context is done.
func (o *Options) interrupted(ctx context.Context, s *State, noisy Noisy) error {
	if o.Keeper == nil || ctx.Err() == nil {
		return nil
	}
	return o.keep(s, noisy)
}
