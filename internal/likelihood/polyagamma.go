package likelihood

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// polyaGamma draws from the Pólya–Gamma distribution PG(b, z), b = 1, 2, …: the sum of b draws of
// PG(1, z), each exact, by Devroye's method of alternating series as Polson, Scott and Windle
// (2013, section 4) have it. With J = J*(1, |z|/2), PG(1, z) is J/4.
func polyaGamma(r *rand.Rand, b int, z float64) float64 {
	z = math.Abs(z) / 2
	var sum float64
	for range b {
		sum += jacobi(r, z) / 4
	}
	return sum
}

// Of the part of PG(b, z) that is left when b is not a whole number.
const gammaTerms = 50

// polyaGammaReal draws from PG(b, z), b > 0: the whole part of b exactly, what is left of it, b', as the
// sum of gamma variables that the distribution is,
//
//	PG(b', z) = 1/(2π²)·Σ_k g_k/((k−½)² + z²/(4π²)),  g_k ~ Gamma(b', 1)
//
// (Polson, Scott and Windle 2013, eq. 1), of gammaTerms terms and the mean of all others, whose standard
// deviation is less than 1e-4.
func polyaGammaReal(r *rand.Rand, b, z float64) float64 {
	whole := math.Floor(b)
	sum := polyaGamma(r, int(whole), z)
	left := b - whole
	if left < 1e-9 {
		return sum
	}
	var drawn, mean float64
	for k := range gammaTerms {
		h := float64(k) + 0.5
		term := 1 / (2 * math.Pi * math.Pi * (h*h + z*z/(4*math.Pi*math.Pi)))
		drawn += term * distuv.Gamma{Alpha: left, Beta: 1, Src: r}.Rand()
		mean += term * left
	}
	return sum + drawn + max(0, polyaGammaMean(left, z)-mean)
}

// truncation is where the proposal's left part, inverse Gaussian, ends, and the right one,
// exponential, begins.
const truncation = 0.64

// jacobi draws from J*(1, z), z ≥ 0.
func jacobi(r *rand.Rand, z float64) float64 {
	rate := math.Pi*math.Pi/8 + z*z/2
	right := rightShare(z, rate)
	for {
		var x float64
		if r.Float64() < right {
			x = truncation + r.ExpFloat64()/rate
		} else {
			x = leftInverseGaussian(r, z)
		}
		sum := coefficient(0, x)
		y := r.Float64() * sum
		for n := 1; ; n++ {
			if n%2 == 1 {
				if sum -= coefficient(n, x); y <= sum {
					return x
				}
			} else if sum += coefficient(n, x); y > sum {
				break
			}
		}
	}
}

// coefficient is the n-th one of the alternating series of the density at x, in the form that
// falls with n on x's side of the truncation.
func coefficient(n int, x float64) float64 {
	k := (float64(n) + 0.5) * math.Pi
	if x > truncation {
		return k * math.Exp(-k*k*x/2)
	}
	h := float64(n) + 0.5
	return k * math.Exp(-1.5*math.Log(math.Pi*x/2)-2*h*h/x)
}

// rightShare is the share of the exponential part in the proposal.
func rightShare(z, rate float64) float64 {
	const t = truncation
	root := math.Sqrt(1 / t)
	x := math.Log(rate) + rate*t
	left := math.Exp(x-z+math.Log(normalCDF(root*(t*z-1)))) + math.Exp(x+z+math.Log(normalCDF(-root*(t*z+1))))
	return 1 / (1 + 4/math.Pi*left)
}

// leftInverseGaussian draws from the inverse Gaussian distribution of mean 1/z and shape 1, below
// the truncation.
func leftInverseGaussian(r *rand.Rand, z float64) float64 {
	const t = truncation
	if z < 1/t { // the mean is beyond it
		for {
			e := r.ExpFloat64()
			for e2 := r.ExpFloat64(); e*e > 2*e2/t; e2 = r.ExpFloat64() {
				e = r.ExpFloat64()
			}
			x := t / ((1 + t*e) * (1 + t*e))
			if r.Float64() <= math.Exp(-z*z*x/2) {
				return x
			}
		}
	}
	mu := 1 / z
	for {
		n := r.NormFloat64()
		y := mu * n * n
		x := mu + mu/2*(y-math.Sqrt(4*y+y*y))
		if r.Float64() > mu/(mu+x) {
			x = mu * mu / x
		}
		if x <= t {
			return x
		}
	}
}

// polyaGammaMean is the mean of PG(b, z): b·tanh(z/2)/(2z).
func polyaGammaMean(b, z float64) float64 {
	if math.Abs(z) < 1e-4 {
		return b * (1 - z*z/12) / 4
	}
	return b * math.Tanh(z/2) / (2 * z)
}
