package evidence

import (
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Stationary is the covariance σ·g(u) + λ·1, u = Σ_k τ_k (x_ik−x_jk)², with one shared
// τ or one for each input. Its parameters are log σ, log τ_1 … log τ_m, log λ.
type Stationary struct {
	family kernel.Family
	n, d   int
	m      int       // number of τ
	x      []float64 // n×d, row by row
	centre []float64 // mean of each input

	sigma, lambda float64
	z             []float64 // scaled inputs in panels, as tile's kernels want them
	eval          *tile.Kernels[float64]
	forms         *tile.FormKernels
	spaces        [][]float64 // by worker: strips of g, g' and of weights
}

// NewStationary returns the covariance of the n×d inputs stored row by row in x. Set
// must be called before it is used. It panics if the sizes disagree, or if
// tile.Default has an error.
func NewStationary(f kernel.Family, ard bool, d int, x []float64, b *parallel.Budget) *Stationary {
	if d < 1 || len(x) == 0 || len(x)%d != 0 {
		panic(fmt.Sprintf("evidence: %d numbers for inputs of dimension %d", len(x), d))
	}
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	s := &Stationary{family: f, n: len(x) / d, d: d, m: 1, x: x, centre: make([]float64, d),
		eval: tile.For[float64](isa), forms: tile.FormsFor(isa), spaces: make([][]float64, b.MaxWorkers())}
	if ard {
		s.m = d
	}
	for i, v := range x {
		s.centre[i%d] += v / float64(s.n)
	}
	s.z = make([]float64, tile.Pad(s.n)*d)
	for i := range s.spaces {
		s.spaces[i] = make([]float64, 3*tile.Strip*tile.Size)
	}
	return s
}

// Len returns n.
func (s *Stationary) Len() int { return s.n }

// NumParams returns the number of parameters.
func (s *Stationary) NumParams() int { return s.m + 2 }

// most is where scaled inputs saturate, so that no power of a distance overflows.
const most = 1e100

// Set sets the parameters, the logarithms of σ, τ and λ.
func (s *Stationary) Set(psi []float64) {
	if len(psi) != s.NumParams() {
		panic(fmt.Sprintf("evidence: %d parameters, want %d", len(psi), s.NumParams()))
	}
	s.sigma, s.lambda = math.Exp(psi[0]), math.Exp(psi[len(psi)-1])
	for k := range s.d {
		tau := math.Exp(psi[1+min(k, s.m-1)])
		factor := math.Sqrt(tau * math.Log2E) // RBF: g = 2^(−w)
		if s.family != kernel.RBF {           // Matérn: exp(−√(cu)) = 2^(−√w)
			factor = math.Sqrt(s.family.Rate()*tau) * math.Log2E
		}
		for i := range s.n {
			z := (s.x[i*s.d+k] - s.centre[k]) * factor
			s.z[(i/tile.Panel*s.d+k)*tile.Panel+i%tile.Panel] = max(-most, min(most, z))
		}
	}
}

// unscaled returns q with u = q·w.
func (s *Stationary) unscaled() float64 {
	if s.family == kernel.RBF {
		return math.Ln2
	}
	return math.Ln2 * math.Ln2 / s.family.Rate()
}

// packed returns the inputs from row i on.
func (s *Stationary) packed(i int) []float64 {
	return s.z[i/tile.Panel*tile.Panel*s.d+i%tile.Panel:]
}

// Fill sets k to the elements of a strip.
func (s *Stationary) Fill(p cholesky.Strip, k []float64) {
	panels := tile.Panels(p.IHi - p.ILo)
	s.eval.Eval[s.family](k, s.packed(p.JLo), s.packed(p.ILo), s.d, panels)
	for c := range p.JHi - p.JLo {
		col := k[c*tile.Size:][:p.IHi-p.ILo]
		for i := range col {
			col[i] *= s.sigma
		}
		if p.Diagonal() {
			col[p.JLo+c-p.ILo] += s.lambda
		}
	}
}

// Forms adds the weighted derivatives of a strip to the sums.
func (s *Stationary) Forms(p cholesky.Strip, sum [][]float64, w [][]float64) {
	const size = tile.Strip * tile.Size
	k, h, m := s.spaces[p.Worker][:size], s.spaces[p.Worker][size:2*size], s.spaces[p.Worker][2*size:]
	panels := tile.Panels(p.IHi - p.ILo)
	zi, zj := s.packed(p.JLo), s.packed(p.ILo)
	deriv := s.forms.Deriv[s.family]
	if s.m == 1 {
		deriv = s.forms.ScaledDeriv[s.family]
	}
	deriv(k, h, zi, zj, s.d, panels)
	spread := make([]float64, s.d)
	for g, weights := range w {
		to := sum[g]
		clear(spread)
		for c := range tile.Strip {
			at := c * tile.Size
			for i, x := range weights[at:][:panels*tile.Panel] {
				to[0] += s.sigma * x * k[at+i]
				m[at+i] = x * h[at+i]
			}
			if j := p.JLo + c; p.Diagonal() && j < p.JHi {
				to[s.m+1] += s.lambda * weights[at+j-p.ILo]
			}
		}
		if s.m == 1 {
			for c := range tile.Strip {
				for _, x := range m[c*tile.Size:][:panels*tile.Panel] {
					to[1] += s.sigma * x
				}
			}
			continue
		}
		s.forms.Spread(spread, m, zi, zj, s.d, panels)
		for i, x := range spread {
			to[1+i] += s.sigma * s.unscaled() * x
		}
	}
}
