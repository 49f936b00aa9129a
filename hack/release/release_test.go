package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/sassoftware/go-rpmutils"
)

// changelog is one that a release can be made with.
const changelog = `# Changelog

## [Unreleased]

## [0.1.0] - 2026-01-31

### Added

- Everything.

### Upgrading

Nothing to do.

## [0.0.9] - 2026-01-01

### Upgrading

Old.

[0.1.0]: https://example.org
`

func TestNewest(t *testing.T) {
	version, notes, err := newest(changelog)
	if err != nil || version != "0.1.0" || notes != "### Added\n\n- Everything.\n\n### Upgrading\n\nNothing to do." {
		t.Errorf("%q, %q, %v", version, notes, err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"## [Unreleased]\n", "## [Unreleased]\n\n- News.\n", "under [Unreleased]"},
		{" - 2026-01-31", "", "no date"},
		{"2026-01-31", "2026-31-01", "[0.1.0]"},
		{"[0.1.0] -", "[0.1] -", "no semantic version"},
		{"Nothing to do.\n", "", "how to upgrade"},
		{"### Upgrading\n\nNothing to do.", "", "how to upgrade"},
	} {
		bad := strings.Replace(changelog, c.from, c.to, 1)
		if bad == changelog {
			t.Fatalf("there is no %q", c.from)
		}
		if v, _, err := newest(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: version %q, %v", c.to, c.from, v, err)
		}
	}
	if _, _, err := newest("# Changelog\n\n## [Unreleased]\n"); err == nil {
		t.Error("a changelog without a version is taken")
	}
}

// The changelog of the tree is one that newest understands.
func TestOwnChangelog(t *testing.T) {
	log, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	dated := regexp.MustCompile(`(?m)^## \[Unreleased\]$`).ReplaceAllString(string(log), "## [9.9.9] - 2026-01-31")
	if version, notes, err := newest(dated); err != nil || version != "9.9.9" || len(notes) < 20 {
		t.Errorf("as the notes of 9.9.9: %q, %v", version, err)
	}
}

// checkout copies the tree as it is into a repository of one commit, the notes of
// which are those above.
func checkout(t *testing.T, dir string) string {
	t.Helper()
	list, err := git("../..", "ls-files", "-co", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(list, "\n") {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, not yet committed
		}
		info, err2 := os.Stat(filepath.Join("../..", name))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if name == "CHANGELOG.md" {
			data = []byte(changelog)
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, info.Mode())); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_AUTHOR_DATE", "2026-01-31T12:00:00+05:00")
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-31T12:00:00+05:00")
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "all"}} {
		if _, err := git(dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRefused: a tree that is not what its commit says, and versions that do not fit.
func TestRefused(t *testing.T) {
	dir := checkout(t, t.TempDir())
	if r, err := newRelease(dir); err != nil || r.version != "0.1.0" {
		t.Fatalf("%+v, %v", r, err)
	}
	refused := func(what, want string) {
		t.Helper()
		if _, err := newRelease(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	commit := func() {
		t.Helper()
		if _, err := git(dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-aqm", "more"); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("new.txt", "new")
	refused("a file that is in no commit", "new.txt")
	if err := os.Remove(filepath.Join(dir, "new.txt")); err != nil {
		t.Fatal(err)
	}
	write("README.md", "changed")
	refused("a changed file", "README.md")
	if _, err := git(dir, "tag", "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	commit()
	refused("a version whose tag is another commit", "the tag v0.1.0")
	write("CHANGELOG.md", strings.Replace(changelog, "[0.1.0] - ", "[0.2.0] - ", 1))
	commit()
	refused("manifests of another version", "names another version than 0.2.0")
	write("CHANGELOG.md", "# Changelog\n")
	commit()
	refused("no notes", "there is no version")
}

// TestTwice makes a release of two copies of the tree, in folders of other names, for
// one machine: the same files, and each as it should be.
func TestTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	if runtime.GOOS != "linux" {
		t.Skip("runs a program for Linux")
	}
	p := platform{"linux", runtime.GOARCH}
	var made [2]*release
	for i, name := range []string{"a", "another folder"} {
		if i == 1 {
			t.Setenv("TZ", "Pacific/Auckland")
			t.Setenv("LC_ALL", "C")
		}
		r, err := newRelease(checkout(t, filepath.Join(t.TempDir(), name)))
		if err != nil {
			t.Fatal(err)
		}
		r.out, r.tmp = t.TempDir(), t.TempDir()
		if err := r.make([]platform{p}); err != nil {
			t.Fatal(err)
		}
		made[i] = r
	}
	sums := read(t, filepath.Join(made[0].out, "SHA256SUMS"))
	if again := read(t, filepath.Join(made[1].out, "SHA256SUMS")); !bytes.Equal(sums, again) {
		t.Errorf("two builds differ:\n%s\n%s", sums, again)
	}
	r := made[0]
	for _, want := range []string{"linux_" + p.arch + ".tar.gz", "linux_" + p.arch + ".spdx.json", "image.tar", "notes.md"} {
		if !bytes.Contains(sums, []byte("  ulisse_0.1.0_"+want+"\n")) {
			t.Errorf("the release has no %s:\n%s", want, sums)
		}
	}
	if n, entries := bytes.Count(sums, []byte("\n")), readDir(t, r.out); n != len(entries)-1 {
		t.Errorf("%d checksums of %d files", n, len(entries)-1)
	}
	t.Run("archive", func(t *testing.T) { checkArchive(t, r, p) })
	t.Run("deb", func(t *testing.T) { checkDeb(t, r, p) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, r, p) })
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// untar returns the files of a .tar.gz.
func untar(t *testing.T, zipped []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if h.ModTime.Unix() != 1769842800 { // the commit's
			t.Errorf("%s is of %v", h.Name, h.ModTime)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// checkArchive runs the program of the archive: it says what it is.
func checkArchive(t *testing.T, r *release, p platform) {
	folder := "ulisse_0.1.0_linux_" + p.arch + "/"
	files := untar(t, read(t, r.file("linux_"+p.arch+".tar.gz")))
	for _, want := range []string{"ulisse", "LICENSE", "CHANGELOG.md", "man/ulisse.1", "man/ulisse-run.1", "completions/ulisse.bash", "completions/_ulisse"} {
		if len(files[folder+want]) == 0 {
			t.Errorf("the archive has no %s", want)
		}
	}
	path := filepath.Join(t.TempDir(), "ulisse")
	if err := os.WriteFile(path, files[folder+"ulisse"], 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]string
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	if v["version"] != "0.1.0" || len(v["commit"]) < 12 || !strings.HasPrefix(r.commit, v["commit"]) || v["date"] != "2026-01-31T07:00:00Z" || v["arithmetic"] == "" || v["instruction_set"] == "" {
		t.Errorf("the program says %s", out)
	}
	if page := string(files[folder+"man/ulisse-run.1"]); !strings.Contains(page, `"Jan 2026" "ulisse 0.1.0"`) || !strings.Contains(page, "--out") {
		t.Errorf("the page of run: %.300s", page)
	}
}

// wanted are files of both packages.
var wanted = []string{"/usr/bin/ulisse", "/usr/lib/systemd/system/ulisse-coordinator.service", "/usr/lib/systemd/system/ulisse-worker.service",
	"/usr/lib/sysusers.d/ulisse.conf", "/etc/ulisse/coordinator.env", "/etc/ulisse/worker.env", "/usr/share/man/man1/ulisse-worker.1.gz",
	"/usr/share/bash-completion/completions/ulisse", "/usr/share/doc/ulisse/copyright"}

func checkDeb(t *testing.T, r *release, p platform) {
	members := map[string][]byte{}
	for a := ar.NewReader(bytes.NewReader(read(t, filepath.Join(r.out, "ulisse_0.1.0-1_"+p.arch+".deb")))); ; {
		h, err := a.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if members[strings.TrimSuffix(h.Name, "/")], err = io.ReadAll(a); err != nil {
			t.Fatal(err)
		}
	}
	control, data := untar(t, members["control.tar.gz"]), untar(t, members["data.tar.gz"])
	for _, want := range []string{"Package: ulisse\n", "Version: 0.1.0-1\n", "Architecture: " + p.arch + "\n", "Section: science\n"} {
		if !strings.Contains(string(control["./control"]), want) {
			t.Errorf("no %q in\n%s", want, control["./control"])
		}
	}
	if got := string(control["./conffiles"]); got != "/etc/ulisse/coordinator.env\n/etc/ulisse/worker.env\n" {
		t.Errorf("configuration files: %q", got)
	}
	for _, script := range []string{"./postinst", "./prerm", "./postrm"} {
		if len(control[script]) == 0 {
			t.Errorf("there is no %s", script)
		}
	}
	for _, want := range wanted {
		if len(data["."+want]) == 0 {
			t.Errorf("there is no %s", want)
		}
	}
}

func checkRPM(t *testing.T, r *release, p platform) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.arch]
	pkg, err := rpmutils.ReadRpm(bytes.NewReader(read(t, filepath.Join(r.out, "ulisse-0.1.0-1."+arch+".rpm"))))
	if err != nil {
		t.Fatal(err)
	}
	if nevra, err := pkg.Header.GetNEVRA(); err != nil || nevra.String() != "ulisse-0:0.1.0-1."+arch+".rpm" {
		t.Errorf("%v, %v", nevra, err)
	}
	list, err := pkg.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]int{}
	for _, f := range list {
		flags[f.Name()] = f.Flags()
	}
	for _, want := range wanted {
		config := strings.HasPrefix(want, "/etc/")
		const noReplace = rpmutils.RPMFILE_CONFIG | rpmutils.RPMFILE_NOREPLACE
		if got, ok := flags[want]; !ok || (got&noReplace == noReplace) != config {
			t.Errorf("%s: there %v, flags %b", want, ok, got)
		}
	}
}

// TestUnits: units and their configuration say flags and variables that the
// program has, and give processes longer to end than they take.
func TestUnits(t *testing.T) {
	reference := string(read(t, "../../docs/cli.md"))
	flag := regexp.MustCompile(`--[a-z-]+`)
	for _, role := range []string{"coordinator", "worker"} {
		unit := string(read(t, "../../deploy/systemd/ulisse-"+role+".service"))
		env := string(read(t, "../../deploy/systemd/"+role+".env"))
		_, section, found := strings.Cut(reference, "## ulisse "+role+"\n")
		if !found {
			t.Fatalf("docs/cli.md has no 'ulisse %s'", role)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		known := flag.FindAllString(section, -1)
		if !strings.Contains(unit, "ExecStart=/usr/bin/ulisse "+role+" ") || !strings.Contains(unit, "EnvironmentFile=/etc/ulisse/"+role+".env\n") {
			t.Errorf("the unit of the %s:\n%s", role, unit)
		}
		var lines []string
		for line := range strings.Lines(unit + env) {
			if strings.HasPrefix(line, "ExecStart=") || strings.HasPrefix(line, "FLAGS=") || strings.HasPrefix(line, "#FLAGS=") {
				lines = append(lines, line)
			}
		}
		for _, f := range flag.FindAllString(strings.Join(lines, " "), -1) {
			if !slices.Contains(known, f) {
				t.Errorf("'ulisse %s' has no %s", role, f)
			}
		}
		for _, v := range regexp.MustCompile(`(?m)^#?(ULISSE_[A-Z_]+)=`).FindAllStringSubmatch(env, -1) {
			if !strings.Contains(reference, "$"+v[1]) {
				t.Errorf("%s.env sets %s, which docs/cli.md does not know", role, v[1])
			}
		}
	}
	// --drain-time is 25 s, calls end within 5 s.
	var stop int
	_, after, _ := strings.Cut(string(read(t, "../../deploy/systemd/ulisse-worker.service")), "TimeoutStopSec=")
	if _, err := fmt.Sscan(after, &stop); err != nil || stop < 35 {
		t.Errorf("workers have %d s to end", stop)
	}
}
