package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
)

// exponential emits 2^t for t ≤ 0.
//
// AVX-512, float64: with m = ⌊8t⌋, 2^t = 2^⌊t⌋ · 2^((m mod 8)/8) · 2^r for
// r = t − m/8 in [0,1/8). The middle factor is looked up in a table of one
// vector, which makes the polynomial short. In float32 the polynomial is short
// enough without. VSCALEF takes ⌊t⌋ by itself and underflows to 0 for any t.
//
// AVX2 and NEON have no such instructions: 2^t = 2^⌊t⌋ · 2^r with r in [0,1), the
// exponent ⌊t⌋ is added to the bits of 2^r, and t is bounded from below where
// this gives 0.
type exponential struct {
	g    *generator
	coef []float64

	// Registers of the AVX-512 kernels.
	hoisted []vec // the first coefficients
	magic   vec   // adding it leaves m in the low bits
	table   vec   // nil without
}

// exponential prepares the constants, in registers as far as there are free
// ones, two at least.
func (g *generator) exponential(free int) *exponential {
	// Relative errors of 1e-15, 3e-16 and 1.1e-7.
	degree, width := 5, 1.0
	table := g.avx512() && g.elem == 8
	switch {
	case table:
		degree, width = 6, 1.0/8
	case g.elem == 8:
		degree = 10
	}
	e := &exponential{g: g, coef: exp2Poly(degree, width)}
	if table {
		e.magic = g.constant(math.Ldexp(1.5, g.mantissa()-3))
		e.table = g.vec()
		g.load(g.pool.exp2Table(), e.table)
		free -= 2
	}
	if g.avx512() {
		for _, c := range e.coef[:min(degree, free)] {
			e.hoisted = append(e.hoisted, g.constant(c))
		}
	}
	return e
}

// mantissa is the number of bits of the fraction.
func (g *generator) mantissa() int { return map[int]int{8: 52, 4: 23}[g.elem] }

// of returns 2^t. Without AVX-512 it clobbers t.
func (e *exponential) of(t []vec) []vec {
	g := e.g
	r, p := g.vecs(len(t)), g.vecs(len(t))
	if g.avx512() {
		floor := U8(1) // of t, or of 8t
		if e.table != nil {
			floor |= 3 << 4
		}
		for i := range t {
			g.op("", asm.VREDUCEPD, asm.VREDUCEPS)(floor, t[i], r[i])
		}
		e.polynomial(r, p)
		if e.table != nil {
			for i := range t {
				asm.VADDPD_RD_SAE(e.magic, t[i], r[i])
			}
			for i := range t {
				asm.VPERMPD(e.table, r[i], r[i])
			}
			for i := range t {
				g.mul(p[i], r[i], p[i])
			}
		}
		for i := range t {
			g.op("", asm.VSCALEFPD, asm.VSCALEFPS)(t[i], p[i], p[i])
		}
		return p
	}
	bits := g.mantissa()
	lowest := map[int]float64{8: -1023, 4: -127}[g.elem]
	for i := range t {
		g.max(t[i], g.pool.value(lowest), t[i])
	}
	for i := range t {
		g.round(t[i], p[i])
		g.sub(t[i], p[i], r[i])
		g.add(p[i], g.pool.value(math.Ldexp(1.5, bits)), t[i])
	}
	e.polynomial(r, p)
	for i := range t {
		g.shiftLeft(t[i], bits, t[i])
		g.addInts(p[i], t[i], p[i])
	}
	return p
}

// round sets dst = ⌊x⌋.
func (g *generator) round(x, dst vec) {
	switch {
	case g.neon():
		g.vector("frintm", dst, x)
	case g.elem == 8:
		asm.VROUNDPD(U8(1), x, dst)
	default:
		asm.VROUNDPS(U8(1), x, dst)
	}
}

// polynomial sets p to the polynomial in r. AVX2 has few registers: there each
// coefficient is loaded once for all chains.
func (e *exponential) polynomial(r, p []vec) {
	g := e.g
	if g.neon() {
		e.pairwise(r, p)
		return
	}
	last := len(e.coef) - 1
	for i := range p {
		g.setConstant(p[i], e.coef[last])
	}
	for k := last - 1; k >= 0; k-- {
		switch {
		case k < len(e.hoisted):
			for i := range p {
				p[i] = g.fma213(r[i], e.hoisted[k], p[i])
			}
		case g.avx512():
			for i := range p {
				p[i] = g.horner(r[i], e.coef[k], p[i])
			}
		default:
			x := g.constant(e.coef[k])
			for i := range p {
				p[i] = g.fma213(r[i], x, p[i])
			}
		}
	}
}

// pairwise sets p to the polynomial in r by pairs of coefficients, c + c'·r, as one in
// r². NEON's multiply-add sets what it adds to, so that each step of Horner's rule takes
// a copy of a coefficient; here every other one does, and half as many wait for each other.
func (e *exponential) pairwise(r, p []vec) {
	g, n := e.g, len(e.coef)
	square := g.vecs(len(r))
	for i := range r {
		g.mul(r[i], r[i], square[i])
	}
	first := (n - 1) / 2 * 2
	for k := first; k >= 0; k -= 2 {
		var odd vec
		if k+1 < n {
			odd = g.constant(e.coef[k+1])
		}
		for i := range p {
			x := g.constant(e.coef[k])
			if k+1 < n {
				g.fma(r[i], odd, x)
			}
			if k < first {
				g.fma(p[i], square[i], x)
			}
			p[i] = x
		}
	}
}
