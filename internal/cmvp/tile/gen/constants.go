package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// constants is the read-only data of the kernels of one instruction set and
// precision. AVX-512 instructions broadcast an operand from memory; the others
// cannot, and their constants are stored as full vectors.
type constants struct {
	g    *generator
	at   Mem
	size int // bytes so far
	seen map[float64]Mem

	table *Mem
}

func (c *constants) init(g *generator) {
	c.g, c.seen = g, map[float64]Mem{}
	c.at = asm.StaticGlobal(fmt.Sprintf("%sConst%d", g.isa, 8*g.elem))
	asm.DataAttributes(build.RODATA | build.NOPTR)
}

func (c *constants) append(x float64) {
	var v Constant = F64(x)
	if c.g.elem == 4 {
		v = F32(x)
	}
	asm.AddDatum(c.size, v)
	c.size += c.g.elem
}

// value returns where x is, once or in every lane.
func (c *constants) value(x float64) Mem {
	if m, ok := c.seen[x]; ok {
		return m
	}
	m := c.at.Offset(c.size)
	c.seen[x] = m
	c.append(x)
	for i := 1; i < c.g.lanes() && !c.g.avx512(); i++ {
		c.append(x)
	}
	return m
}

// exp2Table returns where the vector of 2^(i/8) is.
func (c *constants) exp2Table() Mem {
	if c.table == nil {
		m := c.at.Offset(c.size)
		for i := range 8 {
			c.append(math.Exp2(float64(i) / 8))
		}
		c.table = &m
	}
	return *c.table
}

// constant returns a register that holds x in every lane.
func (g *generator) constant(x float64) vec {
	r := g.vec()
	g.setConstant(r, x)
	return r
}

func (g *generator) setConstant(r vec, x float64) {
	m := g.pool.value(x)
	if g.avx512() {
		g.bcast(m, r)
	} else {
		g.load(m, r)
	}
}

// horner returns p·x + c and may clobber p.
func (g *generator) horner(x vec, c float64, p vec) vec {
	m := g.pool.value(c)
	if g.avx512() {
		g.op("", asm.VFMADD213PD_BCST, asm.VFMADD213PS_BCST)(m, x, p)
		return p
	}
	return g.fma213(x, m, p)
}

// mulConstant sets x = x·c.
func (g *generator) mulConstant(x vec, c float64) {
	m := g.pool.value(c)
	if g.avx512() {
		g.op("", asm.VMULPD_BCST, asm.VMULPS_BCST)(m, x, x)
	} else {
		g.mul(x, m, x)
	}
}

// minConstant sets x = min(x, c).
func (g *generator) minConstant(x vec, c float64) {
	m := g.pool.value(c)
	if g.avx512() {
		g.op("", asm.VMINPD_BCST, asm.VMINPS_BCST)(m, x, x)
	} else {
		g.op("fmin", asm.VMINPD, asm.VMINPS)(m, x, x)
	}
}

// addConstant sets x = x + c.
func (g *generator) addConstant(x vec, c float64) {
	m := g.pool.value(c)
	if g.avx512() {
		g.op("", asm.VADDPD_BCST, asm.VADDPS_BCST)(m, x, x)
	} else {
		g.add(x, m, x)
	}
}
