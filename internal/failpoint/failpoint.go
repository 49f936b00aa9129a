// Package failpoint names the steps by which files come to be on disk, so that a test can
// end the process before each of them, or make it slow.
package failpoint

// Hook is told of each point that is passed, before the step that it names. A test sets it
// before anything else begins; there is none otherwise.
var Hook func(point string)

// At passes a point. The name is a literal: a test finds all of them in the source.
func At(point string) {
	if Hook != nil {
		Hook(point)
	}
}
