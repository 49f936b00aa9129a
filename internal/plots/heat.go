package plots

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Heat is a table of numbers: Z[row][col], NaN where there is none. A name of a
// column may have several lines.
type Heat struct {
	Title      string
	Rows, Cols []string
	Z          [][]float64
}

// cells makes a table a grid for gonum, the first row at the top.
type cells struct{ Heat }

func (h cells) Dims() (c, r int)   { return len(h.Cols), len(h.Rows) }
func (h cells) X(c int) float64    { return float64(c) }
func (h cells) Y(r int) float64    { return float64(r) }
func (h cells) Z(c, r int) float64 { return h.Heat.Z[len(h.Rows)-1-r][c] }

// HeatMap draws tables one above the other, blue below zero and red above, fully
// so at ±limit, with the numbers in the cells. xlabel says what the columns are,
// note what the numbers are.
func HeatMap(w io.Writer, tables []Heat, xlabel, note string, limit float64) error {
	scale := moreland.SmoothBlueRed()
	scale.SetMin(-limit)
	scale.SetMax(limit)
	colours := scale.Palette(101)
	f := newFigure(tables[0].Title+" — "+note, "Tables of numbers as colours, blue below zero and red above.", nil)
	f.height = vg.Length(len(tables[0].Rows))*0.5*vg.Centimeter + 3*vg.Centimeter
	for i, t := range tables {
		p := newPlot(t.Title, xlabel, "")
		if i == 0 {
			p.Title.Text = ""
		}
		h := plotter.NewHeatMap(cells{t}, colours)
		h.Min, h.Max = -limit, limit
		ends := colours.Colors()
		h.Underflow, h.Overflow = ends[0], ends[len(ends)-1]
		p.Add(h)
		if err := numbers(p, t); err != nil {
			return err
		}
		p.X.Tick.Marker, p.Y.Tick.Marker = labels(t.Cols), labels(reversed(t.Rows))
		p.X.Tick.Length, p.Y.Tick.Length = 0, 0
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XCenter, draw.YTop
		f.add(p)
	}
	return f.write(w)
}

// numbers writes the numbers into the cells.
func numbers(p *plot.Plot, t Heat) error {
	var at plotter.XYLabels
	for r := range t.Rows {
		for c, z := range t.Z[r] {
			if !math.IsNaN(z) {
				at.XYs = append(at.XYs, plotter.XY{X: float64(c), Y: float64(len(t.Rows) - 1 - r)})
				at.Labels = append(at.Labels, fmt.Sprintf("%.1f", math.Round(10*z)/10+0)) // no −0
			}
		}
	}
	l, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	for i := range l.TextStyle {
		l.TextStyle[i].Font = p.X.Tick.Label.Font // black, on colours that are the same in the dark
		l.TextStyle[i].XAlign, l.TextStyle[i].YAlign = draw.XCenter, draw.YCenter
	}
	p.Add(l)
	return nil
}

func labels(names []string) plot.ConstantTicks {
	var t plot.ConstantTicks
	for i, n := range names {
		t = append(t, plot.Tick{Value: float64(i), Label: n})
	}
	return t
}

func reversed(x []string) []string {
	y := make([]string, 0, len(x))
	for i := len(x) - 1; i >= 0; i-- {
		y = append(y, x[i])
	}
	return y
}
