package report

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// elements returns all elements of a page, in order.
func elements(t *testing.T, text string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var out []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			out = append(out, n)
		}
	}
	return out
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// words returns the text of an element.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func render(t *testing.T, rec *Record) (string, *Summary) {
	t.Helper()
	var b bytes.Buffer
	sum := rec.Summary()
	if err := WriteHTML(&b, rec, sum, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	return b.String(), sum
}

// checkPage holds a page against what every page has to be: whole, without
// anything from outside or that runs, and usable with a screen reader.
func checkPage(t *testing.T, text string) {
	t.Helper()
	ids := map[string]bool{}
	nodes := elements(t, text)
	for _, n := range nodes {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("the id %s is there twice", id)
			}
			ids[id] = true
		}
	}
	level := 0
	for _, n := range nodes {
		switch n.Data {
		case "script", "link", "img", "iframe", "object", "embed", "image", "use", "form", "foreignobject":
			t.Errorf("there is a <%s>", n.Data)
		case "svg":
			named := slices.ContainsFunc(slices.Collect(n.ChildNodes()), func(c *html.Node) bool { return c.Data == "title" && words(c) != "" })
			if attr(n, "role") != "img" || !named {
				t.Errorf("a picture without a name: %v", n.Attr)
			}
		case "table":
			caption, heads := false, 0
			for d := range n.Descendants() {
				caption = caption || d.Data == "caption" && words(d) != ""
				if d.Data == "th" {
					if heads++; attr(d, "scope") == "" {
						t.Errorf("a table's head %q without a scope", words(d))
					}
				}
			}
			if !caption || heads == 0 {
				t.Error("a table without caption or heads")
			}
		case "h1", "h2", "h3":
			now := int(n.Data[1] - '0')
			if now > level+1 {
				t.Errorf("%s after a heading of level %d", n.Data, level)
			}
			level = now
		case "html":
			if attr(n, "lang") == "" {
				t.Error("no language")
			}
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "href" && (!strings.HasPrefix(a.Val, "#") || !ids[a.Val[1:]]),
				a.Key == "src", a.Key == "srcset", a.Key == "action", strings.HasPrefix(a.Key, "on"),
				strings.Contains(a.Val, "url("), strings.Contains(a.Val, "javascript:"):
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			case strings.HasPrefix(a.Key, "aria-labelledby") && !ids[a.Val]:
				t.Errorf("there is no %s", a.Val)
			case strings.Contains(a.Val, "://") && a.Key != "xmlns" && a.Namespace != "xmlns":
				t.Errorf("<%s %s=%q> is outside", n.Data, a.Key, a.Val)
			}
		}
		if n.Data == "style" && (strings.Contains(words(n), "@import") || strings.Contains(words(n), "url(")) {
			t.Error("a style sheet refers to something")
		}
	}
	if len(ids) == 0 || level == 0 {
		t.Error("there are no ids or no headings")
	}
}

func TestHTML(t *testing.T) {
	rec := testRecord(t, true, 60)
	rec.Origin = Origin{Version: "1.2.3", Host: "lab<1>", Threads: 8, Job: "a1b2", Workers: []string{"w1", "w2"}, Ended: time.Unix(2e9, 0)}
	rec.Data.InputNames = []string{`<script>alert("x")</script>`, "b&c"}
	for c := range rec.Run.Chains {
		for i := range rec.Run.Chains[c].Draws {
			rec.Run.Chains[c].Draws[i][2] += 0.05 * float64(c)
		}
	}
	rec.Run.Stopped.Reason = chains.MaxTime
	rec.Data.Truth = &dataset.Truth{Sigma: 1, Tau: []float64{0.5, 0.25}, Lambda: 0.1}
	exact := testRecord(t, true, 60).Run
	exact.Phase, exact.Prepared = chains.Done, &chains.Prepared{Rank: 40}
	rec.Run.Certificate = exact
	text, sum := render(t, rec)
	checkPage(t, text)
	nodes := elements(t, text)
	all := ""
	pictures, rows := 0, map[string][]string{}
	for _, n := range nodes {
		switch n.Data {
		case "body":
			all = words(n)
		case "svg":
			pictures++
		case "tr":
			var cells []string
			for c := range n.ChildNodes() {
				if c.Type == html.ElementNode {
					cells = append(cells, words(c))
				}
			}
			if _, seen := rows[cells[0]]; !seen {
				rows[cells[0]] = cells[1:]
			}
		}
	}
	for _, want := range []string{"test", "NOT converged (ended by max_time)", "R-hat of tau[b&c] is 1.", "above 1.01: run longer", "kernel rbf, one length-scale for each input", "Certificate",
		`<script>alert("x")</script>`, "lengthscale[b&c]", "means and sds agree", rec.Data.SHA256, sum.DrawsSHA256, "a1b2", "w1, w2", "lab<1>", "ulisse 1.2.3", "portable", "kernel: rbf", "2033-05-18T03:33:20Z", "2001-09-09T01:46:40Z"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if pictures != 8 { // the seven files, and the length-scales
		t.Errorf("%d pictures", pictures)
	}
	for i := range sum.Parameters {
		p := &sum.Parameters[i]
		row := rows[p.Name]
		if p.Detail {
			if row != nil && !strings.HasPrefix(p.Name, "log_") { // logs are in the certificate's table
				t.Errorf("%s: %v", p.Name, row)
			}
			continue
		}
		if len(row) != len(tableColumns)+1 || row[0] != sig(p.Mean) || row[10] != fixed(p.RHat) || row[11] != short(p.ErrorMean) || row[13] != sig(*p.Truth) {
			t.Errorf("%s: %v", p.Name, row)
		}
	}
	if got := rows["1"]; len(got) != 6 || got[0] != "60" || got[1] != "7" || got[3] != "10.0" || got[5] != "2 s" {
		t.Errorf("chain 1: %v", got)
	}
	if again, _ := render(t, rec); again != text {
		t.Error("the page is another the second time")
	}
}

// A run that has no draws yet, or no warnings, has a page too.
func TestHTMLOfLittle(t *testing.T) {
	for _, draws := range []int{0, 1, 250} {
		rec := testRecord(t, false, draws)
		text, sum := render(t, rec)
		checkPage(t, text)
		if strings.Contains(text, "No warnings") != (len(sum.Warnings) == 0) || strings.Contains(text, "<svg") != (draws > 1) || strings.Contains(text, "NaN") {
			t.Errorf("%d draws, warnings %v", draws, sum.Warnings)
		}
	}
}

func TestHTMLFile(t *testing.T) {
	rec := testRecord(t, true, 20)
	dir := t.TempDir()
	if err := WriteAll(dir, rec, rec.Summary()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, string(text))
	if !strings.Contains(string(text), "@media print") || !strings.Contains(string(text), "prefers-color-scheme: dark") {
		t.Error("not for print, or not for the dark")
	}
}
