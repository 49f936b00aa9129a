// Package plots draws the pictures that people look at before they believe a
// posterior, as SVG: traces, densities, ranks, running diagnostics,
// autocorrelation, pairs of parameters, the course of a computation. The same
// code serves the files of a run, its report and the dashboard.
//
// A picture has a bounded number of points, whatever the number of draws; it
// names itself to screen readers, follows a dark colour scheme where its viewer
// has one, and uses colours that colour-blind readers can tell apart.
package plots

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Draws are draws of several parameters: X[i][c][t] is draw t of chain c of the
// parameter Names[i].
type Draws struct {
	Names []string
	X     [][][]float64
	// First is the number of draws of each chain before these, and Every how far
	// apart they are, if they are some of many. Zero means 1.
	First, Every int
	// Modes names the posterior's modes, if there are several, and Mode[c][t] is that of draw t of chain c.
	Modes []string
	Mode  [][]int
}

// at returns the number, from 1, of the draws t = 0, 1, … among all.
func (d Draws) at(n int) []float64 {
	x := make([]float64, n)
	for t := range x {
		x[t] = float64(d.First + 1 + t*max(1, d.Every))
	}
	return x
}

// thinned says so if not all draws are there.
func (d Draws) thinned() string {
	switch {
	case d.Every > 1:
		return fmt.Sprintf(", one draw of %d", d.Every)
	case d.First > 0 && len(d.X) > 0 && len(d.X[0]) > 0:
		return fmt.Sprintf(", last %d draws", len(d.X[0][0]))
	}
	return ""
}

// Option changes how a picture is drawn.
type Option func(*figure)

// Narrow makes a picture for a narrow screen: as large letters on half the
// width.
func Narrow() Option { return func(f *figure) { f.width = narrowWidth } }

// The size of one panel.
const (
	panelWidth  = 16 * vg.Centimeter
	narrowWidth = 9 * vg.Centimeter
	panelHeight = 4.5 * vg.Centimeter
)

// The most points that a line has, and the lines of a panel together; longer
// series are thinned so that their extremes stay.
const (
	maxPoints      = 1500
	maxPanelPoints = 12000
	minPoints      = 60
)

// pointsOf returns the most points of each of n lines in a panel.
func pointsOf(n int) int { return min(maxPoints, max(minPoints, maxPanelPoints/max(1, n))) }

// maxLegend is the number of chains up to which a legend names them.
const maxLegend = 8

// figure is a picture: a title, a legend, and panels below.
type figure struct {
	title, desc string
	keys        []stroke // of the legend
	rows        [][]*plot.Plot
	width       vg.Length
	height      vg.Length // of a row
}

// newFigure returns an empty picture. desc says in a sentence what is to be seen.
func newFigure(title, desc string, opts []Option) *figure {
	f := &figure{title: title, desc: desc, width: panelWidth, height: panelHeight}
	for _, o := range opts {
		o(f)
	}
	return f
}

// add adds a panel below the others.
func (f *figure) add(p *plot.Plot) { f.rows = append(f.rows, []*plot.Plot{p}) }

// write writes the picture.
func (f *figure) write(w io.Writer) error {
	if len(f.rows) == 0 {
		f.add(newPlot("", "", ""))
	}
	head := f.header(nil)
	c := vgsvg.New(f.width, head+f.height*vg.Length(len(f.rows)))
	dc := draw.New(c)
	dc.SetColor(paper)
	dc.Fill(dc.Rectangle.Path())
	f.header(&dc)
	t := draw.Tiles{Rows: len(f.rows), Cols: len(f.rows[0]), PadX: 2 * vg.Millimeter, PadY: 2 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for j, row := range plot.Align(f.rows, t, draw.Crop(dc, 0, 0, 0, -head)) {
		for i, p := range f.rows[j] {
			if p != nil {
				p.Draw(row[i])
			}
		}
	}
	return finish(w, c, f.title, f.desc)
}

// The header's measures.
const (
	margin  = 8
	titleAt = 14 // of its base line, from the top
	keyLine = 12 // from one line of the legend to the next
	keyMark = 14 // the length of a line in the legend
	keyGap  = 4
)

// header draws the title and the legend below it, as many lines as they need,
// onto c unless it is nil, and returns their height.
func (f *figure) header(c *draw.Canvas) vg.Length {
	title, keys := text(11), text(8)
	if c != nil {
		c.FillText(title, vg.Point{X: c.Min.X + margin, Y: c.Max.Y - titleAt}, f.title)
	}
	x, y := vg.Length(margin), vg.Length(titleAt+keyLine)
	for i, k := range f.keys {
		width := keyMark + keyGap + keys.Width(k.name)
		if i > 0 && x+width > f.width-margin {
			x, y = margin, y+keyLine
		}
		if c != nil {
			at := vg.Point{X: c.Min.X + x, Y: c.Max.Y - y}
			style := draw.LineStyle{Color: k.colour, Width: max(k.width, vg.Points(1.2))}
			if k.dashed {
				style.Dashes = dashes
			}
			c.StrokeLine2(style, at.X, at.Y+2.5, at.X+keyMark, at.Y+2.5)
			c.FillText(keys, vg.Point{X: at.X + keyMark + keyGap, Y: at.Y}, k.name)
		}
		x += width + 2*margin
	}
	if len(f.keys) == 0 {
		y -= keyLine
	}
	return y + keyGap
}

var dashes = []vg.Length{vg.Points(3), vg.Points(2)}

// text is the style of words of a size in points.
func text(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler}
}

// newPlot returns an empty panel.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the figure's
	p.Title.Text = title
	p.Title.TextStyle = restyle(p.Title.TextStyle, 9)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = ink, ink
		a.Tick.Length, a.Padding = vg.Points(4), vg.Points(3)
		a.Label.TextStyle, a.Tick.Label = restyle(a.Label.TextStyle, 9), restyle(a.Tick.Label, 8)
		a.Tick.Marker = ticks{}
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Vertical.Color = faint, nil
	p.Add(g)
	return p
}

// restyle changes the font and the colour of words.
func restyle(s draw.TextStyle, size vg.Length) draw.TextStyle {
	t := text(size)
	s.Font, s.Color = t.Font, t.Color
	return s
}

// ticks are gonum's ticks with labels no longer than they need to be.
type ticks struct{}

// Ticks returns the ticks of an axis.
func (ticks) Ticks(lo, hi float64) []plot.Tick {
	t := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range t {
		if t[i].Label != "" {
			t[i].Label = strconv.FormatFloat(t[i].Value, 'g', 5, 64)
		}
	}
	return t
}

// stroke is how a line is drawn.
type stroke struct {
	name   string // in the legend, once; none if empty
	colour color.Color
	width  vg.Length
	dashed bool
	most   int // points; 0 means maxPoints
}

// line adds a line through the finite ones of the points (x, y) to a panel.
func (f *figure) line(p *plot.Plot, x, y []float64, s stroke) error {
	if s.most == 0 {
		s.most = maxPoints
	}
	pts := thin(x, y, s.most)
	if len(pts) == 0 {
		return nil
	}
	l, err := plotter.NewLine(pts)
	if err != nil {
		return err
	}
	l.Color, l.Width = s.colour, s.width
	if s.dashed {
		l.Dashes = dashes
	}
	p.Add(l)
	f.key(s)
	return nil
}

// key names a line in the legend.
func (f *figure) key(s stroke) {
	if s.name != "" && !slices.ContainsFunc(f.keys, func(k stroke) bool { return k.name == s.name }) {
		f.keys = append(f.keys, s)
	}
}

// level adds a dashed horizontal line from x[0] to the last x.
func (f *figure) level(p *plot.Plot, x []float64, y float64, name string) error {
	if len(x) == 0 {
		return nil
	}
	return f.line(p, []float64{x[0], x[len(x)-1]}, []float64{y, y}, stroke{name: name, colour: muted, width: vg.Points(0.8), dashed: true})
}

// band adds the area between y = lo and y = hi from x[0] to the last x.
func (f *figure) band(p *plot.Plot, x []float64, lo, hi float64, name string) error {
	a, b := x[0], x[len(x)-1]
	area, err := plotter.NewPolygon(plotter.XYs{{X: a, Y: lo}, {X: b, Y: lo}, {X: b, Y: hi}, {X: a, Y: hi}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = shade, 0
	p.Add(area)
	f.key(stroke{name: name, colour: shade, width: vg.Points(6)})
	return nil
}

// thin returns the finite ones of the points (x, y). If they are more than most
// only the least and the greatest of each of most/2 stretches are taken, so that
// what sticks out is seen.
func thin(x, y []float64, most int) plotter.XYs {
	var pts plotter.XYs
	for i := range y {
		if !math.IsNaN(y[i]) && !math.IsInf(y[i], 0) {
			pts = append(pts, plotter.XY{X: x[i], Y: y[i]})
		}
	}
	if len(pts) <= most {
		return pts
	}
	stretches := max(1, most/2)
	out := make(plotter.XYs, 0, 2*stretches)
	for s := range stretches {
		lo, hi := s*len(pts)/stretches, (s+1)*len(pts)/stretches
		least, greatest := lo, lo
		for i := lo; i < hi; i++ {
			if pts[i].Y < pts[least].Y {
				least = i
			}
			if pts[i].Y > pts[greatest].Y {
				greatest = i
			}
		}
		out = append(out, pts[min(least, greatest)])
		if least != greatest {
			out = append(out, pts[max(least, greatest)])
		}
	}
	return out
}

func chainName(c int) string { return fmt.Sprintf("chain %d", c+1) }

// chainStroke is how chain c of n is drawn; the legend names it if there are few.
func chainStroke(c, n int) stroke {
	s := stroke{colour: colour(c), width: vg.Points(0.7), most: pointsOf(n)}
	if n <= maxLegend {
		s.name = chainName(c)
	}
	return s
}
