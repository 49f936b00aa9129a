package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is one that is being made.
type release struct {
	root    string // of the checkout
	out     string // the files of the release
	tmp     string // what they are made of
	version string // 0.1.0
	commit  string
	date    time.Time // of the commit
	notes   string
}

// newRelease says what can be released from the checkout around a folder, or why
// nothing can.
func newRelease(dir string) (*release, error) {
	root, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("a release is made from a checkout: %w", err)
	}
	r := &release{root: root}
	changes, err := git(root, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changes != "" {
		return nil, fmt.Errorf("there are changes that are in no commit:\n%s", changes)
	}
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	if r.version, r.notes, err = newest(string(log)); err != nil {
		return nil, fmt.Errorf("CHANGELOG.md: %w", err)
	}
	if err := r.named(); err != nil {
		return nil, err
	}
	if r.commit, err = git(root, "rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	if tagged, err := git(root, "rev-parse", "-q", "--verify", "v"+r.version+"^{commit}"); err == nil && tagged != r.commit {
		return nil, fmt.Errorf("the tag v%s is another commit, %.12s: CHANGELOG.md has no newer version", r.version, tagged)
	}
	stamp, err := git(root, "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	sec, err := strconv.ParseInt(stamp, 10, 64)
	r.date = time.Unix(sec, 0).UTC()
	return r, err
}

// named checks that what is deployed by default is this version.
func (r *release) named() error {
	for path, pattern := range map[string]string{
		"deploy/k8s/base/kustomization.yaml":              `newTag: %s$`,
		"deploy/helm/ulisse/Chart.yaml":                   `version: %s$`,
		"deploy/k8s/components/backup/kustomization.yaml": `newTag: %s$`,
		"internal/version/version.go":                     `Version = "%s-dev"$`,
	} {
		text, err := os.ReadFile(filepath.Join(r.root, path))
		if err != nil {
			return err
		}
		pattern = fmt.Sprintf(pattern, regexp.QuoteMeta(r.version))
		if !regexp.MustCompile("(?m)" + pattern).Match(text) {
			return fmt.Errorf("%s names another version than %s: it has no %s", path, r.version, strings.TrimSuffix(pattern, "$"))
		}
	}
	return nil
}

var (
	heading  = regexp.MustCompile(`(?m)^## \[([^\]]+)\](?: - (\S+))?[ \t]*$`)
	semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	upgrade  = regexp.MustCompile(`(?ms)^### Upgrading[ \t]*$(.*?)(^#{1,3} |\z)`)
	links    = regexp.MustCompile(`(?ms)^\[[^\]]+\]: .*\z`)
)

// newest returns the newest version of a changelog, and its notes: what stands between its
// heading and the next. They have to say how to upgrade, and nothing may wait
// above them.
func newest(log string) (version, notes string, err error) {
	at := heading.FindAllStringSubmatchIndex(log, -1)
	section := func(i int) string {
		end := len(log)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		return strings.TrimSpace(links.ReplaceAllString(log[at[i][1]:end], ""))
	}
	for i, m := range at {
		version = log[m[2]:m[3]]
		notes = section(i)
		if version == "Unreleased" {
			if notes != "" {
				return "", "", errors.New("something stands under [Unreleased]: give it a version and a date, '## [1.2.3] - 2026-01-31'")
			}
			continue
		}
		if !semantic.MatchString(version) {
			return "", "", fmt.Errorf("[%s] is no semantic version", version)
		}
		if m[4] < 0 {
			return "", "", fmt.Errorf("[%s] has no date", version)
		}
		if _, err := time.Parse(time.DateOnly, log[m[4]:m[5]]); err != nil {
			return "", "", fmt.Errorf("[%s]: %w", version, err)
		}
		if u := upgrade.FindStringSubmatch(notes); u == nil || strings.TrimSpace(u[1]) == "" {
			return "", "", fmt.Errorf("[%s] does not say how to upgrade: it has no section '### Upgrading', or an empty one", version)
		}
		return version, notes, nil
	}
	return "", "", errors.New("there is no version")
}

// git returns what a command of git says.
func git(dir string, args ...string) (string, error) {
	c := exec.Command("git", append([]string{"-C", dir}, args...)...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}
