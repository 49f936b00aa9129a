// Package expression reads what users write as model.kernel where it is more than the name of
// a family: a sum of terms, each a product of leaves over inputs by name,
//
//	trend: rbf(year) + season: periodic(year, period=1) * rbf(year) + matern52(temp, hum, ard)
//
// and makes a covariance of it, of named parameters.
package expression

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// Expression is a sum of terms, with brackets written out: (a+b)*c is a*c + b*c, where c is one
// leaf, of the same parameters in both terms. Each term has a name of its own.
type Expression struct {
	terms []term
	text  string
}

// term is a product of leaves.
type term struct {
	name   string
	group  string // the name before what was written out, if that came to several terms
	leaves []*leaf
	column int
}

// leaf is a factor as it was written.
type leaf struct {
	kind   string
	inputs []word // none for all
	ard    bool
	// Where they are 0 they are parameters.
	lengthscale, period float64
	centre, at          given   // of linear, and of a sigmoid, in the units of the input
	width               float64 // of a sigmoid, in the units of its input
	falling             bool
	degree              float64 // of a polynomial, 2 if it is not given
	offset              given   // of a polynomial, 1 if it is not given
	column              int
}

// word is a name with its place in the text.
type word struct {
	text   string
	column int
}

// Error is a mistake in an expression.
type Error struct {
	Column int // from 1, in characters
	Msg    string
}

func (e *Error) Error() string { return fmt.Sprintf("character %d: %s", e.Column, e.Msg) }

func fail(column int, format string, args ...any) error {
	return &Error{column, fmt.Sprintf(format, args...)}
}

const periodic = "periodic"

// Kinds returns the names of the leaves that there are.
func Kinds() []string {
	return append(slices.Clone(kernel.FamilyNames()), periodic, linear, constant, polynomial, sigmoid)
}

// Is reports whether a text is more than the name of a family.
func Is(text string) bool { return !slices.Contains(kernel.FamilyNames(), text) }

// Terms returns the terms' names.
func (e *Expression) Terms() []string {
	names := make([]string, len(e.terms))
	for i, t := range e.terms {
		names[i] = t.name
	}
	return names
}

// Names returns what the names of parameters can begin with: the terms' names, and those that were
// given to a product that came to several terms.
func (e *Expression) Names() []string {
	names := e.Terms()
	for _, t := range e.terms {
		if t.group != "" && !slices.Contains(names, t.group) {
			names = append(names, t.group)
		}
	}
	return names
}

// String returns the expression as Parse reads it, in one form of all that mean the same.
func (e *Expression) String() string { return e.text }

func (l *leaf) String() string {
	var args []string
	for _, in := range l.inputs {
		if isName(in.text) && in.text != ardWord && (in.text != fallingWord || l.kind != sigmoid) {
			args = append(args, in.text)
		} else {
			args = append(args, strconv.Quote(in.text))
		}
	}
	if l.ard {
		args = append(args, ardWord)
	}
	if l.falling {
		args = append(args, fallingWord)
	}
	for _, a := range l.numbers() {
		if a.isGiven() {
			args = append(args, a.name+"="+strconv.FormatFloat(*a.value, 'g', -1, 64))
		}
	}
	if len(args) == 0 {
		return l.kind
	}
	return l.kind + "(" + strings.Join(args, ", ") + ")"
}

const ardWord = "ard"

// given is a number that may be any, and may be left out.
type given struct {
	value float64
	is    bool
}

// or returns the number, or another if it was left out.
func (g given) or(x float64) float64 {
	if g.is {
		return g.value
	}
	return x
}

// number is what a leaf may be given as name=value: a positive one, or any if given is not nil,
// which then says whether it is given.
type number struct {
	name  string
	value *float64
	given *bool
}

func anyNumber(name string, g *given) number { return number{name, &g.value, &g.is} }

func (n number) isGiven() bool {
	if n.given != nil {
		return *n.given
	}
	return *n.value > 0
}

func (l *leaf) numbers() []number {
	switch l.kind {
	case constant:
		return nil
	case linear:
		return []number{anyNumber("centre", &l.centre)}
	case polynomial:
		return []number{{name: "degree", value: &l.degree}, anyNumber("offset", &l.offset)}
	case sigmoid:
		return []number{anyNumber("at", &l.at), {name: "width", value: &l.width}}
	}
	out := []number{{name: "lengthscale", value: &l.lengthscale}}
	if l.kind == periodic {
		out = append(out, number{name: "period", value: &l.period})
	}
	return out
}

// Input is an input that leaves can be over.
type Input struct {
	Name string
	Mean float64 // at which the standardised input is 0
	SD   float64 // of which the standardised input is in units
	// Levels is how many a category has, whose values are from 0 to Levels-1; 0 for numbers.
	Levels int
}

// Covariance returns the covariance over the inputs. Its parameters are named by their terms:
// trend.variance; trend.tau[k], the rate of input k alone, or weather.tau, that of all inputs
// of the leaf; season.period. In a term of several leaves the leaf stands between,
// season.rbf.tau[1]. Rates are of standardised inputs, periods in the units of the input. It
// is an error if an expression names an input that there is not, or has two equal terms.
func (e *Expression) Covariance(inputs []Input) (*kernel.Covariance, error) {
	var terms []kernel.Term
	seen := map[string]string{} // terms by what they are, sorted
	made := map[*leaf]kernel.Leaf{}
	kinds := map[string]int{} // how many leaves of a kind a name has had
	for _, t := range e.terms {
		v := kernel.Term{Variance: param.Param{Term: t.name, Symbol: "variance", Role: param.Variance}}
		var same []string
		for _, l := range t.leaves {
			bare, err := l.kernel("", inputs)
			if err != nil {
				return nil, err
			}
			same = append(same, bare.String())
			if made[l] == nil {
				if made[l], err = l.kernel(e.prefix(t, l, kinds), inputs); err != nil {
					return nil, err
				}
			}
			v.Leaves = append(v.Leaves, made[l])
		}
		slices.Sort(same)
		text := strings.Join(same, "*")
		if first, ok := seen[text]; ok {
			return nil, fail(t.column, "the terms %s and %s are the same: the data cannot tell their variances apart", first, t.name)
		}
		seen[text] = t.name
		terms = append(terms, v)
	}
	return kernel.New(len(inputs), terms...)
}

// prefix returns what the names of the parameters of a leaf begin with: the name of its term,
// or, if it is a factor of several, that of all of these, and its kind unless it is alone.
func (e *Expression) prefix(t term, l *leaf, kinds map[string]int) string {
	name, occurs := t.name, 0
	for _, u := range e.terms {
		if slices.Contains(u.leaves, l) {
			occurs++
		}
	}
	if occurs > 1 && t.group != "" {
		name = t.group
	} else if len(t.leaves) == 1 {
		return name
	}
	name += "." + l.kind
	if kinds[name]++; kinds[name] > 1 {
		return name + "_" + strconv.Itoa(kinds[name])
	}
	return name
}

// kernel returns the leaf, whose parameters' names begin with prefix.
func (l *leaf) kernel(prefix string, inputs []Input) (kernel.Leaf, error) {
	if slices.Contains(featured, l.kind) {
		return l.features(inputs)
	}
	at, err := l.places(inputs)
	if err != nil {
		return nil, err
	}
	tau := param.Param{Term: prefix, Symbol: "tau", Role: param.Rate}
	rate := func(unit float64) float64 { return unit * unit / (2 * l.lengthscale * l.lengthscale) }
	if l.kind == periodic {
		if len(at) != 1 {
			return nil, fail(l.column, "periodic is over one input, not %d: name it, as in periodic(%s, period=1)", len(at), inputs[0].Name)
		}
		p := &kernel.Periodic{Input: at[0], Unit: inputs[at[0]].SD, FixedPeriod: l.period}
		if l.period == 0 {
			p.Period = param.Param{Term: prefix, Symbol: "period", Role: param.Period}
		}
		if l.lengthscale == 0 {
			p.Rate = tau
		} else {
			p.FixedRate = rate(1)
		}
		return p, nil
	}
	family, err := kernel.ParseFamily(l.kind)
	if err != nil {
		return nil, fail(l.column, "%v", err)
	}
	s := &kernel.Stationary{Family: family, Inputs: at}
	switch {
	case l.lengthscale > 0 && len(at) == 1:
		s.Fixed = []float64{rate(inputs[at[0]].SD)}
	case l.lengthscale > 0:
		s.Fixed = []float64{rate(1)}
	case l.ard || len(at) == 1:
		for _, k := range at {
			tau.Index = strconv.Itoa(k + 1)
			s.Rates = append(s.Rates, tau)
		}
	default:
		s.Rates = []param.Param{tau}
	}
	return s, nil
}

// places returns the places of the leaf's inputs.
func (l *leaf) places(inputs []Input) ([]int, error) {
	var out []int
	if len(l.inputs) == 0 {
		for k := range inputs {
			out = append(out, k)
		}
		return out, nil
	}
	names := make([]string, len(inputs))
	for k, in := range inputs {
		names[k] = in.Name
	}
	for _, w := range l.inputs {
		k := slices.Index(names, w.text)
		if k < 0 {
			if near, ok := nearest.Word(w.text, names); ok {
				return nil, fail(w.column, "there is no input %q: did you mean %q?", w.text, near)
			}
			return nil, fail(w.column, "there is no input %q: the inputs are %s", w.text, some(names))
		}
		if slices.Contains(out, k) {
			return nil, fail(w.column, "the input %s is given twice", w.text)
		}
		out = append(out, k)
	}
	return out, nil
}

// some returns the first names, as many as a sentence bears.
func some(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Unused returns the inputs that no leaf is over.
func (e *Expression) Unused(inputs []string) []string {
	var out []string
	for _, name := range inputs {
		used := slices.ContainsFunc(e.terms, func(t term) bool {
			return slices.ContainsFunc(t.leaves, func(l *leaf) bool {
				return l.kind != constant && len(l.inputs) == 0 || slices.ContainsFunc(l.inputs, func(w word) bool { return w.text == name })
			})
		})
		if !used {
			out = append(out, name)
		}
	}
	return out
}

// errTooLarge bounds what brackets write out to.
var errTooLarge = errors.New("the expression is too large: it has more than 100 leaves, brackets written out")
