package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ulisse-gp/ulisse/internal/plural"
)

// column is a column of the table of parameters, with the text of a value for people.
type column struct {
	name string
	of   func(*Parameter) Number
	text func(Number) string
}

// columns are those of Stan's stansummary, in its order.
var columns = []column{
	{"Mean", func(p *Parameter) Number { return p.Mean }, sig},
	{"MCSE", func(p *Parameter) Number { return p.MCSEMean }, sig},
	{"StdDev", func(p *Parameter) Number { return p.SD }, sig},
	{"MAD", func(p *Parameter) Number { return p.MAD }, sig},
	{"5%", func(p *Parameter) Number { return p.Q5 }, sig},
	{"50%", func(p *Parameter) Number { return p.Q50 }, sig},
	{"95%", func(p *Parameter) Number { return p.Q95 }, sig},
	{"ESS_bulk", func(p *Parameter) Number { return p.ESSBulk }, whole},
	{"ESS_tail", func(p *Parameter) Number { return p.ESSTail }, whole},
	{"ESS_bulk/s", func(p *Parameter) Number { return p.ESSPerSecond }, sig},
	{"R_hat", func(p *Parameter) Number { return p.RHat }, fixed},
}

// tableColumns are those of tables for people: beside Stan's the total standard errors of
// the mean, in posterior sds, and of the sd, relative.
var tableColumns = append(slices.Clone(columns),
	column{"Err_mean", func(p *Parameter) Number { return p.ErrorMean }, short},
	column{"Err_sd", func(p *Parameter) Number { return p.ErrorSD }, short})

// WriteCSV writes the table of Stan's stansummary as its --csv_filename does:
// a name and its columns a row, values exact, nan where there is none.
func (sum *Summary) WriteCSV(w io.Writer) error {
	cw := csv.NewWriter(w)
	row := []string{"name"}
	for _, c := range columns {
		row = append(row, c.name)
	}
	cw.Write(row)
	for i := range sum.Parameters {
		p := &sum.Parameters[i]
		row = append(row[:0], p.Name)
		for _, c := range columns {
			row = append(row, exactText(float64(c.of(p))))
		}
		cw.Write(row)
	}
	cw.Flush()
	return cw.Error()
}

// WriteText writes the summary as the table that Stan's users know, followed by
// what it cost, how the table was read, and the warnings.
func (sum *Summary) WriteText(w io.Writer) error {
	var b strings.Builder
	kept, warm := 0, 0
	for _, c := range sum.Chains {
		kept, warm = kept+c.Draws, warm+c.Warmup
	}
	if sum.Fit != nil {
		sum.writeFit(&b)
	} else {
		fmt.Fprintf(&b, "%s: %s\n%d rows, %s; %s, %s kept, %d warm-up, by %s\n\n", sum.Name, sum.state(), sum.N,
			plural.Of(sum.D, "input"), plural.Of(len(sum.Chains), "chain"), plural.Of(kept, "draw"), warm, sum.Method)
		if sum.Provisional != nil {
			sum.Provisional.table(&b)
		} else {
			sum.table(&b)
			sum.modes(&b)
		}
		if sum.Coefficients != nil {
			sum.Coefficients.write(&b)
		}
		sum.cost(&b)
	}
	if sum.Certificate != nil {
		sum.Certificate.write(&b)
	}
	for _, note := range sum.Notes {
		fmt.Fprintf(&b, "%s\n", note)
	}
	for _, note := range sum.Data {
		fmt.Fprintf(&b, "data: %s\n", note)
	}
	for _, warning := range sum.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// state says in words how the run stands.
func (sum *Summary) state() string {
	switch {
	case sum.Fit != nil:
		return sum.Fit.state()
	case sum.StopReason == "" && sum.State != "":
		return "not ended, " + sum.State
	case sum.StopReason == "":
		return "not ended yet"
	case !sum.Converged:
		return fmt.Sprintf("NOT converged (ended by %s)", sum.StopReason)
	}
	return "converged"
}

// table writes the table of stansummary.
func (sum *Summary) table(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	withTruth := len(sum.Parameters) > 0 && sum.Parameters[0].Truth != nil
	for _, c := range tableColumns {
		fmt.Fprintf(tw, "\t%s", c.name)
	}
	if withTruth {
		fmt.Fprint(tw, "\tTruth")
	}
	fmt.Fprintln(tw, "\t")
	for i := range sum.Parameters {
		p := &sum.Parameters[i]
		if p.Detail && !sum.Details {
			continue
		}
		fmt.Fprint(tw, p.Name)
		for _, c := range tableColumns {
			fmt.Fprintf(tw, "\t%s", c.text(c.of(p)))
		}
		if withTruth {
			fmt.Fprintf(tw, "\t%s", sig(*p.Truth))
		}
		fmt.Fprintln(tw, "\t")
	}
	tw.Flush()
}

// modes writes the table of modes, if there is more than one.
func (sum *Summary) modes(b *strings.Builder) {
	if len(sum.Modes) < 2 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", ModesNote(sum.Modes))
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(ModeColumns, "\t"))
	for i := range sum.Modes {
		fmt.Fprintf(tw, "mode %d\t%s\t\n", i+1, strings.Join(sum.Modes[i].Cells(), "\t"))
	}
	tw.Flush()
}

// ModesNote returns what to know of a table of several modes.
func ModesNote(list []Mode) string {
	note := fmt.Sprintf("The posterior has %d modes; one that no search reached cannot be excluded.", len(list))
	if slices.ContainsFunc(list, func(m Mode) bool { return m.Found == 0 }) {
		note += " Those with 0 searches are mirror images of others: parameters change places there, and the density is the same."
	}
	return note
}

// ModeColumns head the cells of a mode.
var ModeColumns = []string{"Mass", "Error", "Below", "Searches", "Differs_in", "Distance", "Log_parameters"}

// Cells returns what a table says of a mode.
func (m *Mode) Cells() []string {
	differs, distance := "-", "-"
	if m.Differs != "" {
		differs, distance = m.Differs, fmt.Sprintf("%.1f", float64(m.Distance))
	}
	at := make([]string, len(m.At))
	for i, x := range m.At {
		at[i] = fmt.Sprintf("%.2f", x)
	}
	return []string{fmt.Sprintf("%.3f", float64(m.Mass)), short(m.MassError), fmt.Sprintf("%.1f", float64(m.Below)), fmt.Sprint(m.Found), differs, distance, strings.Join(at, " ")}
}

func (sum *Summary) cost(b *strings.Builder) {
	t := sum.Total
	fmt.Fprintf(b, "\n%s wall, %s of chain time", seconds(sum.WallSeconds), seconds(t.Seconds))
	if t.Gradients > 0 {
		fmt.Fprintf(b, "; %d gradients of %s each", t.Gradients, seconds(t.Seconds/float64(t.Gradients)))
	}
	if t.Densities > 0 {
		fmt.Fprintf(b, "; %d log densities", t.Densities)
	}
	b.WriteString("\n")
	if t.Products > 0 {
		fmt.Fprintf(b, "%d solves, %.1f iterations each; %d products with K; %.3g pairs evaluated (%s)",
			t.Solves, float64(t.Iterations)/float64(t.Solves), t.Products, t.Pairs-t.PairsRead, sum.InstructionSet)
		if t.PairsRead > 0 {
			fmt.Fprintf(b, ", %.3g read from memory", t.PairsRead)
		}
		b.WriteString("\n")
	}
	if sum.Near > 0 {
		fmt.Fprintf(b, "products evaluate %.3g %% of the pairs of rows, at the mode: the others are nothing to rounding\n", 100*sum.Near)
	}
	if sum.Cache != nil {
		fmt.Fprintf(b, "cache of K %s\n", sum.Cache)
	}
	if a := sum.acceptance(); a > 0 {
		fmt.Fprintf(b, "acceptance %.2f", a)
		if sum.Rank > 0 {
			fmt.Fprintf(b, ", preconditioner of rank %d", sum.Rank)
		}
		b.WriteString("\n")
	}
	if t.Shortened > 0 {
		fmt.Fprintf(b, "%d of %d steps were cut short, where the posterior is so steep that a whole one would overshoot; up to 1 %% is harmless\n", t.Shortened, t.Gradients)
	}
	if p := sum.Preconditioner; p != nil {
		fmt.Fprintf(b, "preconditioner %s of rank %d", p.Kind, p.Rank)
		if p.Drift > 0 {
			fmt.Fprintf(b, "; solves take %.1f times the iterations at the mode", float64(p.Drift))
		}
		b.WriteString("\n")
	}
	if s := sum.Settings; s != nil {
		fmt.Fprintf(b, "%d probes", s.Probes)
		if s.Tolerance > 0 {
			fmt.Fprintf(b, ", tolerance %g", s.Tolerance)
		}
		if s.Step > 0 {
			fmt.Fprintf(b, ", step %.2f; noise budget %.2f, which must be above 0", s.Step, s.NoiseBudget)
		}
		if s.EarlyStop {
			b.WriteString(", solves stopped early")
		}
		b.WriteString("\n")
	}
}

// acceptance returns the mean over chains, 0 if there is none.
func (sum *Summary) acceptance() float64 {
	total := 0.0
	for _, c := range sum.Chains {
		total += c.Acceptance
	}
	return total / float64(max(1, len(sum.Chains)))
}

func seconds(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.3g ms", 1000*s)
	case s < 120:
		return fmt.Sprintf("%.3g s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func sig(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	if a := math.Abs(float64(x)); a >= 1000 && a < 10_000 { // such as years
		return fmt.Sprintf("%.1f", float64(x))
	}
	return fmt.Sprintf("%.4g", float64(x))
}

func short(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.2g", float64(x))
}

func whole(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(x))
}

func fixed(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.4f", float64(x))
}
