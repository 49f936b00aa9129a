package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
)

// Type is what the values of a column are.
type Type string

// The types of columns.
const (
	Integers Type = "integers"
	Numbers  Type = "numbers"
	Texts    Type = "texts"
	Times    Type = "dates" // dates or times
	Nothing  Type = "nothing"
	Nested   Type = "nested" // lists and the like, which are not read
)

// Bounds of what a survey tells.
const (
	HistogramBins = 10
	mostCounted   = 1000 // different texts that are counted
	mostCommon    = 5    // of them that are told
)

// Column is what a look at a whole table tells of a column.
type Column struct {
	Name     string
	Type     Type
	Missing  int
	Distinct int // different values
	// Of numbers, and of dates in Date's unit: Histogram has the counts of HistogramBins bins of equal width, from Min to Max.
	Min, Median, Max, Mean, SD float64
	Histogram                  []int
	Increasing                 bool    // each is greater than the one of the row before
	Date                       string  // how dates become numbers, as ParseDate reads it
	Common                     []Count // texts and whole numbers, the most common first; nil if the values are too many to count
	Correlation                float64 // with the target; NaN where there is none
	Unfit                      string  // why it can be no number among the inputs, and no target; empty if it can
	date                       Date
	numbers                    []float64 // of the rows; NaN where they are missing
}

// Count is how often a value occurs.
type Count struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// Text returns a value of a column of numbers or dates as people write it.
func (c *Column) Text(x float64) string {
	if c.Type == Times {
		return c.date.text(x)
	}
	return strconv.FormatFloat(x, 'g', 5, 64)
}

// ID reports whether the values look like names of the rows: texts or increasing whole numbers, no two the same.
func (c *Column) ID(rows int) bool {
	return c.Distinct == rows && rows > 10 && (c.Type == Texts || c.Type == Integers && c.Increasing && c.Max-c.Min == float64(rows-1))
}

// SurveyFile is Survey of a file.
func SurveyFile(path, target string, lim Limits) (columns []Column, rows int, err error) {
	f, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	return Survey(f, path, target, lim)
}

// Survey returns the columns of a table, all of whose rows it reads, and how many those are. Correlations are with the
// target, if one is named. It holds a number or a hash for each value.
func Survey(r io.Reader, file, target string, lim Limits) (columns []Column, rows int, err error) {
	var header []string
	var seen []*column
	err = open(r, file, lim, func(f *csvFile) error {
		header = f.header
		seen, err = f.survey()
		rows = f.rows
		return err
	}, func(f *columnFile) error {
		header = f.header
		seen, rows, err = f.survey()
		return err
	})
	if err == nil && rows < 2 {
		err = &Error{File: file, Msg: fmt.Sprintf("%d rows of data: at least two are needed", rows)}
	}
	if err == nil && target != "" && !slices.Contains(header, target) {
		_, _, err = Select{Target: target}.columns(file, header)
	}
	if err != nil {
		return nil, 0, err
	}
	for i, c := range seen {
		columns = append(columns, c.tell(header[i], rows))
	}
	Correlate(columns, target)
	return columns, rows, nil
}

// Correlate sets the columns' correlations with the target, if one is named.
func Correlate(columns []Column, target string) {
	at := slices.IndexFunc(columns, func(c Column) bool { return c.Name == target })
	for i := range columns {
		columns[i].Correlation = math.NaN()
		if at >= 0 && i != at {
			columns[i].Correlation = correlation(columns[i].numbers, columns[at].numbers)
		}
	}
}

// correlation returns that of the rows that have both values.
func correlation(x, y []float64) float64 {
	if len(x) != len(y) {
		return math.NaN()
	}
	var a, b []float64
	for i := range x {
		if !math.IsNaN(x[i]) && !math.IsNaN(y[i]) {
			a, b = append(a, x[i]), append(b, y[i])
		}
	}
	return stat.Correlation(a, b, nil)
}

// selectable returns an error if columns cannot be told apart by their names.
func selectable(file string, header []string) error {
	if len(header) < 2 {
		return &Error{File: file, Line: 1, Msg: fmt.Sprintf("there is one column only, %s: a target and at least one input are needed", list(header))}
	}
	_, _, err := (Select{Target: header[0]}).columns(file, header)
	return err
}

func (f *csvFile) survey() ([]*column, error) {
	if err := selectable(f.file, f.header); err != nil {
		return nil, err
	}
	columns := newColumns(len(f.header))
	for {
		rec, line, err := f.next()
		if err == io.EOF {
			return columns, nil
		}
		if err != nil {
			return nil, err
		}
		if err := f.lim.cells(int64(f.rows), len(columns)); err != nil {
			return nil, &Error{File: f.file, Line: line, Msg: err.Error()}
		}
		for i, c := range columns {
			c.see(rec[i])
		}
	}
}

// datesAdvice says what to do about dates.
const datesAdvice = "dates or times; to use them say dates: under data:"

// column is what the values of a column tell.
type column struct {
	kind    Type
	bad     string    // why one of them is of no use
	missing int       // also those before the first that is not
	numbers []float64 // while all are
	hashes  []uint64  // of texts that are not missing
	counts  map[string]int
	dates   []dated // ways in which all texts are dates
	example string
}

// dated are the numbers of texts as dates of one kind.
type dated struct {
	date Date
	x    []float64
}

func newColumns(n int) []*column {
	out := make([]*column, n)
	for i := range out {
		out[i] = &column{kind: Nothing}
	}
	return out
}

var seed = maphash.MakeSeed()

func hashesOf(x []float64) []uint64 {
	var out []uint64
	for _, v := range known(x) {
		out = append(out, math.Float64bits(v))
	}
	return out
}

// see takes the text of a value.
func (c *column) see(field string) {
	text := strings.TrimSpace(field)
	x, err := parseField(text)
	no := notNumberError("")
	switch {
	case absent(text):
		c.missing++
		c.append(math.NaN())
	case c.kind == Texts || c.kind == Times || errors.As(err, &no):
		c.text(text)
	case err != nil:
		c.kind, c.bad = Numbers, err.Error()
		c.append(math.NaN())
	default:
		c.kind = Numbers
		c.append(x)
	}
}

// append appends a number, or, of texts, what is missing.
func (c *column) append(x float64) {
	if c.kind != Texts && c.kind != Times {
		c.numbers = append(c.numbers, x)
		return
	}
	for i := range c.dates {
		c.dates[i].x = append(c.dates[i].x, x)
	}
}

// text takes a text that is no number, or stands among such.
func (c *column) text(text string) {
	if c.kind != Texts && c.kind != Times { // the first
		c.example = strings.Clone(short(text))
		c.counts = map[string]int{}
		before := c.numbers
		c.kind, c.numbers, c.bad = Texts, nil, ""
		if c.missing == len(before) {
			c.kind = Times
			for _, d := range surveyDates {
				c.dates = append(c.dates, dated{d, slices.Clone(before)})
			}
		}
		for _, x := range known(before) {
			c.count(strconv.FormatFloat(x, 'g', -1, 64))
		}
	}
	c.count(text)
	c.dates = slices.DeleteFunc(c.dates, func(d dated) bool {
		_, err := d.date.parse(text)
		return err != nil
	})
	for i := range c.dates {
		x, _ := c.dates[i].date.parse(text)
		c.dates[i].x = append(c.dates[i].x, x)
	}
	if len(c.dates) == 0 {
		c.kind = Texts
	}
}

func (c *column) count(text string) {
	c.hashes = append(c.hashes, maphash.String(seed, text))
	if _, ok := c.counts[text]; ok || len(c.counts) < mostCounted {
		if !ok {
			text = strings.Clone(text)
		}
		c.counts[text]++
	}
}

// tell returns what was seen.
func (c *column) tell(name string, rows int) Column {
	out := Column{Name: name, Type: c.kind, Missing: c.missing, numbers: c.numbers}
	if c.kind == Times {
		out.date = c.dates[0].date
		out.numbers, out.Date = c.dates[0].x, out.date.spec()
	}
	if have := known(out.numbers); len(have) > 0 && (c.kind == Times || c.kind == Numbers) {
		out.measure(have)
		out.Increasing = len(have) == rows && increasing(have)
		if c.kind == Numbers && whole(have) {
			out.Type = Integers
		}
	}
	if c.kind == Texts || c.kind == Times {
		slices.Sort(c.hashes)
		out.Distinct = len(slices.Compact(c.hashes))
		out.Common = common(c.counts, out.Distinct)
	}
	out.Unfit = c.unfit(&out, rows)
	return out
}

// measure fills in what numbers tell.
func (c *Column) measure(have []float64) {
	sorted := slices.Clone(have)
	slices.Sort(sorted)
	c.Min, c.Median, c.Max = sorted[0], median(sorted), sorted[len(sorted)-1]
	s := scaleOf(have)
	c.Mean, c.SD = s.Mean, s.SD
	c.Histogram = make([]int, HistogramBins)
	for _, x := range have {
		bin := 0
		if c.Max > c.Min {
			bin = min(int((x-c.Min)/(c.Max-c.Min)*HistogramBins), HistogramBins-1)
		}
		c.Histogram[bin]++
	}
	counts := map[string]int{}
	for i, x := range sorted {
		if i == 0 || x != sorted[i-1] {
			c.Distinct++
		}
		if c.Distinct <= MaxLevels {
			counts[strconv.FormatFloat(x, 'g', -1, 64)]++
		}
	}
	if whole(have) {
		c.Common = common(counts, c.Distinct)
	}
}

func whole(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v != math.Trunc(v) || math.Abs(v) > 1<<53 })
}

func increasing(x []float64) bool {
	for i := 1; i < len(x); i++ {
		if !(x[i] > x[i-1]) {
			return false
		}
	}
	return true
}

// common returns the most common values, nil if not all were counted.
func common(counts map[string]int, distinct int) []Count {
	if len(counts) < distinct {
		return nil
	}
	var out []Count
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, Count{value, counts[value]})
	}
	slices.SortStableFunc(out, func(a, b Count) int { return cmp.Compare(b.Count, a.Count) })
	return out[:min(len(out), mostCommon)]
}

// unfit says why the column can be no number among the inputs, and no target.
func (c *column) unfit(out *Column, rows int) string {
	switch {
	case c.bad != "":
		return c.bad
	case c.missing == rows:
		return "no values"
	case c.kind == Times:
		return fmt.Sprintf("%s (%s)", datesAdvice, strconv.Quote(cmp.Or(c.example, out.Text(out.Min))))
	case c.kind == Texts && decimalComma.MatchString(c.example):
		return fmt.Sprintf("decimal commas (%q); to use it write numbers with a point", c.example)
	case c.kind == Texts:
		return fmt.Sprintf("text (%q); to use it name it under data: categories:", c.example)
	case c.missing > 0:
		return fmt.Sprintf("%d of %d values are missing; to use it say missing: under data:", c.missing, rows)
	case out.Distinct == 1:
		return fmt.Sprintf("constant: %g in all rows", out.Min)
	}
	return ""
}

// surveyDates are the ways in which a survey looks for dates.
var surveyDates = func() []Date {
	out := []Date{{Unit: "days"}}
	for _, layout := range []string{"2006/01/02", "2006/01/02 15:04", "1/2/2006", "2/1/2006", "2.1.2006", "1/2/2006 15:04", "2/1/2006 15:04", "2.1.2006 15:04", "1/2/06", "2/1/06"} {
		out = append(out, Date{"days", layout})
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		out = append(out, Date{"hours", layout})
	}
	return out
}()

// dateOf returns how a text that is a date or a time becomes a number, as ParseDate reads it; nothing of others.
func dateOf(s string) string {
	at := slices.IndexFunc(surveyDates, func(d Date) bool {
		_, err := d.parse(s)
		return err == nil
	})
	if at < 0 {
		return ""
	}
	return surveyDates[at].spec()
}
