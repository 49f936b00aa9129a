package dataset

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Of every column a survey says what it holds, and why it can be no number among the inputs.
func TestSurvey(t *testing.T) {
	for _, c := range []struct {
		column string // its values, one a row
		kind   Type
		unfit  string
		date   string
	}{
		{"1 2.5 3", Numbers, "", ""},
		{"1 1 2", Integers, "", ""},
		{"4 4 4.0", Integers, "constant: 4 in all rows", ""},
		{"1 2 red", Texts, `text ("red"); to use it name it under data: categories:`, ""},
		{"NA NA blue", Texts, `text ("blue"); to use it name it under data: categories:`, ""},
		{"2011-01-01 NA 2011-01-03T12:00:00Z", Times, `dates or times; to use them say dates: under data: ("2011-01-01")`, "days"},
		{"13:45 13:46 13:47", Times, `dates or times; to use them say dates: under data: ("13:45")`, "hours 15:04"},
		{"31.12.2011 1.1.2012 2.1.2012", Times, `dates or times; to use them say dates: under data: ("31.12.2011")`, "days 2.1.2006"},
		{"1/2/2012 3/13/2012 1/1/2012", Times, `dates or times; to use them say dates: under data: ("1/2/2012")`, "days 1/2/2006"},
		{"1/2/2012 13/3/2012 1/1/2012", Times, `dates or times; to use them say dates: under data: ("1/2/2012")`, "days 2/1/2006"},
		{"2011-01-01 yesterday 2011-01-03", Texts, `text ("2011-01-01"); to use it name it under data: categories:`, ""},
		{"7 2011-01-02 2011-01-03", Texts, `text ("2011-01-02"); to use it name it under data: categories:`, ""},
		{"1 NA 3", Integers, "1 of 3 values are missing; to use it say missing: under data:", ""},
		{"? nan NA", Nothing, "no values", ""},
		{"1,5 2,5 3", Texts, `decimal commas ("1,5"); to use it write numbers with a point`, ""},
		{"1 Inf 3", Integers, "the value is infinite: drop the row or correct it", ""},
		{"1 1e999 3", Integers, "1e999 is beyond the range of a float64", ""},
	} {
		table := "a;y\n"
		for i, v := range strings.Fields(c.column) {
			table += v + ";" + string(rune('1'+i)) + "\n"
		}
		got, rows, err := Survey(strings.NewReader(table), "t.csv", "", DefaultLimits)
		if err != nil || rows != 3 || len(got) != 2 || got[0].Type != c.kind || got[0].Unfit != c.unfit || got[0].Date != c.date || got[1].Unfit != "" {
			t.Errorf("%s: %d rows, %+v, %v", c.column, rows, got, err)
		}
	}
}

// What a survey tells of numbers, dates and texts is what one counts by hand.
func TestSurveyCounts(t *testing.T) {
	table := "n,x,day,k,y\n"
	x := []string{"0", "1", "2.5", "2.5", "10", "9.99", "NA", "5"}
	for i, v := range x {
		table += fmt.Sprintf("%d,%s,2011-01-%02d,%s,%g\n", 100+i, v, 8-i, []string{"u", "v", "v"}[i%3], 3-2*float64(i))
	}
	got, rows, err := Survey(strings.NewReader(table), "t.csv", "y", DefaultLimits)
	if err != nil || rows != 8 {
		t.Fatal(rows, err)
	}
	// Of 0 1 2.5 2.5 5 9.99 10 the bins are one wide.
	mean := 30.99 / 7
	var ss float64
	for _, v := range []float64{0, 1, 2.5, 2.5, 5, 9.99, 10} {
		ss += (v - mean) * (v - mean) / 7
	}
	want := []Column{
		{Name: "n", Type: Integers, Distinct: 8, Min: 100, Median: 103.5, Max: 107, Mean: 103.5, SD: math.Sqrt(5.25), Histogram: []int{1, 1, 1, 0, 1, 1, 0, 1, 1, 1}, Increasing: true, Correlation: -1,
			Common: []Count{{"100", 1}, {"101", 1}, {"102", 1}, {"103", 1}, {"104", 1}}},
		{Name: "x", Type: Numbers, Missing: 1, Distinct: 6, Min: 0, Median: 2.5, Max: 10, Mean: mean, SD: math.Sqrt(ss), Histogram: []int{1, 1, 2, 0, 0, 1, 0, 0, 0, 2},
			Correlation: got[1].Correlation, Unfit: "1 of 8 values are missing; to use it say missing: under data:"},
		{Name: "day", Type: Times, Distinct: 8, Min: 14975, Median: 14978.5, Max: 14982, Mean: 14978.5, SD: math.Sqrt(5.25), Histogram: []int{1, 1, 1, 0, 1, 1, 0, 1, 1, 1}, Correlation: 1, Date: "days",
			Common: []Count{{"2011-01-01", 1}, {"2011-01-02", 1}, {"2011-01-03", 1}, {"2011-01-04", 1}, {"2011-01-05", 1}}, Unfit: `dates or times; to use them say dates: under data: ("2011-01-08")`},
		{Name: "k", Type: Texts, Distinct: 2, Common: []Count{{"v", 5}, {"u", 3}}, Correlation: math.NaN(), Unfit: `text ("u"); to use it name it under data: categories:`},
		{Name: "y", Type: Integers, Distinct: 8, Min: -11, Median: -4, Max: 3, Mean: -4, SD: math.Sqrt(21), Histogram: []int{1, 1, 1, 0, 1, 1, 0, 1, 1, 1}, Correlation: math.NaN(),
			Common: []Count{{"-1", 1}, {"-11", 1}, {"-3", 1}, {"-5", 1}, {"-7", 1}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Column{}), cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Error(diff)
	}
	if r := got[1].Correlation; !(r < -0.5 && r > -1) {
		t.Errorf("x falls with y, a value apart: %g", r)
	}
	for _, c := range []struct {
		column Column
		want   bool
	}{{Column{Type: Texts, Distinct: 12}, true}, {Column{Type: Texts, Distinct: 11}, false}, {Column{Type: Integers, Distinct: 12, Increasing: true, Min: 5, Max: 16}, true},
		{Column{Type: Integers, Distinct: 12, Increasing: true, Max: 20}, false}, {Column{Type: Numbers, Distinct: 12, Increasing: true, Max: 11}, false}} {
		if c.column.ID(12) != c.want {
			t.Errorf("%+v: names of rows", c.column)
		}
	}
	if text := got[2].Text(got[2].Median); text != "2011-01-04 12:00:00" {
		t.Errorf("a date is told as %s", text)
	}
}

func TestSurveyOfParquet(t *testing.T) {
	type row struct {
		A    float64   `parquet:"a"`
		B    *float64  `parquet:"b,optional"`
		Name string    `parquet:"name"`
		At   time.Time `parquet:"at,timestamp"`
		C    int32     `parquet:"c"`
		L    []int32   `parquet:"l"`
		Day  string    `parquet:"day"`
	}
	one := 1.0
	got, rows, err := Survey(bytes.NewReader(parquetBytes(t, []row{{1, &one, "x", time.Unix(0, 0), 7, nil, "2011-01-01"}, {2.5, nil, "y", time.Unix(86400, 0), 7, nil, ""}})), "t.parquet", "", DefaultLimits)
	var said []string
	for _, c := range got {
		said = append(said, fmt.Sprint(c.Name, " ", c.Type, " ", c.Missing, " ", c.Distinct, " ", c.Max, " ", c.Unfit))
	}
	want := []string{"a numbers 0 2 2.5 ", "b integers 1 1 1 1 of 2 values are missing; to use it say missing: under data:", `name texts 0 2 0 text ("x"); to use it name it under data: categories:`,
		`at dates 0 2 1 dates or times; to use them say dates: under data: ("1970-01-01")`, "c integers 0 1 7 constant: 7 in all rows", "l nested 0 0 0 nested",
		`day dates 1 1 14975 dates or times; to use them say dates: under data: ("2011-01-01")`}
	if diff := cmp.Diff(want, said); err != nil || rows != 2 || diff != "" {
		t.Errorf("%d rows, %v %s", rows, err, diff)
	}
}

func TestSurveyRefuses(t *testing.T) {
	for table, want := range map[string]string{
		"":                "t.csv: the file is empty",
		"a\n1\n2\n":       "t.csv: line 1: there is one column only, a: a target and at least one input are needed",
		"a,a\n1,2\n":      `t.csv: line 1: the columns 1 and 2 are both called "a": rename one`,
		"a,b\n1,2\n":      "t.csv: 1 rows of data: at least two are needed",
		"a,b\n1,2\n3\n":   "t.csv: line 3: 1 fields, but the header has 2",
		"1,2\n1,2\n3,4\n": "t.csv: line 1: the first line holds numbers, not column names: add a header line",
	} {
		if _, _, err := Survey(strings.NewReader(table), "t.csv", "", DefaultLimits); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", table, err, want)
		}
	}
}
