package plots

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// maxPairs bounds the parameters of a pair plot, and pairPoints the draws that
// one of its panels shows.
const (
	maxPairs   = 6
	pairPoints = 600
)

// Pairs draws the draws of every pair of parameters, up to six of them, with the
// density of each on the diagonal and the correlation above it. Colours are those of the chains, or, where there are several, of the modes.
func Pairs(w io.Writer, d Draws, opts ...Option) error {
	note := ""
	if len(d.Names) > maxPairs {
		note = fmt.Sprintf(", the first %d parameters", maxPairs)
		d.Names, d.X = d.Names[:maxPairs], d.X[:maxPairs]
	}
	what := "Draws of two parameters against each other, and their correlation"
	if len(d.Modes) > 1 {
		what += "; colours tell the modes"
	}
	f := newFigure("Pairs of parameters"+note+d.thinned(), d.say(what), opts)
	n := len(d.Names)
	f.height = max(2.6*vg.Centimeter, f.width/vg.Length(max(2, n)+1))
	for r := range n {
		row := make([]*plot.Plot, n)
		for c := range n {
			p := newPlot("", "", "")
			p.X.Tick.Marker, p.Y.Tick.Marker = few{}, few{}
			if r == n-1 {
				p.X.Label.Text = d.Names[c]
			}
			if c == 0 {
				p.Y.Label.Text = d.Names[r]
			}
			var err error
			switch {
			case r == c:
				gx, gy := kde(d.X[r]...)
				p.Y.Tick.Marker = plot.ConstantTicks{}
				if c > 0 {
					p.Y.Label.Text = ""
				} else {
					p.Y.Label.Text = "density"
				}
				err = f.line(p, gx, gy, stroke{colour: ink, width: vg.Points(1.2)})
			case r > c:
				f.clouds(p, d, c, r)
			default:
				err = correlation(p, d.X[c], d.X[r])
			}
			if err != nil {
				return err
			}
			row[c] = p
		}
		f.rows = append(f.rows, row)
	}
	return f.write(w)
}

// clouds adds the draws of parameter r against those of c, a colour for each mode, or else for each chain.
func (f *figure) clouds(p *plot.Plot, d Draws, c, r int) {
	if len(d.Modes) > 1 {
		for m, part := range byMode(d, c, r) {
			p.Add(dots(part[0], part[1], max(8, pairPoints*len(part[0])/max(1, d.size(r))), colour(m)))
			f.key(stroke{name: d.Modes[m], colour: colour(m), width: vg.Points(3)})
		}
		return
	}
	for k := range d.X[r] {
		p.Add(dots(d.X[c][k], d.X[r][k], max(8, pairPoints/len(d.X[r])), colour(k)))
		if len(d.X[r]) <= maxLegend {
			f.key(stroke{name: chainName(k), colour: colour(k), width: vg.Points(3)})
		}
	}
}

// byMode returns the draws of parameters c and r, those of each mode.
func byMode(d Draws, c, r int) [][2][]float64 {
	out := make([][2][]float64, len(d.Modes))
	for k, labels := range d.Mode {
		for t, m := range labels {
			out[m][0], out[m][1] = append(out[m][0], d.X[c][k][t]), append(out[m][1], d.X[r][k][t])
		}
	}
	return out
}

// size is the number of draws of a parameter.
func (d Draws) size(i int) (n int) {
	for _, x := range d.X[i] {
		n += len(x)
	}
	return n
}

// few are ticks for a small panel: three with labels at most.
type few struct{}

func (few) Ticks(lo, hi float64) []plot.Tick {
	all := ticks{}.Ticks(lo, hi)
	var out []plot.Tick
	for _, t := range all {
		if t.Label != "" {
			out = append(out, t)
		}
	}
	for len(out) > 3 {
		for i := 0; i < len(out); i++ { // every second
			out = append(out[:i], out[min(i+1, len(out)):]...)
		}
	}
	return out
}

// scatter draws points as one path, which is a tenth of as many circles.
type scatter struct {
	pts    plotter.XYs
	colour color.Color
}

// dots returns some of the points (x, y), most at most, evenly spaced.
func dots(x, y []float64, most int, c color.Color) *scatter {
	s := &scatter{colour: c}
	every := 1 + (len(x)-1)/most
	for i := 0; i < len(x); i += every {
		s.pts = append(s.pts, plotter.XY{X: x[i], Y: y[i]})
	}
	return s
}

// dotSize is the side of a point.
const dotSize = 1.3

func (s *scatter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var path vg.Path
	for _, q := range s.pts {
		at := vg.Point{X: x(q.X), Y: y(q.Y)}
		path.Move(vg.Point{X: at.X - dotSize/2, Y: at.Y})
		path.Line(vg.Point{X: at.X + dotSize/2, Y: at.Y})
	}
	if len(s.pts) > 0 {
		c.SetLineStyle(draw.LineStyle{Color: s.colour, Width: dotSize})
		c.Stroke(path)
	}
}

func (s *scatter) DataRange() (xmin, xmax, ymin, ymax float64) { return plotter.XYRange(s.pts) }

// correlation makes a panel that holds nothing but a correlation.
func correlation(p *plot.Plot, x, y [][]float64) error {
	p.HideAxes()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	var a, b []float64
	for c := range x {
		a, b = append(a, x[c]...), append(b, y[c]...)
	}
	r := math.NaN()
	if len(a) > 1 {
		r = stat.Correlation(a, b, nil)
	}
	words := "—"
	if !math.IsNaN(r) {
		words = fmt.Sprintf("%+.2f", r)
	}
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: 0.5, Y: 0.5}}, Labels: []string{words}})
	if err != nil {
		return err
	}
	for i := range l.TextStyle {
		l.TextStyle[i] = restyle(l.TextStyle[i], 10)
		l.TextStyle[i].XAlign, l.TextStyle[i].YAlign = draw.XCenter, draw.YCenter
	}
	p.Add(l)
	return nil
}
