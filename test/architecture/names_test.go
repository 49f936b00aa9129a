package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamesInDocuments finds every name of a declaration that the documents about the code
// mention: `pkg.Name`, or `pkg.Type.Name` of a method or field, written in backquotes. Tests are
// among them, so that a recipe cannot name a test that does not exist.
func TestNamesInDocuments(t *testing.T) {
	declared := declarations(t)
	quoted := regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Za-z0-9]+)(\\.[A-Za-z0-9]+)?(\\(.*?\\))?`")
	for _, file := range []string{"docs/architecture.md", "docs/kernels.md", "docs/operations.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			names, ours := declared[m[1]]
			if !ours || m[2] == "db" || file == "docs/operations.md" && !strings.HasPrefix(m[2], "Test") {
				continue // a key of a specification, a file
			}
			found++
			if !names[m[2]+m[3]] {
				t.Errorf("%s names %s.%s%s, which is not declared", file, m[1], m[2], m[3])
			}
		}
		if found == 0 {
			t.Errorf("%s names nothing of the code", file)
		}
	}
}

// declarations returns what each package, by its name, declares: functions, types, their methods
// and fields, constants and variables, in tests too.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	eachFile(t, func(_, file string) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimSuffix(f.Name.Name, "_test")
		if out[pkg] == nil {
			out[pkg] = map[string]bool{}
		}
		for _, d := range f.Decls {
			declare(out[pkg], d)
		}
	})
	return out
}

// declare adds the names that a declaration makes.
func declare(names map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
		} else {
			names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				for _, m := range members(s.Type) {
					names[s.Name.Name+"."+m] = true
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr: // of one type parameter
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// members returns the names of the fields of a struct, or of the methods of an interface.
func members(x ast.Expr) (names []string) {
	var fields *ast.FieldList
	switch x := x.(type) {
	case *ast.StructType:
		fields = x.Fields
	case *ast.InterfaceType:
		fields = x.Methods
	default:
		return nil
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return names
}
