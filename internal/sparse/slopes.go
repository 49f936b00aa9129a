package sparse

import (
	"context"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
)

// slopesLayout says where what a block of Slopes comes to lies: the sums of the strips of K tile by tile, from the start on; the
// derivatives by the parameters, of the diagonal of K, tile by tile; ℓ of each row; the derivatives by the inducing inputs, tile by tile,
// if they are asked for; and of FITC the derivative by K_uu.
type slopesLayout struct {
	tiles                           int
	eachSums, eachPrior, eachPoint  int // numbers for each tile
	priors, levels, points, uu, end int // where they begin
}

func (a *Approximation) layOut(p *Pass, rows int) slopesLayout {
	s := slopesLayout{tiles: (rows + tile.Size - 1) / tile.Size, eachSums: a.elements.SumsLen(), eachPrior: a.elements.NumParams()}
	s.priors = s.tiles * s.eachSums
	s.levels = s.priors + s.tiles*s.eachPrior
	s.points = s.levels + rows
	m := p.Z.Len()
	if p.Points {
		s.eachPoint = m * p.Z.Dim()
	}
	s.uu = s.points + s.tiles*s.eachPoint
	s.end = s.uu
	if p.Of == FITC {
		s.end += m * m
	}
	return s
}

// slopes computes a block of Slopes.
type slopes struct {
	*Approximation
	*Pass
	slopesLayout
	out                  []float64
	lo                   int
	alpha, level, lambda []float64     // of the block's rows
	own                  []float64     // theirs
	k, product           *dense.Matrix // K_fu, of FITC then K_fu K_uu⁻¹, and K_fu times what it is multiplied by
}

// slopesBlock is Compute of Slopes.
func (a *Approximation) slopesBlock(ctx context.Context, p *Pass, lo, hi int, out []float64) error {
	s := &slopes{Approximation: a, Pass: p, slopesLayout: a.layOut(p, hi-lo), out: out, lo: lo,
		alpha: p.Rows[0][lo:hi], lambda: p.Rows[1][lo:hi], own: p.Rows[2][lo:hi], k: a.cross(lo, hi)}
	clear(out)
	s.level = out[s.levels:s.points]
	if p.Targets {
		if err := s.solve(ctx); err != nil {
			return err
		}
	}
	m := p.Z.Len()
	s.product = s.k.Clone()
	if err := s.product.MulRight(ctx, split(p.Shared[0], m), a.budget); err != nil {
		return err
	}
	a.budget.NewLoop(func(_, t int) { s.diagonal(t) }).Run(s.tiles)
	if p.Of == FITC {
		if err := s.k.MulRight(ctx, split(p.Shared[2], m), a.budget); err != nil { // K_fu is needed no more
			return err
		}
		if err := s.addLevels(ctx); err != nil {
			return err
		}
	}
	a.budget.NewLoop(func(worker, t int) {
		s.addWeights(worker, t)
		s.addPrior(t)
	}).Run(s.tiles)
	return ctx.Err()
}

// solve computes α from the targets.
func (s *slopes) solve(ctx context.Context) error {
	alpha := make([]float64, len(s.alpha))
	err := s.k.MulAdd(ctx, [][]float64{alpha}, [][]float64{s.Shared[1]}, s.budget)
	for i, mean := range alpha {
		alpha[i] = (s.alpha[i] - mean) / s.lambda[i]
	}
	s.alpha = alpha
	return err
}

// diagonal computes ℓ of the rows of a tile.
func (s *slopes) diagonal(t int) {
	data, lo, hi := s.k.Tile(t)
	other, _, _ := s.product.Tile(t)
	level := s.level[lo:hi]
	rowDots(level, data, other, s.Z.Len())
	for i, q := range level {
		l, alpha := s.lambda[lo+i], s.alpha[lo+i]
		if s.Of == SGPR {
			q = s.own[lo+i] - q
		}
		level[i] = 0.5 * (alpha*alpha - 1/l + q/(l*l))
	}
}

// addLevels computes K_uu⁻¹K_uf diag(ℓ) K_fu K_uu⁻¹.
func (s *slopes) addLevels(ctx context.Context) error {
	m, scaled := s.Z.Len(), s.k.Clone()
	s.budget.NewLoop(func(_, t int) {
		data, lo, hi := scaled.Tile(t)
		scaleColumns(data, s.level[lo:hi], m)
	}).Run(s.tiles)
	part, err := dense.TransMul(ctx, s.k, scaled, s.budget)
	if err != nil {
		return err
	}
	for j := range m {
		copy(s.out[s.uu+j*m:][:m], part.RawRowView(j))
	}
	return nil
}

// addWeights makes of a tile of the products the derivatives by K_uf, and computes what they are in the parameters and the
// inducing inputs.
func (s *slopes) addWeights(worker, t int) {
	m := s.Z.Len()
	data, lo, hi := s.product.Tile(t)
	inverse, _, _ := s.k.Tile(t)
	for j := range m {
		s.weigh(data[j*tile.Size:][:hi-lo], inverse[j*tile.Size:], s.Shared[1][j], lo)
	}
	sums := s.out[t*s.eachSums:][:s.eachSums]
	for j := 0; j < m; j += tile.Strip {
		strip := data[j*tile.Size:][:tile.Strip*tile.Size]
		s.elements.Sums(worker, [][]float64{sums}, [][]float64{strip}, j, s.offset+s.lo+lo, hi-lo)
	}
	if s.Points {
		s.inducing(s.out[s.points+t*s.eachPoint:][:s.eachPoint], data, s.lo+lo, hi-lo)
	}
}

// weigh makes of a column of the product the derivatives by the elements of K_fu that it is of.
func (s *slopes) weigh(w, inverse []float64, gamma float64, lo int) {
	for i := range w {
		alpha, x := s.alpha[lo+i], w[i]/s.lambda[lo+i]
		switch s.Of {
		case SGPR:
			w[i] = alpha*gamma + x
		case DTC:
			w[i] = alpha*gamma - x
		case FITC:
			w[i] = alpha*gamma - x - 2*s.level[lo+i]*inverse[i]
		}
	}
}

// inducing adds what the derivatives w of some rows by K_uf are in the inducing inputs.
func (s *slopes) inducing(dst, w []float64, first, rows int) {
	d := s.Z.Dim()
	slope := make([]float64, d)
	for j := range s.Z.Len() {
		z, to := s.Z.Row(j), dst[j*d:][:d]
		for i, x := range w[j*tile.Size:][:rows] {
			clear(slope)
			s.f.AddSlopes(slope, z, s.rows.Row(first+i))
			floats.AddScaled(to, x, slope)
		}
	}
}

// addPrior computes what the derivatives by the diagonal of K, of the rows of a tile, are in the parameters.
func (s *slopes) addPrior(t int) {
	if s.Of == DTC {
		return
	}
	_, lo, hi := s.k.Tile(t)
	to := s.out[s.priors+t*s.eachPrior:][:s.eachPrior]
	for i := lo; i < hi; i++ {
		w := s.level[i]
		if s.Of == SGPR {
			w = -0.5 / s.lambda[i]
		}
		x := s.rows.Row(s.lo + i)
		s.f.AddGradient(to, w, x, x)
	}
}
