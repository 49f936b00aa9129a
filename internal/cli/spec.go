package cli

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

//go:embed demo.yaml
var demoSpec []byte

// source is where a command's specification and data come from.
type source struct {
	demo    bool
	data    string
	target  string
	seed    uint64
	hasSeed bool
	holdout float64
	threads int
}

// flags adds the flags of a command that computes on this machine.
func (s *source) flags(c *cobra.Command) {
	s.specFlags(c)
	c.Flags().IntVar(&s.threads, "threads", 0, "compute on this many cores (default: all)")
}

// specFlags adds the flags that say what to compute.
func (s *source) specFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&s.demo, "demo", false, "use built-in data with known parameters instead of SPEC")
	f.StringVar(&s.target, "target", "", "of a specification with a list of targets: this `column` alone")
	f.StringVar(&s.data, "data", "", "read the table from this `path` instead of the specification's (- for standard input)")
	f.Uint64Var(&s.seed, "seed", 0, "use this seed instead of the specification's")
	f.Float64Var(&s.holdout, "holdout", 0, "learn without this `fraction` of the rows, such as 0.1, chosen by the seed: 'ulisse predict --holdout' predicts them")
	c.PreRunE = func(c *cobra.Command, args []string) error {
		s.hasSeed = c.Flags().Changed("seed")
		if s.threads < 0 {
			return badInput(fmt.Errorf("--threads %d: give a positive number", s.threads))
		}
		return nil
	}
}

func (s *source) budget() *parallel.Budget {
	if s.threads > 0 && s.threads > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(s.threads)
	}
	return parallel.NewBudget(s.threads)
}

// spec reads a specification of one target.
func (s *source) spec(args []string) (*job.Spec, error) {
	parts, err := s.specs(args)
	if err != nil {
		return nil, err
	}
	if len(parts) > 1 {
		var names []string
		for _, p := range parts {
			names = append(names, p.Spec.Data.Target)
		}
		return nil, badInput(fmt.Errorf("%s has %d targets, and this is about one: choose it with --target, of %s", args[0], len(parts), strings.Join(names, ", ")))
	}
	return parts[0].Spec, nil
}

// specs reads the specification, which is several if it names several targets. The path of the data is made relative
// to the specification's own folder, as given on the command line to the current one.
func (s *source) specs(args []string) ([]job.Part, error) {
	if s.demo == (len(args) == 1) {
		return nil, badInput(errors.New("give a specification, or --demo"))
	}
	file, text := "demo", demoSpec
	if !s.demo {
		file = args[0]
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return nil, badInput(fmt.Errorf("cannot read the specification: %w", err))
		}
	}
	parts, err := job.ParseEach(bytes.NewReader(text), file)
	if err != nil {
		return nil, badInput(err)
	}
	if parts, err = s.chosen(parts, file); err != nil {
		return nil, badInput(err)
	}
	for _, p := range parts {
		if err := s.change(p.Spec, file); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// chosen returns the specification of the target that was chosen, or all.
func (s *source) chosen(parts []job.Part, file string) ([]job.Part, error) {
	if s.target == "" {
		return parts, nil
	}
	var names []string
	for _, p := range parts {
		if p.Spec.Data.Target == s.target {
			return []job.Part{p}, nil
		}
		names = append(names, p.Spec.Data.Target)
	}
	return nil, fmt.Errorf("--target %s: %s has no such target; it has %s", s.target, file, strings.Join(names, ", "))
}

// change changes a specification that was read from a file as the command line says.
func (s *source) change(spec *job.Spec, file string) (err error) {
	if p := spec.Data.Path; p != "" && p != dataset.Stdin && !isURL(p) && !filepath.IsAbs(p) {
		spec.Data.Path = filepath.Join(filepath.Dir(file), p)
	}
	if s.data != "" {
		if spec.Data.Synthetic != nil {
			return badInput(errors.New("--data: the specification generates its data"))
		}
		spec.Data.Path = s.data
	}
	if p := spec.Data.Path; p != "" && p != dataset.Stdin && !isURL(p) {
		if spec.Data.Path, err = filepath.Abs(p); err != nil {
			return err
		}
	}
	if s.hasSeed {
		spec.Seed = s.seed
	}
	if s.holdout != 0 {
		spec.Data.Holdout = s.holdout
		if err := spec.Validate(); err != nil {
			return badInput(err)
		}
	}
	return nil
}

// hints tells how the table was read, and what somebody should know before believing what is made of it.
func (a *App) hints(spec *job.Spec, d *dataset.Dataset) {
	for _, n := range d.Notes {
		fmt.Fprintln(a.Stderr, "data:", n)
	}
	hints := spec.Hints(&d.Info)
	if spec.Model.Gaussian() {
		hints = slices.Concat(d.Hints(), hints)
	}
	for _, h := range hints {
		fmt.Fprintln(a.Stderr, "hint:", h)
	}
}

// isURL reports whether a path of data is a URL.
func isURL(path string) bool { return strings.Contains(path, "://") }

// load reads the data and makes the problem.
func (a *App) load(ctx context.Context, spec *job.Spec, budget *parallel.Budget) (*dataset.Dataset, *posterior.Problem, error) {
	var table io.Reader
	if spec.Data.Path == dataset.Stdin {
		table = a.Stdin
	}
	d, err := spec.Load(ctx, table, budget)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, badInput(err)
	}
	p, err := spec.Problem(d)
	if err != nil {
		return nil, nil, badInput(err)
	}
	return d, p, nil
}
