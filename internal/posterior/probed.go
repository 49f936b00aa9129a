package posterior

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Root is a factor F of a fixed P = F·Fᵀ ≈ K, with its determinant.
type Root interface {
	Factor
	LogDet() float64
}

// Probed estimates the evidence by products with K alone. With M = F⁻¹KF⁻ᵀ and probes w
// of independent signs,
//
//	log|K|    = log|P| + E wᵀlog(M)w,
//	∂_i log|K| = E of the derivative of that along F⁻¹(∂_iK)F⁻ᵀ,
//
// all by Lanczos (Ubaru, Chen and Saad 2017), whose spaces give K⁻¹y too. The gradient is
// that of the value with the same probes, and has less noise than ½ tr(K⁻¹∂_iK) by
// solves. A Probed is not safe for concurrent use.
type Probed struct {
	problem *Problem
	op      Operator
	solver  *solve.Solver // of the same operator
	root    Root
	fill    func(key random.Key, probe int, w []float64) // draws w; tests put a basis here
	report  solve.Report
}

// NewProbed returns the estimates of a problem by a solver of its operator, whose tolerance
// they go to.
func NewProbed(p *Problem, op Operator, solver *solve.Solver, root Root) *Probed {
	return &Probed{problem: p, op: op, solver: solver, root: root,
		fill: func(key random.Key, probe int, w []float64) { random.Rademacher(key.Stream(random.Probe, probe), w) }}
}

// Estimated is the evidence as it was estimated.
type Estimated struct {
	Evidence
	LogDetVar float64       // variance of LogDet
	GradCov   *mat.SymDense // of one probe's share in LogDetGrad, from their spread
}

// At estimates the evidence at ψ with the given number of probes, two or more, drawn from
// the key's streams; nil where K is numerically singular. The only error is that of ctx.
func (q *Probed) At(ctx context.Context, psi []float64, key random.Key, probes int) (*Estimated, error) {
	n := q.op.Len()
	q.op.Set(q.problem.At(psi))
	w := solve.Columns(n, 1+probes)
	q.root.SolveRoot(w[:1], [][]float64{q.problem.Targets()})
	for j := range probes {
		q.fill(key, j, w[1+j])
	}
	spaces, rep, err := q.solver.Krylov(ctx, w, q.root)
	q.report.Add(rep)
	if err != nil {
		return nil, err
	}
	var columns [][]float64
	var group []int
	logs := make([]float64, probes)
	for c, s := range spaces {
		if !(s.Least() > 0) {
			return nil, nil
		}
		mine := [][]float64{w[c]}
		if c == 0 {
			s.Apply(w[0], func(lambda float64) float64 { return 1 / lambda })
		} else {
			mine = s.LogDerivative()
			logs[c-1] = s.Form(math.Log)
		}
		for _, z := range mine {
			columns, group = append(columns, z), append(group, c)
		}
	}
	q.root.SolveRootTrans(columns, columns)
	forms, err := forms(ctx, q.problem, q.op, psi, columns, columns, group, 1+probes)
	if err != nil {
		return nil, err
	}
	e := &Estimated{GradCov: covariance(forms[1:], 1)}
	e.LogDet, e.Quad = q.root.LogDet()+stat.Mean(logs, nil), spaces[0].Form(func(lambda float64) float64 { return 1 / lambda })
	e.LogDetVar = stat.Variance(logs, nil) / float64(probes)
	e.QuadGrad, e.LogDetGrad = forms[0], make([]float64, len(psi))
	floats.Scale(-1, e.QuadGrad)
	for _, f := range forms[1:] {
		floats.AddScaled(e.LogDetGrad, 1/float64(probes), f)
	}
	if !isFinite(e) {
		return nil, nil
	}
	return e, nil
}

func isFinite(e *Estimated) bool {
	sum := e.LogDet + e.Quad + e.LogDetVar + floats.Sum(e.LogDetGrad) + floats.Sum(e.QuadGrad)
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}

// Report returns what was solved since the last call.
func (q *Probed) Report() solve.Report {
	rep := q.report
	q.report = solve.Report{}
	return rep
}
