package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
)

// The profiles of a shape a, as in package kernel: w is u itself.

// shape returns a register that holds the shape in every lane.
func (e *evaluation) shape() vec {
	arg, err := asm.Param("shape").Resolve()
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
	e.div(y, c, c)
	times := e.exponent(2)
	return func(x []vec, at func(i int) Mem) {
		r, t, p := e.vecs(len(x)), e.vecs(len(x)), e.vecs(len(x)) // t = max(0, 1−r), p = t^(a−1)
		for i := range x {
			e.mul(x[i], c, r[i])
			e.sqrt(r[i], r[i])
			e.sub(one, r[i], t[i])
			e.zero(p[i])
			e.max(t[i], p[i], t[i])
			e.move(t[i], p[i])
		}
		repeat(copied(times), func() {
			for i := range x {
				e.mul(p[i], t[i], p[i])
			}
		})
		for i := range x {
			e.mul(t[i], p[i], t[i])
			r[i] = e.fma213(a, one, r[i])
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

// wendland0 emits g = (1−r)^a, r = √(2u)/a, and 0 beyond r = 1. t^(a−1) is g/t: a may be 1.
func (e *evaluation) wendland0() mapping {
	a, one, c, y := e.shape(), e.constant(1), e.vec(), e.vec()
	e.mul(a, a, c)
	e.setConstant(y, 2)
	e.div(y, c, c)
	times := e.exponent(0)
	return func(x []vec, at func(i int) Mem) {
		r, t := e.hats(x, c, one)
		g := e.vecs(len(x))
		for i := range g {
			e.setConstant(g[i], 1)
		}
		e.power(g, t, times)
		for i := range x {
			e.store(g[i], at(i))
			switch e.out {
			case derivs: // −t^(a−1)/(a·r)
				e.mul(a, r[i], r[i])
				e.max(e.constant(tiny), r[i], r[i])
				e.max(e.constant(tiny), t[i], t[i])
				e.div(g[i], t[i], g[i])
				e.mulConstant(g[i], -1)
				e.div(g[i], r[i], g[i])
				e.storeDeriv(g[i], at(i))
			case scaledDerivs: // −t^(a−1)·a·r/2
				e.mul(a, r[i], r[i])
				e.max(e.constant(tiny), t[i], t[i])
				e.div(g[i], t[i], g[i])
				e.mulConstant(g[i], -0.5)
				e.mul(r[i], g[i], g[i])
				e.storeDeriv(g[i], at(i))
			}
		}
	}
}

// wendland2 emits g = (1−r)^a·(1+a·r+(a²−1)/3·r²), r = √(6u/((a+1)(a+2))), and 0 beyond r = 1.
func (e *evaluation) wendland2() mapping {
	a, one, c, square, less := e.shape(), e.constant(1), e.vec(), e.vec(), e.vec()
	e.add(a, one, square)
	e.add(square, one, c)
	e.mul(square, c, c)
	e.setConstant(square, 6)
	e.div(square, c, c)
	e.mul(a, a, square) // (a²−1)/3
	e.addConstant(square, -1)
	e.mulConstant(square, 1.0/3)
	e.add(a, e.constant(-1), less)
	times := e.exponent(2)
	return func(x []vec, at func(i int) Mem) {
		r, t := e.hats(x, c, one)
		p := e.vecs(len(x)) // t^(a−1)
		for i := range p {
			e.move(t[i], p[i])
		}
		e.power(p, t, times)
		for i := range x {
			e.mul(p[i], t[i], t[i])
			if e.out != values {
				y := e.vec()
				e.mul(less, r[i], y)
				e.add(y, one, y)
				e.mul(p[i], y, p[i])
				e.mulConstant(p[i], -1)
				if e.out == scaledDerivs {
					e.mul(p[i], x[i], p[i])
				}
				e.storeDeriv(p[i], at(i))
			}
			y := e.vec()
			e.mul(square, r[i], y)
			e.add(y, a, y)
			r[i] = e.fma213(y, one, r[i])
			e.mul(t[i], r[i], t[i])
			e.store(t[i], at(i))
		}
	}
}

// exponent returns a register with the shape, a whole number, less another.
func (e *evaluation) exponent(less uint8) gp {
	times := asm.GP64()
	arg, _ := asm.Param("shape").Resolve()
	if e.neon() {
		e.wholeNEON(arg.Addr, times)
	} else if e.elem == 8 {
		asm.CVTTSD2SQ(arg.Addr, times)
	} else {
		asm.CVTTSS2SL(arg.Addr, times.As32())
	}
	if less > 0 {
		asm.SUBQ(U8(less), times)
	}
	return times
}

// hats returns r = √(c·x) and t = max(0, 1−r).
func (e *evaluation) hats(x []vec, c, one vec) (r, t []vec) {
	r, t = e.vecs(len(x)), e.vecs(len(x))
	zero := e.vec()
	e.zero(zero)
	for i := range x {
		e.mul(x[i], c, r[i])
		e.sqrt(r[i], r[i])
		e.sub(one, r[i], t[i])
		e.max(t[i], zero, t[i])
	}
	return r, t
}

// power multiplies p by t, one time or more.
func (e *evaluation) power(p, t []vec, times gp) {
	repeat(copied(times), func() {
		for i := range t {
			e.mul(p[i], t[i], p[i])
		}
	})
}

// rational emits g = (1+u/a)^(−a) = 2^(−a·log₂ s), s = 1 + u/a.
func (e *evaluation) rational() mapping {
	minus, inverse := e.shape(), e.vec() // −a and 1/a
	e.setConstant(inverse, 1)
	e.div(inverse, minus, inverse)
	e.mulConstant(minus, -1)
	exp := e.exponential(32 - 6*e.chains - 2)
	return func(x []vec, at func(i int) Mem) {
		t, q := e.vecs(len(x)), e.vecs(len(x)) // t = log₂ g, q what the derivative is in units of g
		for i := range x {
			s, l := e.vec(), e.vec()
			e.mul(x[i], inverse, l)
			t[i] = e.log2of1p(l, s, t[i])
			e.mul(t[i], minus, t[i])
			switch e.out {
			case derivs:
				e.setConstant(q[i], -1)
				e.div(q[i], s, q[i])
			case scaledDerivs:
				e.div(x[i], s, q[i])
				e.mulConstant(q[i], -1)
			case shapeDerivs:
				e.div(x[i], s, q[i])
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

// log2of1p sets s = 1 + x and returns log₂(1+x), x ≥ 0, which is accurate for small x too: x = ∞ counts as the
// power of two after the largest number. It clobbers l.
//
// s = m·2^k with m in [3/4,3/2), by its bits; f = m − 1, or x itself where k = 0; and
// log₂ m = t·P(t²), t = f/(2+f), |t| ≤ 1/5.
func (g *generator) log2of1p(x, s, l vec) vec {
	// Relative errors of 3e-17 and 3e-9.
	degree := map[int]int{8: 7, 4: 3}[g.elem]
	coef, bits := log2Poly(degree, 1.0/25), g.mantissa()
	three, whole := g.constant(0.75), g.constant(math.Ldexp(1, bits))
	k, f := g.vec(), g.vec()
	g.setConstant(s, 1)
	g.add(s, x, s)
	g.subInts(s, three, k)
	g.shiftRight(k, bits, k)
	g.shiftLeft(k, bits, f)
	g.subInts(s, f, f) // m
	g.addInts(k, whole, k)
	g.sub(k, whole, k) // as a number
	g.addConstant(f, -1)
	g.chooseBelow(s, 1.5, x, f)

	y, v := g.vec(), g.vec()
	g.setConstant(y, 2)
	g.add(y, f, y)
	g.div(f, y, f) // t
	g.mul(f, f, v)
	g.setConstant(l, coef[degree])
	for i := degree - 1; i >= 0; i-- {
		l = g.horner(v, coef[i], l)
	}
	return g.fma213(f, k, l)
}

// chooseBelow sets f = x where s < c.
func (g *generator) chooseBelow(s vec, c float64, x, f vec) {
	const less = U8(1)
	limit := g.constant(c)
	switch {
	case g.neon():
		g.vector("fcmgt", limit, limit, s)
		g.vector("bit", f, x, limit)
	case g.avx512():
		mask := asm.K()
		g.op("", asm.VCMPPD, asm.VCMPPS)(less, limit, s, mask)
		g.op("", asm.VBLENDMPD, asm.VBLENDMPS)(x, f, mask, f)
	default:
		g.op("", asm.VCMPPD, asm.VCMPPS)(less, limit, s, limit)
		if g.elem == 8 {
			asm.VBLENDVPD(limit, x, f, f)
		} else {
			asm.VBLENDVPS(limit, x, f, f)
		}
	}
}
