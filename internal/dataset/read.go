package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

var (
	magicGzip    = []byte{0x1f, 0x8b}
	magicZstd    = []byte{0x28, 0xb5, 0x2f, 0xfd}
	magicParquet = []byte("PAR1")
	utf8BOM      = []byte{0xef, 0xbb, 0xbf}
)

// Read reads a table from r; file names it in errors.
func Read(r io.Reader, file string, sel Select, lim Limits) (t *Table, err error) {
	err = open(r, file, lim, func(c *csvFile) error {
		t, err = c.table(sel)
		return err
	}, func(p *parquetFile) error {
		t, err = p.table(sel)
		return err
	})
	return t, err
}

// open reads the header of a table and hands it on as what it is.
func open(r io.Reader, file string, lim Limits, asCSV func(*csvFile) error, asParquet func(*parquetFile) error) error {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	var text io.Reader = br
	switch c := (&counted{r: br}); {
	case bytes.HasPrefix(head, magicParquet):
		return openParquet(r, br, file, lim, asParquet)
	case bytes.HasPrefix(head, magicGzip):
		z, err := gzip.NewReader(c)
		if err != nil {
			return &Error{File: file, Msg: fmt.Sprintf("broken gzip: %v", err)}
		}
		defer z.Close()
		text = &inflated{r: z, from: c}
	case bytes.HasPrefix(head, magicZstd):
		z, err := zstd.NewReader(c, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return &Error{File: file, Msg: fmt.Sprintf("broken Zstandard: %v", err)}
		}
		defer z.Close()
		text = &inflated{r: z, from: c}
	}
	f, err := newCSV(text, file, lim)
	if err != nil {
		return err
	}
	return asCSV(f)
}

// bounded fails, rather than ends, when more than n bytes are read, or too many
// since record was last set to 0, when a record had been read.
type bounded struct {
	r      io.Reader
	n      int64
	record int64
}

var (
	errTooLarge = errors.New("too large")
	errRecord   = fmt.Errorf("a line of more than %d bytes, or a quote that is not closed", maxRecord)
	errLabel    = fmt.Errorf("a text of more than %d bytes, by which rows cannot be cut", maxLabel)
	errBomb     = fmt.Errorf("it inflates to more than %d times its size: no table does", maxRatio)
)

// Limits of what a file may cost to read, whatever its size.
const (
	maxRecord = 16 << 20  // bytes of a line
	maxLabel  = 1000      // bytes of a label
	maxWindow = 128 << 20 // memory of Zstandard
	maxRatio  = 500       // bytes out of one that is compressed
	ratioFrom = 64 << 20  // bytes out, before which the ratio does not matter
)

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// inflated fails when what comes out is out of proportion to what went in.
type inflated struct {
	r    io.Reader
	from *counted
	n    int64
}

func (i *inflated) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if i.n += int64(n); i.n > ratioFrom && i.n/maxRatio > i.from.n {
		return 0, errBomb
	}
	return n, err
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.n <= 0 {
		return 0, errTooLarge
	}
	if b.record > maxRecord {
		return 0, errRecord
	}
	if int64(len(p)) > b.n {
		p = p[:b.n]
	}
	n, err := b.r.Read(p)
	b.n -= int64(n)
	b.record += int64(n)
	return n, err
}

// csvFile is a CSV file whose header has been read.
type csvFile struct {
	file   string
	lim    Limits
	header []string
	rows   int // that were read
	csv    *csv.Reader
	bound  *bounded
}

func newCSV(r io.Reader, file string, lim Limits) (*csvFile, error) {
	bound := &bounded{r: r, n: lim.Bytes + 1}
	br := bufio.NewReaderSize(bound, 1<<16)
	if b, _ := br.Peek(3); bytes.Equal(b, utf8BOM) {
		br.Discard(3)
	}
	head, err := br.Peek(1 << 16)
	if len(head) == 0 && err == io.EOF {
		return nil, &Error{File: file, Msg: "the file is empty"}
	}
	cr := csv.NewReader(br)
	cr.Comma = separator(head)
	cr.FieldsPerRecord = -1
	cr.ReuseRecord = true
	cr.TrimLeadingSpace = cr.Comma != '\t'

	rec, err := cr.Read()
	if err != nil {
		return nil, csvError(file, err, lim)
	}
	if len(rec) > lim.Columns {
		return nil, &Error{File: file, Line: 1, Msg: fmt.Sprintf("%d columns, more than the limit of %d", len(rec), lim.Columns)}
	}
	header := make([]string, len(rec))
	numeric := true
	for i, s := range rec {
		header[i] = strings.TrimSpace(s)
		if _, err := strconv.ParseFloat(header[i], 64); err != nil {
			numeric = false
		}
	}
	if numeric {
		return nil, &Error{File: file, Line: 1, Msg: "the first line holds numbers, not column names: add a header line"}
	}
	return &csvFile{file: file, lim: lim, header: header, csv: cr, bound: bound}, nil
}

// next returns the fields of the next row, which are good until the one after, with its line;
// io.EOF after the last.
func (f *csvFile) next() (rec []string, line int, err error) {
	f.bound.record = 0
	rec, err = f.csv.Read()
	if err == io.EOF {
		return nil, 0, err
	}
	if err != nil {
		return nil, 0, csvError(f.file, err, f.lim)
	}
	line, _ = f.csv.FieldPos(0)
	if len(rec) != len(f.header) {
		return nil, 0, &Error{File: f.file, Line: line, Msg: fmt.Sprintf("%d fields, but the header has %d", len(rec), len(f.header))}
	}
	if f.rows == f.lim.Rows {
		return nil, 0, &Error{File: f.file, Line: line, Msg: fmt.Sprintf("more than the limit of %d rows", f.lim.Rows)}
	}
	f.rows++
	return rec, line, nil
}

// table reads the columns that are selected.
func (f *csvFile) table(sel Select) (*Table, error) {
	target, inputs, err := sel.columns(f.file, f.header)
	if err != nil {
		return nil, err
	}
	label, err := sel.label(f.file, f.header)
	if err != nil {
		return nil, err
	}
	noise, lacks, err := sel.noiseFields(f.file, f.header)
	if err != nil {
		return nil, err
	}
	t := &Table{Target: sel.Target, X: make([][]float64, len(inputs)), Of: sel.Noise, Lacks: lacks}
	for _, c := range inputs {
		t.Inputs = append(t.Inputs, f.header[c])
	}
	blanks := blanks{unit: "lines "}
	for sel.Rows == 0 || t.Rows() < sel.Rows {
		rec, line, err := f.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := f.lim.cells(int64(t.Rows())+1, len(inputs)+1); err != nil {
			return nil, &Error{File: f.file, Line: line, Msg: err.Error()}
		}
		if t.Rows() == 0 {
			if err := textColumns(f.file, line, f.header, inputs, rec); err != nil {
				return nil, err
			}
		}
		blank := func(column int, err error) {
			blanks.note(line, column, &Error{File: f.file, Line: line, Column: f.header[column], Field: column + 1, Msg: err.Error()})
		}
		c, err := t.add(rec, inputs, target, label, blank)
		if err == nil && sel.Noise != nil && lacks == "" {
			c, err = t.addNoise(rec, noise, blank)
		}
		if err != nil {
			return nil, blanks.or(&Error{File: f.file, Line: line, Column: f.header[c], Field: c + 1, Msg: err.Error()}, f.file, f.header)
		}
	}
	if err := blanks.or(nil, f.file, f.header); err != nil {
		return nil, err
	}
	return t, t.Check(f.file, sel.Points)
}

// add appends a row. It returns an error with its column; what is missing it tells blank.
func (t *Table) add(rec []string, inputs []int, target, label int, blank func(column int, err error)) (column int, err error) {
	value := func(c int) (float64, error) {
		x, err := parseField(rec[c])
		if gap := (missingError("")); errors.As(err, &gap) {
			blank(c, err)
			return 0, nil
		}
		return x, err
	}
	for i, c := range inputs {
		x, err := value(c)
		if err != nil {
			return c, err
		}
		t.X[i] = append(t.X[i], x)
	}
	if label >= 0 {
		text := strings.TrimSpace(rec[label])
		switch {
		case len(text) > maxLabel:
			return label, errLabel
		case absent(text) && label != target && !slices.Contains(inputs, label): // else that is told
			blank(label, missingError(strconv.Quote(text)))
		}
		t.Labels = append(t.Labels, strings.Clone(text))
	}
	if target < 0 {
		return 0, nil
	}
	y, err := value(target)
	t.Y = append(t.Y, y)
	return target, err
}

// missingError says how a missing value was spelt.
type missingError string

func (m missingError) Error() string {
	return fmt.Sprintf("the value is missing (%s): drop the row or fill it in", string(m))
}

// blanks are the values that a table lacks.
type blanks struct {
	unit     string // what is said before the numbers of lines
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
	return &Error{File: file, Msg: fmt.Sprintf("%d values are missing, in %d rows (%s%s), of the columns %s: drop the rows or fill the values in, or leave columns out with exclude:",
		b.count, rows, b.unit, strings.Join(lines, ", "), strings.Join(columns, ", "))}
}

// separator guesses the separator from the header line: of comma, tab and
// semicolon the one that stands there most often outside quotes.
func separator(head []byte) rune {
	counts := map[byte]int{}
	quoted := false
	for _, b := range head {
		if b == '"' {
			quoted = !quoted
		}
		if !quoted {
			if b == '\n' {
				break
			}
			counts[b]++
		}
	}
	best := byte(',')
	for _, b := range []byte{'\t', ';'} {
		if counts[b] > counts[best] {
			best = b
		}
	}
	return rune(best)
}

func csvError(file string, err error, lim Limits) error {
	var pe *csv.ParseError
	switch {
	case errors.Is(err, errTooLarge):
		return &Error{File: file, Msg: fmt.Sprintf("more than the limit of %d bytes", lim.Bytes)}
	case err == io.EOF:
		return &Error{File: file, Msg: "the file has no lines"}
	case errors.As(err, &pe):
		return &Error{File: file, Line: pe.Line, Msg: fmt.Sprintf("%v at character %d: quotes must stand at both ends of a field, doubled inside it", pe.Err, pe.Column)}
	}
	return &Error{File: file, Msg: fmt.Sprintf("cannot read on: %v", err)}
}

// missing are the spellings of a missing value, in lower case.
var missing = map[string]bool{"": true, "na": true, "n/a": true, "nan": true, "null": true, "none": true, "?": true, ".": true}

// absent reports whether a field says that its value is missing.
func absent(s string) bool { return missing[strings.ToLower(s)] }

func parseField(s string) (float64, error) {
	s = strings.TrimSpace(s)
	x, err := strconv.ParseFloat(s, 64)
	switch {
	case absent(s):
		return 0, missingError(strconv.Quote(s))
	case err != nil && errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is beyond the range of a float64", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", short(s))
	case badValue(x) != "":
		return 0, errors.New(badValue(x))
	}
	return x, nil
}

func short(s string) string {
	if r := []rune(s); len(r) > 30 {
		return string(r[:30]) + "…"
	}
	return s
}

// decimalComma is a number as it is written in much of Europe.
var decimalComma = regexp.MustCompile(`^[-+]?[0-9]+,[0-9]+$`)

// textColumns refuses inputs that hold text in the first row of data, all in
// one message.
func textColumns(file string, line int, header []string, inputs []int, rec []string) error {
	var names []string
	example := ""
	for _, c := range inputs {
		s := strings.TrimSpace(rec[c])
		if _, err := strconv.ParseFloat(s, 64); err == nil || errors.Is(err, strconv.ErrRange) || absent(s) {
			continue
		}
		if example == "" {
			example = s
		}
		names = append(names, header[c])
	}
	if decimalComma.MatchString(example) {
		return &Error{File: file, Line: line, Column: names[0], Msg: fmt.Sprintf("%q has a decimal comma: write numbers with a point", example)}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return &Error{File: file, Line: line, Column: names[0], Msg: fmt.Sprintf("%q is not a number: leave the column out with exclude: [%s]", short(example), yamlName(names[0]))}
	}
	return &Error{File: file, Line: line, Msg: fmt.Sprintf("the columns %s do not hold numbers (%q): leave them out with exclude: [%s]", list(names), short(example), list(names))}
}
