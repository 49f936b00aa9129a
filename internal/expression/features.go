package expression

import (
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// The leaves that are no function of a distance. Their weight is the variance of the term.
const (
	linear     = "linear"
	constant   = "constant"
	polynomial = "polynomial"
	sigmoid    = "sigmoid"
)

var featured = []string{linear, constant, polynomial, sigmoid}

const fallingWord = "falling"

// written returns the terms that a leaf that is no function of a distance comes to, and its text: of lines with ard one
// for each input, each with a variance of its own.
func (l *leaf) written() ([]term, string, error) {
	fault := func(format string, args ...any) ([]term, string, error) {
		return nil, "", fail(l.column, format, args...)
	}
	switch {
	case l.kind == constant && (l.ard || len(l.inputs) > 0):
		return fault("constant is the same everywhere: it has no inputs")
	case l.centre.is && len(l.inputs) != 1:
		return fault("centre is where the lines over one input are zero: name the input, as in linear(x, centre=%g)", l.centre.value)
	case l.kind == polynomial && (l.degree != float64(int(l.degree)) || l.degree > kernel.MaxDegree):
		return fault("degree is %g, but must be a whole number up to %d", l.degree, kernel.MaxDegree)
	case l.offset.value < 0:
		return fault("offset is %g, but must not be negative", l.offset.value)
	case l.kind == sigmoid && len(l.inputs) != 1:
		return fault("a sigmoid is over one input: sigmoid(x), or sigmoid(x, falling)")
	case l.ard && l.kind != linear:
		return fault("ard does not go with %s", l.kind)
	case !l.ard:
		return []term{{leaves: []*leaf{l}, column: l.column}}, l.String(), nil
	case len(l.inputs) == 0:
		return fault("ard is a variance for each of several inputs: name them, as in linear(x, y, ard)")
	}
	var out []term
	for _, in := range l.inputs {
		t := term{leaves: []*leaf{{kind: linear, inputs: []input{in}, centre: l.centre, column: l.column}}, column: l.column}
		if len(l.inputs) > 1 && nameForm.MatchString(in.text) {
			t.name = linear + "_" + in.text
		}
		out = append(out, t)
	}
	return out, l.String(), nil
}

// features returns the leaf, whose parameters' names begin with prefix.
func (l *leaf) features(prefix string, inputs []Input) (kernel.Leaf, error) {
	if l.kind == constant {
		return &kernel.Linear{Constant: true}, nil
	}
	at, err := l.places(inputs)
	if err != nil {
		return nil, err
	}
	first := inputs[at[0]]
	switch l.kind {
	case sigmoid:
		return l.sigmoid(prefix, at[0], first), nil
	case polynomial:
		p := &kernel.Polynomial{Inputs: at, Degree: 2, FixedOffset: l.offset.value}
		if !l.offset.is {
			p.Offset = param.Param{Term: prefix, Symbol: "offset", Role: param.Offset}
		}
		if l.degree > 0 {
			p.Degree = int(l.degree)
		}
		if n := p.NumFeatures(); n > kernel.MaxRank {
			return nil, fail(l.column, "a polynomial of degree %d over %d inputs has more than %d monomials: name fewer inputs", p.Degree, len(at), kernel.MaxRank)
		}
		return p, nil
	}
	k := &kernel.Linear{Inputs: at, Centres: make([]float64, len(at))}
	if l.centre.is {
		k.Centres[0] = (l.centre.value - first.Mean) / first.SD
	}
	return k, nil
}

// sigmoid returns a sigmoid of an input. Numbers alone are standardised; parameters are in the units of the input.
func (l *leaf) sigmoid(prefix string, at int, in Input) kernel.Leaf {
	s := &kernel.Sigmoid{Input: at, Unit: 1, FixedPlace: (l.at.value - in.Mean) / in.SD, FixedWidth: l.width / in.SD, Falling: l.falling}
	if l.at.is && l.width > 0 {
		return s
	}
	s.Mean, s.Unit, s.FixedPlace, s.FixedWidth = in.Mean, in.SD, l.at.value, l.width
	if l.change.text != "" {
		prefix = l.change.text
	}
	if !l.at.is {
		s.Place = param.Param{Term: prefix, Symbol: "place", Role: param.Place}
	}
	if l.width == 0 {
		s.Width = param.Param{Term: prefix, Symbol: "width", Role: param.Width}
	}
	return s
}
