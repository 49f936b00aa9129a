package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/operand"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// NEON's vector instructions go by the names of the architecture; whole-number
// instructions are emitted as those of amd64. Registers are allocated as if they
// were those of amd64, of which there are no more; then spell writes all as Go's
// assembler for arm64 reads it.

// element is a lane of a vector that is meant for every lane of others.
type element struct {
	vec
	lane int
}

// reads tells the instructions that read what they set.
var reads = map[string]bool{"fmla": true, "fmls": true, "bit": true}

// takesLane tells the instructions of which an operand may be an element.
var takesLane = map[string]bool{"fmla": true, "fmls": true, "dup": true}

// arrangement is the architecture's name for the lanes.
func (g *generator) arrangement() string { return map[int]string{8: "2d", 4: "4s"}[g.elem] }

// vector emits the instruction that sets dst from operands, in the order of the
// architecture. They may be in memory, elements, or a constant that comes last.
func (g *generator) vector(name string, dst vec, in ...Op) {
	i := &ir.Instruction{Opcode: name, Suffixes: []string{g.arrangement()}, Operands: []Op{dst}, Outputs: []Op{dst}}
	if reads[name] {
		i.Inputs = append(i.Inputs, dst)
	}
	if len(in) == 2 && takesLane[name] {
		if _, first := in[0].(element); first { // a product's factors change places
			in = []Op{in[1], in[0]}
		}
	}
	for _, op := range in {
		if e, ok := op.(element); ok && takesLane[name] {
			i.Operands = append(i.Operands, e.vec, U8(e.lane))
			i.Inputs = append(i.Inputs, e.vec)
			continue
		}
		op = g.everyLane(op)
		i.Operands, i.Inputs = append(i.Operands, op), append(i.Inputs, op)
	}
	asm.Instruction(i)
}

// everyLane returns a register with what op is in every lane.
func (g *generator) everyLane(op Op) Op {
	switch x := op.(type) {
	case element:
		r := g.vec()
		g.vector("dup", r, x)
		return r
	case Mem:
		r := g.vec()
		g.load(x, r)
		return r
	}
	return op
}

// elementsNEON loads n elements.
func (g *generator) elementsNEON(m Mem, n int) func(i int) Op {
	v := g.vecs(n / g.lanes())
	for i := range v {
		g.load(m.Offset(i*g.width), v[i])
	}
	return func(i int) Op { return element{v[i/g.lanes()], i % g.lanes()} }
}

// loadNEON emits ldr, or ldr1 for the first element alone.
func (g *generator) loadNEON(name string, m Mem, dst vec) {
	m = unindexed(m)
	asm.Instruction(&ir.Instruction{Opcode: name, Suffixes: []string{g.arrangement()}, Operands: []Op{m, dst}, Inputs: []Op{m}, Outputs: []Op{dst}})
}

// storeNEON emits str or str1.
func (g *generator) storeNEON(name string, x vec, m Mem) {
	m = unindexed(m)
	asm.Instruction(&ir.Instruction{Opcode: name, Suffixes: []string{g.arrangement()}, Operands: []Op{x, m}, Inputs: []Op{x}, Outputs: []Op{m}})
}

// unindexed adds an index to the base in another register.
func unindexed(m Mem) Mem {
	if m.Index == nil {
		return m
	}
	sum := asm.GP64()
	asm.Instruction(&ir.Instruction{Opcode: "add3", Operands: []Op{m.Index, m.Base, sum}, Inputs: []Op{m.Index, m.Base}, Outputs: []Op{sum}})
	return Mem{Base: sum, Disp: m.Disp}
}

// wholeNEON sets r to the number in memory, less what is after its point.
func (g *generator) wholeNEON(m Mem, r gp) {
	x := g.vec()
	g.loadNEON("ldr1", m, x)
	asm.Instruction(&ir.Instruction{Opcode: "fcvtzs", Suffixes: []string{g.arrangement()}, Operands: []Op{x, r}, Inputs: []Op{x}, Outputs: []Op{r}})
}

// addRowsNEON is addRows. Neighbouring lanes are added, those of two vectors at once.
func (g *generator) addRowsNEON(y gp, sum []vec) {
	double := g.doubles()
	for r := 0; r < strip; r += g.lanes() {
		rows := sum[r : r+g.lanes()]
		for n := len(rows) / 2; n > 0; n /= 2 {
			for i := range n {
				g.vector("faddp", rows[i], rows[2*i], rows[2*i+1])
			}
		}
		if g.elem == 4 {
			low := g.vec()
			g.vector("fcvtl", low, rows[0])
			g.vector("fcvtl2", rows[0], rows[0])
			double.addTo(Mem{Base: y, Disp: 8 * r}, low)
			double.addTo(Mem{Base: y, Disp: 8 * (r + 2)}, rows[0])
			continue
		}
		g.addTo(Mem{Base: y, Disp: 8 * r}, rows[0])
	}
}

// addLanesNEON adds both lanes of x to a float64 in memory.
func (g *generator) addLanesNEON(m Mem, x vec) {
	y := g.vec()
	g.vector("faddp", x, x, x)
	g.loadNEON("ldr1", m, y)
	g.add(x, y, x)
	g.storeNEON("str1", x, m)
}

// compileNEON is avo's pass.Compile with the spelling of arm64.
var compileNEON = pass.Concat(
	pass.Verify,
	pass.FunctionPass(pass.PruneJumpToFollowingLabel),
	pass.FunctionPass(pass.PruneDanglingLabels),
	pass.FunctionPass(pass.LabelTarget),
	pass.FunctionPass(pass.CFG),
	pass.FunctionPass(pass.Liveness),
	pass.FunctionPass(pass.AllocateRegisters),
	pass.FunctionPass(pass.BindRegisters),
	pass.FunctionPass(pass.VerifyAllocation),
	pass.FunctionPass(spellFunction),
	pass.Func(pass.IncludeTextFlagHeader),
)

// text is an operand as it is written.
type text string

// Asm implements Op.
func (t text) Asm() string { return string(t) }

// poolBase holds the address of the constants. No register of amd64 becomes it.
const poolBase = "R25"

func spellFunction(fn *ir.Function) error {
	var nodes []ir.Node
	pool := ""
	for _, n := range fn.Nodes {
		i, ok := n.(*ir.Instruction)
		if !ok {
			nodes = append(nodes, n)
			continue
		}
		for _, op := range i.Operands {
			if m, ok := op.(Mem); ok && m.Symbol.Static {
				pool = m.Symbol.String()
			}
		}
		for _, line := range spell(i) {
			nodes = append(nodes, line)
		}
	}
	if pool != "" {
		nodes = slices.Insert(nodes, 0, ir.Node(write("MOVD", text(fmt.Sprintf("$%s+0(SB)", pool)), text(poolBase))))
	}
	fn.Nodes = nodes
	return nil
}

func write(opcode string, operands ...Op) *ir.Instruction {
	return &ir.Instruction{Opcode: opcode, Operands: operands}
}

// wholeNumbers are arm64's names of instructions whose operands are in the same order.
var wholeNumbers = map[string]string{
	"MOVQ": "MOVD", "ADDQ": "ADD", "SUBQ": "SUB", "SHLQ": "LSL", "SHRQ": "LSR", "add3": "ADD",
	"JMP": "JMP", "JE": "BEQ", "JZ": "BEQ", "JNE": "BNE", "JNZ": "BNE", "JLT": "BLT", "JL": "BLT", "RET": "RET",
}

// spell returns an instruction as arm64 has it. Vector arithmetic is written as
// the instruction's bits, for Go's assembler knows little of it.
func spell(i *ir.Instruction) []*ir.Instruction {
	var ops []Op
	for _, op := range i.Operands {
		ops = append(ops, operand(op))
	}
	if name, ok := wholeNumbers[i.Opcode]; ok {
		lines := []*ir.Instruction{write(name, ops...)}
		if i.Opcode == "SHRQ" { // and its flags
			lines = append(lines, write("CMP", text("$0"), ops[1]))
		}
		return lines
	}
	double := len(i.Suffixes) > 0 && i.Suffixes[0] == "2d"
	one := map[bool]string{true: "D", false: "S"}[double]
	switch i.Opcode {
	case "DECQ":
		return []*ir.Instruction{write("SUBS", text("$1"), ops[0])}
	case "XORQ":
		return []*ir.Instruction{write("MOVD", text("ZR"), ops[1])}
	case "CMPQ":
		return []*ir.Instruction{write("CMP", ops[1], ops[0])}
	case "TESTQ":
		return []*ir.Instruction{write("CMP", text("$0"), ops[0])}
	case "PREFETCHT0":
		return []*ir.Instruction{write("PRFM", ops[0], text("PLDL1KEEP"))}
	case "ldr", "str":
		return []*ir.Instruction{write("FMOVQ", ops...)}
	case "ldr1", "str1":
		return []*ir.Instruction{write("FMOV"+one, ops...)}
	case "fcvtzs":
		return []*ir.Instruction{write("FCVTZS"+one, ops...)}
	}
	bits, comment := encode(i, double)
	return []*ir.Instruction{write("WORD", text(fmt.Sprintf("$%#08x // %s", bits, comment)))}
}

// operand returns an operand as it is written.
func operand(op Op) Op {
	switch x := op.(type) {
	case Mem:
		switch {
		case x.Symbol.Static:
			return text(fmt.Sprintf("%d(%s)", x.Disp, poolBase))
		case x.Symbol.Name != "": // an argument
			return text(x.Asm())
		}
		return text(fmt.Sprintf("%d(%s)", x.Disp, operand(x.Base).Asm()))
	case reg.Register:
		if x.Kind() == reg.KindVector {
			return text(fmt.Sprintf("F%d", number(x)))
		}
		return text(fmt.Sprintf("R%d", number(x)))
	}
	return text(op.Asm())
}

// number returns the number of a register.
func number(op Op) uint32 { return uint32(reg.ToPhysical(op.(reg.Register)).PhysicalIndex()) }

// encodings are the bits of the instructions on all lanes of whole vectors, of
// float32 or 32-bit numbers (Arm Architecture Reference Manual for A-profile, C7.2).
var encodings = map[string]uint32{
	"fadd": 0x4e20d400, "fsub": 0x4ea0d400, "fmul": 0x6e20dc00, "fdiv": 0x6e20fc00, "fmax": 0x4e20f400, "fmin": 0x4ea0f400,
	"fmla": 0x4e20cc00, "fmls": 0x4ea0cc00, "faddp": 0x6e20d400, "fcmgt": 0x6ea0e400, "add": 0x4ea08400, "sub": 0x6ea08400,
	"fsqrt": 0x6ea1f800, "frintm": 0x4e219800,
}

// encode returns the bits of a vector instruction, and its text.
func encode(i *ir.Instruction, double bool) (bits uint32, comment string) {
	n := make([]uint32, len(i.Operands)) // registers, lanes and shifts
	for k, op := range i.Operands {
		if c, ok := op.(U8); ok {
			n[k] = uint32(c)
		} else {
			n[k] = number(op)
		}
	}
	lanes, lane, size, wide := "4s", "s", uint32(0), uint32(32)
	if double {
		lanes, lane, size, wide = "2d", "d", 1, 64
	}
	v := func(k int, lanes string) string { return fmt.Sprintf("v%d.%s", n[k], lanes) }
	switch i.Opcode {
	case "movi":
		return 0x6f00e400 | n[0], fmt.Sprintf("movi %s, #0", v(0, "2d"))
	case "mov": // orr with itself
		return 0x4ea01c00 | n[1]<<16 | n[1]<<5 | n[0], fmt.Sprintf("mov %s, %s", v(0, "16b"), v(1, "16b"))
	case "bit":
		return 0x6ea01c00 | n[2]<<16 | n[1]<<5 | n[0], fmt.Sprintf("bit %s, %s, %s", v(0, "16b"), v(1, "16b"), v(2, "16b"))
	case "shl":
		return 0x4f005400 | (wide+n[2])<<16 | n[1]<<5 | n[0], fmt.Sprintf("shl %s, %s, #%d", v(0, lanes), v(1, lanes), n[2])
	case "ushr":
		return 0x6f000400 | (2*wide-n[2])<<16 | n[1]<<5 | n[0], fmt.Sprintf("ushr %s, %s, #%d", v(0, lanes), v(1, lanes), n[2])
	case "dup":
		return 0x4e000400 | (2*n[2]+1)<<(18+size) | n[1]<<5 | n[0], fmt.Sprintf("dup %s, %s[%d]", v(0, lanes), v(1, lane), n[2])
	case "fcvtl":
		return 0x0e617800 | n[1]<<5 | n[0], fmt.Sprintf("fcvtl %s, %s", v(0, "2d"), v(1, "2s"))
	case "fcvtl2":
		return 0x4e617800 | n[1]<<5 | n[0], fmt.Sprintf("fcvtl2 %s, %s", v(0, "2d"), v(1, "4s"))
	}
	if len(n) == 4 { // fmla and fmls by an element
		bits = map[string]uint32{"fmla": 0x4f801000, "fmls": 0x4f805000}[i.Opcode]
		if double {
			bits |= n[3] << 11
		} else {
			bits |= n[3]>>1<<11 | n[3]&1<<21
		}
		return bits | size<<22 | n[2]<<16 | n[1]<<5 | n[0], fmt.Sprintf("%s %s, %s, %s[%d]", i.Opcode, v(0, lanes), v(1, lanes), v(2, lane), n[3])
	}
	bits, ok := encodings[i.Opcode]
	if !ok {
		panic("no encoding of " + i.Opcode)
	}
	bits |= size<<22 | n[1]<<5 | n[0]
	comment = fmt.Sprintf("%s %s, %s", i.Opcode, v(0, lanes), v(1, lanes))
	if len(n) == 3 {
		return bits | n[2]<<16, comment + ", " + v(2, lanes)
	}
	return bits, comment
}
