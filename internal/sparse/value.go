package sparse

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// fit is what is known of an approximation at some parameters once it has seen all rows.
type fit struct {
	*Approximation
	f      *kernel.Function
	noise  []float64 // D, one number for all rows or one for each
	y      []float64
	uu, b  factor        // of K_uu and B
	gram   *mat.SymDense // B
	beta   []float64
	gamma  []float64
	lambda []float64 // Λ
	own    []float64 // q_ii, the part of a row's prior variance that the inducing variables explain
	value  float64
}

// LogDensity returns the approximate log density of y, where the noise has the given variances, one for
// all rows or one for each. The error is ErrSingular or that of ctx. It panics if sizes disagree.
func (a *Approximation) LogDensity(ctx context.Context, f *kernel.Function, noise, y []float64) (float64, error) {
	s, err := a.fit(ctx, f, noise, y)
	if err != nil {
		return 0, err
	}
	return s.value, nil
}

// fit computes the value and what gradients and predictions are made of.
func (a *Approximation) fit(ctx context.Context, f *kernel.Function, noise, y []float64) (*fit, error) {
	n, m := a.rows.Len(), a.z.Len()
	if len(y) != n || len(noise) != 1 && len(noise) != n {
		panic(fmt.Sprintf("sparse: %d targets and %d noise variances for %d rows", len(y), len(noise), n))
	}
	a.at(f)
	s := &fit{Approximation: a, f: f, noise: noise, y: y, lambda: make([]float64, n), own: make([]float64, n), gram: mat.NewSymDense(m, nil)}
	var err error
	if s.uu, err = newFactor(a.inducing()); err != nil {
		return nil, err
	}
	for j := range m {
		s.gram.SetSym(j, j, 1)
	}
	b := make([]float64, m)
	if _, err := s.sweep(ctx, &sweep{root: s.uu.columns(), early: a.kind != FITC, weigh: s.weigh}, b); err != nil {
		return nil, err
	}
	if s.b, err = newFactor(s.gram); err != nil {
		return nil, err
	}
	return s, s.finish(b)
}

// weigh finds Λ of the rows [lo,hi), of FITC given q_ii.
func (s *fit) weigh(lo, hi int, factor, scaled []float64) float64 {
	for i := range hi - lo {
		at := lo + i
		s.lambda[at] = element(s.noise, at)
		if s.kind == FITC {
			s.lambda[at] += max(s.prior[at]-s.own[at], 0)
		}
		factor[i] = 1 / math.Sqrt(s.lambda[at])
		scaled[i] = factor[i] * s.y[at]
	}
	return 0
}

// scaleColumns multiplies so many columns of a tile by x, element by element.
func scaleColumns(data, x []float64, columns int) {
	for j := range columns {
		floats.Mul(data[j*tile.Size:][:len(x)], x)
	}
}

// rowDots sets dst to the products, row by row, of two tiles of so many columns.
func rowDots(dst, a, b []float64, columns int) {
	clear(dst)
	for j := range columns {
		x, y := a[j*tile.Size:][:len(dst)], b[j*tile.Size:][:len(dst)]
		for i := range dst {
			dst[i] += x[i] * y[i]
		}
	}
}

// coefficients computes β and γ, given b, and returns the root of bᵀB⁻¹b.
func (s *fit) coefficients(b []float64) *mat.VecDense {
	var half, beta, gamma mat.VecDense
	half.MulVec(s.b.inverse, mat.NewVecDense(len(b), b))
	beta.MulVec(s.b.inverse.T(), &half)
	gamma.MulVec(s.uu.inverse.T(), &beta)
	s.beta, s.gamma = beta.RawVector().Data, gamma.RawVector().Data
	return &half
}

// finish computes the value and the coefficients, given b.
func (s *fit) finish(b []float64) error {
	half := s.coefficients(b)
	var logs, quad, rest float64
	for i, l := range s.lambda {
		logs += math.Log(l)
		quad += s.y[i] * s.y[i] / l
		if s.kind == SGPR {
			rest += (s.prior[i] - s.own[i]) / l
		}
	}
	s.value = -0.5 * (float64(len(s.y))*math.Log(2*math.Pi) + logs + s.b.logDet + quad - mat.Dot(half, half) + rest)
	if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
		return ErrSingular
	}
	return nil
}
