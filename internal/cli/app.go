// Package cli is the command line. All that it touches of the outside world is
// in an App, so that whole commands run in tests.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
)

// The exit codes.
const (
	ExitConverged   = 0   // also: the command did what it was asked
	ExitFailure     = 1   // something went wrong that is not the input's fault
	ExitBadInput    = 2   // the command line, the specification or the data
	ExitUnconverged = 3   // the run ended without converging
	ExitInterrupted = 130 // stopped by the user; it can be resumed
)

// App is a command line in its surroundings.
type App struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	TTY    bool // Stderr is a terminal: draw progress there
	Now    func() time.Time
}

// NewApp returns the App of the process.
func NewApp() *App {
	return &App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		TTY: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb", Now: time.Now}
}

// exit is an error with the code that it ends the process with. A nil err
// prints nothing.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// badInput marks an error as the input's fault.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &exit{ExitBadInput, err}
}

// code returns the exit code of an error.
func code(err error) int {
	var e *exit
	var field *job.FieldError
	var table *dataset.Error
	switch {
	case err == nil:
		return ExitConverged
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &field), errors.As(err, &table), errors.Is(err, fs.ErrNotExist):
		return ExitBadInput
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitFailure
}

// Execute runs the command line and returns the exit code.
func (a *App) Execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(a.Stderr, "ulisse:", err)
	}
	return code(err)
}

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ulisse",
		Short: "Draw from the full posterior of an exact Gaussian process's covariance parameters",
		Long: `ulisse draws from the full posterior over the covariance parameters of an exact
Gaussian process: no inducing points, no dropped rows, the covariance matrix
never stored.

Try it without any file:        ulisse run --demo
Then write a specification:     see docs/job-spec.md and examples/
Check it, and what it will cost: ulisse validate SPEC, ulisse plan SPEC`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := tile.Default() // an instruction set that this machine lacks may be forced
			return badInput(err)
		},
	}
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			return badInput(fmt.Errorf("there is no command %q: did you mean %q?", args[0], near[0]))
		}
		return badInput(fmt.Errorf("there is no command %q: see 'ulisse --help'", args[0]))
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return badInput(fmt.Errorf("%w; see '%s --help'", err, c.CommandPath()))
	})
	root.AddCommand(a.runCommand(), a.validateCommand(), a.planCommand(), a.versionCommand())
	for _, c := range root.Commands() { // a wrong number of arguments is bad input too
		if check := c.Args; check != nil {
			c.Args = func(c *cobra.Command, args []string) error { return badInput(check(c, args)) }
		}
	}
	return root
}

// instructionSet returns the name of the instruction set that products use.
func instructionSet() string {
	isa, err := tile.Default()
	if err != nil {
		return err.Error()
	}
	return isa.String()
}
