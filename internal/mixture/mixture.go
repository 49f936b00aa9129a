// Package mixture holds mixtures of multivariate Student t distributions, the
// proposals of independence Metropolis–Hastings and of importance sampling: their
// tails are heavier than a posterior's, so that importance weights stay bounded.
// Densities are normalised. Mixtures are fitted to draws by EM (Fit).
package mixture

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Mixture is a mixture of multivariate t distributions. Its methods may be called
// concurrently.
type Mixture struct {
	dim   int
	comps []component
}

// Component is one of the distributions: its weight in the mixture, its degrees of freedom ν,
// its mean, and its scale matrix S (for ν > 2 the covariance is S·ν/(ν−2)).
type Component struct {
	Weight  float64
	Degrees float64 // Heavy if 0
	Mean    []float64
	Scale   *mat.SymDense
}

// Heavy are degrees of freedom that make tails heavy enough to be safe.
const Heavy = 7

// component is a Component ready for use.
type component struct {
	Component
	root    *mat.TriDense // lower factor of Scale
	inverse []float64     // of root, row by row without the zeros
	logNorm float64       // log of weight and of the density's constant
}

// New returns the mixture of the components, whose weights it scales to a sum of 1.
// It is an error if a weight is not positive, or a scale is not positive definite. It
// panics if dimensions differ.
func New(comps []Component) (*Mixture, error) {
	if len(comps) == 0 {
		return nil, errors.New("mixture: no components")
	}
	m := &Mixture{dim: len(comps[0].Mean)}
	var total float64
	for _, c := range comps {
		total += c.Weight
	}
	for i, c := range comps {
		if c.Degrees == 0 {
			c.Degrees = Heavy
		}
		if !(c.Weight > 0) || math.IsInf(total, 0) || !(c.Degrees > 0) {
			return nil, fmt.Errorf("mixture: component %d has weight %g and %g degrees of freedom", i+1, c.Weight, c.Degrees)
		}
		if len(c.Mean) != m.dim || c.Scale.SymmetricDim() != m.dim {
			panic("mixture: components of different dimensions")
		}
		c.Weight /= total
		ready, err := m.prepare(c)
		if err != nil {
			return nil, fmt.Errorf("mixture: component %d: %w", i+1, err)
		}
		m.comps = append(m.comps, ready)
	}
	return m, nil
}

var errScale = errors.New("the scale matrix is not positive definite")

func (m *Mixture) prepare(c Component) (component, error) {
	var chol mat.Cholesky
	if !chol.Factorize(c.Scale) {
		return component{}, errScale
	}
	root := mat.NewTriDense(m.dim, mat.Lower, nil)
	chol.LTo(root)
	var inv mat.TriDense
	if err := inv.InverseTri(root); err != nil {
		return component{}, errScale
	}
	out := component{Component: c, root: root}
	for i := range m.dim {
		for j := range i + 1 {
			out.inverse = append(out.inverse, inv.At(i, j))
		}
	}
	p, nu := float64(m.dim), c.Degrees
	a, _ := math.Lgamma((nu + p) / 2)
	b, _ := math.Lgamma(nu / 2)
	out.logNorm = math.Log(c.Weight) + a - b - p/2*math.Log(nu*math.Pi) - chol.LogDet()/2
	return out, nil
}

// Join returns the mixture of mixtures with the given weights.
func Join(weights []float64, parts ...*Mixture) (*Mixture, error) {
	var comps []Component
	for i, m := range parts {
		for _, c := range m.comps {
			part := c.Component
			part.Weight *= weights[i]
			comps = append(comps, part)
		}
	}
	return New(comps)
}

// Dim returns the dimension.
func (m *Mixture) Dim() int { return m.dim }

// Len returns the number of components.
func (m *Mixture) Len() int { return len(m.comps) }

// Component returns component k, to read.
func (m *Mixture) Component(k int) Component { return m.comps[k].Component }

// distance returns (x−μ)ᵀS⁻¹(x−μ).
func (c *component) distance(x []float64) float64 {
	var sum float64
	row := c.inverse
	for i := range x {
		var z float64
		for j, v := range row[:i+1] {
			z += v * (x[j] - c.Mean[j])
		}
		sum += z * z
		row = row[i+1:]
	}
	return sum
}

// logDensity returns the log of the component's share of the density, given the
// distance.
func (m *Mixture) logDensity(c *component, distance float64) float64 {
	return c.logNorm - (c.Degrees+float64(m.dim))/2*math.Log1p(distance/c.Degrees)
}

// LogDensity returns the log density at x.
func (m *Mixture) LogDensity(x []float64) float64 {
	return m.Shares(make([]float64, len(m.comps)), x)
}

// Shares sets dst to the probabilities that x came from each component, and returns the
// log density at x.
func (m *Mixture) Shares(dst, x []float64) float64 {
	for k := range m.comps {
		c := &m.comps[k]
		dst[k] = m.logDensity(c, c.distance(x))
	}
	total := floats.LogSumExp(dst)
	for k, v := range dst {
		dst[k] = math.Exp(v - total)
	}
	return total
}

// Spread sets dst to R·z, R the lower factor of the scale of component k.
func (m *Mixture) Spread(k int, dst, z []float64) {
	mat.NewVecDense(m.dim, dst).MulVec(m.comps[k].root, mat.NewVecDense(m.dim, z))
}

// Distance returns (x−μ)ᵀS⁻¹(x−μ) for component k, and the logarithm of |S|.
func (m *Mixture) Distance(k int, x []float64) (distance, logDet float64) {
	c := &m.comps[k]
	for i := range m.dim {
		logDet += 2 * math.Log(c.root.At(i, i))
	}
	return c.distance(x), logDet
}

// Draw sets dst to a draw.
func (m *Mixture) Draw(r *rand.Rand, dst []float64) {
	u, k := r.Float64(), 0
	for ; k < len(m.comps)-1 && u >= m.comps[k].Weight; k++ {
		u -= m.comps[k].Weight
	}
	nu := m.comps[k].Degrees
	stretch := math.Sqrt(nu / distuv.ChiSquared{K: nu, Src: r}.Rand())
	z := make([]float64, m.dim)
	for i := range z {
		z[i] = stretch * r.NormFloat64()
	}
	m.Spread(k, dst, z)
	floats.Add(dst, m.comps[k].Mean)
}

// Moments returns the mean and the covariance of the mixture. It panics unless all
// components have more than 2 degrees of freedom.
func (m *Mixture) Moments() ([]float64, *mat.SymDense) {
	mean, cov := make([]float64, m.dim), mat.NewSymDense(m.dim, nil)
	for _, c := range m.comps {
		floats.AddScaled(mean, c.Weight, c.Mean)
	}
	off := make([]float64, m.dim)
	for _, c := range m.comps {
		floats.SubTo(off, c.Mean, mean)
		cov.SymRankOne(cov, c.Weight, mat.NewVecDense(m.dim, off))
		if c.Degrees <= 2 {
			panic("mixture: no covariance")
		}
		var part mat.SymDense
		part.ScaleSym(c.Weight*c.Degrees/(c.Degrees-2), c.Scale)
		cov.AddSym(cov, &part)
	}
	return mean, cov
}

// Defend returns the mixture with heavier tails, which bound the importance weights where the
// fit has missed something: to half of the given weight its components again with their scales
// times spread², and to the other half one of the mixture's own mean and of its covariance
// times spread².
func (m *Mixture) Defend(weight, spread float64) (*Mixture, error) {
	mean, cov := m.Moments()
	cov.ScaleSym(spread*spread*(Heavy-2.0)/Heavy, cov)
	comps := []Component{{Weight: weight / 2, Mean: mean, Scale: cov}}
	for _, c := range m.comps {
		wide := mat.NewSymDense(m.dim, nil)
		wide.ScaleSym(spread*spread, c.Scale)
		comps = append(comps,
			Component{(1 - weight) * c.Weight, c.Degrees, c.Mean, c.Scale},
			Component{Weight: weight / 2 * c.Weight, Mean: c.Mean, Scale: wide})
	}
	return New(comps)
}
