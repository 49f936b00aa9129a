package driver

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Course is what a staged run is expected to take on this machine: a guess, since how many evaluations a search takes, and how
// often something is learnt or proposed anew, only the run can tell.
type Course struct {
	Rows       int       `json:"trial_rows"` // that were tried
	Prepare    float64   `json:"seconds_prepare"`
	Evaluation float64   `json:"seconds_evaluation"` // of a value with its gradient, on all cores
	Proposal   float64   `json:"seconds_proposal"`   // of a density
	Subset     float64   `json:"seconds_subset"`     // of a value with its gradient of the rows that were tried, by a factor
	ByFactor   bool      `json:"by_factor"`          // evaluations, else by solves
	Exact      bool      `json:"exact_density"`      // densities by a factor, too, else by solves
	Stages     []Staging `json:"stages"`
}

// Staging is what a stage is expected to take.
type Staging struct {
	Kind        string  `json:"kind"`
	Evaluations int     `json:"evaluations"`
	Proposals   int     `json:"proposals"`
	Items       int     `json:"items"`          // that may be computed side by side
	Fitting     float64 `json:"seconds_before"` // of deciding on it, on one machine: what is learnt is fitted
	Seconds     float64 `json:"seconds"`        // of its items, on all cores of this machine
	Sampling    bool    `json:"sampling"`       // the draws are made of it
}

// Seconds returns what all takes on this machine.
func (c *Course) Seconds() float64 {
	total := c.Prepare
	for _, s := range c.Stages {
		total += s.Fitting + s.Seconds
	}
	return total
}

// Evaluations and Proposals return how many there are.
func (c *Course) Evaluations() (evaluations, proposals int) {
	for _, s := range c.Stages {
		evaluations, proposals = evaluations+s.Evaluations, proposals+s.Proposals
	}
	return evaluations, proposals
}

// GuessFactor is by what the time of a staged run may be more than it is expected to be, or less.
const GuessFactor = 3

// Constants of trying a staged run.
const (
	courseRows    = 2048 // at most
	fewCourseRows = 256  // where those take longer than courseMost
	leastTried    = 0.2  // seconds of an evaluation, or of a proposal
	triedEach     = 4    // points that a lane tries them at
	courseMost    = 30 * time.Second
	// fitting is how many times N³ multiplications are made where functions are fitted to N numbers, and fittingLeast
	// the seconds that fits take at least.
	fitting      = 3
	fittingLeast = 0.3
)

// NewCourse returns what a staged run of n rows is expected to take on this machine, from evaluations on some rows. The problem may have
// fewer rows than n.
func NewCourse(ctx context.Context, s *job.Spec, p *posterior.Problem, n int, budget *parallel.Budget) (*Course, error) {
	limited, cancel := context.WithTimeout(ctx, courseMost)
	defer cancel()
	c, err := newCourse(limited, s, p, n, courseRows, budget)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return newCourse(ctx, s, p, n, fewCourseRows, budget)
	}
	return c, err
}

func newCourse(ctx context.Context, s *job.Spec, p *posterior.Problem, n, rows int, budget *parallel.Budget) (*Course, error) {
	m, ok := sampler.Of(planOf(s, p, n)).(sampler.Stager)
	if !ok {
		return nil, fmt.Errorf("runs of %s are not staged", s.Sampler.Method)
	}
	small := p
	if rows = min(len(p.Y), rows); rows < len(p.Y) {
		small = p.Subset(mode.Subset(len(p.Y), rows, random.Key{Seed: s.Seed}))
	}
	plan := planOf(s, small, n)
	d := New(Config{Spec: s, Problem: small, Plan: plan, Budget: budget,
		Operator: func(int) Operator { return cmvp.New(small.Inputs, small.Covariance, budget) }})
	model := d.NewLane(1).Model()
	model.Rows = n
	c := &Course{Rows: rows}
	expected := m.Course(model, s.SamplerOptions(), plan)
	c.ByFactor, c.Exact = expected.Factor, expected.Exact
	if err := c.try(ctx, d, expected, float64(n)/float64(rows)); err != nil {
		return nil, err
	}
	rate := float64(n) * float64(n) * float64(n) / 2 / c.Evaluation // multiplications a second
	if !c.ByFactor {
		rate = assumedRate * float64(budget.Cores())
	}
	for _, e := range expected.Stages {
		evaluation := c.Evaluation
		if e.Rows > 0 {
			evaluation = c.Subset * math.Pow(float64(e.Rows)/float64(rows), 3)
		}
		if e.Values {
			evaluation /= 3
		}
		st := Staging{Kind: e.Kind, Evaluations: e.Evaluations, Proposals: e.Proposals, Items: e.Items, Sampling: e.Sampling,
			Seconds: float64(e.Evaluations)*evaluation + float64(e.Proposals)*c.Proposal}
		if e.Fitted > 0 {
			st.Fitting = fittingLeast + fitting*math.Pow(float64(e.Fitted), 3)/rate
		}
		c.Stages = append(c.Stages, st)
	}
	return c, nil
}

// assumedRate is how many multiplications a core makes in a second where no factor says it.
const assumedRate = 1e10

func planOf(s *job.Spec, p *posterior.Problem, rows int) *chains.Plan {
	plan := s.Plan(p.Model.Names(), rows)
	return &plan
}

// try measures an evaluation and a proposal on the rows of a driver, of which the run has so many times as many.
func (c *Course) try(ctx context.Context, d *Driver, e *sampler.Course, more float64) error {
	began := time.Now()
	if err := d.Budget.Acquire(ctx); err != nil {
		return err
	}
	prep, err := d.Prepare(ctx, &chains.Preparation{})
	d.Budget.Release()
	if err != nil {
		return err
	}
	c.Prepare = time.Since(began).Seconds() * more // the search is on so many rows, but P is chosen on all
	points := around(prep, more, random.Key{Seed: d.Spec.Seed}, e.Basis+triedEach)
	basis, points := points[:e.Basis], points[e.Basis:]
	lanes := make([]*Lane, d.Budget.Cores())
	for i := range lanes {
		lanes[i] = d.NewLane(i + 1)
		lanes[i].prep = prep
	}
	power := func(factor bool) float64 {
		if factor {
			return more * more * more
		}
		return more * more
	}
	evaluate := func(ctx context.Context, l *Lane, i int) (err error) {
		if e.Factor {
			_, err = l.Factor(ctx, points[i], true)
		} else {
			_, err = l.Solves(ctx, points[i], prep.Psi, random.Key{Seed: d.Spec.Seed, Iter: i}, e.Probes)
		}
		return err
	}
	propose := func(ctx context.Context, l *Lane, i int) (err error) {
		if e.Exact {
			_, err = l.Factor(ctx, points[i], false)
		} else {
			_, _, err = l.Quadratic(ctx, points[i], prep.Psi, basis, quadratic, math.Inf(1))
		}
		return err
	}
	if c.Evaluation, err = d.timed(ctx, lanes, evaluate); err != nil {
		return err
	}
	if c.Proposal, err = d.timed(ctx, lanes, propose); err != nil {
		return err
	}
	if c.Subset = c.Evaluation; !e.Factor && more > 1 {
		if c.Subset, err = d.timed(ctx, lanes, func(ctx context.Context, l *Lane, i int) error {
			_, err := l.Subset(ctx, points[i], len(d.Problem.Y))
			return err
		}); err != nil {
			return err
		}
	}
	c.Evaluation, c.Proposal = c.Evaluation*power(e.Factor), c.Proposal*power(e.Exact)
	return nil
}

// quadratic is the error of yᵀK⁻¹y that proposals have.
const quadratic = 0.01

// timed returns what something takes on all cores, where each lane does it on its own. What a lane prepares for it, once, is not in it.
func (d *Driver) timed(ctx context.Context, lanes []*Lane, do func(ctx context.Context, l *Lane, i int) error) (float64, error) {
	all := func(times int) (float64, error) {
		began := time.Now()
		g, gctx := errgroup.WithContext(ctx)
		for _, l := range lanes {
			g.Go(func() error {
				if err := d.Budget.Acquire(gctx); err != nil {
					return err
				}
				defer d.Budget.Release()
				for i := range times {
					if err := do(gctx, l, i%triedEach); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		return time.Since(began).Seconds() / float64(times*len(lanes)), err
	}
	each, err := all(1)
	for times := triedEach; err == nil; times *= 4 {
		each, err = all(times)
		if each*float64(times*len(lanes)) > leastTried {
			break
		}
	}
	return each, err
}

// around returns points that the posterior of so many times as many rows may have.
func around(prep *chains.Prepared, more float64, key random.Key, count int) [][]float64 {
	p := len(prep.Psi)
	var chol mat.Cholesky
	known := chol.Factorize(chains.Symmetric(prep.Cov))
	points := make([][]float64, count)
	for i := range points {
		x := append([]float64(nil), prep.Psi...)
		if known {
			z, to := mat.NewVecDense(p, nil), mat.NewVecDense(p, nil)
			random.Normal(key.Stream(random.Calibration, i), z.RawVector().Data)
			var l mat.TriDense
			chol.LTo(&l)
			to.MulVec(&l, z)
			for j := range x {
				x[j] += to.AtVec(j) / math.Sqrt(more)
			}
		}
		points[i] = x
	}
	return points
}
