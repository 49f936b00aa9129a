package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addRows adds the sum of the lanes of sum[r] to the float64 at y[r], for the
// rows r of a strip. Vectors are transposed and added pairwise, so that no
// lane is idle.
func (g *generator) addRows(y gp, sum []vec) {
	if g.neon() {
		g.addRowsNEON(y, sum)
		return
	}
	if g.elem == 8 {
		var pair []vec // 128-bit lanes of two rows each
		for r := 0; r < strip; r += 2 {
			lo, hi := g.vec(), g.vec()
			asm.VUNPCKLPD(sum[r+1], sum[r], lo)
			asm.VUNPCKHPD(sum[r+1], sum[r], hi)
			pair = append(pair, g.sumOf(lo, hi))
		}
		if g.avx512() {
			g.addTo(Mem{Base: y}, g.foldLanes(g.foldLanes(pair[0], pair[1]), g.foldLanes(pair[2], pair[3])))
			return
		}
		g.addTo(Mem{Base: y}, g.foldLanes(pair[0], pair[1]))
		g.addTo(Mem{Base: y, Disp: 32}, g.foldLanes(pair[2], pair[3]))
		return
	}
	var quad []vec // 128-bit lanes of four rows each
	for r := 0; r < strip; r += 4 {
		var pair [2]vec
		for i := range pair {
			lo, hi := g.vec(), g.vec()
			asm.VUNPCKLPS(sum[r+2*i+1], sum[r+2*i], lo)
			asm.VUNPCKHPS(sum[r+2*i+1], sum[r+2*i], hi)
			pair[i] = g.sumOf(lo, hi)
		}
		lo, hi := g.vec(), g.vec()
		asm.VUNPCKLPD(pair[1], pair[0], lo)
		asm.VUNPCKHPD(pair[1], pair[0], hi)
		quad = append(quad, g.sumOf(lo, hi))
	}
	rows := g.foldLanes(quad[0], quad[1])
	if g.avx512() {
		rows = g.foldLanes(rows, rows)
		wide := asm.ZMM()
		asm.VCVTPS2PD(rows.AsY(), wide)
		asm.VADDPD(Mem{Base: y}, wide, wide)
		asm.VMOVUPD(wide, Mem{Base: y})
		return
	}
	for half := range 2 {
		x, wide := reg.VecVirtual(asm.XMM()), asm.YMM()
		asm.VEXTRACTF128(U8(half), rows, x)
		asm.VCVTPS2PD(x, wide)
		asm.VADDPD(Mem{Base: y, Disp: 32 * half}, wide, wide)
		asm.VMOVUPD(wide, Mem{Base: y, Disp: 32 * half})
	}
}

// foldLanes adds neighbouring 128-bit lanes of x, then of y, and returns the
// sums in this order.
func (g *generator) foldLanes(x, y vec) vec {
	even, odd := g.vec(), g.vec()
	if g.avx512() {
		asm.VSHUFF64X2(U8(0x88), y, x, even)
		asm.VSHUFF64X2(U8(0xdd), y, x, odd)
	} else {
		asm.VPERM2F128(U8(0x20), y, x, even)
		asm.VPERM2F128(U8(0x31), y, x, odd)
	}
	return g.sumOf(even, odd)
}

func (g *generator) sumOf(a, b vec) vec {
	g.add(a, b, a)
	return a
}

// addTo adds a vector to memory.
func (g *generator) addTo(m Mem, x vec) {
	g.add(x, m, x)
	g.store(x, m)
}
