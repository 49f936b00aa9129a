// Package r_test checks the package for R.
package r_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cli/clitest"
	"github.com/ulisse-gp/ulisse/internal/version"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// R CMD check, tests and examples among what it checks, finds nothing to say.
func TestPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("other people's programs, which take their time")
	}
	const packages = "library(posterior); library(jsonlite); library(curl); library(processx); library(testthat)"
	if exec.Command("Rscript", "-e", packages).Run() != nil {
		t.Skip("needs R with the packages posterior, jsonlite, curl, processx and testthat (Debian: r-cran-…)")
	}
	clitest.Read(t, "R", "man", "tests")
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, dir, "R", "CMD", "build", here)
	built, err := filepath.Glob(filepath.Join(dir, "ulisse_*.tar.gz"))
	if err != nil || len(built) != 1 {
		t.Fatalf("built %v: %v", built, err)
	}
	// A clock is asked for over the network.
	t.Setenv("_R_CHECK_SYSTEM_CLOCK_", "0")
	clitest.Run(t, dir, "sh", "-c", "R CMD check --no-manual '"+built[0]+"' || { cat ulisse.Rcheck/tests/*.fail; exit 1; }")
	log, err := os.ReadFile(filepath.Join(dir, "ulisse.Rcheck", "00check.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "\nStatus: OK") {
		t.Errorf("R CMD check:\n%s", log)
	}
	tests, err := os.ReadFile(filepath.Join(dir, "ulisse.Rcheck", "tests", "testthat.Rout"))
	if err != nil || !strings.Contains(string(tests), "SKIP 0") {
		t.Errorf("the tests: %v\n%s", err, tests)
	}
}

// The worked analysis does what it says.
func TestAnalysis(t *testing.T) {
	if testing.Short() {
		t.Skip("other people's programs, which take their time")
	}
	if exec.Command("Rscript", "-e", "library(posterior); library(jsonlite); library(curl); library(processx); library(knitr)").Run() != nil {
		t.Skip("needs R with the packages posterior, jsonlite, curl, processx and knitr (Debian: r-cran-…)")
	}
	lib, dir := t.TempDir(), t.TempDir()
	clitest.Read(t, "../docs/notebooks")
	text, err := os.ReadFile("../docs/notebooks/yield.Rmd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "yield.Rmd"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, ".", "R", "CMD", "INSTALL", "--no-docs", "--library="+lib, ".")
	t.Setenv("R_LIBS", lib)
	clitest.Run(t, dir, "Rscript", "-e", "knitr::opts_chunk$set(error = FALSE); options(warn = 2); knitr::knit('yield.Rmd', quiet = TRUE)")
	out, err := os.ReadFile(filepath.Join(dir, "yield.md"))
	if err != nil || !strings.Contains(string(out), "## converged") || !strings.Contains(string(out), "without_humidity") {
		t.Errorf("the analysis: %v\n%s", err, out)
	}
}

// The package has the program's version: one that is being worked on is above the last, as R spells it.
func TestVersion(t *testing.T) {
	text, err := os.ReadFile("DESCRIPTION")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^Version: (.*)$`).FindStringSubmatch(string(text))
	if want := strings.Replace(version.Version, "-dev", ".9000", 1); got == nil || got[1] != want {
		t.Errorf("the version is %v, want %s", got, want)
	}
}
