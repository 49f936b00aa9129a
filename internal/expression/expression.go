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
	"math"
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
	terms    []term
	text     string
	unitless bool // see Under
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
	inputs []input // none for all
	ard    bool
	// Where they are 0 they are parameters.
	lengthscale, period, alpha, correlation float64
	centre, at                              given   // of linear, and of a sigmoid, in the units of the input
	change                                  word    // in place of at, the name of a change point, whose place and width are parameters
	width                                   float64 // of a sigmoid, in the units of its input
	falling                                 bool
	degree                                  float64 // of a polynomial, 2 if it is not given
	offset                                  given   // of a polynomial, a parameter if it is not given
	rank, scale                             float64 // of a coregion: 0 for a full matrix, for scales that are parameters
	column                                  int
}

// word is a name with its place in the text.
type word struct {
	text   string
	column int
}

// input is the name of one, and how it is warped, nil if it is not.
type input struct {
	word
	warp *warp
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

// The leaves beside those of the families.
const (
	rational = "rq"
	wendland = "wendland" // and wendland0 and wendland2
	periodic = "periodic"
	cosine   = "cosine"
	hamming  = "hamming"
	coregion = "coregion"
)

// Kinds returns the names of the leaves that there are.
func Kinds() []string {
	return append(slices.Clone(kernel.FamilyNames()), rational, wendland, kernel.Wendland0.String(), kernel.Wendland2.String(), periodic, cosine, hamming, coregion, linear, constant, polynomial, sigmoid)
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

// Names returns what the names of parameters can begin with: the terms' names, those that were
// given to a product that came to several terms, and those of change points.
func (e *Expression) Names() []string {
	names := e.Terms()
	for _, t := range e.terms {
		if t.group != "" && !slices.Contains(names, t.group) {
			names = append(names, t.group)
		}
		for _, l := range t.leaves {
			if name := l.change.text; name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Under returns the expression as the covariance of a function of a name, which has not the target's units: the names of its terms begin
// with that, or are that if there is one.
func (e *Expression) Under(name string) *Expression {
	out := &Expression{text: e.text, unitless: true}
	for _, t := range e.terms {
		t.name = name + "_" + t.name
		if len(e.terms) == 1 {
			t.name = name
		}
		if t.group != "" {
			t.group = name + "_" + t.group
		}
		out.terms = append(out.terms, t)
	}
	return out
}

// String returns the expression as Parse reads it, in one form of all that mean the same.
func (e *Expression) String() string { return e.text }

func (l *leaf) String() string {
	var args []string
	for _, in := range l.inputs {
		switch {
		case l.kind == sigmoid && in.text == fallingWord:
			args = append(args, strconv.Quote(in.text))
		case in.warp != nil:
			args = append(args, in.warp.text(in.text))
		default:
			args = append(args, quoted(in.text))
		}
	}
	if l.ard {
		args = append(args, ardWord)
	}
	if l.falling {
		args = append(args, fallingWord)
	}
	args = append(args, written(l.numbers())...)
	if len(args) == 0 {
		return l.kind
	}
	return l.kind + "(" + strings.Join(args, ", ") + ")"
}

// written returns the numbers that are given, as they are written.
func written(numbers []number) (out []string) {
	for _, n := range numbers {
		if n.word != nil && n.word.text != "" {
			out = append(out, n.name+"="+n.word.text)
		} else if n.isGiven() {
			out = append(out, n.name+"="+strconv.FormatFloat(*n.value, 'g', -1, 64))
		}
	}
	return out
}

// quoted returns the name of an input as it is written.
func quoted(input string) string {
	if isName(input) && input != ardWord {
		return input
	}
	return strconv.Quote(input)
}

const ardWord = "ard"

// given is a number that may be any, and may be left out.
type given struct {
	value float64
	is    bool
}

// number is what a leaf may be given as name=value: a positive one, or any if given is not nil,
// which then says whether it is given. Where word is not nil a name may stand in its place.
type number struct {
	name  string
	value *float64
	given *bool
	word  *word
}

func anyNumber(name string, g *given) number {
	return number{name: name, value: &g.value, given: &g.is}
}

func (n number) isGiven() bool {
	if n.given != nil {
		return *n.given
	}
	return *n.value > 0
}

func (l *leaf) numbers() []number {
	lengthscale, period := number{name: "lengthscale", value: &l.lengthscale}, number{name: "period", value: &l.period}
	switch l.kind {
	case constant:
		return nil
	case linear:
		return []number{anyNumber("centre", &l.centre)}
	case polynomial:
		return []number{{name: "degree", value: &l.degree}, anyNumber("offset", &l.offset)}
	case sigmoid:
		return []number{{name: "at", value: &l.at.value, given: &l.at.is, word: &l.change}, {name: "width", value: &l.width}}
	case rational:
		return []number{lengthscale, {name: "alpha", value: &l.alpha}}
	case periodic:
		return []number{lengthscale, period}
	case cosine:
		return []number{period}
	case hamming:
		return []number{{name: correlationWord, value: &l.correlation}}
	case coregion:
		return []number{{name: "rank", value: &l.rank}, {name: "scale", value: &l.scale}}
	}
	return []number{lengthscale}
}

const correlationWord = "correlation"

// Input is an input that leaves can be over.
type Input struct {
	Name string
	Mean float64 // at which the standardised input is 0
	SD   float64 // of which the standardised input is in units
	// Levels is how many a category has, whose values are from 0 to Levels-1; 0 for numbers. LevelNames are their names.
	Levels     int
	LevelNames []string
}

// Covariance returns the covariance over the inputs. Its parameters are named by their terms:
// trend.variance; trend.tau[k], the rate of input k alone, or weather.tau, that of all inputs
// of the leaf; season.period, weather.alpha. In a term of several leaves the leaf stands between,
// season.rbf.tau[1]; the place and width of a change point with a name by that name alone. Rates are of
// standardised inputs; periods, places and widths in the units of the input. It
// is an error if an expression names an input that there is not, takes a category for numbers or
// the other way round, or has two equal terms.
func (e *Expression) Covariance(inputs []Input) (*kernel.Covariance, error) {
	var terms []kernel.Term
	seen := map[string]string{} // terms by what they are, sorted
	made := map[*leaf][]kernel.Leaf{}
	kinds := map[string]int{} // how many leaves of a kind a name has had
	for _, t := range e.terms {
		v := kernel.Term{Variance: param.Param{Term: t.name, Symbol: "variance", Role: param.Variance, Unitless: e.unitless}}
		var same []string
		for _, l := range t.leaves {
			bare, err := l.kernel("", inputs)
			if err != nil {
				return nil, err
			}
			for _, b := range bare {
				same = append(same, b.String())
			}
			if made[l] == nil {
				if made[l], err = l.kernel(e.prefix(t, l, kinds), inputs); err != nil {
					return nil, err
				}
			}
			v.Leaves = append(v.Leaves, made[l]...)
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

// kernel returns the leaves that the leaf stands for, whose parameters' names begin with prefix.
func (l *leaf) kernel(prefix string, inputs []Input) ([]kernel.Leaf, error) {
	if slices.Contains(featured, l.kind) {
		one, err := l.features(prefix, inputs)
		return []kernel.Leaf{one}, err
	}
	at, err := l.places(inputs)
	if err != nil {
		return nil, err
	}
	switch l.kind {
	case hamming:
		return l.hamming(prefix, at), nil
	case coregion:
		one, err := l.coregion(prefix, at, inputs)
		return []kernel.Leaf{one}, err
	case periodic, cosine:
		if len(at) != 1 {
			return nil, fail(l.column, "%s is over one input, not %d: name it, as in %s(%s, period=1)", l.kind, len(at), l.kind, inputs[0].Name)
		}
		return []kernel.Leaf{l.onCircle(prefix, at[0], inputs[at[0]].SD)}, nil
	}
	one, err := l.stationary(prefix, at, inputs)
	return []kernel.Leaf{one}, err
}

// hamming returns one leaf, or, with a parameter for each of several inputs, one for each.
func (l *leaf) hamming(prefix string, at []int) []kernel.Leaf {
	tau := param.Param{Term: prefix, Symbol: "tau", Role: param.Mismatch}
	switch {
	case l.correlation > 0:
		return []kernel.Leaf{&kernel.Hamming{Inputs: at, FixedTau: -math.Log(l.correlation)}}
	case !l.ard && len(at) > 1:
		return []kernel.Leaf{&kernel.Hamming{Inputs: at, Tau: tau}}
	}
	var out []kernel.Leaf
	for _, k := range at {
		tau.Index = strconv.Itoa(k + 1)
		out = append(out, &kernel.Hamming{Inputs: []int{k}, Tau: tau})
	}
	return out
}

// coregion returns a matrix over the levels of a category.
func (l *leaf) coregion(prefix string, at []int, inputs []Input) (kernel.Leaf, error) {
	if len(at) != 1 {
		return nil, fail(l.column, "coregion is over one category, not %d: name it, as in coregion(%s), and multiply those of several", len(at), quoted(inputs[at[0]].Name))
	}
	c := &kernel.Coregion{Input: at[0], Prefix: prefix, Levels: inputs[at[0]].LevelNames, Rank: int(l.rank), Equal: l.scale > 0}
	if err := c.Check(); err != nil {
		return nil, fail(l.column, "the category %s: %v", inputs[at[0]].Name, err)
	}
	return c, nil
}

// onCircle returns a periodic or a cosine leaf of an input in the given unit.
func (l *leaf) onCircle(prefix string, input int, unit float64) kernel.Leaf {
	var period param.Param
	if l.period == 0 {
		period = param.Param{Term: prefix, Symbol: "period", Role: param.Period}
	}
	if l.kind == cosine {
		return &kernel.Cosine{Input: input, Unit: unit, Period: period, FixedPeriod: l.period}
	}
	p := &kernel.Periodic{Input: input, Unit: unit, Period: period, FixedPeriod: l.period}
	if l.lengthscale == 0 {
		p.Rate = param.Param{Term: prefix, Symbol: "tau", Role: param.Rate}
	} else {
		p.FixedRate = l.rate(1)
	}
	return p
}

// rate returns that of the fixed length-scale, which is in the given unit.
func (l *leaf) rate(unit float64) float64 { return unit * unit / (2 * l.lengthscale * l.lengthscale) }

// stationary returns a leaf of squared distances of the inputs.
func (l *leaf) stationary(prefix string, at []int, inputs []Input) (kernel.Leaf, error) {
	s := &kernel.Stationary{Inputs: at}
	switch l.kind {
	case rational:
		s.Family, s.FixedAlpha = kernel.Rational, l.alpha
		if l.alpha == 0 {
			s.Alpha = param.Param{Term: prefix, Symbol: "alpha", Role: param.Shape}
		}
	case wendland:
		s.Family = kernel.Wendland
	case kernel.Wendland0.String():
		s.Family = kernel.Wendland0
	case kernel.Wendland2.String():
		s.Family = kernel.Wendland2
	default:
		var err error
		if s.Family, err = kernel.ParseFamily(l.kind); err != nil {
			return nil, fail(l.column, "%v", err)
		}
	}
	tau := param.Param{Term: prefix, Symbol: "tau", Role: param.Rate}
	switch {
	case l.lengthscale > 0 && len(at) == 1:
		s.Fixed = []float64{l.rate(inputs[at[0]].SD)}
	case l.lengthscale > 0:
		s.Fixed = []float64{l.rate(1)}
	case l.ard || len(at) == 1:
		for _, k := range at {
			tau.Index = strconv.Itoa(k + 1)
			s.Rates = append(s.Rates, tau)
		}
	default:
		s.Rates = []param.Param{tau}
	}
	return l.warped(prefix, s, inputs), nil
}

// places returns the places of the leaf's inputs: categories of a hamming or a coregion, numbers of others.
func (l *leaf) places(inputs []Input) ([]int, error) {
	var out []int
	if len(l.inputs) == 0 {
		for k, in := range inputs {
			if msg := l.mistakes(in); msg != "" {
				return nil, fail(l.column, "without names %s is over all inputs: %s", l.kind, msg)
			}
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
		if msg := l.mistakes(inputs[k]); msg != "" {
			return nil, fail(w.column, "%s", msg)
		}
		out = append(out, k)
	}
	return out, nil
}

// mistakes returns what is wrong if the leaf takes the input for what it is not, or nothing.
func (l *leaf) mistakes(in Input) string {
	switch category, wanted := in.Levels > 0, l.kind == hamming || l.kind == coregion; {
	case category && !wanted:
		return fmt.Sprintf("the input %s is a category, whose levels have no distances: write hamming(%s) for it", in.Name, quoted(in.Name))
	case !category && wanted:
		return fmt.Sprintf("%s is over categories, and the input %s is of numbers: declare it by data.categories: [%s]", l.kind, in.Name, in.Name)
	}
	return ""
}

// OfAll returns an expression for a family over all inputs, of which some are categories.
func OfAll(family string, ard bool, inputs []Input) string {
	leaves := []*leaf{{kind: family, ard: ard}, {kind: hamming, ard: ard}}
	for _, in := range inputs {
		of := leaves[0]
		if in.Levels > 0 {
			of = leaves[1]
		}
		of.inputs = append(of.inputs, input{word: word{text: in.Name}})
	}
	var factors []string
	for _, l := range leaves {
		if len(l.inputs) > 0 {
			factors = append(factors, l.String())
		}
	}
	return strings.Join(factors, " * ")
}

// Hints returns what the data may not tell, one sentence each.
func (e *Expression) Hints(inputs []Input) []string {
	var out []string
	for _, t := range e.terms {
		if len(t.leaves) == 1 && t.leaves[0].kind == coregion {
			out = append(out, fmt.Sprintf("the term %s has one value for each level, which tells little of a matrix: multiply it by a covariance over other inputs, or write hamming for it", t.name))
		}
		for i, l := range t.leaves {
			same := func(m *leaf) bool { return l.likeness() != "" && l.likeness() == m.likeness() }
			if slices.ContainsFunc(t.leaves[:i], same) {
				out = append(out, fmt.Sprintf("the term %s has %s twice over the same inputs: the data cannot tell their parameters apart", t.name, l.kind))
			}
			if len(l.inputs) != 1 || l.period == 0 {
				continue
			}
			k := slices.IndexFunc(inputs, func(in Input) bool { return in.Name == l.inputs[0].text })
			// Of inputs spread evenly over a period it is √12 = 3.5 standard deviations.
			if k >= 0 && l.period > 4*inputs[k].SD {
				out = append(out, fmt.Sprintf("%s has the period %g, and the standard deviation of %s is %.3g: the data may not show a whole period, and then cannot tell what repeats from what does not", t.name, l.period, inputs[k].Name, inputs[k].SD))
			}
		}
	}
	return slices.Compact(out)
}

// likeness returns what two leaves have in common whose product is a leaf of the same kind with the sum of their
// rates; nothing for other kinds, and where nothing is left to tell apart.
func (l *leaf) likeness() string {
	alike := l.kind == kernel.RBF.String() || l.kind == hamming || l.kind == coregion || l.kind == periodic && l.period > 0
	if !alike || l.lengthscale > 0 || l.correlation > 0 || slices.ContainsFunc(l.inputs, input.isWarped) {
		return ""
	}
	var names []string
	for _, w := range l.inputs {
		names = append(names, w.text)
	}
	slices.Sort(names)
	return fmt.Sprintf("%s %q %g", l.kind, names, l.period)
}

// Coregionalised returns the inputs that a coregion is over.
func (e *Expression) Coregionalised() []string {
	var out []string
	for _, t := range e.terms {
		for _, l := range t.leaves {
			if l.kind == coregion && len(l.inputs) == 1 && !slices.Contains(out, l.inputs[0].text) {
				out = append(out, l.inputs[0].text)
			}
		}
	}
	return out
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
		if !slices.ContainsFunc(e.terms, func(t term) bool { return t.over(name) }) {
			out = append(out, name)
		}
	}
	return out
}

// TermInputs returns the inputs that a leaf of a term is over.
func (e *Expression) TermInputs(term int, inputs []string) []string {
	var out []string
	for _, name := range inputs {
		if e.terms[term].over(name) {
			out = append(out, name)
		}
	}
	return out
}

// over reports whether a leaf of the term is over an input.
func (t term) over(name string) bool {
	return slices.ContainsFunc(t.leaves, func(l *leaf) bool {
		return l.kind != constant && len(l.inputs) == 0 || slices.ContainsFunc(l.inputs, func(in input) bool { return in.text == name })
	})
}

// errTooLarge bounds what brackets write out to.
var errTooLarge = errors.New("the expression is too large: it has more than 100 leaves, brackets written out")
