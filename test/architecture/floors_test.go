package architecture_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/ulisse-gp/ulisse/"
)

// place is where a package stands in the table of docs/architecture.md.
type place struct {
	floor   int  // 0 is the lowest
	cluster bool // in the right column
}

// TestFloors holds the table of floors against the imports of the packages, for all platforms and
// build tags: every package stands on one floor, imports point down, what computes imports
// nothing of a cluster, and helpers of tests are imported by tests alone.
func TestFloors(t *testing.T) {
	places := floors(t)
	imports := imported(t)
	for _, pkg := range slices.Sorted(maps.Keys(places)) {
		if imports[pkg] == nil {
			t.Errorf("docs/architecture.md puts %s on a floor: there is no such package", pkg)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		from, known := places[pkg]
		inside := strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "cmd/")
		if inside && !known && !forTests(pkg) {
			t.Errorf("%s has no floor: give it one in docs/architecture.md", pkg)
		}
		for _, to := range imports[pkg] {
			at, on := places[to]
			switch {
			case forTests(to) && !forTests(pkg):
				t.Errorf("%s imports %s, which is for tests", pkg, to)
			case !known || !on: // programs of bench and hack stand beside the floors
			case at.floor >= from.floor:
				t.Errorf("%s imports %s, which stands no lower", pkg, to)
			case at.cluster && !from.cluster:
				t.Errorf("%s computes and imports %s, which knows of a cluster", pkg, to)
			}
		}
	}
}

// forTests reports whether a package helps tests, as net/http/httptest does.
func forTests(pkg string) bool { return strings.HasSuffix(path.Base(pkg), "test") }

// floors reads the table of floors, which begins at the highest.
func floors(t *testing.T) map[string]place {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| (\w+) \|(.*)\|(.*)\|$`)
	rows := row.FindAllStringSubmatch(section(t, "docs/architecture.md", "Floors"), -1)
	slices.Reverse(rows)
	out := map[string]place{}
	name := regexp.MustCompile("`([^`]+)`")
	for floor, r := range rows {
		for column, cell := range r[2:] {
			for _, m := range name.FindAllStringSubmatch(cell, -1) {
				pkg := m[1]
				if !strings.HasPrefix(pkg, "cmd/") && !strings.HasPrefix(pkg, "proto/") {
					pkg = "internal/" + pkg
				}
				if _, twice := out[pkg]; twice {
					t.Errorf("docs/architecture.md puts %s on two floors", pkg)
				}
				out[pkg] = place{floor, column == 1}
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("docs/architecture.md has no table of floors")
	}
	return out
}

// section returns what a document says under a heading of the second level.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	body, _, _ := strings.Cut(after, "\n## ")
	return body
}

// imported returns what each package of this module imports of it, tests left out.
func imported(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	eachFile(t, func(pkg, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		if out[pkg] == nil {
			out[pkg] = []string{}
		}
		for _, spec := range f.Imports {
			full, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if to, own := strings.CutPrefix(full, module); own && !slices.Contains(out[pkg], to) {
				out[pkg] = append(out[pkg], to)
			}
		}
	})
	return out
}

// eachFile calls do for every Go file of this module, with the folder it lies in. What the go
// command overlooks is left out, and so are modules of their own.
func eachFile(t *testing.T, do func(pkg, file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		if e.IsDir() {
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			if err == nil || strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") || e.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".go") {
			pkg, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			do(filepath.ToSlash(pkg), file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
