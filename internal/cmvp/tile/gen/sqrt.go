package main

import "math"

// newtonRoots returns the square roots of vectors of float64, rounded as the divider rounds them, but by
// the multipliers of AVX-512. It clobbers x.
//
// From y ≈ 1/√x to 14 bits, g ≈ √x and h ≈ 1/(2√x) are refined together, twice (Goldschmidt's form of
// Newton's iteration; Markstein, Software division and square root using Goldschmidt's algorithms,
// RNC 6, 2004), to relative errors below 2⁻⁵¹. Then √x = g + (x−g²)·h to 2⁻¹⁰¹, which is rounded once. Only for roots
// as close as that to the middle of two numbers this says nothing: they are few, and tile.TestRoots takes them.
// y is bounded, so that the root of 0 is 0. Below 2⁻⁹⁶⁰ the residual underflows, and the last bits of the
// root may differ.
func (g *generator) newtonRoots(x []vec) []vec {
	y, h := g.vecs(len(x)), g.vecs(len(x))
	for i := range x {
		asm.VRSQRT14PD(x[i], y[i])
	}
	for i := range x {
		g.minConstant(y[i], math.Ldexp(1, 500))
	}
	half := g.pool.value(0.5)
	for i := range x {
		asm.VMULPD_BCST(half, y[i], h[i])
		g.mul(y[i], x[i], y[i])
	}
	for range 2 {
		r := g.vecs(len(x))
		for i := range x {
			g.bcast(half, r[i])
			g.fnma(y[i], h[i], r[i])
		}
		for i := range x {
			g.fma(y[i], r[i], y[i])
			g.fma(h[i], r[i], h[i])
		}
	}
	for i := range x {
		g.fnma(y[i], y[i], x[i])
	}
	for i := range x {
		g.fma(x[i], h[i], y[i])
	}
	return y
}
