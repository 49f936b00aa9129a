package dataset

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Of every column that can be no input a survey says why, from all rows of it.
func TestSurvey(t *testing.T) {
	const dates = "dates or times; to use them make numbers of them, such as days since the first"
	for _, c := range []struct {
		column string // its values, one a row
		want   string
	}{
		{"1 2 3", ""},
		{"1 1 2", ""},
		{"4 4 4.0", "constant: 4 in all rows"},
		{"1 2 red", `text ("red"); to use it make a column of 0 and 1 for each value`},
		{"NA NA blue", `text ("blue"); to use it make a column of 0 and 1 for each value`},
		{"2011-01-01 2011-01-02 2011-01-03", dates + ` ("2011-01-01")`},
		{"13:45 13:46 13:47", dates + ` ("13:45")`},
		{"31.12.2011 1.1.2012 2.1.2012", dates + ` ("31.12.2011")`},
		{"1 NA 3", "1 of 3 values are missing; to use it fill them in, or drop these rows"},
		{"? nan NA", "3 of 3 values are missing; to use it fill them in, or drop these rows"},
		{"1,5 2,5 3", `decimal commas ("1,5"); to use it write numbers with a point`},
		{"1 Inf 3", "the value is infinite: drop the row or correct it"},
		{"1 1e999 3", "1e999 is beyond the range of a float64"},
	} {
		table := "a;y\n"
		for i, v := range strings.Fields(c.column) {
			table += v + ";" + string(rune('1'+i)) + "\n"
		}
		got, rows, err := Survey(strings.NewReader(table), "t.csv", DefaultLimits)
		if diff := cmp.Diff([]Column{{"a", c.want}, {"y", ""}}, got); err != nil || rows != 3 || diff != "" {
			t.Errorf("%s: %d rows, %v %s", c.column, rows, err, diff)
		}
	}
}

func TestSurveyOfParquet(t *testing.T) {
	type row struct {
		A    float64   `parquet:"a"`
		B    *float64  `parquet:"b,optional"`
		Name string    `parquet:"name"`
		At   time.Time `parquet:"at,timestamp"`
		C    int32     `parquet:"c"`
	}
	one := 1.0
	got, rows, err := Survey(bytes.NewReader(parquetBytes(t, []row{{1, &one, "x", time.Unix(0, 0), 7}, {2, nil, "y", time.Unix(9, 0), 7}})), "t.parquet", DefaultLimits)
	want := []Column{{"a", ""}, {"b", "1 of 2 values are missing; to use it fill them in, or drop these rows"}, {"name", "no numbers, but STRING"},
		{"at", "dates or times; to use them make numbers of them, such as days since the first"}, {"c", "constant: 7 in all rows"}}
	if diff := cmp.Diff(want, got); err != nil || rows != 2 || diff != "" {
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
		if _, _, err := Survey(strings.NewReader(table), "t.csv", DefaultLimits); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", table, err, want)
		}
	}
}
