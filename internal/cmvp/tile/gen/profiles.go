package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// The profiles of a shape a, as in package kernel: w is u itself.

// shape returns a register that holds the shape in every lane.
func (e *evaluation) shape() vec {
	arg, err := Param("shape").Resolve()
	if err != nil {
		panic(err)
	}
	r := e.vec()
	e.bcast(arg.Addr, r)
	return r
}

// storeDeriv stores y at the offset h from m.
func (e *evaluation) storeDeriv(y vec, m Mem) {
	m.Index, m.Scale = e.h, 1
	e.store(y, m)
}

// circular emits g = 1 − u.
func (e *evaluation) circular() mapping {
	one, minus := e.constant(1), e.constant(-1)
	return func(x []vec, at func(i int) Mem) {
		for i := range x {
			if e.out == derivs {
				e.storeDeriv(minus, at(i))
			}
			e.sub(one, x[i], x[i])
			e.store(x[i], at(i))
		}
	}
}

// mismatch emits g = exp(−a·u).
func (e *evaluation) mismatch() mapping {
	rate := e.shape()
	e.mulConstant(rate, -math.Log2E)
	exp := e.exponential(32 - 5*e.chains - 1)
	return func(x []vec, at func(i int) Mem) {
		log := e.vecs(len(x)) // of g
		for i := range x {
			e.mul(x[i], rate, x[i])
			if e.out == shapeDerivs {
				e.mul(x[i], e.constant(ln2), log[i])
			}
		}
		p := exp.of(x)
		for i := range p {
			if e.out == shapeDerivs {
				e.mul(log[i], p[i], log[i])
				e.storeDeriv(log[i], at(i))
			}
			e.store(p[i], at(i))
		}
	}
}

// wendland emits g = (1−r)^a·(1+a·r), r = √(2u/(a(a+1))), and 0 beyond r = 1. The power is by a loop
// over a, a whole number that grows with half the number of inputs.
func (e *evaluation) wendland() mapping {
	a, one, c := e.shape(), e.constant(1), e.vec()
	y := e.vec()
	e.add(a, one, c)
	e.mul(a, c, c)
	e.setConstant(y, 2)
	e.op(VDIVPD, VDIVPS)(c, y, c)
	times := GP64()
	arg, _ := Param("shape").Resolve()
	if e.elem == 8 {
		CVTTSD2SQ(arg.Addr, times)
	} else {
		CVTTSS2SL(arg.Addr, times.As32())
	}
	SUBQ(U8(2), times)
	return func(x []vec, at func(i int) Mem) {
		r, t, p := e.vecs(len(x)), e.vecs(len(x)), e.vecs(len(x)) // t = max(0, 1−r), p = t^(a−1)
		for i := range x {
			e.mul(x[i], c, r[i])
			e.op(VSQRTPD, VSQRTPS)(r[i], r[i])
			e.sub(one, r[i], t[i])
			e.zero(p[i])
			e.op(VMAXPD, VMAXPS)(p[i], t[i], t[i])
			e.op(VMOVAPD, VMOVAPS)(t[i], p[i])
		}
		repeat(copied(times), func() {
			for i := range x {
				e.mul(p[i], t[i], p[i])
			}
		})
		for i := range x {
			e.mul(t[i], p[i], t[i])
			e.fma213(a, one, r[i])
			e.mul(t[i], r[i], t[i])
			e.store(t[i], at(i))
			if e.out == values {
				continue
			}
			e.zero(r[i])
			e.sub(r[i], p[i], p[i])
			if e.out == scaledDerivs {
				e.mul(p[i], x[i], p[i])
			}
			e.storeDeriv(p[i], at(i))
		}
	}
}

// rational emits g = (1+u/a)^(−a) = 2^(−a·log₂ s), s = 1 + u/a.
func (e *evaluation) rational() mapping {
	minus, inverse := e.shape(), e.vec() // −a and 1/a
	e.setConstant(inverse, 1)
	e.op(VDIVPD, VDIVPS)(minus, inverse, inverse)
	e.mulConstant(minus, -1)
	exp := e.exponential(32 - 6*e.chains - 2)
	return func(x []vec, at func(i int) Mem) {
		t, q := e.vecs(len(x)), e.vecs(len(x)) // t = log₂ g, q what the derivative is in units of g
		for i := range x {
			s, l := e.vec(), e.vec()
			e.mul(x[i], inverse, l)
			e.log2of1p(l, s, t[i])
			e.mul(t[i], minus, t[i])
			switch e.out {
			case derivs:
				e.setConstant(q[i], -1)
				e.op(VDIVPD, VDIVPS)(s, q[i], q[i])
			case scaledDerivs:
				e.op(VDIVPD, VDIVPS)(s, x[i], q[i])
				e.mulConstant(q[i], -1)
			case shapeDerivs:
				e.op(VDIVPD, VDIVPS)(s, x[i], q[i])
				e.fma(t[i], e.constant(ln2), q[i])
			}
		}
		p := exp.of(t)
		for i := range p {
			if e.out != values {
				e.mul(q[i], p[i], q[i])
				e.storeDeriv(q[i], at(i))
			}
			e.store(p[i], at(i))
		}
	}
}

// log2of1p sets s = 1 + x and l = log₂(1+x), x ≥ 0, which is accurate for small x too: x = ∞ counts as the
// power of two after the largest number.
//
// s = m·2^k with m in [3/4,3/2), by its bits; f = m − 1, or x itself where k = 0; and
// log₂ m = t·P(t²), t = f/(2+f), |t| ≤ 1/5.
func (g *generator) log2of1p(x, s, l vec) {
	// Relative errors of 3e-17 and 3e-9.
	degree := map[int]int{8: 7, 4: 3}[g.elem]
	coef, bits := log2Poly(degree, 1.0/25), g.mantissa()
	three, whole := g.constant(0.75), g.constant(math.Ldexp(1, bits))
	k, f := g.vec(), g.vec()
	g.setConstant(s, 1)
	g.add(s, x, s)
	g.op(VPSUBQ, VPSUBD)(three, s, k)
	g.op(VPSRLQ, VPSRLD)(U8(bits), k, k)
	g.op(VPSLLQ, VPSLLD)(U8(bits), k, f)
	g.op(VPSUBQ, VPSUBD)(f, s, f) // m
	g.op(VPADDQ, VPADDD)(whole, k, k)
	g.sub(k, whole, k) // as a number
	g.addConstant(f, -1)
	g.chooseBelow(s, 1.5, x, f)

	y, v := g.vec(), g.vec()
	g.setConstant(y, 2)
	g.add(y, f, y)
	g.op(VDIVPD, VDIVPS)(y, f, f) // t
	g.mul(f, f, v)
	g.setConstant(l, coef[degree])
	for i := degree - 1; i >= 0; i-- {
		g.horner(v, coef[i], l)
	}
	g.fma213(f, k, l)
}

// chooseBelow sets f = x where s < c.
func (g *generator) chooseBelow(s vec, c float64, x, f vec) {
	const less = U8(1)
	limit := g.constant(c)
	if g.avx512() {
		mask := K()
		g.op(VCMPPD, VCMPPS)(less, limit, s, mask)
		g.op(VBLENDMPD, VBLENDMPS)(x, f, mask, f)
		return
	}
	g.op(VCMPPD, VCMPPS)(less, limit, s, limit)
	if g.elem == 8 {
		VBLENDVPD(limit, x, f, f)
	} else {
		VBLENDVPS(limit, x, f, f)
	}
}
