package precond

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// LowRank is P = D + L·Lᵀ with D a positive diagonal of order n and L n×m. Its
// methods take s columns of n numbers, may alias dst and v, and cost O(n·m·s).
// It is safe for concurrent use.
type LowRank struct {
	kind   string
	root   []float64     // D^{1/2}
	l      *dense.Matrix // L̃ = D^{-1/2}L
	c      *mat.TriDense // C
	ic     *mat.TriDense // I + C
	inv    *dense.Matrix // (CCᵀ)⁻¹, applied at every iteration
	logDet float64
	budget *parallel.Budget
}

// newLowRank takes D and the columns of L, which it overwrites.
func newLowRank(kind string, d []float64, cols [][]float64, budget *parallel.Budget) (*LowRank, error) {
	n, m := len(d), len(cols)
	p := &LowRank{kind: kind, root: make([]float64, n), l: dense.New(n, m), budget: budget}
	for i, di := range d {
		p.root[i] = math.Sqrt(di)
		p.logDet += math.Log(di)
	}
	budget.NewLoop(func(_, j int) {
		for i, r := range p.root {
			cols[j][i] /= r
		}
		p.l.SetCol(j, cols[j])
	}).Run(m)
	gram := p.l.Gram(budget)
	for i := range m {
		gram.SetSym(i, i, 1+gram.At(i, i))
	}
	var chol mat.Cholesky
	if !chol.Factorize(gram) {
		return nil, errors.New("the preconditioner is numerically singular")
	}
	p.c = mat.NewTriDense(m, mat.Lower, nil)
	chol.LTo(p.c)
	p.ic = mat.NewTriDense(m, mat.Lower, nil)
	p.ic.Copy(p.c)
	for i := range m {
		p.ic.SetTri(i, i, 1+p.c.At(i, i))
		p.logDet += 2 * math.Log(p.c.At(i, i))
	}
	var inv mat.SymDense
	if err := chol.InverseTo(&inv); err != nil && !isCondition(err) {
		return nil, err
	}
	p.inv = dense.New(m, m)
	col := make([]float64, m)
	for j := range m {
		for i := range col {
			col[i] = inv.At(i, j)
		}
		p.inv.SetCol(j, col)
	}
	return p, nil
}

func isCondition(err error) bool {
	var c mat.Condition
	return errors.As(err, &c)
}

// Kind returns the kind of preconditioner.
func (p *LowRank) Kind() string { return p.kind }

// Rank returns m.
func (p *LowRank) Rank() int { _, m := p.l.Dims(); return m }

// LogDet returns log |P|.
func (p *LowRank) LogDet() float64 { return p.logDet }

// Solve sets dst = P⁻¹·v.
func (p *LowRank) Solve(dst, v [][]float64) {
	p.scale(dst, v, false)
	w := p.inner(dst)
	t := columns(p.Rank(), len(v))
	p.inv.MulTrans(t, w, p.budget) // symmetric
	p.update(dst, t, -1)
	p.scale(dst, dst, false)
}

// MulRoot sets dst = F·v.
func (p *LowRank) MulRoot(dst, v [][]float64) {
	copyColumns(dst, v)
	w := p.inner(dst)
	solveTri(p.ic, false, w)
	p.update(dst, w, 1)
	p.scale(dst, dst, true)
}

// SolveRoot sets dst = F⁻¹·v.
func (p *LowRank) SolveRoot(dst, v [][]float64) {
	p.scale(dst, v, false)
	w := p.inner(dst)
	solveTri(p.c, false, w)
	solveTri(p.ic, true, w)
	p.update(dst, w, -1)
}

// SolveRootTrans sets dst = F⁻ᵀ·v.
func (p *LowRank) SolveRootTrans(dst, v [][]float64) {
	copyColumns(dst, v)
	w := p.inner(dst)
	solveTri(p.ic, false, w)
	solveTri(p.c, true, w)
	p.update(dst, w, -1)
	p.scale(dst, dst, false)
}

// scale sets dst = D^{1/2}·v, or D^{-1/2}·v.
func (p *LowRank) scale(dst, v [][]float64, up bool) {
	p.budget.NewLoop(func(_, c int) {
		d, x := dst[c], v[c]
		for i, r := range p.root {
			if up {
				d[i] = r * x[i]
			} else {
				d[i] = x[i] / r
			}
		}
	}).Run(len(v))
}

// inner returns L̃ᵀ·v.
func (p *LowRank) inner(v [][]float64) [][]float64 {
	w := columns(p.Rank(), len(v))
	p.l.MulTrans(w, v, p.budget)
	return w
}

// update adds sign·L̃·w to dst.
func (p *LowRank) update(dst, w [][]float64, sign float64) {
	if sign < 0 {
		for _, c := range w {
			for i := range c {
				c[i] = -c[i]
			}
		}
	}
	p.l.MulAdd(dst, w, p.budget)
}

// solveTri solves with a triangular matrix in place.
func solveTri(t *mat.TriDense, trans bool, w [][]float64) {
	for _, c := range w {
		v := mat.NewVecDense(len(c), c)
		if trans {
			_ = v.SolveVec(t.T(), v)
		} else {
			_ = v.SolveVec(t, v)
		}
	}
}

func columns(n, s int) [][]float64 {
	buf := make([]float64, n*s)
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = buf[c*n : (c+1)*n : (c+1)*n]
	}
	return cols
}

func copyColumns(dst, v [][]float64) {
	for c := range v {
		if &dst[c][0] != &v[c][0] {
			copy(dst[c], v[c])
		}
	}
}
