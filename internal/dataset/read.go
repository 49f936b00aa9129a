package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
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
	}, func(f *columnFile) error {
		t, err = f.table(sel)
		return err
	})
	return t, err
}

// open reads the header of a table and hands it on as what it is.
func open(r io.Reader, file string, lim Limits, asCSV func(*csvFile) error, asColumns func(*columnFile) error) error {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(8)
	if err != nil && err != io.EOF {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	var text io.Reader = br
	arrow, stream := isArrow(head)
	switch c := (&counted{r: br}); {
	case arrow:
		return openArrow(r, br, file, lim, stream, asColumns)
	case bytes.HasPrefix(head, magicFeather):
		return &Error{File: file, Msg: "Feather of version 1 is not read: write the table in version 2, which is Arrow's file format"}
	case bytes.HasPrefix(head, magicNPY), bytes.HasPrefix(head, magicZip):
		return openNumPy(r, br, file, lim, !bytes.HasPrefix(head, magicNPY), asColumns)
	case bytes.HasPrefix(head, magicParquet):
		return openParquet(r, br, file, lim, asColumns)
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
	p, err := sel.plan(f.file, f.header)
	if err != nil {
		return nil, err
	}
	t := p.table(f.header)
	gaps := newGaps("lines ", sel)
	for sel.Rows == 0 || t.Rows() < sel.Rows {
		rec, line, err := f.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := f.lim.cells(int64(t.Rows())+1, len(p.inputs)+1); err != nil {
			return nil, &Error{File: f.file, Line: line, Msg: err.Error()}
		}
		if t.Rows() == 0 {
			if err := textColumns(f.file, line, f.header, p, rec); err != nil {
				return nil, err
			}
		}
		blank := func(column int, err error) {
			gaps.note(line, column, p, &Error{File: f.file, Line: line, Column: f.header[column], Field: column + 1, Msg: err.Error()})
		}
		c, err := t.add(rec, p, blank)
		if err == nil && sel.Noise != nil && p.lacks == "" {
			c, err = t.addNoise(rec, p.noise, blank)
		}
		if err != nil {
			return nil, gaps.or(&Error{File: f.file, Line: line, Column: f.header[c], Field: c + 1, Msg: p.advised(err, f.header, c).Error()}, f.file, f.header)
		}
	}
	return t, t.finish(p, gaps, f.file, f.header)
}

// add appends a row. It returns an error with its column; what is missing it tells blank.
func (t *Table) add(rec []string, p *plan, blank func(column int, err error)) (column int, err error) {
	tell := func(c int, err error) error {
		if gap := (missingError("")); errors.As(err, &gap) {
			blank(c, err)
			return nil
		}
		return err
	}
	for i, c := range p.inputs {
		x, err := p.codings[i].text(rec[c])
		if err := tell(c, err); err != nil {
			return c, err
		}
		t.X[i] = append(t.X[i], x)
	}
	if p.label >= 0 {
		text := strings.TrimSpace(rec[p.label])
		switch {
		case len(text) > maxLabel:
			return p.label, errLabel
		case absent(text) && !p.used(p.label): // else that is told
			blank(p.label, missingError(strconv.Quote(text)))
		}
		t.Labels = append(t.Labels, strings.Clone(text))
	}
	if p.offset >= 0 {
		x, err := parseField(rec[p.offset])
		if err := tell(p.offset, err); err != nil {
			return p.offset, err
		}
		t.Offset = append(t.Offset, x)
	}
	if p.target < 0 {
		return 0, nil
	}
	y, err := p.y.text(rec[p.target])
	t.Y = append(t.Y, y)
	return p.target, tell(p.target, err)
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

func parseField(s string) (float64, error) {
	s = strings.TrimSpace(s)
	x, err := strconv.ParseFloat(s, 64)
	switch {
	case absent(s):
		return math.NaN(), missingError(strconv.Quote(s))
	case err != nil && errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is beyond the range of a float64", s)
	case err != nil:
		return 0, notNumberError(s)
	case badValue(x) != "":
		return 0, errors.New(badValue(x))
	}
	return x, nil
}

// notNumberError is a text where a number should be.
type notNumberError string

func (n notNumberError) Error() string { return fmt.Sprintf("%q is not a number", short(string(n))) }

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
func textColumns(file string, line int, header []string, p *plan, rec []string) error {
	var columns []int
	for i, c := range p.inputs {
		_, err := p.codings[i].text(rec[c])
		if no := notNumberError(""); errors.As(err, &no) {
			columns = append(columns, c)
		}
	}
	if len(columns) == 0 {
		return nil
	}
	first := columns[0]
	example := strings.TrimSpace(rec[first])
	if decimalComma.MatchString(example) {
		return &Error{File: file, Line: line, Column: header[first], Msg: fmt.Sprintf("%q has a decimal comma: write numbers with a point", example)}
	}
	advice := advise(header, columns, func(c int) string { return dateOf(strings.TrimSpace(rec[c])) })
	if p.points {
		advice = "numbers are needed, since the rows that were learnt from have numbers there"
	}
	if len(columns) == 1 {
		return &Error{File: file, Line: line, Column: header[first], Msg: fmt.Sprintf("%q is not a number: %s", short(example), advice)}
	}
	return &Error{File: file, Line: line, Msg: fmt.Sprintf("the columns %s do not hold numbers (%q): %s", list(namesOf(header, columns)), short(example), advice)}
}

// advise says what there is to do about columns of texts, some of which are dates: date returns how they become numbers, or nothing.
func advise(header []string, columns []int, date func(c int) string) string {
	var texts, dates []string
	for _, c := range columns {
		if how := date(c); how == "" {
			texts = append(texts, header[c])
		} else if dates = append(dates, yamlName(header[c])+": "+how); strings.Contains(how, " ") {
			dates[len(dates)-1] = fmt.Sprintf("%s: %q", yamlName(header[c]), how)
		}
	}
	var ways []string
	if len(texts) > 0 {
		ways = append(ways, fmt.Sprintf("categories: [%s]", list(texts)))
	}
	if len(dates) > 0 {
		ways = append(ways, fmt.Sprintf("dates: {%s}", strings.Join(dates[:min(len(dates), 10)], ", ")))
	}
	them, as := "them", ""
	switch {
	case len(columns) == 1 && len(dates) == 1:
		them, as = "it", " as a date"
	case len(columns) == 1:
		them, as = "it", " as a category"
	}
	return fmt.Sprintf("write %s under data: to use %s%s, or exclude: [%s] to leave %s out", strings.Join(ways, ", "), them, as, list(namesOf(header, columns)), them)
}

func namesOf(header []string, columns []int) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = header[c]
	}
	return names
}
