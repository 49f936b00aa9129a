package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/plural"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Parse(pageText))

// picture is a plot of a run.
type picture struct {
	Name string // of its file
	Text string // how to read it
	SVG  []byte
}

// pictures draws the plots of a run that has draws enough.
func pictures(rec *Record) ([]picture, error) {
	r := rec.Run
	if r.MinDraws() < 2 {
		return nil, nil
	}
	draws := PlotDraws(rec.Model.Params, r)
	var truth []float64
	if rec.Data.Truth != nil {
		truth = rec.Model.Params.Sampled(rec.Data.Truth.Of(rec.Model.Params))
	}
	list := []struct {
		name, text string
		draw       func(io.Writer) error
	}{
		{"trace", "Every chain's draws in their order. Chains that have converged wander over the same range and cannot be told apart.",
			func(w io.Writer) error { return plots.Trace(w, draws) }},
		{"density", "The marginal posterior of each log parameter: all chains pooled (thick), and each chain (thin), which should lie on one another.",
			func(w io.Writer) error { return plots.Density(w, draws, truth) }},
		{"rank", "The ranks of each chain's draws among those of all. Chains that have converged have flat histograms, within the band.",
			func(w io.Writer) error { return plots.Rank(w, draws) }},
		{"mean", "The mean of the first draws up to each point, with two standard deviations. It should settle.",
			func(w io.Writer) error { return plots.RunningMean(w, draws) }},
		{"rhat", "R-hat, and the potential scale reduction factor with its upper bound, of the first draws up to each point. They should fall to 1 and stay there.",
			func(w io.Writer) error { return plots.RunningRHat(w, draws, r.Plan.RHat) }},
		{"autocorrelation", "The correlation of draws that are that many iterations apart. The sooner it is near 0, the more a draw is worth.",
			func(w io.Writer) error { return plots.Autocorrelation(w, draws) }},
		{"pairs", "Draws of each two parameters against one another: what the data cannot tell apart lies along a line. Colours are of the modes, if there are several, else of the chains.",
			func(w io.Writer) error { return plots.Pairs(w, draws) }},
	}
	var out []picture
	for _, p := range list {
		var b bytes.Buffer
		if err := p.draw(&b); err != nil {
			return nil, fmt.Errorf("drawing %s: %w", p.name, err)
		}
		out = append(out, picture{p.name, p.text, b.Bytes()})
	}
	return out, nil
}

// inline returns a picture as part of a page. It has its name and description
// in itself.
func (p picture) inline() (template.HTML, error) {
	at := bytes.Index(p.SVG, []byte("<svg "))
	if at < 0 {
		return "", fmt.Errorf("the picture %s is no SVG", p.Name)
	}
	return template.HTML(p.SVG[at:]), nil
}

// pageData is what the page is made of.
type pageData struct {
	Name, Verdict      string
	Good, Fit          bool
	Lead               string
	Warnings, Cost     []string
	Columns            []string
	Rows               []pageRow
	Truth              bool
	Coefficients       *pageTable
	Notes              []string
	ModeColumns        []string
	Modes              []pageRow
	ModesNote          string
	ChainColumns       []string
	Chains             []pageRow
	Certificate        *Certificate
	Figures            []pageFigure
	Loo                *pageLoo
	Check              *pageCheck
	Effects            []pageFigure
	Meaning, Made      [][2]string
	Spec, Version, Now string
}

// pageLoo tells how well rows that were left out are predicted.
type pageLoo struct {
	Text   []string
	Figure pageFigure
}

// pageTable is a table with a caption.
type pageTable struct {
	Caption string
	Columns []string
	Rows    []pageRow
}

type pageRow struct {
	Name  string
	Cells []string
}

type pageFigure struct {
	Text string
	SVG  template.HTML
}

// WriteHTML writes the report: one page that needs nothing beside it. sum is the
// record's summary, now the time that it is made at.
func WriteHTML(w io.Writer, rec *Record, sum *Summary, now time.Time) error {
	pics, err := pictures(rec)
	if err != nil {
		return err
	}
	return writePage(w, rec, sum, pics, now)
}

func writePage(w io.Writer, rec *Record, sum *Summary, pics []picture, now time.Time) error {
	d := pageData{Name: sum.Name, Good: sum.Converged, Fit: sum.Fit != nil, Warnings: sum.Warnings,
		Certificate: sum.Certificate, Spec: rec.SpecText, Version: sum.Version, Now: now.UTC().Format(time.RFC3339), Meaning: meaning(rec), Made: made(rec, sum)}
	d.Verdict = sum.state()
	d.Lead = fmt.Sprintf("The covariance parameters of an exact Gaussian process (kernel %s%s), sampled by %s from %d rows with %s.",
		strings.TrimSpace(rec.Spec.Model.Kernel), map[bool]string{true: ", one length-scale for each input"}[rec.Spec.Model.ARD], rec.Run.Plan.Method, sum.N, plural.Of(sum.D, "input"))
	var cost strings.Builder
	if sum.Fit != nil {
		d.Lead = fmt.Sprintf("A point estimate of the covariance parameters of a Gaussian process (kernel %s%s) from %d rows with %s: %s. It says nothing of how uncertain they are but by its standard errors.",
			strings.TrimSpace(rec.Spec.Model.Kernel), map[bool]string{true: ", one length-scale for each input"}[rec.Spec.Model.ARD], sum.N, plural.Of(sum.D, "input"), sum.Fit.said())
		sum.Fit.cost(&cost)
	} else {
		sum.cost(&cost)
	}
	d.Cost = strings.Split(strings.TrimSpace(cost.String()), "\n")
	d.quantities(sum)
	d.Notes = sum.Notes
	if k := sum.Coefficients; k != nil {
		d.Coefficients = &pageTable{Caption: "The " + k.caption() + ": the constant is the mean where all inputs are at their averages, in the units of " + rec.Data.Learnt() +
			", and slopes are in these over those of the input", Columns: coefficientColumns}
		for i := range k.Of {
			d.Coefficients.Rows = append(d.Coefficients.Rows, pageRow{k.Of[i].Name, k.Of[i].cells()})
		}
	}
	if sum.Fit == nil {
		d.chains(sum)
	}
	if scales := sum.Scales(); scales != nil {
		var b bytes.Buffer
		if err := DrawScales(&b, scales); err != nil {
			return err
		}
		pics = append([]picture{{"scales", ScalesText, b.Bytes()}}, pics...)
	}
	for _, p := range pics {
		svg, err := p.inline()
		if err != nil {
			return err
		}
		d.Figures = append(d.Figures, pageFigure{p.Text, svg})
	}
	if rec.Loo != nil {
		var err error
		if d.Loo, err = leftOut(rec.Loo); err != nil {
			return err
		}
	}
	if rec.Check != nil {
		var err error
		if d.Check, err = rec.Check.page(); err != nil {
			return err
		}
	}
	var err error
	if d.Effects, err = effectFigures(rec.Effects); err != nil {
		return err
	}
	return page.Execute(w, d)
}

// Scales returns the length-scales of single inputs in standard deviations of these, if there are
// several: by input, or, of a sum, by term and input, trend[year].
func (sum *Summary) Scales() []plots.Interval {
	var out []plots.Interval
	for _, p := range sum.Parameters {
		if term, input, ok := strings.Cut(p.Name, "lengthscale_std["); ok {
			name := strings.TrimSuffix(input, "]")
			if term != "" {
				name = strings.TrimSuffix(term, ".") + "[" + input
			}
			out = append(out, plots.Interval{Name: name, Lo: float64(p.Q5), Mid: float64(p.Q50), Hi: float64(p.Q95)})
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// The picture of the length-scales.
const (
	scalesTitle = "Length-scales by input"
	ScalesText  = "The length-scale of each input, in standard deviations of that input: from 5 % to 95 % of the posterior. The shorter, the more the target changes along the input; one far beyond 1 hardly matters."
	scalesAxis  = "length-scale / sd of the input"
)

// DrawScales draws the length-scales of the inputs.
func DrawScales(w io.Writer, scales []plots.Interval, o ...plots.Option) error {
	return plots.Forest(w, scalesTitle, ScalesText, scalesAxis, scales, o...)
}

// leftOut tells of leave-one-out.
func leftOut(r *loo.Result) (*pageLoo, error) {
	e, p := r.ELPD(), r.P()
	out := &pageLoo{Text: []string{
		fmt.Sprintf("Each of %d rows is predicted from all other rows, averaged over %s.", len(r.Rows), plural.Of(r.Draws, "draw")),
		fmt.Sprintf("elpd_loo, the expected log predictive density: %.1f, standard error %.1f. The larger the better; compare models by ulisse compare.", e.Value, e.SE),
		fmt.Sprintf("p_loo, the effective number of covariance parameters: %.1f, standard error %.1f.", p.Value, p.SE),
		fmt.Sprintf("The importance weights of %s are doubtful (Pareto k above %.2f).", plural.Of(r.Doubtful(), "row"), loo.GoodK(r.Draws)),
	}}
	if len(r.Rows) < r.Of {
		out.Text = append(out.Text, fmt.Sprintf("These rows are a random sample of %d, for which the sums are told: that adds standard errors of %.1f to elpd_loo and %.1f to p_loo.", r.Of, e.Sampling, p.Sampling))
	}
	var b bytes.Buffer
	if err := plots.Calibration(&b, r.PIT()); err != nil {
		return nil, err
	}
	svg, err := picture{Name: "loo-pit", SVG: b.Bytes()}.inline()
	out.Figure = pageFigure{"Whether targets lie within predicted intervals as often as these say, each predicted from the other rows (LOO-PIT). Flat and on the dashed line is best; a hump in the middle means that intervals are too wide, a valley that they are too narrow.", svg}
	return out, err
}

// quantities fills in the table of quantities, or what is known of them before there are draws.
func (d *pageData) quantities(sum *Summary) {
	if v := sum.Provisional; v != nil {
		d.Columns = provisionalColumns
		for _, r := range v.Parameters {
			if !r.Detail {
				d.Rows = append(d.Rows, pageRow{r.Name, r.cells()})
			}
		}
		d.Warnings = append([]string{v.Note}, d.Warnings...)
		return
	}
	if f := sum.Fit; f != nil {
		d.Columns = f.columns()
		for i := range f.Parameters {
			if r := &f.Parameters[i]; !r.Detail || sum.Details {
				d.Rows = append(d.Rows, pageRow{r.Name, r.cells()})
			}
		}
		return
	}
	for _, c := range tableColumns {
		d.Columns = append(d.Columns, c.name)
	}
	for i := range sum.Parameters {
		p := &sum.Parameters[i]
		if p.Detail && !sum.Details {
			continue
		}
		row := pageRow{Name: p.Name}
		for _, c := range tableColumns {
			row.Cells = append(row.Cells, c.text(c.of(p)))
		}
		if p.Truth != nil {
			d.Truth = true
			row.Cells = append(row.Cells, sig(*p.Truth))
		}
		d.Rows = append(d.Rows, row)
	}
	if d.Truth {
		d.Columns = append(d.Columns, "Truth")
	}
	if len(sum.Modes) > 1 {
		d.ModeColumns, d.ModesNote = ModeColumns, ModesNote(sum.Modes)
		for i := range sum.Modes {
			d.Modes = append(d.Modes, pageRow{strconv.Itoa(i + 1), sum.Modes[i].Cells()})
		}
	}
}

// chains fills in the table of chains.
func (d *pageData) chains(sum *Summary) {
	d.ChainColumns = []string{"Chain", "Draws", "Warm-up", "Gradients", "Solver iterations", "Acceptance", "Time"}
	orDash := func(format string, x float64) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf(format, x)
	}
	for i, c := range sum.Chains {
		d.Chains = append(d.Chains, pageRow{strconv.Itoa(i + 1), []string{strconv.Itoa(c.Draws), strconv.Itoa(c.Warmup), orDash("%.0f", float64(c.Gradients)),
			orDash("%.1f", c.SolverIterationsMean), orDash("%.2f", c.Acceptance), seconds(c.Seconds)}})
	}
}

// meaning explains the quantities.
func meaning(rec *Record) [][2]string {
	tau, each := "tau", "of all inputs"
	if rec.Spec.Model.ARD {
		tau, each = "tau[…]", "of an input"
	}
	units := "of the standardised data"
	if rec.Data.YScale.SD == 1 && rec.Data.YScale.Mean == 0 {
		units = "of the data"
	}
	if expression.Is(rec.Spec.Model.Kernel) {
		return [][2]string{
			{"TERM.variance", "marginal variance of a term of the covariance, in units " + units},
			{"TERM.tau, TERM.tau[…]", "inverse squared length-scale 1/(2ℓ²) of all inputs of a leaf, or of one; of a periodic leaf, on its circle"},
			{"TERM.period", "period, in the units of the input"},
			{"TERM.place, TERM.width", "where a sigmoid is half-way, and how wide it is, in the units of the input; those of a change point with a name are by that name"},
			{"TERM.warp_a[…], TERM.warp_b[…]", "exponents of a warped input: both are 1 where it is not bent"},
			{"TERM.offset", "what a polynomial adds to the products of standardised inputs"},
			{"TERM.alpha", "shape of a rational quadratic: the smaller, the more length-scales the term has"},
			{"TERM.correlation", "e^(−τ) of a hamming leaf: the correlation of values at rows that differ in one category"},
			{"TERM.correlation[…,…]", "of two levels of a coregion: the correlation of the function's values for these, such as two outputs"},
			{"TERM.scale[…]", "of a level of a coregion: the function's standard deviation, relative to that of the first level, whose variance is TERM.variance"},
			noiseMeaning(&rec.Data, units),
			{"TERM.lengthscale[…]", "ℓ = 1/√(2τ): the distance over which the term changes, in the units of the input; without brackets, in units of the standardised inputs or of the circle"},
			{"TERM.signal_sd, noise_sd", "square roots of the variances in the units of " + rec.Data.Learnt()},
			{"log …, logit …, …_std", "the scale on which sampling and diagnostics work: logarithms of what is positive, log-odds of the place in an interval, standardised places"},
		}
	}
	m := [][2]string{
		{"sigma", "marginal variance of the function, in units " + units},
		{tau, "inverse squared length-scale 1/(2ℓ²) " + each},
		noiseMeaning(&rec.Data, units),
	}
	const distance = "ℓ = 1/√(2τ): the distance over which the function changes, in "
	if rec.Spec.Model.ARD || rec.Data.D() == 1 {
		m = append(m, [2]string{"lengthscale[…]", distance + "the units of the input"})
	} else {
		m = append(m, [2]string{"lengthscale", distance + strings.Replace(units, "of the data", "of the inputs", 1)})
	}
	return append(m, [2]string{"signal_sd, noise_sd", "√σ and √λ in the units of " + rec.Data.Learnt()},
		[2]string{"log …", "logarithms, on which sampling and diagnostics work"})
}

// noiseMeaning explains the parameters of the noise.
func noiseMeaning(d *dataset.Info, units string) [2]string {
	name, what, n := "lambda", "variance of the noise", d.Noise
	if n == nil {
		n = &dataset.Noise{}
	}
	if n.By != "" {
		name, what = "lambda["+n.By+"=…]", what+" of the rows of a level of "+n.By
	}
	if n.Weights != "" {
		what += ", of a row whose weight " + n.Weights + " is 1"
	}
	if n.Column != "" {
		what += ", beside what " + n.Column + " says"
	}
	return [2]string{name, what + ", in units " + units}
}

// made says where the numbers come from.
func made(rec *Record, sum *Summary) [][2]string {
	var m [][2]string
	add := func(name, value string) {
		if value != "" {
			m = append(m, [2]string{name, value})
		}
	}
	o := rec.Origin
	add("Program", "ulisse "+o.Version)
	if !o.Ended.IsZero() {
		add("Ended", o.Ended.UTC().Format(time.RFC3339))
	}
	add("Stopped by", string(sum.StopReason))
	add("Seed", strconv.FormatUint(sum.Seed, 10))
	add("Job", o.Job)
	add("Workers", strings.Join(o.Workers, ", "))
	add("Host", o.Host)
	if o.Threads > 0 {
		add("Threads", strconv.Itoa(o.Threads))
	}
	add("Instruction set", sum.InstructionSet)
	source := rec.Spec.Data.Path
	if source == "" {
		source = "generated by the specification"
	}
	add("Data", source)
	add("Rows", fmt.Sprintf("%d (%d held out)", rec.Data.Rows, rec.Data.HeldOut))
	add("Target", rec.Data.Learnt())
	add("Inputs", strings.Join(rec.Data.InputNames, ", "))
	add("How the table was read", strings.Join(rec.Data.Notes, "; "))
	add("SHA-256 of the data", rec.Data.SHA256)
	add("SHA-256 of the draws", sum.DrawsSHA256)
	return m
}
