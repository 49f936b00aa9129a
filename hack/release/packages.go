package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the deb and the rpm of a platform.
func (r *release) packages(p platform) error {
	for format, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		contents, err := r.contents(p, format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(r.info(p, contents))
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := os.WriteFile(filepath.Join(r.out, packager.ConventionalFileName(info)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// info describes a package.
func (r *release) info(p platform, contents files.Contents) *nfpm.Info {
	script := func(name string) string { return filepath.Join(r.root, "deploy", "systemd", name+".sh") }
	return &nfpm.Info{
		Name: "ulisse", Arch: p.arch, Platform: "linux", Version: r.version, Release: "1", MTime: r.date, DisableGlobbing: true,
		Section: "science", Priority: "optional", Maintainer: "The ulisse authors <ulisse@users.noreply.github.com>", Vendor: "ulisse",
		Homepage: "https://github.com/ulisse-gp/ulisse", License: "Apache-2.0",
		Description: "Posterior draws of exact Gaussian processes on large data\n" +
			"Draws from the full posterior over the covariance parameters of the exact\n" +
			"Gaussian process, on one machine or on a cluster, with convergence diagnostics.",
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: script("postinstall"), PreRemove: script("preremove"), PostRemove: script("postremove")},
			RPM:      nfpm.RPM{BuildHost: "localhost", Group: "Applications/Engineering", Summary: "Posterior draws of exact Gaussian processes on large data"},
			Deb:      nfpm.Deb{Compression: "gzip"},
		},
	}
}

// contents are the files of a package.
func (r *release) contents(p platform, format string) (files.Contents, error) {
	out := files.Contents{}
	add := func(source, destination, kind string, mode os.FileMode) {
		out = append(out, &files.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}})
	}
	systemd := func(name string) string { return filepath.Join(r.root, "deploy", "systemd", name) }
	add(r.binary(p), "/usr/bin/ulisse", "", 0o755)
	for _, unit := range []string{"ulisse-coordinator.service", "ulisse-worker.service"} {
		add(systemd(unit), "/usr/lib/systemd/system/"+unit, "", 0o644)
	}
	add(systemd("ulisse.sysusers"), "/usr/lib/sysusers.d/ulisse.conf", "", 0o644)
	for _, env := range []string{"coordinator.env", "worker.env"} {
		add(systemd(env), "/etc/ulisse/"+env, files.TypeConfigNoReplace, 0o644)
	}
	completion := func(name, destination string) { add(filepath.Join(r.tmp, "completions", name), destination, "", 0o644) }
	completion("ulisse.bash", "/usr/share/bash-completion/completions/ulisse")
	completion("ulisse.fish", "/usr/share/fish/vendor_completions.d/ulisse.fish")
	zsh := map[string]string{"deb": "/usr/share/zsh/vendor-completions/_ulisse", "rpm": "/usr/share/zsh/site-functions/_ulisse"}
	completion("_ulisse", zsh[format])
	add(filepath.Join(r.root, "README.md"), "/usr/share/doc/ulisse/README.md", "", 0o644)
	add(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/ulisse/copyright", "", 0o644)
	zipped, err := r.compressed()
	for source, destination := range zipped {
		add(source, destination, "", 0o644)
	}
	return out, err
}

// compressed are the manual pages and the changelog, which systems expect to be
// compressed: what is to be packed, and where it goes.
func (r *release) compressed() (map[string]string, error) {
	pages, err := tree(filepath.Join(r.tmp, "man"), "/usr/share/man/man1")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range append(pages, entry{name: "/usr/share/doc/ulisse/changelog", path: filepath.Join(r.root, "CHANGELOG.md")}) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := z.Write(data); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		path := filepath.Join(r.tmp, strings.ReplaceAll(strings.TrimPrefix(f.name, "/"), "/", "-")+".gz")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return nil, err
		}
		out[path] = f.name + ".gz"
	}
	return out, nil
}
