package plots

import (
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The calibration plot.
const (
	calibrationBins   = 20
	calibrationLevels = 200
	calibrationHeight = 7.5 * vg.Centimeter
)

// band is what 95 % of calibrated predictions keep within, at each place.
var bandColour = color.NRGBA{0x88, 0x88, 0x88, 0x50}

// Calibration draws how predictions agree with what was observed, given the
// probability that each put below its observation (PIT), uniform if they are
// right: the share of observations within central intervals against the level of
// these, and a histogram. Grey bands hold 95 % of what chance does to right
// predictions, at each place.
func Calibration(w io.Writer, pit []float64) error {
	n := float64(len(pit))
	p := newPlot("Calibration of predictions", "level of the central interval", "share of observations within")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.Legend.Left = true
	level := make([]float64, calibrationLevels+1)
	lo, hi := make([]float64, len(level)), make([]float64, len(level))
	for i := range level {
		l := float64(i) / calibrationLevels
		half := 1.96 * math.Sqrt(l*(1-l)/n)
		level[i], lo[i], hi[i] = l, max(0, l-half), min(1, l+half)
	}
	if err := band(p, level, lo, hi); err != nil {
		return err
	}
	if err := line(p, "expected", level, level, color.Gray{0x60}, vg.Points(0.7), true); err != nil {
		return err
	}
	width := make([]float64, len(pit)) // of the narrowest interval that holds the observation
	for i, x := range pit {
		width[i] = math.Abs(2*x - 1)
	}
	slices.Sort(width)
	within := make([]float64, len(level))
	for i, l := range level {
		k, _ := slices.BinarySearch(width, math.Nextafter(l, 2))
		within[i] = float64(k) / n
	}
	if err := line(p, "observed", level, within, colour(0), vg.Points(1.4), false); err != nil {
		return err
	}

	h := newPlot("", "probability below the observation (PIT)", "observations / expected")
	h.X.Min, h.X.Max, h.Y.Min = 0, 1, 0
	count := make([]float64, calibrationBins)
	for _, x := range pit {
		count[max(0, min(calibrationBins-1, int(x*calibrationBins)))]++
	}
	expected := n / calibrationBins
	half := 1.96 * math.Sqrt(expected*(1-1.0/calibrationBins)) / expected
	if err := band(h, []float64{0, 1}, []float64{max(0, 1-half), max(0, 1-half)}, []float64{1 + half, 1 + half}); err != nil {
		return err
	}
	var steps plotter.XYs
	for b, c := range count {
		y := c / expected
		steps = append(steps, plotter.XY{X: float64(b) / calibrationBins, Y: y}, plotter.XY{X: float64(b+1) / calibrationBins, Y: y})
	}
	l, err := plotter.NewLine(steps)
	if err != nil {
		return err
	}
	l.Color, l.Width = colour(0), vg.Points(1.4)
	h.Add(l)
	h.Y.Max = max(2, 1.1*slices.Max(count)/expected)
	return stackOf(w, []*plot.Plot{p, h}, calibrationHeight)
}

// band fills what lies between two lines.
func band(p *plot.Plot, x, lo, hi []float64) error {
	var pts plotter.XYs
	for i := range x {
		pts = append(pts, plotter.XY{X: x[i], Y: hi[i]})
	}
	for i := len(x) - 1; i >= 0; i-- {
		pts = append(pts, plotter.XY{X: x[i], Y: lo[i]})
	}
	area, err := plotter.NewPolygon(pts)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle = bandColour, draw.LineStyle{}
	p.Add(area)
	return nil
}
