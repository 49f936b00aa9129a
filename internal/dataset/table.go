// Package dataset reads tables, checks them, and turns them into what a
// posterior is computed from: standardised inputs and targets, with the
// statistics to undo the standardisation, and a seeded hold-out.
package dataset

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Table is a numeric table as read: the columns that were asked for, in
// original units.
type Table struct {
	Target string
	Inputs []string    // names of the inputs, in the table's order
	X      [][]float64 // by input, then row
	Y      []float64
	Labels []string // of the rows, if a column of them was asked for
	// Of are the columns of the noise that were asked for, nil for none, and Noise what they say of the
	// rows; nil of points that lack the column Lacks.
	Of    *Noise
	Noise []NoiseRow
	Lacks string
	// OffsetOf is the column of offsets that was asked for, empty for none, and Offset what it says of each row.
	OffsetOf string
	Offset   []float64
	// Levels are those of each input that is a category, whose values are their places, and Dates say how those of dates
	// became numbers: nil if there are none.
	Levels  [][]string
	Dates   []Date
	Classes []string // those of the target that are 0, 1, … in Y; nil if they are two that are called that, and of other targets
	Notes   []string // what became of rows and columns, one sentence each
	numbers []int    // of the rows in the file, from 0; nil if there are no others
}

// Number returns the number in the file of a row, both from 0.
func (t *Table) Number(row int) int {
	if t.numbers == nil {
		return row
	}
	return t.numbers[row]
}

// Rows returns the number of rows.
func (t *Table) Rows() int { return len(t.X[0]) }

// Row returns the inputs of row i.
func (t *Table) Row(i int) []float64 {
	x := make([]float64, len(t.X))
	for k := range x {
		x[k] = t.X[k][i]
	}
	return x
}

// Select returns the given rows of the table, which know nothing of labels, nor of the file that they were in.
func (t *Table) Select(rows []int) *Table {
	out := &Table{Target: t.Target, Inputs: t.Inputs, X: make([][]float64, len(t.X)), Y: pick(t.Y, rows), Of: t.Of, OffsetOf: t.OffsetOf, Levels: t.Levels, Dates: t.Dates, Classes: t.Classes}
	if t.Noise != nil {
		out.Noise = pick(t.Noise, rows)
	}
	if t.Offset != nil {
		out.Offset = pick(t.Offset, rows)
	}
	for k, x := range t.X {
		out.X[k] = pick(x, rows)
	}
	return out
}

// WriteCSV writes inputs, what says what noise there is, offsets, and target such that they are read as they are, dates, and two classes, as their
// numbers. Names and levels are in quotes: one may hold what separates fields.
func (t *Table) WriteCSV(w io.Writer) error {
	for _, name := range t.Inputs {
		fmt.Fprintf(w, "%s,", quoted(name))
	}
	if t.Of != nil {
		names, _ := t.Of.fields(NoiseRow{}, t.Inputs)
		for _, name := range names {
			fmt.Fprintf(w, "%s,", name)
		}
	}
	if t.OffsetOf != "" {
		fmt.Fprintf(w, "%s,", quoted(t.OffsetOf))
	}
	fmt.Fprintf(w, "%s\n", quoted(t.Target))
	var line []byte
	for i, y := range t.Y {
		line = line[:0]
		for k, x := range t.X {
			line = append(t.appendCSV(line, k, x[i]), ',')
		}
		if t.Of != nil {
			_, values := t.Of.fields(t.Noise[i], t.Inputs)
			for _, v := range values {
				line = append(append(line, v...), ',')
			}
		}
		if t.OffsetOf != "" {
			line = append(strconv.AppendFloat(line, t.Offset[i], 'g', -1, 64), ',')
		}
		if len(t.Classes) > 2 { // in order
			line = append(line, quoted(t.Classes[int(y)])...)
		} else {
			line = strconv.AppendFloat(line, y, 'g', -1, 64)
		}
		line = append(line, '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) appendCSV(line []byte, k int, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return line
	case t.Levels != nil && t.Levels[k] != nil:
		return append(line, quoted(t.Levels[k][int(x)])...)
	}
	return strconv.AppendFloat(line, x, 'g', -1, 64)
}

// quoted returns a field of CSV in quotes.
func quoted(field string) string { return `"` + strings.ReplaceAll(field, `"`, `""`) + `"` }

// Select says which columns of a table to read.
type Select struct {
	Target  string   // name of the target; required
	Inputs  []string // names of the inputs; empty means all but the target and Exclude
	Exclude []string
	// Label names a column whose text is to be read beside the numbers. It is an input only if the
	// other fields say so.
	Label string
	// Noise names columns that say what noise the rows have. They are no inputs, but what rows belong to
	// if Inputs names it.
	Noise  *Noise
	Trials bool // its weights are called trials
	// Offset names a column of what is known of the latent function, which is no input.
	Offset string
	Rows   int // read the first Rows rows only; 0 means all
	// Points says that the rows are to be predicted at, not to learn from: the
	// target may be missing, which leaves Y nil, a single row will do, and columns
	// may be constant. Targets that some rows lack are NaN.
	Points bool
	// Categories are inputs whose texts or numbers are levels. Levels gives those of some in their order, which has all that
	// occur; those of others are what occurs in the table, in the order of numbers or of the alphabet.
	Categories []string
	Levels     map[string][]string
	Dates      map[string]Date // inputs that hold dates or times
	// Missing says what becomes of rows that lack a value. What is to be filled in is NaN in the table.
	Missing      Missing
	DropConstant bool // inputs may be constant, which New leaves out
	// TwoClasses says that the target is one of two classes, which become 0 and 1: in the order of Classes, or, if that is
	// nil, of numbers or the alphabet. Ordered says that it is one of three or more classes that have an order, 0, 1, 2, …: that of
	// Classes, or, if that is nil, of numbers.
	// Unordered says that it is one of two or more classes without an order, 0, 1, 2, …: in the order of Classes, or, if that is nil, of
	// numbers or the alphabet.
	TwoClasses, Ordered, Unordered bool
	Classes                        []string
}

// Limits bound what is read from a table.
type Limits struct {
	Rows, Columns int
	Bytes         int64 // after decompression
}

// cells returns an error if a table's numbers would take more bytes than a file
// may have: a small file may say that it is large.
func (l Limits) cells(rows int64, columns int) error {
	if rows*8 > l.Bytes/int64(max(1, columns)) {
		return fmt.Errorf("%d rows of %d columns of numbers, more than the limit of %d bytes", rows, columns, l.Bytes)
	}
	return nil
}

// DefaultLimits are generous for one machine.
var DefaultLimits = Limits{Rows: 10_000_000, Columns: 10_000, Bytes: 16 << 30}

// Error is a fault in a table: what, where, and what to do.
type Error struct {
	File   string // path, or "standard input"
	Line   int    // from 1, the header included; 0 where no line is to blame
	Column string // the column's name, or "" where no column is to blame
	Field  int    // the field's number in the line, from 1, with Column
	Msg    string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ": line %d", e.Line)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %q", e.Column)
		if e.Field > 0 {
			fmt.Fprintf(&b, " (field %d)", e.Field)
		}
	}
	return b.String() + ": " + e.Msg
}

// Stdin is the path that means standard input.
const Stdin = "-"

// ReadFile reads a table from a file: CSV, plain or compressed with gzip or
// Zstandard, Parquet, Arrow (file or stream), or arrays of NumPy's (.npz, .npy), recognised by its content. A table that is not nil is
// read in its place; path names it in errors.
func ReadFile(path string, table io.Reader, sel Select, lim Limits) (*Table, error) {
	if table != nil {
		if path == Stdin {
			path = "standard input"
		}
		return Read(table, path, sel, lim)
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path, sel, lim)
}

func openFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the data: %w", err)
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return nil, fmt.Errorf("cannot read the data: %s is a directory", path)
	}
	return f, nil
}

// labelColumn returns the index of the column of labels in a header, -1 if none is asked for.
func (sel Select) labelColumn(file string, header []string) (int, error) {
	at := slices.Index(header, sel.Label)
	switch {
	case sel.Label == "":
		return -1, nil
	case at >= 0:
		return at, nil
	}
	msg := fmt.Sprintf("there is no column %q, by which the rows are to be cut; the columns are %s", sel.Label, list(header))
	if near, ok := nearest.Word(sel.Label, header); ok {
		msg = fmt.Sprintf("there is no column %q, by which the rows are to be cut: did you mean %s?", sel.Label, yamlName(near))
	}
	return 0, &Error{File: file, Line: 1, Msg: msg}
}

// header is the header of a table's file, of which a selection names columns.
type header struct {
	file  string
	names []string
	at    map[string]int
}

// newHeader returns a header whose names differ.
func newHeader(file string, names []string) (*header, error) {
	h := &header{file: file, names: names, at: make(map[string]int, len(names))}
	for i, name := range names {
		if name == "" {
			return nil, h.fail("field %d of the header is empty: give the column a name", i+1)
		}
		if first, ok := h.at[name]; ok {
			return nil, h.fail("the columns %d and %d are both called %q: rename one", first+1, i+1, name)
		}
		h.at[name] = i
	}
	return h, nil
}

func (h *header) fail(format string, args ...any) error {
	return &Error{File: h.file, Line: 1, Msg: fmt.Sprintf(format, args...)}
}

// known returns an error if there is no column that a field of a selection names.
func (h *header) known(field, name string) error {
	if _, ok := h.at[name]; ok {
		return nil
	}
	if near, ok := nearest.Word(name, h.names); ok {
		return h.fail("there is no column %q, which %s: names: did you mean %s?", name, field, yamlName(near))
	}
	return h.fail("there is no column %q, which %s: names; the columns are %s", name, field, list(h.names))
}

// columns resolves a selection against a header: the index of the target, -1 of points without one, and
// those of the inputs.
func (sel Select) columns(file string, names []string) (target int, inputs []int, err error) {
	h, err := newHeader(file, names)
	if err != nil {
		return 0, nil, err
	}
	if sel.Target == "" {
		return 0, nil, h.fail("no target: name one of the columns %s under target:", list(names))
	}
	target, ok := h.at[sel.Target]
	if !ok {
		if target = -1; !sel.Points {
			return 0, nil, h.known("target", sel.Target)
		}
	}
	drop, err := sel.noInputs(h)
	if err != nil {
		return 0, nil, err
	}
	if len(sel.Inputs) > 0 {
		inputs, err = sel.named(h, drop)
	} else {
		for i := range names {
			if !drop[i] {
				inputs = append(inputs, i)
			}
		}
	}
	if err == nil && len(inputs) == 0 {
		err = h.fail("no inputs are left besides the target %q", sel.Target)
	}
	return target, inputs, err
}

// noInputs returns the columns that are no inputs: the target, what is excluded, what tells of the noise, and the offset.
func (sel Select) noInputs(h *header) (map[int]bool, error) {
	drop := map[int]bool{}
	if i, ok := h.at[sel.Target]; ok {
		drop[i] = true
	}
	for _, name := range sel.Exclude {
		if err := h.known("exclude", name); err != nil {
			return nil, err
		}
		if name == sel.Target {
			return nil, h.fail("exclude: names the target %q", name)
		}
		drop[h.at[name]] = true
	}
	for _, name := range sel.Noise.columns() {
		if i, ok := h.at[name]; ok && (name != sel.Noise.By || len(sel.Inputs) == 0 && !slices.Contains(sel.Categories, name)) {
			drop[i] = true
		}
	}
	if i, ok := h.at[sel.Offset]; ok {
		drop[i] = true
	}
	return drop, nil
}

// named returns the inputs that the selection names.
func (sel Select) named(h *header, drop map[int]bool) (inputs []int, err error) {
	for i, name := range sel.Inputs {
		if err := h.known("inputs", name); err != nil {
			return nil, err
		}
		at := h.at[name]
		switch {
		case slices.Contains(sel.Inputs[:i], name):
			return nil, h.fail("inputs: names %q twice", name)
		case name == sel.Offset:
			return nil, h.fail("inputs: names %q, which is the offset", name)
		case drop[at] && slices.Contains(sel.Noise.columns(), name):
			return nil, h.fail("inputs: names %q, which says what noise the rows have", name)
		case drop[at]:
			return nil, h.fail("inputs: names %q, which is the target or excluded", name)
		}
		inputs = append(inputs, at)
	}
	return inputs, nil
}

// list joins at most ten names.
func list(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", list(names[:most]), len(names)-most)
	}
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = yamlName(n)
	}
	return strings.Join(q, ", ")
}

// yamlName returns a column's name as it is written in a spec: quoted where it
// holds characters that YAML or a reader of one line would stumble over.
func yamlName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.ContainsAny(name, ",:[]{}#\"'") {
		return strconv.Quote(name)
	}
	return name
}

// Check refuses tables that no posterior can be computed from, or, of points,
// that have none. Constants may be among the inputs if that is said. file is what errors name them by.
func (t *Table) Check(file string, points, constants bool) error {
	if points {
		if t.Rows() == 0 {
			return &Error{File: file, Msg: "there are no rows of data"}
		}
		return nil
	}
	if len(t.Y) < 2 {
		why := ""
		if len(t.Notes) > 0 {
			why = " (" + strings.Join(t.Notes, "; ") + ")"
		}
		return &Error{File: file, Msg: fmt.Sprintf("%d rows of data: at least two are needed%s", len(t.Y), why)}
	}
	for k, name := range t.Inputs {
		if !constants && constant(t.X[k]) {
			return &Error{File: file, Column: name, Msg: fmt.Sprintf("all %d values are %s: leave it out with exclude: [%s], or say constant: drop under data:", len(t.Y), t.text(k, t.X[k][0]), yamlName(name))}
		}
	}
	for i, r := range t.Noise {
		if bad := t.Of.bad(r); bad != "" {
			return &Error{File: file, Msg: fmt.Sprintf("row %d: %s", i+1, bad)}
		}
	}
	if constant(t.Y) {
		return &Error{File: file, Column: t.Target, Msg: fmt.Sprintf("the target is %g in all %d rows: there is nothing to learn", t.Y[0], len(t.Y))}
	}
	return nil
}

// constant reports whether all values are the same: no two that are missing are.
func constant(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}

// largest is what a value may be: the sum of a million squares of differences is a number.
const largest = 1e150

// badValue says why a number cannot be used, or "".
func badValue(x float64) string {
	switch {
	case math.IsNaN(x):
		return "the value is missing (NaN): drop the row or fill it in"
	case math.IsInf(x, 0):
		return "the value is infinite: drop the row or correct it"
	case math.Abs(x) > largest:
		return fmt.Sprintf("the value %g is too large to compute with: correct it, or divide the whole column by a large number", x)
	}
	return ""
}
