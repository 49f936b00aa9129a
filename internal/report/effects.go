package report

import (
	"bytes"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/plots"
)

// Effect is how the target depends on an input, averaged over the rows, or what a term of the
// covariance adds to it.
type Effect struct {
	Term          string // empty for the whole function
	Input, Target string
	Curve         plots.Curve // with the band that holds it with probability 0.95
}

const effectBand = "2.5 % to 97.5 %"

// effectFigures draws effects.
func effectFigures(effects []Effect) ([]pageFigure, error) {
	var out []pageFigure
	for _, e := range effects {
		title := e.Input
		text := fmt.Sprintf("How %s depends on %s, averaged over the rows, all else in them as it is.", e.Target, e.Input)
		if e.Term != "" {
			title = e.Term + " over " + e.Input
			text = fmt.Sprintf("What the term %s adds to %s, over %s.", e.Term, e.Target, e.Input)
		}
		var b bytes.Buffer
		if err := plots.Effect(&b, title, e.Input, e.Target, effectBand, []plots.Curve{e.Curve}); err != nil {
			return nil, err
		}
		svg, err := picture{Name: "effect", SVG: b.Bytes()}.inline()
		if err != nil {
			return nil, err
		}
		out = append(out, pageFigure{text, svg})
	}
	return out, nil
}
