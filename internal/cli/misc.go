package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/version"
)

func (a *App) validateCommand() *cobra.Command {
	var f source
	var specOnly bool
	c := &cobra.Command{
		Use:   "validate [SPEC]",
		Short: "Check a specification and its data, and print it with every default",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			parts, err := f.specs(args)
			if err != nil {
				return err
			}
			again, err := a.rereading(parts[0].Spec.Data.Path)
			if err != nil {
				return err
			}
			for i, p := range parts {
				if len(parts) > 1 {
					fmt.Fprintf(a.Stderr, "target %s:\n", p.Spec.Data.Target)
				}
				if !specOnly {
					if err := again().validate(c.Context(), p.Spec, f.budget()); err != nil {
						return err
					}
				}
				text, err := p.Spec.YAML()
				if err != nil {
					return err
				}
				if i > 0 {
					fmt.Fprintln(a.Stdout, "---")
				}
				if _, err = a.Stdout.Write(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.flags(c)
	c.Flags().BoolVar(&specOnly, "spec-only", false, "do not read the data")
	return c
}

// hintMirrors says which parameters can change places.
func (a *App) hintMirrors(p *posterior.Problem, inputs []string) {
	symmetries := p.Symmetries()
	if len(symmetries) == 0 {
		return
	}
	names := p.Params.NamesBy(inputs)
	var these, those []string
	for i, from := range symmetries[0] {
		if from > i {
			these, those = append(these, names[i]), append(those, names[from])
		}
	}
	more := ""
	if n := len(symmetries) - 1; n > 0 {
		more = fmt.Sprintf(" (and by %s)", plural.Of(n, "other exchange"))
	}
	fmt.Fprintf(a.Stderr, "hint: the posterior is the same where %s and %s change places%s: each of its modes has a mirror image, unless priors tell them apart; sampler.method: auto draws from both\n",
		strings.Join(these, ", "), strings.Join(those, ", "), more)
}

// validate checks a specification with its data and tells what is to be known of them.
func (a *App) validate(ctx context.Context, spec *job.Spec, budget *parallel.Budget) error {
	d, p, err := a.load(ctx, spec, budget)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "%d rows, %s (%d held out): the specification and the data are good\n", d.N(), plural.Of(d.D(), "input"), len(d.HoldoutY))
	a.hints(spec, d)
	a.hintMirrors(p, d.InputNames)
	if err := a.printPriors(spec, d); err != nil {
		return err
	}
	if limit := time.Duration(spec.Stop.MaxTime); limit > 0 && d.N() >= plannedRows {
		e, err := driver.NewEstimate(ctx, spec, p, budget)
		if err != nil {
			return err
		}
		a.hintTime(e, limit)
	}
	return nil
}

// printPriors prints what the specification with every default does not: the prior of the mean, an expression as it
// was understood, how the target is learnt, and the prior of each parameter.
func (a *App) printPriors(spec *job.Spec, d *dataset.Dataset) error {
	if m, err := expression.ParseMean(spec.Mean()); err == nil && !m.None() {
		fmt.Fprintf(a.Stderr, "mean: %s, coefficients ~ normal(0,%.4g) in units of %s, of a slope for each standard deviation of the input\n",
			strings.TrimSpace(spec.Mean()), job.MeanSD*d.YScale.SD, d.Learnt())
	}
	expressed, changed := expression.Is(spec.Model.Kernel), d.Transform.Kind != likelihood.None
	if !expressed && !changed && d.Noise == nil {
		return nil
	}
	priors, err := spec.PriorsOf(&d.Info)
	if err != nil {
		return badInput(err)
	}
	if expressed {
		fmt.Fprintln(a.Stderr, "covariance:", strings.TrimSpace(spec.Model.Kernel))
	}
	if changed {
		fmt.Fprintf(a.Stderr, "target: %s, in whose units are priors of signal_sd and noise_sd\n", d.Learnt())
	}
	for _, p := range priors {
		note := ""
		if p.Note != "" {
			note = ", " + p.Note
		}
		fmt.Fprintf(a.Stderr, "  %s ~ %s%s\n", p.Quantity, p.Prior, note)
	}
	return nil
}

func (a *App) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what was built, and what decides the bits of draws",
		Long: `Print the version, its commit and that one's date, Go's version and the platform;
and the two things that decide the bits of draws: the arithmetic, a number that
a release raises when it rounds otherwise, and the instruction set in use with
the architecture (avx512/amd64).`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(a.Stdout).Encode(map[string]string{"version": version.Version, "commit": version.Commit(), "date": version.Date(),
					"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
					"arithmetic": version.Arithmetic, "instruction_set": instructionSet()})
			}
			fmt.Fprintf(a.Stdout, "ulisse %s, arithmetic %s, instruction set %s\n", version.String(), version.Arithmetic, instructionSet())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
