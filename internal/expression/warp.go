package expression

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

const warpWord = "warp"

// warp is how an input is warped, warp(x, from=0, to=100): the range in the units of the input, and the exponents,
// which are parameters where they are 0.
type warp struct {
	from, to given
	a, b     float64
}

func (in input) isWarped() bool { return in.warp != nil }

func (w *warp) numbers() []number {
	return []number{anyNumber("from", &w.from), anyNumber("to", &w.to), {name: "a", value: &w.a}, {name: "b", value: &w.b}}
}

// text returns the warp of an input as it is written.
func (w *warp) text(name string) string {
	return warpWord + "(" + strings.Join(append([]string{quoted(name)}, written(w.numbers())...), ", ") + ")"
}

// add adds an input. One that is given twice, and not warped, is told by places, which knows the inputs.
func (l *leaf) add(in input) error {
	for _, other := range l.inputs {
		if other.text == in.text && (other.isWarped() || in.isWarped()) {
			return fail(in.column, "the input %s is given twice", in.text)
		}
	}
	l.inputs = append(l.inputs, in)
	return nil
}

// distances reports whether leaves of a kind are functions of the distance of their inputs.
func distances(kind string) bool {
	return kind == rational || strings.HasPrefix(kind, wendland) || slices.Contains(kernel.FamilyNames(), kind)
}

// warp reads what stands in the brackets of a warp of an input of the leaf, at is where the warp is.
func (p *parser) warp(l *leaf, at word) (in input, err error) {
	if !distances(l.kind) {
		return in, fail(at.column, "%s is not over warped inputs: %s, %s and those of %s are", l.kind, strings.Join(kernel.FamilyNames(), ", "), rational, wendland)
	}
	w, text, err := p.takeInput()
	if err != nil {
		return in, err
	}
	if w.text == "" && !text {
		return in, p.fail("want the name of an input, as in warp(x, from=0, to=100), not %q", p.next())
	}
	in = input{w, &warp{}}
	for p.take(",") {
		name, ok := p.takeName()
		if !ok || !p.take("=") {
			return in, p.fail("want from, to, a or b with a number, as in warp(x, from=0, to=100), not %q: a warp is of one input", p.next())
		}
		if err := p.named(warpWord, name, in.warp.numbers()); err != nil {
			return in, err
		}
	}
	if !p.take(")") {
		return in, p.fail("want a comma or ), not %q", p.next())
	}
	switch {
	case !in.warp.from.is || !in.warp.to.is:
		return in, fail(at.column, "a warp needs the range of its input: write warp(%s, from=0, to=100), with numbers that no row is outside of", quoted(w.text))
	case in.warp.from.value >= in.warp.to.value:
		return in, fail(at.column, "the warp of %s is from %g to %g: the second must be the larger", w.text, in.warp.from.value, in.warp.to.value)
	}
	return in, nil
}

// warped returns the leaf with its warps, itself if it has none. Its exponents have names that begin with prefix.
func (l *leaf) warped(prefix string, s *kernel.Stationary, inputs []Input) kernel.Leaf {
	out := &kernel.Warped{Stationary: s}
	for i, in := range l.inputs {
		if !in.isWarped() {
			continue
		}
		k := s.Inputs[i]
		of := inputs[k]
		w := kernel.Warp{Input: k, Lo: (in.warp.from.value - of.Mean) / of.SD, Hi: (in.warp.to.value - of.Mean) / of.SD, FixedA: in.warp.a, FixedB: in.warp.b}
		exponent := param.Param{Term: prefix, Index: strconv.Itoa(k + 1), Role: param.Exponent}
		if w.FixedA == 0 {
			w.A = exponent
			w.A.Symbol = "warp_a"
		}
		if w.FixedB == 0 {
			w.B = exponent
			w.B.Symbol = "warp_b"
		}
		out.Warps = append(out.Warps, w)
	}
	if len(out.Warps) == 0 {
		return s
	}
	return out
}
