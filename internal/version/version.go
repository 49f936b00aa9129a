// Package version says what was built.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the release, set by the linker in release builds.
var Version = "0.1.0-dev"

// Arithmetic names how this version rounds: two programs of one arithmetic and one
// instruction set compute the same draws, to the last bit. A release that changes
// a bit of them takes another name (the next number).
var Arithmetic = "1"

// Commit returns the revision that the binary was built from, if it is known.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if len(rev) > 12 {
		rev = rev[:12]
	}
	return rev + dirty
}

// String returns the version with its commit, Go release and platform.
func String() string {
	s := Version
	if c := Commit(); c != "" {
		s += " (" + c + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
