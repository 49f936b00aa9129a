package main

import (
	. "github.com/mmcloughlin/avo/operand"
)

// weigh emits the sums over a strip of a covariance and of its derivative
// with weights w[r,j] = Σ_c u_i[c,r]·v_j[c,j] + v_i[c,r]·u_j[c,j]. Blocks of
// the weights are built in registers. The weighted derivatives are summed or
// stored.
func (g *generator) weigh(store bool) {
	rows, across, chains := 4, 2, 1
	if g.registers() == 32 {
		across, chains = 4, 2
	}
	if store {
		g.text("Weigh", "func(sum, m, k, h, ui, vi, uj, vj []T, s, ld, panels int)",
			"adds Σ w·k to sum[0] and sets the strip m to w·h.")
	} else {
		g.text("Sums", "func(sum, k, h, ui, vi, uj, vj []T, s, ld, panels int)",
			"adds Σ w·k to sum[0] and Σ w·h to sum[1].")
	}
	k, h := base("k"), base("h")
	ui, vi, uj, vj := base("ui"), base("vi"), base("uj"), base("vj")
	s, panels := word("s"), word("panels")
	cols := []gp{k, h, uj, vj}
	var m gp
	if store {
		m = base("m")
		cols = append(cols, m)
	}
	rowBytes, colBytes := size*g.elem, panel*g.elem
	end := scaled(s, colBytes)
	next := scaled(word("ld"), colBytes) // from the end of a panel of columns to the next
	asm.SUBQ(U32(colBytes), next)
	ksum, hsum := g.zeros(chains), g.zeros(chains)

	repeat(panels, func() {
		times(panel/g.lanes()/across, func() {
			for r0 := 0; r0 < strip; r0 += rows {
				w := g.zeros(rows * across)
				c, again := asm.GP64(), label()
				asm.XORQ(c, c)
				asm.Label(again)
				u, v := g.vecs(across), g.vecs(across)
				um, vm := g.indexed(uj, c), g.indexed(vj, c)
				for p := range across {
					g.load(um.Offset(p*g.width), u[p])
					g.load(vm.Offset(p*g.width), v[p])
				}
				urow := g.elements(g.indexed(ui, c).Offset(r0*g.elem), rows)
				vrow := g.elements(g.indexed(vi, c).Offset(r0*g.elem), rows)
				for r := range rows {
					x := urow(r)
					for p := range across {
						g.fma(x, v[p], w[r*across+p])
					}
					x = vrow(r)
					for p := range across {
						g.fma(x, u[p], w[r*across+p])
					}
				}
				asm.ADDQ(U32(colBytes), c)
				asm.CMPQ(c, end)
				asm.JNE(LabelRef(again))
				for i := range w {
					at := (r0+i/across)*rowBytes + i%across*g.width
					g.fma(w[i], Mem{Base: k, Disp: at}, ksum[i%chains])
					if store {
						g.mul(w[i], Mem{Base: h, Disp: at}, w[i])
						g.store(w[i], Mem{Base: m, Disp: at})
					} else {
						g.fma(w[i], Mem{Base: h, Disp: at}, hsum[i%chains])
					}
				}
			}
			for _, p := range cols {
				advance(p, across*g.width)
			}
		})
		asm.ADDQ(next, uj)
		asm.ADDQ(next, vj)
	})
	sum := base("sum")
	g.addTotal(Mem{Base: sum}, ksum)
	if !store {
		g.addTotal(Mem{Base: sum, Disp: 8}, hsum)
	}
	g.ret()
}

// spread emits the sums of squared differences of each input over a strip,
// with the weights m.
func (g *generator) spread() {
	g.text("Spread", "func(dst, m, zi, zj []T, d, panels int)",
		"adds Σ m[r,j]·(zi[k,r]−zj[k,j])² to dst[k].")
	dst, m, zi, zj := base("dst"), base("m"), base("zi"), base("zj")
	d, panels := word("d"), word("panels")
	panelBytes := scaled(d, panel*g.elem)
	chains := 4

	repeat(d, func() {
		x, sum := g.vecs(strip), g.zeros(chains)
		for r := range x {
			g.bcast(Mem{Base: zi, Disp: r * g.elem}, x[r])
		}
		mj, zjk := copied(m), copied(zj)
		repeat(copied(panels), func() {
			for q := 0; q < panel*g.elem; q += g.width {
				z := g.vec()
				g.load(Mem{Base: zjk, Disp: q}, z)
				for r := range strip {
					t, y := g.vec(), g.vec()
					g.sub(x[r], z, t)
					g.mul(t, Mem{Base: mj, Disp: r*size*g.elem + q}, y)
					g.fma(t, y, sum[r%chains])
				}
			}
			advance(mj, panel*g.elem)
			asm.ADDQ(panelBytes, zjk)
		})
		g.addTotal(Mem{Base: dst}, sum)
		advance(dst, g.elem)
		advance(zi, panel*g.elem)
		advance(zj, panel*g.elem)
	})
	g.ret()
}

// addTotal adds the sum of all lanes of the vectors to a float64 in memory.
func (g *generator) addTotal(m Mem, sum []vec) {
	for n := len(sum); n > 1; n /= 2 {
		for i := range n / 2 {
			g.add(sum[i], sum[i+n/2], sum[i])
		}
	}
	if g.neon() {
		g.addLanesNEON(m, sum[0])
		return
	}
	y := sum[0].AsY()
	if g.avx512() {
		hi := asm.YMM()
		asm.VEXTRACTF64X4(U8(1), sum[0], hi)
		asm.VADDPD(hi, y, y)
	}
	x, hi := y.(vec).AsX(), asm.XMM()
	asm.VEXTRACTF128(U8(1), y, hi)
	asm.VADDPD(hi, x, x)
	asm.VPERMILPD(U8(1), x, hi)
	asm.VADDSD(hi, x, x)
	asm.VADDSD(m, x, x)
	asm.VMOVSD(x, m)
}

// peak emits fused multiply-adds that do not wait for each other, the
// yardstick of the others.
func (g *generator) peak() {
	g.text("Peak", "func(n int)", "does 16·n vector multiply-adds.")
	n := word("n")
	sums := g.zeros(12)
	for len(sums) < 16 {
		sums = append(sums, sums[:4]...)
	}
	x := g.constant(0.5)
	repeat(n, func() {
		for _, s := range sums {
			g.fma(x, x, s)
		}
	})
	g.ret()
}
