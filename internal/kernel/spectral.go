package kernel

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// Frequency fills w, d numbers, with a draw ω from the family's spectral
// density: E cos(ωᵀ(x−x')) = g(u) (Bochner; Rahimi and Recht 2007). It is
// Gaussian for RBF and Student's t with 2ν degrees of freedom for a Matérn of
// smoothness ν.
func (f Family) Frequency(r *rand.Rand, p Params, w []float64) {
	stretch := 1.0
	if f != RBF {
		nu2 := f.Rate() / 2
		chi := distuv.ChiSquared{K: nu2, Src: r}.Rand()
		stretch = math.Sqrt(nu2 / chi)
	}
	for k := range w {
		w[k] = stretch * r.NormFloat64() / Lengthscale(p.TauAt(k))
	}
}
