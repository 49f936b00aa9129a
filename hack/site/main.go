// Command site makes a web site of the documents, in a module of its own. What it
// writes needs no server: the search runs in the browser, also from file:// addresses.
//
//	go run -C hack/site . --out site                               of the tree as it is
//	go run -C hack/site . --out site --versions v0.1.0,v0.2.0      of these tags too, each in a folder
//
// A link to a page, a heading or a file that is not there is an error.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// current is the version that the tree as it is goes by.
const current = "main"

func main() {
	out := flag.String("out", "", "write the site into this `folder`")
	versions := flag.String("versions", "", "`tags` to build besides the tree as it is, the newest last")
	flag.Parse()
	if err := run(*out, *versions); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(out, tags string) error {
	if out == "" {
		return fmt.Errorf("--out says where to write the site")
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("the site is made from a checkout: %w", err)
	}
	var list []string
	if tags != "" {
		list = strings.Split(tags, ",")
	}
	return buildAll(strings.TrimSpace(string(root)), out, list)
}

// buildAll builds the tree at root and tags of its repository into a folder for each, and a
// page that leads to the newest tag, or else to the tree.
func buildAll(root, out string, tags []string) error {
	if err := build(root, filepath.Join(out, current), current); err != nil {
		return err
	}
	versions := []string{current}
	for _, tag := range tags {
		if err := buildTag(root, filepath.Join(out, tag), tag); err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
		versions = append(versions, tag)
	}
	names, err := json.Marshal(versions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "versions.js"), fmt.Appendf(nil, "window.versions = %s;\n", names), 0o644); err != nil {
		return err
	}
	newest := versions[len(versions)-1]
	return os.WriteFile(filepath.Join(out, "index.html"), fmt.Appendf(nil,
		"<!doctype html><html lang=\"en\"><title>ulisse</title><meta http-equiv=\"refresh\" content=\"0; url=%[1]s/index.html\"><a href=\"%[1]s/index.html\">ulisse</a>\n", newest), 0o644)
}

// buildTag builds what a tag holds.
func buildTag(root, out, tag string) error {
	tmp, err := os.MkdirTemp("", "ulisse-site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	archive := filepath.Join(tmp, "tree.tar")
	if msg, err := exec.Command("git", "-C", root, "archive", "--output", archive, tag).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, msg)
	}
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if msg, err := exec.Command("tar", "-xf", archive, "-C", tree).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, msg)
	}
	return build(tree, out, tag)
}
