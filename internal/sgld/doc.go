// Package sgld holds the transition kernels that draw ψ: stochastic gradient
// Langevin dynamics as published (SGLD), Fisher-matched Langevin (Fisher),
// Leimkuhler and Matthews's dynamics (Leimkuhler), and exact Metropolis–Hastings
// on a density that can be evaluated (Metropolis).
//
// A kernel is a function of the state, the gradient and a stream of random
// numbers; it keeps nothing between steps. What adapts is in the settings that
// it is made from, and is changed between windows of warm-up only.
package sgld
