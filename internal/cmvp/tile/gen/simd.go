package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type (
	vec = reg.VecVirtual
	gp  = reg.GPVirtual
)

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
	TEXT(name, NOSPLIT, string(sig))
	Doc(name + " " + doc)
	Pragma("noescape")
	return name
}

// ret ends a kernel.
func (g *generator) ret() {
	VZEROUPPER()
	RET()
}

func base(param string) gp { return Load(Param(param).Base(), GP64()).(gp) }
func word(param string) gp { return Load(Param(param), GP64()).(gp) }

// scaled returns a register that holds x·factor, a power of two.
func scaled(x gp, factor int) gp {
	r := GP64()
	MOVQ(x, r)
	shift := 0
	for 1<<shift < factor {
		shift++
	}
	SHLQ(U8(shift), r)
	return r
}

func copied(x gp) gp {
	r := GP64()
	MOVQ(x, r)
	return r
}

func advance(p gp, bytes int) { ADDQ(U32(bytes), p) }

var labels int

func label() string {
	labels++
	return fmt.Sprintf("l%d", labels)
}

// repeat emits body once, to be run n > 0 times. It counts n down.
func repeat(n gp, body func()) {
	l := label()
	Label(l)
	body()
	DECQ(n)
	JNZ(LabelRef(l))
}

// times emits body once, to be run n times, or unrolled if n is 1.
func times(n int, body func()) {
	if n == 1 {
		body()
		return
	}
	count := GP64()
	MOVQ(U32(n), count)
	repeat(count, body)
}

// byColumns emits block(c) so that s columns are worked on, most of them
// block of c = most at a time.
func byColumns(s gp, most int, block func(c int)) {
	again := label()
	Label(again)
	for c := most; c >= 1; c-- {
		next := label()
		CMPQ(s, U8(c))
		JLT(LabelRef(next))
		block(c)
		SUBQ(U8(c), s)
		JMP(LabelRef(again))
		Label(next)
	}
}

func (g *generator) vec() vec {
	if g.avx512() {
		return ZMM()
	}
	return YMM()
}

func (g *generator) vecs(n int) []vec {
	v := make([]vec, n)
	for i := range v {
		v[i] = g.vec()
	}
	return v
}

type instr = func(...Op)

// op picks the instruction for the precision.
func (g *generator) op(double, single instr) instr {
	if g.elem == 8 {
		return double
	}
	return single
}

func (g *generator) zero(x vec) { g.op(VXORPD, VXORPS)(x, x, x) }

func (g *generator) zeros(n int) []vec {
	v := g.vecs(n)
	for _, x := range v {
		g.zero(x)
	}
	return v
}

func (g *generator) load(m Op, dst vec)   { g.op(VMOVUPD, VMOVUPS)(m, dst) }
func (g *generator) store(x vec, m Op)    { g.op(VMOVUPD, VMOVUPS)(x, m) }
func (g *generator) bcast(m Mem, dst vec) { g.op(VBROADCASTSD, VBROADCASTSS)(m, dst) }

// add sets dst = a + b; b may be in memory. So sub and mul.
func (g *generator) add(a vec, b Op, dst vec) { g.op(VADDPD, VADDPS)(b, a, dst) }
func (g *generator) sub(a vec, b Op, dst vec) { g.op(VSUBPD, VSUBPS)(b, a, dst) }
func (g *generator) mul(a vec, b Op, dst vec) { g.op(VMULPD, VMULPS)(b, a, dst) }

// fma sets acc += a·b; b may be in memory. fnma subtracts.
func (g *generator) fma(a vec, b Op, acc vec)  { g.op(VFMADD231PD, VFMADD231PS)(b, a, acc) }
func (g *generator) fnma(a vec, b Op, acc vec) { g.op(VFNMADD231PD, VFNMADD231PS)(b, a, acc) }

// fma213 sets p = p·x + c; c may be in memory.
func (g *generator) fma213(x vec, c Op, p vec) { g.op(VFMADD213PD, VFMADD213PS)(c, x, p) }
