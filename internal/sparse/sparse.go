// Package sparse approximates the log density of Gaussian data, y ~ N(0, K + D), by means of M
// inducing inputs Z: O(n·M²) time for a value or a gradient, O(n·d + M²) memory. D is the diagonal
// of the noise. With Q = K_fu K_uu⁻¹ K_uf, u the latent function at Z,
//
//	DTC    log N(y | 0, Q + D)
//	SGPR   log N(y | 0, Q + D) − ½ tr(D⁻¹(K − Q))
//	FITC   log N(y | 0, Q + diag(K − Q) + D)
//
// SGPR is the collapsed variational bound of Titsias (2009, eq. 9): it is never above the log density
// and does not fall when Z grows. DTC and FITC (Quiñonero-Candela and Rasmussen 2005) are densities
// of other models, and bound nothing. At Z = X all three are the exact log density, but for the
// jitter.
//
// # Computation
//
// Let Λ be D, of FITC D + diag(K − Q), K_uu = LLᵀ, V = L⁻¹K_uf, A = VΛ^(−½), B = I + AAᵀ and b = VΛ⁻¹y.
// Then log N(y | 0, Q + Λ) is
//
//	−½ (n log 2π + Σ log Λ_i + log|B| + yᵀΛ⁻¹y − bᵀB⁻¹b)
//
// where B has no eigenvalue below one (Matthews 2016, section 4.2.4). With β = B⁻¹b, γ = L⁻ᵀβ,
// E = (LBLᵀ)⁻¹, α = (Q+Λ)⁻¹y = Λ⁻¹(y − K_fu γ) and p_i = 1/Λ_i − k_iᵀE k_i/Λ_i² the diagonal
// of (Q+Λ)⁻¹, the derivatives are, by an element of Λ, ℓ_i = ½(α_i² − p_i), and
//
//	by K_uf   γαᵀ − E K_uf Λ⁻¹           of SGPR + K_uu⁻¹ K_uf D⁻¹, of FITC − 2 K_uu⁻¹ K_uf diag(ℓ)
//	by K_uu   −½ L⁻ᵀ(ββᵀ − I + B⁻¹)L⁻¹   of SGPR − ½ L⁻ᵀ(B − I)L⁻¹, of FITC + K_uu⁻¹K_uf diag(ℓ) K_fu K_uu⁻¹
//	by k_ii   0                          of SGPR −½/D_i, of FITC ℓ_i
//
// They meet the derivatives of K strip by strip (cmvp.Elements.Sums), so that no product K_uf is ever
// stored whole.
//
// # Order of summation
//
// Everything is a sum over blocks of rows, whose size is a constant, in their order; within a block sums
// are those of package dense. So bits depend on the data, θ and Z, and not on threads, nor on who computes
// a block: a Summer may have others compute some (Pass), to whom what all blocks are computed from, a few M×M matrices, goes once for each pass.
package sparse

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Kind is an approximation.
type Kind string

// The approximations.
const (
	SGPR Kind = "sgpr"
	FITC Kind = "fitc"
	DTC  Kind = "dtc"
	// SVGP is the variational bound under any likelihood: SGPR under Gaussian noise. It takes part by a Variational, which
	// computes with an Approximation of the kind SGPR.
	SVGP Kind = "svgp"
	// SGPMC draws the inducing variables together with the parameters (Joint).
	SGPMC Kind = "sgpmc"
)

// Kinds returns the approximations of Gaussian targets.
func Kinds() []Kind { return []Kind{SGPR, FITC, DTC} }

// Jitter is what is added to the diagonal of K_uu, in units of its mean: the inducing variables are the
// latent function at Z with that much independent noise, which a bound stays one with.
const Jitter = 1e-8

// blockRows is the number of rows of a block: a whole number of tiles.
const blockRows = 16 * tile.Size

// ErrSingular says that K_uu has no Cholesky factor, or that something is not finite.
var ErrSingular = errors.New("sparse: the covariance of the inducing variables is numerically singular")

// Approximation is an approximation of a density over rows, by inducing inputs. It is not safe for
// concurrent use.
type Approximation struct {
	kind   Kind
	cov    *kernel.Covariance
	rows   *kernel.Inputs
	budget *parallel.Budget

	z        *kernel.Inputs
	offset   int            // of the rows among those of elements, after the inducing inputs and what pads them
	elements *cmvp.Elements // over the inducing inputs, then the rows
	prior    []float64      // k_ii of the rows
	f        *kernel.Function
	summer   Summer // nil if there are no others to compute with
}

// New returns an approximation over the rows. It panics if the inputs' dimensions disagree.
func New(kind Kind, c *kernel.Covariance, rows, z *kernel.Inputs, b *parallel.Budget) *Approximation {
	if rows.Dim() != c.Dim() {
		panic(fmt.Sprintf("sparse: rows of %d inputs, a covariance over %d", rows.Dim(), c.Dim()))
	}
	a := &Approximation{kind: kind, cov: c, rows: rows, budget: b, prior: make([]float64, rows.Len())}
	a.SetInducing(z)
	return a
}

// Inducing returns the inducing inputs.
func (a *Approximation) Inducing() *kernel.Inputs { return a.z }

// SetInducing changes the inducing inputs.
func (a *Approximation) SetInducing(z *kernel.Inputs) {
	if z.Dim() != a.rows.Dim() {
		panic(fmt.Sprintf("sparse: inducing inputs of dimension %d, rows of %d", z.Dim(), a.rows.Dim()))
	}
	m, d := z.Len(), z.Dim()
	a.z, a.offset = z, tile.Pad(m)
	x := make([]float64, 0, (a.offset+a.rows.Len())*d)
	for j := range a.offset {
		x = append(x, z.Row(min(j, m-1))...)
	}
	for i := range a.rows.Len() {
		x = append(x, a.rows.Row(i)...)
	}
	a.elements = cmvp.NewElements(kernel.NewInputs(a.offset+a.rows.Len(), d, x), a.cov, a.budget)
}

// Bytes returns the memory that n rows of d features in all and m inducing inputs take, about.
func Bytes(n, d, m int) int64 {
	const block = 3 // of a gradient: K_fu and two products
	return 8 * (3*int64(n)*int64(d) + 5*int64(n) + 10*int64(m)*int64(m) + block*int64(min(n, blockRows))*int64(m))
}

// Set sets the parameters that Compute computes at.
func (a *Approximation) Set(f *kernel.Function) {
	a.f = f
	a.elements.Set(f, []float64{0})
}

// at sets the parameters.
func (a *Approximation) at(f *kernel.Function) {
	a.Set(f)
	a.budget.Chunks(a.rows.Len(), tile.Size, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			a.prior[i] = f.Variance(a.rows.Row(i))
		}
	})
}

// blocks calls visit with the blocks of rows in their order.
func (a *Approximation) blocks(ctx context.Context, visit func(lo, hi int) error) error {
	for i := range Blocks(a.Len()) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(BlockRows(a.Len(), i)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// cross returns K_fu of the rows [lo,hi).
func (a *Approximation) cross(lo, hi int) *dense.Matrix {
	k, m := dense.New(hi-lo, a.z.Len()), a.z.Len()
	a.budget.NewLoop(func(worker, t int) {
		data, rowLo, rowHi := k.Tile(t)
		for j := 0; j < m; j += tile.Strip {
			strip := data[j*tile.Size:][:tile.Strip*tile.Size]
			a.elements.Fill(worker, strip, j, a.offset+lo+rowLo, rowHi-rowLo)
			for c := range tile.Strip {
				rows := rowHi - rowLo
				if j+c >= m {
					rows = 0
				}
				clear(strip[c*tile.Size:][rows:tile.Size])
			}
		}
	}).Run(k.Tiles())
	return k
}

// inducing returns K_uu, with the jitter.
func (a *Approximation) inducing() *mat.SymDense {
	m := a.z.Len()
	k := mat.NewSymDense(m, nil)
	strip := make([]float64, tile.Strip*tile.Size)
	for row := 0; row < m; row += tile.Strip {
		for col := 0; col < m; col += tile.Size {
			a.elements.Fill(0, strip, row, col, min(tile.Size, m-col))
			for r := row; r < min(m, row+tile.Strip); r++ {
				for c := max(r, col); c < min(m, col+tile.Size); c++ {
					k.SetSym(r, c, strip[(r-row)*tile.Size+c-col])
				}
			}
		}
	}
	jitter := Jitter * mat.Trace(k) / float64(m)
	for j := range m {
		k.SetSym(j, j, k.At(j, j)+jitter)
	}
	return k
}

// factor is the inverse root of a positive definite matrix.
type factor struct {
	logDet  float64
	inverse *mat.TriDense // L⁻¹
}

func newFactor(k *mat.SymDense) (factor, error) {
	var chol mat.Cholesky
	if !chol.Factorize(k) || math.IsNaN(chol.LogDet()) {
		return factor{}, ErrSingular
	}
	var l, inverse mat.TriDense
	chol.LTo(&l)
	if err := inverse.InverseTri(&l); err != nil {
		var cond mat.Condition
		if !errors.As(err, &cond) || math.IsInf(float64(cond), 1) {
			return factor{}, ErrSingular
		}
	}
	return factor{chol.LogDet(), &inverse}, nil
}

// columns returns the columns of L⁻ᵀ.
func (f factor) columns() [][]float64 {
	m, _ := f.inverse.Dims()
	out := make([][]float64, m)
	for c := range out {
		out[c] = make([]float64, m)
		for j := range c + 1 {
			out[c][j] = f.inverse.At(c, j)
		}
	}
	return out
}

// sandwich returns L⁻ᵀXL⁻¹.
func (f factor) sandwich(x mat.Matrix) *mat.Dense {
	var left, out mat.Dense
	left.Mul(f.inverse.T(), x)
	out.Mul(&left, f.inverse)
	return &out
}

// element returns that of a diagonal which is one number for all rows, or one for each.
func element(diagonal []float64, row int) float64 {
	if len(diagonal) == 1 {
		return diagonal[0]
	}
	return diagonal[row]
}
