package plots

import (
	"io"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Line is a line of a panel. Points that are not finite are left out, and those
// that are not positive in a logarithmic panel.
type Line struct {
	Name string // in the legend, if there are few
	X, Y []float64
}

// Panel is a panel of lines, say one for each chain.
type Panel struct {
	X, Y  string // labels, with units
	Lines []Line
	Log   bool // logarithmic y
	Zero  bool // y from 0
	Time  bool // x are Unix times
	// Level, if named, is a horizontal line.
	Level     float64
	LevelName string
}

// Course draws how quantities develop, a panel for each below the other. desc
// says in a sentence what is to be seen.
func Course(w io.Writer, title, desc string, panels []Panel, opts ...Option) error {
	f := newFigure(title, desc, opts)
	f.height = 3.9 * vg.Centimeter
	for _, in := range panels {
		p := newPlot("", in.X, in.Y)
		if in.Time {
			p.X.Tick.Marker = clock{}
		}
		var ends []float64
		for c, l := range in.Lines {
			s := stroke{colour: colour(c), width: vg.Points(0.9), most: pointsOf(len(in.Lines))}
			if len(in.Lines) <= maxLegend {
				s.name = l.Name
			}
			x, y := l.X, l.Y
			if in.Log {
				y = positive(y)
			}
			if err := f.line(p, x, y, s); err != nil {
				return err
			}
			if len(x) > 0 {
				ends = widen(ends, x[0], x[len(x)-1])
			}
		}
		if in.LevelName != "" {
			if err := f.level(p, ends, in.Level, in.LevelName); err != nil {
				return err
			}
		}
		if in.Zero {
			p.Y.Min = min(0, p.Y.Min)
		}
		if in.Log && p.Y.Min > 0 && p.Y.Max > p.Y.Min {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
		}
		f.add(p)
	}
	return f.write(w)
}

func widen(ends []float64, lo, hi float64) []float64 {
	if ends == nil {
		return []float64{lo, hi}
	}
	return []float64{min(ends[0], lo), max(ends[1], hi)}
}

func positive(y []float64) []float64 {
	out := make([]float64, len(y))
	for i, v := range y {
		if out[i] = v; !(v > 0) {
			out[i] = math.NaN()
		}
	}
	return out
}

// decades are the ticks of a logarithmic axis: powers of ten, or those of a
// linear one within a decade or two.
type decades struct{}

func (decades) Ticks(lo, hi float64) []plot.Tick {
	from, to := int(math.Ceil(math.Log10(lo)-1e-9)), int(math.Floor(math.Log10(hi)+1e-9))
	if to-from < 1 {
		return ticks{}.Ticks(lo, hi)
	}
	every := 1 + (to-from)/6
	var out []plot.Tick
	for e := from; e <= to; e++ {
		t := plot.Tick{Value: math.Pow(10, float64(e))}
		if (e-from)%every == 0 {
			t.Label = "1e" + strconv.Itoa(e)
		}
		out = append(out, t)
	}
	return out
}

// clock are ticks of Unix times, in UTC.
type clock struct{}

func (clock) Ticks(lo, hi float64) []plot.Tick {
	steps := []float64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 86400, 7 * 86400}
	step := steps[len(steps)-1]
	for _, s := range steps {
		if (hi-lo)/s <= 6 {
			step = s
			break
		}
	}
	form := "15:04"
	switch {
	case step >= 86400:
		form = "Jan 2"
	case step < 60:
		form = "15:04:05"
	}
	var out []plot.Tick
	for v := math.Ceil(lo/step) * step; v <= hi && len(out) < 400; v += step {
		out = append(out, plot.Tick{Value: v, Label: time.Unix(int64(v), 0).UTC().Format(form)})
	}
	return out
}

// Span is a time from From to To in which something in a row was there.
type Span struct {
	Row      string
	From, To time.Time
}

// Mark is a moment in a row. Kind names what happened, of few kinds.
type Mark struct {
	Row, Kind string
	At        time.Time
}

// rowHeight is the height of a row of a time line.
const rowHeight = 0.55 * vg.Centimeter

// Timeline draws spans as bars and moments as ticks on them, a row for each of
// rows, the first at the top.
func Timeline(w io.Writer, title, desc string, rows []string, spans []Span, marks []Mark, opts ...Option) error {
	f := newFigure(title, desc, opts)
	f.height = 1.6*vg.Centimeter + rowHeight*vg.Length(max(1, len(rows)))
	p := newPlot("", "time / UTC", "")
	at := map[string]float64{}
	for i, r := range rows {
		at[r] = float64(len(rows) - 1 - i)
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = clock{}, labels(reversed(rows))
	p.Y.Tick.Length, p.Y.Tick.LineStyle.Width = vg.Points(7), 0
	for _, s := range spans {
		y, ok := at[s.Row]
		if !ok {
			continue
		}
		a, b := seconds(s.From), seconds(s.To)
		bar, err := plotter.NewPolygon(plotter.XYs{{X: a, Y: y - 0.3}, {X: b, Y: y - 0.3}, {X: b, Y: y + 0.3}, {X: a, Y: y + 0.3}})
		if err != nil {
			return err
		}
		bar.Color, bar.LineStyle.Width = palette[5], 0
		p.Add(bar)
	}
	kinds := map[string]int{}
	for _, m := range marks {
		y, ok := at[m.Row]
		if !ok {
			continue
		}
		k, seen := kinds[m.Kind]
		if !seen {
			k = len(kinds)
			kinds[m.Kind] = k
		}
		c := palette[[]int{2, 4, 3, 1, 0, 6}[k%6]]
		if err := f.line(p, []float64{seconds(m.At), seconds(m.At)}, []float64{y - 0.42, y + 0.42},
			stroke{name: m.Kind, colour: c, width: vg.Points(2)}); err != nil {
			return err
		}
	}
	p.Y.Min, p.Y.Max = -0.6, float64(max(1, len(rows)))-0.4
	f.add(p)
	return f.write(w)
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
