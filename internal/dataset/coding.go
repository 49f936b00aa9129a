package dataset

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// coding says how the values of a column become numbers: as they are, or of dates, or of the levels of a
// category.
type coding struct {
	date   Date
	levels *levels // nil but of a category
	gaps   bool    // what is missing is a level of a category
}

// text returns the number of a text.
func (c *coding) text(s string) (float64, error) {
	if c.levels == nil && c.date.Unit == "" {
		return parseField(s)
	}
	s = strings.TrimSpace(s)
	switch {
	case absent(s) && c.levels != nil && c.gaps:
		return c.levels.code(NoValue)
	case absent(s):
		return math.NaN(), missingError(strconv.Quote(s))
	case c.levels != nil:
		return c.levels.code(s)
	}
	return c.date.parse(s)
}

// ofParquet returns what reads a column of Parquet.
func (c *coding) ofParquet(f parquet.Field) (func(parquet.Value) (float64, error), error) {
	switch {
	case c.date.Unit != "":
		return c.date.ofParquet(f)
	case c.levels == nil:
		unsigned := unsigned(f)
		return func(v parquet.Value) (float64, error) { return number(v, unsigned) }, nil
	}
	return func(v parquet.Value) (float64, error) {
		text, err := labelOf(v)
		if err != nil && (!absent(text) || !c.gaps) {
			return math.NaN(), err
		}
		return c.text(text)
	}, nil
}

// plan is what a selection reads of a table's columns.
type plan struct {
	target, label int // -1 if there is none
	inputs        []int
	codings       []*coding // by input
	y             *coding   // of the target
	dates         []Date    // by input; nil if none is of dates
	points        bool
	ordered       bool // the target's classes are
	unordered     bool // they have no order
	constants     bool // may be among the inputs
	name          string
	columns       *Noise      // that say what noise the rows have, nil for none
	noise         noiseFields // their places
	lacks         string      // the one that points lack: nothing is known of their noise
	offset        int         // -1 if there is none
}

// plan resolves a selection against a header.
func (sel Select) plan(file string, header []string) (*plan, error) {
	p := &plan{y: &coding{}, points: sel.Points, ordered: sel.Ordered, unordered: sel.Unordered, constants: sel.DropConstant, name: sel.Target, columns: sel.Noise}
	var err error
	if p.target, p.inputs, err = sel.columns(file, header); err != nil {
		return nil, err
	}
	if p.label, err = sel.labelColumn(file, header); err != nil {
		return nil, err
	}
	if p.noise, p.lacks, err = sel.noiseFields(file, header); err != nil {
		return nil, err
	}
	if p.offset, err = sel.offsetColumn(file, header); err != nil {
		return nil, err
	}
	input := func(field, name string) error {
		if slices.Contains(namesOf(header, p.inputs), name) {
			return nil
		}
		msg := fmt.Sprintf("%s: names %q, which is no input", field, name)
		if near, ok := nearest.Word(name, namesOf(header, p.inputs)); ok {
			msg += fmt.Sprintf(": did you mean %s?", yamlName(near))
		}
		return &Error{File: file, Line: 1, Msg: msg}
	}
	for _, name := range sel.Categories {
		if err := input("categories", name); err != nil {
			return nil, err
		}
	}
	for name := range sel.Dates {
		if err := input("dates", name); err != nil {
			return nil, err
		}
	}
	if sel.TwoClasses || sel.Ordered || sel.Unordered {
		p.y.levels = newLevels(sel.Classes)
	}
	for i, c := range p.inputs {
		k := &coding{date: sel.Dates[header[c]]}
		if k.date.Unit != "" {
			if p.dates == nil {
				p.dates = make([]Date, len(p.inputs))
			}
			p.dates[i] = k.date
		}
		if slices.Contains(sel.Categories, header[c]) {
			given := sel.Levels[header[c]]
			k.levels, k.gaps = newLevels(given), sel.Missing == MissingImpute || slices.Contains(given, NoValue)
		}
		p.codings = append(p.codings, k)
	}
	return p, nil
}

// table returns the table that is to be filled.
func (p *plan) table(header []string) *Table {
	offset := ""
	if p.offset >= 0 {
		offset = header[p.offset]
	}
	return &Table{Target: p.name, OffsetOf: offset, Inputs: namesOf(header, p.inputs), X: make([][]float64, len(p.inputs)), Dates: p.dates, Of: p.columns, Lacks: p.lacks}
}

// used reports whether a column is the target or an input.
func (p *plan) used(column int) bool { return column == p.target || slices.Contains(p.inputs, column) }

// advised returns an error of a value with what there is to do about it.
func (p *plan) advised(err error, header []string, column int) error {
	no := notNumberError("")
	if !errors.As(err, &no) || p.points || !slices.Contains(p.inputs, column) {
		return err
	}
	return fmt.Errorf("%w: correct it, or %s", err, advise(header, []int{column}, func(int) string { return dateOf(string(no)) }))
}

// text returns a value of an input as people write it.
func (t *Table) text(k int, x float64) string {
	var names []string
	if t.Levels != nil {
		names = t.Levels[k]
	}
	var date Date
	if t.Dates != nil {
		date = t.Dates[k]
	}
	return valueText(names, date, x)
}

func valueText(levels []string, date Date, x float64) string {
	switch {
	case levels != nil && x >= 0 && int(x) < len(levels):
		return levels[int(x)]
	case date.Unit != "":
		return date.text(x)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// DateOf returns how dates became numbers of an input, the zero Date if it is none of dates.
func (i *Info) DateOf(input int) Date {
	if i.Dates == nil {
		return Date{}
	}
	return i.Dates[input]
}

// Text returns a value of an input, in original units, as people write it: a level, a date, a number.
func (i *Info) Text(input int, x float64) string {
	return valueText(i.LevelsOf(input), i.DateOf(input), x)
}

// Columns returns how many of the first inputs are columns of a table: those that follow are indicators.
func (i *Info) Columns() int {
	n := i.D()
	for _, im := range i.Imputed {
		if im.Indicator > 0 {
			n--
		}
	}
	return n
}

// Number returns the value of a column, in original units, that a text stands for: NaN if it is missing and
// something stands for that.
func (i *Info) Number(column int, text string) (float64, error) {
	c := i.coding(column)
	x, err := c.text(text)
	if gap := missingError(""); errors.As(err, &gap) && i.imputed(column) != nil {
		return math.NaN(), nil
	}
	return x, err
}

// MayLack reports whether rows may lack the value of a column that is no category.
func (i *Info) MayLack(column int) bool { return i.imputed(column) != nil }

func (i *Info) coding(column int) *coding {
	c := &coding{date: i.DateOf(column)}
	if given := i.LevelsOf(column); given != nil {
		c.levels, c.gaps = newLevels(given), slices.Contains(given, NoValue)
	}
	return c
}

func (i *Info) imputed(input int) *Imputed {
	at := slices.IndexFunc(i.Imputed, func(im Imputed) bool { return im.Input == input })
	if at < 0 {
		return nil
	}
	return &i.Imputed[at]
}

// Complete returns a row of the inputs from the values of the columns: with what stands for missing ones, which are
// NaN, and with the indicators.
func (i *Info) Complete(columns []float64) []float64 {
	row := append(slices.Clone(columns), make([]float64, i.D()-len(columns))...)
	for _, im := range i.Imputed {
		if !math.IsNaN(row[im.Input]) {
			continue
		}
		row[im.Input] = im.Median
		if im.Indicator > 0 {
			row[im.Indicator] = 1
		}
	}
	return row
}

// With returns a row of inputs in which a column has another value, which is not missing.
func (i *Info) With(row []float64, column int, x float64) []float64 {
	row = slices.Clone(row)
	row[column] = x
	if im := i.imputed(column); im != nil && im.Indicator > 0 {
		row[im.Indicator] = 0
	}
	return row
}

// Points are rows to predict, in original units.
type Points struct {
	X [][]float64 // the inputs of each row
	Y []float64   // the targets, NaN where one is not known; nil if none is
	// Noise is what is known of their noise, where it differs between rows; nil if that lacks the column Lacks.
	Noise  []NoiseRow
	Lacks  string
	Offset []float64 // of each row, nil if the data have none
}

// ReadPoints reads rows to predict from a table, as the data that are described were read: the levels of categories, dates, and what stands for
// missing values are theirs. path and table are those of ReadFile.
func (i *Info) ReadPoints(path string, table io.Reader, lim Limits) (*Points, error) {
	sel := Select{Target: i.Target, Inputs: i.InputNames[:i.Columns()], Noise: i.Noise, Offset: i.Offset, Points: true, Levels: map[string][]string{}, Dates: map[string]Date{}}
	if len(i.Imputed) > 0 {
		sel.Missing = MissingImpute
	}
	if i.Classes != nil {
		sel.TwoClasses, sel.Ordered, sel.Classes = len(i.Classes) == 2, len(i.Classes) > 2, i.Classes
	}
	for k, name := range sel.Inputs {
		if given := i.LevelsOf(k); given != nil {
			sel.Categories = append(sel.Categories, name)
			sel.Levels[name] = given
		}
		if d := i.DateOf(k); d.Unit != "" {
			sel.Dates[name] = d
		}
	}
	t, err := ReadFile(path, table, sel, lim)
	if err != nil {
		return nil, err
	}
	return i.Points(t)
}

// Points returns the rows of a table whose categories have the levels of the description. It may have columns that are none of the
// inputs.
func (i *Info) Points(t *Table) (*Points, error) {
	at := make([]int, i.Columns())
	for k := range at {
		if at[k] = slices.Index(t.Inputs, i.InputNames[k]); at[k] < 0 {
			return nil, fmt.Errorf("there is no column %q", i.InputNames[k])
		}
	}
	p := &Points{X: make([][]float64, t.Rows()), Y: t.Y, Noise: t.Noise, Lacks: t.Lacks, Offset: t.Offset}
	if i.Noise != nil && t.Lacks == "" {
		if _, err := i.Noise.Rows(t.Noise, Scale{SD: 1}); err != nil {
			return nil, err
		}
	}
	for row := range p.X {
		columns := make([]float64, len(at))
		for k, c := range at {
			columns[k] = t.X[c][row]
			if math.IsNaN(columns[k]) && i.imputed(k) == nil {
				return nil, fmt.Errorf("row %d has no %s, and nothing stands for it", t.Number(row)+1, yamlName(i.InputNames[k]))
			}
		}
		p.X[row] = i.Complete(columns)
	}
	return p, nil
}

// CheckRow returns an error if a row of inputs, in original units, cannot be one: it names a level that is none.
func (i *Info) CheckRow(row []float64) error {
	for k, x := range row {
		if names := i.LevelsOf(k); names != nil && (x != math.Trunc(x) || x < 0 || x >= float64(len(names))) {
			return fmt.Errorf("%s is %g, but a category's levels are given by their places, from 0 to %d", yamlName(i.InputNames[k]), x, len(names)-1)
		}
	}
	return nil
}
