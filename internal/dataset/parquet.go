package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetBatch is the number of values read from a page at once.
const parquetBatch = 4096

// parquetFile is a Parquet file whose schema has been read.
type parquetFile struct {
	file   string
	lim    Limits
	header []string
	fields []parquet.Field
	pf     *parquet.File
}

// openParquet opens a Parquet file and hands it on. It needs random access: a stream that has
// none (r is what head was peeked from) is held in memory.
func openParquet(r, buffered io.Reader, file string, lim Limits, use func(*parquetFile) error) (err error) {
	defer func() { // the decoder panics on some corrupt files
		if p := recover(); p != nil {
			err = &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", p)}
		}
	}()
	ra, size, err := randomAccess(r, buffered, lim)
	if err != nil {
		return &Error{File: file, Msg: err.Error()}
	}
	if err := checkFooter(ra, size); err != nil {
		return &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", err)}
	}
	pf, err := parquet.OpenFile(ra, size)
	if err != nil {
		return &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", err)}
	}
	fields := pf.Schema().Fields()
	if len(fields) > lim.Columns {
		return &Error{File: file, Msg: fmt.Sprintf("%d columns, more than the limit of %d", len(fields), lim.Columns)}
	}
	header := make([]string, len(fields))
	for i, f := range fields {
		header[i] = f.Name()
	}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			if n := c.MetaData.TotalUncompressedSize; n > lim.Bytes || n > ratioFrom && n/maxRatio > size {
				return &Error{File: file, Msg: errBomb.Error()}
			}
		}
	}
	return use(&parquetFile{file: file, lim: lim, header: header, fields: fields, pf: pf})
}

// rows returns how many rows are to be read, at most so many if most is not 0.
func (p *parquetFile) rows(most int) (int, error) {
	rows := p.pf.NumRows()
	if most > 0 {
		rows = min(rows, int64(most))
	}
	if rows > int64(p.lim.Rows) {
		return 0, &Error{File: p.file, Msg: fmt.Sprintf("%d rows, more than the limit of %d", rows, p.lim.Rows)}
	}
	return int(rows), nil
}

// table reads the columns that are selected.
func (p *parquetFile) table(sel Select) (*Table, error) {
	rows, err := p.rows(sel.Rows)
	if err != nil {
		return nil, err
	}
	pl, err := sel.plan(p.file, p.header)
	if err != nil {
		return nil, err
	}
	if err := p.lim.cells(int64(rows), len(pl.inputs)+1); err != nil {
		return nil, &Error{File: p.file, Msg: err.Error()}
	}
	if err := p.readable(pl); err != nil {
		return nil, err
	}
	t := pl.table(p.header)
	gaps := newGaps("", sel)
	read := func(c int, k *coding) ([]float64, error) {
		x, err := p.numbers(c, rows, k, func(row int, err error) {
			gaps.note(row+1, c, pl, &Error{File: p.file, Column: p.header[c], Msg: fmt.Sprintf("row %d: %v", row+1, err)})
		})
		if err != nil {
			return nil, gaps.or(err, p.file, p.header)
		}
		return x, nil
	}
	for i, c := range pl.inputs {
		if t.X[i], err = read(c, pl.codings[i]); err != nil {
			return nil, err
		}
	}
	if sel.Noise != nil && pl.lacks == "" {
		if t.Noise, err = p.noise(pl.noise, rows); err != nil {
			return nil, err
		}
	}
	if pl.offset >= 0 {
		if t.Offset, err = read(pl.offset, &coding{}); err != nil {
			return nil, err
		}
	}
	if pl.target >= 0 {
		if t.Y, err = read(pl.target, pl.y); err != nil {
			return nil, err
		}
	}
	if pl.label >= 0 && gaps.first == nil {
		if t.Labels, err = p.labels(pl.label, rows); err != nil {
			return nil, err
		}
	}
	return t, t.finish(pl, gaps, p.file, p.header)
}

// readable returns an error if columns that are to be numbers do not hold numbers.
func (p *parquetFile) readable(pl *plan) error {
	if c := pl.target; c >= 0 && pl.y.levels == nil && !numericField(p.fields[c]) {
		return &Error{File: p.file, Column: p.header[c], Msg: "the target does not hold numbers"}
	}
	if c := pl.offset; c >= 0 && !numericField(p.fields[c]) {
		return &Error{File: p.file, Column: p.header[c], Msg: "the offset does not hold numbers"}
	}
	for i, c := range pl.inputs {
		f := p.fields[c]
		if k := pl.codings[i]; k.levels != nil || k.date.Unit != "" || numericField(f) {
			continue
		}
		advice := fmt.Sprintf("leave the column out with exclude: [%s]", yamlName(p.header[c]))
		if f.Leaf() && !f.Repeated() && !pl.points {
			advice = advise(p.header, []int{c}, func(int) string {
				if timeUnit(f) > 0 {
					return "days"
				}
				return ""
			})
		}
		return &Error{File: p.file, Column: p.header[c], Msg: "it does not hold numbers: " + advice}
	}
	return nil
}

// numbers reads a column as numbers. What is missing it tells blank, and takes to be NaN.
func (p *parquetFile) numbers(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	get, err := k.ofParquet(p.fields[c])
	if err != nil {
		return nil, &Error{File: p.file, Column: p.header[c], Msg: err.Error()}
	}
	return readColumn(p, c, rows, get, blank)
}

// labels reads a column as text.
func (p *parquetFile) labels(c, rows int) ([]string, error) {
	if f := p.fields[c]; !f.Leaf() || f.Repeated() {
		return nil, &Error{File: p.file, Column: f.Name(), Msg: "lists and nested columns are not read"}
	}
	return readColumn(p, c, rows, labelOf, nil)
}

// checkFooter looks at the length that a file gives for its footer, for which the
// library makes room without a look at the file's size.
func checkFooter(r io.ReaderAt, size int64) error {
	const ends = 12 // the first four bytes, and the last eight
	var tail [8]byte
	if size < ends {
		return fmt.Errorf("%d bytes are too few", size)
	}
	if _, err := r.ReadAt(tail[:], size-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-ends {
		return fmt.Errorf("a footer of %d bytes in a file of %d", n, size)
	}
	return nil
}

func randomAccess(r, buffered io.Reader, lim Limits) (io.ReaderAt, int64, error) {
	type file interface {
		io.ReaderAt
		io.Seeker
	}
	if f, ok := r.(file); ok {
		if size, err := f.Seek(0, io.SeekEnd); err == nil {
			if size > lim.Bytes {
				return nil, 0, fmt.Errorf("%d bytes, more than the limit of %d", size, lim.Bytes)
			}
			return f, size, nil
		}
	}
	b, err := io.ReadAll(io.LimitReader(buffered, lim.Bytes+1))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read on: %w", err)
	}
	if int64(len(b)) > lim.Bytes {
		return nil, 0, fmt.Errorf("more than the limit of %d bytes", lim.Bytes)
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

// numericField reports whether a column holds plain numbers.
func numericField(f parquet.Field) bool {
	if !f.Leaf() || f.Repeated() {
		return false
	}
	switch f.Type().Kind() {
	case parquet.Float, parquet.Double:
		return true
	case parquet.Int32, parquet.Int64: // but not dates, times and decimals
		lt := f.Type().LogicalType()
		if lt == nil {
			return true
		}
		_, ok := lt.Value.(*format.IntType)
		return ok
	}
	return false
}

// unsigned reports whether a column of integers holds unsigned ones.
func unsigned(f parquet.Field) bool {
	lt := f.Type().LogicalType()
	if lt == nil {
		return false
	}
	t, ok := lt.Value.(*format.IntType)
	return ok && !t.IsSigned
}

// valueError is a value that cannot be used.
type valueError struct {
	row int
	err error
}

func (e *valueError) Error() string { return e.err.Error() }

// readColumn reads a column, each value by get, which says what is wrong with it. What is missing it
// tells blank, unless that is nil, and takes to be what get returns.
func readColumn[T any](p *parquetFile, c, rows int, get func(parquet.Value) (T, error), blank func(row int, err error)) ([]T, error) {
	fail := func(err error) ([]T, error) {
		var v *valueError
		if errors.As(err, &v) {
			return nil, &Error{File: p.file, Column: p.header[c], Msg: fmt.Sprintf("row %d: %v", v.row+1, v.err)}
		}
		return nil, &Error{File: p.file, Column: p.header[c], Msg: err.Error()}
	}
	leaf, ok := p.pf.Schema().Lookup(p.header[c])
	if !ok {
		return fail(errors.New("nested columns are not read"))
	}
	x := make([]T, 0, rows)
	for _, g := range p.pf.RowGroups() {
		var err error
		if x, err = readChunk(x, g.ColumnChunks()[leaf.ColumnIndex], get, blank); err != nil {
			return fail(err)
		}
	}
	if len(x) != rows {
		return fail(fmt.Errorf("broken Parquet: %d values in %d rows", len(x), rows))
	}
	return x, nil
}

// readChunk appends the chunk's values to x, up to its capacity.
func readChunk[T any](x []T, chunk parquet.ColumnChunk, get func(parquet.Value) (T, error), blank func(row int, err error)) ([]T, error) {
	pages := chunk.Pages()
	defer pages.Close()
	var buf [parquetBatch]parquet.Value
	for len(x) < cap(x) {
		page, err := pages.ReadPage()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("broken Parquet: %w", err)
		}
		values := page.Values()
		for len(x) < cap(x) {
			n, err := values.ReadValues(buf[:min(len(buf), cap(x)-len(x))])
			for _, v := range buf[:n] {
				f, err := get(v)
				if gap := (missingError("")); blank != nil && errors.As(err, &gap) {
					blank(len(x), err)
					err = nil
				}
				if err != nil {
					return nil, &valueError{len(x), err}
				}
				x = append(x, f)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("broken Parquet: %w", err)
			}
		}
		parquet.Release(page)
	}
	return x, nil
}

// labelOf returns the text of a value.
func labelOf(v parquet.Value) (text string, err error) {
	if !v.IsNull() { // whose text is not empty
		text = strings.Clone(strings.TrimSpace(v.String()))
	}
	switch {
	case absent(text):
		err = missingError(strconv.Quote(text))
	case len(text) > maxLabel:
		err = errLabel
	}
	return text, err
}

func number(v parquet.Value, unsigned bool) (x float64, err error) {
	if v.IsNull() {
		return math.NaN(), missingError("null")
	}
	switch k := v.Kind(); {
	case k == parquet.Int32 && unsigned:
		x = float64(v.Uint32())
	case k == parquet.Int64 && unsigned:
		x = float64(v.Uint64())
	case k == parquet.Int32:
		x = float64(v.Int32())
	case k == parquet.Int64:
		x = float64(v.Int64())
	case k == parquet.Float:
		x = float64(v.Float())
	default:
		x = v.Double()
	}
	if math.IsNaN(x) {
		return x, missingError("NaN")
	}
	if bad := badValue(x); bad != "" {
		return 0, errors.New(bad)
	}
	return x, nil
}
