package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetBatch is the number of values read from a page at once.
const parquetBatch = 4096

// readParquet reads a Parquet file. It needs random access: a stream that has
// none (r is what head was peeked from) is held in memory.
func readParquet(r, buffered io.Reader, file string, sel Select, lim Limits) (t *Table, err error) {
	defer func() { // the decoder panics on some corrupt files
		if p := recover(); p != nil {
			t, err = nil, &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", p)}
		}
	}()
	ra, size, err := randomAccess(r, buffered, lim)
	if err != nil {
		return nil, &Error{File: file, Msg: err.Error()}
	}
	if err := checkFooter(ra, size); err != nil {
		return nil, &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", err)}
	}
	pf, err := parquet.OpenFile(ra, size)
	if err != nil {
		return nil, &Error{File: file, Msg: fmt.Sprintf("broken Parquet: %v", err)}
	}
	fields := pf.Schema().Fields()
	if len(fields) > lim.Columns {
		return nil, &Error{File: file, Msg: fmt.Sprintf("%d columns, more than the limit of %d", len(fields), lim.Columns)}
	}
	header := make([]string, len(fields))
	for i, f := range fields {
		header[i] = f.Name()
	}
	rows := pf.NumRows()
	if sel.Rows > 0 {
		rows = min(rows, int64(sel.Rows))
	}
	if rows > int64(lim.Rows) {
		return nil, &Error{File: file, Msg: fmt.Sprintf("%d rows, more than the limit of %d", rows, lim.Rows)}
	}
	target, inputs, err := sel.columns(file, header)
	if err != nil {
		return nil, err
	}
	label, err := sel.label(file, header)
	if err != nil {
		return nil, err
	}
	if err := lim.cells(rows, len(inputs)+1); err != nil {
		return nil, &Error{File: file, Msg: err.Error()}
	}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			if n := c.MetaData.TotalUncompressedSize; n > lim.Bytes || n > ratioFrom && n/maxRatio > size {
				return nil, &Error{File: file, Msg: errBomb.Error()}
			}
		}
	}
	t = &Table{Target: sel.Target}
	read := inputs
	if target >= 0 {
		if !numericField(fields[target]) {
			return nil, &Error{File: file, Column: header[target], Msg: "the target does not hold numbers"}
		}
		read = append(slices.Clone(inputs), target)
	}
	for _, c := range inputs {
		if !numericField(fields[c]) {
			return nil, &Error{File: file, Column: header[c], Msg: fmt.Sprintf("it does not hold numbers: leave the column out with exclude: [%s]", yamlName(header[c]))}
		}
		t.Inputs = append(t.Inputs, header[c])
	}
	for _, c := range read {
		unsigned := unsigned(fields[c])
		x, err := readColumn(pf, file, header[c], int(rows), func(v parquet.Value) (float64, string) { return number(v, unsigned) })
		if err != nil {
			return nil, err
		}
		t.X = append(t.X, x)
	}
	if label >= 0 {
		if t.Labels, err = readLabels(pf, file, fields[label], int(rows)); err != nil {
			return nil, err
		}
	}
	if target >= 0 {
		t.X, t.Y = t.X[:len(inputs)], t.X[len(inputs)]
	}
	return t, t.Check(file, sel.Points)
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
	msg string
}

func (e *valueError) Error() string { return e.msg }

// readColumn reads a column, each value by get, which says what is wrong with it.
func readColumn[T any](pf *parquet.File, file, name string, rows int, get func(parquet.Value) (x T, bad string)) ([]T, error) {
	fail := func(err error) ([]T, error) {
		var v *valueError
		if errors.As(err, &v) {
			return nil, &Error{File: file, Column: name, Msg: fmt.Sprintf("row %d: %s", v.row+1, v.msg)}
		}
		return nil, &Error{File: file, Column: name, Msg: err.Error()}
	}
	leaf, ok := pf.Schema().Lookup(name)
	if !ok {
		return fail(errors.New("nested columns are not read"))
	}
	x := make([]T, 0, rows)
	for _, g := range pf.RowGroups() {
		var err error
		if x, err = readChunk(x, g.ColumnChunks()[leaf.ColumnIndex], get); err != nil {
			return fail(err)
		}
	}
	if len(x) != rows {
		return fail(fmt.Errorf("broken Parquet: %d values in %d rows", len(x), rows))
	}
	return x, nil
}

// readChunk appends the chunk's values to x, up to its capacity.
func readChunk[T any](x []T, chunk parquet.ColumnChunk, get func(parquet.Value) (x T, bad string)) ([]T, error) {
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
				f, msg := get(v)
				if msg != "" {
					return nil, &valueError{len(x), msg}
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

// readLabels reads a column as text.
func readLabels(pf *parquet.File, file string, field parquet.Field, rows int) ([]string, error) {
	if !field.Leaf() || field.Repeated() {
		return nil, &Error{File: file, Column: field.Name(), Msg: "lists and nested columns are not read"}
	}
	return readColumn(pf, file, field.Name(), rows, labelOf)
}

// labelOf returns the text of a value.
func labelOf(v parquet.Value) (text, bad string) {
	if !v.IsNull() { // whose text is not empty
		text = strings.Clone(strings.TrimSpace(v.String()))
	}
	switch {
	case absent(text):
		bad = missingError(text).Error()
	case len(text) > maxLabel:
		bad = errLabel.Error()
	}
	return text, bad
}

func number(v parquet.Value, unsigned bool) (x float64, bad string) {
	if v.IsNull() {
		return 0, "the value is missing (null): drop the row or fill it in"
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
	return x, badValue(x)
}
