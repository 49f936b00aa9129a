package likelihood

// Link returns the transform T with T(E[y|f]) = f, for targets whose expectation is a function of the latent one: log
// odds or probits of classes and of a trial's success, the logarithm of expected counts. It is that of no change where f is the target's own location.
func Link(l Likelihood) Transform {
	switch l.(type) {
	case Bernoulli, Binomial:
		return Transform{Kind: Logit}
	case Probit, NoisyLabels:
		return Transform{Kind: Normit}
	case Poisson, NegativeBinomial:
		return Transform{Kind: Log}
	}
	return Transform{}
}
