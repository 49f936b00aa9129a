package cli

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ulisse-gp/ulisse/internal/client"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// docs/cli.md is what the commands say of themselves.
func TestReference(t *testing.T) {
	const path = "../../docs/cli.md"
	want := reference()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/cli.md is stale (%v): go test ./internal/cli -run TestReference -update", err)
	}
}

// reference is the manual of all commands in Markdown.
func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	a := &App{Stdin: strings.NewReader(""), Stdout: &b, Stderr: &b, Now: time.Now}
	root := a.root()
	queue := slices.Clone(root.Commands())
	for len(queue) > 0 {
		c := queue[0]
		queue = append(slices.Clone(c.Commands()), queue[1:]...)
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n", c.CommandPath(), about, c.UseLine())
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		onCluster := c.Flags().Lookup("coordinators") != nil || c.PersistentFlags().Lookup("coordinators") != nil
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"coordinators", "context", "timeout", "help"}, f.Name) && !(onCluster && strings.HasPrefix(f.Name, "tls-")) {
				own.AddFlag(f)
			}
		})
		if own.HasFlags() {
			b.WriteString("\n" + own.FlagUsages())
		}
		if c.Example != "" {
			b.WriteString("\nExamples:\n" + c.Example + "\n")
		}
		b.WriteString("```\n")
	}
	return b.String()
}

const referenceHead = `# Command line

What ` + "`ulisse COMMAND --help`" + ` says; a test keeps this page true.

A JOB is an id, the beginning of one that no other shares, or a name: the newest job of that name.
A command on a cluster talks to the coordinators of ` + "`--coordinators` or `--context`; else of\n`$ULISSE_COORDINATORS` or `$ULISSE_CONTEXT`" + `; else of the current context; else to
` + client.DefaultAddress + `. Any coordinator will do, and any of them may be lost meanwhile. Without an
answer a command gives up after ` + "`--timeout`" + ` (10s); one that follows a job does not, once it has begun.
` + "With `--tls-ca`, `--tls-cert` and `--tls-key`, or `$ULISSE_TLS_CA`, `$ULISSE_TLS_CERT` and `$ULISSE_TLS_KEY`, or files that" + `
the context names, it speaks TLS. These flags of all those commands, and of the worker, are not repeated below.

Exit codes: 0 done, or converged; 1 failure; 2 bad input; 3 ended without converging; 130 interrupted.
`
