package cli

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/plural"
)

//go:embed init.yaml
var initText string

func (a *App) initCommand() *cobra.Command {
	var target, out string
	c := &cobra.Command{
		Use:   "init TABLE",
		Short: "Write a specification for a table",
		Long: `Write a specification for a table (CSV, plain or compressed, Parquet, Arrow, NPZ), with
comments on what to choose. The target is the last column that can be one, or
that of --target; the inputs are all others. Texts with few different values become
categories, dates become days, and missing values are filled in. Columns that cannot be used are
excluded, each with the reason: names of rows, constants, hardly any values. Comments point out
what looks like a name of the row, like a code, like the target itself or adds up to it, and say what priors
mean in its units. 'ulisse describe' shows the table.

'ulisse validate' accepts what it writes. Nothing is overwritten.`,
		Example: `  ulisse init bike.csv --target cnt
  ulisse run bike.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.init(args[0], target, out) },
	}
	c.Flags().StringVar(&target, "target", "", "the `column` to predict (default: the last that can be)")
	c.Flags().StringVarP(&out, "out", "o", "", "write into this `file` (default: TABLE's name with .yaml, here; - for standard output)")
	return c
}

func (a *App) init(table, target, out string) error {
	columns, rows, err := dataset.SurveyFile(table, target, dataset.DefaultLimits)
	if err != nil {
		return badInput(err)
	}
	b := beginning{Table: filepath.Base(table), Rows: rows, Name: jobName(table)}
	if err := b.choose(columns, target); err != nil {
		return badInput(fmt.Errorf("%s: %w", table, err))
	}
	if out == "" {
		out = b.Name + ".yaml"
	}
	b.File = out
	if out == "-" {
		b.File = b.Name + ".yaml"
	}
	if b.Path, err = relative(table, filepath.Dir(b.File)); err != nil {
		return err
	}
	text, err := b.text()
	if err != nil {
		return err
	}
	if out == "-" {
		_, err := a.Stdout.Write(text)
		return err
	}
	if err := create(out, text); err != nil {
		return err
	}
	a.note("wrote %s: target %s, %s of %s, %d rows; next: ulisse validate %s", out, b.Target,
		plural.Of(b.Inputs, "input"), plural.Of(len(columns)-1, "other column"), rows, out)
	return nil
}

// relative returns a path as it is from a folder, or from the root where no way leads there.
func relative(path, folder string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(folder, path); err == nil {
		path = rel
	}
	return filepath.ToSlash(path), nil
}

// create writes a file that must not be there yet.
func create(path string, text []byte) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return badInput(fmt.Errorf("there is a file %s: choose another with --out", path))
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
		}
	}()
	_, err = io.Copy(f, bytes.NewReader(text))
	return err
}

// beginning is what the specification of a table begins with.
type beginning struct {
	Table, File, Name, Path string
	Rows, Inputs            int
	Target                  string
	Guessed                 bool // the target
	SD, Low, High           string
	Likelihood, Why         string // another than the Gaussian, and why; empty for that
	Excluded                []excluded
	Categories, Missing     []dataset.Column
	Dates                   []dataset.Column
	Unlabelled              int      // rows without a target
	Look                    []string // what to look at before the specification is believed
	Kernel                  string   // an expression; empty for a family over all inputs
	inputs                  []expression.Input
	leak                    []string // columns that add up to the target
}

// excluded is a column that is left out, and why.
type excluded struct{ Name, Why string }

// What makes a column fit to be an input in what way.
const (
	fewLevels = 20  // texts of more levels are no category unless each has some rows
	perLevel  = 5   // rows that a level has on average, at least
	mostGaps  = 0.5 // of the rows, beyond which a column is left out
)

// choose chooses the target, the named one or the last that can be, and says of all others how they become inputs.
func (b *beginning) choose(columns []dataset.Column, target string) error {
	b.Guessed = target == ""
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
		if b.Guessed && c.Unfit == "" {
			target = c.Name
		}
	}
	at := slices.Index(names, target)
	if at >= 0 && !isTarget(&columns[at]) {
		return fmt.Errorf("the target %s cannot be used: %s", target, columns[at].Unfit)
	}
	b.Target = target
	dataset.Correlate(columns, target)
	b.leak = dataset.Leak(columns, target)
	for i := range columns {
		if i != at {
			b.use(&columns[i])
		}
	}
	if at < 0 || b.Inputs < 1 {
		var why []string
		for _, c := range b.Excluded[:min(len(b.Excluded), 5)] {
			why = append(why, c.Name+": "+c.Why)
		}
		return fmt.Errorf("a target and at least one input are needed, but too few columns can be used (%s)", strings.Join(why, "; "))
	}
	b.measure(&columns[at])
	return nil
}

// classes reports whether a column holds two classes, words or whole numbers.
func classes(c *dataset.Column) bool {
	return c.Distinct == 2 && len(c.Common) == 2 && (c.Type == dataset.Texts || c.Type == dataset.Integers)
}

// isTarget reports whether a column can be a target: of numbers or classes, some of which may be missing.
func isTarget(c *dataset.Column) bool {
	return c.Unfit == "" || classes(c) || c.Missing > 0 && c.Distinct > 1 && (c.Type == dataset.Numbers || c.Type == dataset.Integers)
}

// measure says what the target is like.
func (b *beginning) measure(c *dataset.Column) {
	four := func(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }
	b.SD, b.Low, b.High, b.Unlabelled = four(c.SD), four(c.Min), four(c.Max), c.Missing
	switch {
	case classes(c):
		first, second := c.Text(c.Min), c.Text(c.Max)
		if c.Type == dataset.Texts {
			first, second = min(c.Common[0].Value, c.Common[1].Value), max(c.Common[0].Value, c.Common[1].Value)
		}
		b.Likelihood, b.Why = "bernoulli", fmt.Sprintf("the targets are two classes, %s and %s; predictions are of the probability of the second", first, second)
	case c.Type == dataset.Integers && c.Min >= 0 && c.Common != nil:
		b.Look = append(b.Look, fmt.Sprintf("%s: whole numbers from %s on: if they are counts, write likelihood: poisson, or negative-binomial where they vary more, under model; if they are grades, likelihood: ordinal", shown(c.Name), b.Low))
	}
	if len(b.Categories) > 0 {
		b.Kernel = expression.OfAll("rbf", false, b.inputs)
	}
}

// use says how a column becomes an input, or why not.
func (b *beginning) use(c *dataset.Column) {
	gaps := float64(c.Missing) > mostGaps*float64(b.Rows)
	few := c.Distinct <= fewLevels || c.Distinct*perLevel <= b.Rows
	numbers := c.Type == dataset.Numbers || c.Type == dataset.Integers
	in := expression.Input{Name: c.Name, SD: 1}
	switch {
	case c.Missing == 0 && c.Unfit == "":
	case gaps && c.Missing < b.Rows:
		b.exclude(c, fmt.Sprintf("%d of %d values are missing", c.Missing, b.Rows))
		return
	case c.Distinct == 1 && c.Type == dataset.Texts && len(c.Common) == 1:
		b.exclude(c, fmt.Sprintf("constant: %q", c.Common[0].Value))
		return
	case c.Distinct == 1 && c.Histogram != nil:
		b.exclude(c, fmt.Sprintf("constant: %s", c.Text(c.Min)))
		return
	case c.Type == dataset.Texts && !strings.HasPrefix(c.Unfit, "decimal") && c.Common != nil && c.Distinct > 1 && c.Distinct <= dataset.MaxLevels && few && b.Rows > c.Distinct:
		in.Levels = c.Distinct
		b.Categories = append(b.Categories, *c)
	case c.Type == dataset.Texts && c.ID(b.Rows):
		b.exclude(c, "text, of which every row has another: a name of the row?")
		return
	case c.Type == dataset.Times && c.Date != "":
		b.Dates = append(b.Dates, *c)
	case numbers && c.Missing > 0 && c.Distinct > 1 && strings.Contains(c.Unfit, "missing"):
	default:
		b.exclude(c, c.Unfit)
		return
	}
	b.Inputs++
	b.inputs = append(b.inputs, in)
	if c.Missing > 0 {
		b.Missing = append(b.Missing, *c)
		if in.Levels == 0 {
			b.inputs = append(b.inputs, expression.Input{Name: c.Name + "_missing", SD: 1})
		}
	}
	for _, note := range notesOn(c, b.Rows, b.Target, b.leak) {
		if note != c.Unfit {
			b.Look = append(b.Look, shown(c.Name)+": "+note)
		}
	}
	if c.Type == dataset.Integers && c.Common != nil && c.Distinct > 2 && c.Distinct <= 12 && c.Distinct*perLevel <= b.Rows {
		b.Look = append(b.Look, fmt.Sprintf("%s: %d whole numbers: if they are codes and not amounts, name the column under categories", shown(c.Name), c.Distinct))
	}
}

func (b *beginning) exclude(c *dataset.Column, why string) {
	b.Excluded = append(b.Excluded, excluded{c.Name, shown(why)})
}

// Sparse reports whether pairs of rows may be so far apart that products can pass over them.
func (b *beginning) Sparse() bool {
	return b.Rows >= job.SparseRows && b.Inputs <= job.SparseInputs
}

// text returns the specification, which the parser of specifications accepts.
func (b *beginning) text() ([]byte, error) {
	t, err := template.New("init").Funcs(template.FuncMap{"yaml": yamlText, "shown": shown, "common": glance,
		"low": func(c dataset.Column) string { return c.Text(c.Min) }, "high": func(c dataset.Column) string { return c.Text(c.Max) }}).Parse(initText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, b); err != nil {
		return nil, err
	}
	_, err = job.Parse(bytes.NewReader(out.Bytes()), b.File)
	return out.Bytes(), err
}

// yamlText returns a text as a value in YAML, on one line.
func yamlText(s string) (string, error) {
	text, err := yaml.Marshal(s)
	if err == nil && bytes.Count(text, []byte("\n")) == 1 {
		return strings.TrimSpace(string(text)), nil
	}
	text, err = json.Marshal(s)
	return string(text), err
}

// endings of tables' names.
var endings = []string{".gz", ".zst", ".csv", ".tsv", ".txt", ".parquet", ".arrow", ".arrows", ".feather", ".ipc", ".npz", ".npy"}

// jobName returns the name of a job for a table: that of the file without its endings.
func jobName(table string) string {
	name := filepath.Base(table)
	for _, ending := range endings {
		name = strings.TrimSuffix(name, ending)
	}
	name = job.FileName(name)
	if name == "" {
		return "job"
	}
	return name[:min(len(name), 100)]
}
