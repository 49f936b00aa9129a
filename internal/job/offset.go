package job

import (
	"slices"

	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// faultOfOffset says what is wrong with the column of offsets, or "".
func (s *Spec) faultOfOffset() string {
	d, noise := &s.Data, s.NoiseColumns()
	if noise == nil {
		noise = &dataset.Noise{}
	}
	switch {
	case d.Offset == "":
	case d.Synthetic != nil:
		return "generated data have no such column: leave it out, or give data.path"
	case d.Offset == d.Target:
		return "this is the target: name another column"
	case slices.Contains(d.Exclude, d.Offset):
		return "this column is excluded: take it off data.exclude"
	case slices.Contains(d.Inputs, d.Offset):
		return "this column is one of data.inputs: it is known what it adds, and an input's effect is learnt; it cannot be both"
	case d.Offset == d.Trials:
		return "this column says how many trials the rows have: it cannot be both"
	case slices.Contains([]string{noise.Column, noise.Weights, noise.By}, d.Offset):
		return "this column says what noise the rows have: it cannot be both"
	}
	return ""
}
