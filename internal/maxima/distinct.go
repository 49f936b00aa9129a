package maxima

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Maximum is a local maximum of a log density.
type Maximum struct {
	X     []float64
	Value float64
	Info  *mat.SymDense // negative Hessian, positive definite
	Found int           // searches that came here
}

// LogMass returns the log of the mass around the maximum by Laplace's approximation, −∞ if
// Info is not positive definite.
func (m *Maximum) LogMass() float64 {
	var chol mat.Cholesky
	if !chol.Factorize(m.Info) {
		return math.Inf(-1)
	}
	return m.Value + float64(len(m.X))/2*math.Log(2*math.Pi) - chol.LogDet()/2
}

// Covariance returns the inverse of Info, and false if that is not positive definite.
func (m *Maximum) Covariance() (*mat.SymDense, bool) {
	var chol mat.Cholesky
	if !chol.Factorize(m.Info) {
		return nil, false
	}
	var c mat.SymDense
	_ = chol.InverseTo(&c) // it only warns of ill-conditioning
	return &c, true
}

// Distance returns how far x is from the maximum, in standard deviations of the normal
// approximation.
func (m *Maximum) Distance(x []float64) float64 {
	d := mat.NewVecDense(len(x), nil)
	floats.SubTo(d.RawVector().Data, x, m.X)
	return math.Sqrt(max(0, mat.Inner(d, m.Info, d)))
}

// Stencil returns the points, two for each coordinate, whose gradients Hessian takes: a
// quarter of a standard deviation to each side of x, given a guess at the information
// there.
func Stencil(x []float64, guess *mat.SymDense) [][]float64 {
	points := make([][]float64, 0, 2*len(x))
	for i := range x {
		h := stencilStep(guess, i)
		for _, side := range []float64{1, -1} {
			p := slices.Clone(x)
			p[i] += side * h
			points = append(points, p)
		}
	}
	return points
}

// stencilStep is a quarter of the standard deviation of coordinate i given the others,
// which the information's diagonal has; at most a quarter of a log unit.
func stencilStep(guess *mat.SymDense, i int) float64 {
	return 0.25 * min(1, 1/math.Sqrt(max(guess.At(i, i), 1e-12)))
}

// Hessian returns the information, the negative Hessian, from the gradients at the
// Stencil of the same guess. asymmetry is the largest |H_ij − H_ji| relative to
// √(H_ii·H_jj), which shows the gradients' noise.
func Hessian(grads [][]float64, guess *mat.SymDense) (info *mat.SymDense, asymmetry float64) {
	p := len(grads) / 2
	h := mat.NewDense(p, p, nil)
	for i := range p {
		for j := range p {
			h.Set(i, j, (grads[2*i+1][j]-grads[2*i][j])/(2*stencilStep(guess, i)))
		}
	}
	info = mat.NewSymDense(p, nil)
	for i := range p {
		for j := range i + 1 {
			info.SetSym(i, j, (h.At(i, j)+h.At(j, i))/2)
			scale := math.Sqrt(math.Abs(h.At(i, i) * h.At(j, j)))
			asymmetry = max(asymmetry, math.Abs(h.At(i, j)-h.At(j, i))/scale)
		}
	}
	return info, asymmetry
}

// Information returns the climb's own estimate of the information where it has come to,
// good enough to guess with.
func (c *Climb) Information() *mat.SymDense {
	info := mat.NewSymDense(c.info.SymmetricDim(), nil)
	info.CopySym(c.info)
	return info
}

// Distinct returns the maxima that climbs have converged to, the highest first. Ends within
// apart standard deviations of a higher maximum, by the climb's estimate of either, are
// that maximum found again; what is at Info is that estimate too, to be replaced
// by Hessian's. apart is 1 if 0.
func Distinct(climbs []*Climb, apart float64) []*Maximum {
	if apart == 0 {
		apart = 1
	}
	var ends []*Maximum
	for _, c := range climbs {
		if c.End() == Converged {
			ends = append(ends, &Maximum{X: c.at.X, Value: c.at.Value, Info: c.Information(), Found: c.opt.Found})
		}
	}
	slices.SortStableFunc(ends, func(a, b *Maximum) int { return cmp.Compare(b.Value, a.Value) })
	var out []*Maximum
	for _, e := range ends {
		i := slices.IndexFunc(out, func(o *Maximum) bool {
			return min(o.Distance(e.X), e.Distance(o.X)) < apart
		})
		if i >= 0 {
			out[i].Found += e.Found
			continue
		}
		out = append(out, e)
	}
	return out
}
