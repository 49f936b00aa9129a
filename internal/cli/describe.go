package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/report"
)

func (a *App) describeCommand() *cobra.Command {
	var target string
	var asJSON bool
	c := &cobra.Command{
		Use:   "describe TABLE",
		Short: "Show what the columns of a table hold",
		Long: `Show what the columns of a table (CSV, plain or compressed, Parquet, Arrow, NPZ) hold: whole numbers,
numbers, dates or texts; how many values are missing and how many different ones there are;
the least, the median and the greatest, with a histogram of ten bins of equal width between
them; of texts the most common. With --target it shows how each column of numbers or dates is
correlated with that one, too. Below the table is told what columns need before they can be
inputs, and what looks like names of the rows, like the target itself, or adds up to it.`,
		Example: `  ulisse describe bike.csv --target cnt`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.describe(args[0], target, asJSON) },
	}
	c.Flags().StringVar(&target, "target", "", "show correlations with this `column`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// columnView is a column as --json prints it. What only numbers have is null of others; dates are in text.
type columnView struct {
	Name        string          `json:"name"`
	Type        dataset.Type    `json:"type"`
	Missing     int             `json:"missing"`
	Distinct    int             `json:"distinct"`
	Min         any             `json:"min"`
	Median      any             `json:"median"`
	Max         any             `json:"max"`
	Mean        report.Number   `json:"mean"`
	SD          report.Number   `json:"sd"`
	Histogram   []int           `json:"histogram,omitempty"`
	Common      []dataset.Count `json:"common,omitempty"`
	Correlation report.Number   `json:"correlation"`
	Notes       []string        `json:"notes"`
}

func (a *App) describe(table, target string, asJSON bool) error {
	columns, rows, err := dataset.SurveyFile(table, target, dataset.DefaultLimits)
	if err != nil {
		return badInput(err)
	}
	leak := dataset.Leak(columns, target)
	if asJSON {
		views := []columnView{}
		for i := range columns {
			views = append(views, viewOf(&columns[i], rows, target, leak))
		}
		return a.printJSON(map[string]any{"rows": rows, "columns": views})
	}
	head := "COLUMN TYPE MISSING DISTINCT MIN MEDIAN MAX VALUES"
	if target != "" {
		head += " CORRELATION"
	}
	var lines [][]string
	var notes []string
	for i := range columns {
		c := &columns[i]
		line := []string{shown(c.Name), string(c.Type), strconv.Itoa(c.Missing), strconv.Itoa(c.Distinct), "", "", "", glance(*c)}
		if c.Histogram != nil {
			line[4], line[5], line[6] = c.Text(c.Min), c.Text(c.Median), c.Text(c.Max)
		}
		if target != "" {
			corr := ""
			if !math.IsNaN(c.Correlation) {
				corr = fmt.Sprintf("%.2f", c.Correlation)
			}
			line = append(line, corr)
		}
		lines = append(lines, line)
		for _, n := range notesOn(c, rows, target, leak) {
			notes = append(notes, shown(c.Name)+": "+n)
		}
	}
	fmt.Fprintf(a.Stdout, "%s, %s\n", plural.Of(rows, "row"), plural.Of(len(columns), "column"))
	if err := a.table(head, lines); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(a.Stdout, n)
	}
	return nil
}

func viewOf(c *dataset.Column, rows int, target string, leak []string) columnView {
	nan := report.Number(math.NaN())
	v := columnView{Name: c.Name, Type: c.Type, Missing: c.Missing, Distinct: c.Distinct, Mean: nan, SD: nan, Histogram: c.Histogram, Common: c.Common,
		Correlation: report.Number(c.Correlation), Notes: append([]string{}, notesOn(c, rows, target, leak)...)}
	switch {
	case c.Histogram == nil:
	case c.Type == dataset.Times:
		v.Min, v.Median, v.Max = c.Text(c.Min), c.Text(c.Median), c.Text(c.Max)
	default:
		v.Min, v.Median, v.Max, v.Mean, v.SD = c.Min, c.Median, c.Max, report.Number(c.Mean), report.Number(c.SD)
	}
	return v
}

// shown returns a text of a table as a terminal may show it.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// mostShown is how long a text of a table may be.
const mostShown = 16

// glance returns a histogram of numbers, and the most common texts.
func glance(c dataset.Column) string {
	if c.Histogram != nil {
		return bars(c.Histogram)
	}
	var out []string
	for _, v := range c.Common[:min(len(c.Common), 3)] {
		text := []rune(shown(v.Value))
		if len(text) > mostShown {
			text = append(text[:mostShown-1], '…')
		}
		out = append(out, fmt.Sprintf("%s (%d)", string(text), v.Count))
	}
	return strings.Join(out, ", ")
}

// bars draws counts by heights of blocks; a bin that is not empty has one.
func bars(counts []int) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	most := max(1, slices.Max(counts))
	var out strings.Builder
	for _, n := range counts {
		out.WriteRune(blocks[(n*(len(blocks)-1)+most-1)/most])
	}
	return out.String()
}

// Correlations with the target from which on a column is pointed out: as nearly the target, and as what
// one hardly knows before it.
const (
	nearCopy   = 0.999
	suspicious = 0.95
)

// notesOn returns what is to be said of a column, one sentence each. leak are the columns that add up to the target.
func notesOn(c *dataset.Column, rows int, target string, leak []string) []string {
	var notes []string
	if c.Unfit != "" {
		notes = append(notes, c.Unfit)
	}
	if c.ID(rows) && c.Name != target {
		notes = append(notes, "every row has another value: a name of the row tells nothing of new ones, unless it is its place in time")
	}
	switch r := math.Abs(c.Correlation); {
	case r > nearCopy:
		notes = append(notes, fmt.Sprintf("its correlation with %s is %.4f: it is nearly the target, leave it out if it is not known before", target, c.Correlation))
	case r > suspicious:
		notes = append(notes, fmt.Sprintf("its correlation with %s is %.3f: is it known before the target is?", target, c.Correlation))
	}
	if len(leak) > 1 && slices.Contains(leak, c.Name) { // a single one is a copy
		notes = append(notes, fmt.Sprintf("%s is nothing but a sum of %s, with weights: leave these out if they are not known before it is", shown(target), shown(strings.Join(leak, ", "))))
	}
	return notes
}
