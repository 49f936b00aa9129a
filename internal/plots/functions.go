package plots

import (
	"fmt"
	"io"

	"gonum.org/v1/plot/vg"
)

// Functions is a panel of functions of one input, with observations to compare with.
type Functions struct {
	Name string      // of the input
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
		p.Add(dots(panel.At, panel.Target, mostObserved, muted))
		for i, y := range panel.Y {
			s := stroke{colour: colour(i), width: vg.Points(0.8)}
			if err := f.line(p, panel.X, y, s); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}
