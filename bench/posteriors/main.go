// Command posteriors computes reference summaries of posteriors: means, standard
// deviations, quantiles and modes with their Monte Carlo errors, by exact
// Metropolis–Hastings with dense algebra.
//
//	go run ./bench/posteriors [-draws 50000] [-starts 40] [-seed 1] [-out FILE] SPEC
//
// SPEC is a job's specification, of which the data, the kernel, ard and the priors count.
// The modes are searched from many starts on all rows; a mixture of Student t
// distributions is fitted to importance-weighted draws; four chains of independent
// proposals from it follow, the same proposals weighed by importance sampling beside them.
//
//	go run ./bench/posteriors -learn 400 [-noise 1] -against FILE SPEC
//
// learns log|K| from so many gradients, with noise, in place of computing it, and prints how
// far the means and standard deviations are off beside the errors that are stated for them.
//
//	go run ./bench/posteriors -page FILE
//
// prints what -out wrote as docs/posteriors.md shows it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

type options struct {
	draws, starts int
	learn         int
	noise         float64
	against       string
	seed          uint64
	prior         float64
}

func main() {
	var o options
	flag.IntVar(&o.draws, "draws", 50_000, "proposals of all chains together")
	flag.IntVar(&o.starts, "starts", 40, "climbs in search of modes")
	flag.Float64Var(&o.prior, "prior", 0.05, "share of proposals from the prior; more for few data")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of starts, proposals and decisions")
	flag.IntVar(&o.learn, "learn", 0, "learn log|K| from so many gradients and compare with the reference of -against, in place of making one")
	flag.Float64Var(&o.noise, "noise", 0, "with -learn: standard deviation of a gradient of log|K|, in units of the posterior's uncertainty")
	flag.StringVar(&o.against, "against", "", "with -learn: reference, a file that -out wrote")
	shown := flag.String("page", "", "print this reference, a file that -out wrote, as tables")
	out := flag.String("out", "", "file to write instead of standard output")
	flag.Parse()
	if *shown != "" {
		s, err := readSummary(*shown)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(page(s))
		return
	}
	if flag.NArg() != 1 {
		log.Fatal("usage: posteriors [flags] SPEC")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	summary, err := reference(ctx, flag.Arg(0), o)
	if err != nil {
		log.Fatal(err)
	}
	if summary == nil {
		return
	}
	text, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		log.Fatal(err)
	}
	if *out == "" {
		fmt.Println(string(text))
		return
	}
	if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}

// stages number the streams of random numbers.
const (
	search = iota
	sampling
	pilot // and those of its rounds
)

func (o options) stream(purpose random.Purpose, stage int) func(index int) *rand.Rand {
	return func(i int) *rand.Rand { return random.Key{Seed: o.seed, Chain: stage, Iter: i}.Stream(purpose, 0) }
}

func reference(ctx context.Context, path string, o options) (*Summary, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	spec, err := job.Parse(bytes.NewReader(text), path)
	if err != nil {
		return nil, err
	}
	budget := parallel.NewBudget(0)
	if err := budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer budget.Release()
	data, err := spec.Load(ctx, nil, budget)
	if err != nil {
		return nil, err
	}
	problem, err := spec.Problem(data)
	if err != nil {
		return nil, err
	}
	e := newExact(problem, budget)
	if err := e.check(posterior.NewDense(problem, budget)); err != nil {
		return nil, err
	}
	s := &Summary{Rows: len(problem.Y), Inputs: problem.Inputs.Dim(), Kernel: spec.Model.Kernel,
		ARD: spec.Model.ARD, Priors: spec.Model.Priors, DataSHA256: data.SHA256, Seed: o.seed}

	began := time.Now()
	peaks, err := e.modes(ctx, o)
	if err != nil {
		return nil, err
	}
	s.Gradients, s.SecondsSearch = e.gradients(), time.Since(began).Seconds()
	log.Printf("%d maxima by %d gradients in %.0f s", len(peaks), s.Gradients, s.SecondsSearch)

	if o.learn > 0 {
		return nil, learn(ctx, e, peaks, o)
	}
	began = time.Now()
	a, err := e.proposal(ctx, peaks, o)
	if err != nil {
		return nil, err
	}
	list := metropolis.Propose(a.Proposal, o.draws, o.stream(random.Accept, sampling))
	if err := e.evaluate(ctx, list); err != nil {
		return nil, err
	}
	s.Densities, s.Seconds = e.values(), time.Since(began).Seconds()
	return s, s.fill(problem, peaks, a.Fit, list, o)
}

// modes returns the maxima, the one with the most mass first.
func (e *exact) modes(ctx context.Context, o options) ([]*maxima.Maximum, error) {
	starts := maxima.Starts(e.problem.Params, o.starts, o.stream(random.Start, search))
	climbs := make([]*maxima.Climb, len(starts))
	e.each(len(starts), func(w *worker, i int) {
		climbs[i] = maxima.NewClimb(starts[i], maxima.Options{Tolerance: 1e-3})
		for x := climbs[i].Next(); x != nil && ctx.Err() == nil; x = climbs[i].Next() {
			climbs[i].Tell(w.gradient(ctx, x))
		}
	})
	found := maxima.Distinct(climbs, 0)
	if len(found) == 0 {
		return nil, fmt.Errorf("none of %d climbs came to a maximum", len(starts))
	}
	e.each(len(found), func(w *worker, i int) {
		m := found[i]
		var grads [][]float64
		for _, x := range maxima.Stencil(m.X, m.Info) {
			_, g := w.gradient(ctx, x)
			if g == nil {
				return // the climb's own estimate stands
			}
			grads = append(grads, g)
		}
		m.Info, _ = maxima.Hessian(grads, m.Info)
	})
	// A climb may end at a saddle.
	found = slices.DeleteFunc(found, func(m *maxima.Maximum) bool { return math.IsInf(m.LogMass(), -1) })
	if len(found) == 0 {
		return nil, errors.New("no end of a climb is a maximum")
	}
	return found, ctx.Err()
}

// The pilot's rounds: proposals for each parameter in the first, and their number; the weight
// and the width of the wide component.
const (
	firstRound, rounds = 100, 4
	wide, width        = 0.05, 2
)

// proposal returns what the chains propose from, and the mixture in it.
func (e *exact) proposal(ctx context.Context, peaks []*maxima.Maximum, o options) (*metropolis.Adapted, error) {
	m, err := laplace(peaks)
	if err != nil {
		return nil, err
	}
	first, err := e.defend(m, o)
	if err != nil {
		return nil, err
	}
	a := e.adaptation(o, pilot, m)
	a.Evaluate = e.evaluate
	out, err := a.Run(ctx, first, e.budget)
	if err == nil {
		log.Printf("%d draws count as %.0f, k-hat %.2f; %d components", len(out.All.X), out.Weighted.ESS, out.Weighted.KHat, out.Fit.Len())
	}
	return out, err
}

// adaptation returns the rounds of a pilot, whose streams begin with the given stage.
func (e *exact) adaptation(o options, stage int, modes *mixture.Mixture) metropolis.Adaptation {
	return metropolis.Adaptation{
		Defend: func(m *mixture.Mixture) (mixture.Distribution, error) { return e.defend(m, o) },
		Stream: func(round, kind, i int) *rand.Rand {
			return random.Key{Seed: o.seed, Chain: stage + 2*round + kind, Iter: i}.Stream(random.Accept, 0)
		},
		First: firstRound * e.problem.Model.NumParams(), Rounds: rounds, Most: 12, Modes: modes,
	}
}

// laplace is the mixture of the normal approximations, none of weight below 5 %.
func laplace(peaks []*maxima.Maximum) (*mixture.Mixture, error) {
	var comps []mixture.Component
	for _, p := range peaks {
		cov, _ := p.Covariance()
		comps = append(comps, mixture.Component{Weight: max(0.05, math.Exp(p.LogMass()-peaks[0].LogMass())), Mean: p.X, Scale: cov})
	}
	return mixture.New(comps)
}

// defend adds a wide component, and the prior: in the tails of a posterior of few data there is
// nothing else.
func (e *exact) defend(m *mixture.Mixture, o options) (mixture.Distribution, error) {
	wider, err := m.Defend(wide, width)
	if err != nil {
		return nil, err
	}
	psi := make([]float64, e.problem.Model.NumParams())
	var logs []func(float64) float64
	for i := range psi { // the parameters are independent under the prior
		logs = append(logs, func(x float64) float64 {
			psi[i] = x
			l, _ := e.problem.LogPrior(psi)
			psi[i] = 0
			return l
		})
	}
	prior, err := mixture.NewIndependent(-40, 40, 8000, logs)
	if err != nil {
		return nil, err
	}
	return mixture.Blend(wider, prior, o.prior), nil
}
