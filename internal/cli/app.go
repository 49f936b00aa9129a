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
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
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
	OutTTY bool // Stdout is a terminal: draw live views there
	Now    func() time.Time
}

// NewApp returns the App of the process.
func NewApp() *App {
	tty := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" }
	return &App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, TTY: tty(os.Stderr), OutTTY: tty(os.Stdout), Now: time.Now}
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
	var answer *client.Error
	switch {
	case err == nil:
		return ExitConverged
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &field), errors.As(err, &table), errors.Is(err, fs.ErrNotExist):
		return ExitBadInput
	case errors.As(err, &answer) && answer.BadInput():
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

// Command returns the whole command line, for what is generated of it.
func (a *App) Command() *cobra.Command { return a.root() }

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ulisse",
		Short: "Draw from the full posterior of an exact Gaussian process's covariance parameters",
		Long: `ulisse draws from the full posterior over the covariance parameters of an exact
Gaussian process: no inducing points, no dropped rows, the covariance matrix
never stored.

Try it without any file:        ulisse run --demo
Then write a specification:     ulisse init TABLE.csv; see docs/job-spec.md, examples/
Check it, and what it will cost: ulisse validate SPEC, ulisse plan SPEC
On a cluster:                   ulisse submit SPEC, ulisse watch JOB`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := tile.Default() // an instruction set that this machine lacks may be forced
			return badInput(err)
		},
	}
	group(root)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return badInput(fmt.Errorf("%s; see '%s --help'", plainFlag(err), c.CommandPath()))
	})
	root.AddGroup(&cobra.Group{ID: "local", Title: "On this machine:"}, &cobra.Group{ID: "cluster", Title: "On a cluster:"},
		&cobra.Group{ID: "serve", Title: "To run a cluster:"})
	for _, c := range []*cobra.Command{a.describeCommand(), a.initCommand(), a.runCommand(), a.fitCommand(), a.validateCommand(), a.priorCommand(), a.planCommand(), a.predictCommand(), a.effectsCommand(), a.looCommand(), a.cvCommand(), a.compareCommand()} {
		c.GroupID = "local"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{a.submitCommand(), a.jobsCommand(), a.watchCommand(), a.logsCommand(),
		a.pauseCommand(), a.resumeCommand(), a.cancelCommand(), a.deleteCommand(), a.extendCommand(), a.noteCommand(), a.tagCommand(),
		a.drawsCommand(), a.summaryCommand(), a.reportCommand(), a.resultsCommand(), a.workersCommand(), a.drainCommand(),
		a.dataCommand(), a.clusterCommand(), a.contextCommand(), a.tokensCommand(), a.namespacesCommand(), a.whoamiCommand()} {
		c.GroupID = "cluster"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{a.devCommand(), a.coordinatorCommand(), a.workerCommand(), a.certsCommand()} {
		c.GroupID = "serve"
		root.AddCommand(c)
	}
	root.AddCommand(a.versionCommand())
	strict(root)
	return root
}

// plainFlag says what is wrong with a flag without the names of Go's functions.
func plainFlag(err error) string {
	text := err.Error()
	at := strings.Index(text, ": strconv.")
	if at < 0 {
		at = strings.Index(text, ": time: ")
	}
	if at < 0 {
		return text
	}
	return strings.Replace(text[:at], "invalid argument", "bad value", 1)
}

// group makes a command of one that only has others below it: on its own it
// prints its help.
func group(c *cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknown(c, args[0])
	}
}

// unknown is the answer to a word that is no command.
func unknown(c *cobra.Command, word string) error {
	if near := c.SuggestionsFor(word); len(near) > 0 {
		nearest := slices.MinFunc(near, func(a, b string) int {
			return levenshtein.ComputeDistance(word, a) - levenshtein.ComputeDistance(word, b)
		})
		return badInput(fmt.Errorf("there is no command %q: did you mean %q?", word, nearest))
	}
	return badInput(fmt.Errorf("there is no command %q: see '%s --help'", word, c.CommandPath()))
}

// strict makes a wrong number of arguments bad input, and says what they are.
func strict(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) == nil {
				return nil
			}
			takes := "no argument"
			if _, names, ok := strings.Cut(c.Use, " "); ok {
				takes = names
			}
			return badInput(fmt.Errorf("'%s' takes %s, and was given %s; see '%[1]s --help'", c.CommandPath(), takes, given(args)))
		}
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}

// given quotes arguments, the first few of many.
func given(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	const few = 4
	text := fmt.Sprintf("%q", args[:min(few, len(args))])
	text = text[1 : len(text)-1]
	if len(args) > few {
		text += fmt.Sprintf(" and %d more", len(args)-few)
	}
	return text
}

// instructionSet returns the name of the instruction set that products use.
func instructionSet() string {
	isa, err := cmvp.ISA()
	if err != nil {
		return err.Error()
	}
	return isa
}
