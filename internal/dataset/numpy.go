package dataset

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// How NumPy's files begin: arrays (numpy.lib.format, versions 1 to 3), and zip archives of them.
var (
	magicNPY = []byte("\x93NUMPY")
	magicZip = []byte("PK\x03\x04")
)

// maxNPYHeader bounds the text that describes an array, in bytes.
const maxNPYHeader = 1 << 16

// npyArray is an array of numbers, texts or times of one or two dimensions, whose rows are those of a table.
type npyArray struct {
	rows, columns int
	vector        bool // of one dimension
	columnMajor   bool
	order         binary.ByteOrder
	form          byte // as dtypes have it: i, u, f, b, U, S, M
	size          int  // bytes of an element
	tick          time.Duration
	data          []byte
}

// numpyFile are the columns of the arrays of a file.
type numpyFile []npyColumn

type npyColumn struct {
	*npyArray
	at int // which column of the array
}

// openNumPy reads an .npy or .npz file and hands it on.
func openNumPy(r, buffered io.Reader, file string, lim Limits, archive bool, use func(*columnFile) error) error {
	fail := func(format string, args ...any) error { return &Error{File: file, Msg: fmt.Sprintf(format, args...)} }
	ra, size, err := randomAccess(r, buffered, lim)
	if err != nil {
		return fail("%v", err)
	}
	f := &columnFile{file: file, lim: lim}
	var columns numpyFile
	add := func(name string, a *npyArray) error {
		if len(columns) > 0 && int64(a.rows) != f.total {
			return fail("the array %s has %d rows, %s has %d: the arrays of a table have as many rows", short(name), a.rows, short(f.header[0]), f.total)
		}
		f.total = int64(a.rows)
		if len(columns)+a.columns > lim.Columns {
			return fail("more than the limit of %d columns", lim.Columns)
		}
		for k := range a.columns {
			if columns = append(columns, npyColumn{a, k}); a.vector {
				f.header = append(f.header, name)
			} else {
				f.header = append(f.header, fmt.Sprintf("%s_%d", name, k))
			}
		}
		return nil
	}
	if !archive {
		a, err := readNPY(io.NewSectionReader(ra, 0, size), size)
		if err != nil {
			return fail("%v", err)
		}
		if err := add("column", a); err != nil {
			return err
		}
	} else if err := eachNPY(ra, size, lim, func(name string, a *npyArray, err error) error {
		if err != nil {
			return fail("the array %s: %v", short(name), err)
		}
		return add(name, a)
	}); err != nil {
		if table := (*Error)(nil); errors.As(err, &table) {
			return err
		}
		return fail("%v", err)
	}
	f.columnar = columns
	return use(f)
}

// eachNPY hands on the arrays of an archive, in its order.
func eachNPY(ra io.ReaderAt, size int64, lim Limits, take func(name string, a *npyArray, err error) error) error {
	z, err := zip.NewReader(ra, size)
	if err != nil {
		return fmt.Errorf("broken NPZ: %w", err)
	}
	var total uint64
	arrays := 0
	for _, member := range z.File {
		name, ok := strings.CutSuffix(member.Name, ".npy")
		if !ok {
			continue
		}
		arrays++
		n := member.UncompressedSize64
		if total += n; n > uint64(lim.Bytes) || total > uint64(lim.Bytes) || total > ratioFrom && total/maxRatio > uint64(size) {
			return errBomb
		}
		r, err := member.Open()
		if err != nil {
			return fmt.Errorf("broken NPZ: %w", err)
		}
		a, err := readNPY(io.LimitReader(r, int64(n)), int64(n))
		err = errors.Join(err, r.Close())
		if err := take(name, a, err); err != nil {
			return err
		}
	}
	if arrays == 0 {
		return errors.New("it is a zip archive without arrays of NumPy (.npy): write CSV, Parquet, Arrow, or NPZ by numpy.savez")
	}
	return nil
}

var (
	npyDescr = regexp.MustCompile(`'descr': *'([<>|=]?)([a-zA-Z])([0-9]*)(?:\[([a-zA-Z0-9]+)\])?'`)
	npyOrder = regexp.MustCompile(`'fortran_order': *(True|False)`)
	npyShape = regexp.MustCompile(`'shape': *\(([0-9]*)(?:, *([0-9]*))?,? *\)`)
	npyTicks = map[string]time.Duration{"ns": time.Nanosecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "D": 24 * time.Hour}
)

// readNPY reads an array from a file of a size.
func readNPY(r io.Reader, size int64) (*npyArray, error) {
	header, err := npyHeader(r, size)
	if err != nil {
		return nil, err
	}
	a, err := describedNPY(header)
	if err != nil {
		return nil, err
	}
	want := int64(a.rows) * int64(a.columns) // each is at most 2⁴⁰
	if a.size > 0 && want > size/int64(a.size) {
		return nil, fmt.Errorf("broken: %d×%d elements of %d bytes in a file of %d", a.rows, a.columns, a.size, size)
	}
	a.data = make([]byte, want*int64(a.size))
	if _, err := io.ReadFull(r, a.data); err != nil {
		return nil, fmt.Errorf("broken: it ends within its elements: %w", err)
	}
	return a, nil
}

// npyHeader reads the text that describes an array.
func npyHeader(r io.Reader, size int64) (string, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || !bytes.HasPrefix(head[:], magicNPY) {
		return "", errors.New("broken: this is no array of NumPy's")
	}
	var long [4]byte
	width := 4
	if head[6] == 1 {
		width = 2
	} else if head[6] > 3 {
		return "", fmt.Errorf("version %d of NumPy's format, which is newer than 3", head[6])
	}
	if _, err := io.ReadFull(r, long[:width]); err != nil {
		return "", fmt.Errorf("broken: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(long[:]))
	if n > maxNPYHeader || n > size {
		return "", fmt.Errorf("broken: a header of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", fmt.Errorf("broken: %w", err)
	}
	return string(text), nil
}

// describedNPY returns the array that a header describes, without its elements.
func describedNPY(header string) (*npyArray, error) {
	descr, order, shape := npyDescr.FindStringSubmatch(header), npyOrder.FindStringSubmatch(header), npyShape.FindStringSubmatch(header)
	switch {
	case strings.Contains(header, "'descr': ["):
		return nil, errors.New("structured arrays are not read: save each field by numpy.savez(file, a=x['a'], b=x['b'])")
	case descr == nil || order == nil:
		return nil, fmt.Errorf("broken: a header %q", short(header))
	case shape == nil || shape[1] == "":
		return nil, errors.New("the arrays of a table have one dimension or two")
	}
	a := &npyArray{columns: 1, vector: shape[2] == "", columnMajor: order[1] == "True", order: binary.LittleEndian, form: descr[2][0]}
	if descr[1] == ">" {
		a.order = binary.BigEndian
	}
	var err, err2, err3 error
	a.rows, err = parseSize(shape[1])
	if !a.vector {
		a.columns, err2 = parseSize(shape[2])
	}
	if descr[3] != "" {
		a.size, err3 = parseSize(descr[3])
	}
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, fmt.Errorf("broken: a header %q", short(header))
	}
	if a.form == 'U' {
		a.size *= 4
	}
	if a.form == 'M' {
		if a.tick = npyTicks[descr[4]]; a.tick == 0 {
			return nil, fmt.Errorf("times in units of [%s] are not read: convert them by astype('datetime64[s]')", descr[4])
		}
	}
	ok := map[byte][]int{'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {4, 8}, 'b': {1}, 'M': {8}}
	if sizes, fixed := ok[a.form]; fixed && !slices.Contains(sizes, a.size) || !fixed && a.form != 'U' && a.form != 'S' {
		return nil, fmt.Errorf("elements of the type %s%s are not read: use whole numbers, float32 or float64, texts (U, S) or times (datetime64)", descr[2], descr[3])
	}
	return a, nil
}

// parseSize returns a size in an array's header.
func parseSize(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int(n), err
}

// at returns the bytes of the element in row i of a column.
func (c npyColumn) bytes(i int) []byte {
	place := i*c.columns + c.at
	if c.columnMajor {
		place = c.at*c.rows + i
	}
	return c.data[place*c.size : (place+1)*c.size]
}

// whole returns the element in row i of an array of whole numbers, of its sign if it has one.
func (c npyColumn) whole(i int) uint64 {
	switch b := c.bytes(i); c.size {
	case 1:
		if c.form == 'i' {
			return uint64(int8(b[0]))
		}
		return uint64(b[0])
	case 2:
		if v := c.order.Uint16(b); c.form != 'i' {
			return uint64(v)
		} else {
			return uint64(int16(v))
		}
	case 4:
		if v := c.order.Uint32(b); c.form != 'i' {
			return uint64(v)
		} else {
			return uint64(int32(v))
		}
	default:
		return c.order.Uint64(b)
	}
}

// cells returns the values of a column.
func (c npyColumn) cells() *cells {
	out := &cells{n: c.rows}
	switch c.form {
	case 'b':
		out.text = func(i int) string { return strconv.FormatBool(c.bytes(i)[0] != 0) }
	case 'i':
		out.number = func(i int) float64 { return float64(int64(c.whole(i))) }
		out.text = func(i int) string { return strconv.FormatInt(int64(c.whole(i)), 10) }
	case 'u':
		out.number = func(i int) float64 { return float64(c.whole(i)) }
		out.text = func(i int) string { return strconv.FormatUint(c.whole(i), 10) }
	case 'f':
		out.number = func(i int) float64 {
			if c.size == 4 {
				return float64(math.Float32frombits(uint32(c.whole(i))))
			}
			return math.Float64frombits(c.whole(i))
		}
		out.text = func(i int) string { return strconv.FormatFloat(out.number(i), 'g', -1, 64) }
	case 'M':
		ticks := func(i int) int64 { return int64(c.order.Uint64(c.bytes(i))) }
		out.null = func(i int) bool { return ticks(i) == math.MinInt64 } // NaT
		out.time = func(i int) time.Time { return after(ticks(i), c.tick) }
		out.text = func(i int) string { return out.time(i).UTC().Format(time.RFC3339) }
	case 'S':
		out.text = func(i int) string { return string(bytes.TrimRight(c.bytes(i), "\x00")) }
	case 'U':
		out.text = func(i int) string {
			var text []byte
			for b := c.bytes(i); len(b) > 0; b = b[4:] {
				text = utf8.AppendRune(text, rune(c.order.Uint32(b)))
			}
			return strings.TrimRight(string(text), "\x00")
		}
	}
	return out
}

// kind says what a column holds.
func (f numpyFile) kind(c int) Type {
	switch f[c].form {
	case 'i', 'u', 'f':
		return Numbers
	case 'M':
		return Times
	}
	return Texts
}

// numbers reads a column as numbers.
func (f numpyFile) numbers(c, rows int, k *coding, blank func(row int, err error)) ([]float64, error) {
	return f[c].cells().append(make([]float64, 0, rows), 0, rows, k, blank)
}

// texts has the texts of a column taken.
func (f numpyFile) texts(c, rows int, take func(text string, err error) error) error {
	return f[c].cells().take(0, rows, take)
}
