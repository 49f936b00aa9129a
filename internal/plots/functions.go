package plots

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Functions is a panel of functions of one input, with observations to compare with.
type Functions struct {
	Axis             // the input
	X    []float64   // grid
	Y    [][]float64 // function × grid
	// Observed targets at the values of the input.
	At, Target []float64
}

// mostObserved is how many observations a panel shows.
const mostObserved = 500

// DrawFunctions draws functions from a prior, a panel for each input.
func DrawFunctions(w io.Writer, target string, panels []Functions, opts ...Option) error {
	f := newFigure("Functions drawn from the prior", fmt.Sprintf("What %s is like along each input before anything is learnt, beside the observed targets", target), opts)
	for _, panel := range panels {
		p := newPlot("", panel.Name, target)
		panel.mark(p)
		p.Add(dots(panel.At, panel.Target, mostObserved, muted))
		for i, y := range panel.Y {
			s := stroke{colour: colour(i), width: vg.Points(0.8)}
			draw := f.line
			if panel.Levels != nil {
				draw = f.steps
			}
			if err := draw(p, panel.X, y, s); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}

// steps draws a function over levels: a mark at each.
func (f *figure) steps(p *plot.Plot, x, y []float64, s stroke) error {
	const half = 0.25
	for k := range x {
		if err := f.line(p, []float64{x[k] - half, x[k] + half}, []float64{y[k], y[k]}, s); err != nil {
			return err
		}
	}
	return nil
}
