//go:build unix

// Package cputime tells how much processor time the process has used, for
// benchmarks: other work on the machine shows less in it than in wall time.
package cputime

import "syscall"

// Seconds returns the processor time of all threads since the process began.
func Seconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
