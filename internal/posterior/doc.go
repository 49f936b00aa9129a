// Package posterior holds the log posterior density of the covariance
// parameters of a Gaussian process regression, y ~ N(0, K_f(θ) + λ·1), on
// ψ = log θ: priors with their Jacobian (Prior), unbiased estimates of its
// gradient from solves alone (Estimator), and the dense Cholesky oracle for
// small n that both are tested against (Dense).
//
// With a = K⁻¹y the gradient is
//
//	g_i = ½ aᵀ(∂_iK)a − ½ tr(K⁻¹∂_iK) + ∂_i log p(ψ)
//
// (Filippone and Engler 2015, eq. 8, with the ½ of the quadratic term that the
// print drops).
package posterior
