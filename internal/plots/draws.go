package plots

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/vg"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/plural"
)

// say describes a picture of draws.
func (d Draws) say(what string) string {
	chains, draws := 0, 0
	if len(d.X) > 0 {
		chains = len(d.X[0])
		if chains > 0 {
			draws = len(d.X[0][0])
		}
	}
	return fmt.Sprintf("%s: %s, %s of %s each%s.", what, plural.Of(len(d.Names), "parameter"), plural.Of(chains, "chain"), plural.Of(draws, "draw"), d.thinned())
}

// Trace draws every chain of every parameter against the draw.
func Trace(w io.Writer, d Draws, opts ...Option) error {
	f := newFigure("Trace of each chain"+d.thinned(), d.say("Each chain's draws in their order; chains that agree overlap"), opts)
	for i, name := range d.Names {
		p := newPlot("", "draw", name)
		for c, x := range d.X[i] {
			s := chainStroke(c, len(d.X[i]))
			s.width = vg.Points(0.5)
			if err := f.line(p, d.at(len(x)), x, s); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}

// Density draws the marginal density of every parameter, all chains pooled
// (thick) and one by one (thin): kernel estimates with Silverman's bandwidth.
// truth, if not nil, has a value to mark for each parameter, or NaN.
func Density(w io.Writer, d Draws, truth []float64, opts ...Option) error {
	f := newFigure("Marginal posterior densities"+d.thinned(), d.say("The density of each parameter, of all chains and of each"), opts)
	for i, name := range d.Names {
		p := newPlot("", name, "density")
		p.Y.Min = 0
		for c, x := range d.X[i] {
			if len(d.X[i]) > 1 {
				gx, gy := kde(x)
				s := chainStroke(c, len(d.X[i]))
				if err := f.line(p, gx, gy, s); err != nil {
					return err
				}
			}
		}
		gx, gy := kde(d.X[i]...)
		if err := f.line(p, gx, gy, stroke{name: "all chains", colour: ink, width: vg.Points(1.5)}); err != nil {
			return err
		}
		if truth != nil && !math.IsNaN(truth[i]) {
			top := 0.0
			for _, v := range gy {
				top = max(top, v)
			}
			if err := f.line(p, []float64{truth[i], truth[i]}, []float64{0, top},
				stroke{name: "truth", colour: colour(4), width: vg.Points(1.2), dashed: true}); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}

// Points of a density: where it is drawn, and the bins that draws are counted in
// before.
const (
	kdePoints = 200
	kdeBins   = 5 * (kdePoints - 1)
)

// kde returns a Gaussian kernel density estimate of the draws of all chains on a
// grid. The draws are counted in bins first, so that many cost no more than few.
func kde(chains ...[]float64) (grid, density []float64) {
	var x []float64
	for _, c := range chains {
		x = append(x, c...)
	}
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
	step := (hi - lo) / kdeBins
	counts := make([]float64, kdeBins+2)
	for _, v := range x { // shared by the two ends of the bin
		at := (v - lo) / step
		b := min(int(at), kdeBins)
		counts[b] += 1 - (at - float64(b))
		counts[b+1] += at - float64(b)
	}
	reach := int(math.Ceil(5 * h / step))
	weight := make([]float64, reach+1)
	for k := range weight {
		z := float64(k) * step / h
		weight[k] = math.Exp(-z*z/2) / (float64(len(x)) * h * math.Sqrt(2*math.Pi))
	}
	grid, density = make([]float64, kdePoints), make([]float64, kdePoints)
	for i := range grid {
		b := i * kdeBins / (kdePoints - 1)
		grid[i] = lo + float64(b)*step
		for k := max(0, b-reach); k <= min(kdeBins, b+reach); k++ {
			density[i] += counts[k] * weight[max(k-b, b-k)]
		}
	}
	return grid, density
}

// maxLag is the largest lag at which an autocorrelation is drawn.
const maxLag = 50

// Autocorrelation draws the autocorrelation of each chain against the lag, with
// the bounds that 95 % of independent draws keep within. The draws have to be
// consecutive.
func Autocorrelation(w io.Writer, d Draws, opts ...Option) error {
	f := newFigure("Autocorrelation"+d.thinned(), d.say("How far draws that lie a lag apart resemble each other; 0 is best"), opts)
	for i, name := range d.Names {
		p := newPlot("", "lag / draws", "corr., "+name)
		p.Y.Min, p.Y.Max = -0.2, 1
		n := 0
		if len(d.X[i]) > 0 {
			n = len(d.X[i][0])
		}
		lags := make([]float64, min(n, maxLag+1))
		for k := range lags {
			lags[k] = float64(k)
		}
		if n < 4 {
			f.add(p)
			continue
		}
		bound := 1.96 / math.Sqrt(float64(n))
		if err := f.band(p, lags, -bound, bound, "95 % of independent draws"); err != nil {
			return err
		}
		for c, x := range d.X[i] {
			r := diagnostics.Autocorrelation(x, maxLag)
			for _, v := range r {
				if v < p.Y.Min {
					p.Y.Min = v
				}
			}
			if err := f.line(p, lags, r, chainStroke(c, len(d.X[i]))); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}
