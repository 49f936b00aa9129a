package sparse

import (
	"context"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Value is an approximate log density with its derivatives.
type Value struct {
	LogDensity float64
	Theta      []float64 // by the covariance's parameters, as kernel.Function.AddGradient has them
	Noise      []float64 // by the noise variance of each row
	Inducing   []float64 // by the inducing inputs, point by point; nil if they were not asked for
	// Mean and Variance are the marginals of the latent function under a variational bound.
	Mean, Variance []float64
}

// Gradient returns the approximate log density of y with its derivatives, those by the inducing inputs
// too if they are asked for: then the covariance must be kernel.Covariance.Differentiable, and a
// category has none, 0. Errors and panics are those of LogDensity.
func (a *Approximation) Gradient(ctx context.Context, f *kernel.Function, noise, y []float64, inducing bool) (*Value, error) {
	s, err := a.fit(ctx, f, noise, y)
	if err != nil {
		return nil, err
	}
	return s.gradient(ctx, nil, inducing)
}

// gradient returns the value with its derivatives. α is known of a variational bound, nil otherwise.
func (s *fit) gradient(ctx context.Context, alpha []float64, inducing bool) (*Value, error) {
	g := s.newGradient(inducing)
	g.alpha = alpha
	return g.sum(ctx)
}

// sum returns the value with the derivatives, once all but the sums over rows is known.
func (g *gradient) sum(ctx context.Context) (*Value, error) {
	if err := g.blocks(ctx, func(lo, hi int) error { return g.addBlock(ctx, lo, hi) }); err != nil {
		return nil, err
	}
	g.addInducing()
	v := &Value{LogDensity: g.value, Theta: g.elements.Reduce(g.sums), Noise: g.byNoise, Inducing: g.byZ}
	floats.Add(v.Theta, g.byPrior)
	return v, nil
}

// gradient sums up the derivatives.
type gradient struct {
	*fit
	alpha   []float64   // of all rows, nil if it is to be computed
	factor  [][]float64 // columns of what K_uf is multiplied by: K_uu⁻¹ − E of SGPR, else E
	inverse [][]float64 // those of K_uu⁻¹; nil but for FITC
	byUU    *mat.Dense  // by K_uu
	sums    []float64   // of the strips of K
	byPrior []float64   // by the parameters, of the diagonal of K
	byNoise []float64
	byZ     []float64 // nil if they were not asked for
}

func (s *fit) newGradient(inducing bool) *gradient {
	m := s.z.Len()
	g := &gradient{fit: s, sums: make([]float64, s.elements.SumsLen()), byPrior: make([]float64, s.elements.NumParams()), byNoise: make([]float64, len(s.lambda))}
	if inducing {
		g.byZ = make([]float64, m*s.z.Dim())
	}
	var inner, factor mat.Dense // B⁻¹, I − B⁻¹
	inner.Mul(s.b.inverse.T(), s.b.inverse)
	factor.CloneFrom(&inner)
	if s.kind == SGPR {
		factor.Scale(-1, &factor)
		addIdentity(&factor, 1)
	}
	g.factor = rowsOf(s.uu.sandwich(&factor))
	addIdentity(&inner, -1)
	if s.kind == SGPR {
		inner.Add(&inner, s.gram)
		addIdentity(&inner, -1)
	}
	if s.kind == FITC {
		g.inverse = rowsOf(s.uu.sandwich(mat.NewDiagDense(m, ones(m))))
	}
	inner.RankOne(&inner, 1, mat.NewVecDense(m, s.beta), mat.NewVecDense(m, s.beta))
	g.byUU = s.uu.sandwich(&inner)
	g.byUU.Scale(-0.5, g.byUU)
	return g
}

func addIdentity(x *mat.Dense, c float64) {
	n, _ := x.Dims()
	for j := range n {
		x.Set(j, j, x.At(j, j)+c)
	}
}

func ones(n int) []float64 {
	x := make([]float64, n)
	floats.AddConst(1, x)
	return x
}

// rowsOf returns the rows of a matrix, to read: its columns, if it is symmetric.
func rowsOf(x *mat.Dense) [][]float64 {
	n, _ := x.Dims()
	out := make([][]float64, n)
	for j := range out {
		out[j] = x.RawRowView(j)
	}
	return out
}

// addBlock adds the part of a block of rows.
func (g *gradient) addBlock(ctx context.Context, lo, hi int) error {
	k := g.cross(lo, hi)
	alpha, err := g.alphaOf(ctx, k, lo, hi)
	if err != nil {
		return err
	}
	product := k.Clone()
	if err := product.MulRight(ctx, g.factor, g.budget); err != nil {
		return err
	}
	level := make([]float64, hi-lo) // ℓ
	g.budget.NewLoop(func(_, t int) { g.diagonal(level, alpha, k, product, t, lo) }).Run(k.Tiles())
	if g.kind == FITC {
		if err := k.MulRight(ctx, g.inverse, g.budget); err != nil { // K_fu is needed no more
			return err
		}
		if err := g.addLevels(ctx, k, level); err != nil {
			return err
		}
	}
	g.addWeights(k, product, alpha, level, lo)
	g.addPrior(level, lo)
	return ctx.Err()
}

// alphaOf returns α of a block.
func (g *gradient) alphaOf(ctx context.Context, k *dense.Matrix, lo, hi int) ([]float64, error) {
	if g.alpha != nil {
		return g.alpha[lo:hi], nil
	}
	alpha := make([]float64, hi-lo)
	err := k.MulAdd(ctx, [][]float64{alpha}, [][]float64{g.gamma}, g.budget)
	for i, mean := range alpha {
		alpha[i] = (g.y[lo+i] - mean) / g.lambda[lo+i]
	}
	return alpha, err
}

// diagonal computes the derivatives by Λ and by the noise, of the rows of a tile.
func (g *gradient) diagonal(level, alpha []float64, k, product *dense.Matrix, t, first int) {
	data, lo, hi := k.Tile(t)
	other, _, _ := product.Tile(t)
	quad := make([]float64, hi-lo)
	rowDots(quad, data, other, g.z.Len())
	for i, q := range quad {
		at := first + lo + i
		l := g.lambda[at]
		if g.kind == SGPR {
			q = g.own[at] - q
		}
		level[lo+i] = 0.5 * (alpha[lo+i]*alpha[lo+i] - 1/l + q/(l*l))
		g.byNoise[at] = level[lo+i]
		if g.kind == SGPR {
			g.byNoise[at] += 0.5 * (g.prior[at] - g.own[at]) / (l * l)
		}
	}
}

// addLevels adds K_uu⁻¹K_uf diag(ℓ) K_fu K_uu⁻¹, of a block, to the derivative by K_uu.
func (g *gradient) addLevels(ctx context.Context, k *dense.Matrix, level []float64) error {
	scaled := k.Clone()
	g.budget.NewLoop(func(_, t int) {
		data, lo, hi := scaled.Tile(t)
		scaleColumns(data, level[lo:hi], g.z.Len())
	}).Run(scaled.Tiles())
	part, err := dense.TransMul(ctx, k, scaled, g.budget)
	if err == nil {
		g.byUU.Add(g.byUU, part)
	}
	return err
}

// addWeights makes of the products the derivatives by K_uf, of a block, and adds what they are in the
// parameters and the inducing inputs.
func (g *gradient) addWeights(k, product *dense.Matrix, alpha, level []float64, first int) {
	m, per, d := g.z.Len(), g.elements.SumsLen(), g.z.Dim()
	sums := make([]float64, product.Tiles()*per)
	points := make([]float64, 0)
	if g.byZ != nil {
		points = make([]float64, product.Tiles()*m*d)
	}
	g.budget.NewLoop(func(worker, t int) {
		data, lo, hi := product.Tile(t)
		inverse, _, _ := k.Tile(t)
		for j := range m {
			g.weigh(data[j*tile.Size:][:hi-lo], inverse[j*tile.Size:], g.gamma[j], alpha[lo:hi], level[lo:hi], g.lambda[first+lo:])
		}
		for j := 0; j < m; j += tile.Strip {
			strip := data[j*tile.Size:][:tile.Strip*tile.Size]
			g.elements.Sums(worker, [][]float64{sums[t*per:][:per]}, [][]float64{strip}, j, g.offset+first+lo, hi-lo)
		}
		if g.byZ != nil {
			g.slopes(points[t*m*d:][:m*d], data, first+lo, hi-lo)
		}
	}).Run(product.Tiles())
	for t := range product.Tiles() {
		floats.Add(g.sums, sums[t*per:][:per])
		if g.byZ != nil {
			floats.Add(g.byZ, points[t*m*d:][:m*d])
		}
	}
}

// weigh makes of a column of the product the derivatives by the elements of K_fu that it is of.
func (g *gradient) weigh(w, inverse []float64, gamma float64, alpha, level, lambda []float64) {
	for i := range w {
		x := w[i] / lambda[i]
		switch g.kind {
		case SGPR:
			w[i] = alpha[i]*gamma + x
		case DTC:
			w[i] = alpha[i]*gamma - x
		case FITC:
			w[i] = alpha[i]*gamma - x - 2*level[i]*inverse[i]
		}
	}
}

// slopes adds what the derivatives w of some rows by K_uf are in the inducing inputs.
func (g *gradient) slopes(dst, w []float64, first, rows int) {
	d := g.z.Dim()
	slope := make([]float64, d)
	for j := range g.z.Len() {
		z, to := g.z.Row(j), dst[j*d:][:d]
		for i, x := range w[j*tile.Size:][:rows] {
			clear(slope)
			g.f.AddSlopes(slope, z, g.rows.Row(first+i))
			floats.AddScaled(to, x, slope)
		}
	}
}

// addPrior adds what the derivatives by the diagonal of K are in the parameters.
func (g *gradient) addPrior(level []float64, first int) {
	if g.kind == DTC {
		return
	}
	chunks := (len(level) + tile.Size - 1) / tile.Size
	parts := make([][]float64, chunks)
	g.budget.Chunks(len(level), tile.Size, func(c, lo, hi int) {
		parts[c] = make([]float64, len(g.byPrior))
		for i := lo; i < hi; i++ {
			w := level[i]
			if g.kind == SGPR {
				w = -0.5 / g.lambda[first+i]
			}
			x := g.rows.Row(first + i)
			g.f.AddGradient(parts[c], w, x, x)
		}
	})
	for _, p := range parts {
		floats.Add(g.byPrior, p)
	}
}

// addInducing adds what the derivatives by K_uu are in the parameters and the inducing inputs.
func (g *gradient) addInducing() {
	m, d := g.z.Len(), g.z.Dim()
	addIdentity(g.byUU, Jitter/float64(m)*mat.Trace(g.byUU))
	strip := make([]float64, tile.Strip*tile.Size)
	for row := 0; row < m; row += tile.Strip {
		for col := 0; col < m; col += tile.Size {
			clear(strip)
			cols := min(tile.Size, m-col)
			for r := row; r < min(m, row+tile.Strip); r++ {
				copy(strip[(r-row)*tile.Size:], g.byUU.RawRowView(r)[col:col+cols])
			}
			g.elements.Sums(0, [][]float64{g.sums}, [][]float64{strip}, row, col, cols)
		}
	}
	if g.byZ == nil {
		return
	}
	slope := make([]float64, d)
	for j := range m {
		for l, w := range g.byUU.RawRowView(j) {
			clear(slope)
			g.f.AddSlopes(slope, g.z.Row(j), g.z.Row(l))
			floats.AddScaled(g.byZ[j*d:][:d], 2*w, slope)
		}
	}
}
