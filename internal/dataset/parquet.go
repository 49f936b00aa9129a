package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetBatch is the number of values read from a page at once.
const parquetBatch = 4096

// parquetFile is a Parquet file whose schema has been read.
type parquetFile struct {
	fields []parquet.Field
	pf     *parquet.File
}

// openParquet opens a Parquet file and hands it on. It needs random access: a stream that has
// none (r is what head was peeked from) is held in memory.
func openParquet(r, buffered io.Reader, file string, lim Limits, use func(*columnFile) error) (err error) {
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
	p := &parquetFile{fields: pf.Schema().Fields(), pf: pf}
	f := &columnFile{columnar: p, file: file, lim: lim, total: pf.NumRows()}
	for _, field := range p.fields {
		f.header = append(f.header, field.Name())
	}
	if err := f.within(); err != nil {
		return err
	}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			if n := c.MetaData.TotalUncompressedSize; n > lim.Bytes || n > ratioFrom && n/maxRatio > size {
				return &Error{File: file, Msg: errBomb.Error()}
			}
		}
	}
	return use(f)
}

// kind says what a column holds.
func (p *parquetFile) kind(c int) Type {
	switch f := p.fields[c]; {
	case !f.Leaf() || f.Repeated():
		return Nested
	case timeUnit(f) > 0:
		return Times
	case numericField(f):
		return Numbers
	}
	return Texts
}

// numbers reads a column as numbers.
func (p *parquetFile) numbers(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	get, err := k.ofParquet(p.fields[c])
	if err != nil {
		return nil, err
	}
	return readColumn(p, c, rows, get, blank)
}

// texts has the texts of a column taken.
func (p *parquetFile) texts(c, rows int, take func(text string, err error) error) error {
	_, err := readColumn(p, c, rows, func(v parquet.Value) (struct{}, error) { return struct{}{}, take(labelOf(v)) }, nil)
	return err
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

// readColumn reads a column, each value by get, which says what is wrong with it. What is missing it
// tells blank, unless that is nil, and takes to be what get returns.
func readColumn[T any](p *parquetFile, c, rows int, get func(parquet.Value) (T, error), blank func(row int, err error)) ([]T, error) {
	leaf, ok := p.pf.Schema().Lookup(p.fields[c].Name())
	if !ok {
		return nil, errNested
	}
	x := make([]T, 0, rows)
	for _, g := range p.pf.RowGroups() {
		var err error
		if x, err = readChunk(x, g.ColumnChunks()[leaf.ColumnIndex], get, blank); err != nil {
			return nil, err
		}
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
	if v.IsNull() { // whose text is not empty
		return labelText("")
	}
	text, err = labelText(v.String())
	return strings.Clone(text), err
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
	return usable(x)
}
