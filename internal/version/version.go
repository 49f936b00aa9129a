// Package version says what was built.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// What hack/release and hack/image tell the linker. A plain 'go build' leaves commit
// and date empty: Go itself then records them, if the build is in a checkout.
var (
	// Version is the release. Between releases it names the next one.
	Version = "0.1.0-dev"
	commit  = ""
	date    = "" // of the commit, RFC 3339
)

// Arithmetic names how this version rounds: two programs of one arithmetic, on one
// architecture and instruction set, compute the same draws, to the last bit. A release that
// changes a bit of them takes another name (the next number).
var Arithmetic = "2"

func init() {
	// 'go install ...@v0.1.0' has no linker's flags, but a module's version.
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Sum != "" {
		Version = strings.TrimPrefix(info.Main.Version, "v")
	}
}

// Commit returns the revision that the binary was built from, if it is known.
// "+changes" follows if files differed from it.
func Commit() string {
	rev, dirty := commit, ""
	if rev == "" {
		rev = setting("vcs.revision")
		rev = rev[:min(len(rev), 12)]
		if setting("vcs.modified") == "true" {
			dirty = "+changes"
		}
	}
	return rev + dirty
}

// Date returns the date of the commit (RFC 3339), if it is known.
func Date() string {
	if date != "" {
		return date
	}
	return setting("vcs.time")
}

// setting returns what Go recorded of the build.
func setting(key string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// String returns the version with its commit and that one's date, Go release and platform.
func String() string {
	s := Version
	if c := strings.TrimSpace(Commit() + " " + Date()); c != "" {
		s += " (" + c + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
