//go:build unix

package cmvp

import "syscall"

// cpuSeconds returns the processor time that the process has used. Benchmarks
// take it rather than wall time, so that other work on the machine shows less.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
