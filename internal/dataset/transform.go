package dataset

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// Undo returns a target as it is computed with to the user's units.
func (i *Info) Undo(z float64) float64 { return i.Transform.Inverse(i.YScale.Undo(z)) }

// Told returns the distribution of a target as it is computed with in the user's units.
func (i *Info) Told(p likelihood.Predictive) likelihood.Predictive {
	return likelihood.Transformed(p.Scaled(i.YScale.Mean, i.YScale.SD), i.Transform)
}

// Learnt says in what form the target is learnt, and thus in what units its variances are: the target's name, or
// that with its transform.
func (i *Info) Learnt() string {
	switch t := i.Transform; t.Kind {
	case likelihood.None:
		return i.Target
	case likelihood.YeoJohnson:
		return fmt.Sprintf("%s(%s, λ=%g)", t.Kind, i.Target, t.Lambda)
	default:
		return fmt.Sprintf("%s(%s)", t.Kind, i.Target)
	}
}

// transformed returns the targets of a table as they are learnt, before they are standardised, with the transform,
// which the given rows decide.
func transformed(t *Table, kind string, rows []int) ([]float64, likelihood.Transform, error) {
	if kind == likelihood.None {
		return t.Y, likelihood.Transform{}, nil
	}
	for i, y := range t.Y {
		if err := (likelihood.Transform{Kind: kind}).Check(y); err != nil {
			return nil, likelihood.Transform{}, fmt.Errorf("the target %q of row %d: %w", t.Target, i+1, err)
		}
	}
	tr, out := likelihood.Fit(kind, pick(t.Y, rows)), make([]float64, len(t.Y))
	for i, y := range t.Y {
		out[i] = tr.Forward(y)
	}
	return out, tr, nil
}
