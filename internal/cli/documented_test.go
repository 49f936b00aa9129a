package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedCommands: the commands that people copy from the documents are
// there, with their flags.
func TestDocumentedCommands(t *testing.T) {
	command := regexp.MustCompile(`(-n |install )?\bulisse ([a-z][^` + "`" + `#;&|()\n…]*)`)
	flag := regexp.MustCompile(`^--([a-z-]+)`)
	for file, least := range map[string]int{"README.md": 15, "docs/cheatsheet.md": 30, "docs/operations.md": 30, "deploy/README.md": 4} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		// Only what is in code; a line that ends in a backslash goes on.
		code := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`").FindAllString(strings.ReplaceAll(string(text), "\\\n", " "), -1)
		n := 0
		for _, m := range command.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			if m[1] != "" {
				continue // of kubectl or helm: a namespace or a release of that name
			}
			root := NewApp().Command()
			root.InitDefaultCompletionCmd()
			words := strings.Fields(m[2])
			c, _, err := root.Find(words)
			if err != nil || !c.HasParent() {
				t.Errorf("%s: there is no command 'ulisse %s'", file, m[2])
				continue
			}
			n++
			c.InitDefaultHelpFlag()
			for _, w := range words {
				if f := flag.FindStringSubmatch(w); f != nil && c.Flags().Lookup(f[1]) == nil && c.InheritedFlags().Lookup(f[1]) == nil {
					t.Errorf("%s: '%s' has no --%s", file, c.CommandPath(), f[1])
				}
			}
		}
		if n < least {
			t.Errorf("%s: %d commands were found: is this test blind?", file, n)
		}
	}
}
