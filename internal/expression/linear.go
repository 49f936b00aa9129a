package expression

import (
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// The leaves that are no function of a distance. Their weight is the variance of the term.
const (
	linear   = "linear"
	constant = "constant"
)

// lines returns the terms that a leaf of straight lines comes to, and its text: with ard one for
// each input, each with a variance of its own.
func (l *leaf) lines() ([]term, string, error) {
	switch {
	case l.kind == constant && (l.ard || len(l.inputs) > 0):
		return nil, "", fail(l.column, "constant is the same everywhere: it has no inputs")
	case l.centred && len(l.inputs) != 1:
		return nil, "", fail(l.column, "centre is where the lines over one input are zero: name the input, as in linear(x, centre=%g)", l.centre)
	case !l.ard:
		return []term{{leaves: []*leaf{l}, column: l.column}}, l.String(), nil
	case len(l.inputs) == 0:
		return nil, "", fail(l.column, "ard is a variance for each of several inputs: name them, as in linear(x, y, ard)")
	}
	var out []term
	for _, in := range l.inputs {
		t := term{leaves: []*leaf{{kind: linear, inputs: []word{in}, centre: l.centre, centred: l.centred, column: l.column}}, column: l.column}
		if len(l.inputs) > 1 && nameForm.MatchString(in.text) {
			t.name = linear + "_" + in.text
		}
		out = append(out, t)
	}
	return out, l.String(), nil
}

// line returns the leaf of straight lines.
func (l *leaf) line(inputs []Input) (kernel.Leaf, error) {
	if l.kind == constant {
		return &kernel.Linear{Constant: true}, nil
	}
	at, err := l.places(inputs)
	if err != nil {
		return nil, err
	}
	k := &kernel.Linear{Inputs: at, Centres: make([]float64, len(at))}
	if l.centred {
		in := inputs[at[0]]
		k.Centres[0] = (l.centre - in.Mean) / in.SD
	}
	return k, nil
}
