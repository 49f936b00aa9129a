package driver

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Estimate is what a run is expected to take.
type Estimate struct {
	Name             string  `json:"name"`
	Method           string  `json:"method"`
	N                int     `json:"n"`
	D                int     `json:"d"`
	Cores            int     `json:"cores"`
	InstructionSet   string  `json:"instruction_set"`
	MemoryBytes      int64   `json:"memory_bytes"`
	DataBytes        int64   `json:"data_bytes"`
	VectorBytes      int64   `json:"vector_bytes"`
	PrecondBytes     int64   `json:"preconditioner_bytes"`
	PrecondRank      int     `json:"preconditioner_rank"`
	DenseBytes       int64   `json:"dense_bytes"`
	CacheBytes       int64   `json:"cache_bytes"` // of all chains
	RightHandSides   int     `json:"right_hand_sides"`
	PairsPerProduct  float64 `json:"pairs_per_product"`
	PairsPerSecond   float64 `json:"pairs_per_second"` // all cores, at that number of right-hand sides
	SecondsProduct   float64 `json:"seconds_per_product"`
	Iterations       int     `json:"iterations_assumed"`
	SecondsGradient  float64 `json:"seconds_per_gradient"`
	Gradients        int     `json:"gradients"`
	Proposals        int     `json:"proposals"` // densities at proposals, of a staged run
	SecondsEstimated float64 `json:"seconds_estimated"`
	// Course is what the times of a staged run are from; nil of others, or if it could not be tried.
	Course *Course `json:"course"`
	// Trial is what the times are from; nil if the run did not come so far in time, or
	// failed: then they follow from products, and from the iterations assumed.
	Trial *Trial `json:"trial"`
	// Cache is what the calibration of the cache of K measured and decided;
	// null if it is off, or K is stored anyway.
	Cache *cmvp.CachePlan `json:"cache"`
}

// PrepareGradients is about what finding the mode takes, besides two for each
// parameter for the curvature.
const PrepareGradients = 10

// RightHandSides returns how many systems are solved side by side.
func RightHandSides(s *job.Spec) int {
	switch needs := s.Needs(); {
	case needs.Dense || needs.Inducing:
		return 0
	case needs.Gradients:
		return 1 + s.Sampler.Probes.Or(AssumedProbes)
	}
	return 1
}

// NewEstimate returns the estimate of a run, from a calibration of products that
// takes about a second and from a trial on some rows, which takes a few.
func NewEstimate(ctx context.Context, s *job.Spec, p *posterior.Problem, budget *parallel.Budget) (*Estimate, error) {
	isa, err := cmvp.ISA()
	if err != nil {
		return nil, err
	}
	plan := s.PlanOf(p.Model.Names(), len(p.Y), p.Functions())
	e := &Estimate{Name: s.Name, Method: s.Sampler.Method, N: len(p.Y), D: p.Inputs.Dim(), Cores: budget.Cores(), InstructionSet: isa, RightHandSides: RightHandSides(s)}
	m := NewMemory(s, e.N, e.D, e.Cores)
	e.DataBytes, e.VectorBytes, e.PrecondBytes, e.DenseBytes, e.PrecondRank = m.Data, m.Vectors, m.Preconditioner, m.Dense, m.Rank
	began := time.Now()
	if e.Cache, err = PlanCache(ctx, s, p, budget); err != nil {
		return nil, err
	}
	calibrated := time.Since(began).Seconds() // as it will be
	if e.Cache != nil && e.Cache.Use {
		e.CacheBytes = e.Cache.Bytes * int64(CacheOperators(s))
	}
	e.MemoryBytes = e.DataBytes + e.VectorBytes + e.PrecondBytes + e.DenseBytes + e.CacheBytes
	e.PairsPerProduct = float64(e.N) * float64(e.N)
	if s.Needs().Dense {
		e.SecondsGradient = secondsOfDensity(p, budget)
	} else if s.Needs().Inducing {
		if e.SecondsGradient, err = secondsOfInducing(ctx, s, p, budget); err != nil {
			return nil, err
		}
	} else if err := e.measureGradient(ctx, s, p, budget); err != nil {
		return nil, err
	}
	if s.Needs().Staged {
		if e.Course, err = NewCourse(ctx, s, p, e.N, budget); err != nil {
			return e, ctx.Err()
		}
		e.SecondsGradient, e.SecondsEstimated = e.Course.Evaluation, calibrated+e.Course.Seconds()
		e.Gradients, e.Proposals = e.Course.Evaluations()
		return e, nil
	}
	for _, w := range plan.Windows {
		e.Gradients += w
	}
	e.Gradients = plan.Chains * (e.Gradients + plan.Draws)
	if s.Needs().Search == sampler.ByGradients {
		e.Gradients += PrepareGradients + 2*plan.Params()
	}
	e.SecondsEstimated = float64(e.Gradients) * e.SecondsGradient
	if e.Trial = NewTrial(ctx, s, p, e.N, e.Cache, budget); e.Trial == nil {
		return e, ctx.Err()
	}
	power := 2
	switch needs := s.Needs(); {
	case needs.Dense:
		power = 3
	case needs.Inducing:
		power = 1
	}
	e.SecondsEstimated, e.SecondsGradient = e.Trial.seconds(&plan, e.N, power)
	e.SecondsEstimated += calibrated
	if plan.Provisional {
		e.SecondsEstimated += chains.ProvisionalDraws * secondsOfDensity(p, budget)
	}
	return e, nil
}

func secondsOfDensity(p *posterior.Problem, budget *parallel.Budget) float64 {
	d := posterior.NewDense(p, budget)
	began := time.Now()
	d.LogDensity(make([]float64, p.Model.NumParams()))
	return time.Since(began).Seconds()
}

// inducingGradients is about how many gradients an iteration with inducing variables takes.
const inducingGradients = 6

func secondsOfInducing(ctx context.Context, s *job.Spec, p *posterior.Problem, budget *parallel.Budget) (float64, error) {
	d := posterior.NewInducing(p, s.Induced(p, budget), s.Seed, budget)
	began := time.Now()
	_, _, _, err := d.Gradient(ctx, make([]float64, p.Model.NumParams()), make([]float64, d.Len()))
	return inducingGradients * time.Since(began).Seconds(), err
}

func (e *Estimate) measureGradient(ctx context.Context, s *job.Spec, p *posterior.Problem, budget *parallel.Budget) error {
	if err := e.calibrate(ctx, p, budget); err != nil {
		return err
	}
	e.Iterations = AssumedIterations
	saving := 0.0
	if e.Cache != nil && e.Cache.Use {
		saving = e.Cache.Saving
	}
	e.SecondsGradient = e.SecondsProduct * (float64(e.Iterations)*(1-saving) + 2)
	if s.Needs().Joint { // x by Lanczos, then a solve
		e.SecondsGradient *= 2
	}
	return nil
}

// calibrate measures products for about a second, on all cores, over as many of
// the rows as that takes.
func (e *Estimate) calibrate(ctx context.Context, p *posterior.Problem, budget *parallel.Budget) error {
	theta, _ := p.At(make([]float64, p.NumParams()))
	v, dst := make([][]float64, e.RightHandSides), make([][]float64, e.RightHandSides)
	// A few rows first, to know how many a second takes.
	rows := min(e.N, 4*cmvp.TileRows)
	var seconds, pairs float64
	for seconds < 0.5 {
		some := make([]int, rows)
		for i := range some {
			some[i] = i * e.N / rows
		}
		op := cmvp.New(p.Inputs.Select(some), p.Covariance, budget)
		op.Set(theta, []float64{1})
		for c := range v {
			v[c], dst[c] = slices.Repeat([]float64{1}, rows), make([]float64, rows)
		}
		times := 0
		began := time.Now()
		for times == 0 || rows == e.N && seconds < 1 { // the whole product is repeated for the second
			if err := op.Mul(ctx, dst, v); err != nil {
				return err
			}
			times++
			seconds = time.Since(began).Seconds()
		}
		pairs = float64(times) * float64(rows) * float64(rows)
		grow := min(64, max(2, 0.8/seconds)) // of the work
		rows = min(e.N, int(float64(rows)*math.Sqrt(grow)))
	}
	e.PairsPerSecond = pairs / seconds
	e.SecondsProduct = e.PairsPerProduct / e.PairsPerSecond
	return nil
}
