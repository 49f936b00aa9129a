package expression

import "strings"

// Mean is a mean function: nothing, a constant, or a constant and straight lines over inputs.
type Mean struct {
	constant bool
	lines    *leaf // nil if there are none
}

// ParseMean reads none (or nothing), constant, linear or linear(x, y). Its errors are *Error.
func ParseMean(text string) (*Mean, error) {
	switch strings.TrimSpace(text) {
	case "", "none":
		return &Mean{}, nil
	case constant:
		return &Mean{constant: true}, nil
	}
	e, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if len(e.terms) == 1 && len(e.terms[0].leaves) == 1 {
		if l := e.terms[0].leaves[0]; l.kind == linear && !l.centre.is && e.text == l.String() {
			return &Mean{constant: true, lines: l}, nil
		}
	}
	return nil, fail(1, "%q is no mean: use none, constant, linear, or linear(x, y) over some inputs", text)
}

// None reports whether there is no mean.
func (m *Mean) None() bool { return !m.constant }

// Inputs returns the places of the inputs that the mean has lines over.
func (m *Mean) Inputs(inputs []Input) ([]int, error) {
	if m.lines == nil {
		return nil, nil
	}
	return m.lines.places(inputs)
}
