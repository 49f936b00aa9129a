package kernel

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/param"
)

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*(\[[A-Za-z0-9_.]+\])?$`)

// quoted returns a parameter's name in the canonical text.
func quoted(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// Parse reads the canonical text of a covariance (Covariance.String) over points
// of dimension dim. What a text does not say, such as the terms' names, is left
// empty.
func Parse(text string, dim int) (*Covariance, error) {
	p := &parser{text, dim}
	var terms []Term
	for {
		t, err := p.term()
		if err != nil {
			return nil, fmt.Errorf("covariance %.100q, at character %d: %w", text, len(text)-len(p.rest)+1, err)
		}
		terms = append(terms, t)
		if p.rest == "" {
			break
		}
		if !p.take("+") {
			return nil, fmt.Errorf("covariance %.100q, at character %d: want + or the end", text, len(text)-len(p.rest)+1)
		}
	}
	c, err := New(dim, terms...)
	if err != nil {
		return nil, fmt.Errorf("covariance %.100q: %w", text, err)
	}
	return c, nil
}

// parser reads a text from the left.
type parser struct {
	rest string
	dim  int
}

// take removes s from the front, if it is there.
func (p *parser) take(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

func (p *parser) term() (t Term, err error) {
	if t.Variance, t.Fixed, err = p.fixedOr(param.Variance); err != nil {
		return t, err
	}
	t.Variance.Role = param.Variance
	for p.take("*") {
		l, err := p.leaf()
		if err != nil {
			return t, err
		}
		t.Leaves = append(t.Leaves, l)
	}
	return t, nil
}

// param reads a parameter's name.
func (p *parser) param(role param.Role) (param.Param, error) {
	name, err := p.word()
	if err != nil {
		return param.Param{}, err
	}
	symbol, index, ok := strings.Cut(name, "[")
	if index, closed := strings.CutSuffix(index, "]"); ok && closed && index != "" && symbol != "" {
		return param.Param{Symbol: symbol, Index: index, Role: role}, nil
	}
	return param.Param{Symbol: name, Role: role}, nil
}

// word reads a name as quoted writes it.
func (p *parser) word() (string, error) {
	if strings.HasPrefix(p.rest, `"`) {
		text, err := strconv.QuotedPrefix(p.rest)
		if err != nil {
			return "", errors.New("a name has no closing quote")
		}
		p.take(text)
		return strconv.Unquote(text)
	}
	name := p.rest
	if i := strings.IndexAny(p.rest, "+*(),:;-\""); i >= 0 {
		name = p.rest[:i]
	}
	if !plainName.MatchString(name) {
		return "", errors.New("want the name of a parameter")
	}
	p.take(name)
	return name, nil
}

// constant returns a number in the place of a parameter, in the canonical text.
func constant(x float64) string { return "=" + strconv.FormatFloat(x, 'g', -1, 64) }

// number reads a number, which ends where a colon, comma, semicolon, star or bracket stands.
func (p *parser) number() (float64, error) {
	text := p.rest
	if i := strings.IndexAny(text, ":,;)*"); i >= 0 {
		text = text[:i]
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errors.New("want a number")
	}
	p.take(text)
	return x, nil
}

// fixedOr reads a parameter, or the number that it is fixed at.
func (p *parser) fixedOr(role param.Role) (q param.Param, fixed float64, err error) {
	if p.take("=") {
		fixed, err = p.number()
		return q, fixed, err
	}
	q, err = p.param(role)
	return q, 0, err
}

// leaf reads a leaf such as rbf(1-3:tau).
func (p *parser) leaf() (Leaf, error) {
	name, _, ok := strings.Cut(p.rest, "(")
	if !ok {
		return nil, errors.New("want a leaf such as rbf(1:tau)")
	}
	s := &Stationary{}
	switch name {
	case periodicName, cosineName:
		p.take(name + "(")
		return p.onCircle(name)
	case linearName:
		p.take(name + "(")
		return p.linear()
	case sigmoidName:
		p.take(name + "(")
		return p.sigmoid()
	case polynomialName:
		p.take(name + "(")
		return p.polynomial()
	case coregionName:
		p.take(name + "(")
		return p.coregion()
	case warpedName:
		p.take(name + "(")
		return p.warped()
	case hammingName:
	case Rational.String(), Wendland.String(), Wendland0.String(), Wendland2.String():
		s.Family = Family(slices.Index(familyNames[:], name))
	default:
		var err error
		if s.Family, err = ParseFamily(name); err != nil {
			return nil, err
		}
	}
	p.take(name + "(")
	if err := p.stationary(s); err != nil {
		return nil, err
	}
	if name == hammingName {
		return hammingOf(s)
	}
	return s, nil
}

// stationary reads the rest of a leaf such as rbf(1-3:tau) or rq(1:tau;=2).
func (p *parser) stationary(s *Stationary) (err error) {
	for {
		if err := p.features(s); err != nil {
			return err
		}
		if s.Family == Rational && p.take(";") {
			if s.Alpha, s.FixedAlpha, err = p.fixedOr(param.Shape); err != nil {
				return err
			}
			if !p.take(")") {
				return errors.New("want )")
			}
			break
		}
		if p.take(")") {
			break
		}
		if !p.take(",") {
			return errors.New("want , or )")
		}
	}
	if len(s.Rates) > 0 && s.sameRates() {
		s.Rates = s.Rates[:1]
	}
	if len(s.Fixed) > 0 && len(slices.Compact(slices.Clone(s.Fixed))) == 1 {
		s.Fixed = s.Fixed[:1]
	}
	return nil
}

// onCircle reads the rest of a leaf such as periodic(1:tau:=1:13.2) or cosine(1:=1:13.2).
func (p *parser) onCircle(name string) (Leaf, error) {
	input, err := p.input()
	if err != nil {
		return nil, err
	}
	l := &Periodic{Input: input - 1}
	parts := []func() error{
		func() (err error) { l.Period, l.FixedPeriod, err = p.fixedOr(param.Period); return err },
		func() (err error) { l.Unit, err = p.number(); return err },
	}
	if name == periodicName {
		parts = append([]func() error{func() (err error) { l.Rate, l.FixedRate, err = p.fixedOr(param.Rate); return err }}, parts...)
	}
	for _, next := range parts {
		if !p.take(":") {
			return nil, errors.New("want a colon")
		}
		if err := next(); err != nil {
			return nil, err
		}
	}
	if !p.take(")") {
		return nil, errors.New("want )")
	}
	if name == cosineName {
		return &Cosine{Input: l.Input, Unit: l.Unit, Period: l.Period, FixedPeriod: l.FixedPeriod}, nil
	}
	return l, nil
}

// features reads inputs and their rate, such as 1-3:tau.
func (p *parser) features(s *Stationary) error {
	lo, err := p.input()
	if err != nil {
		return err
	}
	hi := lo
	if p.take("-") {
		if hi, err = p.input(); err != nil {
			return err
		}
	}
	if !p.take(":") {
		return errors.New("want : and the name of a rate")
	}
	rate, fixed, err := p.fixedOr(param.Rate)
	if err != nil {
		return err
	}
	if hi < lo {
		return fmt.Errorf("inputs %d to %d", lo, hi)
	}
	for k := lo; k <= hi; k++ {
		s.Inputs = append(s.Inputs, k-1)
		if rate.Symbol != "" {
			s.Rates = append(s.Rates, rate)
		} else {
			s.Fixed = append(s.Fixed, fixed)
		}
	}
	return nil
}

func (p *parser) input() (int, error) {
	i := 0
	for i < len(p.rest) && p.rest[i] >= '0' && p.rest[i] <= '9' {
		i++
	}
	n, err := strconv.Atoi(p.rest[:i])
	if err != nil || n < 1 || n > p.dim {
		return 0, fmt.Errorf("want the number of an input, 1 to %d", p.dim)
	}
	p.rest = p.rest[i:]
	return n, nil
}
