//go:build unix

package main

import "syscall"

// cpuSeconds returns the processor time that the process has used. Benchmarks
// take it beside wall time, in which other work on the machine shows more.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
