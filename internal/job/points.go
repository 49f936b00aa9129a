package job

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// Ranges are pairs of numbers, from and to, by the names of columns.
type Ranges map[string][]float64

// maxCells bounds a grid of events, and maxCoordinates its dimension.
const (
	maxCells       = 1_000_000
	maxCoordinates = 3
)

// OffsetColumn returns the column of the table, as it is learnt from, that holds offsets; empty for none.
func (s *Spec) OffsetColumn() string {
	if len(s.Data.Points) > 0 {
		return dataset.CellColumn
	}
	return s.Data.Offset
}

// axes returns how the events' coordinates are cut.
func (d *Data) axes() ([]dataset.Axis, error) {
	var out []dataset.Axis
	numbers := strings.Split(d.Grid, "x")
	if len(numbers) != len(d.Points) {
		return nil, &FieldError{Path: "data.grid", Msg: fmt.Sprintf("%q are not the numbers of cells along %s: write one for each, with x between them, such as 64x64", d.Grid, strings.Join(d.Points, " and "))}
	}
	total := 1.0
	for k, name := range d.Points {
		cells, err := strconv.Atoi(numbers[k])
		if total *= float64(cells); err != nil || cells < 1 || total > maxCells {
			return nil, &FieldError{Path: "data.grid", Msg: fmt.Sprintf("%q: numbers of cells are whole numbers from 1, %d cells in all at most", d.Grid, maxCells)}
		}
		w := d.Window[name]
		if len(w) != 2 || !(w[0] < w[1]) || math.IsInf(w[1]-w[0], 0) {
			return nil, &FieldError{Path: "data.window", Msg: fmt.Sprintf("of %s a window needs where it begins and where it ends, in that order: where no event was seen outside of it says nothing, where none was seen inside does", name)}
		}
		out = append(out, dataset.Axis{Name: name, Lo: w[0], Hi: w[1], Cells: cells})
	}
	if total < 2 {
		return nil, &FieldError{Path: "data.grid", Msg: "one cell says nothing of how the intensity varies: give at least 2"}
	}
	return out, nil
}

// binned reads events and counts them in the cells of the grid.
func (d *Data) binned(table io.Reader, label string) (*dataset.Table, error) {
	if label != "" {
		return nil, &FieldError{Path: "data.points", Msg: fmt.Sprintf("cells of events have no column %q to be cut by", label)}
	}
	axes, err := d.axes()
	if err != nil {
		return nil, err
	}
	sel, err := d.selection()
	if err != nil {
		return nil, err
	}
	sel.Target, sel.Inputs, sel.Points = dataset.EventsColumn, d.Points, true
	t, err := dataset.ReadFile(d.Path, table, sel, dataset.DefaultLimits)
	if err != nil {
		return nil, err
	}
	if t, err = t.Bin(axes); err != nil {
		return nil, &FieldError{Path: "data.window", Msg: err.Error()}
	}
	return t, nil
}

// faultOfPoints is fault for what is said of events.
func (s *Spec) faultOfPoints() (path, msg string) {
	d := &s.Data
	if len(d.Points) == 0 {
		if d.Grid != "" || len(d.Window) > 0 {
			return "data", "window: and grid: are of events: name the columns of their coordinates, points:, or leave them out"
		}
		return "", ""
	}
	switch {
	case d.Path == "":
		return "data.points", "events are rows of a table: give path:"
	case d.Target+d.Offset+d.Weights+d.Trials+d.Missing+d.Constant != "" || len(d.Inputs)+len(d.Exclude)+len(d.Categories)+len(d.Levels)+d.Rows > 0:
		return "data.points", "events have coordinates alone, and what is learnt from are their numbers in the cells of the grid: beside points:, window: and grid: there are path:, dates:, holdout: and standardize:"
	case len(d.Points) > maxCoordinates:
		return "data.points", fmt.Sprintf("%d coordinates: a grid is over %d at most", len(d.Points), maxCoordinates)
	case s.Model.Likelihood != "poisson" && s.Model.Likelihood != "negative-binomial":
		return "model.likelihood", fmt.Sprintf("events in cells are counts, which %s cannot have made: use poisson, or negative-binomial", s.Model.Likelihood)
	}
	for i, name := range d.Points {
		if slices.Contains(d.Points[:i], name) || name == dataset.EventsColumn || name == dataset.CellColumn {
			return "data.points", fmt.Sprintf("%q cannot be the name of a coordinate, or is named twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Window)) {
		if !slices.Contains(d.Points, name) {
			return "data.window." + name, "it is none of data.points"
		}
	}
	if _, err := d.axes(); err != nil {
		f := err.(*FieldError)
		return f.Path, f.Msg
	}
	return "", ""
}
