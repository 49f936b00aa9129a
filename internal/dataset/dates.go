package dataset

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Date says how dates and times of a column become numbers: in a unit, since 1970 began in UTC, where a time
// without a zone is taken to be. Times without a year, such as 13:45, are since the least that their layout can say.
type Date struct {
	Unit   string `json:"unit,omitempty"`   // one of DateUnits; empty for a column of something else
	Layout string `json:"layout,omitempty"` // as package time has them; empty for dateLayouts
}

// seconds are those of the units.
var seconds = map[string]float64{"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 7 * 86400, "years": 365.2425 * 86400}

// DateUnits returns the units, shortest first.
func DateUnits() []string {
	return slices.SortedFunc(maps.Keys(seconds), func(a, b string) int { return int(seconds[a] - seconds[b]) })
}

// dateLayouts are read where no layout is given. Fractions of seconds may follow seconds.
var dateLayouts = []string{time.DateOnly, time.DateTime, time.RFC3339, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00"}

// ParseDate reads how dates become numbers: a unit, and after a blank a format if they have a particular one, as strftime has
// it, with %, or as Go has it: "days", "days %d.%m.%Y", "hours 02/01/2006 15h".
func ParseDate(text string) (Date, error) {
	unit, layout, given := strings.Cut(strings.TrimSpace(text), " ")
	if seconds[unit] == 0 {
		if near, ok := nearest.Word(unit, DateUnits()); ok {
			return Date{}, fmt.Errorf("%q is no unit of time: did you mean %s?", unit, near)
		}
		return Date{}, fmt.Errorf("%q is no unit of time: write one of %s, and after a blank the format if it is a particular one, as in days %%d.%%m.%%Y", short(unit), strings.Join(DateUnits(), ", "))
	}
	d := Date{Unit: unit}
	if !given {
		return d, nil
	}
	d.Layout = strings.TrimSpace(layout)
	if strings.Contains(layout, "%") {
		var err error
		if d.Layout, err = strftime(d.Layout); err != nil {
			return Date{}, err
		}
	}
	return d, d.check()
}

// sample is a time of whose parts no two are the same number.
var sample = time.Date(1987, time.November, 23, 14, 35, 42, 0, time.UTC)

// check returns an error if a date is not one that ParseDate returns.
func (d Date) check() error {
	const most = 100
	switch {
	case seconds[d.Unit] == 0:
		return fmt.Errorf("%q is no unit of time", short(d.Unit))
	case d.Layout == "":
		return nil
	case len(d.Layout) > most:
		return fmt.Errorf("a format of more than %d characters", most)
	}
	text := sample.Format(d.Layout)
	if _, err := time.Parse(d.Layout, text); err != nil || text == sample.AddDate(-1, -1, -1).Add(-3*time.Hour-7*time.Minute-9*time.Second).Format(d.Layout) {
		return fmt.Errorf("%q is no format of dates or times: write one as in %%Y-%%m-%%d %%H:%%M", short(d.Layout))
	}
	return nil
}

// directives are those of strftime, as package time writes them.
var directives = map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'j': "002", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'H': "15", 'I': "03", 'p': "PM", 'M': "04", 'S': "05", 'z': "-0700", 'T': "15:04:05", 'F': "2006-01-02", 'D': "01/02/06", 'R': "15:04"}

// strftime returns a format as package time writes it.
func strftime(text string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '%' && i+1 < len(text) && directives[text[i+1]] != "":
			i++
			out.WriteString(directives[text[i]])
		case c == '%':
			return "", fmt.Errorf("%q is no part of a format: %%Y, %%m, %%d, %%H, %%M, %%S, %%y, %%j, %%b, %%B, %%I, %%p, %%z are (fractions of seconds are read after %%S)", text[i:min(len(text), i+2)])
		case c >= '0' && c <= '9' || c == '_':
			return "", fmt.Errorf("a format with %% has no %q between its parts", c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

// parse returns the number that a text stands for.
func (d Date) parse(text string) (float64, error) {
	layouts := dateLayouts
	if d.Layout != "" {
		layouts = []string{d.Layout}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return d.number(t), nil
		}
	}
	if d.Layout != "" {
		return 0, fmt.Errorf("%q is not a date or time as in %s", short(text), sample.Format(d.Layout))
	}
	return 0, fmt.Errorf("%q is not a date or time as in 1987-11-23, 1987-11-23 14:35:42 or 1987-11-23T14:35:42Z: say how it is written behind the unit, as in days %%d.%%m.%%Y", short(text))
}

// origin returns what times are counted from: 1970, or the least time if a layout has no year.
func (d Date) origin() time.Time {
	if d.Layout != "" {
		if t, err := time.Parse(d.Layout, sample.Format(d.Layout)); err == nil && t.Year() == 0 {
			return time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	return time.Unix(0, 0).UTC()
}

// number returns the number of a time.
func (d Date) number(t time.Time) float64 {
	o := d.origin()
	return (float64(t.Unix()-o.Unix()) + float64(t.Nanosecond())/1e9) / seconds[d.Unit]
}

// text returns the time of a number, to the second.
func (d Date) text(x float64) string {
	s := math.Round(x * seconds[d.Unit])
	if math.Abs(s) > 3e11 { // ten thousand years, which layouts have no digits for
		return fmt.Sprintf("%g %s", x, d.Unit)
	}
	t := time.Unix(d.origin().Unix()+int64(s), 0).UTC()
	switch {
	case d.Layout != "":
		return t.Format(d.Layout)
	case t.Equal(t.Truncate(24 * time.Hour)):
		return t.Format(time.DateOnly)
	}
	return t.Format(time.DateTime)
}

// Since says what the numbers are.
func (d Date) Since() string {
	if d.origin().Year() == 0 {
		return d.Unit + " since the least time that its format can say"
	}
	return d.Unit + " since 1970-01-01 00:00 UTC"
}

// ofParquet returns what reads the dates of a column.
func (d Date) ofParquet(f parquet.Field) (func(parquet.Value) (float64, error), error) {
	k, unit := f.Type().Kind(), timeUnit(f)
	integers := k == parquet.Int32 || k == parquet.Int64
	switch {
	case integers && unit > 0 && d.origin().Year() == 0:
		return nil, errDated
	case integers && unit > 0:
		return func(v parquet.Value) (float64, error) {
			switch {
			case v.IsNull():
				return math.NaN(), missingError("null")
			case k == parquet.Int32:
				return d.number(after(int64(v.Int32()), unit)), nil
			}
			return d.number(after(v.Int64(), unit)), nil
		}, nil
	case k == parquet.ByteArray || d.Layout != "" && integers:
		return func(v parquet.Value) (float64, error) {
			text, err := labelOf(v)
			if err != nil {
				return math.NaN(), err
			}
			return d.parse(text)
		}, nil
	}
	return nil, errNoDates
}

// errNoDates is a column of numbers where dates are asked for.
var errNoDates = errors.New("it holds no dates: take it out of dates: under data")

// timeUnit returns the unit of a column of dates or times, 0 of others.
func timeUnit(f parquet.Field) time.Duration {
	lt := f.Type().LogicalType()
	if lt == nil {
		return 0
	}
	switch t := lt.Value.(type) {
	case *format.DateType:
		return 24 * time.Hour
	case *format.TimestampType:
		return t.Unit.Value.Duration()
	case *format.TimeType:
		return t.Unit.Value.Duration()
	}
	return 0
}

// after returns the time that is so many units after 1970 began.
func after(n int64, unit time.Duration) time.Time {
	if unit >= time.Second {
		return time.Unix(n*int64(unit/time.Second), 0)
	}
	per := int64(time.Second / unit)
	return time.Unix(n/per, n%per*int64(unit))
}

// spec returns the date as ParseDate reads it.
func (d Date) spec() string { return strings.TrimSpace(d.Unit + " " + d.Layout) }
