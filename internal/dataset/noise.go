package dataset

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// Noise names the columns that say what noise the rows have: of known noise, of weights, and of what
// a row belongs to, each level having a variance of its own. A name is empty where there is none.
type Noise struct {
	Column   string   `json:"column,omitempty"`   // of known standard deviations, in the units of the target
	Variance bool     `json:"variance,omitempty"` // they are variances, in the square of these units
	Weights  string   `json:"weights,omitempty"`  // that the noise is divided by, or how many trials a row is of
	By       string   `json:"by,omitempty"`
	Levels   []string `json:"levels,omitempty"` // of By
}

// NoiseRow is what a table says of the noise of a row, in original units. A field has no meaning where there
// is no such column.
type NoiseRow struct {
	Known, Weight float64
	Level         string
}

// Bounds on levels of noise, each of which is a parameter.
const (
	MaxNoiseLevels = 50
	maxNoiseName   = 100
)

// Rows returns what is known of the noise of rows, standardised as the target is by scale. It returns an
// error, one sentence for who brought the rows, if that is not usable.
func (n *Noise) Rows(rows []NoiseRow, scale Scale) (likelihood.Rows, error) {
	var out likelihood.Rows
	for i, r := range rows {
		if bad := n.bad(r); bad != "" {
			return out, fmt.Errorf("row %d: %s", i+1, bad)
		}
		if n.Column != "" {
			out.Known = append(out.Known, n.variance(r.Known)/(scale.SD*scale.SD))
		}
		if n.Weights != "" {
			out.Weight = append(out.Weight, r.Weight)
		}
		if n.By != "" {
			out.Level = append(out.Level, slices.Index(n.Levels, r.Level))
		}
	}
	return out, nil
}

func (n *Noise) variance(known float64) float64 {
	if n.Variance {
		return known
	}
	return known * known
}

// bad says what is wrong with a row, or "".
func (n *Noise) bad(r NoiseRow) string {
	switch v := n.variance(r.Known); {
	case n.Column != "" && !(r.Known >= 0 && v <= largest):
		what := "standard deviation"
		if n.Variance {
			what = "variance"
		}
		return fmt.Sprintf("the %s %s is %g: it has to be 0 or more", what, yamlName(n.Column), r.Known)
	case n.Weights != "" && !(r.Weight > 0 && r.Weight <= largest):
		return fmt.Sprintf("%s is %g: it has to be positive", yamlName(n.Weights), r.Weight)
	case n.By != "" && n.Levels != nil && !slices.Contains(n.Levels, r.Level):
		return fmt.Sprintf("%s is %s, which is not among the rows that were learnt from, so that its noise is not known: there are %s", yamlName(n.By), strconv.Quote(short(r.Level)), list(n.Levels))
	}
	return ""
}

// levels returns those of some rows, in order.
func (n *Noise) levels(rows []NoiseRow) ([]string, error) {
	if n.By == "" {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Level] = true
		switch {
		case len(seen) > MaxNoiseLevels:
			return nil, fmt.Errorf("column %q has more than %d levels: each would have a variance of the noise of its own; put levels together", n.By, MaxNoiseLevels)
		case len(r.Level) > maxNoiseName || strings.ContainsFunc(r.Level, func(c rune) bool { return !unicode.IsPrint(c) || strings.ContainsRune(`,"[]`, c) }):
			return nil, fmt.Errorf("column %q: the level %q has to be part of a parameter's name: use at most %d characters, and no comma, quote or bracket", n.By, short(r.Level), maxNoiseName)
		}
	}
	out := make([]string, 0, len(seen))
	for level := range seen {
		out = append(out, level)
	}
	slices.Sort(out)
	return out, nil
}

// columns returns the names of the columns.
func (n *Noise) columns() []string {
	if n == nil {
		return nil
	}
	return slices.DeleteFunc([]string{n.Column, n.Weights, n.By}, func(name string) bool { return name == "" })
}

// Required returns the names of the columns without which nothing is known of a row's noise.
func (n *Noise) Required() []string {
	return slices.DeleteFunc(n.columns(), func(name string) bool { return name == n.Weights })
}

// noiseFields are the places of the columns in a header, −1 for none.
type noiseFields struct{ known, weight, level int }

// noiseFields finds the columns in a header. Of points that lack a column nothing is read, and its name
// is returned, but weights, which are then 1.
func (sel Select) noiseFields(file string, header []string) (at noiseFields, lacks string, err error) {
	at = noiseFields{-1, -1, -1}
	n, weights := sel.Noise, "weights"
	if n == nil {
		return at, "", nil
	}
	if sel.Trials {
		weights = "trials"
	}
	for _, c := range []struct {
		name, field string
		to          *int
	}{{n.Column, "noise.column", &at.known}, {n.By, "noise.by", &at.level}, {n.Weights, weights, &at.weight}} {
		if c.name == "" {
			continue
		}
		*c.to = slices.Index(header, c.name)
		switch {
		case *c.to >= 0 || sel.Points && c.to == &at.weight:
		case sel.Points:
			return noiseFields{-1, -1, -1}, c.name, nil
		default:
			msg := fmt.Sprintf("there is no column %q, which %s: names; the columns are %s", c.name, c.field, list(header))
			if near, ok := nearest.Word(c.name, header); ok {
				msg = fmt.Sprintf("there is no column %q, which %s: names: did you mean %s?", c.name, c.field, yamlName(near))
			}
			return at, "", &Error{File: file, Line: 1, Msg: msg}
		}
	}
	return at, "", nil
}

// addNoise appends what a row of CSV says of its noise. It returns an error with its column; what is
// missing it tells blank.
func (t *Table) addNoise(rec []string, at noiseFields, blank func(column int, err error)) (column int, err error) {
	row := NoiseRow{Weight: 1}
	for _, c := range []struct {
		at int
		to *float64
	}{{at.known, &row.Known}, {at.weight, &row.Weight}} {
		if c.at < 0 {
			continue
		}
		x, err := parseField(rec[c.at])
		if gap := (missingError("")); errors.As(err, &gap) {
			blank(c.at, err)
		} else if err != nil {
			return c.at, err
		}
		*c.to = x
	}
	if at.level >= 0 {
		text := strings.TrimSpace(rec[at.level])
		switch {
		case len(text) > maxLabel:
			return at.level, errLabel
		case absent(text):
			blank(at.level, missingError(strconv.Quote(text)))
			text = NoValue
		}
		row.Level = strings.Clone(text)
	}
	t.Noise = append(t.Noise, row)
	return 0, nil
}

// noise reads what a file of columns says of the noise of rows.
func (f *columnFile) noise(at noiseFields, rows int) ([]NoiseRow, error) {
	out := make([]NoiseRow, rows)
	for _, c := range []struct {
		at  int
		set func(row int, x float64)
	}{{at.known, func(row int, x float64) { out[row].Known = x }}, {at.weight, func(row int, x float64) { out[row].Weight = x }}} {
		if c.at < 0 {
			continue
		}
		if f.kind(c.at) != Numbers {
			return nil, &Error{File: f.file, Column: f.header[c.at], Msg: "it does not hold numbers, which say what noise the rows have"}
		}
		x, err := f.column(c.at, rows, &coding{}, nil)
		if err != nil {
			return nil, err
		}
		for i, v := range x {
			c.set(i, v)
		}
	}
	if at.weight < 0 {
		for i := range out {
			out[i].Weight = 1
		}
	}
	if at.level >= 0 {
		x, err := f.labels(at.level, rows)
		if err != nil {
			return nil, err
		}
		for i, v := range x {
			out[i].Level = v
		}
	}
	return out, nil
}

// noised takes the noise of a data set's rows from its table.
func (d *Dataset) noised(t *Table, in, out []int) error {
	if t.Of == nil {
		return nil
	}
	n := *t.Of
	var err error
	if n.Levels, err = n.levels(t.Noise); err != nil {
		return err
	}
	if _, err := n.Rows(t.Noise, d.YScale); err != nil {
		return err
	}
	d.Noise, d.HoldoutNoise = &n, pick(t.Noise, out)
	d.RowNoise, err = n.Rows(pick(t.Noise, in), d.YScale)
	return err
}

// fields returns what noise says of row i, as it goes into a CSV file: of the columns that are no inputs.
func (n *Noise) fields(r NoiseRow, inputs []string) (names, values []string) {
	for _, c := range []struct{ name, value string }{
		{n.Column, strconv.FormatFloat(r.Known, 'g', -1, 64)}, {n.Weights, strconv.FormatFloat(r.Weight, 'g', -1, 64)}, {n.By, quoted(r.Level)},
	} {
		if c.name != "" && !slices.Contains(inputs, c.name) {
			names, values = append(names, quoted(c.name)), append(values, c.value)
		}
	}
	return names, values
}

// check returns an error if a description that somebody else made makes no sense.
func (n *Noise) check() error {
	switch {
	case n == nil:
		return nil
	case len(n.columns()) == 0:
		return errors.New("the noise of the data is said to be told by columns, and none is named")
	case (n.By == "") != (len(n.Levels) == 0) || len(n.Levels) > MaxNoiseLevels:
		return fmt.Errorf("the noise of the data has %d levels of %q", len(n.Levels), n.By)
	}
	return nil
}

// bits returns what is known of the noise of row i, as it enters the data's hash.
func bits(r likelihood.Rows, i int) (out []uint64) {
	if r.Known != nil {
		out = append(out, 1, math.Float64bits(r.Known[i]))
	}
	if r.Weight != nil {
		out = append(out, 2, math.Float64bits(r.Weight[i]))
	}
	if r.Level != nil {
		out = append(out, 3, uint64(r.Level[i]))
	}
	return out
}
