package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	goldhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

var (
	//go:embed assets/page.html
	pageText string
	//go:embed assets/site.css
	css []byte
	//go:embed assets/site.js
	script []byte

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

const repository = "https://github.com/ulisse-gp/ulisse"

// chapter is a part of the menu. Documents that no chapter names come last, so that none is lost.
type chapter struct {
	Title string
	files []string
	Pages []*page
}

func chapters() []*chapter {
	docs := func(names ...string) (out []string) {
		for _, n := range names {
			out = append(out, "docs/"+n+".md")
		}
		return out
	}
	return []*chapter{
		{Title: "Begin", files: append([]string{"README.md"}, docs("cheatsheet", "glossary", "limits")...)},
		{Title: "Use", files: append(docs("job-spec", "cli", "python", "r", "dashboard"), "examples/README.md")},
		{Title: "Run a cluster", files: append([]string{"deploy/README.md"}, docs("operations", "metrics")...)},
		{Title: "Understand", files: docs("trust", "posteriors", "architecture", "mathematics", "kernels", "benchmarks", "compare")},
		{Title: "Change", files: []string{"CONTRIBUTING.md", "CHANGELOG.md"}},
		{Title: "More"},
	}
}

// page is a document on its way to the site.
type page struct {
	source string // README.md, docs/cli.md
	URL    string // index.html, cli.html
	Title  string
	body   *html.Node
	ids    map[string]bool
	parts  []part
}

// part is what the search finds: a heading and the text below it.
type part struct {
	Page    string `json:"p"`
	Heading string `json:"h"`
	URL     string `json:"u"`
	Text    string `json:"t"`
}

// address is where a document goes.
func address(source string) string {
	switch source {
	case "README.md":
		return "index.html"
	case "deploy/README.md", "examples/README.md":
		return path.Dir(source) + ".html"
	}
	return strings.ToLower(strings.TrimSuffix(path.Base(source), ".md")) + ".html"
}

// site is one version that is being built.
type site struct {
	root, out, version string
	pages              map[string]*page // by source
	chapters           []*chapter
	errs               []error
}

// build makes the site of the tree at root.
func build(root, out, version string) error {
	s := &site{root: root, out: out, version: version, pages: map[string]*page{}, chapters: chapters()}
	if err := s.read(); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var parts []part
	for _, c := range s.chapters {
		for _, p := range c.Pages {
			s.links(p, p.body)
			parts = append(parts, p.parts...)
		}
	}
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	for _, p := range s.pages {
		if err := s.write(p); err != nil {
			return err
		}
	}
	index, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "search.js"), slices.Concat([]byte("window.parts = "), index, []byte(";\n")), 0o644),
		os.WriteFile(filepath.Join(out, "site.css"), css, 0o644),
		os.WriteFile(filepath.Join(out, "site.js"), script, 0o644))
}

// read reads all documents into their chapters.
func (s *site) read() error {
	docs, err := filepath.Glob(filepath.Join(s.root, "docs", "*.md"))
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, c := range s.chapters {
		for _, f := range c.files {
			named[f] = true
		}
	}
	last := s.chapters[len(s.chapters)-1]
	for _, d := range docs {
		if f := "docs/" + filepath.Base(d); !named[f] {
			last.files = append(last.files, f)
		}
	}
	for _, c := range s.chapters {
		for _, f := range c.files {
			text, err := os.ReadFile(filepath.Join(s.root, f))
			if errors.Is(err, os.ErrNotExist) {
				continue // not in this version
			}
			if err != nil {
				return err
			}
			p, err := parse(f, text)
			if err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			s.pages[f] = p
			c.Pages = append(c.Pages, p)
		}
	}
	s.chapters = slices.DeleteFunc(s.chapters, func(c *chapter) bool { return len(c.Pages) == 0 })
	return nil
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(goldhtml.WithUnsafe()))

// parse renders a document.
func parse(source string, text []byte) (*page, error) {
	p := &page{source: source, URL: address(source), ids: map[string]bool{}}
	var b bytes.Buffer
	ctx := parser.NewContext(parser.WithIDs(&anchors{seen: map[string]int{}}))
	if err := markdown.Convert(text, &b, parser.WithContext(ctx)); err != nil {
		return nil, err
	}
	nodes, err := html.ParseFragment(&b, &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		return nil, err
	}
	p.body = &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}
	for _, n := range nodes {
		p.body.AppendChild(n)
	}
	p.collect()
	if p.Title == "" {
		return nil, errors.New("it has no heading of the first level")
	}
	return p, nil
}

// collect finds headings, what can be linked to, and what can be searched.
func (p *page) collect() {
	var now *part
	for n := range p.body.Descendants() {
		if id := attribute(n, "id"); id != "" {
			p.ids[id] = true
		}
	}
	for n := p.body.FirstChild; n != nil; n = n.NextSibling {
		if n.Type == html.ElementNode && len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] != 'r' {
			title := text(n)
			if n.DataAtom == atom.H1 && p.Title == "" {
				p.Title = title
			}
			p.parts = append(p.parts, part{Page: p.Title, Heading: title, URL: p.URL + "#" + attribute(n, "id")})
			now = &p.parts[len(p.parts)-1]
			n.AppendChild(anchorLink(attribute(n, "id"), title))
			continue
		}
		if now != nil {
			now.Text = strings.TrimSpace(now.Text + " " + text(n))
		}
	}
}

// anchorLink is the sign beside a heading that leads to it.
func anchorLink(id, title string) *html.Node {
	a := &html.Node{Type: html.ElementNode, Data: "a", DataAtom: atom.A, Attr: []html.Attribute{{Key: "href", Val: "#" + id}, {Key: "class", Val: "anchor"}, {Key: "aria-label", Val: "Link to " + title}}}
	a.AppendChild(&html.Node{Type: html.TextNode, Data: "#"})
	return a
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// text is what a reader reads of a node.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
			b.WriteString(" ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// links leads all links and pictures of a page to where they are in the site.
func (s *site) links(p *page, n *html.Node) {
	for _, d := range slices.Collect(n.Descendants()) { // first, since tables move
		for i, a := range d.Attr {
			if d.DataAtom == atom.A && a.Key == "href" || d.DataAtom == atom.Img && a.Key == "src" {
				to, err := s.resolve(p, a.Val)
				if err != nil {
					s.errs = append(s.errs, fmt.Errorf("%s: the link %s: %w", p.source, a.Val, err))
					continue
				}
				d.Attr[i].Val = to
			}
		}
		if d.DataAtom == atom.Table {
			wrap(d)
		}
	}
}

// wrap lets a wide table scroll by itself.
func wrap(table *html.Node) {
	if table.Parent.DataAtom == atom.Div && attribute(table.Parent, "class") == "wide" {
		return
	}
	div := &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div, Attr: []html.Attribute{{Key: "class", Val: "wide"}, {Key: "tabindex", Val: "0"}}}
	table.Parent.InsertBefore(div, table)
	table.Parent.RemoveChild(table)
	div.AppendChild(table)
}

// resolve says where a link of a document leads on the site: to a page, to a file that is
// copied, or into the repository.
func (s *site) resolve(p *page, link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return link, err
	}
	if u.Path == "" {
		if !p.ids[u.Fragment] {
			return "", errors.New("there is no such heading")
		}
		return link, nil
	}
	source := path.Join(path.Dir(p.source), u.Path)
	for _, candidate := range []string{source, source + "/README.md"} {
		if to := s.pages[candidate]; to != nil {
			if u.Fragment == "" {
				return to.URL, nil
			}
			if !to.ids[u.Fragment] {
				return "", errors.New("the page has no such heading")
			}
			return to.URL + "#" + u.Fragment, nil
		}
	}
	file := filepath.Join(s.root, source)
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "", errors.New("there is no such file")
	case info.IsDir():
		return repository + "/tree/" + s.version + "/" + source, nil
	case strings.HasPrefix(source, "docs/") && !strings.HasSuffix(source, ".md"):
		to := strings.TrimPrefix(source, "docs/")
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Join(s.out, path.Dir(to)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.out, to), data, 0o644)
		}
		return to, err
	}
	return repository + "/blob/" + s.version + "/" + source, nil
}

// write writes a page.
func (s *site) write(p *page) error {
	var body, out bytes.Buffer
	for n := p.body.FirstChild; n != nil; n = n.NextSibling {
		if err := html.Render(&body, n); err != nil {
			return err
		}
	}
	err := pageTemplate.Execute(&out, map[string]any{"Page": p, "Chapters": s.chapters, "Version": s.version,
		"Body": template.HTML(body.String()), "Edit": repository + "/edit/main/" + p.source})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.out, p.URL), out.Bytes(), 0o644)
}
