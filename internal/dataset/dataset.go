package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Scale is the affine map from original to standardised units of a column:
// standardised = (original − Mean)/SD, with the mean and the standard deviation
// (ddof 0) over the training rows, or 0 and 1 if nothing is standardised.
type Scale struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
}

// Apply standardises a value.
func (s Scale) Apply(x float64) float64 { return (x - s.Mean) / s.SD }

// Undo returns a standardised value to original units.
func (s Scale) Undo(z float64) float64 { return s.Mean + s.SD*z }

// Info describes a data set without holding it: what it takes to tell results
// in the user's units.
type Info struct {
	Rows       int      `json:"rows"` // training rows n
	HeldOut    int      `json:"held_out"`
	Target     string   `json:"target"`
	InputNames []string `json:"inputs"`
	XScale     []Scale  `json:"input_scales"`
	YScale     Scale    `json:"target_scale"` // of the transformed target
	// Transform is that of the target before it is standardised.
	Transform likelihood.Transform `json:"transform,omitzero"`
	// Levels are those of each input that is a category, whose values are their places, from 0, and
	// are not standardised; nil for an input of numbers, and nil if all are.
	Levels [][]string `json:"levels,omitempty"`
	// Classes are the names of the target's classes, which are 0, 1, … in Y: of two, unless they are called that, and of those that
	// have an order; nil of other targets.
	Classes []string `json:"classes,omitempty"`
	Noise   *Noise   `json:"noise,omitempty"` // the columns that say what noise the rows have, nil for none
	// Offset is the column of what is known of the latent function in each row, in the units of the transformed target; empty for none.
	Offset string `json:"offset,omitempty"`
	// Dates say of each input of dates or times how these became numbers; nil if there are none.
	Dates []Date `json:"dates,omitempty"`
	// Imputed are what stands for missing values of columns, nil where no value may be missing. Their indicators are the last inputs.
	Imputed []Imputed `json:"imputed,omitempty"`
	Notes   []string  `json:"notes,omitempty"` // how the table was read, one sentence each
	Truth   *Truth    `json:"truth,omitempty"` // of generated data, in standardised units
	// SHA256 is the hash, in hex, of the training data as they enter the
	// posterior: sizes, then row by row X, Y and what is known of the noise, and of the latent function unless Y is less by it, as little-endian float64, then the
	// levels of categories.
	SHA256 string `json:"sha256"`
}

// N returns the number of training rows.
func (i *Info) N() int { return i.Rows }

// D returns the number of inputs.
func (i *Info) D() int { return len(i.InputNames) }

// LevelsOf returns the levels of an input, nil if it is one of numbers.
func (i *Info) LevelsOf(input int) []string {
	if i.Levels == nil {
		return nil
	}
	return i.Levels[input]
}

// Standardize returns points in original units, row by row, as the training rows
// are. It panics if a row does not have D inputs.
func (i *Info) Standardize(rows [][]float64) *kernel.Inputs {
	d := i.D()
	x := make([]float64, 0, len(rows)*d)
	for _, row := range rows {
		if len(row) != d {
			panic(fmt.Sprintf("dataset: a point of %d inputs, want %d", len(row), d))
		}
		for k, v := range row {
			x = append(x, i.XScale[k].Apply(v))
		}
	}
	return kernel.NewInputs(len(rows), d, x)
}

// Check returns an error if a description that somebody else made is not one
// that results can be told with.
func (i *Info) Check() error {
	usable := func(s Scale) bool { return s.SD > 0 && !math.IsInf(s.SD, 1) && math.Abs(s.Mean) <= math.MaxFloat64 }
	t := i.Truth
	switch {
	case i.Rows < 1 || i.HeldOut < 0:
		return fmt.Errorf("the data have %d rows and hold out %d", i.Rows, i.HeldOut)
	case i.D() < 1 || len(i.XScale) != i.D():
		return fmt.Errorf("the data have %d inputs with %d scales", i.D(), len(i.XScale))
	case i.Levels != nil && len(i.Levels) != i.D():
		return fmt.Errorf("the data have %d inputs and levels of %d", i.D(), len(i.Levels))
	case i.Dates != nil && len(i.Dates) != i.D():
		return fmt.Errorf("the data have %d inputs and dates of %d", i.D(), len(i.Dates))
	case !usable(i.YScale) || slices.ContainsFunc(i.XScale, func(s Scale) bool { return !usable(s) }):
		return errors.New("a scale of the data is not positive and finite")
	case t != nil && (len(t.Tau) != 1 && len(t.Tau) != i.D() || !t.positive()):
		return errors.New("the parameters that the data are said to be made with are not positive, or too few or many")
	case len(i.SHA256) != 2*sha256.Size:
		return errors.New("the data have no SHA-256")
	}
	if t := i.Transform; t.Kind != likelihood.None && !slices.Contains(likelihood.Transforms, t.Kind) || !(t.Lambda >= 0 && t.Lambda <= 2) {
		return fmt.Errorf("the targets have a transform %q with λ = %g, which there is not", t.Kind, t.Lambda)
	}
	if err := i.Noise.check(); err != nil {
		return err
	}
	return i.checkReading()
}

// checkReading is Check of how columns became inputs.
func (i *Info) checkReading() error {
	const mostNotes, longNote = 10_000, 10_000
	if i.Classes != nil {
		if err := CheckLevels(i.Classes); err != nil {
			return fmt.Errorf("the classes of the target: %w", err)
		}
	}
	for k, names := range i.Levels {
		if names == nil {
			continue
		}
		if err := CheckLevels(names); err != nil {
			return fmt.Errorf("input %d: %w", k+1, err)
		}
	}
	for k, d := range i.Dates {
		if d == (Date{}) {
			continue
		}
		if err := d.check(); err != nil {
			return fmt.Errorf("input %d: %w", k+1, err)
		}
	}
	next := i.Columns()
	seen := map[int]bool{}
	for _, im := range i.Imputed {
		if im.Input < 0 || im.Input >= i.Columns() || seen[im.Input] || math.IsNaN(im.Median) || math.IsInf(im.Median, 0) || im.Indicator != 0 && im.Indicator != next {
			return fmt.Errorf("what stands for missing values of input %d makes no sense", im.Input+1)
		}
		seen[im.Input] = true
		if im.Indicator != 0 {
			next++
		}
	}
	if len(i.Notes) > mostNotes || slices.ContainsFunc(i.Notes, func(n string) bool { return len(n) > longNote }) {
		return errors.New("the notes on the data are too many or too long")
	}
	return nil
}

// Dataset is what a posterior is computed from.
type Dataset struct {
	Info
	X           *kernel.Inputs // training rows, standardised
	Y           []float64
	HoldoutX    *kernel.Inputs // rows held out, standardised alike; nil if none
	HoldoutY    []float64
	HoldoutRows []int // their row numbers in the table, from 0
	// RowNoise is what is known of the noise of the training rows, in standardised units, and HoldoutNoise
	// what the table says of the others.
	RowNoise     likelihood.Rows
	HoldoutNoise []NoiseRow
	// RowOffset is what the table says of the latent function in each training row, standardised: what is known of it and not
	// learnt. Y is less by it if Shifted. HoldoutOffset is what it says of the others, in original units. They are nil for none.
	RowOffset     []float64
	Shifted       bool
	HoldoutOffset []float64
	trained       []int // row numbers of the training rows in the table, from 0
	numbers       []int // of the table's rows in the file, from 0; nil if there are no others
}

// Number returns the number in the file, from 1, of a row of the table, from 0.
func (d *Dataset) Number(row int) int { return (&Table{numbers: d.numbers}).Number(row) + 1 }

// TrainingRows returns the row numbers of the training rows in the table, from 0, to read: of a
// dataset that was not made of a table all that are not held out.
func (d *Dataset) TrainingRows() []int {
	if d.trained != nil {
		return d.trained
	}
	rows, held := make([]int, 0, d.N()), d.HoldoutRows
	for row := 0; len(rows) < d.N(); row++ {
		if len(held) > 0 && held[0] == row {
			held = held[1:]
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// Options say how a table becomes a dataset.
type Options struct {
	Standardize bool
	RawTarget   bool    // leave the target as it is
	Transform   string  // of the target: a kind of likelihood.Transform
	Holdout     float64 // fraction of the rows held out, chosen by the seed
	Subset      int     // how many of the other rows are learnt from at most, chosen by the seed; 0 for all
	Seed        uint64
	Impute      bool // fill in what is missing
	// DropConstant leaves inputs out that are the same in all training rows.
	DropConstant bool
	Unordered    bool // the classes of the target have no order
}

// New standardises a table and splits off its hold-out rows.
func New(t *Table, opt Options) (*Dataset, error) {
	n := len(t.Y)
	held := int(math.Round(opt.Holdout * float64(n)))
	if n-held < 2 {
		return nil, fmt.Errorf("holdout: %g of %d rows leaves %d to learn from", opt.Holdout, n, n-held)
	}
	perm := random.Key{Seed: opt.Seed}.Stream(random.Holdout, 0).Perm(n)
	out, in := perm[:held], perm[held:]
	subset := opt.Subset > 0 && opt.Subset < len(in)
	if subset {
		in = in[:opt.Subset] // of a random order
	}
	slices.Sort(out)
	slices.Sort(in) // rows stay in the table's order

	if opt.DropConstant {
		if t = t.varying(in); len(t.Inputs) == 0 {
			return nil, fmt.Errorf("all inputs are constant in the rows that are not held out: %s", strings.Join(t.Notes, "; "))
		}
	}
	var imputed []Imputed
	if opt.Impute {
		var err error
		if t, imputed, err = t.impute(in); err != nil {
			return nil, err
		}
	}
	d := &Dataset{HoldoutRows: out, trained: in, numbers: t.numbers, Info: Info{Rows: len(in), HeldOut: held, Target: t.Target, InputNames: t.Inputs, YScale: Scale{0, 1},
		Levels: t.Levels, Dates: t.Dates, Classes: t.Classes, Imputed: imputed, Notes: t.Notes}}
	if subset {
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%d of %d rows are learnt from, drawn at random", len(in), n-held))
	}
	d.XScale = make([]Scale, len(t.Inputs))
	for k := range d.XScale {
		d.XScale[k] = Scale{0, 1}
		if !opt.Standardize {
			continue
		}
		scale := scaleOf(pick(t.X[k], in))
		if scale.SD == 0 {
			return nil, fmt.Errorf("column %q is constant in the rows that are not held out, or its values differ by less than numbers can tell: leave it out with exclude: [%s], or say constant: drop under data", t.Inputs[k], yamlName(t.Inputs[k]))
		}
		if d.LevelsOf(k) == nil {
			d.XScale[k] = scale
		}
	}
	y, tr, err := transformed(t, opt.Transform, in)
	if err != nil {
		return nil, err
	}
	d.Transform, d.Offset = tr, t.OffsetOf
	if d.Shifted = t.OffsetOf != "" && !opt.RawTarget; d.Shifted {
		y = less(y, t.Offset)
	}
	d.describe(opt.Unordered)
	if opt.Standardize && !opt.RawTarget {
		d.YScale = scaleOf(pick(y, in))
		if d.YScale.SD == 0 {
			return nil, fmt.Errorf("the target %q is constant in the rows that are not held out, or its values differ by less than numbers can tell: multiply it by a large number", t.Target)
		}
	}
	d.X, d.Y = d.rows(t, y, in)
	if held > 0 {
		d.HoldoutX, d.HoldoutY = d.rows(t, y, out)
	}
	if err := d.noised(t, in, out); err != nil {
		return nil, err
	}
	d.offsets(t, in, out)
	d.SHA256 = d.hash()
	return d, nil
}

// describe notes what categories and dates are.
func (d *Dataset) describe(unordered bool) {
	switch {
	case unordered:
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is one of %d classes without an order: %s", yamlName(d.Target), len(d.Classes), list(d.Classes)))
	case len(d.Classes) == 2:
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is a class: %s is 0, %s is 1", yamlName(d.Target), yamlName(d.Classes[0]), yamlName(d.Classes[1])))
	case len(d.Classes) > 2:
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is one of %d classes in order: %s", yamlName(d.Target), len(d.Classes), list(d.Classes)))
	}
	if d.Offset != "" {
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is the offset: it is added to what is learnt, in the units of %s", yamlName(d.Offset), d.linear()))
	}
	for k, name := range d.InputNames {
		if names := d.LevelsOf(k); names != nil {
			d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is a category of %d levels: %s", yamlName(name), len(names), list(names)))
		}
		if date := d.DateOf(k); date.Unit != "" {
			d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s is in %s", yamlName(name), date.Since()))
		}
	}
}

func scaleOf(x []float64) Scale {
	mean := stat.Mean(x, nil)
	var ss float64
	for _, v := range x {
		ss += (v - mean) * (v - mean)
	}
	return Scale{mean, math.Sqrt(ss / float64(len(x)))}
}

func pick[T any](x []T, rows []int) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = x[r]
	}
	return out
}

// rows returns the given rows of a table and its targets as they are learnt, standardised.
func (d *Dataset) rows(t *Table, targets []float64, rows []int) (*kernel.Inputs, []float64) {
	k := len(t.Inputs)
	x, y := make([]float64, len(rows)*k), make([]float64, len(rows))
	for i, r := range rows {
		for j := range k {
			x[i*k+j] = d.XScale[j].Apply(t.X[j][r])
		}
		y[i] = d.YScale.Apply(targets[r])
	}
	return kernel.NewInputs(len(rows), k, x), y
}

func (d *Dataset) hash() string {
	h := sha256.New()
	var b [8]byte
	put := func(x uint64) {
		binary.LittleEndian.PutUint64(b[:], x)
		h.Write(b[:])
	}
	put(uint64(d.N()))
	put(uint64(d.D()))
	for i, y := range d.Y {
		for _, x := range d.X.Row(i) {
			put(math.Float64bits(x))
		}
		put(math.Float64bits(y))
		for _, b := range bits(d.RowNoise, i) {
			put(b)
		}
		if d.RowOffset != nil && !d.Shifted {
			put(offsetMark)
			put(math.Float64bits(d.RowOffset[i]))
		}
	}
	for _, names := range append(slices.Clip(d.Levels), d.Classes) {
		for _, name := range names {
			put(uint64(len(name)))
			h.Write([]byte(name))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
