package laplace

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// residual is what is left of the variances while K is factored.
type residual struct {
	k    func(i, j int) float64
	left []float64
	rows []float64 // of Fᵀ, one after the other
	most float64   // variance
	end  float64   // that may be left
}

func (w *White) residual(p *part, psi []float64) *residual {
	theta, _ := w.problem.Natural(psi)
	in, f := w.problem.Inputs, p.Function(theta)
	r := &residual{k: func(i, j int) float64 { return f.Value(in.Row(i), in.Row(j)) }, left: make([]float64, len(w.problem.Y))}
	for i := range r.left {
		r.left[i] = f.Variance(in.Row(i))
		r.most = max(r.most, r.left[i])
	}
	r.end = r.most * mostResidual
	if w.limit > 0 {
		r.end = max(r.most*leastResidual, min(r.end, w.limit))
	}
	return r
}

// done reports whether nothing is left.
func (r *residual) done() bool { return !(floats.Max(r.left) > r.end) }

// take adds the column of a row to the factor.
func (r *residual) take(row int) {
	n, root := len(r.left), math.Sqrt(r.left[row])
	column := make([]float64, n)
	for i := range column {
		column[i] = r.k(i, row)
	}
	for at := 0; at < len(r.rows); at += n {
		before := r.rows[at : at+n]
		floats.AddScaled(column, -before[row], before)
	}
	floats.Scale(1/root, column)
	for i, v := range column {
		r.left[i] -= v * v
	}
	r.left[row] = 0
	r.rows = append(r.rows, column...)
}

// pivots returns an order of rows whose first ones explain most at ψ, and those that follow at ever higher rates: so of smooth functions
// and of rough ones few are needed.
func (w *White) pivots(ctx context.Context, p *part, psi []float64) ([]int, error) {
	n := len(w.problem.Y)
	var order []int
	taken := make([]bool, n)
	for finer, most := slices.Clone(psi), min(orderRank, n); len(order) < most; {
		r := w.residual(p, finer)
		for _, row := range order {
			if r.left[row] > r.end {
				r.take(row)
			}
		}
		for len(order) < most && !r.done() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			row := floats.MaxIdx(r.left)
			r.take(row)
			order, taken[row] = append(order, row), true
		}
		rates := false
		for _, i := range p.At {
			if w.problem.Params[i].Role == param.Rate && finer[i] < psi[i]+orderFiner {
				finer[i], rates = finer[i]+orderStep, true
			}
		}
		if !rates {
			break
		}
	}
	for row, already := range taken {
		if !already {
			order = append(order, row)
		}
	}
	return order, nil
}

// factor sets the blocks of F at ψ; it reports false where K is not finite.
func (w *White) factor(ctx context.Context, pt *whitened) (bool, error) {
	var blocks []block
	for c, p := range w.parts {
		if c > 0 && p == w.parts[c-1] {
			blocks = append(blocks, blocks[c-1])
			continue
		}
		r := w.residual(p, pt.psi)
		if !(r.most > 0) || math.IsInf(r.most, 0) {
			return false, nil
		}
		var b block
		for place, row := range p.order {
			if r.left[row] <= r.end {
				continue
			}
			if err := ctx.Err(); err != nil {
				return false, err
			}
			r.take(row)
			b.at = append(b.at, place)
			if r.done() {
				break
			}
		}
		if floats.HasNaN(r.rows) {
			return false, nil
		}
		b.f = mat.NewDense(len(b.at), len(r.left), r.rows)
		blocks = append(blocks, b)
	}
	pt.blocks = blocks
	return true, nil
}

// each calls do for each latent function with where its part of x begins and ends, and where its part of f or ν begins.
func (pt *whitened) each(do func(b block, lo, hi, at int)) {
	lo, at := 0, 0
	for _, b := range pt.blocks {
		r, n := b.f.Dims()
		do(b, lo, lo+r, at)
		lo, at = lo+r, at+n
	}
}

// length returns the lengths of x and of f.
func (pt *whitened) length() (x, f int) {
	for _, b := range pt.blocks {
		r, n := b.f.Dims()
		x, f = x+r, f+n
	}
	return x, f
}

// function returns Fx.
func (pt *whitened) function(x []float64) []float64 {
	_, n := pt.length()
	f := make([]float64, n)
	pt.each(func(b block, lo, hi, at int) {
		to := mat.NewVecDense(b.f.RawMatrix().Cols, f[at:at+b.f.RawMatrix().Cols])
		to.MulVec(b.f.T(), mat.NewVecDense(hi-lo, x[lo:hi]))
	})
	return f
}

// back returns Fᵀv.
func (pt *whitened) back(v []float64) []float64 {
	r, _ := pt.length()
	x := make([]float64, r)
	pt.each(func(b block, lo, hi, at int) {
		n := b.f.RawMatrix().Cols
		to := mat.NewVecDense(hi-lo, x[lo:hi])
		to.MulVec(b.f, mat.NewVecDense(n, v[at:at+n]))
	})
	return x
}

// factorize sets the factor of I + FᵀWF.
func (pt *whitened) factorize(w curvature) bool {
	r, _ := pt.length()
	a := mat.NewSymDense(r, nil)
	c := 0
	pt.each(func(b block, lo, hi, _ int) {
		d := 0
		pt.each(func(other block, from, to, _ int) {
			switch {
			case d == c:
				own := a.SliceSym(lo, hi).(*mat.SymDense)
				own.SymOuterK(1, b.scaled(w.of(c, c), math.Sqrt))
			case d > c && w.of(c, d) != nil:
				var cross mat.Dense
				cross.Mul(b.scaled(w.of(c, d), func(v float64) float64 { return v }), other.f.T())
				for i := lo; i < hi; i++ {
					for j := from; j < to; j++ {
						a.SetSym(i, j, cross.At(i-lo, j-from))
					}
				}
			}
			d++
		})
		c++
	})
	for j := range r {
		a.SetSym(j, j, 1+a.At(j, j))
	}
	return pt.chol.Factorize(a)
}

// scaled returns Fᵀ with the columns scaled.
func (b block) scaled(by []float64, of func(v float64) float64) *mat.Dense {
	r, n := b.f.Dims()
	out, scale := mat.NewDense(r, n, nil), make([]float64, n)
	for i, v := range by {
		scale[i] = of(v)
	}
	for j := range r {
		floats.MulTo(out.RawRowView(j), b.f.RawRowView(j), scale)
	}
	return out
}
