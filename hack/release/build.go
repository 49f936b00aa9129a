package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// file is the path of a file of the release: its name begins as all others do.
func (r *release) file(name string) string {
	return filepath.Join(r.out, "ulisse_"+r.version+"_"+name)
}

// command runs a program in the root of the checkout.
func (r *release) command(env []string, name string, args ...string) error {
	_, err := r.output(env, name, args...)
	return err
}

// output is command, and returns what the program printed.
func (r *release) output(env []string, name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Dir = r.root
	c.Env = append(append(os.Environ(), fmt.Sprint("SOURCE_DATE_EPOCH=", r.date.Unix()), "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes(), nil
}

// binary is where the program of a platform is built.
func (r *release) binary(p platform) string {
	return filepath.Join(r.tmp, "ulisse-"+p.os+"-"+p.arch)
}

// program builds the program of a platform, its archive and its bill of materials.
func (r *release) program(p platform) error {
	if err := r.command([]string{"GOOS=" + p.os, "GOARCH=" + p.arch}, filepath.Join("hack", "build"), r.binary(p), r.version); err != nil {
		return err
	}
	name := p.os + "_" + p.arch
	bill, err := r.output(nil, "go", "run", "./hack/image", "--version", r.version, "--sbom", r.binary(p))
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file(name+".spdx.json"), bill, 0o644); err != nil {
		return err
	}
	files, err := r.archived(p)
	if err != nil {
		return err
	}
	if p.os == "windows" {
		return r.zip(r.file(name+".zip"), files)
	}
	return r.tar(r.file(name+".tar.gz"), "ulisse_"+r.version+"_"+name, files)
}

// entry is a file of an archive.
type entry struct {
	name, path string
	mode       fs.FileMode
}

// archived are the files of a platform's archive.
func (r *release) archived(p platform) ([]entry, error) {
	program := "ulisse"
	if p.os == "windows" {
		program += ".exe"
	}
	out := []entry{{program, r.binary(p), 0o755}}
	for _, doc := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		out = append(out, entry{doc, filepath.Join(r.root, doc), 0o644})
	}
	for _, dir := range []string{"completions", "man"} {
		files, err := tree(filepath.Join(r.tmp, dir), dir)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

// tree lists the files of a folder in the order of their names, under another.
func tree(dir, under string) ([]entry, error) {
	var out []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out = append(out, entry{under + "/" + filepath.ToSlash(name), path, 0o644})
		return err
	})
	return out, err
}

// tar writes a .tar.gz whose files are all in one folder.
func (r *release) tar(path, folder string, files []entry) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: int64(f.mode), Size: int64(len(data)), ModTime: r.date, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func (r *release) zip(path string, files []entry) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.date}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// chart packs the Helm chart as 'helm package' does.
func (r *release) chart() error {
	files, err := tree(filepath.Join(r.root, "deploy", "helm", "ulisse"), "ulisse")
	if err != nil {
		return err
	}
	for i, f := range files {
		files[i].name = strings.TrimPrefix(f.name, "ulisse/")
	}
	return r.tar(filepath.Join(r.out, "ulisse-"+r.version+".tgz"), "ulisse", files)
}

// pythonVersion is the line of the Python package that says its version.
var pythonVersion = regexp.MustCompile(`(?m)^__version__ = ".*"$`)

// wheels lets python/, if it is there, put the programs into wheels: a copy of it
// with the release's version.
func (r *release) wheels(platforms []platform) error {
	list, err := git(r.root, "ls-files", "python")
	if err != nil || !strings.Contains(list, "python/build") {
		return err
	}
	for name := range strings.SplitSeq(list, "\n") {
		info, err := os.Stat(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		if name == "python/ulisse/__init__.py" {
			data = pythonVersion.ReplaceAll(data, fmt.Appendf(nil, "__version__ = %q", r.version))
		}
		to := filepath.Join(r.tmp, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, info.Mode()); err != nil {
			return err
		}
	}
	args := []string{"--out", r.out}
	for _, p := range platforms {
		args = append(args, "--platform", p.String()+"="+r.binary(p))
	}
	return r.command(nil, filepath.Join(r.tmp, "python", "build"), args...)
}

// writeNotes writes what is new, and how it was built.
func (r *release) writeNotes() error {
	text := fmt.Sprintf(`# ulisse %[1]s

%[2]s

---

Built from %[3]s with %[4]s, reproducibly: %[5]s in a checkout of it gives the same files. %[6]s says whether yours
are those.
`, r.version, r.notes, r.commit, runtime.Version(), "`go run -C hack/release . --out DIR`", "`sha256sum -c --ignore-missing SHA256SUMS`")
	return os.WriteFile(r.file("notes.md"), []byte(text), 0o644)
}

// sums writes the checksums of all files.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(b), e.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
