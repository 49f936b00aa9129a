package surrogate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Candidate is a kind of model with how well it predicted held-out observations.
type Candidate struct {
	Name  string
	Score float64 // log predictive density of a held-out observation, in nats
	Error float64 // standard error of its difference from the best candidate's
	fit   fitter
}

type fitter func(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, error)

// The candidates' limits: the terms of a polynomial, the scalars of a process.
const (
	mostTerms   = 2000
	mostScalars = 20_000
	mostDegree  = 4
)

// heldOut is the share of the observations that models are compared on: every fifth.
const heldOut = 5

// Choose fits polynomials of degrees 1 to 4 and Gaussian processes with a mean of degree 2
// to a part of the observations, and fits to all of them the simplest candidate that
// predicts the others within a standard error as well as the best does. Candidates come back in
// the order of simplicity.
func Choose(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, []Candidate, error) {
	var train, held []Observation
	for i, o := range obs {
		if i%heldOut == heldOut-1 {
			held = append(held, o)
		} else {
			train = append(train, o)
		}
	}
	if len(held) == 0 {
		return nil, nil, fmt.Errorf("surrogate: %d observations are too few to choose a model by", len(obs))
	}
	var tried []Candidate
	var scores [][]float64
	for _, c := range candidates(w.Dim(), obs) {
		m, err := c.fit(ctx, w, train, b)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err != nil {
			continue // too few observations for it
		}
		c.Name = m.Name()
		score := make([]float64, len(held))
		for i, o := range held {
			if score[i], err = logDensity(m, o); err != nil {
				break
			}
		}
		if err != nil {
			continue // its predictions are lost in rounding
		}
		c.Score = stat.Mean(score, nil)
		tried, scores = append(tried, c), append(scores, score)
	}
	if len(tried) == 0 {
		return nil, nil, errors.New("surrogate: the observations are too few for any model")
	}
	best := 0
	for i, c := range tried {
		if c.Score > tried[best].Score {
			best = i
		}
	}
	chosen := best
	for i := len(tried) - 1; i >= 0; i-- {
		d := make([]float64, len(held))
		floats.SubTo(d, scores[best], scores[i])
		tried[i].Error = stat.StdErr(stat.StdDev(d, nil), float64(len(d)))
		if tried[best].Score-tried[i].Score <= tried[i].Error {
			chosen = i
		}
	}
	m, err := tried[chosen].fit(ctx, w, obs, b)
	return m, tried, err
}

// candidates returns the kinds of models that so many observations allow, the simplest
// first.
func candidates(dim int, obs []Observation) []Candidate {
	scalars := 0
	for _, o := range obs {
		scalars += len(o.Grad)
		if o.HasValue {
			scalars++
		}
	}
	var out []Candidate
	for degree := 1; degree <= mostDegree; degree++ {
		terms := len(newBasis(dim, degree).terms)
		free := len(newBasis(dim, min(degree, flatDegree)).terms)
		if terms <= mostTerms && 2*free <= scalars {
			out = append(out, Candidate{fit: func(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, error) {
				return FitPolynomial(ctx, w, obs, degree, b)
			}})
		}
	}
	if scalars <= mostScalars {
		for _, shape := range []Shape{Gaussian, Matern52} {
			out = append(out, Candidate{fit: func(ctx context.Context, w *Whitening, obs []Observation, b *parallel.Budget) (Model, error) {
				return FitProcess(ctx, w, obs, shape, flatDegree, b)
			}})
		}
	}
	return out
}

// logDensity returns the log predictive density of an observation.
func logDensity(m Model, o Observation) (float64, error) {
	var sum float64
	if o.HasValue {
		v := o.ValueVar + floorNoise*floorNoise + m.Variances([][]float64{o.X}, [][]float64{{1}})[0]
		r := o.Value - m.Value(o.X)
		sum -= (r*r/v + math.Log(2*math.Pi*v)) / 2
	}
	if o.Grad == nil {
		return sum, nil
	}
	cov := m.GradientCov(o.X)
	if o.GradCov != nil {
		cov.AddSym(cov, o.GradCov)
	}
	for k := range o.X {
		cov.SetSym(k, k, cov.At(k, k)*(1+1e-9)+1e-12)
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return 0, errors.New("surrogate: the covariance of a prediction is not positive definite")
	}
	r := make([]float64, len(o.X))
	m.Gradient(r, o.X)
	floats.SubTo(r, o.Grad, r)
	var s mat.VecDense
	_ = chol.SolveVecTo(&s, mat.NewVecDense(len(r), r)) // it only warns of ill-conditioning
	return sum - (floats.Dot(r, s.RawVector().Data)+chol.LogDet()+float64(len(r))*math.Log(2*math.Pi))/2, nil
}
