package main

import (
	. "github.com/mmcloughlin/avo/operand"
)

// update emits c −= a·bᵀ for strips stored column by column. Elements of c stay
// in registers while all k columns pass, so that no bit depends on how the
// columns are cut into calls.
func (g *generator) update() {
	g.text("Update", "func(c, a, b []T, ld, strips, k int)",
		"subtracts the product of strips of a and the strip b, transposed, from strips of c.")
	c, a, b := base("c"), base("a"), base("b")
	ld, strips, k := scaled(word("ld"), g.elem), word("strips"), word("k")
	most, cols := 1, strip/2 // what there are registers for
	if g.avx512() {
		most, cols = 2, strip
	}
	byColumns(strips, most, func(n int) {
		for from := 0; from < strip; from += cols {
			g.updateBlock(c, a, b, ld, k, n, from, cols)
		}
		for range n {
			asm.ADDQ(ld, a)
			asm.ADDQ(ld, c)
		}
	})
	g.ret()
}

// updateBlock emits the update of columns [from, from+cols) of n strips.
func (g *generator) updateBlock(c, a, b, ld, k gp, n, from, cols int) {
	const unroll = 4
	colBytes := strip * g.elem
	var rows []Mem // the vectors of a column, relative to a base
	for q := 0; q < colBytes; q += g.width {
		rows = append(rows, Mem{Disp: q})
	}
	if n == 2 {
		for _, m := range rows {
			m.Index, m.Scale = ld, 1
			rows = append(rows, m)
		}
	}
	at := func(base gp, m Mem, disp int) Mem {
		m.Base = base
		m.Disp += disp
		return m
	}
	acc := make([][]vec, len(rows))
	for r, m := range rows {
		acc[r] = g.vecs(cols)
		for j := range cols {
			g.load(at(c, m, (from+j)*colBytes), acc[r][j])
		}
	}
	ak, bk, left := copied(a), copied(b), copied(k)
	asm.SHRQ(U8(2), left)
	repeat(left, func() {
		for u := range unroll {
			x := g.vecs(len(rows))
			for r, m := range rows {
				g.load(at(ak, m, u*colBytes), x[r])
			}
			col := g.elements(Mem{Base: bk, Disp: u*colBytes + from*g.elem}, cols)
			for j := range cols {
				y := col(j)
				for r := range x {
					g.fnma(x[r], y, acc[r][j])
				}
			}
		}
		advance(ak, unroll*colBytes)
		advance(bk, unroll*colBytes)
	})
	for r, m := range rows {
		for j := range cols {
			g.store(acc[r][j], at(c, m, (from+j)*colBytes))
		}
	}
}

// solve emits c = c·l⁻ᵀ for strips of c and a lower triangle l of strip rows, by
// substitution.
func (g *generator) solve() {
	g.text("Solve", "func(c, l, inv []T, ld, strips int)",
		"multiplies strips of c by the inverse of the triangle l, transposed.")
	c, l, inv := base("c"), base("l"), base("inv")
	ld, strips := scaled(word("ld"), g.elem), word("strips")
	colBytes := strip * g.elem
	byColumns(strips, 1, func(int) {
		for q := 0; q < colBytes; q += g.width {
			x := g.vecs(strip)
			for j := range x {
				g.load(Mem{Base: c, Disp: j*colBytes + q}, x[j])
				for k := range j {
					y := g.vec()
					g.bcast(Mem{Base: l, Disp: k*colBytes + j*g.elem}, y)
					g.fnma(x[k], y, x[j])
				}
				y := g.vec()
				g.bcast(Mem{Base: inv, Disp: j * g.elem}, y)
				g.mul(x[j], y, x[j])
				g.store(x[j], Mem{Base: c, Disp: j*colBytes + q})
			}
		}
		asm.ADDQ(ld, c)
	})
	g.ret()
}
