package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// record is an evaluation at a point as a result of a stage holds it.
type record struct {
	psi []float64
	*Evidence
}

// onlyValue is the first number of a record without gradients.
const onlyValue = 3

// size returns the numbers of a record of p parameters.
func recordSize(p int) int { return 5 + 3*p + p*p }

// encode appends the record. What is not known, or not finite, is written so that it is
// read as that.
func (r *record) encode(to []float64) []float64 {
	p := len(r.psi)
	if r.Evidence == nil {
		return append(append(append(to, 0), r.psi...), make([]float64, recordSize(p)-1-p)...)
	}
	known := 1.0
	logDet := r.LogDet
	if math.IsNaN(logDet) {
		known, logDet = 2, 0
	}
	cov := r.GradCov
	if cov == nil {
		cov = make([]float64, p*p)
	}
	if r.LogDetGrad == nil {
		to = append(append(append(to, onlyValue), r.psi...), logDet, r.LogDetVar, r.Quad, 0)
		return append(to, make([]float64, 2*p+p*p)...)
	}
	to = append(append(to, known), r.psi...)
	to = append(to, logDet, r.LogDetVar, r.Quad, float64(r.Probes))
	return slices.Concat(to, r.LogDetGrad, r.QuadGrad, cov)
}

// decodeRecords reads records of p parameters.
func decodeRecords(x []float64, p int) ([]record, error) {
	n := recordSize(p)
	if len(x)%n != 0 {
		return nil, fmt.Errorf("%d numbers are not records of %d parameters", len(x), p)
	}
	var out []record
	for c := range slices.Chunk(x, n) {
		r := record{psi: c[1 : 1+p]}
		if known := c[0]; known != 0 {
			v := c[1+p:]
			r.Evidence = &Evidence{LogDet: v[0], LogDetVar: v[1], Quad: v[2], Probes: int(v[3])}
			if known != onlyValue {
				r.LogDetGrad, r.QuadGrad = v[4:4+p], v[4+p:4+2*p]
			}
			if known == 2 {
				r.LogDet = math.NaN()
			}
			if r.Probes > 0 {
				r.GradCov = v[4+2*p:]
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// density returns the log posterior density of a record, NaN if its determinant is not
// known, and its gradient, nil where K was singular.
func (r *record) density(env Evaluator) (value float64, grad []float64) {
	if r.Evidence == nil {
		return math.Inf(-1), nil
	}
	value, grad = env.LogPrior(r.psi)
	value -= (r.LogDet + r.Quad) / 2
	if r.LogDetGrad == nil {
		return value, nil
	}
	for i := range grad {
		grad[i] -= (r.LogDetGrad[i] + r.QuadGrad[i]) / 2
	}
	return value, grad
}

// How an item's evaluations are made: the first number of Shared[0].
const (
	byFactor = iota
	bySolves
	bySubset // by a factor of some of the rows
	byValue  // by a factor, without gradients
)

// Shared of the stages that evaluate: {how, probes}, and the mode where P is built; of a subset {how, rows}.
func evaluateAt(ctx context.Context, env Evaluator, shared [][]float64, psi []float64, key random.Key) (*Evidence, error) {
	if len(shared) != 2 || len(shared[0]) != 2 {
		return nil, errors.New("a stage does not say how to evaluate")
	}
	switch shared[0][0] {
	case byFactor, byValue:
		return env.Factor(ctx, psi, shared[0][0] == byFactor)
	case bySubset:
		return env.Subset(ctx, psi, int(shared[0][1]))
	}
	return env.Solves(ctx, psi, shared[1], key, int(shared[0][1]))
}

// evaluate computes an item that is a list of points.
func evaluate(ctx context.Context, env Evaluator, p *chains.Plan, e *chains.Evaluation) ([]float64, error) {
	var out []float64
	d := p.Params()
	if len(e.Needs)%d != 0 {
		return nil, errors.New("an item is not a list of points")
	}
	i := 0
	for psi := range slices.Chunk(e.Needs, d) {
		key := random.Key{Seed: p.Seed, Chain: e.Stage, Iter: e.Item<<16 + i}
		v, err := evaluateAt(ctx, env, e.Shared, psi, key)
		if err != nil {
			return nil, err
		}
		out = (&record{psi, v}).encode(out)
		i++
	}
	return out, nil
}

// climb computes an item that is a start: the records of all evaluations of a climb. By
// solves, all are made with the same probes, so that the climb is on a smooth surface. It ends where it comes to a maximum that the
// stage knows. A scout measures the curvature where it has come to.
func climb(ctx context.Context, env Evaluator, p *chains.Plan, e *chains.Evaluation) ([]float64, error) {
	c, err := newClimb(e.Needs, p.Params())
	if err != nil {
		return nil, err
	}
	var out []float64
	key := random.Key{Seed: p.Seed, Chain: e.Stage, Iter: e.Item << 16}
	if len(e.Shared) < 2 {
		return nil, errors.New("a stage does not say how to evaluate")
	}
	known := known(e.Shared[2:], p.Params())
	for x := c.Next(); x != nil && !cameHome(c, known); x = c.Next() {
		v, err := evaluateAt(ctx, env, e.Shared[:2], x, key)
		if err != nil {
			return nil, err
		}
		r := record{slices.Clone(x), v}
		out = r.encode(out)
		c.Tell(r.density(env))
	}
	if e.Kind != scoutStage || c.End() != maxima.Converged {
		return out, nil
	}
	for _, x := range maxima.Stencil(c.Best().X, c.Information()) {
		v, err := evaluateAt(ctx, env, e.Shared[:2], x, key)
		if err != nil {
			return nil, err
		}
		out = (&record{x, v}).encode(out)
	}
	return out, nil
}

// newClimb returns the climb of an item: a start of p parameters, of which may be known what scouts found out (scout.go): the
// information and how many of them came there.
func newClimb(item []float64, p int) (*maxima.Climb, error) {
	o := climbOptions
	switch len(item) {
	case p:
	case p + p*p + 1:
		o.Tolerance, o.Info, o.Found = scoutedTolerance, chains.Symmetric(item[p:p+p*p]), int(item[p+p*p])
	default:
		return nil, errors.New("an item is no start of a climb")
	}
	return maxima.NewClimb(item[:p:p], o), nil
}

// replay tells a climb again what it was told.
func replay(env Evaluator, c *maxima.Climb, records []record) *maxima.Climb {
	for i := range records {
		if c.Next() == nil {
			break
		}
		c.Tell(records[i].density(env))
	}
	return c
}

// proposalSize returns the numbers of a proposal of p parameters in an item: ψ, how much of the
// quadratic term is enough (Evaluator.Quadratic), and the log density that it was drawn with.
func proposalSize(p int) int { return p + 2 }

// target computes an item that is a list of proposals: of each the quadratic term and its
// bound, or, with an exact determinant, that and the determinant.
func target(ctx context.Context, env Evaluator, p *chains.Plan, e *chains.Evaluation) ([]float64, error) {
	var out []float64
	d := p.Params()
	if len(e.Shared) < 2 || len(e.Shared[0]) < 2 || len(e.Needs)%proposalSize(d) != 0 {
		return nil, errors.New("an item is not a list of proposals")
	}
	basis := e.Shared[2:min(len(e.Shared), 2+int(e.Shared[0][1]))]
	for x := range slices.Chunk(e.Needs, proposalSize(d)) {
		psi, enough := x[:d], x[d]
		if e.Shared[0][0] == byFactor {
			v, err := env.Factor(ctx, psi, false)
			if err != nil {
				return nil, err
			}
			if v == nil {
				v = &Evidence{LogDet: singular}
			}
			out = append(out, v.Quad, v.LogDet)
			continue
		}
		q, bound, err := env.Quadratic(ctx, psi, e.Shared[1], basis, quadTolerance, enough)
		if err != nil {
			return nil, err
		}
		out = append(out, q, bound)
	}
	return out, nil
}

// valuesOf returns what a pilot stage says of the determinant, if that was computed, and of the
// quadratic term, for functions to be fitted to.
func valuesOf(s *chains.Staging, p int) ([]record, error) {
	var out []record
	for i, item := range s.Items {
		if len(s.Results[i]) != 2*len(item)/proposalSize(p) {
			return nil, errLength
		}
		j := 0
		for x := range slices.Chunk(item, proposalSize(p)) {
			quad, second := s.Results[i][2*j], s.Results[i][2*j+1]
			j++
			e := &Evidence{Quad: quad, LogDet: second}
			if s.Shared[0][0] != byFactor {
				e.LogDet = math.NaN()
			}
			if quad > 0 && (e.LogDet < singular || math.IsNaN(e.LogDet) && second <= 2*quadTolerance) {
				out = append(out, record{x[:p:p], e})
			}
		}
	}
	return out, nil
}

var errLength = errors.New("a stage of proposals has results of another length")

// singular stands for the determinant of a K that is numerically singular: a density of
// nothing.
const singular = 1e300

// quadTolerance is the error of yᵀK⁻¹y that proposals are allowed.
const quadTolerance = 0.01
