package sparse

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

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
	return s.newGradient(alpha, inducing).sum(ctx)
}

// sum returns the value with the derivatives, once all but the sums over rows is known.
func (g *gradient) sum(ctx context.Context) (*Value, error) {
	p := &Pass{Kind: Slopes, Of: g.kind, Points: g.byZ != nil, Targets: g.alpha == nil, Z: g.z,
		Shared: [][]float64{slices.Concat(g.factor...), g.gamma, slices.Concat(g.inverse...)}, Rows: [][]float64{g.alpha, g.lambda, g.own}}
	if p.Targets {
		p.Rows[0] = g.y
	}
	if err := g.Approximation.sum(ctx, p, func(block int, part []float64) { g.add(p, block, part) }); err != nil {
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

// reverse returns a gradient whose derivative by K_uf is γαᵀ + factor·K_uf Λ⁻¹, and by K_uu −½ L⁻ᵀ·inner·L⁻¹, but for the sums over rows.
func (s *fit) reverse(factor *mat.Dense, inner mat.Matrix, alpha []float64, inducing bool) *gradient {
	g := &gradient{fit: s, alpha: alpha, sums: make([]float64, s.elements.SumsLen()), byPrior: make([]float64, s.elements.NumParams()), byNoise: make([]float64, len(s.lambda))}
	if inducing {
		g.byZ = make([]float64, s.z.Len()*s.z.Dim())
	}
	g.factor, g.byUU = rowsOf(factor), s.uu.sandwich(inner)
	g.byUU.Scale(-0.5, g.byUU)
	return g
}

// newGradient returns the gradient at the best q, which α is of, but for the sums over rows. α is nil if it is to be computed.
func (s *fit) newGradient(alpha []float64, inducing bool) *gradient {
	m := s.z.Len()
	var inner, factor mat.Dense // B⁻¹, I − B⁻¹
	inner.Mul(s.b.inverse.T(), s.b.inverse)
	factor.CloneFrom(&inner)
	if s.kind == SGPR {
		factor.Scale(-1, &factor)
		addIdentity(&factor, 1)
	}
	addIdentity(&inner, -1)
	if s.kind == SGPR {
		inner.Add(&inner, s.gram)
		addIdentity(&inner, -1)
	}
	inner.RankOne(&inner, 1, mat.NewVecDense(m, s.beta), mat.NewVecDense(m, s.beta))
	g := s.reverse(s.uu.sandwich(&factor), &inner, alpha, inducing)
	if s.kind == FITC {
		g.inverse = rowsOf(s.uu.sandwich(mat.NewDiagDense(m, ones(m))))
	}
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

// add adds the part of a block of rows.
func (g *gradient) add(p *Pass, block int, part []float64) {
	lo, hi := BlockRows(g.Len(), block)
	s := g.layOut(p, hi-lo)
	for t := range s.tiles {
		floats.Add(g.sums, part[t*s.eachSums:][:s.eachSums])
		floats.Add(g.byPrior, part[s.priors+t*s.eachPrior:][:s.eachPrior])
		if g.byZ != nil {
			floats.Add(g.byZ, part[s.points+t*s.eachPoint:][:s.eachPoint])
		}
	}
	for i, level := range part[s.levels:][:hi-lo] {
		at := lo + i
		g.byNoise[at] = level
		if g.kind == SGPR {
			l := g.lambda[at]
			g.byNoise[at] += 0.5 * (g.prior[at] - g.own[at]) / (l * l)
		}
	}
	if g.kind == FITC {
		m := g.z.Len()
		g.byUU.Add(g.byUU, mat.NewDense(m, m, part[s.uu:][:m*m]))
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
