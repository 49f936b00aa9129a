package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/server"
)

// block is a block of code in a document.
type block struct {
	language, text string
	line           int
}

// blocks returns the blocks of a document, in order.
func blocks(t *testing.T, path string) []block {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		switch language, fence := strings.CutPrefix(line, "```"); {
		case fence && !open:
			open, out = true, append(out, block{language: language, line: i + 1})
		case fence:
			open = false
		case open:
			out[len(out)-1].text += line + "\n"
		}
	}
	if open || len(out) == 0 {
		t.Fatalf("%s: %d blocks, the last one open: %v", path, len(out), open)
	}
	return out
}

// served runs a coordinator with its JSON API and a worker until the test ends,
// and returns the environment of programs that are to talk to them; ulisse is
// among the programs that they find.
func served(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	run := func(name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	log := slog.New(slog.DiscardHandler)
	ready := make(chan [2]string, 1)
	c := server.Coordinator{ID: "c1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		DiskReserve: 1, Logger: log, Ready: func(grpc, _, http string) { ready <- [2]string{grpc, http} }}
	run("coordinator", c.Run)
	var at [2]string
	select {
	case at = <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the coordinator is not ready")
	}
	w := server.Worker{ID: "w1", Dir: t.TempDir(), Coordinators: []string{at[0]}, Listen: "127.0.0.1:0", Cores: 1, DrainTime: time.Second, Logger: log}
	run("worker", w.Run)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get("http://" + at[1] + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("there is no leader")
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", runMain, exe)
	if err := os.WriteFile(filepath.Join(bin, "ulisse"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "ULISSE=http://"+at[1], client.EnvCoordinators+"="+at[0], client.EnvContext+"=", client.EnvConfig+"="+filepath.Join(bin, "none"),
		"MPLBACKEND=Agg", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// The drivers of documents: programs that carry out blocks from a JSON file in
// one process, and note on the last line those whose packages are not there.
const (
	pythonDriver = `
import json, subprocess, sys
left = {}
for b in json.load(open(sys.argv[1])):
    print("== line", b["line"], flush=True)
    if b["language"] == "sh":
        subprocess.run(["sh", "-ec", b["text"]], check=True)
        continue
    try:
        exec(compile("\n" * b["line"] + b["text"], sys.argv[2], "exec"), globals())
    except ModuleNotFoundError as e:
        left[b["line"]] = str(e)
print(json.dumps(left))
`
	rDriver = `
args <- commandArgs(TRUE)
left <- list()
blocks <- jsonlite::fromJSON(args[1], simplifyVector = FALSE)
for (b_ in blocks) {
  cat("== line", b_$line, "\n")
  if (b_$language == "sh") {
    if (system2("sh", c("-ec", shQuote(b_$text))) != 0) stop("line ", b_$line)
    next
  }
  tryCatch(eval(parse(text = b_$text, keep.source = FALSE), globalenv()), packageNotFoundError = function(e) {
    left[[as.character(b_$line)]] <<- conditionMessage(e)
  })
}
cat(if (length(left)) jsonlite::toJSON(left, auto_unbox = TRUE) else "{}", "\n", sep = "")
`
)

// document carries out the blocks of a document by a command with more environment.
// may are the packages that its blocks may lack.
func document(t *testing.T, name string, command, env []string, may ...string) {
	env = append(served(t), env...)
	dir := t.TempDir()
	path := filepath.Join("..", "..", "docs", name)
	var list []map[string]any
	for _, b := range blocks(t, path) {
		list = append(list, map[string]any{"language": b.language, "text": b.text, "line": b.line})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], append(command[1:], write(t, dir, "blocks.json", string(text)), name)...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	left := map[string]string{}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &left); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	for line, why := range left {
		t.Run(fmt.Sprintf("%s, line %s", name, line), func(t *testing.T) {
			for _, p := range may {
				if strings.Contains(why, p) {
					t.Skip(why)
				}
			}
			t.Error(why)
		})
	}
}

// The code in docs/python.md does what it says.
func TestPythonDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("other people's programs, which take their time")
	}
	const exe = "/usr/bin/python3"
	if out, err := exec.Command(exe, "-c", "import numpy, xarray, zarr, netCDF4, pandas, sklearn, matplotlib").CombinedOutput(); err != nil {
		t.Skipf("needs Python with numpy, xarray, zarr, netCDF4, pandas, sklearn and matplotlib (Debian: python3-…): %v %s", err, bytes.TrimSpace(out))
	}
	document(t, "python.md", []string{exe, "-c", pythonDriver}, []string{"PYTHONPATH=" + beside(t, "python"), "PYTHONDONTWRITEBYTECODE=1"}, "arviz")
}

// The code in docs/r.md does what it says.
func TestRDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("other people's programs, which take their time")
	}
	if exec.Command("Rscript", "-e", "library(posterior); library(jsonlite); library(curl); library(processx)").Run() != nil {
		t.Skip("needs R with the packages posterior, jsonlite, curl and processx (Debian: r-cran-…)")
	}
	lib := t.TempDir()
	if out, err := exec.Command("R", "CMD", "INSTALL", "--no-docs", "--library="+lib, beside(t, "r")).CombinedOutput(); err != nil {
		t.Fatalf("installing the package: %v\n%s", err, out)
	}
	document(t, "r.md", []string{"Rscript", "-e", rDriver}, []string{"R_LIBS=" + lib}, "cmdstanr", "arrow")
}

// beside returns the path of a folder at the root of the tree.
func beside(t *testing.T, name string) string {
	path, err := filepath.Abs(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
