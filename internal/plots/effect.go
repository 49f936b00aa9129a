package plots

import (
	"io"
	"slices"

	"gonum.org/v1/plot/vg"
)

// Curve is a function with its uncertainty: Lo and Hi are the ends of the band around it, nil for none.
type Curve struct {
	Name         string // in the legend
	X, Y, Lo, Hi []float64
}

const effectHeight = 7.5 * vg.Centimeter

// Effect draws what a function of the input x is like, one curve or several. band names the band of the
// curves that have one.
func Effect(w io.Writer, title, x, y, band string, curves []Curve, opts ...Option) error {
	return Curves(w, title, "How "+y+" depends on "+x+", the other inputs being as they are in the data", x, y, band, curves, opts...)
}

// Curves draws functions of x, described by a text, as Effect does.
func Curves(w io.Writer, title, text, x, y, band string, curves []Curve, opts ...Option) error {
	f := newFigure(title, text, opts)
	f.height = effectHeight
	p := newPlot("", x, y)
	for _, c := range curves {
		if c.Lo == nil {
			continue
		}
		if err := f.between(p, c.X, c.Lo, c.Hi, band); err != nil {
			return err
		}
	}
	for i, c := range curves {
		if err := f.line(p, c.X, c.Y, stroke{name: c.Name, colour: colour(i), width: vg.Points(1.4)}); err != nil {
			return err
		}
	}
	f.add(p)
	return f.write(w)
}

// mostCurves is how many curves eyes can tell apart in one panel.
const mostCurves = 6

// Some returns which of n curves to draw: all, or as many as can be told apart, evenly spaced with the first
// and the last.
func Some(n int) []int {
	var out []int
	for i := range min(n, mostCurves) {
		out = append(out, i*(n-1)/max(1, min(n, mostCurves)-1))
	}
	return slices.Compact(out)
}
