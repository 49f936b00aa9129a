// Command release makes all files of a release, in a module of its own so that
// ulisse's has nothing of packages.
//
//	go run -C hack/release . --out DIR               of the version that CHANGELOG.md names first
//	go run -C hack/release . --check                 only whether a release could be made
//	go run -C hack/release . --out DIR --platforms linux/amd64
//
// The folder then holds archives of the static programs (with manual pages and
// completions), deb and rpm, the image, the Helm chart, what python/ builds, bills of materials,
// the notes, and SHA256SUMS of all of them. The same commit and the same version of Go give
// the same bytes, wherever and whenever. A release is not made from a tree with changes, nor
// without notes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// platform is an operating system and an architecture, in Go's words.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var all = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}

func main() {
	out := flag.String("out", "", "write the files into this `folder`, which must be empty or not there")
	check := flag.Bool("check", false, "only check the tree and its notes")
	only := flag.String("platforms", "", "build for these `platforms` alone: linux/amd64,darwin/arm64,…")
	flag.Parse()
	if err := run(*out, *only, *check); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, only string, check bool) error {
	platforms, err := choose(only)
	if err != nil {
		return err
	}
	r, err := newRelease(".")
	if err != nil {
		return err
	}
	if check {
		fmt.Printf("%s can be released from %.12s\n", r.version, r.commit)
		return nil
	}
	if r.out, err = emptyFolder(out); err != nil {
		return err
	}
	if r.tmp, err = os.MkdirTemp("", "ulisse-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp)
	if err := r.make(platforms); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", r.version, r.out)
	return nil
}

// choose reads --platforms.
func choose(only string) ([]platform, error) {
	if only == "" {
		return all, nil
	}
	var out []platform
	for s := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p platform) bool { return p.String() == s })
		if i < 0 {
			return nil, fmt.Errorf("--platforms: there are %v, no %q", all, s)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// emptyFolder returns the absolute path of a folder with nothing in it.
func emptyFolder(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("--out says where to write the release")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return "", errors.Join(err, fmt.Errorf("the folder %s is not empty", dir))
	}
	return dir, nil
}

// make makes all files.
func (r *release) make(platforms []platform) error {
	if err := r.command(nil, "go", "run", "-ldflags", "-X github.com/ulisse-gp/ulisse/internal/version.Version="+r.version, "./hack/man", r.tmp); err != nil {
		return err
	}
	var linux []string
	for _, p := range platforms {
		if err := r.program(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if p.os == "linux" {
			linux = append(linux, p.arch)
			if err := r.packages(p); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	if len(linux) > 0 {
		if err := r.command(nil, "go", "run", "./hack/image", "--binaries", r.tmp, "--arch", strings.Join(linux, ","), "--version", r.version,
			"--out", r.file("image.tar")); err != nil {
			return err
		}
	}
	if err := r.wheels(platforms); err != nil {
		return err
	}
	for _, step := range []func() error{r.chart, r.writeNotes, r.sums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
