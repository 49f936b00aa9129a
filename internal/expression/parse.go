package expression

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// The grammar:
//
//	sum     = product { "+" product }
//	product = [ name ":" ] factor { "*" factor }
//	factor  = "(" sum ")" | kind [ "(" argument { "," argument } ")" ]
//	argument = input | warp | "ard" | name "=" ( number | name )
//	warp    = "warp" "(" input { "," name "=" number } ")"
//
// An input is a name, or a text in quotes.

// Bounds of an expression.
const (
	maxText   = 10_000
	maxLeaves = 100
	maxDepth  = 20
)

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	nameFront  = regexp.MustCompile(`^[\p{L}_][\p{L}\p{N}_.]*`)
	numberText = regexp.MustCompile(`^[+-]?[0-9.][0-9.]*([eE][+-]?[0-9]+)?`)
)

// isName reports whether an input can be written without quotes.
func isName(s string) bool { return nameFront.FindString(s) == s && s != "" }

// Parse reads an expression. Its errors are *Error.
func Parse(text string) (*Expression, error) {
	if len(text) > maxText {
		return nil, fail(1, "an expression of %d bytes: %d at most", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fail(1, "the expression is not UTF-8")
	}
	p := &parser{text: text}
	terms, canonical, err := p.sum(0)
	if err == nil && p.rest() != "" {
		err = p.fail("want +, * or the end, not %q", p.next())
	}
	if errors.Is(err, errTooLarge) {
		err = fail(1, "%v", err)
	}
	if err != nil {
		return nil, err
	}
	e := &Expression{terms: terms, text: canonical}
	if err := e.name(); err != nil {
		return nil, err
	}
	return e, e.checkChanges()
}

// checkChanges returns an error if a change point has the name of a term, or is over two inputs.
func (e *Expression) checkChanges() error {
	over := map[string]string{}
	for _, t := range e.terms {
		for _, l := range t.leaves {
			w := l.change
			if w.text == "" {
				continue
			}
			if slices.ContainsFunc(e.terms, func(t term) bool { return t.name == w.text || t.group == w.text }) {
				return fail(w.column, "a term has the name %s, too: give the change point another", w.text)
			}
			input := l.inputs[0].text
			if first, ok := over[w.text]; ok && first != input {
				return fail(w.column, "the change point %s is over %s and %s: it has one input", w.text, first, input)
			}
			over[w.text] = input
		}
	}
	return nil
}

// name gives a name to the terms that have none, after their leaves.
func (e *Expression) name() error {
	taken, groups := map[string]bool{}, map[string]int{} // the latter with their columns
	for _, t := range e.terms {
		if column, ok := groups[t.group]; ok && column != t.column || t.name != "" && taken[t.name] {
			return fail(t.column, "two terms have the name %s", cmp.Or(t.group, t.name))
		}
		taken[t.name] = true
		if t.group != "" {
			groups[t.group] = t.column
		}
	}
	for _, t := range e.terms {
		if _, ok := groups[t.name]; ok {
			return fail(t.column, "two terms have the name %s", t.name)
		}
	}
	for i := range e.terms {
		t := &e.terms[i]
		if t.name != "" {
			continue
		}
		var kinds []string
		for _, l := range t.leaves {
			kinds = append(kinds, l.kind)
		}
		base := strings.Join(kinds, "_")
		for n := 1; t.name == ""; n++ {
			name := base
			if n > 1 {
				name = fmt.Sprintf("%s_%d", base, n)
			}
			if !taken[name] {
				t.name, taken[name] = name, true
			}
		}
	}
	return nil
}

// parser reads a text from the left.
type parser struct {
	text string
	at   int // in bytes
}

// rest returns what is left, from the next word on.
func (p *parser) rest() string {
	trimmed := strings.TrimLeft(p.text[p.at:], " \t\r\n")
	p.at = len(p.text) - len(trimmed)
	return trimmed
}

// next returns what stands next, for a message.
func (p *parser) next() string {
	rest := p.rest()
	if name := nameFront.FindString(rest); name != "" {
		return name
	}
	_, n := utf8.DecodeRuneInString(rest)
	return rest[:n]
}

// column returns the place of the next word.
func (p *parser) column() int {
	p.rest()
	return utf8.RuneCountInString(p.text[:p.at]) + 1
}

func (p *parser) fail(format string, args ...any) error {
	if p.rest() == "" {
		return fail(p.column(), "the expression ends where it goes on: a leaf such as rbf(x), or a bracket, is missing")
	}
	return fail(p.column(), format, args...)
}

// take removes a sign, if it is next.
func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.rest(), s) {
		return false
	}
	p.at += len(s)
	return true
}

// takeName removes a name, if it is next.
func (p *parser) takeName() (word, bool) {
	w := word{column: p.column()}
	w.text = nameFront.FindString(p.rest())
	p.at += len(w.text)
	return w, w.text != ""
}

// sum returns the terms of a sum, and its text.
func (p *parser) sum(depth int) (out []term, text string, err error) {
	if depth > maxDepth {
		return nil, "", p.fail("brackets in more than %d brackets", maxDepth)
	}
	var texts []string
	for {
		terms, text, err := p.product(depth)
		if err != nil {
			return nil, "", err
		}
		texts = append(texts, text)
		if out = append(out, terms...); leaves(out) > maxLeaves {
			return nil, "", errTooLarge
		}
		if !p.take("+") {
			return out, strings.Join(texts, " + "), nil
		}
	}
}

func leaves(terms []term) (n int) {
	for _, t := range terms {
		n += len(t.leaves)
	}
	return n
}

// label reads the name of a term, if there is one.
func (p *parser) label() (string, error) {
	back := p.at
	w, ok := p.takeName()
	if !ok || !p.take(":") {
		p.at = back
		return "", nil
	}
	if !nameForm.MatchString(w.text) {
		return "", fail(w.column, "%q is no name for a term: use letters, digits and _", w.text)
	}
	return w.text, nil
}

// product returns the terms that a product of sums comes to, and its text.
func (p *parser) product(depth int) (out []term, text string, err error) {
	column := p.column()
	name, err := p.label()
	if err != nil {
		return nil, "", err
	}
	if out, text, err = p.factor(depth); err != nil {
		return nil, "", err
	}
	for p.take("*") {
		more, by, err := p.factor(depth)
		if err != nil {
			return nil, "", err
		}
		text += " * " + by
		var all []term
		for _, a := range out {
			for _, b := range more {
				t := term{name: joined(a.name, b.name), leaves: slices.Concat(a.leaves, b.leaves), column: column}
				if all = append(all, t); leaves(all) > maxLeaves {
					return nil, "", errTooLarge
				}
			}
		}
		out = all
	}
	if name == "" {
		return out, text, nil
	}
	for i := range out {
		t := &out[i]
		t.column, t.group = column, ""
		if len(out) == 1 {
			t.name = name
			continue
		}
		t.name, t.group = joined(name, cmp.Or(t.name, strconv.Itoa(i+1))), name
	}
	return out, name + ": " + text, nil
}

// joined returns two names as one.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "_" + b
}

// factor returns the terms of a bracket, or a leaf, and the text.
func (p *parser) factor(depth int) ([]term, string, error) {
	if p.take("(") {
		terms, text, err := p.sum(depth + 1)
		if err != nil {
			return nil, "", err
		}
		if !p.take(")") {
			return nil, "", p.fail("want +, * or ), not %q", p.next())
		}
		return terms, "(" + text + ")", nil
	}
	w, ok := p.takeName()
	if !ok {
		return nil, "", p.fail("want a leaf such as rbf(x), not %q", p.next())
	}
	if !slices.Contains(Kinds(), w.text) {
		if near, ok := nearest.Word(w.text, Kinds()); ok {
			return nil, "", fail(w.column, "there is no covariance %q: did you mean %s?", w.text, near)
		}
		return nil, "", fail(w.column, "there is no covariance %q: use one of %s", w.text, strings.Join(Kinds(), ", "))
	}
	l := &leaf{kind: w.text, column: w.column}
	if p.take("(") {
		if err := p.arguments(l); err != nil {
			return nil, "", err
		}
	}
	if slices.Contains(featured, l.kind) {
		return l.written()
	}
	switch {
	case l.kind == coregion && l.ard:
		return nil, "", fail(l.column, "ard does not go with coregion: multiply those of several categories")
	case l.kind == coregion && (l.rank != math.Trunc(l.rank) || l.rank > kernel.MaxLevels):
		return nil, "", fail(l.column, "rank is %g, but must be a whole number below that of the levels", l.rank)
	case l.kind == coregion && l.scale != 0 && l.scale != 1:
		return nil, "", fail(l.column, "scale is %g: of a coregion it is 1, one scale for all levels, or left out", l.scale)
	case l.ard && (l.kind == periodic || l.kind == cosine):
		return nil, "", fail(l.column, "ard is a length-scale for each of several inputs: it does not go with %s, which has one", l.kind)
	case l.ard && l.correlation > 0:
		return nil, "", fail(l.column, "ard is a correlation for each input: it does not go with one that is fixed")
	case l.ard && l.lengthscale > 0:
		return nil, "", fail(l.column, "ard is a length-scale for each input: it does not go with one that is fixed")
	}
	return []term{{leaves: []*leaf{l}, column: l.column}}, l.String(), nil
}

// arguments reads what stands in the brackets of a leaf.
func (p *parser) arguments(l *leaf) error {
	if p.take(")") {
		return nil
	}
	for {
		if err := p.argument(l); err != nil {
			return err
		}
		if p.take(")") {
			return nil
		}
		if !p.take(",") {
			return p.fail("want a comma or ), not %q: an input of another name than letters, digits and _ needs quotes", p.next())
		}
	}
}

func (p *parser) argument(l *leaf) error {
	w, quoted, err := p.takeInput()
	switch {
	case err != nil:
		return err
	case w.text == "" && !quoted:
		return p.fail("want an input, ard, or a number such as lengthscale=2, not %q", p.next())
	case quoted:
		return l.add(input{word: w})
	case w.text == warpWord && p.take("("):
		in, err := p.warp(l, w)
		if err != nil {
			return err
		}
		return l.add(in)
	case p.take("="):
		return p.named(l.kind, w, l.numbers())
	case w.text == ardWord:
		l.ard = true
	case w.text == fallingWord && l.kind == sigmoid:
		l.falling = true
	default:
		return l.add(input{word: w})
	}
	return nil
}

// takeInput removes a name or a text in quotes, if it is next.
func (p *parser) takeInput() (w word, quoted bool, err error) {
	rest := p.rest()
	if !strings.HasPrefix(rest, `"`) {
		w, _ = p.takeName()
		return w, false, nil
	}
	w.column = p.column()
	prefix, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return w, true, fail(w.column, "the quotes are not closed")
	}
	p.at += len(prefix)
	w.text, _ = strconv.Unquote(prefix)
	return w, true, nil
}

// named reads the value of one of the numbers of what, by its name.
func (p *parser) named(what string, w word, numbers []number) error {
	var names []string
	for _, n := range numbers {
		if n.name == w.text {
			return p.number(n)
		}
		names = append(names, n.name)
	}
	if len(names) == 0 {
		return fail(w.column, "%s has no %s", what, w.text)
	}
	return fail(w.column, "%s has no %s: what can be fixed is %s", what, w.text, strings.Join(names, ", "))
}

// number reads the value that a parameter is fixed at.
func (p *parser) number(n number) error {
	column := p.column()
	if n.word != nil && nameFront.MatchString(p.rest()) {
		w, _ := p.takeName()
		switch {
		case n.word.text != "" || n.isGiven():
			return fail(column, "%s is given twice", n.name)
		case !nameForm.MatchString(w.text):
			return fail(column, "%q is no name for a change point: use letters, digits and _", w.text)
		}
		*n.word = w
		return nil
	}
	text := numberText.FindString(p.rest())
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case n.given != nil && (err != nil || math.IsInf(x, 0)):
		return fail(column, "%s is %q, but must be a number", n.name, cmp.Or(text, p.next()))
	case n.given == nil && (err != nil || !(x > 0) || math.IsInf(x, 1)):
		return fail(column, "%s is %q, but must be a positive number", n.name, cmp.Or(text, p.next()))
	case n.name == correlationWord && x >= 1:
		return fail(column, "%s is %q, but must be below 1", n.name, text)
	case n.isGiven() || n.word != nil && n.word.text != "":
		return fail(column, "%s is given twice", n.name)
	}
	if n.given != nil {
		*n.given = true
	}
	p.at += len(text)
	*n.value = x
	return nil
}
