// Package solve solves K·x = b for a symmetric positive definite K that is
// known only by its products: block preconditioned conjugate gradients (Solve),
// the unbiased early stopping of ULISSE (Estimate), and Lanczos for K^{-1/2}
// (InvSqrt).
//
// All right-hand sides share each product with K; every column has its own
// coefficients and leaves the block when it is done, so a column's iterates do
// not depend on the columns beside it.
package solve
