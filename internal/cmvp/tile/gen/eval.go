package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
)

// family is a covariance function as it is evaluated: with w the squared
// distance of scaled inputs, x = −w for RBF and x = √w for a Matérn,
// e = 2^(−|x|), every output is a polynomial in x times e.
type family struct {
	name        string
	matern      bool
	value       []float64 // g
	deriv       []float64 // dg/du; nil for −e/(x·ln 2)
	scaledDeriv []float64 // u·dg/du

	// shaped is set where the outputs are something else: of x = w, for a profile of the given
	// shape. It emits what is done once and returns what emits the outputs of some vectors.
	shaped func(e *evaluation) mapping
	counts bool      // w is the number of features that differ
	outs   []outputs // that there are
}

// mapping emits the outputs for a few vectors x, stored at at(i).
type mapping func(x []vec, at func(i int) Mem)

// negated reports whether the map takes −w.
func (f *family) negated() bool { return !f.matern && f.shaped == nil }

const ln2 = math.Ln2

// From package kernel, with a = x·ln 2 for a Matérn of rate c, u = a²/c.
var families = []family{
	{name: "RBF", value: []float64{1}, deriv: []float64{-1}, scaledDeriv: []float64{0, ln2}, outs: derivatives},
	{name: "Matern12", matern: true, value: []float64{1}, scaledDeriv: []float64{0, -ln2 / 2}, outs: derivatives},
	{name: "Matern32", matern: true, value: []float64{1, ln2}, deriv: []float64{-3}, scaledDeriv: []float64{0, 0, -ln2 * ln2 / 2}, outs: derivatives},
	{name: "Matern52", matern: true, value: []float64{1, ln2, ln2 * ln2 / 3}, deriv: []float64{-5.0 / 3, -5.0 / 3 * ln2},
		scaledDeriv: []float64{0, 0, -ln2 * ln2 / 6, -ln2 * ln2 * ln2 / 6}, outs: derivatives},
	{name: "Rational", shaped: (*evaluation).rational, outs: []outputs{derivs, scaledDerivs, shapeDerivs}},
	{name: "Wendland", shaped: (*evaluation).wendland, outs: derivatives},
	{name: "Circular", shaped: (*evaluation).circular, outs: []outputs{derivs}},
	{name: "Mismatch", shaped: (*evaluation).mismatch, counts: true, outs: []outputs{shapeDerivs}},
	{name: "Wendland0", shaped: (*evaluation).wendland0, outs: derivatives},
	{name: "Wendland2", shaped: (*evaluation).wendland2, outs: derivatives},
}

var derivatives = []outputs{derivs, scaledDerivs}

// outputs are what a kernel evaluates.
type outputs int

const (
	values       outputs = iota // g
	derivs                      // g and dg/du
	scaledDerivs                // g and u·dg/du
	shapeDerivs                 // g and a·∂g/∂a
)

// evaluation is what is known while an evaluation is emitted.
type evaluation struct {
	*generator
	family family
	out    outputs

	// Blocks of rows×across vectors accumulate their squared distances in
	// registers, enough of them to hide the latency of the additions; chains of
	// them at a time are mapped to covariances.
	rows, across, chains int

	// inRegisters says that the map follows while the distances of a block are
	// in registers. Else it is a second pass over the strip: AVX2 has too few
	// registers, and NEON for derivatives; and for a Matérn the divider, which takes as long for a square
	// root as the multipliers for all the rest, can work beside both passes if
	// each takes half of the roots.
	inRegisters bool

	h gp // from an element of the strip k to that of h
}

// eval emits the evaluation of a strip.
func (g *generator) eval(f family, out outputs) {
	e := &evaluation{generator: g, family: f, out: out, rows: 4, across: 2, chains: 4}
	if g.registers() == 32 {
		e.across = min(4, panel/g.lanes())
		e.rows = 16 / e.across
		e.inRegisters = f.negated() && (g.avx512() || out == values)
	} else if !f.negated() || out != values {
		e.chains = 2
	}

	signature := "func(k, h, zi, zj []T, d, panels int, shape T)"
	switch out {
	case values:
		g.text("Eval"+f.name, "func(k, zi, zj []T, d, panels int, shape T)", "sets the strip k to g.")
	case derivs:
		g.text("Deriv"+f.name, signature, "sets the strips k and h to g and dg/du.")
	case scaledDerivs:
		g.text("ScaledDeriv"+f.name, signature, "sets the strips k and h to g and u·dg/du.")
	case shapeDerivs:
		g.text("ShapeDeriv"+f.name, signature, "sets the strips k and h to g and a·∂g/∂a.")
	}
	if out != values {
		e.h = base("h")
		asm.SUBQ(base("k"), e.h)
	}
	e.firstPass()
	if !e.inRegisters {
		e.secondPass()
	}
	g.ret()
}

// row is the bytes from one row of a strip to the next.
func (e *evaluation) row() int { return size * e.elem }

// firstPass emits the distances.
func (e *evaluation) firstPass() {
	k, zj, d := base("k"), base("zj"), word("d")
	panelBytes := scaled(d, panel*e.elem)
	var exp *exponential
	if e.inRegisters {
		exp = e.exponential(32 - e.rows*e.across - 2*e.chains)
	}
	repeat(word("panels"), func() {
		zjb := copied(zj)
		times(panel/e.lanes()/e.across, func() {
			zib, kb := base("zi"), copied(k)
			times(strip/e.rows, func() {
				at := func(i int) Mem { return Mem{Base: kb, Disp: i/e.across*e.row() + i%e.across*e.width} }
				w := e.distances(zib, zjb, d)
				if e.inRegisters {
					for c := 0; c < len(w); c += e.chains {
						e.covariances(exp, w[c:c+e.chains], func(i int) Mem { return at(c + i) })
					}
				} else {
					e.roots(0, w)
					for i := range w {
						e.store(w[i], at(i))
					}
				}
				advance(kb, e.rows*e.row())
				advance(zib, e.rows*e.elem)
			})
			advance(k, e.across*e.width)
			advance(zjb, e.across*e.width)
		})
		asm.ADDQ(panelBytes, zj)
	})
}

// secondPass emits the map of the distances in the strip.
func (e *evaluation) secondPass() {
	k := base("k")
	to := e.mapping()
	perRow := panel / e.lanes()
	rows := max(1, e.chains/perRow)
	repeat(word("panels"), func() {
		kb := copied(k)
		times(strip/rows, func() {
			kx, groups := kb, 1
			if e.neon() { // a row is many of its vectors
				kx, groups = copied(kb), perRow/e.chains
			}
			times(groups, func() {
				for c := 0; c < rows*perRow/groups; c += e.chains {
					at := func(i int) Mem { return Mem{Base: kx, Disp: (c+i)/perRow*e.row() + (c+i)%perRow*e.width} }
					x := e.vecs(e.chains)
					for i := range x {
						e.load(at(i), x[i])
					}
					to(x, at)
				}
				if groups > 1 {
					advance(kx, e.chains*e.width)
				}
			})
			advance(kb, rows*e.row())
		})
		advance(k, panel*e.elem)
	})
}

// mapping returns what emits the map of the second pass.
func (e *evaluation) mapping() mapping {
	if e.family.shaped != nil {
		return e.family.shaped(e)
	}
	exp := e.exponential(32 - 4*e.chains)
	return func(x []vec, at func(i int) Mem) {
		e.roots(1, x)
		e.covariances(exp, x, at)
	}
}

// roots takes the square roots that a Matérn needs in one of two passes.
//
// Each takes half of them by the divider. In float64, AVX-512 takes all in the second pass, half of them by
// the multipliers: on an Intel server core the divider needs 23 cycles for the roots of a
// vector, in which the multipliers can do 46 multiply-adds.
func (e *evaluation) roots(pass int, w []vec) {
	switch {
	case !e.family.matern:
	case !e.avx512() || e.elem == 4:
		for i := pass; i < len(w); i += 2 {
			e.sqrt(w[i], w[i])
		}
	case pass == 1:
		half := len(w) / 2
		for i := range half {
			e.sqrt(w[i], w[i])
		}
		copy(w[half:], e.newtonRoots(w[half:]))
	}
}

// distances returns Σ (z_i − z_j)² over d inputs for a block, or the negative
// of it for RBF, or the number of inputs that differ, which are whole numbers.
func (e *evaluation) distances(zi, zj, d gp) []vec {
	w := e.zeros(e.rows * e.across)
	zi, zj = copied(zi), copied(zj)
	repeat(copied(d), func() {
		cols := e.vecs(e.across)
		for p, c := range cols {
			e.load(Mem{Base: zj, Disp: p * e.width}, c)
		}
		row := e.elements(Mem{Base: zi}, e.rows)
		for r := range e.rows {
			x := e.everyLane(row(r)).(vec)
			for p, c := range cols {
				t, sum := e.vec(), w[r*e.across+p]
				e.sub(x, c, t)
				switch {
				case e.family.counts:
					e.mul(t, t, t)
					e.minConstant(t, 1)
					e.add(sum, t, sum)
				case e.family.negated():
					e.fnma(t, t, sum)
				default:
					e.fma(t, t, sum)
				}
			}
		}
		advance(zi, panel*e.elem)
		advance(zj, panel*e.elem)
	})
	return w
}

// covariances stores the outputs for a few vectors of x at at(i), and those of
// the derivatives at the offset h from there.
func (e *evaluation) covariances(exp *exponential, x []vec, at func(i int) Mem) {
	f, t := e.family, x
	if f.matern {
		t = e.zeros(len(x))
		for i := range t {
			e.sub(t[i], x[i], t[i])
		}
	} else if e.out == scaledDerivs && !e.avx512() {
		t = e.vecs(len(x)) // the exponential clobbers it
		for i := range t {
			e.move(x[i], t[i])
		}
	}
	p := exp.of(t)
	for i := range p {
		var y vec
		switch {
		case e.out == values:
			continue
		case e.out == scaledDerivs:
			y = e.polynomialTimes(f.scaledDeriv, x[i], p[i])
		case f.deriv != nil:
			y = e.polynomialTimes(f.deriv, x[i], p[i])
		default:
			y = e.vec()
			e.max(e.constant(tiny), x[i], y)
			e.mulConstant(y, -ln2)
			e.div(p[i], y, y)
		}
		m := at(i)
		m.Index, m.Scale = e.h, 1
		e.store(y, m)
	}
	for i := range p {
		e.store(e.polynomialTimes(f.value, x[i], p[i]), at(i))
	}
}

// polynomialTimes returns p·Σ coef[k]·x^k.
func (g *generator) polynomialTimes(coef []float64, x, p vec) vec {
	last := len(coef) - 1
	if last == 0 && coef[0] == 1 {
		return p
	}
	y := g.constant(coef[last])
	for k := last - 1; k >= 0; k-- {
		if coef[k] == 0 {
			g.mul(y, x, y)
		} else {
			y = g.horner(x, coef[k], y)
		}
	}
	g.mul(y, p, y)
	return y
}

// tiny bounds a distance from below where its reciprocal is needed.
const tiny = 1e-150
