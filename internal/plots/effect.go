package plots

import (
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Curve is a function with its uncertainty: Lo and Hi are the ends of the band around it, nil for none.
type Curve struct {
	Name         string // in the legend
	X, Y, Lo, Hi []float64
}

const effectHeight = 7.5 * vg.Centimeter

// Axis is an input along which something is drawn: Text, if not nil, tells its values as people write them, and Levels are those
// of a category, whose values are their places.
type Axis struct {
	Name   string
	Text   func(x float64) string
	Levels []string
}

// Effect draws what a function of an input is like, one curve or several; over the levels of a category, which have nothing
// between them, as bars. band names the band of the curves that have one.
func Effect(w io.Writer, title string, x Axis, y, band string, curves []Curve, opts ...Option) error {
	return Curves(w, title, "How "+y+" depends on "+x.Name+", the other inputs being as they are in the data", x, y, band, curves, opts...)
}

// Curves draws functions of x, described by a text, as Effect does.
func Curves(w io.Writer, title, text string, x Axis, y, band string, curves []Curve, opts ...Option) error {
	f := newFigure(title, text, opts)
	f.height = effectHeight
	p := newPlot("", x.Name, y)
	x.mark(p)
	draw := f.curves
	if x.Levels != nil {
		draw = f.bars
	}
	if err := draw(p, band, curves); err != nil {
		return err
	}
	f.add(p)
	return f.write(w)
}

// curves draws curves with their bands: a band as an area, several, which would hide each other, as dashed lines.
func (f *figure) curves(p *plot.Plot, band string, curves []Curve) error {
	bands := 0
	for _, c := range curves {
		if c.Lo != nil {
			bands++
		}
	}
	for i, c := range curves {
		switch {
		case c.Lo == nil:
		case bands == 1:
			if err := f.between(p, c.X, c.Lo, c.Hi, band); err != nil {
				return err
			}
		default:
			f.key(stroke{name: band, colour: muted, width: vg.Points(0.8), dashed: true})
			for _, end := range [][]float64{c.Lo, c.Hi} {
				if err := f.line(p, c.X, end, stroke{colour: colour(i), width: vg.Points(0.8), dashed: true}); err != nil {
					return err
				}
			}
		}
	}
	for i, c := range curves {
		if err := f.line(p, c.X, c.Y, stroke{name: c.Name, colour: colour(i), width: vg.Points(1.4)}); err != nil {
			return err
		}
	}
	return nil
}

// bars draws curves over levels: a mark at each, across the range of its band.
func (f *figure) bars(p *plot.Plot, band string, curves []Curve) error {
	const half, room = 0.12, 0.6 // of a mark, and for those of all curves at a level
	for i, c := range curves {
		shift := room * (float64(i+1)/float64(len(curves)+1) - 0.5)
		for k, x := range c.X {
			x += shift
			if c.Lo != nil {
				if err := f.line(p, []float64{x, x}, []float64{c.Lo[k], c.Hi[k]}, stroke{name: band, colour: shade, width: vg.Points(6)}); err != nil {
					return err
				}
			}
			if err := f.line(p, []float64{x - half, x + half}, []float64{c.Y[k], c.Y[k]}, stroke{name: c.Name, colour: colour(i), width: vg.Points(1.4)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostNamed is how many levels an axis has room to name.
const mostNamed = 20

// mark has a panel tell values of the input as people write them.
func (a Axis) mark(p *plot.Plot) {
	switch {
	case a.Levels != nil:
		every := 1 + (len(a.Levels)-1)/mostNamed
		var at plot.ConstantTicks
		for k := 0; k < len(a.Levels); k += every {
			at = append(at, plot.Tick{Value: float64(k), Label: short(a.Levels[k], every)})
		}
		p.X.Tick.Marker = at
		p.X.Min, p.X.Max = -0.5, float64(len(a.Levels))-0.5
	case a.Text != nil:
		p.X.Tick.Marker = told(a.Text)
	}
}

// short returns a name as far as there is room for it beside others, of which one in so many is told.
func short(name string, every int) string {
	most := 12
	if every > 1 {
		most = 6
	}
	if r := []rune(name); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return name
}

// told are ticks whose values are told as a function says.
type told func(x float64) string

// Ticks returns the ticks of an axis: few, since what tells a value may be long.
func (t told) Ticks(lo, hi float64) []plot.Tick {
	var major []plot.Tick
	for _, m := range (plot.DefaultTicks{}).Ticks(lo, hi) {
		if m.Label != "" {
			major = append(major, plot.Tick{Value: m.Value, Label: t(m.Value)})
		}
	}
	return major
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
