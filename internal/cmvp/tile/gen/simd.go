package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type (
	vec = reg.VecVirtual
	gp  = reg.GPVirtual
)

// asm is the file that is generated.
var asm = build.NewContext()

// generator emits the kernels of one instruction set and precision. Its
// vector instructions take their operands in the order of the formulas.
type generator struct {
	isa   string
	width int // bytes of a vector
	elem  int // bytes of an element
	pool  constants
}

func newGenerator(isa string, width, elem int) *generator {
	g := &generator{isa: isa, width: width, elem: elem}
	g.pool.init(g)
	return g
}

func (g *generator) lanes() int   { return g.width / g.elem }
func (g *generator) avx512() bool { return g.width == 64 }
func (g *generator) neon() bool   { return g.width == 16 }

// registers is the number of vector registers.
func (g *generator) registers() int {
	return map[string]int{"avx2": 16, "avx512": 32, "neon": 32}[g.isa]
}

// doubles returns g for float64.
func (g *generator) doubles() *generator {
	d := *g
	d.elem = 8
	return &d
}

// goType is the Go name of the element type.
func (g *generator) goType() string { return fmt.Sprintf("float%d", 8*g.elem) }

// text begins a kernel. Occurrences of T in the signature stand for the
// element type.
func (g *generator) text(name, signature, doc string) string {
	name = fmt.Sprintf("%s%sF%d", g.isa, name, 8*g.elem)
	var sig []byte
	for i := range len(signature) {
		if signature[i] == 'T' {
			sig = append(sig, g.goType()...)
		} else {
			sig = append(sig, signature[i])
		}
	}
	asm.Function(name)
	asm.Attributes(build.NOSPLIT)
	asm.SignatureExpr(string(sig))
	asm.Doc(name + " " + doc)
	asm.Pragma("noescape")
	return name
}

// ret ends a kernel.
func (g *generator) ret() {
	if !g.neon() {
		asm.VZEROUPPER()
	}
	asm.RET()
}

func base(param string) gp { return asm.Load(asm.Param(param).Base(), asm.GP64()).(gp) }
func word(param string) gp { return asm.Load(asm.Param(param), asm.GP64()).(gp) }

// scaled returns a register that holds x·factor, a power of two.
func scaled(x gp, factor int) gp {
	r := asm.GP64()
	asm.MOVQ(x, r)
	shift := 0
	for 1<<shift < factor {
		shift++
	}
	asm.SHLQ(U8(shift), r)
	return r
}

func copied(x gp) gp {
	r := asm.GP64()
	asm.MOVQ(x, r)
	return r
}

func advance(p gp, bytes int) { asm.ADDQ(U32(bytes), p) }

var labels int

func label() string {
	labels++
	return fmt.Sprintf("l%d", labels)
}

// repeat emits body once, to be run n > 0 times. It counts n down.
func repeat(n gp, body func()) {
	l := label()
	asm.Label(l)
	body()
	asm.DECQ(n)
	asm.JNZ(LabelRef(l))
}

// times emits body once, to be run n times, or unrolled if n is 1.
func times(n int, body func()) {
	if n == 1 {
		body()
		return
	}
	count := asm.GP64()
	asm.MOVQ(U32(n), count)
	repeat(count, body)
}

// byColumns emits block(c) so that s columns are worked on, most of them
// block of c = most at a time.
func byColumns(s gp, most int, block func(c int)) {
	again := label()
	asm.Label(again)
	for c := most; c >= 1; c-- {
		next := label()
		asm.CMPQ(s, U8(c))
		asm.JLT(LabelRef(next))
		block(c)
		asm.SUBQ(U8(c), s)
		asm.JMP(LabelRef(again))
		asm.Label(next)
	}
}

func (g *generator) vec() vec {
	if g.registers() == 32 {
		return asm.ZMM()
	}
	return asm.YMM()
}

func (g *generator) vecs(n int) []vec {
	v := make([]vec, n)
	for i := range v {
		v[i] = g.vec()
	}
	return v
}

type instr = func(...Op)

// op picks the instruction for the instruction set and precision. The
// operands are in the order of amd64, what is set last.
func (g *generator) op(neon string, double, single instr) instr {
	switch {
	case g.neon():
		return func(ops ...Op) {
			slices.Reverse(ops)
			g.vector(neon, ops[0].(vec), ops[1:]...)
		}
	case g.elem == 8:
		return double
	default:
		return single
	}
}

func (g *generator) zero(x vec) {
	if g.neon() {
		g.vector("movi", x)
		return
	}
	g.op("", asm.VXORPD, asm.VXORPS)(x, x, x)
}

func (g *generator) zeros(n int) []vec {
	v := g.vecs(n)
	for _, x := range v {
		g.zero(x)
	}
	return v
}

func (g *generator) load(m Mem, dst vec) {
	if g.neon() {
		g.loadNEON("ldr", m, dst)
		return
	}
	g.op("", asm.VMOVUPD, asm.VMOVUPS)(m, dst)
}

func (g *generator) store(x vec, m Mem) {
	if g.neon() {
		g.storeNEON("str", x, m)
		return
	}
	g.op("", asm.VMOVUPD, asm.VMOVUPS)(x, m)
}

// bcast sets all lanes to the element at m.
func (g *generator) bcast(m Mem, dst vec) {
	if g.neon() {
		g.loadNEON("ldr1", m, dst)
		g.vector("dup", dst, element{vec: dst})
		return
	}
	g.op("", asm.VBROADCASTSD, asm.VBROADCASTSS)(m, dst)
}

// elements returns what makes of one of the n elements from m on, which fill
// vectors of NEON, a factor of every lane.
func (g *generator) elements(m Mem, n int) func(i int) Op {
	if g.neon() {
		return g.elementsNEON(m, n)
	}
	return func(i int) Op {
		x := g.vec()
		g.bcast(m.Offset(i*g.elem), x)
		return x
	}
}

// indexed returns the memory at base + index.
func (g *generator) indexed(base, index gp) Mem {
	m := Mem{Base: base, Index: index, Scale: 1}
	if g.neon() {
		m = unindexed(m)
	}
	return m
}

func (g *generator) move(x, dst vec) { g.op("mov", asm.VMOVAPD, asm.VMOVAPS)(x, dst) }
func (g *generator) sqrt(x, dst vec) { g.op("fsqrt", asm.VSQRTPD, asm.VSQRTPS)(x, dst) }

// add sets dst = a + b; b may be in memory. So the others.
func (g *generator) add(a vec, b Op, dst vec) { g.op("fadd", asm.VADDPD, asm.VADDPS)(b, a, dst) }
func (g *generator) sub(a vec, b Op, dst vec) { g.op("fsub", asm.VSUBPD, asm.VSUBPS)(b, a, dst) }
func (g *generator) mul(a vec, b Op, dst vec) { g.op("fmul", asm.VMULPD, asm.VMULPS)(b, a, dst) }
func (g *generator) div(a vec, b Op, dst vec) { g.op("fdiv", asm.VDIVPD, asm.VDIVPS)(b, a, dst) }
func (g *generator) max(a vec, b Op, dst vec) { g.op("fmax", asm.VMAXPD, asm.VMAXPS)(b, a, dst) }

// addInts adds the bits of lanes as whole numbers; subInts subtracts them.
func (g *generator) addInts(a, b, dst vec) { g.op("add", asm.VPADDQ, asm.VPADDD)(b, a, dst) }
func (g *generator) subInts(a, b, dst vec) { g.op("sub", asm.VPSUBQ, asm.VPSUBD)(b, a, dst) }

// shiftLeft shifts the bits of lanes; so shiftRight.
func (g *generator) shiftLeft(x vec, n int, dst vec) {
	g.op("shl", asm.VPSLLQ, asm.VPSLLD)(U8(n), x, dst)
}

func (g *generator) shiftRight(x vec, n int, dst vec) {
	g.op("ushr", asm.VPSRLQ, asm.VPSRLD)(U8(n), x, dst)
}

// fma sets acc += a·b; b may be in memory, and either one of elements. fnma subtracts.
func (g *generator) fma(a, b Op, acc vec) {
	g.op("fmla", asm.VFMADD231PD, asm.VFMADD231PS)(b, a, acc)
}

func (g *generator) fnma(a, b Op, acc vec) {
	g.op("fmls", asm.VFNMADD231PD, asm.VFNMADD231PS)(b, a, acc)
}

// fma213 returns p·x + c and may clobber p; c may be in memory.
func (g *generator) fma213(x vec, c Op, p vec) vec {
	if g.neon() { // adds to c, in another register
		sum := g.vec()
		if m, ok := c.(Mem); ok {
			g.load(m, sum)
		} else {
			g.move(c.(vec), sum)
		}
		g.fma(p, x, sum)
		return sum
	}
	g.op("", asm.VFMADD213PD, asm.VFMADD213PS)(c, x, p)
	return p
}
