package dataset

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"go.uber.org/goleak"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const plain = "a,b,y\n1,2,3\n4,5,6\n7,9,10\n"

func read(text string, sel Select) (*Table, error) {
	return Read(strings.NewReader(text), "t.csv", sel, DefaultLimits)
}

func wantPlain(t *testing.T, got *Table, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	want := Table{Target: "y", Inputs: []string{"a", "b"}, X: [][]float64{{1, 4, 7}, {2, 5, 9}}, Y: []float64{3, 6, 10}}
	if fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", *got, want)
	}
}

func compressed(t *testing.T, w func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	z := w(&b)
	if _, err := io.WriteString(z, plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipped(t *testing.T) string {
	return compressed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func TestFormats(t *testing.T) {
	sel := Select{Target: "y"}
	for name, text := range map[string]string{
		"comma":     plain,
		"semicolon": strings.ReplaceAll(plain, ",", ";"),
		"tab":       strings.ReplaceAll(plain, ",", "\t"),
		"crlf":      strings.ReplaceAll(plain, "\n", "\r\n"),
		"bom":       "\xef\xbb\xbf" + plain,
		"quoted":    "\"a\",\"b\",y\n\"1\",2,\"3\"\n4,\"5\",6\n 7, 9 ,10",
		"gzip":      gzipped(t),
		"zstd": compressed(t, func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return z
		}),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(text, sel)
			wantPlain(t, got, err)
		})
	}
	// A separator inside quotes does not count.
	got, err := read("\"a,b;;;\",y\n1,2\n3,5\n", sel)
	if err != nil || got.Inputs[0] != "a,b;;;" {
		t.Errorf("%v, %v", got, err)
	}
}

type parquetRow struct {
	A int32   `parquet:"a"`
	B float32 `parquet:"b"`
	Y float64 `parquet:"y"`
	T string  `parquet:"t"`
}

func parquetBytes[R any](t *testing.T, rows []R) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[R](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestParquet(t *testing.T) {
	data := parquetBytes(t, []parquetRow{{1, 2, 3, "x"}, {4, 5, 6, "y"}, {7, 9, 10, "z"}})
	sel := Select{Target: "y", Exclude: []string{"t"}}
	got, err := Read(bytes.NewReader(data), "t.parquet", sel, DefaultLimits)
	wantPlain(t, got, err)
	got, err = Read(io.MultiReader(bytes.NewReader(data)), "stdin", sel, DefaultLimits) // no random access
	wantPlain(t, got, err)
	path := filepath.Join(t.TempDir(), "t.parquet")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = ReadFile(path, nil, sel, DefaultLimits)
	wantPlain(t, got, err)

	sel.Rows = 2
	got, err = Read(bytes.NewReader(data), "t.parquet", sel, DefaultLimits)
	if err != nil || len(got.Y) != 2 || got.X[1][1] != 5 {
		t.Errorf("first two rows: %v, %v", got, err)
	}

	expect := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err = Read(bytes.NewReader(data), "t.parquet", Select{Target: "y"}, DefaultLimits)
	expect(err, `t.parquet, column "t": it does not hold numbers: write categories: [t] under data: to use it as a category, or exclude: [t] to leave it out`)
	type nullable struct {
		A *float64 `parquet:"a,optional"`
		Y float64  `parquet:"y"`
	}
	one := 1.0
	_, err = Read(bytes.NewReader(parquetBytes(t, []nullable{{&one, 1}, {nil, 2}})), "n.parquet", Select{Target: "y"}, DefaultLimits)
	expect(err, `n.parquet, column "a": row 2: the value is missing (null): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`)
	nan := math.NaN()
	_, err = Read(bytes.NewReader(parquetBytes(t, []nullable{{&nan, 1}, {&one, 2}})), "n.parquet", Select{Target: "y"}, DefaultLimits)
	expect(err, `n.parquet, column "a": row 1: the value is missing (NaN): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`)
	_, err = Read(bytes.NewReader(parquetBytes(t, []nullable{{&nan, 1}, {&one, 2}, {nil, nan}, {nil, 3}})), "n.parquet", Select{Target: "y"}, DefaultLimits)
	expect(err, `n.parquet: 4 values are missing, in 3 rows (1, 3, 4), of the columns a (3), y (1): drop the rows or fill the values in, or say missing: drop or missing: impute-median under data:, or leave columns out with exclude:`)
	for cut := 4; cut < len(data); cut += 7 { // truncated anywhere
		if _, err := Read(bytes.NewReader(data[:cut]), "t.parquet", sel, DefaultLimits); err == nil {
			t.Errorf("%d of %d bytes were read without an error", cut, len(data))
		}
	}
}

// Rows to predict at need no target, and need not vary.
func TestPoints(t *testing.T) {
	sel := Select{Target: "y", Inputs: []string{"b", "a"}, Points: true}
	type bare struct {
		A float64 `parquet:"a"`
		B float64 `parquet:"b"`
	}
	for _, c := range []struct {
		data []byte
		y    []float64
	}{
		{[]byte("a,z,b\n1,text,2\n1,text,2\n"), nil},
		{[]byte("a,y,b\n1,5,2\n1,5,2\n"), []float64{5, 5}},
		{parquetBytes(t, []bare{{1, 2}, {1, 2}}), nil},
		{parquetBytes(t, []parquetRow{{1, 2, 5, "x"}, {1, 2, 5, "x"}}), []float64{5, 5}},
	} {
		got, err := Read(bytes.NewReader(c.data), "t", sel, DefaultLimits)
		if err != nil || got.Rows() != 2 || !slices.Equal(got.Row(1), []float64{2, 1}) || !slices.Equal(got.Y, c.y) || (got.Y == nil) != (c.y == nil) {
			t.Errorf("%.20q: %+v, %v", c.data, got, err)
		}
	}
	for text, want := range map[string]string{
		"a,b\n":      "t: there are no rows of data",
		"a,c\n1,2\n": `t: line 1: there is no column "b", which inputs: names; the columns are a, c`,
	} {
		if _, err := Read(strings.NewReader(text), "t", sel, DefaultLimits); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	sel.Rows = 1
	if got, err := Read(strings.NewReader("a,b\n1,2\n3,4\n"), "t", sel, DefaultLimits); err != nil || got.Rows() != 1 {
		t.Errorf("one row: %+v, %v", got, err)
	}
}

func TestStandardInput(t *testing.T) {
	got, err := ReadFile("-", strings.NewReader(plain), Select{Target: "y"}, DefaultLimits)
	wantPlain(t, got, err)
	_, err = ReadFile("-", strings.NewReader(""), Select{Target: "y"}, DefaultLimits)
	if err == nil || err.Error() != "standard input: the file is empty" {
		t.Errorf("got %v", err)
	}
}

// Every bad input and the exact message it gets.
func TestBadTables(t *testing.T) {
	sel := Select{Target: "y"}
	for _, c := range []struct {
		name, text string
		sel        Select
		want       string
	}{
		{"empty file", "", sel, `t.csv: the file is empty`},
		{"no rows", "a,y\n", sel, `t.csv: 0 rows of data: at least two are needed`},
		{"one row", "a,y\n1,2\n", sel, `t.csv: 1 rows of data: at least two are needed`},
		{"no header", "1,2\n3,4\n", sel, `t.csv: line 1: the first line holds numbers, not column names: add a header line`},
		{"no target", "a,b\n1,2\n", Select{}, `t.csv: line 1: no target: name one of the columns a, b under target:`},
		{"unknown target", "a,b\n1,2\n", sel, `t.csv: line 1: there is no column "y", which target: names; the columns are a, b`},
		{"unknown input", plain, Select{Target: "y", Inputs: []string{"q"}}, `t.csv: line 1: there is no column "q", which inputs: names; the columns are a, b, y`},
		{"mistyped target", "Age,strength\n1,2\n", Select{Target: "strenght"}, `t.csv: line 1: there is no column "strenght", which target: names: did you mean strength?`},
		{"mistyped input", "Age,strength\n1,2\n", Select{Target: "strength", Inputs: []string{"age"}}, `t.csv: line 1: there is no column "age", which inputs: names: did you mean Age?`},
		{"decimal comma", "a;y\n1,5;2\n", sel, `t.csv: line 2, column "a": "1,5" has a decimal comma: write numbers with a point`},
		{"unknown exclude", plain, Select{Target: "y", Exclude: []string{"q"}}, `t.csv: line 1: there is no column "q", which exclude: names; the columns are a, b, y`},
		{"target excluded", plain, Select{Target: "y", Exclude: []string{"y"}}, `t.csv: line 1: exclude: names the target "y"`},
		{"target as input", plain, Select{Target: "y", Inputs: []string{"a", "y"}}, `t.csv: line 1: inputs: names "y", which is the target or excluded`},
		{"input twice", plain, Select{Target: "y", Inputs: []string{"a", "a"}}, `t.csv: line 1: inputs: names "a" twice`},
		{"no inputs", "y\n1\n2\n", sel, `t.csv: line 1: no inputs are left besides the target "y"`},
		{"duplicate names", "a,b,a,y\n1,2,3,4\n", sel, `t.csv: line 1: the columns 1 and 3 are both called "a": rename one`},
		{"empty name", "a,,y\n1,2,3\n", sel, `t.csv: line 1: field 2 of the header is empty: give the column a name`},
		{"ragged", "a,y\n1,2\n3,4,5\n", sel, `t.csv: line 3: 3 fields, but the header has 2`},
		{"one text column", "a,city,y\n1,Rome,2\n", sel, `t.csv: line 2, column "city": "Rome" is not a number: write categories: [city] under data: to use it as a category, or exclude: [city] to leave it out`},
		{"text columns", "a,city,day,y\n1,Rome,Mon,2\n", sel, `t.csv: line 2: the columns city, day do not hold numbers ("Rome"): write categories: [city, day] under data: to use them, or exclude: [city, day] to leave them out`},
		{"text target", "a,y\n1,high\n", sel, `t.csv: line 2, column "y" (field 2): "high" is not a number`},
		{"text later", "a,y\n1,2\nx,3\n", sel, `t.csv: line 3, column "a" (field 1): "x" is not a number: correct it, or write categories: [a] under data: to use it as a category, or exclude: [a] to leave it out`},
		{"missing", "a,y\n1,2\n,3\n", sel, `t.csv: line 3, column "a" (field 1): the value is missing (""): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`},
		{"NaN", "a,y\n1,2\n1,NaN\n", sel, `t.csv: line 3, column "y" (field 2): the value is missing ("NaN"): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`},
		{"several missing", "a,b,y\n1,,2\n,NA,3\n4,5,6\n7,8,?\n", sel, `t.csv: 4 values are missing, in 3 rows (lines 2, 3, 5), of the columns a (1), b (2), y (1): drop the rows or fill the values in, or say missing: drop or missing: impute-median under data:, or leave columns out with exclude:`},
		{"many missing", "a,y\n,1\n,2\n,3\n,4\n,5\n,6\n", sel, `t.csv: 6 values are missing, in 6 rows (lines 2, 3, 4, 5, 6, …), of the columns a (6): drop the rows or fill the values in, or say missing: drop or missing: impute-median under data:, or leave columns out with exclude:`},
		{"missing before text", "a,y\n1,\n2,3\nx,4\n", sel, `t.csv: line 2, column "y" (field 2): the value is missing (""): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`},
		{"large", "a,y\n1,2\n-1e300,3\n", sel, `t.csv: line 3, column "a" (field 1): the value -1e+300 is too large to compute with: correct it, or divide the whole column by a large number`},
		{"large target", "a,y\n1,2\n2,2e150\n", sel, `t.csv: line 3, column "y" (field 2): the value 2e+150 is too large to compute with: correct it, or divide the whole column by a large number`},
		{"infinite", "a,y\n1,2\n-Inf,3\n", sel, `t.csv: line 3, column "a" (field 1): the value is infinite: drop the row or correct it`},
		{"too large", "a,y\n1,2\n1e999,3\n", sel, `t.csv: line 3, column "a" (field 1): 1e999 is beyond the range of a float64`},
		{"constant", "a,b,y\n1,5,2\n2,5,3\n", sel, `t.csv, column "b": all 2 values are 5: leave it out with exclude: [b], or say constant: drop under data:`},
		{"constant target", "a,y\n1,5\n2,5\n", sel, `t.csv, column "y": the target is 5 in all 2 rows: there is nothing to learn`},
		{"open quote", "a,y\n1,\"2\n3,4\n", sel, `t.csv: line 3: extraneous or missing " in quoted-field at character 5: quotes must stand at both ends of a field, doubled inside it`},
		{"line numbers count", "a,y\n\"1\",2\n\n3,x\n", sel, `t.csv: line 4, column "y" (field 2): "x" is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.text, c.sel)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "no.csv"), nil, sel, DefaultLimits); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: %v", err)
	}
	z := gzipped(t)
	if _, err := read(z[:len(z)-5], sel); err == nil {
		t.Error("a truncated gzip file was read without an error")
	}
}

func TestLimits(t *testing.T) {
	for want, lim := range map[string]Limits{
		"t.csv: line 4: more than the limit of 2 rows":       {Rows: 2, Columns: 9, Bytes: 1000},
		"t.csv: line 1: 3 columns, more than the limit of 2": {Rows: 9, Columns: 2, Bytes: 1000},
		"t.csv: more than the limit of 10 bytes":             {Rows: 9, Columns: 9, Bytes: 10},
		"t.csv: line 3: more than the limit of 1 rows":       {Rows: 1, Columns: 9, Bytes: 1000},
	} {
		_, err := Read(strings.NewReader(plain), "t.csv", Select{Target: "y"}, lim)
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestSelection(t *testing.T) {
	got, err := read("id,a,b,y\nx1,1,2,3\nx2,4,6,5\nx3,7,8,9\n", Select{Target: "y", Inputs: []string{"b", "a"}, Rows: 2})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Inputs, got.X, got.Y) != "[b a] [[2 6] [1 4]] [3 5]" {
		t.Errorf("got %v %v %v", got.Inputs, got.X, got.Y)
	}
}

func bigTable(n int) *Table {
	t := &Table{Target: "y", Inputs: []string{"a", "b"}, X: [][]float64{make([]float64, n), make([]float64, n)}, Y: make([]float64, n)}
	for i := range n {
		t.X[0][i] = 100 + float64(i%17)
		t.X[1][i] = float64(i*i%23) / 7
		t.Y[i] = float64(i)
	}
	return t
}

func TestStandardizeAndHoldout(t *testing.T) {
	tab := bigTable(200)
	d, err := New(tab, Options{Standardize: true, Holdout: 0.1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if d.N() != 180 || len(d.HoldoutY) != 20 || d.D() != 2 {
		t.Fatalf("%d and %d rows", d.N(), len(d.HoldoutY))
	}
	for k := range 2 {
		var m, v float64
		for i := range d.N() {
			m += d.X.Row(i)[k] / 180
			v += d.X.Row(i)[k] * d.X.Row(i)[k] / 180
		}
		if math.Abs(m) > 1e-12 || math.Abs(v-1) > 1e-12 {
			t.Errorf("input %d: mean %v, variance %v", k, m, v)
		}
	}
	if m, v := stat.PopMeanVariance(d.Y, nil); math.Abs(m) > 1e-12 || math.Abs(v-1) > 1e-12 {
		t.Errorf("target: mean %v, variance %v", m, v)
	}
	// Held-out rows are the table's, in the training rows' units.
	for i, r := range d.HoldoutRows {
		if math.Abs(d.YScale.Undo(d.HoldoutY[i])-tab.Y[r]) > 1e-9 || math.Abs(d.XScale[1].Undo(d.HoldoutX.Row(i)[1])-tab.X[1][r]) > 1e-9 {
			t.Errorf("held-out row %d does not come back", r)
		}
	}
	again, _ := New(tab, Options{Standardize: true, Holdout: 0.1, Seed: 3})
	other, _ := New(tab, Options{Standardize: true, Holdout: 0.1, Seed: 4})
	if fmt.Sprint(again.HoldoutRows) != fmt.Sprint(d.HoldoutRows) || fmt.Sprint(other.HoldoutRows) == fmt.Sprint(d.HoldoutRows) {
		t.Error("the split does not depend on the seed alone")
	}
	raw, _ := New(tab, Options{})
	if raw.X.Row(5)[0] != tab.X[0][5] || raw.HoldoutX != nil {
		t.Error("without standardisation the data changed")
	}
	if _, err := New(tab, Options{Holdout: 0.995}); err == nil {
		t.Error("a hold-out of all rows was accepted")
	}
}

// The generated targets have the covariance of the model: over many seeds the
// products of the first two targets average to K. Each average is within 5
// standard errors (false alarms 6 in 10⁷ for other seeds).
func TestSyntheticCovariance(t *testing.T) {
	if testing.Short() {
		t.Skip("draws thousands of data sets")
	}
	for _, f := range kernel.Families() {
		for _, exact := range []bool{true, false} {
			s := Synthetic{N: 2, D: 2, Family: f, Truth: Truth{Sigma: 2, Tau: []float64{0.3, 0.1}, Lambda: 0.5}}
			c := kernel.Single(f, 2, true)
			k := c.At(s.Truth.Of(c.Params()))
			const reps = 1500
			var d00, d01 []float64
			for seed := range uint64(reps) {
				s.Seed = seed
				tab, err := s.Generate(parallel.NewBudget(1))
				if err != nil {
					t.Fatal(err)
				}
				if !exact { // the same inputs and noise, targets by features
					clear(tab.Y)
					if err := s.features(tab, k, random.Key{Seed: seed}.Stream(random.Synthetic, 0), parallel.NewBudget(1)); err != nil {
						t.Fatal(err)
					}
				}
				var u float64
				for q, tau := range s.Truth.Tau {
					u += tau * math.Pow(tab.X[q][0]-tab.X[q][1], 2)
				}
				noise := s.Truth.Lambda
				if !exact {
					noise = 0
				}
				d00 = append(d00, tab.Y[0]*tab.Y[0]-s.Truth.Sigma-noise)
				d01 = append(d01, tab.Y[0]*tab.Y[1]-s.Truth.Sigma*f.Value(u))
			}
			for name, d := range map[string][]float64{"variance": d00, "covariance": d01} {
				m, sd := stat.MeanStdDev(d, nil)
				if se := sd / math.Sqrt(reps); math.Abs(m) > 5*se {
					t.Errorf("%v exact=%v: %s off by %v, standard error %v", f, exact, name, m, se)
				}
			}
		}
	}
}

func TestSyntheticIsRepeatableAndChecked(t *testing.T) {
	s := Synthetic{N: 3000, D: 2, Truth: Truth{Sigma: 1, Tau: []float64{0.5}, Lambda: 0.1}, Seed: 1}
	a, err := s.Generate(parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Generate(parallel.NewBudget(3))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.Y) != fmt.Sprint(b.Y) {
		t.Error("the targets depend on the number of cores")
	}
	for _, bad := range []Synthetic{{N: 1, D: 1}, {N: 5, D: 0}, {N: 5, D: 1, Truth: Truth{Tau: []float64{1}}},
		{N: 5, D: 3, Truth: Truth{Tau: []float64{1, 2}}}} {
		if _, err := bad.Generate(parallel.NewBudget(1)); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte("a;y\n1;2\n\"3\";4\n"))
	f.Add([]byte("\xef\xbb\xbfa\ty\n1\t2\n"))
	f.Add([]byte("PAR1xxxxPAR1"))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		tab, err := Read(bytes.NewReader(data), "f", Select{Target: "y"}, Limits{Rows: 100, Columns: 100, Bytes: 1 << 16})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of more than one line: %q", err)
			}
			return
		}
		for i, x := range append(tab.X, tab.Y) {
			if len(x) != len(tab.Y) || len(x) < 2 || constant(x) {
				t.Errorf("column %d: %v", i, x)
			}
			for _, v := range x {
				if badValue(v) != "" {
					t.Errorf("column %d holds %v", i, v)
				}
			}
		}
	})
}

// A column by which rows are cut is read as text, whether it is an input or not.
func TestLabels(t *testing.T) {
	const table = "a,station,y\n1,\"Bern, CH\",3\n4, Rome ,6\n7,12,10\n"
	sel := Select{Target: "y", Exclude: []string{"station"}, Label: "station"}
	want := []string{"Bern, CH", "Rome", "12"}
	got, err := read(table, sel)
	if err != nil || !slices.Equal(got.Labels, want) || !slices.Equal(got.Inputs, []string{"a"}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = read(plain, Select{Target: "y", Label: "b"})
	if err != nil || !slices.Equal(got.Labels, []string{"2", "5", "9"}) || !slices.Equal(got.Inputs, []string{"a", "b"}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Read(bytes.NewReader(parquetBytes(t, []parquetRow{{1, 2, 3, "x"}, {4, 5, 6, "y"}, {7, 9, 10, "x"}})), "t.parquet",
		Select{Target: "y", Inputs: []string{"b"}, Label: "t"}, DefaultLimits)
	if err != nil || !slices.Equal(got.Labels, []string{"x", "y", "x"}) || !slices.Equal(got.Inputs, []string{"b"}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Read(bytes.NewReader(parquetBytes(t, []parquetRow{{1, 2, 3, "x"}, {4, 5, 6, "y"}, {7, 9, 10, "x"}})), "t.parquet",
		Select{Target: "y", Inputs: []string{"b"}, Label: "a"}, DefaultLimits)
	if err != nil || !slices.Equal(got.Labels, []string{"1", "4", "7"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, c := range map[string]struct{ table, label string }{
		`column "station" (field 2): the value is missing ("")`: {strings.Replace(table, " Rome ", "", 1), "station"},
		"did you mean station?":                                 {table, "statoin"},
		"the columns are a, station":                            {table, "zone"},
		"2 values are missing, in 2 r":                          {strings.NewReplacer(" Rome ", "NA", "12", "?").Replace(table), "station"},
		"a text of more than 1000":                              {strings.Replace(table, "Rome", strings.Repeat("x", 1001), 1), "station"},
	} {
		if _, err := read(c.table, Select{Target: "y", Exclude: []string{"station"}, Label: c.label}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err = Read(bytes.NewReader(parquetBytes(t, []parquetRow{{1, 2, 3, "x"}, {4, 5, 6, ""}})), "t.parquet", Select{Target: "y", Inputs: []string{"b"}, Label: "t"}, DefaultLimits)
	if err == nil || !strings.Contains(err.Error(), `t.parquet, column "t": row 2: the value is missing`) {
		t.Error(err)
	}
}

// Rows of a table that are written are read as they were, to the last bit.
func TestWriteCSV(t *testing.T) {
	names := []string{"a;b", `say "hi", all`, "\té"}
	all := &Table{Target: "y;;;;", Inputs: names, X: [][]float64{{0.1, math.Pi, -1e-300}, {1e150, math.Nextafter(1, 2), 3}, {5, 6, 7}}, Y: []float64{1. / 3, -0.25, 1e21}}
	some := all.Select([]int{0, 2})
	var b bytes.Buffer
	if err := some.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	names[2] = "é" // names are trimmed
	got, err := read(b.String(), Select{Target: "y;;;;"})
	want := &Table{Target: "y;;;;", Inputs: names, X: [][]float64{{0.1, -1e-300}, {1e150, 3}, {5, 7}}, Y: []float64{1. / 3, 1e21}}
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(*want) || got.X[0][0] != 0.1 || got.Y[0] != 1./3 {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
