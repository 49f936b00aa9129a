package dataset

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The names of the columns that tables of binned events have beside the coordinates: how many events are in the cell, and the
// logarithm of its size, which is the offset.
const (
	EventsColumn = "events"
	CellColumn   = "log_cell"
)

// Axis is how a coordinate of events is cut into cells: equal ones from Lo to Hi.
type Axis struct {
	Name   string
	Lo, Hi float64
	Cells  int
}

// Bin returns the counts of a table's rows, which are events, in the cells of a grid, the last coordinate's running fastest: with
// the centres as inputs and the logarithm of the cells' size as offset, so that what is learnt under a likelihood of counts is the
// intensity, in events for each unit of length, area or volume. All events have to be in the window, to which its ends belong.
func (t *Table) Bin(axes []Axis) (*Table, error) {
	cells, size := 1, 1.0
	out := &Table{Target: EventsColumn, OffsetOf: CellColumn, X: make([][]float64, len(axes)), Dates: t.Dates}
	for _, a := range axes {
		cells, size = cells*a.Cells, size*(a.Hi-a.Lo)/float64(a.Cells)
		out.Inputs = append(out.Inputs, a.Name)
	}
	out.Y, out.Offset = make([]float64, cells), slices.Repeat([]float64{math.Log(size)}, cells)
	for cell := range cells {
		rest := cell
		for k := len(axes) - 1; k >= 0; k-- {
			a := axes[k]
			out.X[k] = append(out.X[k], a.Lo+(a.Hi-a.Lo)*(float64(rest%a.Cells)+0.5)/float64(a.Cells))
			rest /= a.Cells
		}
	}
	for row := range t.Rows() {
		cell := 0
		for _, a := range axes {
			x := t.X[slices.Index(t.Inputs, a.Name)][row]
			if !(x >= a.Lo && x <= a.Hi) {
				return nil, fmt.Errorf("row %d: %s is %g, outside of the window from %g to %g: widen the window, or leave out what is not in it", t.Number(row)+1, yamlName(a.Name), x, a.Lo, a.Hi)
			}
			cell = cell*a.Cells + min(a.Cells-1, int((x-a.Lo)/(a.Hi-a.Lo)*float64(a.Cells)))
		}
		out.Y[cell]++
	}
	out.note("%d events in %d cells, each of size %.6g: where %s is 0 predictions are the intensity, in events for each unit of %s", t.Rows(), cells, size, CellColumn, strings.Join(out.Inputs, " times "))
	return out, nil
}
