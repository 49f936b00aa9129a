package laplace

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// kinds are the kinds of the rows under the twinned likelihood, 1 of ordinary rows and 0 of outliers, at a ψ. Given these f is that of Gaussian noise and can be
// integrated out, so that chains of kinds move between modes of f, which slices do not. It takes O(n³) time for each sweep, with stored matrices.
type kinds struct {
	y        []float64
	bf, bg   *mat.Dense // Fᵀ of both functions, r×n
	variance [2]float64 // of the noise of outliers, and of ordinary rows
	opening  float64
	kind     []float64
	u, z     []float64 // the opening and g, and this with normal noise, whose sign is the kind
	xg       []float64
	gate     mat.Cholesky // of I + FᵀF of the gate
	inverse  *mat.SymDense
	a        []float64 // the inverse of K and the noise, times y
}

// Sweeps that lead from the kinds at the mode to the first draw, and from one to the next; and draws of the gate in each.
const (
	firstSweeps = 40
	nextSweeps  = 10
	gateDraws   = 3
)

// byKinds draws x given ψ under the twinned likelihood, by Gibbs sampling of the rows' kinds with f integrated out (Naish-Guzman 2007, section 3.4) and of the
// gate given these by probit variables (Albert and Chib 1993).
func (w *White) byKinds(ctx context.Context, pt *whitened, l likelihood.Twinned, r *rand.Rand) (x [][]float64, err error) {
	k := &kinds{y: w.problem.Y, bf: pt.blocks[0].f, bg: pt.blocks[1].f, z: make([]float64, len(w.problem.Y))}
	k.variance[1], k.variance[0], k.opening = l.Kinds(pt.own)
	rank, _ := k.bg.Dims()
	inner := mat.NewSymDense(rank, nil)
	inner.SymOuterK(1, k.bg)
	if !k.gate.Factorize(withUnit(inner)) {
		return nil, errKinds(pt)
	}
	f := pt.function(pt.mode)
	n := len(k.y)
	for i, y := range k.y {
		k.u = append(k.u, k.opening+f[n+i])
		ordinary, _, _ := likelihood.Gaussian{}.LogDensity(k.variance[1:], y, f[i])
		outlier, _, _ := likelihood.Gaussian{}.LogDensity(k.variance[:1], y, f[i])
		k.kind = append(k.kind, 0)
		if ordinary-outlier+k.odds(i) > 0 {
			k.kind[i] = 1
		}
	}
	for sweep := range firstSweeps + (functionSets-1)*nextSweeps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !k.invert() {
			return nil, errKinds(pt)
		}
		k.flip(r)
		for range gateDraws {
			likelihood.Probit{}.Refresh(r, k.z, nil, k.kind, k.u)
			k.drawGate(r)
		}
		if last := sweep + 1 - firstSweeps; last >= 0 && last%nextSweeps == 0 {
			xf := k.drawFunction(r)
			if xf == nil {
				return nil, errKinds(pt)
			}
			x = append(x, append(xf, k.xg...))
		}
	}
	return x, nil
}

func errKinds(pt *whitened) error {
	return fmt.Errorf("the latent functions cannot be drawn at log parameters %.4g: %w", pt.psi, errNumerical)
}

// withUnit adds the unit matrix.
func withUnit(a *mat.SymDense) *mat.SymDense {
	for j := range a.SymmetricDim() {
		a.SetSym(j, j, 1+a.At(j, j))
	}
	return a
}

// odds returns the log odds of row i to be ordinary that the gate gives it.
func (k *kinds) odds(i int) float64 {
	in, _, _ := likelihood.Probit{}.LogDensity(nil, 1, k.u[i])
	out, _, _ := likelihood.Probit{}.LogDensity(nil, 0, k.u[i])
	return in - out
}

func (k *kinds) noise(i int) float64 { return k.variance[int(k.kind[i])] }

// invert sets the inverse of K and the noise.
func (k *kinds) invert() bool {
	a := mat.NewSymDense(len(k.y), nil)
	a.SymOuterK(1, k.bf.T())
	for i := range k.y {
		a.SetSym(i, i, a.At(i, i)+k.noise(i))
	}
	var chol mat.Cholesky
	if !chol.Factorize(a) {
		return false
	}
	k.inverse = mat.NewSymDense(len(k.y), nil)
	_ = chol.InverseTo(k.inverse) // it only warns of ill-conditioning
	k.a = make([]float64, len(k.y))
	mat.NewVecDense(len(k.y), k.a).MulVec(k.inverse, mat.NewVecDense(len(k.y), k.y))
	return true
}

// flip proposes the other kind of each row in turn. With δ what that adds to its noise, log p(y|kinds) changes by −½log(1+δP_ii) + ½δa_i²/(1+δP_ii).
func (k *kinds) flip(r *rand.Rand) {
	n := len(k.y)
	column := mat.NewVecDense(n, nil)
	for i := range n {
		delta, odds := k.variance[0]-k.variance[1], -k.odds(i)
		if k.kind[i] == 0 {
			delta, odds = -delta, -odds
		}
		scale := 1 + delta*k.inverse.At(i, i)
		if !(odds-math.Log(scale)/2+delta*k.a[i]*k.a[i]/(2*scale) > -r.ExpFloat64()) {
			continue
		}
		k.kind[i] = 1 - k.kind[i]
		for j := range n {
			column.SetVec(j, k.inverse.At(i, j))
		}
		floats.AddScaled(k.a, -delta*k.a[i]/scale, column.RawVector().Data)
		k.inverse.SymRankOne(k.inverse, -delta/scale, column)
	}
}

// normalGiven draws from N(A⁻¹b, A⁻¹), given the factor of A.
func normalGiven(chol *mat.Cholesky, b *mat.VecDense, r *rand.Rand) []float64 {
	var lower mat.TriDense
	chol.LTo(&lower)
	fresh := mat.NewVecDense(b.Len(), nil)
	for j := range b.Len() {
		fresh.SetVec(j, r.NormFloat64())
	}
	_ = fresh.SolveVec(lower.T(), fresh) // these only warn of ill-conditioning
	_ = chol.SolveVecTo(b, b)
	fresh.AddVec(fresh, b)
	return fresh.RawVector().Data
}

// drawGate draws the gate given z.
func (k *kinds) drawGate(r *rand.Rand) {
	rank, n := k.bg.Dims()
	rest := make([]float64, n)
	for i, z := range k.z {
		rest[i] = z - k.opening
	}
	b := mat.NewVecDense(rank, nil)
	b.MulVec(k.bg, mat.NewVecDense(n, rest))
	k.xg = normalGiven(&k.gate, b, r)
	u := mat.NewVecDense(n, k.u)
	u.MulVec(k.bg.T(), mat.NewVecDense(rank, k.xg))
	floats.AddConst(k.opening, k.u)
}

// drawFunction draws x of f given the kinds, nil where it cannot.
func (k *kinds) drawFunction(r *rand.Rand) []float64 {
	rank, n := k.bf.Dims()
	weight, scaled := make([]float64, n), make([]float64, n)
	for i, y := range k.y {
		weight[i], scaled[i] = 1/k.noise(i), y/k.noise(i)
	}
	a := mat.NewSymDense(rank, nil)
	a.SymOuterK(1, block{f: k.bf}.scaled(weight, math.Sqrt))
	var chol mat.Cholesky
	if !chol.Factorize(withUnit(a)) {
		return nil
	}
	b := mat.NewVecDense(rank, nil)
	b.MulVec(k.bf, mat.NewVecDense(n, scaled))
	return normalGiven(&chol, b, r)
}
