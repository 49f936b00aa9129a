// Package plots draws the pictures that people look at before they believe a
// posterior: trace, density and running R-hat, as SVG. The same code serves the
// files of a run and the dashboard.
package plots

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Draws are draws of several parameters: X[i][c][t] is draw t of chain c of the
// parameter Names[i].
type Draws struct {
	Names []string
	X     [][][]float64
}

// palette is Okabe and Ito's (2008), which colour-blind readers can tell apart,
// without yellow, which is too pale for lines.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0x44, 0x44, 0x44, 0xff},
}

func colour(i int) color.Color { return palette[i%len(palette)] }

// maxPoints bounds the points of a line, so that a file stays small; longer
// series are thinned evenly.
const maxPoints = 1500

// The size of one panel.
const (
	panelWidth  = 16 * vg.Centimeter
	panelHeight = 4.5 * vg.Centimeter
)

// newPlot returns an empty panel.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, y
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		size := f.Size
		*f = sans
		f.Size = size
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(9)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = vg.Points(8), vg.Points(8)
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Legend.Top = true
	p.Legend.Padding = vg.Millimeter
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}
	return p
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

// stack writes the panels one above the other.
func stack(w io.Writer, panels []*plot.Plot) error { return stackOf(w, panels, panelHeight) }

// stackOf is stack with panels of another height.
func stackOf(w io.Writer, panels []*plot.Plot, each vg.Length) error {
	height := each * vg.Length(len(panels))
	c := vgsvg.New(panelWidth, height)
	dc := draw.New(c)
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		rows[i] = []*plot.Plot{p}
	}
	t := draw.Tiles{Rows: len(panels), Cols: 1, PadX: vg.Millimeter, PadY: 2 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, row := range plot.Align(rows, t, dc) {
		panels[i].Draw(row[0])
	}
	_, err := c.WriteTo(w)
	return err
}

// line adds a line of the finite values y over x = 1, 2, … scaled by step.
func line(p *plot.Plot, name string, x, y []float64, c color.Color, width vg.Length, dashed bool) error {
	every := 1 + (len(y)-1)/maxPoints
	var pts plotter.XYs
	for i := 0; i < len(y); i += every {
		if !math.IsNaN(y[i]) && !math.IsInf(y[i], 0) {
			pts = append(pts, plotter.XY{X: x[i], Y: y[i]})
		}
	}
	if len(pts) == 0 {
		return nil
	}
	l, err := plotter.NewLine(pts)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, width
	if dashed {
		l.Dashes = []vg.Length{vg.Points(3), vg.Points(2)}
	}
	p.Add(l)
	if name != "" {
		p.Legend.Add(name, l)
	}
	return nil
}

func counts(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i + 1)
	}
	return x
}

func chainName(c int) string { return fmt.Sprintf("chain %d", c+1) }

// Trace draws every chain of every parameter against the draw.
func Trace(w io.Writer, d Draws) error {
	var panels []*plot.Plot
	for i, name := range d.Names {
		p := newPlot("", "draw", name)
		for c, x := range d.X[i] {
			legend := ""
			if i == 0 && len(d.X[i]) <= 8 {
				legend = chainName(c)
			}
			if err := line(p, legend, counts(len(x)), x, colour(c), vg.Points(0.5), false); err != nil {
				return err
			}
		}
		panels = append(panels, p)
	}
	panels[0].Title.Text = "Trace of each chain"
	return stack(w, panels)
}

// Density draws the marginal density of every parameter, all chains pooled
// (thick) and one by one (thin): kernel estimates with Silverman's bandwidth.
// truth, if not nil, has a value to mark for each parameter, or NaN.
func Density(w io.Writer, d Draws, truth []float64) error {
	var panels []*plot.Plot
	for i, name := range d.Names {
		p := newPlot("", name, "density")
		p.Y.Min = 0
		var all []float64
		for c, x := range d.X[i] {
			all = append(all, x...)
			if len(d.X[i]) > 1 {
				gx, gy := kde(x)
				if err := line(p, "", gx, gy, colour(c), vg.Points(0.6), false); err != nil {
					return err
				}
			}
		}
		gx, gy := kde(all)
		pooled, marked := "", ""
		if i == 0 {
			pooled, marked = "all chains", "truth"
		}
		if err := line(p, pooled, gx, gy, color.Black, vg.Points(1.5), false); err != nil {
			return err
		}
		if truth != nil && !math.IsNaN(truth[i]) {
			top := 0.0
			for _, v := range gy {
				top = max(top, v)
			}
			if err := line(p, marked, []float64{truth[i], truth[i]}, []float64{0, top}, colour(4), vg.Points(1.2), true); err != nil {
				return err
			}
		}
		panels = append(panels, p)
	}
	panels[0].Title.Text = "Marginal posterior densities"
	return stack(w, panels)
}

// kdePoints is the number of points at which a density is drawn.
const kdePoints = 200

// kde returns a Gaussian kernel density estimate on a grid.
func kde(x []float64) (grid, density []float64) {
	if len(x) < 2 {
		return nil, nil
	}
	sd := stat.StdDev(x, nil)
	iqr := diagnostics.Quantile(x, 0.75) - diagnostics.Quantile(x, 0.25)
	h := 0.9 * math.Min(sd, iqr/1.34) * math.Pow(float64(len(x)), -0.2)
	if !(h > 0) {
		h = max(sd, 1e-12)
	}
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	lo, hi = lo-3*h, hi+3*h
	grid, density = make([]float64, kdePoints), make([]float64, kdePoints)
	for i := range grid {
		grid[i] = lo + (hi-lo)*float64(i)/(kdePoints-1)
		for _, v := range x {
			z := (grid[i] - v) / h
			density[i] += math.Exp(-z * z / 2)
		}
		density[i] /= float64(len(x)) * h * math.Sqrt(2*math.Pi)
	}
	return grid, density
}

// runningPoints is the number of draws at which running diagnostics are taken.
const runningPoints = 60

// RunningRHat draws R-hat and the PSRF with its 97.5 % bound of every parameter
// against the number of draws, with the threshold that counts as converged.
func RunningRHat(w io.Writer, d Draws, threshold float64) error {
	var panels []*plot.Plot
	for i, name := range d.Names {
		p := newPlot("", "draws of each chain", name)
		at, rhat, psrf, upper := running(d.X[i])
		for k, s := range []struct {
			name string
			y    []float64
		}{{"R-hat", rhat}, {"PSRF", psrf}, {"PSRF, 97.5 % bound", upper}} {
			legend := ""
			if i == 0 {
				legend = s.name
			}
			if err := line(p, legend, at, s.y, colour(k), vg.Points(1), k == 2); err != nil {
				return err
			}
		}
		if len(at) > 0 {
			ends := []float64{at[0], at[len(at)-1]}
			if err := line(p, "", ends, []float64{threshold, threshold}, color.Gray{0x88}, vg.Points(0.7), true); err != nil {
				return err
			}
		}
		p.Y.Min = 0.99
		p.Y.Max = min(max(p.Y.Max, 1.05), 2)
		panels = append(panels, p)
	}
	panels[0].Title.Text = "Running R-hat"
	return stack(w, panels)
}

// running returns the diagnostics of the first t draws at some tens of t.
func running(chains [][]float64) (at, rhat, psrf, upper []float64) {
	n := len(chains[0])
	step := max(1, n/runningPoints)
	for t := max(8, step); t <= n; t += step {
		first := make([][]float64, len(chains))
		for c, x := range chains {
			first[c] = x[:t]
		}
		at = append(at, float64(t))
		rhat = append(rhat, diagnostics.RHat(first))
		p, u := diagnostics.PSRF(first)
		psrf, upper = append(psrf, p), append(upper, u)
	}
	return at, rhat, psrf, upper
}
