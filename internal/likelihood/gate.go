package likelihood

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// A gate is a latent function g that says of which of two kinds a row is: with probability Φ(m+g) it is ordinary, else it is not. m is
// −Φ⁻¹(s), s, a parameter, being the share of rows that are not ordinary where g is 0 (Naish-Guzman 2007, section 3.2, which has m for it).

// shareOf returns the parameter that is s.
func shareOf(symbol string) param.Param {
	return param.Param{Symbol: symbol, Role: param.Share, Transform: param.Interval(0, 1)}
}

// opening returns m.
func opening(share float64) float64 { return -normalQuantile(share) }

// openingMean returns the mean of Φ(m+g) where g is normal.
func openingMean(share, mean, variance float64) float64 {
	return normalCDF((opening(share) + mean) / math.Sqrt(1+variance))
}

// branch is log p(y|f) of a row of one kind, with its derivative in f and minus the second one, which is not negative.
type branch struct{ value, score, curvature float64 }

// leastCurvature keeps quotients finite where a curvature has underflowed.
const leastCurvature = 1e-300

// gated returns log(Φ(a)·e^ordinary + Φ(−a)·e^other), a = m+g, and sets the gradient in (f,g) and a curvature where score is not nil.
//
// The curvature is that of the normal distribution which has, under a flat prior, the variance of the two kinds together: with D that of each kind,
// on average over the kinds given y, and d the difference of their scores, (D⁻¹ + r(1−r)·D⁻¹d·dᵀD⁻¹)⁻¹, the variance within a kind plus that
// between them, r being the probability that the row is ordinary. Minus the Hessian is D − r(1−r)·ddᵀ: the same to the first order,
// and not positive where the kinds are far apart.
func gated(a float64, ordinary, other branch, score, curvature []float64) float64 {
	in, out := ordinary.value+logNormalTail(-a), other.value+logNormalTail(a)
	if score != nil {
		r, s := 1/(1+math.Exp(out-in)), 1/(1+math.Exp(in-out))
		up, down := hazard(-a), hazard(a) // of log Φ(a), and of log Φ(−a) with the sign turned
		score[0], score[1] = r*ordinary.score+s*other.score, r*up-s*down
		df, dg := ordinary.score-other.score, up+down
		cf := max(leastCurvature, r*ordinary.curvature+s*other.curvature)
		cg := max(leastCurvature, r*up*(up+a)+s*down*(down-a))
		u, v := r*s*df*df/cf, r*s*dg*dg/cg
		cross := -r * s * df * dg / (1 + u + v)
		curvature[0], curvature[1] = cf*(1+v)/(1+u+v), cross
		curvature[2], curvature[3] = cross, cg*(1+u)/(1+u+v)
	}
	return max(in, out) + math.Log1p(math.Exp(-math.Abs(in-out)))
}
