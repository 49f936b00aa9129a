package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// What 'ulisse prior' draws: parameters for the table, functions for the picture, values of an input in it.
const (
	priorDraws  = 4000
	priorCurves = 12
	priorGrid   = 300
	mostCurves  = 200
	mostPanels  = 30
)

// priorView is a row of what 'ulisse prior' prints.
type priorView struct {
	Name string        `json:"name"`
	Q5   report.Number `json:"q5"`
	Q50  report.Number `json:"q50"`
	Q95  report.Number `json:"q95"`
}

func (a *App) priorCommand() *cobra.Command {
	var f source
	var plot string
	var curves int
	var asJSON bool
	c := &cobra.Command{
		Use:   "prior [SPEC]",
		Short: "Tell what the priors mean: of every quantity, and by functions drawn from them",
		Long: `Print what the priors of a specification say of every quantity that results tell, in the same
units: the median, and what lies below and above with 5 %. --plot draws functions from the prior
along each input, the others being at typical values, beside the observed targets: functions that
are much wilder, flatter or larger than these say that a prior is not what was meant.`,
		Example: `  ulisse prior co2.yaml --plot prior.svg`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if curves < 1 || curves > mostCurves {
				return badInput(fmt.Errorf("--functions %d: give a number from 1 to %d", curves, mostCurves))
			}
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			d, p, err := a.load(c.Context(), spec, f.budget())
			if err != nil {
				return err
			}
			if plot != "" {
				if err := drawPrior(plot, spec, d, p.Model, curves); err != nil {
					return err
				}
			}
			return a.tellPrior(spec, d, p.Model, asJSON)
		},
	}
	f.flags(c)
	c.Flags().StringVar(&plot, "plot", "", "draw functions from the prior into this SVG `file`")
	c.Flags().IntVar(&curves, "functions", priorCurves, "draw this `number` of functions")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// tellPrior prints the quantiles of each quantity.
func (a *App) tellPrior(spec *job.Spec, d *dataset.Dataset, m posterior.Model, asJSON bool) error {
	draws := predict.PriorDraws(m.Params, priorDraws, spec.Seed)
	var views []priorView
	var rows [][]string
	for _, q := range report.Quantities(m, &d.Info) {
		if q.Detail {
			continue
		}
		x := make([]float64, len(draws))
		for i, psi := range draws {
			x[i] = q.Of(psi)
		}
		v := priorView{q.Name, report.Number(diagnostics.Quantile(x, 0.05)), report.Number(diagnostics.Quantile(x, 0.5)), report.Number(diagnostics.Quantile(x, 0.95))}
		views = append(views, v)
		row := []string{v.Name}
		for _, n := range []report.Number{v.Q5, v.Q50, v.Q95} {
			row = append(row, strconv.FormatFloat(float64(n), 'g', 4, 64))
		}
		rows = append(rows, row)
	}
	if asJSON {
		return a.printJSON(views)
	}
	return a.table("QUANTITY 5% 50% 95%", rows)
}

// drawPrior draws functions from the prior along each input.
func drawPrior(path string, spec *job.Spec, d *dataset.Dataset, m posterior.Model, curves int) error {
	if d.D() > mostPanels {
		return badInput(errors.New("--plot: there are more inputs than a picture has room for: name fewer under data.inputs"))
	}
	draws := predict.PriorDraws(m.Params, curves, spec.Seed)
	var panels []plots.Functions
	for k := range d.InputNames {
		grid := predict.Grid(d, k, priorGrid)
		y, err := predict.PriorFunctions(m.Part(0).Covariance, d, k, grid, draws, m.Params, spec.Seed)
		if err != nil {
			return err
		}
		panel := plots.Functions{Axis: axisOf(&d.Info, k), X: grid, Y: y}
		for i, t := range d.Y {
			panel.At, panel.Target = append(panel.At, d.XScale[k].Undo(d.X.Row(i)[k])), append(panel.Target, d.Undo(t)) // less the offset, as the functions are
		}
		panels = append(panels, panel)
	}
	return atomicfile.Write(path, 0o644, func(w io.Writer) error { return plots.DrawFunctions(w, d.Target, panels) })
}
