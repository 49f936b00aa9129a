package main

import (
	. "github.com/mmcloughlin/avo/operand"
)

// columnsAtOnce is the number of columns that a strip is applied to at once:
// as many as there are registers for, since it decides how often an element
// of the strip is loaded.
func (g *generator) columnsAtOnce() int {
	if g.registers() == 32 {
		return 3
	}
	return 1
}

// direct emits y[c·ldy+r] += Σ_j k[r,j]·v[c,j]. The sums of a strip's rows for
// one column are lanes of registers until the end.
func (g *generator) direct() {
	g.text("Direct", "func(y []float64, ldy int, k, next, v []T, s, panels int)",
		"adds a strip times s columns of v to y.")
	y, ldy, k, v := base("y"), scaled(word("ldy"), 8), base("k"), base("v")
	s, panels := word("s"), word("panels")
	colBytes := size * g.elem
	next := base("next")

	byColumns(s, g.columnsAtOnce(), func(c int) {
		sums := make([][]vec, c)
		for i := range sums {
			sums[i] = g.zeros(strip)
		}
		kj, vj := copied(k), copied(v)
		repeat(copied(panels), func() {
			prefetch(next, c)
			for q := 0; q < panel*g.elem; q += g.width {
				x := g.vecs(c)
				for i := range x {
					g.load(Mem{Base: vj, Disp: i*colBytes + q}, x[i])
				}
				for r := range strip {
					m := Mem{Base: kj, Disp: r*colBytes + q}
					if c == 1 {
						g.fma(x[0], m, sums[0][r])
						continue
					}
					e := g.vec()
					g.load(m, e)
					for i := range x {
						g.fma(x[i], e, sums[i][r])
					}
				}
			}
			advance(kj, panel*g.elem)
			advance(vj, panel*g.elem)
		})
		for _, sum := range sums {
			g.addRows(y, sum)
			asm.ADDQ(ldy, y)
		}
		advance(v, c*colBytes)
	})
	g.ret()
}

// trans emits y[c,j] += Σ_r k[r,j]·v[c·ldv+r].
func (g *generator) trans() {
	g.text("Trans", "func(y, k, next, v []T, ldv, s, panels int)",
		"adds a transposed strip times s columns of v to y.")
	y, k, v := base("y"), base("k"), base("v")
	ldv, s, panels := scaled(word("ldv"), g.elem), word("s"), word("panels")
	colBytes := size * g.elem
	next := base("next")
	unlessNil(next, func() {
		advance(next, strip*colBytes/2) // direct begins with the first half
	})

	byColumns(s, g.columnsAtOnce(), func(c int) {
		x := make([][]vec, c)
		for i := range x {
			x[i] = g.vecs(strip)
			for r, e := range x[i] {
				g.bcast(Mem{Base: v, Disp: r * g.elem}, e)
			}
			asm.ADDQ(ldv, v)
		}
		kj, yj := copied(k), copied(y)
		repeat(copied(panels), func() {
			prefetch(next, c)
			for q := 0; q < panel*g.elem; q += g.width {
				sum := g.vecs(c)
				for i := range sum {
					g.load(Mem{Base: yj, Disp: i*colBytes + q}, sum[i])
				}
				for r := range strip {
					m := Mem{Base: kj, Disp: r*colBytes + q}
					if c == 1 {
						g.fma(x[0][r], m, sum[0])
						continue
					}
					e := g.vec()
					g.load(m, e)
					for i := range sum {
						g.fma(x[i][r], e, sum[i])
					}
				}
				for i := range sum {
					g.store(sum[i], Mem{Base: yj, Disp: i*colBytes + q})
				}
			}
			advance(kj, panel*g.elem)
			advance(yj, panel*g.elem)
		})
		advance(y, c*colBytes)
	})
	g.ret()
}

// addition emits y[i] += x[i] for n elements, a multiple of a panel.
func (g *generator) addition() {
	g.text("Add", "func(y []float64, x []T, n int)", "adds n elements of x to y.")
	y, x, n := base("y"), base("x"), word("n")
	done := label()
	asm.SHRQ(U8(5), n) // panels of 32
	asm.JZ(LabelRef(done))
	repeat(n, func() {
		for q := 0; q < panel*8; q += g.width {
			v := g.vec()
			switch {
			case g.elem == 8:
				g.load(Mem{Base: x, Disp: q}, v)
			case g.neon():
				g.doubles().loadNEON("ldr1", Mem{Base: x, Disp: q / 2}, v)
				g.vector("fcvtl", v, v)
			default:
				asm.VCVTPS2PD(Mem{Base: x, Disp: q / 2}, v)
			}
			g.doubles().addTo(Mem{Base: y, Disp: q}, v)
		}
		advance(y, panel*8)
		advance(x, panel*g.elem)
	})
	asm.Label(done)
	g.ret()
}

// multiply emits dst[i] = a[i]·b[i] for n elements, a multiple of a panel.
func (g *generator) multiply() {
	g.text("Multiply", "func(dst, a, b []T, n int)", "sets n elements of dst to those of a times those of b.")
	dst, a, b := base("dst"), base("a"), base("b")
	g.byPanels(word("n"), []gp{dst, a, b}, func(q int) {
		x := g.vec()
		g.load(Mem{Base: a, Disp: q}, x)
		g.mul(x, Mem{Base: b, Disp: q}, x)
		g.store(x, Mem{Base: dst, Disp: q})
	})
}

// addScaled emits y[i] += c·x[i] for n elements, a multiple of a panel.
func (g *generator) addScaled() {
	g.text("AddScaled", "func(y, x []T, c T, n int)", "adds n elements of x times c to y.")
	y, x, c := base("y"), base("x"), g.vec()
	at, err := asm.Param("c").Resolve()
	if err != nil {
		panic(err)
	}
	g.bcast(at.Addr, c)
	g.byPanels(word("n"), []gp{y, x}, func(q int) {
		sum := g.vec()
		g.load(Mem{Base: y, Disp: q}, sum)
		g.fma(c, Mem{Base: x, Disp: q}, sum)
		g.store(sum, Mem{Base: y, Disp: q})
	})
}

// byPanels emits body for each vector, at the offset q, of n elements of some
// arrays, and the end of the kernel.
func (g *generator) byPanels(n gp, arrays []gp, body func(q int)) {
	done := label()
	asm.SHRQ(U8(5), n) // panels of 32
	asm.JZ(LabelRef(done))
	repeat(n, func() {
		for q := 0; q < panel*g.elem; q += g.width {
			body(q)
		}
		for _, p := range arrays {
			advance(p, panel*g.elem)
		}
	})
	asm.Label(done)
	g.ret()
}

// unlessNil emits body, to be skipped if p is nil.
func unlessNil(p gp, body func()) {
	skip := label()
	asm.TESTQ(p, p)
	asm.JZ(LabelRef(skip))
	body()
	asm.Label(skip)
}

// prefetch emits the prefetch of the next lines of a strip that will be needed
// soon, unless it is nil. It is spread over the work on several columns, which
// has time for it; a single column is done before the lines could arrive.
func prefetch(next gp, columns int) {
	if columns == 1 {
		return
	}
	const lines = 8
	unlessNil(next, func() {
		for i := range lines {
			asm.PREFETCHT0(Mem{Base: next, Disp: 64 * i})
		}
		advance(next, 64*lines)
	})
}
