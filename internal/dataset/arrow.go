package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// How Arrow's formats begin: files, which Feather 2 is another name of, streams, and what went by the name of Feather before.
var (
	magicArrow       = []byte("ARROW1")
	magicArrowStream = []byte{0xff, 0xff, 0xff, 0xff}
	magicFeather     = []byte("FEA1")
)

// arrowFile holds the batches of an Arrow file or stream.
type arrowFile struct {
	schema  *arrow.Schema
	batches []arrow.RecordBatch
}

// openArrow reads an Arrow file or stream and hands it on.
func openArrow(r, buffered io.Reader, file string, lim Limits, stream bool, use func(*columnFile) error) (err error) {
	broken := func(err any) error { return &Error{File: file, Msg: fmt.Sprintf("broken Arrow: %v", err)} }
	defer func() { // the decoder panics on some corrupt files
		switch p := recover(); p {
		case nil:
		case errBomb:
			err = &Error{File: file, Msg: errBomb.Error()}
		default:
			err = broken(p)
		}
	}()
	ra, size, err := randomAccess(r, buffered, lim)
	if err != nil {
		return &Error{File: file, Msg: err.Error()}
	}
	room := &bounds{Allocator: memory.NewGoAllocator(), left: min(lim.Bytes, max(ratioFrom, size*min(maxRatio, lim.Bytes/max(1, size))))}
	options := []ipc.Option{ipc.WithAllocator(room), ipc.WithMetadataSizeLimit(min(size, maxArrowMeta)), ipc.WithBodySizeLimit(size)}
	from := int64(0)
	if !stream { // a file is a stream between its beginning and an index, which is not needed
		from = 8
	}
	section := io.NewSectionReader(ra, from, size-from)
	if err := checkArrow(section, size-from); err != nil {
		return broken(err)
	}
	s, err := ipc.NewReader(section, options...)
	if err != nil {
		return broken(err)
	}
	a := &arrowFile{schema: s.Schema()}
	f := &columnFile{columnar: a, file: file, lim: lim}
	for _, field := range a.schema.Fields() {
		f.header = append(f.header, field.Name)
	}
	if err := f.within(); err != nil {
		return err
	}
	for {
		batch, err := s.Read()
		if errors.Is(err, io.EOF) {
			return use(f)
		}
		if room.left < 0 {
			return &Error{File: file, Msg: errBomb.Error()}
		}
		if err != nil {
			return broken(err)
		}
		for c, column := range batch.Columns() {
			if int64(column.Len()) != batch.NumRows() {
				return broken(fmt.Sprintf("column %q has %d values in %d rows", f.header[c], column.Len(), batch.NumRows()))
			}
		}
		batch.Retain()
		a.batches = append(a.batches, batch)
		if f.total += batch.NumRows(); f.total > int64(lim.Rows) {
			return &Error{File: file, Msg: fmt.Sprintf("more than the limit of %d rows", lim.Rows)}
		}
	}
}

// bounds is memory of which there is only so much: who asks for more panics with errBomb.
type bounds struct {
	memory.Allocator
	left int64
}

func (b *bounds) take(n int) {
	if b.left -= int64(n); n < 0 || b.left < 0 {
		panic(errBomb)
	}
}

func (b *bounds) Allocate(size int) []byte {
	b.take(size)
	return b.Allocator.Allocate(size)
}

func (b *bounds) Reallocate(size int, old []byte) []byte {
	b.take(max(0, size-len(old)))
	return b.Allocator.Reallocate(size, old)
}

// kind says what a column holds.
func (a *arrowFile) kind(c int) Type { return kindOfArrow(a.schema.Field(c).Type) }

func kindOfArrow(t arrow.DataType) Type {
	switch id := t.ID(); {
	case id == arrow.DICTIONARY:
		return kindOfArrow(t.(*arrow.DictionaryType).ValueType)
	case id == arrow.EXTENSION:
		return kindOfArrow(t.(arrow.ExtensionType).StorageType())
	case arrow.IsInteger(id) || arrow.IsFloating(id):
		return Numbers
	case id == arrow.DATE32 || id == arrow.DATE64 || id == arrow.TIMESTAMP || id == arrow.TIME32 || id == arrow.TIME64:
		return Times
	case id == arrow.NULL || id == arrow.BOOL || arrow.IsDecimal(id) || arrow.IsBaseBinary(id) || id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW || id == arrow.FIXED_SIZE_BINARY:
		return Texts
	}
	return Nested
}

// numbers reads a column as numbers.
func (a *arrowFile) numbers(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	x := make([]float64, 0, rows)
	for _, batch := range a.batches {
		v := cellsOf(batch.Column(c))
		var err error
		if x, err = v.append(x, len(x), rows-len(x), k, blank); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// texts has the texts of a column taken.
func (a *arrowFile) texts(c, rows int, take func(text string, err error) error) error {
	seen := 0
	for _, batch := range a.batches {
		v := cellsOf(batch.Column(c))
		if err := v.take(seen, rows-seen, take); err != nil {
			return err
		}
		seen += min(v.n, rows-seen)
	}
	return nil
}

// cellsOf returns the values of an array.
func cellsOf(a arrow.Array) *cells {
	out := &cells{n: a.Len(), null: a.IsNull, text: a.ValueStr}
	clock := func(unit time.Duration, at func(i int) int64) {
		out.time = func(i int) time.Time { return after(at(i), unit) }
	}
	switch v := a.(type) {
	case *array.Dictionary:
		of := cellsOf(v.Dictionary())
		out.null = func(i int) bool { return v.IsNull(i) || of.missing(v.GetValueIndex(i)) }
		if of.number != nil {
			out.number = func(i int) float64 { return of.number(v.GetValueIndex(i)) }
		}
		if of.time != nil {
			out.time = func(i int) time.Time { return of.time(v.GetValueIndex(i)) }
		}
		out.text = func(i int) string { return of.text(v.GetValueIndex(i)) }
	case array.ExtensionArray:
		return cellsOf(v.Storage())
	case *array.Int8:
		integers(out, v.Value)
	case *array.Int16:
		integers(out, v.Value)
	case *array.Int32:
		integers(out, v.Value)
	case *array.Int64:
		integers(out, v.Value)
	case *array.Uint8:
		integers(out, v.Value)
	case *array.Uint16:
		integers(out, v.Value)
	case *array.Uint32:
		integers(out, v.Value)
	case *array.Uint64:
		integers(out, v.Value)
	case *array.Float16:
		out.number = func(i int) float64 { return float64(v.Value(i).Float32()) }
	case *array.Float32:
		out.number = func(i int) float64 { return float64(v.Value(i)) }
	case *array.Float64:
		out.number = v.Value
	case *array.Date32:
		clock(24*time.Hour, func(i int) int64 { return int64(v.Value(i)) })
	case *array.Date64:
		clock(time.Millisecond, func(i int) int64 { return int64(v.Value(i)) })
	case *array.Timestamp:
		clock(v.DataType().(*arrow.TimestampType).Unit.Multiplier(), func(i int) int64 { return int64(v.Value(i)) })
	case *array.Time32:
		clock(v.DataType().(*arrow.Time32Type).Unit.Multiplier(), func(i int) int64 { return int64(v.Value(i)) })
	case *array.Time64:
		clock(v.DataType().(*arrow.Time64Type).Unit.Multiplier(), func(i int) int64 { return int64(v.Value(i)) })
	case *array.Binary: // whose text would be in base 64
		out.text = v.ValueString
	}
	if a.DataType().ID() == arrow.FLOAT32 || a.DataType().ID() == arrow.FLOAT64 || a.DataType().ID() == arrow.FLOAT16 {
		out.text = func(i int) string { return strconv.FormatFloat(out.number(i), 'g', -1, 64) }
	}
	return out
}

// integers sets what cells of whole numbers are.
func integers[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](c *cells, value func(i int) T) {
	c.number = func(i int) float64 { return float64(value(i)) }
}

// isArrow reports whether a file that begins so is Arrow's, and whether it is a stream.
func isArrow(head []byte) (is, stream bool) {
	stream = bytes.HasPrefix(head, magicArrowStream)
	return stream || bytes.HasPrefix(head, magicArrow), stream
}
