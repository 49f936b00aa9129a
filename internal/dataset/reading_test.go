package dataset

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A table with all that a column may hold.
const mixed = `weather,station,day,temp,hum,y
mist,10,2011-01-02,1.5,,1
clear,9,2011-01-01,NA,3,2
rain,10,2011-01-04 12:00,2.5,4,3
clear,2,2011-01-03,3.5,8,?
clear,9,2011-01-05T01:00:00+01:00,0.5,6,5
mist,2,2011-01-06,4.5,5,6
`

func days(t *testing.T) map[string]Date {
	t.Helper()
	d, err := ParseDate("days")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Date{"day": d}
}

// Codes are places among the levels in the order of numbers, or else of the alphabet, whatever the order of rows; dates are
// days since 1970.
func TestCategoriesAndDates(t *testing.T) {
	sel := Select{Target: "y", Categories: []string{"weather", "station"}, Dates: days(t), Missing: MissingDrop}
	got, err := read(mixed, sel)
	if err != nil {
		t.Fatal(err)
	}
	// 2011-01-01 is 41 years with 10 leap days after 1970 began; the rows 1, 2 and 4 lack something.
	const first = 41*365 + 10
	want := &Table{Target: "y", Inputs: []string{"weather", "station", "day", "temp", "hum"},
		X: [][]float64{{2, 0, 1}, {2, 1, 0}, {first + 3.5, first + 4, first + 5}, {2.5, 0.5, 4.5}, {4, 6, 5}}, Y: []float64{3, 5, 6},
		Levels: [][]string{{"clear", "mist", "rain"}, {"2", "9", "10"}, nil, nil, nil}, Dates: []Date{{}, {}, {Unit: "days"}, {}, {}},
		Notes: []string{"1 of 6 rows have no y and are not learnt from: ulisse predict --data predicts the rows of a table, these too",
			"2 of 6 rows lack a value and are left out: of the columns temp (1), hum (1)"},
		numbers: []int{2, 4, 5}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Table{})); diff != "" {
		t.Error(diff)
	}
	lines := strings.SplitAfter(mixed, "\n")
	slices.Reverse(lines[1:7])
	turned, err := read(strings.Join(lines, ""), sel)
	if err != nil || !slices.EqualFunc(turned.Levels, got.Levels, slices.Equal) || turned.X[0][2] != got.X[0][0] || turned.X[1][0] != got.X[1][2] {
		t.Errorf("with the rows turned round: %+v, %v", turned, err)
	}
	sel.Levels = map[string][]string{"weather": {"snow", "rain", "mist", "clear"}}
	given, err := read(mixed, sel)
	if err != nil || !slices.Equal(given.X[0], []float64{1, 3, 2}) || !slices.Equal(given.Levels[0], sel.Levels["weather"]) {
		t.Errorf("with levels that are given: %+v, %v", given, err)
	}
}

// Parquet gives what CSV gives.
func TestCategoriesAndDatesOfParquet(t *testing.T) {
	type row struct {
		Weather string    `parquet:"weather"`
		Station int32     `parquet:"station"`
		Flag    bool      `parquet:"flag"`
		Day     int32     `parquet:"day,date"`
		Ms      time.Time `parquet:"ms,timestamp(millisecond)"`
		Ns      time.Time `parquet:"ns,timestamp(nanosecond)"`
		Text    string    `parquet:"text"`
		Y       *float64  `parquet:"y,optional"`
	}
	y := []float64{1, 2, 3}
	at := time.Date(2011, 1, 1, 6, 0, 0, 500_000_000, time.UTC)
	before := time.Date(1969, 12, 31, 18, 0, 0, 0, time.UTC)
	got, err := Read(bytes.NewReader(parquetBytes(t, []row{
		{"mist", 10, true, 14975, at, at, "01.01.2011", &y[0]},
		{"clear", 9, false, -1, before, before, "31.12.1969", &y[1]},
		{"mist", 9, true, 0, at, at, "02.01.1970", nil},
		{"mist", 9, true, 1, before.Add(time.Hour), at.Add(time.Hour), "02.01.1970", &y[2]}})), "t.parquet",
		Select{Target: "y", Categories: []string{"weather", "station", "flag"}, Missing: MissingDrop,
			Dates: map[string]Date{"day": {Unit: "days"}, "ms": {Unit: "hours"}, "ns": {Unit: "seconds"}, "text": {Unit: "weeks", Layout: "02.01.2006"}}}, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	seconds := float64(14975*86400+6*3600) + 0.5
	want := [][]float64{{1, 0, 1}, {1, 0, 0}, {1, 0, 1}, {14975, -1, 1}, {seconds / 3600, -6, -5}, {seconds, -6 * 3600, seconds + 3600}, {14975. / 7, -1. / 7, 1. / 7}}
	if diff := cmp.Diff(want, got.X, cmpopts.EquateApprox(1e-15, 0)); diff != "" || fmt.Sprint(got.Levels[:3], got.Y) != "[[clear mist] [9 10] [false true]] [1 2 3]" {
		t.Errorf("%v %v\n%s", got.Levels, got.Y, diff)
	}
	for _, c := range []struct {
		date Date
		want string
	}{
		{Date{Unit: "hours", Layout: "15:04"}, `column "day": it holds dates or times already, which have no format: give the unit alone under dates`},
	} {
		_, err := Read(bytes.NewReader(parquetBytes(t, []row{{Y: &y[0]}, {Y: &y[1]}})), "t", Select{Target: "y", Inputs: []string{"day"}, Dates: map[string]Date{"day": c.date}}, DefaultLimits)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestDates(t *testing.T) {
	const day = 86400.0
	for _, c := range []struct {
		spec, text string
		seconds    float64 // since 1970, or since the least time of the format
		unit       float64
		back       string
	}{
		{"seconds", "1970-01-02", day, 1, "1970-01-02"},
		{"minutes", "1970-01-01 00:30", 1800, 60, "1970-01-01 00:30:00"},
		{"hours", "1969-12-31T23:00:00Z", -3600, 3600, "1969-12-31 23:00:00"},
		{"hours", "1970-01-01T03:00:00+02:00", 3600, 3600, "1970-01-01 01:00:00"},
		{"days", "2000-03-01 12:00:00.5", (30*365+7+60)*day + day/2 + 0.5, day, "2000-03-01 12:00:01"},
		{"weeks", "1970-01-08", 7 * day, 7 * day, "1970-01-08"},
		{"years", "2370-01-01", 146097 * day, 365.2425 * day, "2370-01-01"},
		{"days %d.%m.%Y", "03.01.1970", 2 * day, day, "03.01.1970"},
		{"days 2.1.2006", "3.1.1970", 2 * day, day, "3.1.1970"},
		{"hours %H:%M", "13:45", 13.75 * 3600, 3600, "13:45"},
		{"days %j", "032", 31 * day, day, "032"},
		{"days %b %d, %Y", "Feb 01, 1970", 31 * day, day, "Feb 01, 1970"},
		{"hours %m/%d/%y %I:%M %p", "01/02/70 01:30 PM", day + 13.5*3600, 3600, "01/02/70 01:30 PM"},
	} {
		d, err := ParseDate(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		got, err := d.parse(c.text)
		if want := c.seconds / c.unit; err != nil || math.Abs(got-want) > 1e-14*math.Abs(want) {
			t.Errorf("%s: %s is %v, want %v (%v)", c.spec, c.text, got, want, err)
		}
		if back := d.text(got); back != c.back {
			t.Errorf("%s: %s comes back as %s", c.spec, c.text, back)
		}
	}
	for spec, want := range map[string]string{
		"":           `"" is no unit of time: write one of seconds, minutes, hours, days, weeks, years, and after a blank the format if it is a particular one, as in days %d.%m.%Y`,
		"day":        `"day" is no unit of time: did you mean days?`,
		"days %Q":    `"%Q" is no part of a format: %Y, %m, %d, %H, %M, %S, %y, %j, %b, %B, %I, %p, %z are (fractions of seconds are read after %S)`,
		"days %":     `"%" is no part of a format: %Y, %m, %d, %H, %M, %S, %y, %j, %b, %B, %I, %p, %z are (fractions of seconds are read after %S)`,
		"days 20%y":  `a format with % has no '2' between its parts`,
		"days never": `"never" is no format of dates or times: write one as in %Y-%m-%d %H:%M`,
	} {
		if _, err := ParseDate(spec); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	if got := (Date{Unit: "years"}).text(1e9); got != "1e+09 years" {
		t.Errorf("a time that no calendar has: %s", got)
	}
}

// What is missing is filled in by the median of the training rows, and an indicator says where; rows to predict get
// the same.
func TestImpute(t *testing.T) {
	const table = "a,b,c,k,y\n1,5,1,u,1\nNA,6,2,v,2\n3,7,3,NA,3\n10,8,4,u,4\n?,9,5,v,5\n4,10,,v,6\n2,11,6,u,\n"
	tab, err := read(table, Select{Target: "y", Categories: []string{"k"}, Missing: MissingImpute})
	if err != nil {
		t.Fatal(err)
	}
	// Of seven rows one has no target. Without a hold-out the medians are (3+4)/2, (7+8)/2 and 3.
	d, err := New(tab, Options{Impute: true})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(d.InputNames, d.Levels, d.Imputed) != "[a b c k a_missing c_missing] [[] [] [] [NA u v] [] []] [{0 3.5 4} {1 7.5 0} {2 3 5}]" {
		t.Errorf("%v %v %v", d.InputNames, d.Levels, d.Imputed)
	}
	want := [][]float64{{1, 5, 1, 1, 0, 0}, {3.5, 6, 2, 2, 1, 0}, {3, 7, 3, 0, 0, 0}, {10, 8, 4, 1, 0, 0}, {3.5, 9, 5, 2, 1, 0}, {4, 10, 3, 2, 0, 1}}
	for i, row := range want {
		if !slices.Equal(d.X.Row(i), row) {
			t.Errorf("row %d: %v, want %v", i, d.X.Row(i), row)
		}
	}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	p, err := d.ReadPoints("new.csv", strings.NewReader("k,c,b,a\nv,NA,,\nNA,7,8,9\n"), DefaultLimits)
	if diff := cmp.Diff(&Points{X: [][]float64{{3.5, 7.5, 3, 2, 1, 1}, {9, 8, 7, 0, 0, 0}}}, p); err != nil || diff != "" {
		t.Error(err, diff)
	}
	again, err := d.Points(tab)
	if err != nil || fmt.Sprint(again.X) != fmt.Sprint(want) {
		t.Errorf("its own rows: %v, %v", again, err)
	}
	// Rows that are held out have no part in the medians: of row 1 alone lacking a, a has no indicator.
	d, err = New(tab, Options{Impute: true, Holdout: 0.4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var a []float64
	for _, row := range d.TrainingRows() {
		if !math.IsNaN(tab.X[0][row]) {
			a = append(a, tab.X[0][row])
		}
	}
	slices.Sort(a)
	if len(d.HoldoutRows) != 2 || d.Imputed[0].Median != median(a) {
		t.Errorf("%v of %v, without the rows %v", d.Imputed, a, d.HoldoutRows)
	}
	if _, err := New(&Table{Target: "y", Inputs: []string{"a", "a_missing"}, X: [][]float64{{1, math.NaN(), 2}, {1, 2, 3}}, Y: []float64{1, 2, 4}}, Options{Impute: true}); err == nil || !strings.Contains(err.Error(), "rename it") {
		t.Errorf("two columns of one name: %v", err)
	}
}

// Inputs that do not vary among the training rows are left out, and said to be.
func TestDropConstant(t *testing.T) {
	const table = "a,b,k,d,y\n1,5,u,,1\n2,5,u,1,2\n3,5,u,1,3\n"
	tab, err := read(table, Select{Target: "y", Categories: []string{"k"}, Missing: MissingImpute, DropConstant: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the table stays as it is
		d, err := New(tab, Options{Standardize: true, Impute: true, DropConstant: true})
		if err != nil || !slices.Equal(d.InputNames, []string{"a"}) {
			t.Fatalf("%v, %v", d, err)
		}
		if diff := cmp.Diff([]string{"b is 5 in all rows that are learnt from: it is left out", "k is u in all rows that are learnt from: it is left out",
			"d is 1 in all rows that are learnt from: it is left out"}, d.Notes); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := New(tab.without(0), Options{DropConstant: true}); err == nil || !strings.Contains(err.Error(), "all inputs are constant") {
		t.Errorf("no input is left: %v", err)
	}
	if _, err := New(tab, Options{Standardize: true, Impute: true}); err == nil || !strings.Contains(err.Error(), `column "b" is constant`) {
		t.Errorf("unless it is asked for: %v", err)
	}
}

// Every mistake about columns and the exact message it gets.
func TestBadColumns(t *testing.T) {
	var many strings.Builder
	many.WriteString("k,y\n")
	for i := range MaxLevels + 1 {
		fmt.Fprintf(&many, "l%d,%d\n", i, i)
	}
	category := func(text string, levels ...string) (string, Select) {
		sel := Select{Target: "y", Categories: []string{"k"}}
		if levels != nil {
			sel.Levels = map[string][]string{"k": levels}
		}
		return text, sel
	}
	date := func(spec, text string) (string, Select) {
		d, err := ParseDate(spec)
		if err != nil {
			t.Fatal(err)
		}
		return text, Select{Target: "y", Dates: map[string]Date{"t": d}}
	}
	check := func(want, text string, sel Select) {
		t.Helper()
		if _, err := read(text, sel); err == nil || err.Error() != "t.csv"+want {
			t.Errorf("got  %v\nwant t.csv%s", err, want)
		}
	}
	text, sel := category(many.String())
	check(`: line 502, column "k" (field 1): more than 500 different values: a category has few, each of many rows`, text, sel)
	text, sel = category("k,y\n1,1\n1.0,2\n")
	check(`, column "k": "1" and "1.0" are one number, written in two ways: write them alike to be levels of a category`, text, sel)
	text, sel = category("k,y\nred,1\ngren,2\n", "red", "green")
	check(`: line 3, column "k" (field 1): "gren" is none of the levels: did you mean green?`, text, sel)
	text, sel = category("k,y\nred,1\nNA,2\n")
	check(`: line 3, column "k" (field 1): the value is missing ("NA"): drop the row or fill it in, or say missing: drop or missing: impute-median under data:`, text, sel)
	text, sel = category("k,y\nred,1\n" + strings.Repeat("x", 201) + ",2\n")
	check(`: line 3, column "k" (field 1): a text of more than 200 bytes, which cannot be the level of a category`, text, sel)
	text, sel = category("k,y\nred,1\n\xff,2\n")
	check(`: line 3, column "k" (field 1): "\xff" is not text in UTF-8`, text, sel)
	text, sel = category("k,y\nred,1\nred,2\n")
	check(`, column "k": all 2 values are red: leave it out with exclude: [k], or say constant: drop under data:`, text, sel)
	text, sel = date("days", "t,y\n2011-01-01,1\n1/2/2011,2\n")
	check(`: line 3, column "t" (field 1): "1/2/2011" is not a date or time as in 1987-11-23, 1987-11-23 14:35:42 or 1987-11-23T14:35:42Z: say how it is written behind the unit, as in days %d.%m.%Y`, text, sel)
	text, sel = date("days %d.%m.%Y", "t,y\n2011-01-01,1\n")
	check(`: line 2, column "t" (field 1): "2011-01-01" is not a date or time as in 23.11.1987`, text, sel)
	check(`: line 2, column "t": "2011-01-01" is not a number: write dates: {t: days} under data: to use it as a date, or exclude: [t] to leave it out`, "t,y\n2011-01-01,1\n", Select{Target: "y"})
	check(`: line 2: the columns t, u do not hold numbers ("13:45"): write dates: {t: "hours 15:04", u: "days 2/1/2006"} under data: to use them, or exclude: [t, u] to leave them out`, "t,u,y\n13:45,31/12/2011,1\n", Select{Target: "y"})
	check(`: line 2: the columns k, t do not hold numbers ("red"): write categories: [k], dates: {t: days} under data: to use them, or exclude: [k, t] to leave them out`, "k,t,y\nred,2011-01-01,1\n", Select{Target: "y"})
	check(`: line 1: categories: names "saeson", which is no input: did you mean season?`, "season,y\n1,2\n", Select{Target: "y", Categories: []string{"saeson"}})
	check(`: line 1: dates: names "when", which is no input`, "k,y\n1,2\n", Select{Target: "y", Dates: map[string]Date{"when": {Unit: "days"}}})
	check(`: 1 rows of data: at least two are needed (2 of 3 rows lack a value and are left out: of the columns k (2))`, "k,y\n1,2\nNA,3\n,4\n", Select{Target: "y", Missing: MissingDrop})
}

// Rows to predict are read as the training rows were, and what they cannot be is said.
func TestPointsOfCategories(t *testing.T) {
	tab, err := read("k,n,t,y\nred,1,2011-01-01,1\ngreen,2,2011-01-02,2\nred,1,2011-01-04,4\n", Select{Target: "y", Categories: []string{"k", "n"}, Dates: map[string]Date{"t": {Unit: "days"}}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(tab, Options{Standardize: true})
	if err != nil {
		t.Fatal(err)
	}
	if d.XScale[0] != (Scale{0, 1}) || d.XScale[1] != (Scale{0, 1}) || d.X.Row(0)[0] != 1 || d.XScale[2].SD == 1 {
		t.Errorf("codes are not standardised, dates are: %v", d.XScale)
	}
	info := InfoOf(d.Wire("")) // as others have it
	got, err := info.ReadPoints("new.csv", strings.NewReader("n,k,t,y\n2.0,green,2011-01-11,\n1,red,2011-01-01T12:00:00Z,7\n"), DefaultLimits)
	if err != nil || fmt.Sprint(got.X, got.Y) != "[[0 1 14985] [1 0 14975.5]] [NaN 7]" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := info.ReadPoints("new.csv", strings.NewReader("n,k,t,y\n2,green,2011-01-11,\n"), DefaultLimits); err != nil || got.Y != nil {
		t.Errorf("no target is known: %v, %v", got, err)
	}
	for table, want := range map[string]string{
		"k,n,t\nblue,1,2011-01-01\n": `new.csv: line 2, column "k" (field 1): "blue" is none of the levels, which are green, red: levels that no row has can be named under data: levels: before the run`,
		"k,n,t\nred,,2011-01-01\n":   `new.csv: line 2, column "n" (field 2): the value is missing (""): drop the row or fill it in`,
		"k,n,t\nred,1,13\n":          `new.csv: line 2, column "t" (field 3): "13" is not a date or time as in 1987-11-23, 1987-11-23 14:35:42 or 1987-11-23T14:35:42Z: say how it is written behind the unit, as in days %d.%m.%Y`,
	} {
		if _, err := info.ReadPoints("new.csv", strings.NewReader(table), DefaultLimits); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if info.Text(0, 1) != "red" || info.Text(2, 14975.5) != "2011-01-01 12:00:00" {
		t.Errorf("%s, %s", info.Text(0, 1), info.Text(2, 14975.5))
	}
	for _, bad := range [][]float64{{2, 0, 1}, {-1, 0, 1}, {0.5, 0, 1}, {0, math.NaN(), 1}} {
		if info.CheckRow(bad) == nil {
			t.Errorf("%v is a row", bad)
		}
	}
	if err := info.CheckRow([]float64{1, 1, -3.7}); err != nil {
		t.Error(err)
	}
	// Other names of levels are other data, with the same codes.
	tab.Levels[0] = []string{"green", "rot"}
	if other, err := New(tab, Options{Standardize: true}); err != nil || other.SHA256 == d.SHA256 {
		t.Errorf("%v: the names of levels are not in the hash", err)
	}
}

// Rows of a table with levels and gaps that are written are read as they were.
func TestWriteCSVOfCategories(t *testing.T) {
	levels := [][]string{{`a "b", c`, "d"}, nil}
	all := &Table{Target: "y", Inputs: []string{"k", "x"}, X: [][]float64{{1, 0, 1}, {math.NaN(), 0.1, 2}}, Y: []float64{1, 2, 3}, Levels: levels}
	var b bytes.Buffer
	if err := all.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	got, err := read(b.String(), Select{Target: "y", Categories: []string{"k"}, Levels: map[string][]string{"k": levels[0]}, Missing: MissingImpute})
	if err != nil || fmt.Sprint(got.X, got.Y, got.Levels) != fmt.Sprint(all.X, all.Y, levels) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever a table holds, what is read can be computed with, and its description is one that others accept.
func FuzzReadColumns(f *testing.F) {
	f.Add([]byte(strings.NewReplacer("weather", "k", "day", "t").Replace(mixed)), true)
	f.Add([]byte("k,t,a,y\nu,2011-01-01,1,2\nv,1999-12-31 23:59:59.9,,3\n1e3,2024-02-29T00:00:00-05:00,5,4\n"), false)
	f.Add([]byte("k,t,y\n1,2011-01-01,2\n1.0,2011-01-02,3\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, impute bool) {
		sel := Select{Target: "y", Categories: []string{"k"}, Dates: map[string]Date{"t": {Unit: "hours"}}, Missing: MissingDrop, DropConstant: true}
		if impute {
			sel.Missing = MissingImpute
		}
		tab, err := Read(bytes.NewReader(data), "f", sel, Limits{Rows: 100, Columns: 100, Bytes: 1 << 16})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of more than one line: %q", err)
			}
			return
		}
		d, err := New(tab, Options{Standardize: true, Impute: impute, DropConstant: true})
		if err != nil {
			return
		}
		if err := d.Check(); err != nil {
			t.Errorf("%v\n%+v", err, d.Info)
		}
		for i := range d.N() {
			for k, x := range d.X.Row(i) {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Errorf("row %d, input %d: %v", i, k, x)
				}
			}
			if err := d.CheckRow(d.X.Row(i)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A format that is accepted reads what it writes.
func FuzzParseDate(f *testing.F) {
	for _, s := range []string{"days", "hours %Y-%m-%d %H:%M:%S", "weeks 2.1.2006", "seconds %y%j", "days Mon Jan _2 2006", "minutes %p%I"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		d, err := ParseDate(spec)
		if err != nil {
			return
		}
		text := sample.Format(time.DateTime)
		if d.Layout != "" {
			text = sample.Format(d.Layout)
		}
		x, err := d.parse(text)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if again, err := d.parse(d.text(x)); err != nil || math.Abs(again-x)*seconds[d.Unit] > 1 {
			t.Errorf("%s: %s is %v, and %s %v (%v)", spec, text, x, d.text(x), again, err)
		}
	})
}

// Classes that have an order become 0, 1, 2, …: numbers by size, words as they are told; rows to predict are read by the same.
func TestOrderedClasses(t *testing.T) {
	read := func(text string, classes ...string) (*Table, error) {
		return Read(strings.NewReader(text), "t.csv", Select{Target: "y", Ordered: true, Classes: classes}, DefaultLimits)
	}
	for _, c := range []struct {
		text    string
		given   []string
		y       []float64
		classes []string
	}{
		{"x,y\n1,10\n2,9\n3,11\n4,9\n", nil, []float64{1, 0, 2, 0}, []string{"9", "10", "11"}},
		{"x,y\n1,2\n2,0\n3,1\n", nil, []float64{2, 0, 1}, []string{"0", "1", "2"}},
		{"x,y\n1,good\n2,bad\n3,fair\n", []string{"bad", "fair", "good", "fine"}, []float64{2, 0, 1}, []string{"bad", "fair", "good", "fine"}},
		{"x,y\n1,3\n2,1\n3,1\n", []string{"1", "2", "3"}, []float64{2, 0, 0}, []string{"1", "2", "3"}},
	} {
		got, err := read(c.text, c.given...)
		if err != nil || !slices.Equal(got.Y, c.y) || !slices.Equal(got.Classes, c.classes) {
			t.Errorf("%q: %+v, %v", c.text, got, err)
			continue
		}
		d, err := New(got, Options{Standardize: true, RawTarget: true})
		if err != nil || !strings.Contains(strings.Join(d.Notes, "\n"), "classes in order: "+strings.Join(c.classes, ", ")) || d.Check() != nil {
			t.Fatal(err, d.Notes, d.Check())
		}
		p, err := d.ReadPoints("new.csv", strings.NewReader("y,x\n"+c.classes[2]+",5\nNA,6\n"), DefaultLimits)
		if err != nil || p.Y[0] != 2 || !math.IsNaN(p.Y[1]) {
			t.Errorf("%q: %+v, %v", c.text, p, err)
		}
	}
	for text, want := range map[string]string{
		"x,y\n1,good\n2,bad\n3,fair\n": `t.csv, column "y": the classes of the target are words (bad, fair, good), whose order is not told: name them from the first to the last under data:, as in levels: {y: [low, mid, high]}`,
		"x,y\n1,1\n2,bad\n3,2\n":       "whose order is not told",
		"x,y\n1,1\n2,1.0\n3,2\n":       `"1" and "1.0" are one number, written in two ways`,
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := read("x,y\n1,good\n2,bda\n", "bad", "fair", "good"); err == nil || !strings.Contains(err.Error(), "did you mean bad?") {
		t.Error(err)
	}
}

// Classes without an order have the numbers of their places among those named, or in the alphabet, also if they are two numbers; rows to
// predict are read by the same.
func TestUnordered(t *testing.T) {
	read := func(text string, classes ...string) (*Table, error) {
		return Read(strings.NewReader(text), "t.csv", Select{Target: "y", Unordered: true, Classes: classes}, DefaultLimits)
	}
	for _, c := range []struct {
		text    string
		given   []string
		y       []float64
		classes []string
	}{
		{"x,y\n1,oak\n2,elm\n3,fir\n", nil, []float64{2, 0, 1}, []string{"elm", "fir", "oak"}},
		{"x,y\n1,oak\n2,elm\n3,elm\n", []string{"oak", "yew", "elm"}, []float64{0, 2, 2}, []string{"oak", "yew", "elm"}},
		{"x,y\n1,1\n2,0\n3,1\n", nil, []float64{1, 0, 1}, []string{"0", "1"}},
	} {
		got, err := read(c.text, c.given...)
		if err != nil || !slices.Equal(got.Y, c.y) || !slices.Equal(got.Classes, c.classes) {
			t.Fatalf("%q: %+v, %v", c.text, got, err)
		}
		d, err := New(got, Options{Standardize: true, RawTarget: true, Unordered: true})
		if err != nil || !slices.ContainsFunc(d.Notes, func(s string) bool { return strings.Contains(s, "classes without an order: ") }) {
			t.Fatal(err, d.Notes)
		}
		p, err := d.ReadPoints("new.csv", strings.NewReader("y,x\n"+c.classes[1]+",5\nNA,6\n"), DefaultLimits)
		if err != nil || p.Y[0] != 1 || !math.IsNaN(p.Y[1]) {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if _, err := read("x,y\n1,oak\n2,elmm\n", "oak", "elm"); err == nil || !strings.Contains(err.Error(), "did you mean elm?") {
		t.Error(err)
	}
}

// The two classes of a target become 0 and 1, in order, and are told; rows to predict are read by the same.
func TestTwoClasses(t *testing.T) {
	sel := Select{Target: "y", TwoClasses: true}
	read := func(text string) (*Table, error) { return Read(strings.NewReader(text), "t.csv", sel, DefaultLimits) }
	for text, want := range map[string]struct {
		y       []float64
		classes []string
	}{
		"x,y\n1,yes\n2,no\n3,yes\n": {[]float64{1, 0, 1}, []string{"no", "yes"}},
		"x,y\n1,1\n2,0\n3,0\n":      {[]float64{1, 0, 0}, nil},
		"x,y\n1,10\n2,9\n3,10\n":    {[]float64{1, 0, 1}, []string{"9", "10"}},
		"x,y\n1,1\n2,-1\n3,1\n":     {[]float64{1, 0, 1}, []string{"-1", "1"}},
	} {
		got, err := read(text)
		if err != nil || !slices.Equal(got.Y, want.y) || !slices.Equal(got.Classes, want.classes) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"x,y\n1,a\n2,b\n3,c\n": `t.csv, column "y": the target has 3 values (a, b, c), and the likelihood is of two classes: if these have an order use model.likelihood: ordinal, if not categorical`,
		"x,y\n1,a\n2,a\n":      "the target is 0 in all 2 rows",
		"x,y\n1,a\n2,\n":       "the value is missing",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	table, err := read("x,y\n1,yes\n2,no\n3,yes\n")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(table, Options{Standardize: true, RawTarget: true})
	if err != nil || !slices.Contains(d.Notes, "y is a class: no is 0, yes is 1") {
		t.Fatal(err, d.Notes)
	}
	p, err := d.ReadPoints("new.csv", strings.NewReader("y,x\nyes,5\nNA,6\nno,7\n"), DefaultLimits)
	if err != nil || p.Y[0] != 1 || !math.IsNaN(p.Y[1]) || p.Y[2] != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := d.ReadPoints("new.csv", strings.NewReader("y,x\nyess,5\n"), DefaultLimits); err == nil || !strings.Contains(err.Error(), "did you mean yes?") {
		t.Error(err)
	}
}
