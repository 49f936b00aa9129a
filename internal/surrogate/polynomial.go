package surrogate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Polynomial is a polynomial in whitened coordinates.
type Polynomial struct {
	white    *Whitening
	basis    *basis
	constant bool             // values were observed
	coef     []float64        // of the basis, then of the constant
	post     *cholesky.Matrix // factor of the posterior precision of coef
	budget   *parallel.Budget
	sd       []float64 // of the prior of coefficients, by degree
}

// The prior of the coefficients: those up to degree flatDegree are free, those of each
// higher degree normal with a standard deviation that the observations choose, by their
// marginal likelihood, from a range that goes from nearly free to nearly zero.
const (
	flatDegree = 2
	flatSD     = 1e6
)

var shrinks = []float64{100, 10, 3, 1, 0.3, 0.1, 0.03, 0.01, 1e-3}

// FitPolynomial fits a polynomial of the given total degree by generalised least squares:
// each gradient counts by its own noise covariance. The only errors are those of
// observations, and of ctx.
func FitPolynomial(ctx context.Context, w *Whitening, obs []Observation, degree int, b *parallel.Budget) (*Polynomial, error) {
	o, err := observe(w, obs)
	if err != nil {
		return nil, err
	}
	p := &Polynomial{white: w, basis: newBasis(w.Dim(), degree), constant: o.values, budget: b}
	rows, y := p.design(o)
	gram, err := rows.Gram(ctx, b)
	if err != nil {
		return nil, err
	}
	right := make([][]float64, 1)
	right[0] = make([]float64, p.size())
	if err := rows.MulTrans(ctx, right, [][]float64{y}, b); err != nil {
		return nil, err
	}
	p.sd = make([]float64, degree+1)
	for d := range p.sd {
		p.sd[d] = flatSD
	}
	best, err := p.solve(ctx, gram, right[0])
	for d := flatDegree + 1; d <= degree && err == nil; d++ {
		best, err = p.choose(ctx, d, best, gram, right[0])
	}
	return p, err
}

// choose sets the prior of the coefficients of a degree and of those above to the most
// likely, and returns the log marginal likelihood.
func (p *Polynomial) choose(ctx context.Context, degree int, value float64, gram *mat.SymDense, right []float64) (float64, error) {
	best := *p
	for _, s := range shrinks {
		q := *p
		q.sd = slices.Clone(p.sd)
		for d := degree; d < len(q.sd); d++ {
			q.sd[d] = s
		}
		v, err := q.solve(ctx, gram, right)
		if err != nil {
			return 0, err
		}
		if v > value {
			best, value = q, v
		}
	}
	*p = best
	return value, nil
}

func (p *Polynomial) size() int {
	if p.constant {
		return len(p.basis.terms) + 1
	}
	return len(p.basis.terms)
}

// design returns the rows of the regression, of unit noise, and what was observed.
func (p *Polynomial) design(o *observed) (*dense.Matrix, []float64) {
	q, m := p.white.Dim(), p.size()
	n, first := 0, make([]int, len(o.points))
	for i := range o.points {
		first[i] = n
		n += o.points[i].rows()
	}
	columns := make([][]float64, m)
	all := make([]float64, m*n)
	for j := range columns {
		columns[j] = all[j*n:][:n]
	}
	y := make([]float64, n)
	p.budget.NewLoop(func(_, i int) {
		at, ob := first[i], &o.points[i]
		if ob.grad != nil {
			p.basis.slopes(ob.z, func(j, c int, s float64) {
				for k := c; k < q; k++ { // the noise's root is lower triangular
					columns[j][at+k] += ob.inv.At(k, c) * s
				}
			})
			copy(y[at:], ob.grad)
			mulTri(y[at:at+q], ob.inv)
			at += q
		}
		if ob.valueSD > 0 {
			row := make([]float64, m)
			p.features(row, ob.z)
			for j, x := range row {
				columns[j][at] = x / ob.valueSD
			}
			y[at] = ob.value / ob.valueSD
		}
	}).Run(len(o.points))
	rows := dense.New(n, m)
	for j, c := range columns {
		rows.SetCol(j, c)
	}
	return rows, y
}

// features sets dst to the basis and the constant at z.
func (p *Polynomial) features(dst, z []float64) {
	p.basis.values(dst, z)
	if p.constant {
		dst[len(dst)-1] = 1
	}
}

// solve sets the coefficients and their posterior, and returns the log marginal likelihood
// up to what does not depend on the prior.
func (p *Polynomial) solve(ctx context.Context, gram *mat.SymDense, right []float64) (float64, error) {
	precision := make([]float64, p.size())
	var logPrior float64
	for j := range precision {
		sd := flatSD // of the constant
		if j < len(p.basis.terms) {
			sd = p.sd[total(p.basis.terms[j])]
		}
		precision[j] = 1 / (sd * sd)
		logPrior += math.Log(precision[j])
	}
	var err error
	p.post, err = factor(ctx, p.size(), p.budget, func(i, j int) float64 {
		if i == j {
			return gram.At(i, j) + precision[i]
		}
		return gram.At(i, j)
	})
	if err != nil {
		return 0, err
	}
	p.coef = append([]float64(nil), right...)
	if err := p.post.Solve(ctx, p.budget, [][]float64{p.coef}); err != nil {
		return 0, err
	}
	return (floats.Dot(p.coef, right) - p.post.LogDet() + logPrior) / 2, nil
}

// factor returns the factor of the symmetric matrix with the given elements, with so much
// added to the diagonal, relative to the largest element there, as rounding demands.
func factor(ctx context.Context, n int, b *parallel.Budget, at func(i, j int) float64) (*cholesky.Matrix, error) {
	var most float64
	for i := range n {
		most = max(most, at(i, i))
	}
	m := cholesky.New(n)
	for _, jitter := range []float64{0, 1e-14, 1e-12, 1e-10, 1e-8} {
		if err := m.Fill(ctx, b, func(s cholesky.Strip, k []float64) {
			for j := s.JLo; j < s.JHi; j++ {
				col := k[(j-s.JLo)*tile.Size:][:s.IHi-s.ILo]
				for i := range col {
					col[i] = at(s.ILo+i, j)
				}
				if s.Diagonal() {
					col[j-s.ILo] += jitter * most
				}
			}
		}); err != nil {
			return nil, err
		}
		if err := m.Factor(ctx, b); err == nil {
			return m, nil
		} else if ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("surrogate: the matrix of %d unknowns is numerically singular", n)
}

// Name says the degree.
func (p *Polynomial) Name() string { return fmt.Sprintf("polynomial of degree %d", p.basis.degree) }

// Value returns the polynomial at x.
func (p *Polynomial) Value(x []float64) float64 {
	f := make([]float64, p.size())
	p.features(f, p.white.Apply(x))
	v := floats.Dot(f, p.coef)
	if !p.constant {
		p.features(f, make([]float64, len(x)))
		v -= floats.Dot(f, p.coef)
	}
	return v
}

// Gradient sets dst to the gradient at x.
func (p *Polynomial) Gradient(dst, x []float64) {
	g := make([]float64, len(x))
	p.basis.slopes(p.white.Apply(x), func(i, c int, s float64) { g[c] += s * p.coef[i] })
	p.white.Undo(dst, g)
}

// GradientCov returns the posterior covariance of the gradient at x.
func (p *Polynomial) GradientCov(x []float64) *mat.SymDense {
	q := len(x)
	rows := make([][]float64, q)
	for c := range rows {
		rows[c] = make([]float64, p.size())
	}
	p.basis.slopes(p.white.Apply(x), func(i, c int, s float64) { rows[c][i] += s })
	return p.white.undoCov(p.covariances(rows))
}

// covariances returns the posterior covariance of linear functionals of the coefficients,
// which it overwrites.
func (p *Polynomial) covariances(rows [][]float64) *mat.SymDense {
	if err := p.post.SolveRoot(context.Background(), p.budget, rows); err != nil {
		panic(err) // only of a context that is done
	}
	return gramOf(rows)
}

func gramOf(rows [][]float64) *mat.SymDense {
	out := mat.NewSymDense(len(rows), nil)
	for i := range rows {
		for j := range i + 1 {
			out.SetSym(i, j, floats.Dot(rows[i], rows[j]))
		}
	}
	return out
}

// Variances returns the posterior variances of functionals.
func (p *Polynomial) Variances(points [][]float64, w [][]float64) []float64 {
	rows := make([][]float64, len(w))
	for q := range w {
		rows[q] = make([]float64, p.size())
	}
	f, centre := make([]float64, p.size()), make([]float64, p.size())
	if !p.constant {
		p.features(centre, make([]float64, p.white.Dim()))
	}
	for i, x := range points {
		p.features(f, p.white.Apply(x))
		floats.Sub(f, centre)
		for q := range w {
			floats.AddScaled(rows[q], w[q][i], f)
		}
	}
	if err := p.post.SolveRoot(context.Background(), p.budget, rows); err != nil {
		panic(err)
	}
	out := make([]float64, len(w))
	for q := range out {
		out[q] = floats.Dot(rows[q], rows[q])
	}
	return out
}
