//go:build !linux

package server

// memory returns the bytes of memory that this process may use; 0 if that is not known.
func memory() int64 { return 0 }

// mostFiles is not known here.
func mostFiles() int { return 0 }
