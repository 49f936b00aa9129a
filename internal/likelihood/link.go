package likelihood

// Link returns the transform T with T(E[y|f]) = f, for targets whose expectation is a function of the latent one: log
// odds of classes, the logarithm of expected counts. It is that of no change where f is the target's own location.
func Link(l Likelihood) Transform {
	switch l.(type) {
	case Bernoulli:
		return Transform{Kind: Logit}
	case NegativeBinomial:
		return Transform{Kind: Log}
	}
	return Transform{}
}
