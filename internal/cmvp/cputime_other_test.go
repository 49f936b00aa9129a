//go:build !unix

package cmvp

import "time"

var began = time.Now()

// cpuSeconds returns wall time, where processor time is not to be had.
func cpuSeconds() float64 { return time.Since(began).Seconds() }
