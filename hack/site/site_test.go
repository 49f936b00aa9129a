package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const tree = "../.."

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSite builds the site of this tree: every link leads somewhere, every
// document is in it, and the search finds what stands in one.
func TestSite(t *testing.T) {
	out := t.TempDir()
	if err := buildAll(tree, out, nil); err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob(filepath.Join(tree, "docs", "*.md"))
	if err != nil || len(docs) < 10 {
		t.Fatal(docs, err)
	}
	index := read(t, out, current, "index.html")
	for _, d := range docs {
		url := strings.TrimSuffix(filepath.Base(d), ".md") + ".html"
		if !strings.Contains(index, `<a href="`+url+`"`) {
			t.Errorf("the menu has no %s", url)
		}
		if page := read(t, out, current, url); !strings.Contains(page, `aria-current="page"`) {
			t.Errorf("%s does not mark itself in the menu", url)
		}
	}
	for _, file := range []string{"posterior.svg", "dashboard-job.png", "site.css"} {
		if len(read(t, out, current, file)) == 0 {
			t.Errorf("%s is empty", file)
		}
	}
	var parts []part
	text := read(t, out, current, "search.js")
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(text, "window.parts = "), ";\n")), &parts); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range parts {
		if p.URL == "operations.html#probes" || strings.Contains(p.Text, "UlisseNoLeader") {
			found = true
		}
	}
	if !found || len(parts) < 150 {
		t.Errorf("%d parts to search, the alerts are not among them", len(parts))
	}
	t.Run("browser", func(t *testing.T) { inBrowser(t, filepath.Join(out, current)) })
}

// inBrowser looks at the site as somebody does who opened a file.
func inBrowser(t *testing.T, dir string) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no Chromium")
	}
	out, err := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
		"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+filepath.Join(dir, "cli.html")+"?q=lost+quorum").Output()
	if err != nil {
		t.Fatal(err)
	}
	page := string(out)
	_, results, _ := strings.Cut(page, `id="results"`)
	results, _, _ = strings.Cut(results, "</section>")
	if !strings.Contains(results, `href="operations.html#what-happens-when-something-fails"`) {
		t.Errorf("the search does not find what to do about a lost quorum: %.600s", results)
	}
	if !strings.Contains(page, `<option value="main">main</option>`) {
		t.Error("the page does not show its version")
	}
}

// small writes a tree of one page.
func small(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"README.md": text, "docs/a.md": "# A page\n\n## A `heading`: of, sorts\n\ntext\n\n## Twice\n\n## Twice\n", "go.mod": "module x\n", "docs/p.svg": "<svg/>", "docs/more/q.svg": "<svg/>"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLinks(t *testing.T) {
	for link, want := range map[string]string{
		"docs/a.md":                          `href="a.html"`,
		"docs/a.md#a-heading-of-sorts":       `href="a.html#a-heading-of-sorts"`,
		"docs/a.md#twice-1":                  `href="a.html#twice-1"`,
		"#here":                              `href="#here"`,
		"go.mod":                             `href="https://github.com/ulisse-gp/ulisse/blob/v1/go.mod"`,
		"docs":                               `href="https://github.com/ulisse-gp/ulisse/tree/v1/docs"`,
		"docs/p.svg":                         `href="p.svg"`,
		"docs/more/q.svg":                    `href="more/q.svg"`,
		"https://example.org/x":              `href="https://example.org/x"`,
		"docs/none.md":                       "there is no such file",
		"docs/a.md#none":                     "the page has no such heading",
		"#none":                              "there is no such heading",
		"docs/a.md#a-heading-of-sorts-again": "the page has no such heading",
	} {
		out := t.TempDir()
		err := build(small(t, "# Here\n\n| a |\n|---|\n| b |\n\nAfter a table a [link]("+link+").\n"), out, "v1")
		if strings.Contains(want, "href") {
			if err != nil {
				t.Errorf("%s: %v", link, err)
			} else if page := read(t, out, "index.html"); !strings.Contains(page, want) {
				t.Errorf("%s: no %s", link, want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", link, err)
		}
	}
}

// TestVersions: a tag has a folder of its own, with what it held, and is what the
// site begins with.
func TestVersions(t *testing.T) {
	dir := small(t, "# Old text\n")
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "old")
	git("tag", "v0.1.0")
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("# New text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := buildAll(dir, out, []string{"v0.1.0"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, out, "v0.1.0", "index.html"), "Old text") || !strings.Contains(read(t, out, "main", "index.html"), "New text") {
		t.Error("the versions are not what their trees were")
	}
	if got := read(t, out, "versions.js"); got != "window.versions = [\"main\",\"v0.1.0\"];\n" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(read(t, out, "index.html"), "url=v0.1.0/index.html") {
		t.Error("the site does not begin with the newest version")
	}
	if err := buildAll(dir, out, []string{"v9"}); err == nil || !strings.Contains(err.Error(), "v9") {
		t.Errorf("a tag that is not there: %v", err)
	}
}
