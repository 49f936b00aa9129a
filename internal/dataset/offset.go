package dataset

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// offsetMark stands before an offset in the data's hash.
const offsetMark = 4

// offsetColumn returns the index of the column of offsets in a header, -1 if none is asked for. Points need it, too,
// but those of a Cox process.
func (sel Select) offsetColumn(file string, header []string) (int, error) {
	if sel.Offset == "" {
		return -1, nil
	}
	if at := slices.Index(header, sel.Offset); at >= 0 {
		return at, nil
	}
	if sel.Points && sel.Offset == CellColumn && sel.Target == EventsColumn {
		return -1, nil // places, not cells: what is predicted there is the intensity
	}
	msg := fmt.Sprintf("there is no column %q, which offset: names", sel.Offset)
	if sel.Points {
		msg = fmt.Sprintf("there is no column %q, which is the offset of the rows that were learnt from: add it, as 0 where nothing is known", sel.Offset)
	} else if near, ok := nearest.Word(sel.Offset, header); ok {
		msg += fmt.Sprintf(": did you mean %s?", yamlName(near))
	} else {
		msg += "; the columns are " + list(header)
	}
	return 0, &Error{File: file, Line: 1, Msg: msg}
}

// offsets takes the offsets of a data set's rows from its table.
func (d *Dataset) offsets(t *Table, in, out []int) {
	if t.OffsetOf == "" {
		return
	}
	d.RowOffset, d.HoldoutOffset = d.StandardOffset(pick(t.Offset, in)), pick(t.Offset, out)
}

// StandardOffset returns offsets, in original units, as they are added to the latent function that is computed with; nil of nil.
func (i *Info) StandardOffset(offset []float64) []float64 {
	if offset == nil {
		return nil
	}
	out := slices.Clone(offset)
	floats.Scale(1/i.YScale.SD, out)
	return out
}

// OffsetOf returns the standardised offsets of training rows, nil for none.
func (d *Dataset) OffsetOf(rows []int) []float64 {
	if d.RowOffset == nil {
		return nil
	}
	return pick(d.RowOffset, rows)
}

// Observed returns the target of a training row, in the user's units.
func (d *Dataset) Observed(row int) float64 {
	if !d.Shifted {
		return d.Undo(d.Y[row])
	}
	return d.Undo(d.Y[row] + d.RowOffset[row])
}

// ObservedHoldout is Observed of a row that is held out.
func (d *Dataset) ObservedHoldout(row int) float64 {
	if !d.Shifted {
		return d.Undo(d.HoldoutY[row])
	}
	return d.Undo(d.HoldoutY[row] + d.HoldoutOffset[row]/d.YScale.SD)
}

// linear says in what units the latent function is.
func (d *Dataset) linear() string {
	if d.Shifted {
		return d.Learnt()
	}
	return "the latent function of " + d.Target
}

// less returns the differences of two columns.
func less(x, y []float64) []float64 {
	out := make([]float64, len(x))
	floats.SubTo(out, x, y)
	return out
}
