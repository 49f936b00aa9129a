// Package sgld holds the transition kernels that draw ψ: stochastic gradient
// Langevin dynamics as published (SGLD), Fisher-matched Langevin (Fisher), and
// exact Metropolis–Hastings with a dense likelihood, the oracle (Metropolis).
//
// A kernel is a function of the state, the gradient and a stream of random
// numbers; it keeps nothing between steps. What adapts is in the settings that
// it is made from, and is changed between windows of warm-up only.
package sgld
