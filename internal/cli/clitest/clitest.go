// Package clitest lets a test's own program be ulisse, for tests of other
// languages' packages: there is nothing to build, and the tests run again when the
// program changes.
package clitest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cli"
)

const env = "ULISSE_TEST_MAIN"

// Main is the body of TestMain.
func Main(m *testing.M) {
	if os.Getenv(env) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.NewApp().Execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// Program returns the path of the program.
func Program(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ulisse")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", env, exe), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Read reads all files below the folders: a test whose result is kept runs again
// after a change of one.
func Read(t *testing.T, folders ...string) {
	t.Helper()
	for _, dir := range folders {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Run runs a command of another language with the program as $ULISSE_BINARY, and
// fails with what it said.
func Run(t *testing.T, dir string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ULISSE_BINARY="+Program(t), "MPLBACKEND=Agg", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
}
