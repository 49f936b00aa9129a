// Package posterior holds the log posterior density of the parameters of a
// covariance and a likelihood, given targets that are Gaussian: z ~ N(0, K),
// K = K_f(θ) + diag(noise). It is a density of ψ, the parameters on the scale on
// which they are sampled: priors with their Jacobian (package param), unbiased
// estimates of its gradient from solves alone (Estimator), and the dense Cholesky
// oracle for small n that both are tested against (Dense).
//
// With a = K⁻¹z the gradient is
//
//	g_i = ½ aᵀ(∂_iK)a − ½ tr(K⁻¹∂_iK) + ∂_i log p(ψ)
//
// (Filippone and Engler 2015, eq. 8, with the ½ of the quadratic term that the
// print drops). ∂_iK is the covariance's for its parameters, and diagonal, the
// derivative of the noise, for the likelihood's.
package posterior
