package cholesky

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Invert replaces the factor by K⁻¹, in place but for InvertBytes, at twice the cost
// of Factor. The only error is that of ctx, which leaves the matrix without content.
func (m *Matrix) Invert(ctx context.Context, b *parallel.Budget) error {
	m.want(factor, "no factor to invert")
	m.content = nothing
	row := make([][]float64, m.count)
	for j := range row {
		row[j] = make([]float64, m.elements())
	}
	for k := range m.count {
		m.takeRow(row, k)
		m.rootRow(ctx, b, row, k)
	}
	for i := range m.count {
		m.takeRow(row, i)
		m.inverseRow(ctx, b, row, i)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.content = inverse
	return nil
}

// takeRow copies the blocks of row i.
func (m *Matrix) takeRow(row [][]float64, i int) {
	for j := range i + 1 {
		copy(row[j], m.block(i, j))
	}
}

// rootRow replaces the blocks (k,j) of L, which row holds too, by the blocks (j,k) of
// U = L⁻ᵀ, an upper triangle. Its rows solve U·Lᵀ = I:
//
//	U_jk = (I_jk − Σ_{j≤i<k} U_ji·L_kiᵀ)·L_kk⁻ᵀ
func (m *Matrix) rootRow(ctx context.Context, b *parallel.Budget, row [][]float64, k int) {
	ld := m.ld()
	chunks(ctx, b, k+1, m.edge/tile.Strip, func(j, lo, strips int) {
		strips = min(strips, m.strips(j)-lo)
		if strips <= 0 {
			return
		}
		u := m.block(k, j)[lo*ld:][:strips*ld]
		clear(u)
		if j == k {
			for r := range strips * tile.Strip {
				u[m.at(r, lo*tile.Strip+r)] = 1
			}
		}
		for i := j; i < k; i++ {
			m.product(u, m.block(i, j)[lo*ld:], row[i], strips, m.strips(k), m.size(i))
		}
		m.below(u, row[k], strips, k)
	})
}

// inverseRow replaces the blocks (j,i) of U, which row holds too, by the blocks (i,j)
// of K⁻¹ = U·Uᵀ:
//
//	(K⁻¹)_ij = Σ_{k≥i} U_ik·U_jkᵀ
func (m *Matrix) inverseRow(ctx context.Context, b *parallel.Budget, row [][]float64, i int) {
	ld := m.ld()
	chunks(ctx, b, i+1, m.strips(i), func(j, lo, strips int) {
		x := m.block(i, j)[lo*ld:][:strips*ld]
		clear(x)
		m.product(x, row[i][lo*ld:], row[j], strips, m.strips(j), m.size(i))
		for k := i + 1; k < m.count; k++ {
			m.product(x, m.block(k, i)[lo*ld:], m.block(k, j), strips, m.strips(j), m.size(k))
		}
		for e := range x { // product subtracts
			x[e] = -x[e]
		}
	})
}
