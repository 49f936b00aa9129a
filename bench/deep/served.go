package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/deep/paramserver"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// softmax returns the probabilities of the classes at a draw of their functions.
func softmax(mean, variance []float64, seed uint64) []float64 {
	r, p := rand.New(rand.NewPCG(seed, 1)), make([]float64, len(mean))
	for k, m := range mean {
		p[k] = m + math.Sqrt(variance[k])*r.NormFloat64()
	}
	deep.Normalise(p)
	return p
}

// server returns the configuration of a policy, of so many workers.
func (c *config) server(policy string, workers int) paramserver.Config {
	out := paramserver.Config{Policy: paramserver.Policy(policy), Gather: workers, StepSize: c.learn.StepSize, Optimiser: &deep.Adam{}}
	if policy == "backup" {
		out.Policy, out.Gather = paramserver.Synchronous, workers-(workers+4)/5
		out.Gather = max(1, out.Gather)
	}
	return out
}

// clock is a simulated one.
func (c *config) clock(_, batch int) float64 {
	r := rand.New(rand.NewPCG(uint64(batch), 2))
	t := math.Exp(c.spread * r.NormFloat64())
	if r.IntN(20) == 0 {
		t *= 4
	}
	return t
}

// served learns a table by each policy and number of workers.
func (c *config) served(ctx context.Context, tw *tabwriter.Writer, name string, of func(seed int) (*half, *half, error)) error {
	for _, policy := range strings.Split(c.policies, ",") {
		for _, text := range strings.Split(c.workers, ",") {
			workers, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			if err := c.policy(ctx, tw, name, policy, workers, of); err != nil {
				return err
			}
			tw.Flush()
		}
	}
	return nil
}

// policy learns by one policy and number of workers, on each split.
func (c *config) policy(ctx context.Context, tw *tabwriter.Writer, name, policy string, workers int, of func(seed int) (*half, *half, error)) error {
	var times, stale, dropped, early, errs, nlls []float64
	for seed := 1; seed <= c.splits; seed++ {
		train, test, err := of(seed)
		if err != nil {
			return err
		}
		n, x := c.network(train, seed)
		budget := c.budget
		if c.real {
			budget = parallel.NewBudget(1)
		}
		gradient := func(ctx context.Context, batch int, x, grad []float64) error {
			_, g, err := n.Bound(ctx, x, train.in.Len(), deep.Minibatch(train.in.Len(), c.learn.Minibatch, n.Seed, batch), batch, deep.Alone{In: train.in, Budget: budget})
			copy(grad, g)
			return err
		}
		s := paramserver.New(x, c.server(policy, workers))
		now, first, err := c.serve(ctx, s, workers, gradient, func() (scores, error) { return c.score(ctx, n, x, test) })
		if err != nil {
			return err
		}
		last, err := c.score(ctx, n, x, test)
		if err != nil {
			return err
		}
		r := s.Report()
		times, stale, dropped = append(times, now), append(stale, r.Staleness()), append(dropped, float64(r.Dropped))
		early, errs, nlls = append(early, first.error), append(errs, last.error), append(nlls, last.nll)
	}
	fmt.Fprintf(tw, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, c.shape.Layers, policy, workers, told(times), told(stale), told(dropped), told(early), told(errs), told(nlls))
	return nil
}

// serve runs the workers, and returns the time and the scores at a quarter of the steps, which are not taken of real ones.
func (c *config) serve(ctx context.Context, s *paramserver.Server, workers int, g paramserver.Gradient, score func() (scores, error)) (now float64, early scores, err error) {
	if c.real {
		began := time.Now()
		early = scores{math.NaN(), math.NaN()}
		err = paramserver.Run(ctx, s, workers, c.learn.Steps, g)
		return time.Since(began).Seconds(), early, err
	}
	var failed error
	now, err = paramserver.Simulate(ctx, s, workers, c.learn.Steps, c.clock, g, func(step int, _ float64) {
		if step == c.learn.Steps/4 {
			early, failed = score()
		}
	})
	if err == nil {
		err = failed
	}
	return now, early, err
}
