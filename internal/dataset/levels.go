package dataset

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Bounds of a category. Its levels travel with the description of the data.
const (
	MaxLevels    = 500
	maxLevelName = 200 // bytes
)

// NoValue is the level of rows that lack a value, where these are filled in. No text of a table is
// this level, since all that look like it say that a value is missing.
const NoValue = "NA"

// levels are those of a category. The codes of levels that are given are their places; of others, for which
// a column is read, they are the places of first appearance until sort.
type levels struct {
	given bool
	names []string
	codes map[string]int
}

// newLevels returns the given levels, or none yet if there are none given.
func newLevels(given []string) *levels {
	l := &levels{given: given != nil, names: slices.Clone(given), codes: make(map[string]int, len(given))}
	for i, name := range given {
		l.codes[name] = i
	}
	return l
}

// code returns the code of a level.
func (l *levels) code(text string) (float64, error) {
	if c, ok := l.codes[text]; ok {
		return float64(c), nil
	}
	if l.given {
		if c := l.number(text); c >= 0 {
			return float64(c), nil
		}
		return 0, l.unknown(text)
	}
	switch {
	case len(l.names) == MaxLevels:
		return 0, fmt.Errorf("more than %d different values: a category has few, each of many rows", MaxLevels)
	case len(text) > maxLevelName:
		return 0, fmt.Errorf("a text of more than %d bytes, which cannot be the level of a category", maxLevelName)
	case !utf8.ValidString(text):
		return 0, fmt.Errorf("%q is not text in UTF-8", short(text))
	}
	text = strings.Clone(text) // a part of a line
	l.codes[text] = len(l.names)
	l.names = append(l.names, text)
	return float64(len(l.names) - 1), nil
}

// number returns the code of the level that is the same number as a text: 1.0 is the level 1. It is
// -1 if there is none.
func (l *levels) number(text string) int {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(l.names, func(name string) bool {
		y, err := strconv.ParseFloat(name, 64)
		return err == nil && x == y
	})
}

func (l *levels) unknown(text string) error {
	if text == NoValue {
		return fmt.Errorf("the value is missing, and no row that was learnt from lacks it: leave the row out, or give one of the levels %s", list(l.names))
	}
	if near, ok := nearest.Word(text, l.names); ok {
		return fmt.Errorf("%q is none of the levels: did you mean %s?", short(text), yamlName(near))
	}
	return fmt.Errorf("%q is none of the levels, which are %s: levels that no row has can be named under data: levels: before the run", short(text), list(l.names))
}

// sort puts the levels in an order that does not depend on that of the rows, numbers by size if all
// are numbers, and brings the codes x in line. Levels that are given stay.
func (l *levels) sort(x []float64) error {
	if l.given {
		return nil
	}
	value := make(map[string]float64, len(l.names))
	numbers := true
	for _, name := range l.names {
		v, err := strconv.ParseFloat(name, 64)
		numbers = numbers && (err == nil && !math.IsNaN(v) || name == NoValue)
		value[name] = v
	}
	value[NoValue] = math.Inf(1) // behind all numbers
	old := slices.Clone(l.names)
	slices.SortFunc(l.names, func(a, b string) int {
		if numbers {
			return cmp.Or(cmp.Compare(value[a], value[b]), cmp.Compare(a, b))
		}
		return cmp.Compare(a, b)
	})
	for i, name := range l.names {
		l.codes[name] = i
		if i > 0 && numbers && value[name] == value[l.names[i-1]] {
			return fmt.Errorf("%q and %q are one number, written in two ways: write them alike to be levels of a category", l.names[i-1], name)
		}
	}
	for i, v := range x {
		if !math.IsNaN(v) {
			x[i] = float64(l.codes[old[int(v)]])
		}
	}
	return nil
}

// classify puts the classes of the target in order. Two that are called 0 and 1 are numbers. Classes that are ordered are
// told in their order, unless they are numbers.
func (t *Table) classify(classes *levels, ordered, unordered bool) error {
	if err := classes.sort(t.Y); err != nil {
		return err
	}
	if unordered {
		t.Classes = classes.names
		return nil
	}
	if ordered {
		if !classes.given && slices.ContainsFunc(classes.names, func(name string) bool { _, err := parseField(name); return err != nil }) {
			return fmt.Errorf("the classes of the target are words (%s), whose order is not told: name them from the first to the last under data:, as in levels: {%s: [low, mid, high]}",
				list(classes.names), yamlName(t.Target))
		}
		t.Classes = classes.names
		return nil
	}
	if len(classes.names) > 2 {
		return fmt.Errorf("the target has %d values (%s), and the likelihood is of two classes: if these have an order use model.likelihood: ordinal, if not categorical",
			len(classes.names), list(classes.names))
	}
	if !slices.Equal(classes.names, []string{"0", "1"}) && len(classes.names) == 2 {
		t.Classes = classes.names
	}
	return nil
}

// CheckLevels returns an error if a category cannot have the given levels, one sentence.
func CheckLevels(names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case name != strings.TrimSpace(name) || name != NoValue && absent(name) || len(name) > maxLevelName || !utf8.ValidString(name):
			return fmt.Errorf("%q cannot be a level: it is a text of 1 to %d bytes without blanks around it, and none that says that a value is missing", short(name), maxLevelName)
		case seen[name]:
			return fmt.Errorf("the level %q is named twice", short(name))
		}
		seen[name] = true
	}
	if len(names) < 2 || len(names) > MaxLevels {
		return fmt.Errorf("%d levels: a category has from 2 to %d", len(names), MaxLevels)
	}
	return nil
}
