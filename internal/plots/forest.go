package plots

import (
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Interval is what is known of a positive quantity: three quantiles.
type Interval struct {
	Name        string
	Lo, Mid, Hi float64
}

// The forest plot's measures.
const (
	forestRow    = 0.55 * vg.Centimeter
	forestMargin = 1.8 * vg.Centimeter
	forestNames  = 24 // letters of a name that are shown
)

// Forest draws intervals below one another, those with the least middle at the top, on a
// logarithmic axis. x names the axis.
func Forest(w io.Writer, title, desc, x string, rows []Interval, opts ...Option) error {
	f := newFigure(title, desc, opts)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Interval) bool { return !(r.Lo > 0 && r.Mid >= r.Lo && r.Hi >= r.Mid) || math.IsInf(r.Hi, 0) })
	slices.SortStableFunc(rows, func(a, b Interval) int {
		if a.Mid < b.Mid {
			return -1
		}
		return 1
	})
	f.height = forestMargin + forestRow*vg.Length(max(1, len(rows)))
	p := newPlot("", x, "")
	lo, hi := math.Inf(1), 0.0
	var names []plot.Tick
	for i, r := range rows {
		y := float64(len(rows) - i)
		names = append(names, plot.Tick{Value: y, Label: shorten(r.Name)})
		lo, hi = min(lo, r.Lo), max(hi, r.Hi)
		if err := f.line(p, []float64{r.Lo, r.Hi}, []float64{y, y}, stroke{name: "5 % to 95 %", colour: colour(0), width: vg.Points(2.2)}); err != nil {
			return err
		}
		if err := f.line(p, []float64{r.Mid, r.Mid}, []float64{y - 0.3, y + 0.3}, stroke{name: "median", colour: colour(4), width: vg.Points(2)}); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		p.X.Min, p.X.Max = lo/1.15, hi*1.15
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, roundTicks{}
	}
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0.4, float64(len(rows))+0.6, plot.ConstantTicks(names)
	f.add(p)
	return f.write(w)
}

// shorten cuts a long name.
func shorten(name string) string {
	if r := []rune(name); len(r) > forestNames {
		return string(r[:forestNames-1]) + "…"
	}
	return name
}

// roundTicks are the ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or over many powers these
// alone.
type roundTicks struct{}

// Ticks returns the ticks of an axis.
func (roundTicks) Ticks(lo, hi float64) []plot.Tick {
	from, to := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	digits := []float64{1, 2, 5}
	if to-from > 3 {
		digits = digits[:1]
	}
	var t []plot.Tick
	for e := from; e <= to; e++ {
		for _, d := range digits {
			if v := d * math.Pow(10, float64(e)); v >= lo && v <= hi {
				t = append(t, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	if len(t) < 2 {
		return ticks{}.Ticks(lo, hi)
	}
	return t
}
