package dataset

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// columnar is a table each of whose columns is read by itself.
type columnar interface {
	// kind says what a column holds, as far as its type tells: Numbers, Times, Texts for all that is none of these, or Nested,
	// which is not read.
	kind(c int) Type
	// numbers reads the first rows of a column. What is missing it tells blank, unless that is nil, and takes to be NaN. Of a
	// value that cannot be used the error is a *valueError.
	numbers(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error)
	// texts has the texts of the first rows taken, each with what is wrong with it. It ends with the first error that take
	// returns, a *valueError.
	texts(c, rows int, take func(text string, err error) error) error
}

// columnFile is a file of columns whose names and size are known.
type columnFile struct {
	columnar
	file   string
	lim    Limits
	header []string
	total  int64 // rows
}

// within returns an error if the file has more columns than the limit.
func (f *columnFile) within() error {
	if len(f.header) > f.lim.Columns {
		return &Error{File: f.file, Msg: fmt.Sprintf("%d columns, more than the limit of %d", len(f.header), f.lim.Columns)}
	}
	return nil
}

// rows returns how many rows are to be read, at most so many if most is not 0.
func (f *columnFile) rows(most int) (int, error) {
	rows := f.total
	if most > 0 {
		rows = min(rows, int64(most))
	}
	if rows > int64(f.lim.Rows) {
		return 0, &Error{File: f.file, Msg: fmt.Sprintf("%d rows, more than the limit of %d", rows, f.lim.Rows)}
	}
	return int(rows), nil
}

// table reads the columns that are selected.
func (f *columnFile) table(sel Select) (*Table, error) {
	rows, err := f.rows(sel.Rows)
	if err != nil {
		return nil, err
	}
	p, err := sel.plan(f.file, f.header)
	if err != nil {
		return nil, err
	}
	if err := f.lim.cells(int64(rows), len(p.inputs)+1); err != nil {
		return nil, &Error{File: f.file, Msg: err.Error()}
	}
	if err := f.readable(p); err != nil {
		return nil, err
	}
	t := p.table(f.header)
	gaps := newGaps("", sel)
	read := func(c int, k *coding) ([]float64, error) {
		x, err := f.column(c, rows, k, func(row int, err error) {
			gaps.note(row+1, c, p, &Error{File: f.file, Column: f.header[c], Msg: fmt.Sprintf("row %d: %v", row+1, err)})
		})
		if err != nil {
			return nil, gaps.or(err, f.file, f.header)
		}
		return x, nil
	}
	for i, c := range p.inputs {
		if t.X[i], err = read(c, p.codings[i]); err != nil {
			return nil, err
		}
	}
	if sel.Noise != nil && p.lacks == "" {
		if t.Noise, err = f.noise(p.noise, rows); err != nil {
			return nil, err
		}
	}
	if p.offset >= 0 {
		if t.Offset, err = read(p.offset, &coding{}); err != nil {
			return nil, err
		}
	}
	if p.target >= 0 {
		if t.Y, err = read(p.target, p.y); err != nil {
			return nil, err
		}
	}
	if p.label >= 0 && gaps.first == nil {
		if t.Labels, err = f.labels(p.label, rows); err != nil {
			return nil, err
		}
	}
	return t, t.finish(p, gaps, f.file, f.header)
}

// readable returns an error if columns that are to be numbers do not hold numbers.
func (f *columnFile) readable(p *plan) error {
	if c := p.target; c >= 0 && p.y.levels == nil && f.kind(c) != Numbers {
		return &Error{File: f.file, Column: f.header[c], Msg: "the target does not hold numbers"}
	}
	if c := p.offset; c >= 0 && f.kind(c) != Numbers {
		return &Error{File: f.file, Column: f.header[c], Msg: "the offset does not hold numbers"}
	}
	for i, c := range p.inputs {
		kind := f.kind(c)
		if k := p.codings[i]; k.levels != nil || k.date.Unit != "" || kind == Numbers {
			continue
		}
		advice := fmt.Sprintf("leave the column out with exclude: [%s]", yamlName(f.header[c]))
		if kind != Nested && !p.points {
			advice = advise(f.header, []int{c}, func(int) string {
				if kind == Times {
					return "days"
				}
				return ""
			})
		}
		return &Error{File: f.file, Column: f.header[c], Msg: "it does not hold numbers: " + advice}
	}
	return nil
}

// column reads a column as numbers.
func (f *columnFile) column(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	if f.kind(c) == Nested {
		return nil, f.fault(c, errNested)
	}
	x, err := f.numbers(c, rows, k, blank)
	if err == nil && len(x) != rows {
		err = fmt.Errorf("the file is broken: %d values in %d rows", len(x), rows)
	}
	if err != nil {
		return nil, f.fault(c, err)
	}
	return x, nil
}

// labels reads a column as text, none of which may be missing.
func (f *columnFile) labels(c, rows int) ([]string, error) {
	var out []string
	err := f.seeTexts(c, rows, func(text string, err error) error {
		out = append(out, text)
		return err
	})
	return out, err
}

// seeTexts has a function take the texts of a column, each with what is wrong with it.
func (f *columnFile) seeTexts(c, rows int, take func(text string, err error) error) error {
	if f.kind(c) == Nested {
		return f.fault(c, errNested)
	}
	seen := 0
	err := f.texts(c, rows, func(text string, err error) error {
		seen++
		return take(text, err)
	})
	if err == nil && seen != rows {
		err = fmt.Errorf("the file is broken: %d values in %d rows", seen, rows)
	}
	if err != nil {
		return f.fault(c, err)
	}
	return nil
}

var errNested = errors.New("lists and nested columns are not read")

// fault says where an error is.
func (f *columnFile) fault(c int, err error) error {
	msg := err.Error()
	if v := (*valueError)(nil); errors.As(err, &v) {
		msg = fmt.Sprintf("row %d: %v", v.row+1, v.err)
	}
	return &Error{File: f.file, Column: f.header[c], Msg: msg}
}

// valueError is a value that cannot be used.
type valueError struct {
	row int
	err error
}

func (e *valueError) Error() string { return e.err.Error() }

// survey has the columns see their values.
func (f *columnFile) survey() ([]*column, int, error) {
	if err := selectable(f.file, f.header); err != nil {
		return nil, 0, err
	}
	rows, err := f.rows(0)
	if err != nil {
		return nil, 0, err
	}
	if err := f.lim.cells(int64(rows), len(f.header)); err != nil {
		return nil, 0, &Error{File: f.file, Msg: err.Error()}
	}
	columns := newColumns(len(f.header))
	for c, v := range columns {
		var fault *Error
		switch err := f.surveyColumn(c, rows, v); {
		case errors.As(err, &fault):
			v.bad = fault.Msg
		case err != nil:
			return nil, 0, err
		}
	}
	return columns, rows, nil
}

// surveyColumn has a column see its values. An *Error is a fault of one of them.
func (f *columnFile) surveyColumn(c, rows int, v *column) (err error) {
	ignore := func(int, error) {}
	switch f.kind(c) {
	case Nested:
		v.kind, v.bad = Nested, "nested"
	case Times:
		v.kind, v.dates = Times, []dated{{date: Date{Unit: "days"}}}
		v.dates[0].x, err = f.column(c, rows, &coding{date: v.dates[0].date}, ignore)
		v.missing = rows - len(known(v.dates[0].x))
		v.hashes = hashesOf(v.dates[0].x)
	case Numbers:
		v.numbers, err = f.column(c, rows, &coding{}, ignore)
		v.missing = rows - len(known(v.numbers))
		if v.missing < len(v.numbers) {
			v.kind = Numbers
		}
	default:
		err = f.seeTexts(c, rows, func(text string, err error) error {
			if err != nil && !absent(text) {
				return err
			}
			v.see(text)
			return nil
		})
	}
	return err
}

// cells are values that are at hand.
type cells struct {
	n      int
	null   func(i int) bool // nil if none is missing
	number func(i int) float64
	time   func(i int) time.Time // nil if they are no times
	text   func(i int) string    // as people write it
}

func (c *cells) missing(i int) bool { return c.null != nil && c.null(i) }

// number returns the value of a cell as a coding has it.
func (k *coding) number(c *cells, i int) (float64, error) {
	switch {
	case c.missing(i) && k.levels != nil && k.gaps:
		return k.levels.code(NoValue)
	case c.missing(i):
		return math.NaN(), missingError("null")
	case k.date.Unit != "" && c.time != nil && k.date.origin().Year() == 0:
		return 0, errDated
	case k.date.Unit != "" && c.time != nil:
		return k.date.number(c.time(i)), nil
	case k.date.Unit != "" && c.number != nil && k.date.Layout == "":
		return 0, errNoDates
	case k.levels != nil || k.date.Unit != "":
		text, err := labelText(c.text(i))
		if err != nil && (!absent(text) || !k.gaps) {
			return math.NaN(), err
		}
		return k.text(text)
	}
	return usable(c.number(i))
}

// append appends the values of the first rows cells to x, as numbers does, which are those from row from on.
func (c *cells) append(x []float64, from, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	for i := range min(c.n, rows) {
		v, err := k.number(c, i)
		if gap := (missingError("")); blank != nil && errors.As(err, &gap) {
			blank(from+i, err)
			err = nil
		}
		if err != nil {
			return nil, &valueError{from + i, err}
		}
		x = append(x, v)
	}
	return x, nil
}

// take has the texts of the first rows cells taken, which are those from row from on.
func (c *cells) take(from, rows int, take func(text string, err error) error) error {
	for i := range min(c.n, rows) {
		text := ""
		if !c.missing(i) {
			text = c.text(i)
		}
		if err := take(labelText(text)); err != nil {
			return &valueError{from + i, err}
		}
	}
	return nil
}

// labelText returns a text without blanks around it, and what is wrong with it.
func labelText(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case absent(text):
		return text, missingError(strconv.Quote(text))
	case len(text) > maxLabel:
		return text, errLabel
	}
	return text, nil
}

// usable returns a number, or why it is none to compute with.
func usable(x float64) (float64, error) {
	if math.IsNaN(x) {
		return x, missingError("NaN")
	}
	if bad := badValue(x); bad != "" {
		return 0, errors.New(bad)
	}
	return x, nil
}

// errDated is a format for dates that are none any more.
var errDated = errors.New("it holds dates or times already, which have no format: give the unit alone under dates")
