package dataset

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Missing says what becomes of a table's rows that lack a value. Rows without a target are nothing to learn from:
// they are left out unless they are an error.
type Missing string

// What may become of rows that lack a value.
const (
	MissingError  Missing = ""              // there must be none
	MissingDrop   Missing = "drop"          // they are left out
	MissingImpute Missing = "impute-median" // see Imputed
)

// Imputed says what stands for the missing values of an input: the median of the training rows that have one, in original
// units. Where some of these lack it, another input, the indicator, is 1 in rows that lack it and 0 in others. What lacks a
// value of a category has the level NoValue.
type Imputed struct {
	Input     int     `json:"input"`
	Median    float64 `json:"median"`
	Indicator int     `json:"indicator,omitempty"` // 0 if there is none: indicators come after all other inputs
}

// missing are the spellings of a missing value, in lower case.
var missing = map[string]bool{"": true, "na": true, "n/a": true, "nan": true, "null": true, "none": true, "?": true, ".": true}

// absent reports whether a field says that its value is missing.
func absent(s string) bool { return missing[strings.ToLower(s)] }

// missingError says how a missing value was spelt.
type missingError string

func (m missingError) Error() string {
	return fmt.Sprintf("the value is missing (%s): drop the row or fill it in", string(m))
}

// blanks are the values that a table lacks.
type blanks struct {
	unit     string // what is said before the numbers of lines
	advice   string // what else there is to do
	first    *Error
	count    int    // of all
	lines    []bool // that lack some
	byColumn map[int]int
}

// note notes a missing value, which is an error of its own if it is the only one.
func (b *blanks) note(line, column int, alone *Error) {
	if b.first == nil {
		b.first, b.byColumn = alone, map[int]int{}
	}
	b.count++
	b.byColumn[column]++
	if more := line + 1 - len(b.lines); more > 0 {
		b.lines = append(b.lines, make([]bool, more)...)
	}
	b.lines[line] = true
}

// or returns the error of the values that are missing, or err where there are none: what is
// wrong in a later line can wait.
func (b *blanks) or(err error, file string, header []string) error {
	const most = 5 // lines that are named
	switch {
	case b.first == nil:
		return err
	case b.count == 1:
		return b.first
	}
	var lines, columns []string
	rows := 0
	for l, lacks := range b.lines {
		if !lacks {
			continue
		}
		if rows++; rows <= most {
			lines = append(lines, strconv.Itoa(l))
		}
	}
	if rows > most {
		lines = append(lines, "…")
	}
	for _, c := range slices.Sorted(maps.Keys(b.byColumn)) {
		columns = append(columns, fmt.Sprintf("%s (%d)", yamlName(header[c]), b.byColumn[c]))
	}
	return &Error{File: file, Msg: fmt.Sprintf("%d values are missing, in %d rows (%s%s), of the columns %s: drop the rows or fill the values in%s, or leave columns out with exclude:",
		b.count, rows, b.unit, strings.Join(lines, ", "), strings.Join(columns, ", "), b.advice)}
}

// gaps are the values that a table lacks, as a selection takes them.
type gaps struct {
	blanks              // that are an error
	missing Missing     // of the selection
	others  map[int]int // how many each column lacks that are no error
}

func newGaps(unit string, sel Select) *gaps {
	g := &gaps{blanks: blanks{unit: unit}, missing: sel.Missing, others: map[int]int{}}
	if !sel.Points {
		g.advice = ", or say missing: drop or missing: impute-median under data:"
	}
	return g
}

// note notes a missing value.
func (g *gaps) note(line, column int, p *plan, alone *Error) {
	other := !p.used(column) // the label's, or of noise
	switch {
	case other:
	case g.missing != MissingError || column == p.target && p.points:
		g.others[column]++
		return
	default:
		alone.Msg += g.advice
	}
	g.blanks.note(line, column, alone)
}

// finish makes of what was read what was asked for: categories get their order, and rows that lack a value go.
func (t *Table) finish(p *plan, g *gaps, file string, header []string) error {
	if err := g.or(nil, file, header); err != nil {
		return err
	}
	for i, c := range p.codings {
		if c.levels == nil {
			continue
		}
		if err := c.levels.sort(t.X[i]); err != nil {
			return &Error{File: file, Column: t.Inputs[i], Msg: err.Error()}
		}
		if t.Levels == nil {
			t.Levels = make([][]string, len(t.Inputs))
		}
		t.Levels[i] = c.levels.names
	}
	if p.target >= 0 && p.y.levels != nil {
		if err := t.classify(p.y.levels, p.ordered, p.unordered); err != nil {
			return &Error{File: file, Column: t.Target, Msg: err.Error()}
		}
	}
	if p.points {
		if p.target >= 0 && g.others[p.target] == len(t.Y) {
			t.Y = nil // nothing is known of it
		}
	} else {
		t.drop(g, p, header)
	}
	return t.Check(file, p.points, p.constants)
}

// drop leaves rows out, and notes why.
func (t *Table) drop(g *gaps, p *plan, header []string) {
	if len(g.others) == 0 {
		return
	}
	var keep []int
	unknown, lacking := 0, 0
	for i, y := range t.Y {
		switch {
		case math.IsNaN(y):
			unknown++
		case g.missing == MissingDrop && slices.ContainsFunc(t.X, func(x []float64) bool { return math.IsNaN(x[i]) }):
			lacking++
		default:
			keep = append(keep, i)
		}
	}
	if unknown > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d rows have no %s and are not learnt from: ulisse predict --data predicts the rows of a table, these too", unknown, len(t.Y), yamlName(t.Target)))
	}
	if lacking > 0 {
		var columns []string
		for _, c := range slices.Sorted(maps.Keys(g.others)) {
			if c != p.target {
				columns = append(columns, fmt.Sprintf("%s (%d)", yamlName(header[c]), g.others[c]))
			}
		}
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d rows lack a value and are left out: of the columns %s", lacking, len(t.Y), list(columns)))
	}
	if len(keep) < len(t.Y) {
		labels := t.Labels
		notes := t.Notes
		*t = *t.Select(keep)
		t.Notes, t.numbers = notes, keep
		if labels != nil {
			for _, i := range keep {
				t.Labels = append(t.Labels, labels[i])
			}
		}
	}
}

// without returns the table without an input.
func (t *Table) without(k int) *Table {
	out := *t
	out.Inputs, out.X = slices.Delete(slices.Clone(t.Inputs), k, k+1), slices.Delete(slices.Clone(t.X), k, k+1)
	if t.Levels != nil {
		out.Levels = slices.Delete(slices.Clone(t.Levels), k, k+1)
	}
	if t.Dates != nil {
		out.Dates = slices.Delete(slices.Clone(t.Dates), k, k+1)
	}
	return &out
}

// varying returns the table without the inputs that are the same in all the given rows, as far as they have a value,
// which it notes.
func (t *Table) varying(rows []int) *Table {
	same := *t
	t = &same // which is noted upon
	for k := 0; k < len(t.Inputs); {
		x := known(pick(t.X[k], rows))
		switch {
		case len(x) == 0:
			t.note("%s has no value in the rows that are learnt from: it is left out", yamlName(t.Inputs[k]))
		case scaleOf(x).SD == 0:
			t.note("%s is %s in all rows that are learnt from: it is left out", yamlName(t.Inputs[k]), t.text(k, x[0]))
		default:
			k++
			continue
		}
		t = t.without(k)
	}
	return t
}

func (t *Table) note(format string, args ...any) {
	t.Notes = append(slices.Clone(t.Notes), fmt.Sprintf(format, args...))
}

// known returns the values that are not missing.
func known(x []float64) []float64 { return slices.DeleteFunc(slices.Clone(x), math.IsNaN) }

// impute returns the table with what is missing filled in, and with indicators, and what stands for it: medians are
// of the given rows.
func (t *Table) impute(rows []int) (*Table, []Imputed, error) {
	out := *t
	out.X = slices.Clone(t.X)
	var imputed []Imputed
	for k, name := range t.Inputs {
		if t.Levels != nil && t.Levels[k] != nil {
			continue
		}
		x := pick(t.X[k], rows)
		have := known(x)
		if len(have) == 0 {
			return nil, nil, fmt.Errorf("column %q has no value in the rows that are not held out: leave it out with exclude: [%s], or say constant: drop under data", name, yamlName(name))
		}
		slices.Sort(have)
		im := Imputed{Input: k, Median: median(have)}
		if len(have) < len(x) {
			indicator := name + "_missing"
			if slices.Contains(t.Inputs, indicator) || t.Target == indicator {
				return nil, nil, fmt.Errorf("there is a column %q, which is to be the indicator of missing values of %s: rename it", indicator, yamlName(name))
			}
			im.Indicator = len(out.Inputs)
			out.Inputs = append(slices.Clip(out.Inputs), indicator)
			out.X = append(out.X, indicate(t.X[k]))
			out.note("%s: %d values are missing in the rows that are learnt from; their median, %s, stands for them, and %s is 1 there", yamlName(name), len(x)-len(have), t.text(k, im.Median), yamlName(indicator))
		}
		imputed = append(imputed, im)
	}
	for _, im := range imputed {
		out.X[im.Input] = filled(t.X[im.Input], im.Median)
	}
	extra := len(out.Inputs) - len(t.Inputs)
	if t.Levels != nil {
		out.Levels = append(slices.Clone(t.Levels), make([][]string, extra)...)
	}
	if t.Dates != nil {
		out.Dates = append(slices.Clone(t.Dates), make([]Date, extra)...)
	}
	return &out, imputed, nil
}

// indicate returns 1 for each value that is missing, 0 for others.
func indicate(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		if math.IsNaN(v) {
			out[i] = 1
		}
	}
	return out
}

// filled returns x with a number in place of what is missing: x itself if nothing is.
func filled(x []float64, by float64) []float64 {
	if !slices.ContainsFunc(x, math.IsNaN) {
		return x
	}
	out := slices.Clone(x)
	for i, v := range out {
		if math.IsNaN(v) {
			out[i] = by
		}
	}
	return out
}

// median returns that of sorted values: the mean of the two in the middle where their number is even.
func median(sorted []float64) float64 {
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2
}
