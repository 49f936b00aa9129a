package likelihood

// Concave reports whether log p(y|f) is a concave, smooth function of one latent function: then its posterior has one mode, which
// Newton's method finds, and Gaussian approximations of it are good proposals.
func Concave(l Likelihood) bool {
	switch Base(l).(type) {
	case Gaussian, Bernoulli, Probit, Binomial, Ordinal, NegativeBinomial, Poisson, Volatility:
		return true
	}
	return false
}

// Integrable reports whether, moreover, its integral with a normal density is told by a rule of equal steps around the mode
// (package ep), however wide the density is. Volatility's is not: it is a wall on one side and falls slowly on the other.
func Integrable(l Likelihood) bool {
	_, wall := Base(l).(Volatility)
	return Concave(l) && !wall
}
