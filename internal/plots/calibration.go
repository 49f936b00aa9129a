package plots

import (
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The calibration plot.
const (
	calibrationBins   = 20
	calibrationLevels = 200
	calibrationHeight = 7.5 * vg.Centimeter
	calibrationBand   = "95 % of what chance does to right predictions"
)

// Calibration draws how predictions agree with what was observed, given the
// probability that each put below its observation (PIT), uniform if they are
// right: the share of observations within central intervals against the level of
// these, and a histogram. At each place 95 % of what chance does to right
// predictions lies in the band.
func Calibration(w io.Writer, pit []float64, opts ...Option) error {
	f := newFigure("Calibration of predictions", "How often observations lie within predicted intervals; on the dashed line is best", opts)
	f.height = calibrationHeight
	n := float64(len(pit))
	p := newPlot("", "level of the central interval", "share of observations within")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	level := make([]float64, calibrationLevels+1)
	lo, hi, within := make([]float64, len(level)), make([]float64, len(level)), make([]float64, len(level))
	width := make([]float64, len(pit)) // of the narrowest interval that holds the observation
	for i, x := range pit {
		width[i] = math.Abs(2*x - 1)
	}
	slices.Sort(width)
	for i := range level {
		l := float64(i) / calibrationLevels
		half := 1.96 * math.Sqrt(l*(1-l)/n)
		level[i], lo[i], hi[i] = l, max(0, l-half), min(1, l+half)
		k, _ := slices.BinarySearch(width, math.Nextafter(l, 2))
		within[i] = float64(k) / n
	}
	if err := f.between(p, level, lo, hi, calibrationBand); err != nil {
		return err
	}
	if err := f.line(p, level, level, stroke{name: "expected", colour: muted, width: vg.Points(0.8), dashed: true}); err != nil {
		return err
	}
	if err := f.line(p, level, within, stroke{name: "observed", colour: colour(0), width: vg.Points(1.4)}); err != nil {
		return err
	}
	f.add(p)

	h := newPlot("", "probability below the observation (PIT)", "observations / expected")
	h.X.Min, h.X.Max, h.Y.Min = 0, 1, 0
	count := make([]float64, calibrationBins)
	for _, x := range pit {
		count[max(0, min(calibrationBins-1, int(x*calibrationBins)))]++
	}
	expected := n / calibrationBins
	half := 1.96 * math.Sqrt((1-1.0/calibrationBins)/expected)
	if err := f.band(h, []float64{0, 1}, max(0, 1-half), 1+half, calibrationBand); err != nil {
		return err
	}
	var x, y []float64
	for b, c := range count {
		x = append(x, float64(b)/calibrationBins, float64(b+1)/calibrationBins)
		y = append(y, c/expected, c/expected)
	}
	if err := f.line(h, x, y, stroke{colour: colour(0), width: vg.Points(1.4)}); err != nil {
		return err
	}
	h.Y.Max = max(2, 1.1*slices.Max(y))
	f.add(h)
	return f.write(w)
}

// between adds the area between two lines.
func (f *figure) between(p *plot.Plot, x, lo, hi []float64, name string) error {
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
	area.Color, area.LineStyle.Width = shade, 0
	p.Add(area)
	f.key(stroke{name: name, colour: shade, width: vg.Points(6)})
	return nil
}
