package plots

import (
	"io"

	"gonum.org/v1/plot/vg"
)

// Replicates draws the density of observed targets over those of replicates, data sets of the same
// rows that a fitted model makes (Gelman, Meng and Stern 1996): a model that is right makes data that
// look like the observed ones.
func Replicates(w io.Writer, target string, observed []float64, replicated [][]float64, opts ...Option) error {
	f := newFigure("Posterior predictive check", "The density of the observed targets, and of replicates that the model makes of the same rows", opts)
	f.height = calibrationHeight
	p := newPlot("", target, "density")
	p.Y.Min = 0
	name := "replicates"
	for _, x := range replicated {
		gx, gy := kde(x)
		if err := f.line(p, gx, gy, stroke{name: name, colour: muted, width: vg.Points(0.6)}); err != nil {
			return err
		}
		name = ""
	}
	gx, gy := kde(observed)
	if err := f.line(p, gx, gy, stroke{name: "observed", colour: colour(0), width: vg.Points(1.8)}); err != nil {
		return err
	}
	f.add(p)
	return f.write(w)
}
