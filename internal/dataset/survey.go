package dataset

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Column is what a look at a whole table tells of a column.
type Column struct {
	Name  string
	Unfit string // why it can be no input and no target; empty if it can
}

// SurveyFile is Survey of a file.
func SurveyFile(path string, lim Limits) (columns []Column, rows int, err error) {
	f, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	return Survey(f, path, lim)
}

// Survey returns the columns of a table, all of whose rows it reads, and how many those are.
func Survey(r io.Reader, file string, lim Limits) (columns []Column, rows int, err error) {
	var header []string
	var seen []column
	err = open(r, file, lim, func(f *csvFile) error {
		header = f.header
		seen, err = f.survey()
		rows = f.rows
		return err
	}, func(f *parquetFile) error {
		header = f.header
		seen, rows, err = f.survey()
		return err
	})
	if err == nil && rows < 2 {
		err = &Error{File: file, Msg: fmt.Sprintf("%d rows of data: at least two are needed", rows)}
	}
	if err != nil {
		return nil, 0, err
	}
	for i := range seen {
		columns = append(columns, Column{header[i], seen[i].unfit(rows)})
	}
	return columns, rows, nil
}

// selectable returns an error if columns cannot be told apart by their names.
func selectable(file string, header []string) error {
	if len(header) < 2 {
		return &Error{File: file, Line: 1, Msg: fmt.Sprintf("there is one column only, %s: a target and at least one input are needed", list(header))}
	}
	_, _, err := (Select{Target: header[0]}).columns(file, header)
	return err
}

func (f *csvFile) survey() ([]column, error) {
	if err := selectable(f.file, f.header); err != nil {
		return nil, err
	}
	columns := make([]column, len(f.header))
	for {
		rec, _, err := f.next()
		if err == io.EOF {
			return columns, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range columns {
			columns[i].see(rec[i])
		}
	}
}

func (p *parquetFile) survey() ([]column, int, error) {
	if err := selectable(p.file, p.header); err != nil {
		return nil, 0, err
	}
	rows, err := p.rows(0)
	if err != nil {
		return nil, 0, err
	}
	columns := make([]column, len(p.header))
	for c := range columns {
		v := &columns[c]
		if !numericField(p.fields[c]) {
			v.bad = kindOf(p.fields[c])
			continue
		}
		x, err := p.numbers(c, rows, &coding{}, func(int, error) { v.missing++ })
		var fault *Error
		switch {
		case errors.As(err, &fault):
			v.bad = fault.Msg
		case err != nil:
			return nil, 0, err
		}
		for _, value := range known(x) {
			v.number(value)
		}
	}
	return columns, rows, nil
}

// kindOf says what a Parquet column holds that does not hold numbers.
func kindOf(f parquet.Field) string {
	if !f.Leaf() || f.Repeated() {
		return "nested"
	}
	if lt := f.Type().LogicalType(); lt != nil {
		switch lt.Value.(type) {
		case *format.DateType, *format.TimeType, *format.TimestampType:
			return datesAdvice
		}
	}
	return "no numbers, but " + f.Type().String()
}

const datesAdvice = "dates or times; to use them make numbers of them, such as days since the first"

// column is what the values of a column tell.
type column struct {
	bad     string // why one of them is of no use
	missing int
	numbers int
	first   float64
	varies  bool
}

// see takes a field of a CSV file.
func (c *column) see(field string) {
	x, err := parseField(field)
	var gap missingError
	switch {
	case c.bad != "":
	case errors.As(err, &gap):
		c.missing++
	case err == nil:
		c.number(x)
	default:
		c.bad = notNumber(strings.TrimSpace(field), err)
	}
}

func (c *column) number(x float64) {
	if c.numbers == 0 {
		c.first = x
	}
	c.numbers++
	c.varies = c.varies || x != c.first
}

// unfit says why the column can be no input and no target.
func (c *column) unfit(rows int) string {
	switch {
	case c.bad != "":
		return c.bad
	case c.missing > 0:
		return fmt.Sprintf("%d of %d values are missing; to use it fill them in, or drop these rows", c.missing, rows)
	case !c.varies:
		return fmt.Sprintf("constant: %g in all rows", c.first)
	}
	return ""
}

// layouts are of dates and times as tables have them.
var layouts = []string{time.DateOnly, time.DateTime, time.RFC3339, time.TimeOnly, "15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04",
	"2006/01/02", "1/2/2006", "2.1.2006", "1/2/2006 15:04", "2.1.2006 15:04", "1/2/06"}

// notNumber says what a field is that is not a number.
func notNumber(s string, err error) string {
	if _, bad := strconv.ParseFloat(s, 64); bad == nil || errors.Is(bad, strconv.ErrRange) {
		return err.Error()
	}
	if decimalComma.MatchString(s) {
		return fmt.Sprintf("decimal commas (%q); to use it write numbers with a point", s)
	}
	if isDate(s) {
		return fmt.Sprintf("%s (%q)", datesAdvice, s)
	}
	return fmt.Sprintf("text (%q); to use it make a column of 0 and 1 for each value", short(s))
}

// isDate reports whether a text is a date or a time.
func isDate(s string) bool {
	return slices.ContainsFunc(layouts, func(l string) bool {
		_, err := time.Parse(l, s)
		return err == nil
	})
}
