package dataset

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// What the tables of these tests hold, row by row; NaN is missing.
var (
	formX    = []float64{1.5, -2, math.NaN(), 4, 1e-3}
	formK    = []int16{3, -4, 5, 300, 7}
	formTown = []string{"Zürich", "Oslo", "Zürich", "Bern", "Oslo"}
	formDay  = []int{14975, 14976, 14980, 15000, 15001} // since 1970 began
	formY    = []float64{1, 2, 3, 5, 8}
)

const formCSV = "x,k,town,day,y\n1.5,3,Zürich,2011-01-01,1\n-2,-4,Oslo,2011-01-02,2\n,5,Zürich,2011-01-06,3\n4,300,Bern,2011-01-26,5\n1e-3,7,Oslo,2011-01-27,8\n"

// arrowTable writes the table in two batches; in a stream the towns have a dictionary, another one in each.
func arrowTable(t testing.TB, stream bool, options ...ipc.Option) []byte {
	t.Helper()
	var town arrow.DataType = arrow.BinaryTypes.String
	if stream {
		town = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: town}
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, {Name: "k", Type: arrow.PrimitiveTypes.Int16},
		{Name: "town", Type: town}, {Name: "day", Type: arrow.FixedWidthTypes.Timestamp_ms}, {Name: "y", Type: arrow.PrimitiveTypes.Float32}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	var out bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		io.Closer
	}
	options = append(options, ipc.WithSchema(schema))
	if stream {
		w = ipc.NewWriter(&out, options...)
	} else {
		var err error
		if w, err = ipc.NewFileWriter(&out, options...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range formY {
		if math.IsNaN(formX[i]) {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Float64Builder).Append(formX[i])
		}
		b.Field(1).(*array.Int16Builder).Append(formK[i])
		if err := b.Field(2).AppendValueFromString(formTown[i]); err != nil {
			t.Fatal(err)
		}
		b.Field(3).(*array.TimestampBuilder).Append(arrow.Timestamp(formDay[i] * 86400_000))
		b.Field(4).(*array.Float32Builder).Append(float32(formY[i]))
		if i == 2 || i == len(formY)-1 {
			rec := b.NewRecordBatch()
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
			rec.Release()
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// arrowZeros writes n numbers that take little room.
func arrowZeros(t testing.TB, n int) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "y", Type: arrow.PrimitiveTypes.Float64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Float64Builder).AppendValues(make([]float64, n), nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithZstd())
	if err := w.Write(b.NewRecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// npy returns an array as NumPy's format 1.0 has it.
func npy(descr string, columnMajor bool, shape string, elements any) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr, map[bool]string{true: "True", false: "False"}[columnMajor], shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	var order binary.ByteOrder = binary.LittleEndian
	if descr[0] == '>' {
		order = binary.BigEndian
	}
	var out bytes.Buffer
	out.Write(magicNPY)
	out.Write([]byte{1, 0})
	binary.Write(&out, binary.LittleEndian, uint16(len(header)))
	out.WriteString(header)
	binary.Write(&out, order, elements)
	return out.Bytes()
}

func npz(t testing.TB, method uint16, members ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i < len(members); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: members[i].(string), Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(members[i+1].([]byte)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func npzTable(t testing.TB, method uint16) []byte {
	t.Helper()
	towns, days := make([]uint32, 0, 30), make([]int64, 0, 5)
	for i, town := range formTown {
		wide := [6]uint32{}
		for j, r := range []rune(town) {
			wide[j] = uint32(r)
		}
		towns, days = append(towns, wide[:]...), append(days, int64(formDay[i]))
	}
	return npz(t, method, "x.npy", npy("<f8", false, "5,", formX), "k.npy", npy(">i2", false, "5,", formK), "town.npy", npy("<U6", false, "5,", towns),
		"day.npy", npy("<M8[D]", false, "5,", days), "y.npy", npy("<f8", false, "5,", formY))
}

// forms are the same table in all formats but text.
func forms(t testing.TB) map[string][]byte {
	return map[string][]byte{"Arrow file": arrowTable(t, false), "Arrow stream": arrowTable(t, true), "Arrow file, Zstandard": arrowTable(t, false, ipc.WithZstd()),
		"Arrow stream, LZ4": arrowTable(t, true, ipc.WithLZ4()), "NPZ": npzTable(t, zip.Store), "NPZ, compressed": npzTable(t, zip.Deflate)}
}

// A table is the same whatever format it is in: what is learnt from, what a look at it tells, and what its labels are.
func TestFormatsOfColumns(t *testing.T) {
	sel := Select{Target: "y", Categories: []string{"town"}, Dates: map[string]Date{"day": {Unit: "days"}}, Missing: MissingImpute, Label: "town", Offset: "k", Noise: &Noise{By: "town"}}
	read := func(data []byte, sel Select) *Table {
		t.Helper()
		got, err := Read(bytes.NewReader(data), "t", sel, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	// text is what fmt says, since missing values, which are NaN, are not equal.
	text := func(v any) string { return strings.ReplaceAll(fmt.Sprintf("%+v", v), `""`, "null") }
	want, some := text(read([]byte(formCSV), sel)), sel
	some.Rows = 4
	columns, _, err := Survey(strings.NewReader(formCSV), "t", "y", DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range forms(t) {
		if got := text(read(data, sel)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		if got, want := text(read(data, some)), text(read([]byte(formCSV), some)); got != want {
			t.Errorf("%s, four rows:\n%s\nwant\n%s", name, got, want)
		}
		if got := read(data, Select{Target: "y", Inputs: []string{"k"}, Categories: []string{"k"}}); !reflect.DeepEqual(got.Levels, [][]string{{"-4", "3", "5", "7", "300"}}) {
			t.Errorf("%s: %v", name, got.Levels)
		}
		got, rows, err := Survey(struct{ io.Reader }{bytes.NewReader(data)}, "t", "y", DefaultLimits) // without random access
		if err != nil || rows != 5 {
			t.Fatalf("%s: %d rows, %v", name, rows, err)
		}
		for i := range columns {
			a, b := got[i], columns[i]
			if a.Name != b.Name || a.Type != b.Type || a.Missing != b.Missing || a.Distinct != b.Distinct || a.Max != b.Max || a.Type != Times && text(a.Common) != text(b.Common) || a.Increasing != b.Increasing {
				t.Errorf("%s: %+v, want %+v", name, a, b)
			}
		}
	}
}

// Arrays of two dimensions are columns, in either order, and arrays of all kinds are what NumPy says that they are.
func TestArrays(t *testing.T) {
	x := npy("<f4", false, "3, 2", []float32{1, 2, 3, 4, 5, 6})
	f := npy(">f8", true, "3, 2", []float64{1, 3, 5, 2, 4, 6})
	for name, data := range map[string][]byte{"X": npz(t, zip.Store, "notes.txt", []byte("hello"), "X.npy", x), "F": npz(t, zip.Store, "F.npy", f), "column": f} {
		got, err := Read(bytes.NewReader(data), "t", Select{Target: name + "_1"}, DefaultLimits)
		if err != nil || !reflect.DeepEqual(got.X, [][]float64{{1, 3, 5}}) || !reflect.DeepEqual(got.Y, []float64{2, 4, 6}) || got.Inputs[0] != name+"_0" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	day := time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC).Unix()
	for descr, c := range map[string]struct {
		elements any
		texts    []string
	}{
		"|i1":    {[]int8{-1, 127}, []string{"-1", "127"}},
		"|u1":    {[]uint8{1, 255}, []string{"1", "255"}},
		">u2":    {[]uint16{1, 65535}, []string{"1", "65535"}},
		"<i4":    {[]int32{-1, 1 << 30}, []string{"-1", "1073741824"}},
		">u4":    {[]uint32{1, 1 << 31}, []string{"1", "2147483648"}},
		"<u8":    {[]uint64{1, 1 << 63}, []string{"1", "9223372036854775808"}},
		">i8":    {[]int64{-1, 1 << 62}, []string{"-1", "4611686018427387904"}},
		"<f4":    {[]float32{0.5, -1e10}, []string{"0.5", "-1e+10"}},
		"|b1":    {[]bool{true, false}, []string{"true", "false"}},
		"|S3":    {[]byte("a\x00\x00bcd"), []string{"a", "bcd"}},
		"<M8[s]": {[]int64{day, math.MinInt64}, []string{"2020-02-29T12:00:00Z", ""}},
	} {
		err := open(bytes.NewReader(npy(descr, false, "2,", c.elements)), "t", DefaultLimits, nil, func(f *columnFile) error {
			var got []string
			err := f.seeTexts(0, 2, func(text string, _ error) error { got = append(got, text); return nil })
			if !reflect.DeepEqual(got, c.texts) {
				t.Errorf("%s: %q, want %q", descr, got, c.texts)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", descr, err)
		}
	}
}

func TestBadFormats(t *testing.T) {
	file, stream := arrowTable(t, false), arrowTable(t, true)
	x := npy("<f8", false, "5,", formX)
	small := DefaultLimits
	small.Rows, small.Columns = 4, 4
	var bomb bytes.Buffer
	z := zip.NewWriter(&bomb)
	if _, err := z.CreateRaw(&zip.FileHeader{Name: "x.npy", Method: zip.Deflate, UncompressedSize64: ratioFrom + 1}); err != nil {
		t.Fatal(err)
	}
	z.Close()
	for want, data := range map[string][]byte{
		"t: broken Arrow: ": file[:len(file)/2],
		"t: broken Arrow: what describes it is too large":                                                          stream[:300],
		"t: Feather of version 1 is not read: write the table in version 2":                                        []byte("FEA1xxxxxxxx"),
		"t: broken NPZ: zip: not a valid zip file":                                                                 npzTable(t, zip.Store)[:900],
		"t: it is a zip archive without arrays of NumPy (.npy): write CSV, Parquet, Arrow":                         npz(t, zip.Store, "a.csv", []byte("x,y\n")),
		"t: it inflates to more than 500 times":                                                                    bomb.Bytes(),
		"t: broken: it ends within its elements":                                                                   x[:len(x)-1],
		"the array z has 2 rows, x has 5: the arrays of a table have as many rows":                                 npz(t, zip.Store, "x.npy", x, "z.npy", npy("<f8", false, "2,", []float64{1, 2})),
		"the array s: the arrays of a table have one dimension or two":                                             npz(t, zip.Store, "x.npy", x, "s.npy", npy("<f8", false, "", []float64{1})),
		"the array o: elements of the type O are not read":                                                         npz(t, zip.Store, "o.npy", npy("|O", false, "2,", []byte{})),
		"the array c: elements of the type c16 are not read":                                                       npz(t, zip.Store, "c.npy", npy("<c16", false, "2,", make([]byte, 32))),
		"times in units of [Y] are not read":                                                                       npy("<M8[Y]", false, "2,", []int64{1, 2}),
		"broken: 2147483647×2147483647 elements of 8 bytes in a file of":                                           npy("<f8", false, "2147483647, 2147483647", []float64{1}),
		`broken: a header "{'descr': '<f8', 'fortran_orde`:                                                         npy("<f8", false, "99999999999999999999,", []float64{1}),
		"structured arrays are not read: save each field by numpy.savez":                                           bytes.Replace(npy("<f8", false, "2,", []float64{1, 2}), []byte("'<f8'"), []byte("[('a"), 1),
		"version 9 of NumPy's format":                                                                              append([]byte("\x93NUMPY\x09\x00"), x[8:]...),
		`t, column "town": it does not hold numbers: write categories: [town] under data: to use it as a category`: file,
	} {
		if _, err := Read(bytes.NewReader(data), "t", Select{Target: "y"}, DefaultLimits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	zeros := arrowZeros(t, 20_000)
	tight := DefaultLimits
	tight.Bytes = 20_000
	if _, err := Read(bytes.NewReader(zeros), "t", Select{Target: "y"}, tight); err == nil || err.Error() != "t: "+errBomb.Error() {
		t.Errorf("%d bytes of Arrow: %v", len(zeros), err)
	}
	for name, data := range forms(t) {
		lim := small
		lim.Columns = 5
		if _, err := Read(bytes.NewReader(data), "t", Select{Target: "y", Inputs: []string{"k"}}, lim); err == nil || !strings.Contains(err.Error(), "the limit of 4") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Read(bytes.NewReader(data), "t", Select{Target: "y", Inputs: []string{"k"}}, small); err == nil || !strings.Contains(err.Error(), "the limit of 4") {
			t.Errorf("%s: %v", name, err)
		}
		for sel, want := range map[*Select]string{
			{Target: "y", Inputs: []string{"x"}}:                                                      `row 3: the value is missing`,
			{Target: "town", Inputs: []string{"k"}}:                                                   `column "town": the target does not hold numbers`,
			{Target: "y", Inputs: []string{"day"}}:                                                    "write dates: {day: days} under data: to use it as a date",
			{Target: "y", Inputs: []string{"k"}, Dates: map[string]Date{"k": {Unit: "days"}}}:         `column "k": row 1: it holds no dates`,
			{Target: "y", Inputs: []string{"day"}, Dates: map[string]Date{"day": {"hours", "15:04"}}}: "it holds dates or times already",
			{Target: "y", Inputs: []string{"k"}, Noise: &Noise{Weights: "town"}}:                      `column "town": it does not hold numbers, which say what noise`,
			{Target: "y", Inputs: []string{"k"}, Offset: "town"}:                                      `column "town": the offset does not hold numbers`,
		} {
			if _, err := Read(bytes.NewReader(data), "t", *sel, DefaultLimits); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: want %s, got %v", name, want, err)
			}
		}
	}
}

// Whatever is in a file, it is a table or an error, and takes no more memory than its limits say.
func FuzzColumns(f *testing.F) {
	for _, data := range forms(f) {
		f.Add(data)
	}
	f.Add(npy("<f8", true, "2, 2", []float64{1, 2, 3, 4}))
	f.Add(npy("|S2", false, "2,", []byte("abcd")))
	lim := Limits{Rows: 1000, Columns: 100, Bytes: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		if arrow, _ := isArrow(data); !arrow && !bytes.HasPrefix(data, magicNPY) && !bytes.HasPrefix(data, magicZip) {
			return
		}
		columns, rows, err := Survey(bytes.NewReader(data), "t", "", lim)
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		sel := Select{Missing: MissingImpute}
		for _, c := range columns {
			if c.Unfit == "" {
				sel.Inputs, sel.Target = append(sel.Inputs, sel.Target), c.Name
			}
		}
		if len(sel.Inputs) < 2 {
			return
		}
		sel.Inputs = sel.Inputs[1:]
		tab, err := Read(bytes.NewReader(data), "t", sel, lim)
		if err != nil {
			t.Fatalf("what a survey takes for numbers cannot be read: %v", err)
		}
		if tab.Rows() != rows || len(tab.Y) != rows {
			t.Fatalf("%d and %d values in %d rows", tab.Rows(), len(tab.Y), rows)
		}
	})
}
