package surrogate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Reduction says that a function of parameters ψ depends on fewer of them than there are:
// F(ψ) = f(Aψ) + bᵀψ, with A and b known.
type Reduction struct {
	a, pinv *mat.Dense // A, and (A·Aᵀ)⁻¹·A, which takes gradients back
	b       []float64
}

// NewReduction returns the reduction by the q×p matrix A, of full row rank, and the p
// coefficients b.
func NewReduction(a *mat.Dense, b []float64) (*Reduction, error) {
	q, p := a.Dims()
	if len(b) != p {
		panic(fmt.Sprintf("surrogate: %d coefficients for %d parameters", len(b), p))
	}
	var outer, pinv mat.Dense
	outer.Mul(a, a.T())
	if err := pinv.Solve(&outer, a); err != nil || q > p {
		return nil, errors.New("surrogate: the rows of the reduction depend on each other")
	}
	return &Reduction{a: a, pinv: &pinv, b: b}, nil
}

// ScaleFree is the reduction of a function of K = Σ_t σ_t K_t + λ·1 that takes a factor on K
// as so many log λ, as a function of logarithms: K = λ·(Σ_t (σ_t/λ) K_t + 1), so that only
// log σ_t − log λ and the other parameters matter, and coefficient·log λ adds to it. The
// coefficient is n for log|K|, and −1 for log yᵀK⁻¹y. variances are the coordinates of log σ_t,
// noise that of log λ.
func ScaleFree(p int, variances []int, noise int, coefficient float64) *Reduction {
	a, b := mat.NewDense(p-1, p, nil), make([]float64, p)
	b[noise] = coefficient
	at := 0
	for k := range p {
		if k == noise {
			continue
		}
		a.Set(at, k, 1)
		if slices.Contains(variances, k) {
			a.Set(at, noise, -1)
		}
		at++
	}
	r, err := NewReduction(a, b)
	if err != nil {
		panic(err) // an identity beside a column
	}
	return r
}

// Point returns Aψ.
func (r *Reduction) Point(psi []float64) []float64 { return mulVec(r.a, psi) }

// Gradient returns the gradient of f at Aψ from that of F at ψ.
func (r *Reduction) Gradient(g []float64) []float64 {
	d := make([]float64, len(g))
	floats.SubTo(d, g, r.b)
	return mulVec(r.pinv, d)
}

// Covariance returns the covariance of a gradient of f from that of one of F.
func (r *Reduction) Covariance(c *mat.SymDense) *mat.SymDense { return congruent(r.pinv, c) }

// Value returns the value of f at Aψ from that of F at ψ.
func (r *Reduction) Value(psi []float64, v float64) float64 { return v - floats.Dot(r.b, psi) }

func mulVec(a mat.Matrix, x []float64) []float64 {
	q, _ := a.Dims()
	out := mat.NewVecDense(q, nil)
	out.MulVec(a, mat.NewVecDense(len(x), x))
	return out.RawVector().Data
}

// Lift returns the model of F from one of f.
func (r *Reduction) Lift(m Model) Model { return &lifted{m, r} }

type lifted struct {
	Model
	r *Reduction
}

func (l *lifted) Value(psi []float64) float64 {
	return l.Model.Value(l.r.Point(psi)) + floats.Dot(l.r.b, psi)
}

func (l *lifted) Gradient(dst, psi []float64) {
	q, _ := l.r.a.Dims()
	g := make([]float64, q)
	l.Model.Gradient(g, l.r.Point(psi))
	copy(dst, mulVec(l.r.a.T(), g))
	floats.Add(dst, l.r.b)
}

func (l *lifted) GradientCov(psi []float64) *mat.SymDense {
	return congruent(l.r.a.T(), l.Model.GradientCov(l.r.Point(psi)))
}

func (l *lifted) Variances(points [][]float64, w [][]float64) []float64 {
	return l.Model.Variances(l.points(points), w)
}

func (l *lifted) Deviations(points [][]float64, draws int, stream func(index int) *rand.Rand) [][]float64 {
	return l.Model.Deviations(l.points(points), draws, stream)
}

func (l *lifted) points(psis [][]float64) [][]float64 {
	x := make([][]float64, len(psis))
	for i, psi := range psis {
		x[i] = l.r.Point(psi)
	}
	return x
}

// Push returns the covariance of Aψ from that of ψ.
func (r *Reduction) Push(c *mat.SymDense) *mat.SymDense { return congruent(r.a, c) }
