package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	_ "embed"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/nearest"
)

//go:embed init.yaml
var initText string

func (a *App) initCommand() *cobra.Command {
	var target, out string
	c := &cobra.Command{
		Use:   "init TABLE",
		Short: "Write a specification for a table",
		Long: `Write a specification for a table (CSV, plain or compressed, or Parquet), with
comments on what to choose. The target is the last column that can be one, or
that of --target; the inputs are all others. Columns that cannot be used are
excluded, each with the reason: text, dates, missing values, constants.

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
	columns, rows, err := dataset.SurveyFile(table, dataset.DefaultLimits)
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
	a.note("wrote %s: target %s, %d inputs of %d other columns, %d rows; next: ulisse validate %s", out, b.Target, b.Inputs, len(columns)-1, rows, out)
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
	Excluded                []dataset.Column
}

// choose chooses the target, the named one or the last that can be, and excludes what can be no input.
func (b *beginning) choose(columns []dataset.Column, target string) error {
	var names []string
	b.Target, b.Guessed = target, target == ""
	found := b.Guessed
	for _, c := range columns {
		names = append(names, c.Name)
		switch {
		case c.Name == target && c.Unfit != "":
			return fmt.Errorf("the target %s cannot be used: %s", c.Name, c.Unfit)
		case c.Name == target:
			found = true
		case c.Unfit != "":
			b.Excluded = append(b.Excluded, c)
		default:
			b.Inputs++
			if b.Guessed {
				b.Target = c.Name
			}
		}
	}
	if !found {
		near, ok := nearest.Word(target, names)
		if !ok {
			return fmt.Errorf("there is no column %q: the columns are %s", target, strings.Join(names, ", "))
		}
		return fmt.Errorf("there is no column %q: did you mean %s?", target, near)
	}
	if b.Guessed {
		b.Inputs--
	}
	if b.Inputs < 1 {
		var why []string
		for _, c := range b.Excluded[:min(len(b.Excluded), 5)] {
			why = append(why, c.Name+": "+c.Unfit)
		}
		return fmt.Errorf("a target and at least one input are needed, but too few columns can be used (%s)", strings.Join(why, "; "))
	}
	return nil
}

// text returns the specification, which the parser of specifications accepts.
func (b *beginning) text() ([]byte, error) {
	t, err := template.New("init").Funcs(template.FuncMap{"yaml": yamlText}).Parse(initText)
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

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// endings of tables' names.
var endings = []string{".gz", ".zst", ".csv", ".tsv", ".txt", ".parquet"}

// jobName returns the name of a job for a table: that of the file without its endings.
func jobName(table string) string {
	name := filepath.Base(table)
	for _, ending := range endings {
		name = strings.TrimSuffix(name, ending)
	}
	name = strings.Trim(notInNames.ReplaceAllString(name, "-"), "-._")
	if name == "" {
		return "job"
	}
	return name[:min(len(name), 100)]
}
