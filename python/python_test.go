// Package python_test runs the tests of the package for Python.
package python_test

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

const python = "/usr/bin/python3"

func TestPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("other people's programs, which take their time")
	}
	if out, err := exec.Command(python, "-c", "import pytest, numpy").CombinedOutput(); err != nil {
		t.Skipf("needs Python with pytest and numpy (Debian: python3-pytest python3-numpy): %s", bytes.TrimSpace(out))
	}
	clitest.Read(t, "ulisse", "tests")
	clitest.Run(t, ".", python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--durations=5")
}
